//! Rooted `$or`s built from recipes: lazy if possible, and always equal to the planner's plan.

use std::sync::Arc;

use sheaf_bson::json;

use super::script::index_of;
use crate::canonical::{CanonicalQuery, FindSpec};
use crate::planner::index_entry::IndexEntry;
use crate::planner::recipe::{Recipe, make};
use crate::planner::solution::{QuerySolution, SolutionNode};
use crate::planner::{PlannerOptions, PlannerParams, has_subplans, plan_branches};
use crate::random::Random;
use crate::shape;

fn indexes(patterns: &[&str]) -> Vec<Arc<IndexEntry>> {
    let entry = |pattern: &&str| Arc::new(index_of(json::parse_doc(pattern).unwrap()));
    patterns.iter().map(entry).collect()
}

fn query(filter: &str, sort: &str, projection: &str) -> CanonicalQuery {
    let [filter, sort, projection] =
        [filter, sort, projection].map(|text| json::parse_doc(text).unwrap());
    CanonicalQuery::new(
        sheaf_bson::DateTime(0),
        FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            projection: Some(projection.as_raw()),
            ..FindSpec::default()
        },
    )
    .unwrap()
}

/// Plans the query; `picks` are the positions of the plans to pick for the branches.
fn planned(
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
    picks: &[usize],
) -> Option<(QuerySolution, Option<Recipe>)> {
    let mut turn = 0;
    let mut pick = |_: &Arc<CanonicalQuery>, of: &[QuerySolution]| {
        turn += 1;
        Ok(picks[turn % picks.len()] % of.len())
    };
    let (mut planned, recipe) = plan_branches(query, params, &mut pick, &|| true).unwrap()?;
    Some((planned.solutions.swap_remove(0), recipe))
}

/// Number of lazy alternatives, and how many of them have been built.
fn lazy(node: &SolutionNode) -> (usize, usize) {
    match node {
        SolutionNode::Lazy(lazy) => (1, usize::from(lazy.is_made())),
        node => node
            .children()
            .iter()
            .map(lazy)
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
    }
}

/// Checks the plan that a recipe builds for the query, in which `lazies` alternatives are lazy.
fn check(filter: &str, patterns: &[&str], forced: bool, lazies: usize) {
    let indexes = indexes(patterns);
    let params = PlannerParams {
        options: PlannerOptions {
            force_intersection: forced,
            ..PlannerOptions::DEFAULT
        },
        ..PlannerParams::new(&indexes)
    };
    let query = query(filter, "{}", "{}");
    let (expected, recipe) = planned(&query, &params, &[0]).expect(filter);
    let made = make(&recipe.expect(filter), &query, &params).expect(filter);
    assert_eq!(lazy(&made.root), (lazies, 0), "{filter}");
    let mut walked = 0;
    made.root.for_each_index(&mut |_| walked += 1);
    assert!(walked > 0);
    assert_eq!(lazy(&made.root).1, 0, "naming the indexes makes nothing");
    assert_eq!(made.to_string(), expected.to_string(), "{filter}");
    assert_eq!(lazy(&made.root), (lazies, lazies), "showing it makes all");
}

#[test]
fn what_is_lazy() {
    let two = ["{a: 1}", "{b: 1}"];
    // A check remains for the document.
    check("{$or: [{a: 1, b: 2}, {a: 3, b: 4}]}", &two, false, 2);
    check("{$or: [{a: 1, b: 2}, {a: {$gt: 3}, b: 4}]}", &two, false, 2);
    // Two indexes per branch.
    check("{$or: [{a: 1, b: 2}, {a: 3, b: 4}]}", &two, true, 2);
    // No check remains: the FETCH is above the OR.
    let one = ["{a: 1, b: 1}"];
    check("{$or: [{a: 1, b: 2}, {a: 3, b: {$lt: 4}}]}", &one, false, 2);
    // Branches on the leading field alone are merged into one scan, regardless of the others.
    check("{$or: [{a: 1}, {a: 3}, {a: 4, b: 5}]}", &two, false, 1);
    // The remaining checks for null and arrays depend on the constants.
    check("{$or: [{a: null, b: 2}, {a: 3, b: 4}]}", &one, false, 1);
    check("{$or: [{a: [1], b: 2}, {a: 3, b: 4}]}", &one, false, 1);
    check("{$or: [{a: MinKey, b: 2}, {a: 3, b: NaN}]}", &one, false, 0);
    check(
        "{$or: [{a: {$in: [1, 2]}, b: 2}, {a: 3, b: /x/}]}",
        &one,
        false,
        0,
    );
}

