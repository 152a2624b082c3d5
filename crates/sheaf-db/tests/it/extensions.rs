//! Plans beyond MongoDB's published ones, on data for which the published plans are slow: what is
//! read with the extensions and without, and that both return the same.

use std::sync::Arc;

use sheaf_bson::{ArrayBuf, DocBuf, RawDoc, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::exec::WorkCounts;
use sheaf_db::explain::Verbosity;
use sheaf_db::explain::query::{self, Explained};
use sheaf_db::find::find;
use sheaf_db::{Events, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};

use crate::support::{EngineKind, TestDb, ns};

fn collection(n: i32, doc: impl Fn(i32) -> DocBuf, indexes: &[DocBuf]) -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let docs: Vec<DocBuf> = (0..n).map(doc).collect();
    for part in docs.chunks(1000) {
        t.insert_all("c", part);
    }
    for key in indexes {
        t.create_index("c", key.clone(), doc! {}).unwrap();
    }
    t
}

fn extended() -> QueryOptions {
    QueryOptions::default()
}

fn published() -> QueryOptions {
    QueryOptions {
        planner_extensions: false,
        ..QueryOptions::default()
    }
}

/// The results, what was read for them (without the trials), and the plan.
fn run(
    t: &TestDb,
    spec: FindSpec<'_>,
    options: &QueryOptions,
) -> (Vec<DocBuf>, WorkCounts, DocBuf) {
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
    let view = t.db.read_view(&ns("c")).unwrap();
    let mut out = sheaf_bson::DocBuilder::new();
    let explained = Explained {
        view: &view,
        op: &t.op,
        query: &query,
        options,
        namespace: "test.c",
        verbosity: Verbosity::AllPlansExecution,
        is_pipeline: false,
    };
    query::find(&explained, &mut out).unwrap();
    let mut source = find(&view, &t.op, query, options).unwrap();
    let mut found = Vec::new();
    while let Some(doc) = source.next(&t.op).unwrap() {
        found.push(doc.as_raw().to_buf());
    }
    (found, source.counts(), out.finish())
}

fn sorted(mut docs: Vec<DocBuf>) -> Vec<DocBuf> {
    docs.sort_by(|a, b| sheaf_bson::compare_docs(a.as_raw(), b.as_raw()));
    docs
}

/// The first stage of this name at any depth.
fn stage<'d>(doc: RawDoc<'d>, name: &str) -> Option<RawDoc<'d>> {
    if doc.get("stage").and_then(|v| v.as_str()) == Some(name) {
        return Some(doc);
    }
    doc.iter().find_map(|element| match element.value() {
        RawValue::Document(below) => stage(below, name),
        RawValue::Array(list) => list
            .iter()
            .find_map(|below| below.as_document().and_then(|below| stage(below, name))),
        _ => None,
    })
}

fn winner(explain: &DocBuf) -> RawDoc<'_> {
    let planner = explain.get("queryPlanner").unwrap().as_document().unwrap();
    planner.get("winningPlan").unwrap().as_document().unwrap()
}

#[test]
fn a_skip_scan_hops_over_leading_fields_without_predicates() {
    let t = collection(
        20_000,
        |i| doc! {"_id": i, "kind": i % 5, "number": i / 5},
        &[doc! {"kind": 1, "number": 1}],
    );
    let filter = doc! {"number": {"$gte": 100, "$lt": 103}};
    let spec = || FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let (with, read, explain) = run(&t, spec(), &extended());
    let (without, read_before, before) = run(&t, spec(), &published());
    assert_eq!(sorted(with), sorted(without));
    // No index has the field first: every document is read.
    assert!(stage(winner(&before), "COLLSCAN").is_some());
    assert_eq!(read_before.docs_examined, 20_000);
    // Each of 5 prefixes costs a seek to enter, one to leave, and has 3 matches.
    let scan = stage(winner(&explain), "IXSCAN").unwrap();
    let skip = scan.get("skipScan").unwrap().as_document().unwrap();
    assert_eq!(skip.get("prefixFields").unwrap().as_i64_exact(), Some(1));
    assert_eq!(read.docs_examined, 15);
    assert!(read.keys_examined <= 15 + 3 * 5, "{read:?}");
}

