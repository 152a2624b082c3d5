//! The cost of planning: time and allocations from a parsed query to a plan, with the planner and
//! with the plan cache.
//!
//! ```text
//!   filter, sort ──parse──> CanonicalQuery ──plan──────> candidates      (a trial would follow)
//!                                     └─────plan cache──> the plan, with this query's constants
//! ```
//!
//! Then the cost of sub-pipelines that `$lookup` runs for each outer document, with its values in
//! their variables.
//!
//! `cargo run --release -p sheaf-bench --bin planning`. Everything runs in one process on the
//! memory engine; the constants change every round. Times are the minimum of several passes, in
//! microseconds per query.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sheaf_bson::{ArrayBuilder, DateTime, DocBuf, DocBuilder, RawDoc, RawValue, doc, json};
use sheaf_db::QueryOptions;
use sheaf_db::aggregate::{self, AggregateContext};
use sheaf_db::find;
use sheaf_db::index::definition::{IndexSpec, default_index_name};
use sheaf_db::planning::plan_from_cache;
use sheaf_db::{Db, DbOptions, Namespace, ReadView, ResultSource, StatementContext};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::Pipeline;
use sheaf_query::planner::{PlannerParams, plan};
use sheaf_storage::MemoryEngine;

/// Counts the calls to the system allocator.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on unchanged; the counter does not affect memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A kind of query: its indexes, and a query for each number.
struct Case {
    name: &'static str,
    indexes: Vec<DocBuf>,
    filter: fn(i32) -> DocBuf,
    sort: DocBuf,
    limit: Option<u64>,
}

fn point(n: i32) -> DocBuf {
    doc! {"e": n % 100}
}

fn esr(n: i32) -> DocBuf {
    doc! {"e": n % 100, "r": {"$gt": n % 50}}
}

fn or_of_20(n: i32) -> DocBuf {
    let mut branches = ArrayBuilder::new();
    for i in 0..20 {
        branches.push(&doc! {"e": (n + i) % 100, "r": (n + 3 * i) % 100});
    }
    let mut out = DocBuilder::new();
    out.append("$or", RawValue::Array(branches.finish().as_raw()));
    out.finish()
}

fn in_of_200(n: i32) -> DocBuf {
    let mut values = ArrayBuilder::new();
    for i in 0..200 {
        values.push(n + 2 * i);
    }
    let mut list = DocBuilder::new();
    list.append("$in", RawValue::Array(values.finish().as_raw()));
    let list = list.finish();
    doc! {"u": &list}
}

fn cases() -> Vec<Case> {
    let ten = [
        doc! {"e": 1},
        doc! {"r": 1},
        doc! {"s": 1},
        doc! {"e": 1, "s": 1, "r": 1},
        doc! {"e": 1, "r": 1, "s": 1},
        doc! {"e": 1, "r": 1},
        doc! {"r": 1, "e": 1},
        doc! {"s": 1, "e": 1},
        doc! {"r": 1, "s": 1},
        doc! {"e": 1, "s": 1},
    ];
    vec![
        Case {
            name: "point, 2 indexes",
            indexes: vec![doc! {"e": 1}, doc! {"e": 1, "r": 1}],
            filter: point,
            sort: doc! {},
            limit: None,
        },
        Case {
            name: "ESR, 10 indexes",
            indexes: ten.to_vec(),
            filter: esr,
            sort: doc! {"s": 1},
            limit: Some(10),
        },
        Case {
            name: "$or of 20, 2 indexes",
            indexes: vec![doc! {"e": 1}, doc! {"r": 1}],
            filter: or_of_20,
            sort: doc! {},
            limit: None,
        },
        Case {
            name: "$in of 200, 2 indexes",
            indexes: vec![doc! {"u": 1}, doc! {"u": 1, "r": 1}],
            filter: in_of_200,
            sort: doc! {},
            limit: None,
        },
    ]
}

/// Microseconds and allocations per call: the minimum of several passes over all queries.
fn measured(queries: usize, mut run: impl FnMut(usize)) -> (f64, f64) {
    let mut best = (f64::MAX, 0.0);
    for _ in 0..15 {
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        let begun = Instant::now();
        for n in 0..queries {
            run(n);
        }
        let micros = begun.elapsed().as_secs_f64() * 1e6 / queries as f64;
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
        if micros < best.0 {
            best = (micros, allocations as f64 / queries as f64);
        }
    }
    best
}

struct Collection {
    db: Arc<Db>,
    ns: Namespace,
    op: StatementContext,
}

impl Collection {
    fn new(case: &Case) -> Collection {
        let db = Db::open(Arc::new(MemoryEngine::new()), DbOptions::default()).expect("a database");
        let ns = Namespace::new("bench", "c").expect("a name");
        let op = StatementContext::new();
        let docs: Vec<DocBuf> = (0..20_000)
            .map(|i| doc! {"_id": i, "e": i * 7 % 100, "r": i * 13 % 103, "s": i * 31 % 9973, "u": i})
            .collect();
        for part in docs.chunks(1000) {
            let part: Vec<RawDoc<'_>> = part.iter().map(DocBuf::as_raw).collect();
            db.insert(&op, &ns, &part, true).expect("inserted");
        }
        let specs: Vec<IndexSpec> = case.indexes.iter().map(index).collect();
        db.create_indexes(&op, &ns, &specs).expect("indexes");
        Collection { db, ns, op }
    }

