//! Time-series collections: a read returns what a plain collection with the same documents returns.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sheaf_bson::json::typed;
use sheaf_bson::{ArrayBuf, DateTime, DocBuf, DocBuilder, ErrorCode, RawDoc, RawValue, Value, doc};
use sheaf_db::QueryOptions;
use sheaf_db::ddl::timeseries::BucketsChange;
use sheaf_db::modify::{self, DeleteReport, DeleteStatement, UpdateReport, UpdateStatement};
use sheaf_db::ttl::TtlCounters;
use sheaf_db::{CollectionOptions, Events, IndexSelector};
use sheaf_query::canonical::FindSpec;

use crate::pipelines::run_with;
use crate::support::{EngineKind, TestDb, code, index_spec, ns, on_every_engine};

const START: i64 = 1_700_000_000_000;

fn create(test: &TestDb, name: &str, options: DocBuf) {
    let options = CollectionOptions::parse(options.as_raw()).unwrap();
    test.db
        .create_collection(&test.op, &ns(name), options)
        .unwrap();
}

fn create_series(test: &TestDb) {
    create(
        test,
        "ts",
        doc! {"timeseries": {"timeField": "t", "metaField": "m"}},
    );
}

fn stages(stages: &[DocBuf]) -> ArrayBuf {
    ArrayBuf::from_values(
        stages
            .iter()
            .map(|stage| RawValue::Document(stage.as_raw())),
    )
}

fn run(test: &TestDb, name: &str, pipeline: &[DocBuf]) -> Vec<DocBuf> {
    let options = QueryOptions {
        temp_dir: Some(test.dir().join("_tmp").into()),
        ..QueryOptions::default()
    };
    run_with(test, name, &stages(pipeline), options, true).unwrap()
}

/// The document with its fields sorted by name: the order of a measurement's fields is not kept.
fn sorted(doc: RawDoc<'_>) -> DocBuf {
    let mut fields: Vec<_> = doc.iter().collect();
    fields.sort_by_key(|field| field.key());
    let mut out = DocBuilder::new();
    for field in fields {
        out.append_raw_element(field);
    }
    out.finish()
}

/// The documents in no order.
fn bag(docs: &[DocBuf]) -> Vec<String> {
    let mut lines: Vec<_> = docs
        .iter()
        .map(|doc| typed(&sorted(doc.as_raw())))
        .collect();
    lines.sort();
    lines
}

fn delete(test: &TestDb, name: &str, filter: &DocBuf, multi: bool) -> u64 {
    let statement = DeleteStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..Default::default()
        },
        multi,
        return_document: Default::default(),
        projection: None,
    };
    let mut report = DeleteReport::default();
    let options = QueryOptions::default();
    modify::delete(
        &test.db,
        &test.op,
        &ns(name),
        &statement,
        &options,
        &mut report,
    )
    .unwrap();
    report.result.deleted
}

fn update(test: &TestDb, filter: DocBuf, change: DocBuf, multi: bool) -> Result<(u64, u64), i32> {
    let statement = UpdateStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..Default::default()
        },
        update: RawValue::Document(change.as_raw()),
        array_filters: None,
        upsert: false,
        multi,
        return_document: Default::default(),
        projection: None,
        constants: None,
        upsert_supplied: None,
    };
    let mut report = UpdateReport::default();
    let options = QueryOptions::default();
    modify::update(
        &test.db,
        &test.op,
        &ns("ts"),
        &statement,
        &options,
        &mut report,
    )
    .map(|_| (report.result.matched, report.result.modified))
    .map_err(|error| error.code().0)
}

fn measurement(n: i64) -> DocBuf {
    doc! {"_id": n, "t": DateTime(START + n * 1000), "m": n % 3, "x": n}
}

