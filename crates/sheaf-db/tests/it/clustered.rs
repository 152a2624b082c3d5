//! Clustered collections: records in the order of `_id`, without a separate index on it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use sheaf_bson::{DateTime, DocBuf, Error, RawDoc, RawValue, Value, doc};
use sheaf_db::QueryOptions;
use sheaf_db::catalog::clustered::record_id_of_id;
use sheaf_db::ddl::coll_mod::CollMod;
use sheaf_db::ddl::indexes::IndexSelector;
use sheaf_db::find::find;
use sheaf_db::system_names::OPLOG_NAMESPACE;
use sheaf_db::ttl::TtlCounters;
use sheaf_db::{CollectionOptions, Namespace, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_storage::{Durability, WriteBatch};

use crate::support::{TestDb, code, index_spec, ns, on_every_engine, with_field};

fn create(t: &TestDb, more: DocBuf) {
    let mut fields = sheaf_bson::DocBuilder::from_doc(more.as_raw());
    fields.append_bson(
        "clusteredIndex",
        &doc! {"key": {"_id": 1}, "unique": true, "name": "by id"},
    );
    let options = CollectionOptions::parse(fields.finish().as_raw()).unwrap();
    t.db.create_collection(&t.op, &ns("c"), options).unwrap();
}

/// The results of a find, its plan in one line, and the number of documents examined.
fn found(t: &TestDb, spec: FindSpec<'_>) -> (Vec<Value>, String, u64) {
    let view = t.db.read_view(&ns("c")).unwrap();
    let query = Arc::new(sheaf_db::find::canonicalize(&view, spec).unwrap());
    let mut running = find(&view, &t.op, query, &QueryOptions::default()).unwrap();
    let mut ids = Vec::new();
    while let Some(doc) = running.next(&t.op).unwrap() {
        ids.push(doc.as_raw().get("_id").unwrap().to_value());
    }
    assert_eq!(running.counts().keys_examined, 0);
    let summary = running.plan().summary().unwrap();
    (ids, summary, running.counts().docs_examined)
}

/// Several intervals take several seeks; without extensions the records between them are read too.
#[test]
fn scans_with_gaps_are_an_extension() {
    on_every_engine(|t| {
        create(&t, doc! {});
        let docs: Vec<_> = (0..1000i64).map(|n| doc! {"_id": n, "a": n % 10}).collect();
        t.insert_all("c", &docs);
        for (filter, expected, by_seeks, in_one) in [
            (
                doc! {"_id": {"$in": [3, 800, 5000]}},
                longs([3, 800]),
                2,
                997,
            ),
            (
                doc! {"_id": {"$in": [10, 20]}, "a": 0},
                longs([10, 20]),
                2,
                11,
            ),
            (
                doc! {"$or": [{"_id": 3}, {"_id": {"$gt": 997}}]},
                longs([3, 998, 999]),
                3,
                997,
            ),
            (
                doc! {"_id": {"$gt": 4, "$nin": [6, 7], "$lt": 10}},
                longs([5, 8, 9]),
                3,
                5,
            ),
        ] {
            for (planner_extensions, examined) in [(true, by_seeks), (false, in_one)] {
                let options = QueryOptions {
                    planner_extensions,
                    ..QueryOptions::default()
                };
                let spec = FindSpec {
                    filter: Some(filter.as_raw()),
                    ..FindSpec::default()
                };
                let view = t.db.read_view(&ns("c")).unwrap();
                let query = Arc::new(sheaf_db::find::canonicalize(&view, spec).unwrap());
                let mut running = find(&view, &t.op, query, &options).unwrap();
                let mut ids = Vec::new();
                while let Some(doc) = running.next(&t.op).unwrap() {
                    ids.push(doc.as_raw().get("_id").unwrap().to_value());
                }
                assert_eq!(ids, expected, "{filter}");
                assert_eq!(running.plan().summary().unwrap(), "CLUSTERED_IXSCAN");
                assert_eq!(running.counts().docs_examined, examined, "{filter}");
            }
        }
    });
}

fn by(t: &TestDb, filter: DocBuf) -> (Vec<Value>, String, u64) {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    found(t, spec)
}

fn ids_of(t: &TestDb) -> Vec<Value> {
    let id = |doc: &DocBuf| doc.get("_id").unwrap().to_value();
    t.documents("c").iter().map(id).collect()
}

fn longs(ids: impl IntoIterator<Item = i64>) -> Vec<Value> {
    ids.into_iter().map(Value::Int64).collect()
}

#[test]
fn records_are_in_the_order_of_ids() {
    on_every_engine(|mut t| {
        create(&t, doc! {});
        let ids = [
            Value::String("b".into()),
            Value::Double(2.5),
            Value::Int32(-1),
            Value::Document(doc! {"x": 1}),
            Value::String(String::new()),
            Value::Null,
            Value::MaxKey,
            Value::Int64(1 << 40),
            Value::MinKey,
            Value::Boolean(true),
            Value::DateTime(DateTime(5)),
        ];
        for (n, id) in ids.iter().enumerate() {
            t.insert("c", doc! {"n": n as i32, "_id": id.as_raw()})
                .unwrap();
        }
        let mut sorted = ids.to_vec();
        sorted.sort_by(|a, b| sheaf_bson::compare_values(a.as_raw(), b.as_raw()));
        assert_eq!(ids_of(&t), sorted);
        t.assert_valid("c");
        assert_eq!(t.collection("c").index_list().len(), 0);
        // The same number in another type is the same record id.
        for id in [Value::Double(-1.0), Value::Int64(-1), Value::MinKey] {
            assert_eq!(code(t.insert("c", doc! {"_id": id.as_raw()})), 11000);
        }
        t.reopen();
        assert_eq!(ids_of(&t), sorted);
        assert_eq!(code(t.insert("c", doc! {"_id": "b"})), 11000);
        t.insert("c", doc! {"_id": "c"}).unwrap();
        t.assert_valid("c");
    });
}

#[test]
fn how_it_is_described() {
    on_every_engine(|mut t| {
        create(&t, doc! {"expireAfterSeconds": 60});
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        t.reopen();
        let collection = t.collection("c");
        let shown = collection.to_list_doc();
        assert_eq!(
            shown.get("options").unwrap().to_string(),
            "{ clusteredIndex: { v: 2, key: { _id: 1 }, name: \"by id\", unique: true }, expireAfterSeconds: 60 }"
        );
        assert!(shown.get("idIndex").is_none());
        let listed: Vec<_> = collection
            .list_index_docs()
            .iter()
            .map(DocBuf::to_string)
            .collect();
        assert_eq!(
            listed,
            [
                "{ v: 2, key: { _id: 1 }, name: \"by id\", unique: true, clustered: true, expireAfterSeconds: 60 }",
                "{ v: 2, key: { a: 1 }, name: \"a_1\" }"
            ]
        );
        // The clustered index is the collection itself, and not counted.
        assert_eq!(collection.index_count(), 1);
    });
}

#[test]
fn the_error_of_a_second_document() {
    on_every_engine(|t| {
        create(&t, doc! {});
        t.insert("c", doc! {"_id": 5, "a": 1}).unwrap();
        let error = t.insert("c", doc! {"_id": 5}).unwrap_err();
        assert_eq!(
            error.message(),
            "E11000 duplicate key error collection: test.c index: by id dup key: { _id: 5 }"
        );
        let extra = error.extra().unwrap();
        assert_eq!(
            extra.to_string(),
            "{ keyPattern: { _id: 1 }, keyValue: { _id: 5 } }"
        );
        // A document that another index refuses leaves its record id free.
        t.create_index("c", doc! {"a": 1}, doc! {"unique": true})
            .unwrap();
        assert_eq!(code(t.insert("c", doc! {"_id": 6, "a": 1})), 11000);
        t.insert("c", doc! {"_id": 6, "a": 2}).unwrap();
        t.assert_valid("c");
    });
}

#[test]
fn writes_keep_other_indexes_consistent() {
    on_every_engine(|t| {
        create(&t, doc! {});
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let docs: Vec<_> = (0..500)
            .rev()
            .map(|n| doc! {"_id": n, "a": n % 7, "b": [n, n + 1]})
            .collect();
        t.insert_all("c", &docs);
        t.create_index("c", doc! {"b": -1}, doc! {}).unwrap();
        t.assert_valid("c");
        let (updated, done) = t.update(
            "c",
            |doc| doc.get("a").is_some_and(|a| a.as_i64_exact() == Some(3)),
            |doc| with_field(doc, "a", 100),
            true,
        );
        done.unwrap();
        assert_eq!(updated.modified, 71);
        let deleted = t.delete(
            "c",
            |doc| {
                doc.get("_id")
                    .is_some_and(|id| id.as_i64_exact() < Some(50))
            },
            true,
        );
        assert_eq!(deleted.deleted, 50);
        t.assert_valid("c");
        t.insert("c", doc! {"_id": 7, "a": 1, "b": "again"})
            .unwrap();
        t.assert_valid("c");
        let view = t.db.read_view(&ns("c")).unwrap();
        for (filter, expected) in [
            (doc! {"a": 100}, 64),
            (doc! {"b": {"$gte": 499}}, 2),
            (doc! {"b": "again"}, 1),
        ] {
            let spec = FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            };
            let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
            let mut running = find(&view, &t.op, query, &QueryOptions::default()).unwrap();
            let mut n = 0;
            while running.next(&t.op).unwrap().is_some() {
                n += 1;
            }
            assert_eq!(n, expected, "{filter}");
            assert!(
                running.plan().summary().unwrap().starts_with("IXSCAN"),
                "{filter}"
            );
        }
    });
}