    fn view(&self) -> ReadView {
        self.db.read_view(&self.ns).expect("a view")
    }
}

fn index(key: &DocBuf) -> IndexSpec {
    let mut spec = DocBuilder::new();
    spec.append("key", RawValue::Document(key.as_raw()));
    spec.append("name", default_index_name(key.as_raw()).as_str());
    IndexSpec::parse(spec.finish().as_raw()).expect("a spec")
}

/// Sub-pipelines over a collection with indexes `{u: 1}` and `{e: 1, s: 1}`.
const CORRELATED: [(&str, &str); 5] = [
    ("equality", "[{$match: {$expr: {$eq: ['$u', '$$u']}}}]"),
    (
        "equality and another predicate, projected",
        "[{$match: {$expr: {$eq: ['$u', '$$u']}, e: {$gte: 0}}}, {$project: {e: 1}}]",
    ),
    (
        "newest of a kind",
        "[{$match: {$expr: {$eq: ['$e', '$$e']}}}, {$sort: {s: -1}}, {$limit: 1}]",
    ),
    (
        "range",
        "[{$match: {$expr: {$and: [{$eq: ['$e', '$$e']}, {$gt: ['$s', 9900]}]}}}]",
    ),
    (
        "group",
        "[{$match: {$expr: {$eq: ['$u', '$$u']}}}, {$group: {_id: '$e', n: {$sum: '$s'}}}]",
    ),
];

/// The cost per document of a `$lookup` with each of [`CORRELATED`].
fn correlated() {
    let case = Case {
        name: "",
        indexes: vec![doc! {"u": 1}, doc! {"e": 1, "s": 1}],
        filter: point,
        sort: doc! {},
        limit: None,
    };
    let collection = Collection::new(&case);
    let outer = Namespace::new("bench", "outer").expect("a name");
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| doc! {"_id": i, "u": i * 31, "e": i % 100})
        .collect();
    let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
    let op = &collection.op;
    collection
        .db
        .insert(op, &outer, &docs, true)
        .expect("inserted");
    println!("\n| pipeline of a $lookup | per document |");
    println!("|---|---|");
    for (name, pipeline) in CORRELATED {
        let text = format!(
            "{{p: [{{$lookup: {{from: 'c', let: {{u: '$u', e: '$e'}}, pipeline: {pipeline}, as: 'r'}}}}]}}"
        );
        let spec = json::parse_doc(&text).expect("a pipeline");
        let Some(RawValue::Array(stages)) = spec.get("p") else {
            panic!("an array");
        };
        let context = || ParseContext {
            variables: VariableScope::new(DateTime::now()),
        };
        let options = QueryOptions::default();
        let run = || {
            let parsed = Pipeline::parse(stages, &context()).expect("a pipeline");
            let cx =
                AggregateContext::new(&collection.db, "bench", context(), options.clone(), None);
            let view = cx.view(op, &outer).expect("a view");
            let mut found =
                aggregate::start(&cx, &view, op, &parsed.optimize(), None).expect("a start");
            let mut n = 0;
            while let Some(doc) = found.next(op).expect("a result") {
                black_box(doc);
                n += 1;
            }
            assert_eq!(n, 500);
        };
        let (micros, allocations) = measured(1, |_| run());
        println!(
            "| {name} | {:.2} µs, {:.0} |",
            micros / 500.0,
            allocations / 500.0
        );
    }
}

fn main() {
    println!("| | parse | plan, published | plan, with statistics | from the plan cache |");
    println!("|---|---|---|---|---|");
    for case in cases() {
        let collection = Collection::new(&case);
        let filters: Vec<DocBuf> = (0..64).map(|n| (case.filter)(n)).collect();
        let parse = |n: usize| {
            CanonicalQuery::new(
                sheaf_bson::DateTime::now(),
                FindSpec {
                    filter: Some(filters[n].as_raw()),
                    sort: Some(case.sort.as_raw()),
                    limit: case.limit,
                    ..FindSpec::default()
                },
            )
            .expect("a query")
        };
        let queries: Vec<Arc<CanonicalQuery>> = (0..64).map(|n| Arc::new(parse(n))).collect();
        let view = collection.view();
        let options = QueryOptions::default();
        // Run each query until its plan is active in the cache.
        for query in queries.iter().chain(&queries).chain(&queries) {
            let mut found =
                find::find(&view, &collection.op, query.clone(), &options).expect("a find");
            while found.next(&collection.op).expect("a result").is_some() {}
        }
        let indexes = view.collection.as_ref().expect("a collection").indexes();
        let parsed = measured(64, |n| drop(black_box(parse(n))));
        let published = measured(64, |n| {
            drop(black_box(
                plan(&queries[n], &PlannerParams::new(indexes)).expect("plans"),
            ));
        });
        let extended = measured(64, |n| {
            drop(black_box(
                sheaf_db::planning::plan(&view, &queries[n], &options).expect("plans"),
            ));
        });
        let cached = measured(64, |n| {
            let plan = plan_from_cache(&view, &collection.op, &queries[n], &options);
            assert!(
                black_box(plan.expect("no error")).is_some(),
                "{} is not cached",
                case.name
            );
        });
        let cell = |(micros, allocations): (f64, f64)| format!("{micros:.2} µs, {allocations:.0}");
        println!(
            "| {} | {} | {} | {} | {} |",
            case.name,
            cell(parsed),
            cell(published),
            cell(extended),
            cell(cached)
        );
    }
    correlated();
}