#[test]
fn an_order_is_of_all() {
    let indexes = indexes(&["{a: 1, b: 1, s: 1}"]);
    let params = PlannerParams::new(&indexes);
    let query = query("{$or: [{a: 1, b: 2}, {a: 3, b: 4}]}", "{s: 1}", "{}");
    let (expected, recipe) = planned(&query, &params, &[0]).unwrap();
    let made = make(&recipe.unwrap(), &query, &params).unwrap();
    assert_eq!(lazy(&made.root), (0, 0));
    assert_eq!(made.to_string(), expected.to_string());
    assert!(expected.to_string().contains("SORT_MERGE"));
}

#[test]
fn random_branches() {
    const PATTERNS: [&str; 6] = [
        "{a: 1}",
        "{b: -1}",
        "{c: 1}",
        "{a: 1, b: 1}",
        "{b: 1, c: -1}",
        "{a: 1, c: 1, b: 1}",
    ];
    let (mut lazies, mut others) = (0, 0);
    for seed in 1..=400 {
        let mut random = Random::new(seed);
        let operators = [
            "N",
            "N",
            "{$gt: N}",
            "{$lte: N}",
            "{$in: [N, N]}",
            "null",
            "/^x/",
        ];
        let branches: Vec<String> = (0..2 + random.below(4))
            .map(|_| {
                let fields = ["a", "b", "c"].map(|name| match random.one_in(3) {
                    true => String::new(),
                    false => format!("{name}: {}, ", random.pick(&operators)),
                });
                format!("{{{}}}", fields.concat())
            })
            .collect();
        let pattern = format!("{{$or: [{}]}}", branches.join(", "));
        let with = |random: &mut Random| {
            let mut text = String::new();
            for part in pattern.split_inclusive('N') {
                text += &part.replace('N', &random.below(20).to_string());
            }
            text
        };
        let chosen: Vec<&str> = PATTERNS.into_iter().filter(|_| random.coin()).collect();
        let indexes = indexes(&chosen);
        let params = PlannerParams {
            options: PlannerOptions {
                force_intersection: random.one_in(3),
                ..PlannerOptions::DEFAULT
            },
            ..PlannerParams::new(&indexes)
        };
        let picks: Vec<usize> = (0..5).map(|_| random.below(8)).collect();
        let projection = random.pick(&["{}", "{a: 1, b: 1, _id: 0}", "{c: 0}"]);
        let first = query(&with(&mut random), "{}", projection);
        if !has_subplans(&first) {
            continue;
        }
        let Some((_, Some(recipe))) = planned(&first, &params, &picks) else {
            continue;
        };
        let text = shape::plan_cache_text(&first, &indexes);
        for _ in 0..3 {
            let other = query(&with(&mut random), "{}", projection);
            if shape::plan_cache_text(&other, &indexes) != text {
                continue;
            }
            let context = format!("seed {seed} {} {chosen:?}", other.filter_spec);
            let Some(made) = make(&recipe, &other, &params) else {
                continue;
            };
            lazies += lazy(&made.root).0;
            let (expected, _) = planned(&other, &params, &picks).expect(&context);
            assert_eq!(made.to_string(), expected.to_string(), "{context}");
            others += 1;
        }
    }
    assert!(lazies > 300 && others > 300, "{lazies} {others}");
}