#[test]
fn one_bucket_a_series() {
    on_every_engine(|mut test| {
        create_series(&test);
        let docs: Vec<_> = (0..300).map(measurement).collect();
        for part in docs.chunks(70) {
            test.insert_all("ts", part);
        }
        let buckets = test.documents("system.buckets.ts");
        assert_eq!(buckets.len(), 3);
        test.assert_valid("system.buckets.ts");
        assert_eq!(bag(&run(&test, "ts", &[])), bag(&docs));
        // After a restart the open buckets are found.
        test.reopen();
        let late: Vec<_> = (300..330).map(measurement).collect();
        test.insert_all("ts", &late);
        let buckets = test.documents("system.buckets.ts");
        assert_eq!(buckets.len(), 3);
        let counts: Vec<_> = buckets
            .iter()
            .map(|bucket| {
                let control = bucket.get("control").unwrap().as_document().unwrap();
                control.get("count").unwrap().as_i64_exact().unwrap()
            })
            .collect();
        assert_eq!(counts, [110, 110, 110]);
        test.assert_valid("system.buckets.ts");
    });
}

#[test]
fn buckets_end_by_count_and_by_span() {
    let test = TestDb::new(EngineKind::Memory, Events::default());
    create_series(&test);
    let at = |n: i64, millis: i64| doc! {"_id": n, "t": DateTime(START + millis), "m": "a"};
    let docs: Vec<_> = (0..2500).map(|n| at(n, n)).collect();
    test.insert_all("ts", &docs);
    assert_eq!(test.documents("system.buckets.ts").len(), 3);
    // A measurement an hour later opens another bucket; late measurements go to the bucket of their
    // time.
    test.insert_all("ts", &[at(3000, 4_000_000)]);
    assert_eq!(test.documents("system.buckets.ts").len(), 4);
    test.insert_all("ts", &[at(3001, 5), at(3002, 4_000_001), at(3003, 6)]);
    assert_eq!(test.documents("system.buckets.ts").len(), 4);
    // A measurement before every bucket.
    test.insert_all("ts", &[at(3004, -7_200_000)]);
    assert_eq!(test.documents("system.buckets.ts").len(), 5);
    assert_eq!(run(&test, "ts", &[]).len(), 2505);
}

#[test]
fn a_series_is_a_meta_value() {
    let test = TestDb::new(EngineKind::Memory, Events::default());
    create_series(&test);
    let at = DateTime(START);
    test.insert_all(
        "ts",
        &[
            doc! {"_id": 1, "t": at, "m": {"a": 1, "b": 2}},
            doc! {"_id": 2, "t": at, "m": {"b": 2, "a": 1}},
            doc! {"_id": 3, "t": at, "m": 1},
            doc! {"_id": 4, "t": at, "m": 1.0},
            doc! {"_id": 5, "t": at, "m": null},
            doc! {"_id": 6, "t": at},
            doc! {"_id": 7, "t": at, "m": {"b": 2, "a": 1}},
        ],
    );
    assert_eq!(test.documents("system.buckets.ts").len(), 5);
    let found = run(
        &test,
        "ts",
        &[doc! {"$match": {"m": null}}, doc! {"$sort": {"_id": 1}}],
    );
    assert_eq!(found.len(), 2);
    assert!(found[0].get("m").is_some() && found[1].get("m").is_none());
}