#[test]
fn a_freed_record_id_can_be_reused_in_one_unit() {
    on_every_engine(|t| {
        create(&t, doc! {});
        t.insert("c", doc! {"_id": 1, "n": 1}).unwrap();
        let (mut unit, slot) =
            t.db.begin_write(
                &t.op,
                &ns("c"),
                sheaf_db::write::unit::Patience::FailsAtOnce,
            )
            .unwrap()
            .unwrap();
        let (id, old) = t.records("c").remove(0);
        unit.lock_record(&t.op, slot, &id).unwrap();
        unit.delete(&t.op, slot, &id, old.as_raw()).unwrap();
        unit.insert(&t.op, slot, doc! {"_id": 1, "n": 2}.into_vec().into())
            .unwrap();
        assert_eq!(
            code(unit.insert(&t.op, slot, doc! {"_id": 1.0}.into_vec().into())),
            11000
        );
        unit.insert(&t.op, slot, doc! {"_id": 2}.into_vec().into())
            .unwrap();
        unit.commit(&t.op).unwrap();
        assert_eq!(t.documents("c"), [doc! {"_id": 1, "n": 2}, doc! {"_id": 2}]);
        t.assert_valid("c");
    });
}

#[test]
fn reads_touch_what_bounds_admit() {
    on_every_engine(|t| {
        create(&t, doc! {});
        let mut docs: Vec<_> = (0..1000i64).map(|n| doc! {"_id": n, "a": n % 10}).collect();
        docs.extend((0..10).map(|n| doc! {"_id": format!("t{n}").as_str()}));
        docs.push(doc! {"_id": Value::Null.as_raw()});
        t.insert_all("c", &docs);
        for (filter, expected, summary, examined) in [
            (doc! {"_id": 77}, longs([77]), "EXPRESS_CLUSTERED_IXSCAN", 1),
            (doc! {"_id": 5000}, longs([]), "EXPRESS_CLUSTERED_IXSCAN", 0),
            (doc! {"_id": {"$lt": 3}}, longs(0..3), "CLUSTERED_IXSCAN", 3),
            (
                doc! {"_id": {"$gt": 997}},
                longs([998, 999]),
                "CLUSTERED_IXSCAN",
                2,
            ),
            (
                doc! {"_id": {"$gte": 10, "$lt": 13}},
                longs(10..13),
                "CLUSTERED_IXSCAN",
                3,
            ),
            (
                doc! {"_id": {"$gt": 10, "$lte": 13}},
                longs(11..14),
                "CLUSTERED_IXSCAN",
                3,
            ),
            (
                doc! {"_id": {"$in": [3, 800, 5000]}},
                longs([3, 800]),
                "CLUSTERED_IXSCAN",
                2,
            ),
            (
                doc! {"_id": {"$gte": 10, "$lt": 20}, "a": 5},
                longs([15]),
                "CLUSTERED_IXSCAN",
                10,
            ),
            (doc! {"_id": 15, "a": 5}, longs([15]), "CLUSTERED_IXSCAN", 1),
            (doc! {"_id": 15, "a": 6}, longs([]), "CLUSTERED_IXSCAN", 1),
            (
                doc! {"_id": Value::Null.as_raw()},
                vec![Value::Null],
                "EXPRESS_CLUSTERED_IXSCAN",
                1,
            ),
            (
                doc! {"_id": {"$gt": "t8"}},
                vec![Value::String("t9".into())],
                "CLUSTERED_IXSCAN",
                1,
            ),
            (
                doc! {"$or": [{"_id": 3}, {"_id": {"$lt": 2}}]},
                longs([0, 1, 3]),
                "CLUSTERED_IXSCAN",
                3,
            ),
            (
                doc! {"_id": {"$type": "string"}, "a": 1},
                Vec::new(),
                "CLUSTERED_IXSCAN",
                10,
            ),
            (
                doc! {"_id": {"$gt": 5, "$lt": 5}},
                Vec::new(),
                "CLUSTERED_IXSCAN",
                0,
            ),
            (doc! {"a": 11}, Vec::new(), "COLLSCAN", 1011),
        ] {
            let (ids, plan, docs) = by(&t, filter.clone());
            assert_eq!(ids, expected, "{filter}");
            assert_eq!((plan.as_str(), docs), (summary, examined), "{filter}");
        }
        // Sorted by _id either way, with and without bounds; a limit ends the scan.
        let sorted = |filter: DocBuf, direction: i32, limit: u64| {
            let sort = doc! {"_id": direction};
            found(
                &t,
                FindSpec {
                    filter: Some(filter.as_raw()),
                    sort: Some(sort.as_raw()),
                    limit: Some(limit),
                    ..FindSpec::default()
                },
            )
        };
        let (ids, plan, docs) = sorted(doc! {"_id": {"$lt": 900}}, -1, 2);
        assert_eq!(
            (ids, plan.as_str(), docs),
            (longs([899, 898]), "CLUSTERED_IXSCAN", 2)
        );
        let (ids, plan, docs) = sorted(doc! {"_id": {"$in": [5, 3, 9]}}, -1, 2);
        assert_eq!(
            (ids, plan.as_str(), docs),
            (longs([9, 5]), "CLUSTERED_IXSCAN", 2)
        );
        let (ids, plan, docs) = sorted(doc! {"a": 9}, 1, 2);
        assert_eq!((ids, plan.as_str(), docs), (longs([9, 19]), "COLLSCAN", 21));
        let (ids, plan, docs) = sorted(doc! {}, -1, 1);
        assert_eq!(
            (ids, plan.as_str(), docs),
            (vec![Value::String("t9".into())], "COLLSCAN", 1)
        );
        // min and max, by the hint they need.
        let (min, max) = (doc! {"_id": 4}, doc! {"_id": 7});
        let (ids, plan, docs) = found(
            &t,
            FindSpec {
                min: Some(min.as_raw()),
                max: Some(max.as_raw()),
                hint: Some(Hint::Name("by id".into())),
                ..FindSpec::default()
            },
        );
        assert_eq!(
            (ids, plan.as_str(), docs),
            (longs([4, 5, 6]), "CLUSTERED_IXSCAN", 3)
        );
        let (ids, plan, docs) = found(
            &t,
            FindSpec {
                hint: Some(Hint::KeyPattern(doc! {"_id": 1})),
                limit: Some(2),
                ..FindSpec::default()
            },
        );
        assert_eq!(
            (ids, plan.as_str(), docs),
            (vec![Value::Null, Value::Int64(0)], "COLLSCAN", 2)
        );
    });
}

