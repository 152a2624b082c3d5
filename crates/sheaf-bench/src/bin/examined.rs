//! Whether cost follows the result: keys and documents examined for queries of
//! each kind, at three sizes of the collection.
//!
//! `cargo run --release -p sheaf-bench --bin examined [documents...]`
//!
//! One process on the memory engine. Counters, no times: a build without
//! optimisation gives the same table.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, doc};
use sheaf_db::exec::WorkCounts;
use sheaf_db::find::{self, QueryOptions};
use sheaf_db::index::spec::{IndexSpec, default_index_name};
use sheaf_db::{Db, DbOptions, Namespace, OpContext, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_storage::MemoryEngine;

/// One kind of query.
struct Shape {
    name: &'static str,
    filter: fn(i64) -> DocBuf,
    sort: fn() -> DocBuf,
    projection: fn() -> DocBuf,
    limit: u64,
    /// Beyond MongoDB's published plans.
    extended: bool,
}

/// The documents are alike at every size; only there are more of them.
fn document(i: i64) -> DocBuf {
    let lines = [i % 7, 7 + i * 31 % 1000];
    let lines = sheaf_bson::ArrayBuf::from_values(lines);
    doc! {
        "_id": i, "country": i % 10, "at": i, "kind": i % 5, "code": i / 50, "lines": &lines, "category": format!("c{}", i * 7 % 20).as_str(),
        "email": format!("u{i}@x.org").as_str(), "a": i * 13 % 100, "b": i / 3 * 17 % 101,
        "scores": &sheaf_bson::ArrayBuf::from_values([i * 7919 % 1_000_003, i % 10]),
    }
}

fn indexes() -> Vec<DocBuf> {
    vec![
        doc! {"country": 1, "lines": 1, "at": -1},
        doc! {"category": 1, "at": -1},
        doc! {"email": 1},
        doc! {"at": 1},
        doc! {"a": 1},
        doc! {"b": 1},
        doc! {"scores": -1},
        doc! {"kind": 1, "code": 1},
    ]
}

fn none() -> DocBuf {
    doc! {}
}

fn shapes() -> Vec<Shape> {
    let shape = |name, filter, sort, limit| Shape {
        name,
        filter,
        sort,
        projection: none,
        limit,
        extended: false,
    };
    vec![
        shape(
            "last 10 orders of a country with a product",
            |_| doc! {"country": 3, "lines": 3},
            || doc! {"at": -1},
            10,
        ),
        shape(
            "one e-mail",
            |n| doc! {"email": format!("u{}@x.org", n / 2).as_str()},
            none,
            0,
        ),
        shape(
            "e-mails by prefix, 5 of them",
            |_| doc! {"email": RawValue::Regex {pattern: "^u77", options: ""}},
            none,
            5,
        ),
        shape(
            "a range, its first 5 in order",
            |n| doc! {"at": {"$gte": n / 5, "$lt": n / 5 * 4}},
            || doc! {"at": 1},
            5,
        ),
        Shape {
            projection: || doc! {"at": 1, "_id": 0},
            ..shape(
                "the same, covered",
                |n| doc! {"at": {"$gte": n / 5, "$lt": n / 5 * 4}},
                || doc! {"at": 1},
                5,
            )
        },
        shape(
            "newest 10 of three categories ($in)",
            |_| doc! {"category": {"$in": ["c1", "c2", "c3"]}},
            || doc! {"at": -1},
            10,
        ),
        Shape {
            extended: true,
            ..shape(
                "newest 10 of all categories ({$gt: MinKey})",
                |_| doc! {"category": {"$gt": RawValue::MinKey}},
                || doc! {"at": -1},
                10,
            )
        },
        shape(
            "highest 10 by an array",
            none_of,
            || doc! {"scores": -1},
            10,
        ),
        shape(
            "a and b, 1 in 10,000 each way",
            |_| doc! {"a": 5, "b": 7},
            none,
            0,
        ),
        Shape {
            extended: true,
            ..shape(
                "the same, with extensions",
                |_| doc! {"a": 5, "b": 7},
                none,
                0,
            )
        },
        Shape {
            extended: true,
            ..shape(
                "50 with a code, the index leads with a kind (skip scan)",
                |_| doc! {"code": 77},
                none,
                0,
            )
        },
    ]
}

fn none_of(_: i64) -> DocBuf {
    doc! {}
}

fn open(n: i64) -> (Arc<Db>, Namespace, OpContext) {
    let db = Db::open(Arc::new(MemoryEngine::new()), DbOptions::default()).expect("a database");
    let ns = Namespace::new("bench", "c").expect("a name");
    let op = OpContext::new();
    for from in (0..n).step_by(1000) {
        let docs: Vec<DocBuf> = (from..n.min(from + 1000)).map(document).collect();
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        db.insert(&op, &ns, &docs, true).expect("inserted");
    }
    let specs: Vec<IndexSpec> = indexes()
        .iter()
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

/// What the plan that is chosen reads, and how many results it gives.
fn examined(
    db: &Db,
    ns: &Namespace,
    op: &OpContext,
    shape: &Shape,
    n: i64,
) -> (WorkCounts, u64, String) {
    let (filter, sort, projection) = ((shape.filter)(n), (shape.sort)(), (shape.projection)());
    let query = CanonicalQuery::new(FindSpec {
        filter: Some(filter.as_raw()),
        sort: Some(sort.as_raw()),
        projection: Some(projection.as_raw()),
        limit: Some(shape.limit),
        ..FindSpec::default()
    })
    .expect("a query");
    let options = QueryOptions {
        planner_extensions: shape.extended,
        ..QueryOptions::default()
    };
    let view = db.read_view(ns).expect("a view");
    let mut found = find::find(&view, op, Arc::new(query), &options).expect("a find");
    let mut results = 0;
    while found.next(op).expect("a result").is_some() {
        results += 1;
    }
    (
        found.counts(),
        results,
        found.plan().summary().unwrap_or_default(),
    )
}

fn main() {
    let mut sizes: Vec<i64> = std::env::args()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 100_000, 1_000_000];
    }
    let shapes = shapes();
    let mut rows: Vec<String> = shapes
        .iter()
        .map(|shape| format!("| {} |", shape.name))
        .collect();
    let mut plans = vec![String::new(); shapes.len()];
    for &n in &sizes {
        let (db, ns, op) = open(n);
        for ((shape, row), plan) in shapes.iter().zip(&mut rows).zip(&mut plans) {
            let (counts, results, summary) = examined(&db, &ns, &op, shape, n);
            *row += &format!(
                " {} / {} / {results} |",
                counts.keys_examined, counts.docs_examined
            );
            *plan = summary.chars().take(60).collect();
        }
    }
    let heads: Vec<String> = sizes.iter().map(|n| format!(" {n} |")).collect();
    println!("keys / documents examined / results\n");
    println!("| |{} plan |", heads.concat());
    println!("|---|{}---|", "---|".repeat(sizes.len()));
    for (row, plan) in rows.iter().zip(plans) {
        println!("{row} `{plan}` |");
    }
}