#[test]
fn refused() {
    let test = TestDb::new(EngineKind::Memory, Events::default());
    create_series(&test);
    let insert = |docs: &[DocBuf], ordered: bool| {
        let docs: Vec<_> = docs.iter().map(DocBuf::as_raw).collect();
        let result = test.db.insert(&test.op, &ns("ts"), &docs, ordered).unwrap();
        let errors: Vec<_> = result
            .errors
            .iter()
            .map(|e| (e.index, e.error.code().0))
            .collect();
        (result.inserted, errors)
    };
    let good = |n: i64| measurement(n);
    let docs = [good(1), doc! {"t": 5}, good(2), doc! {"x": 1}, good(3)];
    assert_eq!(insert(&docs, true), (1, vec![(1, 2)]));
    assert_eq!(insert(&docs, false), (3, vec![(1, 2), (3, 2)]));
    let buckets = ns("system.buckets.ts");
    let direct = test
        .db
        .insert_one(&test.op, &buckets, doc! {"a": 1}.as_raw());
    assert_eq!(code(direct), 121);
    let own = CollectionOptions::parse(doc! {}.as_raw()).unwrap();
    assert_eq!(
        code(
            test.db
                .create_collection(&test.op, &ns("system.buckets.x"), own.clone())
        ),
        73
    );
    assert_eq!(
        code(test.db.create_collection(&test.op, &ns("ts"), own)),
        48
    );
    let rename = test
        .db
        .rename_collection(&test.op, &ns("ts"), &ns("other"), false);
    assert_eq!(code(rename), ErrorCode::COMMAND_NOT_SUPPORTED_ON_VIEW.0);
    let index = |key: DocBuf, options: DocBuf| {
        let spec = index_spec(key, options);
        code(test.db.create_indexes(&test.op, &ns("ts"), &[spec]))
    };
    assert_eq!(index(doc! {"m": 1}, doc! {"unique": true}), 72);
    assert_eq!(index(doc! {"t": 1}, doc! {"expireAfterSeconds": 1}), 72);
    // Creating it again with the same options is a no-op, with others an error.
    create_series(&test);
    let other = doc! {"timeseries": {"timeField": "t"}};
    let other = CollectionOptions::parse(other.as_raw()).unwrap();
    assert_eq!(
        code(test.db.create_collection(&test.op, &ns("ts"), other)),
        48
    );
}

#[test]
fn both_names_are_dropped_together() {
    on_every_engine(|mut test| {
        create_series(&test);
        test.insert_all("ts", &[measurement(1)]);
        test.reopen();
        assert!(test.db.catalog().timeseries(&ns("ts")).is_some());
        test.db
            .drop_collection(&test.op, &ns("ts"))
            .unwrap()
            .unwrap();
        assert!(test.db.catalog().view(&ns("ts")).is_none());
        assert!(
            test.db
                .catalog()
                .collection(&ns("system.buckets.ts"))
                .is_none()
        );
        create_series(&test);
        assert!(run(&test, "ts", &[]).is_empty());
        test.db.drop_database(&test.op, "test").unwrap();
        assert!(test.db.catalog().database("test").is_none());
        test.reopen();
        assert!(test.db.catalog().database("test").is_none());
    });
}

#[test]
fn wider_buckets() {
    let mut test = TestDb::new(EngineKind::Sheaf, Events::default());
    create_series(&test);
    let change = |spec: DocBuf| {
        let change = BucketsChange::parse(spec.as_raw())?;
        test.db.modify_timeseries(&test.op, &ns("ts"), &change)
    };
    test.insert_all("ts", &[measurement(0)]);
    change(doc! {"timeseries": {"granularity": "hours"}}).unwrap();
    assert_eq!(
        code(change(doc! {"timeseries": {"granularity": "minutes"}})),
        72
    );
    change(doc! {"expireAfterSeconds": 100}).unwrap();
    // Two days later, in one bucket of 30 days.
    test.insert_all("ts", &[measurement(3), measurement(2 * 86_400)]);
    assert_eq!(test.documents("system.buckets.ts").len(), 1);
    test.reopen();
    let since = doc! {"$match": {"t": {"$gte": DateTime(START + 86_400_000)}}};
    assert_eq!(run(&test, "ts", &[since]).len(), 1);
    let listed = test.collection("system.buckets.ts").options().to_doc();
    assert_eq!(listed.get("expireAfterSeconds"), Some(RawValue::Int64(100)));
}

#[test]
fn expired_buckets_are_deleted_whole() {
    on_every_engine(|test| {
        let options = doc! {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 3600};
        create(&test, "ts", options);
        let docs: Vec<_> = (0..10)
            .map(|n| doc! {"_id": n, "t": DateTime(START + n * 1_800_000)})
            .collect();
        test.insert_all("ts", &docs);
        let before = test.documents("system.buckets.ts").len();
        let counters = TtlCounters::default();
        let pass = |now: i64| {
            let mut failed = |name: &str, error: &sheaf_bson::Error| panic!("{name}: {error}");
            let now = DateTime(START + now);
            test.db
                .ttl_pass(&test.op, now, &counters, &mut failed)
                .unwrap();
            run(&test, "ts", &[]).len()
        };
        assert_eq!(pass(3_599_999), 10);
        // Only measurements of expired buckets are deleted, and those completely.
        let left = pass(3_600_000 + 5_400_000);
        assert!((6..10).contains(&left), "{left} of {before} buckets");
        assert_eq!(pass(100_000_000), 0);
        assert!(test.documents("system.buckets.ts").is_empty());
    });
}