#[test]
fn no_skip_scan_where_the_leading_field_has_many_values() {
    let t = collection(
        5_000,
        |i| doc! {"_id": i, "kind": i, "number": i % 7},
        &[doc! {"kind": 1, "number": 1}],
    );
    let filter = doc! {"number": 3};
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let (_, _, explain) = run(&t, spec, &extended());
    assert!(stage(winner(&explain), "COLLSCAN").is_some());
}

#[test]
fn the_newest_of_all_categories_reads_one_key_each() {
    let t = collection(
        20_000,
        |i| doc! {"_id": i, "category": format!("c{}", i % 20).as_str(), "at": i * 7919 % 20_011},
        &[doc! {"category": 1, "at": -1}],
    );
    let sort = doc! {"at": -1};
    for filter in [
        doc! {},
        doc! {"category": {"$gt": RawValue::MinKey}},
        doc! {"category": {"$gte": "c10", "$lt": "c2"}},
    ] {
        let spec = || FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            limit: Some(10),
            ..FindSpec::default()
        };
        let (with, read, explain) = run(&t, spec(), &extended());
        let (without, read_before, before) = run(&t, spec(), &published());
        assert_eq!(with, without, "{filter}");
        // Published: everything is read into a blocking sort.
        assert!(stage(winner(&before), "SORT").is_some(), "{filter}");
        let all = read_before.keys_examined.max(read_before.docs_examined);
        assert!(all >= 10_000, "{filter} {read_before:?}");
        let merge = stage(winner(&explain), "SORT_MERGE").unwrap();
        let prefixes = merge
            .get("explodedPrefixes")
            .unwrap()
            .as_document()
            .unwrap();
        assert_eq!(
            prefixes.get("indexName").unwrap().as_str(),
            Some("category_1_at_-1")
        );
        // One key for each of at most 20 categories to enumerate them, one to start the scan, and
        // ten results.
        assert_eq!(read.docs_examined, 10, "{filter}");
        assert!(read.keys_examined <= 20 + 1 + 20 + 10, "{filter} {read:?}");
    }
}

#[test]
fn no_explosion_over_many_categories() {
    let t = collection(
        3_000,
        |i| doc! {"_id": i, "category": i % 1000, "at": i * 7919 % 3_001},
        &[doc! {"category": 1, "at": -1}],
    );
    let (filter, sort) = (
        doc! {"category": {"$gt": RawValue::MinKey}},
        doc! {"at": -1},
    );
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        sort: Some(sort.as_raw()),
        limit: Some(10),
        ..FindSpec::default()
    };
    let (_, _, explain) = run(&t, spec, &extended());
    assert!(stage(winner(&explain), "SORT_MERGE").is_none());
}

#[test]
fn an_intersection_wins_where_it_reads_fewer_documents() {
    let t = collection(
        20_000,
        |i| doc! {"_id": i, "a": i % 100, "b": i / 7 % 101},
        &[doc! {"a": 1}, doc! {"b": 1}],
    );
    let filter = doc! {"a": 5, "b": 6};
    let spec = || FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let (with, read, explain) = run(&t, spec(), &extended());
    let (without, read_before, before) = run(&t, spec(), &published());
    assert_eq!(sorted(with.clone()), sorted(without));
    assert!(stage(winner(&before), "AND_SORTED").is_none());
    assert!(stage(winner(&explain), "AND_SORTED").is_some());
    // The published plan fetches all 200 documents of one index to find those in both.
    assert!(read_before.docs_examined >= 190, "{read_before:?}");
    assert_eq!(read.docs_examined, with.len() as u64);
    // The trial reports the criterion.
    let stats = explain
        .get("executionStats")
        .unwrap()
        .as_document()
        .unwrap();
    let RawValue::Array(trial) = stats.get("allPlansExecution").unwrap() else {
        panic!("an array")
    };
    let costs: Vec<f64> = trial
        .iter()
        .map(|plan| {
            plan.as_document()
                .unwrap()
                .get("cost")
                .unwrap()
                .as_f64()
                .unwrap()
        })
        .collect();
    assert_eq!(costs.len(), 3);
}

#[test]
fn one_index_is_enough_where_it_reads_few_documents() {
    let t = collection(
        20_000,
        |i| doc! {"_id": i, "a": i % 5000, "b": i % 3},
        &[doc! {"a": 1}, doc! {"b": 1}],
    );
    let filter = doc! {"a": 5, "b": 2};
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let (_, read, explain) = run(&t, spec, &extended());
    assert!(stage(winner(&explain), "AND_SORTED").is_none());
    assert_eq!(read.docs_examined, 4);
}

