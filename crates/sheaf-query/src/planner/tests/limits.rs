//! Adversarial filters: planning takes bounded time and memory, and still finds a plan.

use std::fmt::Write as _;
use std::sync::Arc;

use sheaf_bson::json;

use super::script::{index_of, set_multikey};
use crate::canonical::{CanonicalQuery, FindSpec};
use crate::planner::bounds::IndexBounds;
use crate::planner::index_entry::IndexEntry;
use crate::planner::recipe::recipe_of;
use crate::planner::solution::{IndexScanNode, QuerySolution, SolutionNode};
use crate::planner::{
    PlannerOptions, PlannerParams, has_subplans, plan, plan_branches, signatures,
};

/// Maximum total number of stages, top-level checks, and intervals of all candidates.
const SIZE_MAX: usize = 1_000_000;

fn index(pattern: &str) -> IndexEntry {
    index_of(json::parse_doc(pattern).unwrap())
}

fn solutions(filter: &str, indexes: Vec<IndexEntry>) -> Vec<QuerySolution> {
    let filter = json::parse_doc(filter).unwrap();
    let sort = json::parse_doc("{s: 1}").unwrap();
    let query = CanonicalQuery::new(
        sheaf_bson::DateTime(0),
        FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            ..FindSpec::default()
        },
    )
    .unwrap();
    let indexes: Vec<Arc<IndexEntry>> = indexes.into_iter().map(Arc::new).collect();
    let solutions = plan(&query, &PlannerParams::new(&indexes)).unwrap();
    let total: usize = solutions.iter().map(|s| size(&s.root)).sum();
    assert!(total < SIZE_MAX, "{total}");
    assert!(solutions.len() <= 64, "{}", solutions.len());
    solutions
}

fn scan_size(scan: &IndexScanNode) -> usize {
    match &scan.bounds {
        IndexBounds::Fields(lists) => lists.iter().map(|l| l.len()).sum(),
        IndexBounds::KeyRange { .. } => 2,
    }
}

fn size(node: &SolutionNode) -> usize {
    1 + match node {
        SolutionNode::IndexScan(scan) => scan_size(scan),
        SolutionNode::Fetch { filter, child } => {
            let checks = match filter.as_deref() {
                Some(crate::matcher::MatchExpression::And(all)) => all.len(),
                _ => 1,
            };
            checks + size(child)
        }
        SolutionNode::Sort { child, .. } | SolutionNode::Subplan { child } => size(child),
        SolutionNode::Or { children, .. } | SolutionNode::SortMerge { children, .. } => {
            children.iter().map(size).sum()
        }
        _ => 0,
    }
}

fn uses_index(solution: &QuerySolution) -> bool {
    solution.to_string().contains("IXSCAN")
}

/// `{name: [item(0), item(1), ...]}`.
fn list(name: &str, n: usize, item: impl Fn(usize) -> String) -> String {
    let mut out = format!("{{{name}: [");
    for i in 0..n {
        let _ = write!(out, "{}, ", item(i));
    }
    out + "]}"
}

#[test]
fn many_alternatives() {
    let of = |i: usize| format!("{{a: {{$gt: {i}}}, x: {i}}}");
    let found = solutions(
        &list("$or", 20_000, of),
        vec![index("{a: 1}"), index("{x: 1}")],
    );
    assert!(uses_index(&found[0]));
    // All on one leading field: a single scan.
    let of = |i: usize| format!("{{a: {{$gt: {}, $lt: {}}}}}", 3 * i, 3 * i + 1);
    let found = solutions(&list("$or", 5_000, of), vec![index("{a: 1, b: 1}")]);
    assert!(size(&found[0].root) >= 5_000);
}