#[test]
fn updates_of_series() {
    let test = TestDb::new(EngineKind::Memory, Events::default());
    create_series(&test);
    let at = |n: i64, room: &str| {
        let meta = doc! {"room": room, "floor": 1};
        doc! {"_id": n, "t": DateTime(START + n), "m": &meta, "x": n}
    };
    let docs: Vec<_> = (0..10)
        .map(|n| at(n, if n < 4 { "a" } else { "b" }))
        .collect();
    test.insert_all("ts", &docs);
    let set = |path: &str, value: i32| doc! {"$set": {path: value}};
    assert_eq!(
        update(&test, doc! {"m.room": "a"}, set("m.floor", 2), true),
        Ok((4, 4))
    );
    assert_eq!(
        update(&test, doc! {"m.room": "a"}, set("m.floor", 2), true),
        Ok((4, 0))
    );
    let upstairs = doc! {"$match": {"m.floor": 2}};
    assert_eq!(run(&test, "ts", &[upstairs]).len(), 4);
    // A later writer to the series finds its bucket under the new meta value.
    let mut moved = DocBuilder::from_doc(doc! {"_id": 50, "t": DateTime(START), "x": 1}.as_raw());
    moved.append_bson("m", &doc! {"floor": 2, "room": "a"});
    test.insert_all("ts", &[moved.finish(), at(51, "a")]);
    assert_eq!(test.documents("system.buckets.ts").len(), 3);
    for (filter, change, multi) in [
        (doc! {"m.room": "a"}, set("m.floor", 2), false),
        (doc! {"x": 1}, set("m.floor", 2), true),
        (doc! {"m.room": "a"}, set("x", 2), true),
        (doc! {"m.room": "a"}, doc! {"m": 5}, true),
        (doc! {}, doc! {"$rename": {"m.room": "x"}}, true),
    ] {
        assert_eq!(update(&test, filter, change, multi), Err(72));
    }
    test.assert_valid("system.buckets.ts");
}

#[test]
fn indexes_are_shown_as_of_measurements() {
    let test = TestDb::new(EngineKind::Memory, Events::default());
    create_series(&test);
    let spec = index_spec(doc! {"m.a": 1, "x": -1}, doc! {});
    let made = test
        .db
        .create_indexes(&test.op, &ns("ts"), &[spec])
        .unwrap();
    assert_eq!((made.indexes_before, made.indexes_after), (1, 2));
    let names = || {
        let collection = test.collection("system.buckets.ts");
        let names = collection
            .index_list()
            .iter()
            .map(|index| index.name().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(), ["m_1_t_1", "m.a_1_x_-1"]);
    let key = doc! {"m.a": 1, "x": -1};
    let selector = IndexSelector::KeyPattern(key.as_raw());
    let were = test
        .db
        .drop_indexes(&test.op, &ns("ts"), &selector)
        .unwrap();
    assert_eq!((were, names().len()), (2, 1));
}

#[test]
fn concurrent_writers_lose_nothing() {
    on_every_engine(|test| {
        create_series(&test);
        let writers = 6;
        let each = 40i64;
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let db = test.db.clone();
                scope.spawn(move || {
                    let op = sheaf_db::StatementContext::new();
                    for n in 0..each {
                        let id = writer * each + n;
                        let docs: Vec<_> = (0..5)
                            .map(|m| doc! {"_id": id * 5 + m, "t": DateTime(START + id), "m": m})
                            .collect();
                        let docs: Vec<_> = docs.iter().map(DocBuf::as_raw).collect();
                        let result = db.insert(&op, &ns("ts"), &docs, n % 2 == 0).unwrap();
                        assert_eq!(result.inserted, 5);
                    }
                });
            }
        });
        let mut ids: Vec<_> = run(&test, "ts", &[])
            .iter()
            .map(|doc| doc.get("_id").unwrap().as_i64_exact().unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..writers * each * 5).collect::<Vec<_>>());
        test.assert_valid("system.buckets.ts");
    });
}