#[test]
fn a_collation_orders_records() {
    on_every_engine(|mut t| {
        create(&t, doc! {"collation": {"locale": "en", "strength": 2}});
        t.insert_all(
            "c",
            &[
                doc! {"_id": "b"},
                doc! {"_id": "A"},
                doc! {"_id": "c"},
                doc! {"_id": 1i64},
                doc! {"_id": {"x": "B"}},
            ],
        );
        let error = t.insert("c", doc! {"_id": "a"}).unwrap_err();
        assert_eq!(error.code().0, 11000);
        assert!(
            error.message().contains("collation: { locale: \"en\""),
            "{error}"
        );
        assert_eq!(code(t.insert("c", doc! {"_id": {"x": "b"}})), 11000);
        t.reopen();
        let text = |texts: &[&str]| -> Vec<Value> {
            texts.iter().map(|t| Value::String((*t).into())).collect()
        };
        assert_eq!(ids_of(&t)[1..4], text(&["A", "b", "c"]));
        t.assert_valid("c");
        let (ids, plan, docs) = by(&t, doc! {"_id": "B"});
        assert_eq!(
            (ids, plan.as_str(), docs),
            (text(&["b"]), "EXPRESS_CLUSTERED_IXSCAN", 1)
        );
        let (ids, plan, docs) = by(&t, doc! {"_id": {"$gte": "B"}});
        assert_eq!(
            (ids, plan.as_str(), docs),
            (text(&["b", "c"]), "CLUSTERED_IXSCAN", 2)
        );
        // Under another collation text has no bounds; numbers have.
        let simple = |filter: DocBuf| {
            found(
                &t,
                FindSpec {
                    filter: Some(filter.as_raw()),
                    collation: sheaf_bson::CollationChoice::parse(
                        doc! {"locale": "simple"}.as_raw(),
                    )
                    .unwrap(),
                    ..FindSpec::default()
                },
            )
        };
        let (ids, plan, docs) = simple(doc! {"_id": {"$gte": "B"}});
        assert_eq!((ids, docs), (text(&["b", "c"]), 5), "{plan}");
        let (ids, plan, docs) = simple(doc! {"_id": {"$gte": 1}});
        assert_eq!(
            (ids, plan.as_str(), docs),
            (longs([1]), "CLUSTERED_IXSCAN", 1)
        );
        let (ids, plan, docs) = simple(doc! {"_id": 1});
        assert_eq!(
            (ids, plan.as_str(), docs),
            (longs([1]), "EXPRESS_CLUSTERED_IXSCAN", 1)
        );
    });
}