#[test]
fn a_dominated_candidate_is_not_tried_on_a_large_collection() {
    let t = collection(
        20_000,
        |i| doc! {"_id": i, "rare": i % 1000, "often": i % 2},
        &[doc! {"often": 1}, doc! {"rare": 1}],
    );
    let filter = doc! {"rare": {"$in": [0, 10]}, "often": {"$gte": 0}};
    let spec = || FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let trials = |explain: &DocBuf| -> Vec<i64> {
        let stats = explain
            .get("executionStats")
            .unwrap()
            .as_document()
            .unwrap();
        let RawValue::Array(plans) = stats.get("allPlansExecution").unwrap() else {
            panic!("an array")
        };
        let plans = plans.iter();
        plans
            .map(|plan| {
                let examined = plan.as_document().unwrap().get("totalKeysExamined");
                examined.unwrap().as_i64_exact().unwrap()
            })
            .collect()
    };
    let (with, read, explain) = run(&t, spec(), &extended());
    let (without, read_before, before) = run(&t, spec(), &published());
    assert_eq!(sorted(with), sorted(without));
    assert_eq!(read.docs_examined, read_before.docs_examined);
    // Published: both candidates read as much before the trial ends.
    let before = trials(&before);
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|&keys| keys > 30), "{before:?}");
    assert_eq!(trials(&explain).len(), 1);
    let planner = explain.get("queryPlanner").unwrap().as_document().unwrap();
    let RawValue::Array(rejected) = planner.get("rejectedPlans").unwrap() else {
        panic!("an array")
    };
    let rejected = rejected.iter().next().unwrap().as_document().unwrap();
    let why = rejected.get("notTried").unwrap().as_document().unwrap();
    let keys = |name: &str| why.get(name).unwrap().as_i64_exact().unwrap();
    assert!(keys("estimatedKeys") > 15_000);
    assert!(keys("estimatedKeysOfBest") < 1_000);
}

#[test]
fn a_sorted_plan_with_a_limit_is_never_dominated() {
    let t = collection(
        20_000,
        |i| doc! {"_id": i, "rare": i % 1000, "at": i},
        &[doc! {"at": 1}, doc! {"rare": 1}],
    );
    let (filter, sort) = (doc! {"rare": 3, "at": {"$gte": 0}}, doc! {"at": 1});
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        sort: Some(sort.as_raw()),
        limit: Some(1),
        ..FindSpec::default()
    };
    let (found, _, explain) = run(&t, spec, &extended());
    assert_eq!(found.len(), 1);
    let planner = explain.get("queryPlanner").unwrap().as_document().unwrap();
    let RawValue::Array(rejected) = planner.get("rejectedPlans").unwrap() else {
        panic!("an array")
    };
    let untried = |plan: RawDoc<'_>| plan.get("notTried").is_some();
    assert!(
        rejected
            .iter()
            .all(|plan| !untried(plan.as_document().unwrap()))
    );
}

#[test]
fn arrays_and_missing_fields_are_prefixes_too() {
    let t = collection(
        4_000,
        |i| match i % 4 {
            0 => doc! {"_id": i, "at": i * 37 % 4001},
            1 => doc! {"_id": i, "tag": RawValue::Null, "at": i * 37 % 4001},
            2 => {
                let tags = ArrayBuf::from_values([i % 3, i % 5]);
                doc! {"_id": i, "tag": &tags, "at": i * 37 % 4001}
            }
            _ => doc! {"_id": i, "tag": &ArrayBuf::default(), "at": i * 37 % 4001},
        },
        &[doc! {"tag": 1, "at": 1}],
    );
    let sort = doc! {"at": 1};
    for filter in [doc! {}, doc! {"tag": {"$gte": 1}}, doc! {"tag": {"$ne": 2}}] {
        let spec = || FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            limit: Some(500),
            ..FindSpec::default()
        };
        let (with, _, explain) = run(&t, spec(), &extended());
        let (without, _, _) = run(&t, spec(), &published());
        assert!(stage(winner(&explain), "SORT_MERGE").is_some(), "{filter}");
        assert_eq!(with, without, "{filter}");
    }
}