/// A `$or` with thousands of branches is not planned branch by branch, because each branch may cost
/// a trial.
#[test]
fn many_branches() {
    let of = |i: usize| format!("{{a: {i}, b: {i}, x{i}: 1}}");
    let indexes = || {
        let patterns = ["{a: 1}", "{b: 1}", "{a: 1, b: 1}", "{c: 1, a: 1}"];
        let indexes = patterns.map(|pattern| Arc::new(index(pattern)));
        indexes.to_vec()
    };
    let query = |n: usize| {
        let filter = json::parse_doc(&list("$or", n, of)).unwrap();
        CanonicalQuery::new(
            sheaf_bson::DateTime(0),
            FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
        )
        .unwrap()
    };
    assert!(!has_subplans(&query(5_000)));
    let query = query(256);
    assert!(has_subplans(&query));
    let indexes = indexes();
    let params = PlannerParams::new(&indexes);
    let mut choices = 0;
    let mut pick = |_: &Arc<CanonicalQuery>, of: &[QuerySolution]| {
        choices += 1;
        assert!(of.len() <= 64);
        Ok(of.len() - 1)
    };
    let planned = plan_branches(&query, &params, &mut pick, &|| true).unwrap();
    let (planned, recipe) = planned.unwrap();
    assert_eq!(choices, 256);
    assert!(size(&planned.solutions[0].root) < 10 * 256);
    assert!(recipe.unwrap().bytes() < 1000 * 256);
}

#[test]
fn many_conjuncts() {
    // Each predicate may bound the array, and leaves all others to check.
    let mut multikey = index("{a: 1}");
    set_multikey(&mut multikey, "a");
    let of = |i: usize| format!("{{a: {{$gt: {i}}}}}");
    let found = solutions(&list("$and", 20_000, of), vec![multikey]);
    assert!(uses_index(&found[0]));
    // Each predicate is one more interval list to intersect.
    let found = solutions(&list("$and", 20_000, of), vec![index("{a: 1}")]);
    assert!(size(&found[0].root) < 10);
}

#[test]
fn many_indexes_with_much_to_do() {
    let indexes: Vec<IndexEntry> = (0..64)
        .map(|i| index(&format!("{{a: 1, b{i}: 1, c: 1}}")))
        .collect();
    let numbers = list("$in", 50_000, |i| (2 * i).to_string());
    let filter = format!("{{a: {numbers}, c: {numbers}, d: {numbers}}}");
    assert!(uses_index(&solutions(&filter, indexes)[0]));
}

#[test]
fn many_disjunctions() {
    let of = |i: usize| {
        format!("{{$or: [{{a: {i}, b: 1}}, {{b: {i}, c: {{$gt: 1}}}}, {{c: {i}, a: 7}}]}}")
    };
    let indexes = || vec![index("{a: 1}"), index("{b: 1}"), index("{c: 1, a: 1}")];
    assert!(uses_index(
        &solutions(&list("$and", 3_000, of), indexes())[0]
    ));
    // No disjunction can be served by an index.
    let of = |i: usize| format!("{{$or: [{{a: {i}}}, {{z: {i}}}]}}");
    assert!(!uses_index(
        &solutions(&list("$and", 3_000, of), indexes())[0]
    ));
}

#[test]
fn deep_nesting() {
    let mut filter = "{a: 1, b: 2}".to_owned();
    for level in 0..20 {
        filter = format!(
            "{{$or: [{{$and: [{filter}, {{b: {{$gt: {level}}}}}]}}, {{a: {{$lt: {level}}}, b: 1}}]}}"
        );
    }
    let indexes = vec![index("{a: 1}"), index("{b: 1}"), index("{a: 1, b: 1}")];
    assert!(uses_index(&solutions(&filter, indexes)[0]));
}

#[test]
fn partial_filters_against_many_alternatives() {
    let partial = list("$or", 50, |i| format!("{{p: {i}}}"));
    let mut index = index("{a: 1}");
    let partial = json::parse_doc(&partial).unwrap();
    let context = crate::matcher::ParseContext::default();
    let partial = crate::matcher::parse(partial.as_raw(), &context).unwrap();
    index.partial_filter = Some(Arc::new(partial));
    let of = |i: usize| format!("{{a: {{$gt: {i}}}, p: {}, q: 1}}", i % 50);
    let found = solutions(&list("$or", 5_000, of), vec![index]);
    assert!(uses_index(&found[0]));
}

#[test]
fn a_long_list_around_alternatives() {
    let numbers = list("$in", 50_000, |i| i.to_string());
    let alternatives = list("$or", 500, |i| format!("{{b: {{$gt: {i}}}, c: 1}}"));
    let alternatives = alternatives.trim_start_matches('{').trim_end_matches('}');
    let filter = format!("{{a: {numbers}, {alternatives}}}");
    assert!(uses_index(
        &solutions(&filter, vec![index("{b: 1, a: 1}")])[0]
    ));
}