#[test]
fn a_very_large_id_is_refused() {
    let t = TestDb::new(
        crate::support::EngineKind::Memory,
        sheaf_db::Events::default(),
    );
    create(&t, doc! {});
    let refused = t.insert("c", doc! {"_id": "x".repeat(9 << 20)});
    assert_eq!(refused.unwrap_err().code().0, 5_894_900);
}

#[test]
fn its_index_cannot_be_dropped_or_created() {
    on_every_engine(|t| {
        create(&t, doc! {});
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let drop = |selector: IndexSelector<'_>| t.db.drop_indexes(&t.op, &ns("c"), &selector);
        assert_eq!(code(drop(IndexSelector::Names(vec!["by id"]))), 72);
        assert_eq!(
            code(drop(IndexSelector::KeyPattern(doc! {"_id": 1}.as_raw()))),
            72
        );
        assert_eq!(code(drop(IndexSelector::Names(vec!["_id_"]))), 27);
        // Creating the `_id` index in any form is a no-op.
        for options in [
            doc! {},
            doc! {"name": "x"},
            doc! {"clustered": true, "unique": true, "name": "by id"},
        ] {
            let spec = index_spec(doc! {"_id": 1}, options);
            let made = t.db.create_indexes(&t.op, &ns("c"), &[spec]).unwrap();
            assert_eq!((made.indexes_before, made.indexes_after), (1, 1));
            assert!(made.note.is_some());
        }
        assert_eq!(
            code(t.create_index("c", doc! {"b": 1}, doc! {"name": "by id"})),
            86
        );
        assert_eq!(drop(IndexSelector::All).unwrap(), 1);
        assert_eq!(t.collection("c").index_count(), 0);
        // An existing collection cannot become clustered.
        t.insert("plain", doc! {"_id": 1}).unwrap();
        let clustered = || index_spec(doc! {"_id": 1}, doc! {"clustered": true, "unique": true});
        assert_eq!(
            code(t.db.create_indexes(&t.op, &ns("plain"), &[clustered()])),
            6243700
        );
        let made =
            t.db.create_indexes(&t.op, &ns("new"), &[clustered()])
                .unwrap();
        assert!(made.created_collection);
        assert!(t.collection("new").clustered().is_some());
    });
}