/// A value of a measurement's field.
fn field_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        4 => (-3i32..8).prop_map(Value::from),
        2 => (-30i32..80).prop_map(|n| Value::from(f64::from(n) / 10.0)),
        1 => Just(Value::from(f64::NAN)),
        1 => Just(Value::Null),
        1 => "[ab]{0,2}".prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => (0i64..3).prop_map(|n| Value::DateTime(DateTime(START + n))),
    ];
    let leaf = scalar.clone();
    prop_oneof![
        6 => scalar,
        1 => proptest::collection::vec(leaf.clone(), 0..3).prop_map(Value::from),
        2 => (leaf.clone(), leaf.clone()).prop_map(|(a, b)| {
            Value::Document(doc! {"a": a.as_raw(), "b": b.as_raw()})
        }),
        1 => proptest::collection::vec(leaf, 0..3).prop_map(|values| {
            let docs = values.iter().map(|v| Value::Document(doc! {"a": v.as_raw()}));
            Value::from(docs.collect::<Vec<_>>())
        }),
    ]
}

fn meta_value() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Value::Null)),
        4 => (0i32..3).prop_map(|n| Some(Value::from(n))),
        2 => (0i32..2, 0i32..3).prop_map(|(a, b)| Some(Value::Document(doc! {"a": a, "b": b}))),
        1 => proptest::collection::vec(0i32..3, 0..3).prop_map(|list| Some(Value::from(list))),
    ]
}

fn any_measurement() -> impl Strategy<Value = DocBuf> {
    let time = prop_oneof![
        5 => 0i64..7_200_000,
        2 => -90_000_000i64..90_000_000,
        1 => prop_oneof![Just(-START - 5_000_000), Just(8_000_000_000_000)],
    ];
    let field = || proptest::option::weighted(0.7, field_value());
    (time, meta_value(), field(), field(), any::<bool>()).prop_map(
        |(time, meta, x, y, meta_first)| {
            let mut out = DocBuilder::new();
            if let (Some(meta), true) = (&meta, meta_first) {
                out.append_value("m", meta);
            }
            if let Some(x) = &x {
                out.append_value("x", x);
            }
            out.append("t", DateTime(START + time));
            if let (Some(meta), false) = (&meta, meta_first) {
                out.append_value("m", meta);
            }
            if let Some(y) = &y {
                out.append_value("y", y);
            }
            out.finish()
        },
    )
}

fn condition() -> impl Strategy<Value = DocBuf> {
    let op = prop_oneof![
        Just("$eq"),
        Just("$gt"),
        Just("$gte"),
        Just("$lt"),
        Just("$lte"),
        Just("$ne")
    ];
    let path = prop_oneof![
        Just("x"),
        Just("y"),
        Just("x.a"),
        Just("x.b"),
        Just("y.a"),
        Just("x.0")
    ];
    let on_field = (path.clone(), op.clone(), field_value()).prop_map(|(path, op, value)| {
        doc! {path: {op: value.as_raw()}}
    });
    let list = (path.clone(), proptest::collection::vec(field_value(), 0..3))
        .prop_map(|(path, values)| doc! {path: {"$in": Value::from(values).as_raw()}});
    let time = (op.clone(), -4_000_000i64..8_000_000)
        .prop_map(|(op, time)| doc! {"t": {op: DateTime(START + time)}});
    let window = (-4_000_000i64..8_000_000, 0i64..4_000_000).prop_map(|(from, len)| {
        doc! {"t": {"$gte": DateTime(START + from), "$lt": DateTime(START + from + len)}}
    });
    let meta_path = prop_oneof![Just("m"), Just("m.a"), Just("m.0")];
    let meta = (meta_path, op, meta_value()).prop_map(|(path, op, value)| {
        let value = value.unwrap_or(Value::Null);
        doc! {path: {op: value.as_raw()}}
    });
    let exists = (path, any::<bool>()).prop_map(|(path, there)| doc! {path: {"$exists": there}});
    let exact = meta_value().prop_map(|value| match value {
        Some(value) => doc! {"m": value.as_raw()},
        None => doc! {"m": {"$exists": false}},
    });
    prop_oneof![4 => on_field, 1 => list, 2 => time, 3 => window, 2 => meta, 1 => exists, 2 => exact]
}