#[test]
fn wide_merges_stop_at_their_limit() {
    let numbers = list("$in", 10_000, |i| i.to_string());
    let filter = format!("{{a: {numbers}, b: {numbers}, c: {numbers}}}");
    let found = solutions(&filter, vec![index("{a: 1, b: 1, c: 1, s: 1}")]);
    assert!(found[0].has_blocking_stage);
    // Few scans, each with a long list.
    let few = list("$in", 150, |i| i.to_string());
    let filter = format!("{{a: {few}, c: {numbers}}}");
    let found = solutions(&filter, vec![index("{a: 1, s: 1, c: 1}")]);
    assert!(found[0].has_blocking_stage);
}

/// Of access paths with this weight, only the most promising one is kept; it shares its list with
/// the filter.
#[test]
fn a_list_of_a_hundred_thousand() {
    let numbers = list("$in", 100_000, |i| i.to_string());
    let indexes = vec![
        index("{a: 1}"),
        index("{a: 1, s: 1}"),
        index("{a: -1, b: 1}"),
    ];
    let found = solutions(&format!("{{a: {numbers}, b: 1}}"), indexes);
    assert_eq!(found.len(), 1);
    assert!(uses_index(&found[0]));
    assert!(found[0].has_blocking_stage, "too many to be merged");
}

/// Disjunctions are not expanded: one of all combinations would have 2^24 branches, and multiply at
/// each level.
#[test]
fn nothing_is_multiplied_out() {
    let pair = |i: usize| format!("{{$or: [{{a: {i}}}, {{b: {i}}}]}}");
    let mut filter = list("$and", 24, pair);
    for level in 0..2 {
        filter = list("$and", 6, |i| {
            format!("{{$or: [{filter}, {{a: {}}}]}}", 10 * level + i)
        });
    }
    let found = solutions(&filter, vec![index("{a: 1}"), index("{b: 1}")]);
    assert!(uses_index(&found[0]));
}

/// Every index serves some predicate, and every pair of indexes could be intersected.
#[test]
fn many_indexes_and_many_predicates() {
    let indexes = || -> Vec<IndexEntry> {
        let single = (0..32).map(|i| index(&format!("{{f{i}: 1}}")));
        let pairs = (0..32).map(|i| index(&format!("{{f{i}: 1, f{}: -1, s: 1}}", i + 32)));
        single.chain(pairs).collect()
    };
    let equalities: Vec<String> = (0..64).map(|i| format!("f{i}: {i}")).collect();
    let ranges: Vec<String> = (0..64).map(|i| format!("f{i}: {{$gt: {i}}}")).collect();
    for predicates in [equalities, ranges] {
        let filter = format!("{{{}}}", predicates.join(", "));
        let found = solutions(&filter, indexes());
        assert!(found.iter().all(uses_index));
        let filter = json::parse_doc(&filter).unwrap();
        let query = CanonicalQuery::new(
            sheaf_bson::DateTime(0),
            FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
        )
        .unwrap();
        let indexes: Vec<Arc<IndexEntry>> = indexes().into_iter().map(Arc::new).collect();
        let params = PlannerParams {
            options: PlannerOptions {
                hash_intersection: true,
                force_intersection: true,
                ..PlannerOptions::DEFAULT
            },
            ..PlannerParams::new(&indexes)
        };
        let forced = plan(&query, &params).unwrap();
        assert_eq!(forced.len(), params.options.intersections_max);
    }
}

/// Recipes are small: a filter with very many nodes has no recipe.
#[test]
fn recipes_are_small() {
    let recipe = |n: usize| {
        let filter = list("$or", n, |i| format!("{{a: {i}, b: {i}}}"));
        let filter = json::parse_doc(&filter).unwrap();
        let query = CanonicalQuery::new(
            sheaf_bson::DateTime(0),
            FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
        )
        .unwrap();
        let indexes = [index("{a: 1}"), index("{b: 1}")].map(Arc::new);
        let params = PlannerParams::new(&indexes);
        let signature = &signatures(&plan(&query, &params).unwrap())[0];
        recipe_of(&query, &params, signature).unwrap()
    };
    assert!(recipe(1_000).unwrap().bytes() < 500_000);
    assert!(recipe(2_000).is_none());
}