#[test]
fn it_is_renamed_and_dropped() {
    on_every_engine(|t| {
        create(&t, doc! {});
        t.insert_all("c", &[doc! {"_id": 2}, doc! {"_id": 1}]);
        t.db.rename_collection(&t.op, &ns("c"), &ns("d"), false)
            .unwrap();
        assert_eq!(t.documents("d"), [doc! {"_id": 1}, doc! {"_id": 2}]);
        assert_eq!(code(t.insert("d", doc! {"_id": 1})), 11000);
        t.assert_valid("d");
        let tables = t.engine().tables().unwrap().len();
        let dropped = t.db.drop_collection(&t.op, &ns("d")).unwrap().unwrap();
        assert_eq!(dropped.indexes_was, Some(0));
        assert_eq!(t.engine().tables().unwrap().len(), tables - 1);
    });
}

fn pass(t: &TestDb, at: DateTime) -> (u64, u64) {
    let counters = TtlCounters::default();
    let mut failed = |index: &str, error: &Error| panic!("{index}: {error}");
    t.db.ttl_pass(&t.op, at, &counters, &mut failed).unwrap();
    (
        counters.deleted_documents.load(Relaxed),
        counters.examined.load(Relaxed),
    )
}

#[test]
fn documents_expire_by_the_date_in_their_id() {
    on_every_engine(|mut t| {
        create(&t, doc! {"expireAfterSeconds": 10});
        let at = |seconds: i64| DateTime(seconds * 1000);
        let mut docs: Vec<_> = (0..1500).map(|n| doc! {"_id": at(n)}).collect();
        docs.extend([
            doc! {"_id": 5i64},
            doc! {"_id": "1970-01-01"},
            doc! {"_id": {"at": at(0)}},
        ]);
        t.insert_all("c", &docs);
        assert_eq!(pass(&t, at(9)), (0, 0));
        // Only expired documents are examined.
        assert_eq!(pass(&t, at(10)), (1, 1));
        assert_eq!(pass(&t, at(1209)), (1199, 1199));
        assert_eq!(t.documents("c").len(), 303);
        t.assert_valid("c");

        let change = |seconds: RawValue<'_>| {
            let request = doc! {"expireAfterSeconds": seconds};
            let request = CollMod::parse(request.as_raw())?;
            t.db.coll_mod(&t.op, &ns("c"), &request).map(|_| ())
        };
        change(RawValue::String("off")).unwrap();
        assert_eq!(t.collection("c").options().expire_after_seconds(), None);
        assert_eq!(pass(&t, at(9999)), (0, 0));
        change(RawValue::Int32(0)).unwrap();
        assert_eq!(t.collection("c").options().expire_after_seconds(), Some(0));
        assert_eq!(pass(&t, at(1200)), (1, 1));
        for refused in [
            RawValue::String("never"),
            RawValue::Int32(-1),
            RawValue::Double(f64::INFINITY),
            // More seconds than since 1970.
            RawValue::Int64(1 << 40),
        ] {
            assert_eq!(code(change(refused)), 72, "{refused}");
        }
        for wrong in [RawValue::Boolean(true), RawValue::Null] {
            assert_eq!(code(change(wrong)), 14, "{wrong}");
        }
        // Fractions are cut.
        change(RawValue::Double(-0.9)).unwrap();
        t.reopen();
        assert_eq!(t.collection("c").options().expire_after_seconds(), Some(0));
        assert_eq!(pass(&t, at(99_999)), (299, 299));
        assert_eq!(t.documents("c").len(), 3);

        t.insert("plain", doc! {"_id": 1}).unwrap();
        let request = doc! {"expireAfterSeconds": 5};
        let request = CollMod::parse(request.as_raw()).unwrap();
        assert_eq!(code(t.db.coll_mod(&t.op, &ns("plain"), &request)), 72);
    });
}