fn filter() -> impl Strategy<Value = DocBuf> {
    condition().prop_recursive(2, 8, 3, |inner| {
        let parts = proptest::collection::vec(inner.clone(), 1..4);
        let name = prop_oneof![3 => Just("$and"), 2 => Just("$or"), 1 => Just("$nor")];
        (name, parts).prop_map(|(name, parts)| {
            let parts: Vec<Value> = parts.into_iter().map(Value::Document).collect();
            doc! {name: Value::from(parts).as_raw()}
        })
    })
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<DocBuf>, bool),
    Find(DocBuf),
    Sorted(DocBuf, bool),
    Group(DocBuf),
    Delete(DocBuf),
    Index(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let docs = proptest::collection::vec(any_measurement(), 1..25);
    prop_oneof![
        5 => (docs, any::<bool>()).prop_map(|(docs, ordered)| Step::Insert(docs, ordered)),
        6 => filter().prop_map(Step::Find),
        2 => (filter(), any::<bool>()).prop_map(|(filter, up)| Step::Sorted(filter, up)),
        2 => filter().prop_map(Step::Group),
        1 => filter().prop_map(Step::Delete),
        1 => (0usize..3).prop_map(Step::Index),
        1 => Just(Step::Reopen),
    ]
}

fn times(docs: &[DocBuf]) -> Vec<RawValue<'_>> {
    docs.iter().map(|doc| doc.get("t").unwrap()).collect()
}

