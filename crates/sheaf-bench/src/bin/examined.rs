//! Tests whether the cost of a query is proportional to its result: counts the keys and documents
//! that queries of each kind examine, at three collection sizes.
//!
//! `cargo run --release -p sheaf-bench --bin examined [documents...]`
//!
//! Runs in one process on the memory engine. It reports counters, not times, so an unoptimized
//! build prints the same table.
//!
//! ```text
//!   orders   country, product lines, time, category, e-mail, scores
//!            plain fields and lists of values
//!   videos   category, date, duration, daily figures, shares, addresses
//!            lists of documents, text in lists
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{ArrayBuf, DateTime, DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};
use sheaf_db::aggregate::{self, AggregateContext};
use sheaf_db::count::count;
use sheaf_db::distinct::distinct;
use sheaf_db::exec::WorkCounts;
use sheaf_db::find;
use sheaf_db::index::definition::{IndexSpec, default_index_name};
use sheaf_db::{Db, DbOptions, Namespace, ReadView, ResultSource, StatementContext};
use sheaf_db::{PlanDigest, QueryOptions};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::Pipeline;
use sheaf_query::planner::PlannerOptions;
use sheaf_storage::MemoryEngine;

/// One kind of query. `filter` receives the number of documents.
struct Shape {
    name: &'static str,
    ask: Ask,
    filter: fn(i64) -> DocBuf,
    sort: DocBuf,
    projection: DocBuf,
    limit: u64,
    /// Whether to use plans beyond those that MongoDB documents.
    extended: bool,
    /// Whether to force index intersection.
    intersected: bool,
}

/// The command that runs the query.
enum Ask {
    Find,
    Count,
    Distinct(&'static str),
    /// `$match` with the filter, followed by these stages.
    Pipeline(Vec<DocBuf>),
}

impl Shape {
    fn of(name: &'static str, filter: fn(i64) -> DocBuf) -> Shape {
        Shape {
            name,
            ask: Ask::Find,
            filter,
            sort: doc! {},
            projection: doc! {},
            limit: 0,
            extended: false,
            intersected: false,
        }
    }

    fn page(self, sort: DocBuf, limit: u64) -> Shape {
        Shape {
            sort,
            limit,
            ..self
        }
    }

    fn only(self, projection: DocBuf) -> Shape {
        Shape { projection, ..self }
    }

    fn by(self, ask: Ask) -> Shape {
        Shape { ask, ..self }
    }

    fn extended(self) -> Shape {
        Shape {
            extended: true,
            ..self
        }
    }

    fn intersected(self) -> Shape {
        Shape {
            intersected: true,
            ..self
        }
    }
}

/// A collection of any size, with similar documents at every size.
struct Data {
    document: fn(i64) -> DocBuf,
    indexes: Vec<DocBuf>,
    shapes: Vec<Shape>,
}

fn list<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> Value {
    let values: Vec<Value> = values.into_iter().map(Into::into).collect();
    Value::Array(ArrayBuf::from_values(&values))
}

fn prefix(pattern: &str) -> RawValue<'_> {
    RawValue::Regex {
        pattern,
        options: "",
    }
}

fn order(i: i64) -> DocBuf {
    doc! {
        "_id": i, "country": i % 10, "at": i, "kind": i % 5, "code": i / 50,
        "lines": list([i % 7, 7 + i * 31 % 1000]), "category": format!("c{}", i * 7 % 20).as_str(),
        "email": format!("u{i}@x.org").as_str(), "a": i * 13 % 100, "b": i / 3 * 17 % 101,
        "scores": list([i * 7919 % 1_000_003, i % 10]), "x": i % 250,
    }
}