#[test]
fn what_the_oplog_records() {
    on_every_engine(|t| {
        t.db.turn_oplog_on(&t.op).unwrap();
        create(&t, doc! {"expireAfterSeconds": 5});
        t.insert("c", doc! {"_id": "x", "n": 1}).unwrap();
        t.delete("c", |_| true, true);
        let request = doc! {"expireAfterSeconds": "off"};
        let request = CollMod::parse(request.as_raw()).unwrap();
        t.db.coll_mod(&t.op, &ns("c"), &request).unwrap();
        let oplog = Namespace::parse(OPLOG_NAMESPACE).unwrap();
        let view = t.db.read_view(&oplog).unwrap();
        let mut cursor = view
            .snapshot
            .cursor(view.collection.unwrap().table())
            .unwrap();
        let mut shown = Vec::new();
        let mut on = cursor.seek_first().unwrap();
        while on {
            let entry = RawDoc::parse(cursor.value()).unwrap();
            shown.push(format!(
                "{} {}",
                entry.get("op").unwrap(),
                entry.get("o").unwrap()
            ));
            on = cursor.next().unwrap();
        }
        assert_eq!(
            shown[1..],
            [
                r#""c" { create: "c", clusteredIndex: { v: 2, key: { _id: 1 }, name: "by id", unique: true }, expireAfterSeconds: 5 }"#,
                r#""i" { _id: "x", n: 1 }"#,
                r#""d" { _id: "x" }"#,
                r#""c" { collMod: "c", expireAfterSeconds: "off" }"#,
            ]
        );
    });
}

