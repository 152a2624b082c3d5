//! Plan selection: trials, the plan cache, branches of a rooted `$or`.

use std::sync::Arc;

use sheaf_bson::{DocBuf, RawDoc, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::explain::Verbosity;
use sheaf_db::explain::query::{self, Explained};
use sheaf_db::find::find;
use sheaf_db::{Events, PlanDigest, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::planner::PlannerOptions;
use sheaf_query::planner::solution::SolutionNode;

use crate::support::{EngineKind, TestDb, ns};

fn collection(n: i32, doc: impl Fn(i32) -> DocBuf, indexes: &[DocBuf]) -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let docs: Vec<DocBuf> = (0..n).map(doc).collect();
    t.insert_all("c", &docs);
    for key in indexes {
        t.create_index("c", key.clone(), doc! {}).unwrap();
    }
    t
}

fn query(filter: &DocBuf) -> Arc<CanonicalQuery> {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap())
}

/// The ids found, and the plan's digest.
fn run(t: &TestDb, filter: &DocBuf, options: &QueryOptions) -> (Vec<i32>, PlanDigest) {
    let view = t.db.read_view(&ns("c")).unwrap();
    let mut source = find(&view, &t.op, query(filter), options).unwrap();
    let mut ids = Vec::new();
    while let Some(doc) = source.next(&t.op).unwrap() {
        match doc.as_raw().get("_id") {
            Some(RawValue::Int32(id)) => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    ids.sort_unstable();
    (ids, source.plan())
}

fn explain(t: &TestDb, filter: &DocBuf) -> DocBuf {
    let (query, options) = (query(filter), QueryOptions::default());
    let view = t.db.read_view(&ns("c")).unwrap();
    let mut out = sheaf_bson::DocBuilder::new();
    let explained = Explained {
        view: &view,
        op: &t.op,
        query: &query,
        options: &options,
        namespace: "test.c",
        verbosity: Verbosity::AllPlansExecution,
        is_pipeline: false,
    };
    query::find(&explained, &mut out).unwrap();
    out.finish()
}

/// Stages of the winning plan, root first, inputs in brackets.
fn stages(plan: RawDoc<'_>) -> String {
    let mut out = plan.get("stage").unwrap().as_str().unwrap().to_owned();
    if let Some(input) = plan.get("inputStage") {
        out += &format!(" {}", stages(input.as_document().unwrap()));
    }
    if let Some(RawValue::Array(inputs)) = plan.get("inputStages") {
        let inputs: Vec<String> = inputs
            .iter()
            .map(|input| stages(input.as_document().unwrap()))
            .collect();
        out += &format!(" [{}]", inputs.join(", "));
    }
    out
}

fn winner(explain: &DocBuf) -> RawDoc<'_> {
    let planner = explain.get("queryPlanner").unwrap().as_document().unwrap();
    planner.get("winningPlan").unwrap().as_document().unwrap()
}

fn two_indexes() -> TestDb {
    collection(
        400,
        |i| doc! {"_id": i, "a": i % 40, "b": i % 4},
        &[doc! {"a": 1}, doc! {"b": 1}],
    )
}

#[test]
fn a_plan_comes_from_the_cache_with_the_constants_of_its_query() {
    let t = two_indexes();
    let options = QueryOptions::default();
    for (turn, a) in [3, 7, 11, 15, 19].into_iter().enumerate() {
        let (ids, plan) = run(&t, &doc! {"a": a, "b": 3}, &options);
        let expected: Vec<i32> = (0..400).filter(|i| i % 40 == a && i % 4 == 3).collect();
        assert_eq!(ids, expected);
        assert_eq!(plan.from_cache, turn >= 2, "{turn}");
        assert_eq!(plan.summary().unwrap(), "IXSCAN { a: 1 }");
    }
}

#[test]
fn an_expensive_cached_plan_is_replanned() {
    // The first half has one document per `a` and many with the same `b`, the second half the
    // reverse.
    let t = collection(
        3_000,
        |i| match i {
            0..1500 => doc! {"_id": i, "a": i, "b": 0},
            _ => doc! {"_id": i, "a": -1, "b": i},
        },
        &[doc! {"a": 1}, doc! {"b": 1}],
    );
    for options in [
        QueryOptions::default(),
        QueryOptions {
            planner_extensions: false,
            ..QueryOptions::default()
        },
    ] {
        for a in [10, 20, 30] {
            let (ids, plan) = run(&t, &doc! {"a": a, "b": 0}, &options);
            assert_eq!(ids, [a]);
            assert_eq!(plan.summary().unwrap(), "IXSCAN { a: 1 }");
        }
        let (ids, plan) = run(&t, &doc! {"a": -1, "b": 2000}, &options);
        assert_eq!(ids, [2000]);
        assert!(plan.replanned && !plan.from_cache);
        assert_eq!(plan.summary().unwrap(), "IXSCAN { b: 1 }");
    }
}

#[test]
fn constants_that_do_not_fit_a_recipe_are_planned() {
    let t = collection(
        300,
        |i| match i % 3 {
            0 => doc! {"_id": i, "b": i % 4},
            1 => doc! {"_id": i, "a": RawValue::Null, "b": i % 4},
            _ => doc! {"_id": i, "a": i % 40, "b": i % 4},
        },
        &[doc! {"a": 1}, doc! {"b": 1}],
    );
    let options = QueryOptions::default();
    for a in [2, 5, 8] {
        run(&t, &doc! {"a": a, "b": 1}, &options);
    }
    // Null has two index values, and the documents must be checked.
    let (ids, _) = run(&t, &doc! {"a": RawValue::Null, "b": 1}, &options);
    let expected: Vec<i32> = (0..300).filter(|i| i % 3 != 2 && i % 4 == 1).collect();
    assert_eq!(ids, expected);
}

#[test]
fn branches_of_a_rooted_or_are_planned_separately() {
    let t = collection(
        2_000,
        |i| doc! {"_id": i, "a": i % 500, "b": i % 3, "c": i % 400},
        &[doc! {"a": 1}, doc! {"b": 1}, doc! {"c": 1}],
    );
    let filter = |n: i32| doc! {"$or": [doc! {"a": n, "b": 1}, doc! {"b": 2, "c": n}]};
    let found = explain(&t, &filter(7));
    assert_eq!(
        stages(winner(&found)),
        "SUBPLAN OR [FETCH IXSCAN, FETCH IXSCAN]"
    );
    let planner = found.get("queryPlanner").unwrap().as_document().unwrap();
    let Some(RawValue::Array(rejected)) = planner.get("rejectedPlans") else {
        panic!("an array")
    };
    assert_eq!(rejected.iter().count(), 0);
    let options = QueryOptions::default();
    for (turn, n) in [7, 8, 11, 14, 17].into_iter().enumerate() {
        let (ids, plan) = run(&t, &filter(n), &options);
        let expected: Vec<i32> = (0..2000)
            .filter(|i| i % 500 == n && i % 3 == 1 || i % 3 == 2 && i % 400 == n)
            .collect();
        assert_eq!(ids, expected);
        assert_eq!(plan.summary().unwrap(), "IXSCAN { a: 1 }, IXSCAN { c: 1 }");
        // Two trials prove the branches' plans; the third run assembles the whole from the cache.
        assert_eq!(plan.from_cache, turn >= 3, "{turn}");
    }
    // An entry for each branch, none for the whole.
    assert_eq!(t.collection("c").plan_cache().len(), 2);
    let (_, plan) = run(&t, &doc! {"a": 3, "b": 1}, &options);
    assert!(plan.from_cache, "a query like a branch has that plan");
}

#[test]
fn a_rooted_or_with_a_branch_without_an_index_is_a_collection_scan() {
    let t = two_indexes();
    let filter = doc! {"$or": [doc! {"a": 1}, doc! {"x": 1}]};
    assert_eq!(stages(winner(&explain(&t, &filter))), "COLLSCAN");
}

#[test]
fn branches_are_planned_as_a_whole_if_configured() {
    let t = two_indexes();
    let options = QueryOptions {
        or_children_independently: false,
        ..QueryOptions::default()
    };
    let filter = doc! {"$or": [doc! {"a": 1, "b": 1}, doc! {"a": 2, "b": 2}]};
    for _ in 0..3 {
        run(&t, &filter, &options);
    }
    assert_eq!(t.collection("c").plan_cache().len(), 1);
}

#[test]
fn explain_does_not_change_the_cache() {
    let t = two_indexes();
    explain(&t, &doc! {"a": 1, "b": 1});
    assert!(t.collection("c").plan_cache().is_empty());
}

#[test]
fn trials_stay_within_their_budget() {
    let t = collection(
        1_000,
        |i| doc! {"_id": i, "a": i % 2, "b": i % 2, "c": i},
        &[doc! {"a": 1}, doc! {"b": 1}],
    );
    // The filter matches nothing: only the budget ends the trial.
    let filter = doc! {"a": 0, "b": 0, "c": -1};
    let works = |options: &QueryOptions| -> Vec<i64> {
        let view = t.db.read_view(&ns("c")).unwrap();
        let query = query(&filter);
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
        let found = out.finish();
        let stats = found.get("executionStats").unwrap().as_document().unwrap();
        let Some(RawValue::Array(plans)) = stats.get("allPlansExecution") else {
            panic!("an array")
        };
        plans
            .iter()
            .map(|plan| {
                let stages = plan.as_document().unwrap().get("executionStages").unwrap();
                let works = stages.as_document().unwrap().get("works").unwrap();
                works.as_i64_exact().unwrap()
            })
            .collect()
    };
    let published = |evaluation_works, evaluation_collection_fraction| QueryOptions {
        planner_extensions: false,
        evaluation_works,
        evaluation_collection_fraction,
        ..QueryOptions::default()
    };
    assert_eq!(works(&published(100, 0.0)), [100, 100]);
    // The fraction of the collection applies if it is more.
    assert_eq!(works(&published(100, 0.3)), [300, 300]);
    // By cost, both candidates take at most the works of one plan.
    let by_cost = QueryOptions {
        evaluation_works: 100,
        evaluation_collection_fraction: 0.0,
        ..QueryOptions::default()
    };
    assert!(works(&by_cost).iter().all(|&works| works <= 100 + 1));
}

/// Most documents have small groups of `a` and of `b` with few in common; `-1` is frequent in both
/// fields, and one document has it in both.
fn meeting_groups() -> TestDb {
    collection(
        7_000,
        |i| match i {
            0..4000 => doc! {"_id": i, "a": i % 100, "b": i % 97, "c": 0},
            4000 => doc! {"_id": i, "a": -1, "b": -1, "c": 0},
            _ if i % 2 == 0 => doc! {"_id": i, "a": -1, "b": i, "c": 0},
            _ => doc! {"_id": i, "a": i, "b": -1, "c": 0},
        },
        &[doc! {"a": 1}, doc! {"b": 1}, doc! {"c": 1}],
    )
}

/// The plan is proven after `trials` trials and then used; for the last filter it is expensive.
fn proven_then_replanned(t: &TestDb, filters: &[DocBuf], options: &QueryOptions, trials: usize) {
    let expected = |filter: &DocBuf| {
        let published = QueryOptions {
            planner_extensions: false,
            or_children_independently: false,
            ..QueryOptions::default()
        };
        run(t, filter, &published).0
    };
    let (last, good) = filters.split_last().unwrap();
    for (turn, filter) in good.iter().enumerate() {
        let (ids, plan) = run(t, filter, options);
        assert_eq!(ids, expected(filter), "{filter}");
        assert_eq!(plan.from_cache, turn >= trials, "{turn}");
        let both = "IXSCAN { a: 1 }, IXSCAN { b: 1 }";
        assert!(plan.summary().unwrap().starts_with(both), "{filter}");
    }
    let (ids, plan) = run(t, last, options);
    assert_eq!(ids, expected(last));
    assert!(plan.replanned && !plan.from_cache);
    // The following query is correct too; it is tried again until a plan has proven itself.
    let (ids, _) = run(t, &good[0], options);
    assert_eq!(ids, expected(&good[0]));
}

#[test]
fn an_expensive_intersection_is_replanned() {
    let t = meeting_groups();
    let of = |i: i32| doc! {"a": i % 100, "b": i % 97};
    let filters = [of(5), of(1006), of(2007), of(3008), doc! {"a": -1, "b": -1}];
    proven_then_replanned(&t, &filters, &QueryOptions::default(), 2);
}

#[test]
fn an_expensive_hash_intersection_is_replanned() {
    let t = meeting_groups();
    let of = |a: i32, b: i32| {
        doc! {"a": {"$gte": a, "$lt": a + 2}, "b": {"$gte": b, "$lt": b + 2}, "c": {"$gte": 0}}
    };
    let at = |i: i32| of(i % 100, i % 97);
    let forced = QueryOptions {
        planner: PlannerOptions {
            hash_intersection: true,
            force_intersection: true,
            ..PlannerOptions::DEFAULT
        },
        ..QueryOptions::default()
    };
    let filters = [at(5), at(1006), at(2007), at(3008), of(-2, -2)];
    proven_then_replanned(&t, &filters, &forced, 2);
}

#[test]
fn expensive_or_branches_are_replanned() {
    let t = meeting_groups();
    let of = |i: i32, j: i32| {
        doc! {"$or": [doc! {"a": i % 100, "b": i % 97}, doc! {"a": j % 100, "b": j % 97, "c": 0}]}
    };
    let bad = doc! {"$or": [doc! {"a": -1, "b": -1}, doc! {"a": 7, "b": 7, "c": 0}]};
    let filters = [
        of(5, 6),
        of(1006, 1007),
        of(2007, 2009),
        of(3008, 3009),
        of(8, 1009),
        bad,
    ];
    proven_then_replanned(&t, &filters, &QueryOptions::default(), 3);
}

#[test]
fn unreached_branches_are_not_opened() {
    let t = meeting_groups();
    let options = QueryOptions::default();
    let filter = |n: i32| {
        let branch = |i: i32| doc! {"a": i % 100, "b": i % 97};
        doc! {"$or": [branch(n), branch(n + 1), branch(n + 2), branch(n + 3)]}
    };
    for n in [5, 1006, 2007] {
        run(&t, &filter(n), &options);
    }
    let filter = filter(3008);
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        limit: Some(2),
        ..FindSpec::default()
    };
    // A new shape, whose branches are already proven.
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
    let view = t.db.read_view(&ns("c")).unwrap();
    let mut found = find(&view, &t.op, query.clone(), &options).unwrap();
    while found.next(&t.op).unwrap().is_some() {}
    let mut found = find(&view, &t.op, query, &options).unwrap();
    let mut ids = Vec::new();
    while let Some(doc) = found.next(&t.op).unwrap() {
        ids.push(doc.as_raw().get("_id").and_then(|id| id.as_i64_exact()));
    }
    assert_eq!(ids, [Some(3008), Some(3009)]);
    assert!(found.plan().from_cache);
    let mut lazy = Vec::new();
    fn collect(node: &SolutionNode, lazy: &mut Vec<bool>) {
        match node {
            SolutionNode::Lazy(branch) => lazy.push(branch.is_made()),
            node => node.children().iter().for_each(|n| collect(n, lazy)),
        }
    }
    collect(&found.solution().unwrap().root, &mut lazy);
    assert_eq!(lazy.len(), 4);
    assert!(!lazy[3], "{lazy:?}");
    // The statistics of the stages include all branches.
    let stats = found.exec_stats().unwrap().to_string();
    assert_eq!(stats.matches("AND_SORTED").count(), 4, "{stats}");
    assert_eq!(stats.matches("IXSCAN").count(), 8, "{stats}");
}