fn orders() -> Data {
    let all = |_: i64| doc! {};
    let codes = |_: i64| doc! {"kind": 2, "code": {"$gte": 77, "$lt": 80}};
    let some = |_: i64| doc! {"category": {"$in": ["c1", "c2", "c3"]}};
    let every = |_: i64| {
        let names = list((0..20).map(|n| format!("c{n}")));
        doc! {"category": {"$in": names}}
    };
    let both = |_: i64| doc! {"a": 5, "b": 7};
    let page = |n: i64| doc! {"at": {"$gte": n / 5, "$lt": n / 5 * 4}};
    let newest = || doc! {"at": -1};
    Data {
        document: order,
        indexes: vec![
            doc! {"country": 1, "lines": 1, "at": -1},
            doc! {"category": 1, "at": -1},
            doc! {"email": 1},
            doc! {"at": 1},
            doc! {"a": 1},
            doc! {"b": 1},
            doc! {"scores": -1},
            doc! {"kind": 1, "code": 1},
            doc! {"x": 1, "at": -1},
        ],
        shapes: vec![
            Shape::of(
                "last 10 orders of a country with a product",
                |_| doc! {"country": 3, "lines": 3},
            )
            .page(newest(), 10),
            Shape::of(
                "the same as a pipeline",
                |_| doc! {"country": 3, "lines": 3},
            )
            .by(Ask::Pipeline(vec![
                doc! {"$sort": newest()},
                doc! {"$limit": 10},
            ])),
            Shape::of("equality, then range: one stretch of 30 keys", codes),
            Shape::of("the same, covered", codes).only(doc! {"kind": 1, "code": 1, "_id": 0}),
            Shape::of("the same, counted", codes).by(Ask::Count),
            Shape::of(
                "range over 3 of 5 kinds, then a code",
                |_| doc! {"kind": {"$gt": 1}, "code": 77},
            ),
            Shape::of("50 with a code, kind from {$gte: MinKey}", |_| {
                doc! {"kind": {"$gte": RawValue::MinKey}, "code": 77}
            }),
            Shape::of(
                "50 with a code, nothing said of kind (skip scan)",
                |_| doc! {"code": 77},
            )
            .extended(),
            Shape::of(
                "one e-mail",
                |n| doc! {"email": format!("u{}@x.org", n / 2).as_str()},
            ),
            Shape::of(
                "e-mails by prefix, 5 of them",
                |_| doc! {"email": prefix("^u77")},
            )
            .page(doc! {}, 5),
            Shape::of("a range, its first 5 in order", page).page(doc! {"at": 1}, 5),
            Shape::of("its last 5, backward", page).page(newest(), 5),
            Shape::of("its first 5, covered", page)
                .page(doc! {"at": 1}, 5)
                .only(doc! {"at": 1, "_id": 0}),
            Shape::of(
                "newest 10 of two values ($in)",
                |_| doc! {"x": {"$in": [1, 2]}},
            )
            .page(newest(), 10),
            Shape::of(
                "newest 10 of two values ($or)",
                |_| doc! {"$or": [{"x": 1}, {"x": 2}]},
            )
            .page(newest(), 10),
            Shape::of(
                "newest 10 of 200 values: a merge",
                |_| doc! {"x": {"$in": list(0..200)}},
            )
            .page(newest(), 10),
            Shape::of(
                "newest 10 of 201 values: no merge",
                |_| doc! {"x": {"$in": list(0..201)}, "at": {"$lt": 2000}},
            )
            .page(newest(), 10),
            Shape::of("newest 10 of three categories", some).page(newest(), 10),
            Shape::of("newest 10 of all categories, named", every).page(newest(), 10),
            Shape::of("the categories, by distinct", all).by(Ask::Distinct("category")),
            Shape::of("the categories, by $group", all)
                .by(Ask::Pipeline(vec![doc! {"$group": {"_id": "$category"}}])),
            Shape::of("the newest of each category ($first)", all).by(Ask::Pipeline(vec![
                doc! {"$sort": {"category": 1, "at": -1}},
                doc! {"$group": {"_id": "$category", "at": {"$first": "$at"}}},
            ])),
            Shape::of("everything, counted", all).by(Ask::Count),
            Shape::of("highest 10 by an array", all).page(doc! {"scores": -1}, 10),
            Shape::of("a and b, 1 in 10,000 each way", both),
            Shape::of("the same, intersection forced", both).intersected(),
            Shape::of("the same, with extensions", both).extended(),
        ],
    }
}