#[test]
fn one_write_per_document() {
    on_every_engine(|t| {
        create(&t, doc! {});
        let stats =
            t.db.insert_one(&t.op, &ns("c"), doc! {"_id": 1, "a": 1}.as_raw())
                .unwrap();
        assert_eq!((stats.docs_inserted, stats.keys_inserted), (1, 0));
        let plain =
            t.db.insert_one(&t.op, &ns("plain"), doc! {"_id": 1, "a": 1}.as_raw())
                .unwrap();
        assert_eq!((plain.docs_inserted, plain.keys_inserted), (1, 1));
        let deleted = t.delete("c", |_| true, true);
        assert_eq!((deleted.deleted, deleted.stats.keys_deleted), (1, 0));
    });
}

/// Two writers compete for the same key: one gets it, the second receives an error.
#[test]
fn of_concurrent_inserts_of_one_id_one_succeeds() {
    on_every_engine(|t| {
        create(&t, doc! {});
        let inserted = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, inserted) = (t.db.clone(), &inserted);
                scope.spawn(move || {
                    let op = sheaf_db::StatementContext::new();
                    for id in 0..50 {
                        match db.insert_one(&op, &ns("c"), doc! {"_id": id, "by": thread}.as_raw())
                        {
                            Ok(_) => drop(inserted.fetch_add(1, Relaxed)),
                            Err(error) => assert_eq!(error.code().0, 11000, "{error}"),
                        }
                    }
                });
            }
        });
        assert_eq!(inserted.load(Relaxed), 50);
        assert_eq!(t.documents("c").len(), 50);
        t.assert_valid("c");
    });
}

#[test]
fn a_repair_moves_misplaced_records() {
    on_every_engine(|t| {
        create(&t, doc! {});
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        t.insert_all(
            "c",
            &[
                doc! {"_id": 1, "a": 1},
                doc! {"_id": 2, "a": 2},
                doc! {"_id": 3, "a": 3},
            ],
        );
        let table = t.collection("c").table();
        let put = |batch: &mut WriteBatch, at: i32, doc: DocBuf| {
            let place = record_id_of_id(RawValue::Int32(at), None).to_key();
            batch.put(table, &place, doc.into_vec());
        };
        let mut batch = WriteBatch::new();
        // Misplaced records: under the id of another record, under a free id; and a record that is
        // not a document.
        put(&mut batch, 4, doc! {"_id": 2, "a": "second"});
        put(&mut batch, 5, doc! {"_id": 9, "a": "moved"});
        batch.put(
            table,
            &record_id_of_id(RawValue::Int32(6), None).to_key(),
            b"none".to_vec(),
        );
        t.engine().apply(batch, Durability::Synced).unwrap();
        let report = t.validate("c");
        assert_eq!((report.is_valid(), report.invalid_documents), (false, 1));
        assert!(
            report
                .faults
                .iter()
                .any(|fault| fault.contains("belongs under another record id")),
            "{report:#?}"
        );
        let rebuilt = t.db.rebuild_indexes(&t.op).unwrap();
        assert_eq!(rebuilt.len(), 1);
        assert_eq!((rebuilt[0].records, rebuilt[0].removed), (4, 2));
        assert_eq!(rebuilt[0].indexes, ["a_1"]);
        t.assert_valid("c");
        let docs = t.documents("c");
        assert_eq!(
            docs[1..],
            [
                doc! {"_id": 2, "a": 2},
                doc! {"_id": 3, "a": 3},
                doc! {"_id": 9, "a": "moved"},
            ]
        );
        assert_eq!(code(t.insert("c", doc! {"_id": 9})), 11000);
    });
}