#[test]
fn as_a_plain_collection() {
    let config = Config {
        cases: 96,
        max_shrink_iters: 3000,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = proptest::collection::vec(step(), 1..14);
    let with_meta = any::<bool>();
    let done = TestRunner::new(config).run(&(steps, with_meta), |(steps, with_meta)| {
        let mut test = TestDb::new(EngineKind::Memory, Events::default());
        create(
            &test,
            "ts",
            match with_meta {
                true => doc! {"timeseries": {"timeField": "t", "metaField": "m"}},
                false => doc! {"timeseries": {"timeField": "t", "granularity": "minutes"}},
            },
        );
        create(&test, "plain", doc! {});
        let mut next_id = 0;
        for step in steps {
            match step {
                Step::Insert(docs, ordered) => {
                    let docs: Vec<DocBuf> = docs
                        .iter()
                        .map(|doc| {
                            next_id += 1;
                            let mut with_id = DocBuilder::from_doc(doc! {"_id": next_id}.as_raw());
                            with_id.extend(doc.as_raw());
                            with_id.finish()
                        })
                        .collect();
                    let raw: Vec<_> = docs.iter().map(DocBuf::as_raw).collect();
                    for name in ["ts", "plain"] {
                        let result = test.db.insert(&test.op, &ns(name), &raw, ordered).unwrap();
                        prop_assert_eq!(result.inserted as usize, docs.len());
                    }
                }
                Step::Find(filter) => {
                    let pipeline = [doc! {"$match": &filter}];
                    let (ts, plain) = (run(&test, "ts", &pipeline), run(&test, "plain", &pipeline));
                    prop_assert_eq!(bag(&ts), bag(&plain), "{}", filter);
                }
                Step::Sorted(filter, up) => {
                    let order = if up { 1 } else { -1 };
                    let pipeline = [doc! {"$match": &filter}, doc! {"$sort": {"t": order}}];
                    let (ts, plain) = (run(&test, "ts", &pipeline), run(&test, "plain", &pipeline));
                    prop_assert_eq!(times(&ts), times(&plain), "{}", filter);
                    prop_assert_eq!(bag(&ts), bag(&plain), "{}", filter);
                    let limited = [pipeline[0].clone(), pipeline[1].clone(), doc! {"$limit": 3}];
                    let first = run(&test, "ts", &limited);
                    let expected = times(&plain);
                    prop_assert_eq!(times(&first), &expected[..expected.len().min(3)]);
                }
                Step::Group(filter) => {
                    let group = doc! {"$group": {
                        "_id": "$m", "n": {"$sum": 1}, "x": {"$max": "$x"}, "y": {"$min": "$y.a"},
                        "from": {"$min": "$t"}, "to": {"$max": "$t"}
                    }};
                    let pipeline = [doc! {"$match": &filter}, group];
                    let (ts, plain) = (run(&test, "ts", &pipeline), run(&test, "plain", &pipeline));
                    prop_assert_eq!(bag(&ts), bag(&plain), "{}", filter);
                    let count = [doc! {"$match": &filter}, doc! {"$count": "n"}];
                    prop_assert_eq!(run(&test, "ts", &count), run(&test, "plain", &count));
                }
                Step::Delete(filter) => {
                    let (ts, plain) = (
                        delete(&test, "ts", &filter, true),
                        delete(&test, "plain", &filter, true),
                    );
                    prop_assert_eq!(ts, plain, "{}", filter);
                }
                Step::Index(number) => {
                    // There is no index on measurement fields that are arrays.
                    let number = if with_meta { number } else { 1 };
                    let key =
                        [doc! {"m": 1}, doc! {"t": -1}, doc! {"m.a": 1, "t": 1}][number].clone();
                    let spec = index_spec(key, doc! {});
                    let made = test.db.create_indexes(&test.op, &ns("ts"), &[spec]);
                    prop_assert!(made.is_ok(), "{:?}", made);
                }
                Step::Reopen => test.reopen(),
            }
        }
        test.assert_valid("system.buckets.ts");
        Ok(())
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}

#[test]
fn one_measurement_at_a_time() {
    let test = TestDb::new(EngineKind::Memory, Events::default());
    create_series(&test);
    let docs: Vec<_> = (0..9).map(measurement).collect();
    test.insert_all("ts", &docs);
    assert_eq!(delete(&test, "ts", &doc! {"x": {"$gte": 7}}, false), 1);
    assert_eq!(delete(&test, "ts", &doc! {"m": 0}, false), 1);
    assert_eq!(run(&test, "ts", &[]).len(), 7);
    assert_eq!(delete(&test, "ts", &doc! {"m": 0}, true), 2);
    assert_eq!(test.documents("system.buckets.ts").len(), 2);
    assert_eq!(delete(&test, "ts", &doc! {}, true), 5);
    assert!(test.documents("system.buckets.ts").is_empty());
}

#[test]
fn buckets_of_some_series_expire() {
    on_every_engine(|mut test| {
        create_series(&test);
        let at = |seconds: i64| DateTime(START + seconds * 1000);
        test.insert_all(
            "ts",
            &[
                doc! {"t": at(0), "m": "a"},
                doc! {"t": at(1), "m": "b"},
                doc! {"t": at(20_000), "m": "a"},
            ],
        );
        let options = doc! {
            "expireAfterSeconds": 10, "partialFilterExpression": {"m": "a"},
        };
        let spec = index_spec(doc! {"t": 1}, options);
        test.db
            .create_indexes(&test.op, &ns("ts"), &[spec])
            .unwrap();
        test.reopen();
        let pass = |test: &TestDb, now: DateTime| {
            let counters = TtlCounters::default();
            let mut failed = |index: &str, error: &sheaf_bson::Error| panic!("{index}: {error}");
            test.db
                .ttl_pass(&test.op, now, &counters, &mut failed)
                .unwrap();
            test.documents("system.buckets.ts").len()
        };
        // A bucket spans an hour, and expires with the end of it.
        assert_eq!(pass(&test, at(3_000)), 3);
        assert_eq!(pass(&test, at(10_000)), 2);
        assert_eq!(pass(&test, at(30_000)), 1);
        assert_eq!(pass(&test, at(90_000)), 1);
    });
}