/// A video. At every size, only the first few have special names and addresses, and figures above
/// ten million.
fn video(i: i64) -> DocBuf {
    let special = i < 16;
    let figure = |day: i64| match special && i % 2 == 0 && day < 3 {
        true => 10_000_001 + i * 1_000 + day * 4_000_000,
        false => (i * 3 + day) * 48_271 % 9_999_991,
    };
    let name = match special {
        true => format!("Franck {i}"),
        false => format!("Anna {}", i % 5000),
    };
    let email = match i {
        7 => list(["donutlover@springfieldusa.com", "homerdoh@simpsons.com"]),
        8 => Value::from("marge@springfieldusa.com"),
        _ => list([format!("u{i}@compuserve.com")]),
    };
    let shares = list([
        Value::Document(doc! {"type": "share", "author": name.as_str()}),
        Value::Document(doc! {"type": "reshare", "author": "Franck"}),
    ]);
    doc! {
        "_id": i, "category": format!("c{}", i * 7 % 20).as_str(), "date": i, "comments": i % 40,
        "duration": if i % 30 == 0 { 1 + i % 7 } else { 11 + i * 31 % 600 },
        "views": list((0..5).map(figure)), "shares": shares, "email": email,
    }
}

fn videos() -> Data {
    let all = |_: i64| doc! {};
    let newest = || doc! {"date": -1};
    Data {
        document: video,
        indexes: vec![
            doc! {"category": 1, "date": -1, "duration": 1},
            doc! {"views": -1, "comments": 1},
            doc! {"shares.type": 1, "shares.author": 1},
            doc! {"email": 1},
        ],
        shapes: vec![
            Shape::of("top 10 by the highest day", all).page(doc! {"views": -1}, 10),
            Shape::of("lowest 3 without comments", |_| {
                doc! {"views": {"$exists": true}, "comments": {"$lt": 1}}
            })
            .page(doc! {"views": 1}, 3),
            Shape::of(
                "a day above ten million",
                |_| doc! {"views": {"$gt": 10_000_000}},
            ),
            Shape::of("some day above, some day below 20 million", |_| {
                doc! {"views": {"$gt": 10_000_000, "$lt": 20_000_000}}
            }),
            Shape::of("one day between the two ($elemMatch)", |_| {
                doc! {"views": {"$elemMatch": {"$gt": 10_000_000, "$lt": 14_000_000}}}
            }),
            Shape::of("a share by a Franck ($elemMatch, prefix)", |_| {
                doc! {"shares": {"$elemMatch": {"type": "share", "author": prefix("^Franck.*")}}}
            }),
            Shape::of("the types of shares, by distinct", all).by(Ask::Distinct("shares.type")),
            Shape::of(
                "an address in an array",
                |_| doc! {"email": "donutlover@springfieldusa.com"},
            ),
            Shape::of(
                "an address, where others are arrays",
                |_| doc! {"email": "marge@springfieldusa.com"},
            ),
            Shape::of(
                "an address by its beginning",
                |_| doc! {"email": prefix("^donutlover@")},
            ),
            Shape::of(
                "an address by its middle",
                |_| doc! {"email": prefix("simpsons")},
            ),
            Shape::of(
                "newest 10 long ones of a category",
                |_| doc! {"category": "c1", "duration": {"$gt": 10}},
            )
            .page(newest(), 10),
            Shape::of("newest 10 long ones of three", |_| {
                doc! {"category": {"$in": ["c1", "c2", "c3"]}, "duration": {"$gt": 10}}
            })
            .page(newest(), 10),
            Shape::of("of all, {$gt: MinKey}", |_| {
                doc! {"category": {"$gt": RawValue::MinKey}, "duration": {"$gt": 10}}
            })
            .page(newest(), 10),
            Shape::of("of all, with extensions", |_| {
                doc! {"category": {"$gt": RawValue::MinKey}, "duration": {"$gt": 10}}
            })
            .page(newest(), 10)
            .extended(),
        ],
    }
}

fn open(data: &Data, n: i64) -> (Arc<Db>, Namespace, StatementContext) {
    let db = Db::open(Arc::new(MemoryEngine::new()), DbOptions::default()).expect("a database");
    let ns = Namespace::new("bench", "c").expect("a name");
    let op = StatementContext::new();
    for from in (0..n).step_by(1000) {
        let docs: Vec<DocBuf> = (from..n.min(from + 1000)).map(data.document).collect();
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        db.insert(&op, &ns, &docs, true).expect("inserted");
    }
    let specs: Vec<IndexSpec> = (data.indexes.iter())
        .map(|key| {
            let mut spec = DocBuilder::new();
            spec.append("key", RawValue::Document(key.as_raw()));
            spec.append("name", default_index_name(key.as_raw()).as_str());
            IndexSpec::parse(spec.finish().as_raw()).expect("a spec")
        })
        .collect();
    db.create_indexes(&op, &ns, &specs).expect("indexes");
    (db, ns, op)
}

/// What the chosen plan examines, the number of results, and the plan.
type Examined = (WorkCounts, u64, PlanDigest);

fn drained(mut source: impl ResultSource, op: &StatementContext) -> Result<Examined, Error> {
    let mut results = 0;
    while source.next(op)?.is_some() {
        results += 1;
    }
    Ok((source.counts(), results, source.plan()))
}

fn examined(
    db: &Arc<Db>,
    ns: &Namespace,
    op: &StatementContext,
    shape: &Shape,
    n: i64,
) -> Result<Examined, Error> {
    let filter = (shape.filter)(n);
    let options = QueryOptions {
        planner_extensions: shape.extended,
        planner: PlannerOptions {
            force_intersection: shape.intersected,
            ..PlannerOptions::DEFAULT
        },
        ..QueryOptions::default()
    };
    let view: ReadView = db.read_view(ns)?;
    let query = || {
        CanonicalQuery::new(
            sheaf_bson::DateTime::now(),
            FindSpec {
                filter: Some(filter.as_raw()),
                sort: Some(shape.sort.as_raw()),
                projection: Some(shape.projection.as_raw()),
                limit: Some(shape.limit),
                ..FindSpec::default()
            },
        )
        .map(Arc::new)
    };
    match &shape.ask {
        Ask::Find => drained(find::find(&view, op, query()?, &options)?, op),
        Ask::Count => {
            let counted = count(&view, op, query()?, &options)?;
            Ok((counted.counts, counted.count, counted.plan))
        }
        Ask::Distinct(path) => {
            let path = FieldPath::parse(path).expect("a path");
            let found = distinct(&view, op, &path, query()?, &options)?;
            let values = found.values.as_raw().count() as u64;
            Ok((found.counts, values, found.plan))
        }
        Ask::Pipeline(rest) => {
            let mut stages = vec![doc! {"$match": filter}];
            stages.extend(rest.iter().cloned());
            let stages = list(stages.into_iter().map(Value::Document));
            let Value::Array(stages) = stages else {
                unreachable!("a list is an array");
            };
            let context = || ParseContext {
                variables: VariableScope::new(DateTime(0)),
            };
            let pipeline = Pipeline::parse(stages.as_raw(), &context())?.optimize();
            let cx = AggregateContext::new(db, ns.db(), context(), options, None);
            let view = cx.view(op, ns)?;
            drained(aggregate::start(&cx, &view, op, &pipeline, None)?, op)
        }
    }
}

fn main() {
    let mut sizes: Vec<i64> = std::env::args()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 100_000, 1_000_000];
    }
    println!("keys / documents examined / results\n");
    let heads: Vec<String> = sizes.iter().map(|n| format!(" {n} |")).collect();
    println!("| |{} plan |", heads.concat());
    println!("|---|{}---|", "---|".repeat(sizes.len()));
    for data in [orders(), videos()] {
        let mut rows: Vec<String> = (data.shapes.iter())
            .map(|shape| format!("| {} |", shape.name))
            .collect();
        let mut plans = vec![String::new(); rows.len()];
        for &n in &sizes {
            let (db, ns, op) = open(&data, n);
            for ((shape, row), plan) in data.shapes.iter().zip(&mut rows).zip(&mut plans) {
                let (counts, results, digest) =
                    examined(&db, &ns, &op, shape, n).expect(shape.name);
                let (keys, docs) = (counts.keys_examined, counts.docs_examined);
                *row += &format!(" {keys} / {docs} / {results} |");
                let summary = digest.summary().unwrap_or_default();
                *plan = summary.chars().take(60).collect();
            }
        }
        for (row, plan) in rows.iter().zip(plans) {
            println!("{row} `{plan}` |");
        }
    }
}
