//! Every candidate plan returns the same results as a test of every document, for random documents,
//! indexes, filters, sorts and pages.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value, compare_values, json};

use super::naive::{Collection, Encouraging, Row, key_document};
use super::script::index_of;
use crate::canonical::{CanonicalQuery, FindSpec};
use crate::matcher::{self, ParseContext};
use crate::planner::bounds::IndexBounds;
use crate::planner::index_entry::IndexEntry;
use crate::planner::recipe::{make, recipe_of};
use crate::planner::solution::{ProjectionKind, QuerySolution, SolutionNode};
use crate::planner::{
    PlannerOptions, PlannerParams, has_subplans, plan, plan_branches, plan_count, plan_distinct,
    signatures,
};
use crate::random::Random;
use crate::shape;

/// Generates random text in shell syntax.
struct Generator {
    random: Random,
    /// The paths of this case, which indexes, filter and sort share.
    paths: Vec<&'static str>,
}

const PATHS: [&str; 9] = ["a", "a", "b", "c", "a.b", "a.b", "a.c", "b.c", "a.b.c"];

impl Generator {
    fn below(&mut self, n: usize) -> usize {
        self.random.below(n)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.random.one_in(n)
    }

    fn pick(&mut self, options: &[&'static str]) -> &'static str {
        self.random.pick(options)
    }

    /// Up to `max` items, joined by commas.
    fn list(&mut self, max: usize, mut item: impl FnMut(&mut Generator) -> String) -> String {
        let n = self.below(max + 1);
        (0..n).map(|_| item(self)).collect::<Vec<_>>().join(", ")
    }

    fn scalar(&mut self) -> String {
        let usual = [
            "0", "1", "2", "3", "1.0", "2.5", "\"x\"", "\"xy\"", "\"y\"", "null",
        ];
        let rare = [
            "true",
            "false",
            "NaN",
            "Infinity",
            "NumberLong(2)",
            "NumberDecimal(\"2\")",
            "MinKey",
            "MaxKey",
            "undefined",
            "{}",
            "{b: 1}",
            "ISODate(\"2020-01-01T00:00:00Z\")",
            "ObjectId(\"0123456789abcdef01234567\")",
            "BinData(0, \"AQ==\")",
            "Timestamp(1, 1)",
        ];
        if self.one_in(5) {
            self.pick(&rare).to_owned()
        } else {
            self.pick(&usual).to_owned()
        }
    }

    fn value(&mut self, depth: usize) -> String {
        match self.below(12) {
            0..=6 => self.scalar(),
            7 | 8 if depth > 0 => {
                let elements = self.list(3, |r| r.value(depth - 1));
                format!("[{elements}]")
            }
            9 | 10 if depth > 0 => {
                let elements = self.list(3, |r| r.document(depth - 1, &["b", "c"]));
                format!("[{elements}]")
            }
            11 if depth > 0 => self.document(depth - 1, &["b", "c"]),
            _ => self.scalar(),
        }
    }

    fn document(&mut self, depth: usize, names: &[&str]) -> String {
        let mut fields = Vec::new();
        for name in names {
            if !self.one_in(4) {
                fields.push(format!("{name}: {}", self.value(depth)));
            }
        }
        format!("{{{}}}", fields.join(", "))
    }

    fn path(&mut self) -> &'static str {
        if self.one_in(8) {
            return PATHS[self.below(PATHS.len())];
        }
        let at = self.below(self.paths.len());
        self.paths[at]
    }

    fn operator(&mut self, depth: usize) -> String {
        let value = |r: &mut Generator| match r.below(16) {
            0 | 1 => {
                let elements = r.list(2, Generator::scalar);
                format!("[{elements}]")
            }
            2 => r.pick(&["MinKey", "MaxKey", "null"]).to_owned(),
            _ => r.scalar(),
        };
        match self.below(16) {
            0 | 1 => format!("$gt: {}", value(self)),
            2 => format!("$gte: {}", value(self)),
            3 | 4 => format!("$lt: {}", value(self)),
            5 => format!("$lte: {}", value(self)),
            6 => format!("$ne: {}", value(self)),
            7 | 8 => {
                let list = self.list(3, value);
                format!("$in: [{list}]")
            }
            9 => {
                let list = self.list(3, value);
                format!("$nin: [{list}]")
            }
            10 => format!("$exists: {}", self.pick(&["true", "false"])),
            11 => format!(
                "$type: \"{}\"",
                self.pick(&["number", "int", "string", "null", "array", "object", "bool"])
            ),
            12 => self
                .pick(&[
                    "$regex: \"^x\"",
                    "$regex: \"y\"",
                    "$mod: [2, 0]",
                    "$size: 1",
                ])
                .to_owned(),
            13 if depth > 0 => format!("$not: {{{}}}", self.operator(depth - 1)),
            14 if depth > 0 => format!(
                "$elemMatch: {{{}, {}}}",
                self.operator(depth - 1),
                self.operator(depth - 1)
            ),
            15 if depth > 0 => format!("$elemMatch: {}", self.filter(depth - 1, true)),
            _ => format!("$eq: {}", value(self)),
        }
    }

    /// `element`: paths are relative to an array element.
    fn filter(&mut self, depth: usize, element: bool) -> String {
        let mut parts = Vec::new();
        for _ in 0..1 + self.below(3) / (3 - depth.min(2)) {
            if depth > 0 && self.one_in(4) {
                let children: Vec<String> = (0..1 + self.below(3))
                    .map(|_| self.filter(depth - 1, element))
                    .collect();
                let name = self.pick(&["$or", "$or", "$or", "$and", "$nor"]);
                parts.push(format!("{{{name}: [{}]}}", children.join(", ")));
                continue;
            }
            let path = if element {
                self.pick(&["b", "c", "b.c"])
            } else {
                self.path()
            };
            parts.push(if self.one_in(4) {
                format!("{{\"{path}\": {}}}", self.scalar())
            } else {
                format!("{{\"{path}\": {{{}}}}}", self.operator(depth))
            });
        }
        match parts.len() {
            1 => parts.remove(0),
            _ => format!("{{$and: [{}]}}", parts.join(", ")),
        }
    }

    fn pattern(&mut self, max: usize) -> String {
        let mut paths: Vec<&str> = Vec::new();
        for _ in 0..1 + self.below(max) {
            let path = self.path();
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let fields: Vec<String> = paths
            .into_iter()
            .map(|path| format!("\"{path}\": {}", if self.one_in(3) { -1 } else { 1 }))
            .collect();
        format!("{{{}}}", fields.join(", "))
    }
}

fn doc(text: &str) -> DocBuf {
    json::parse_doc(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// One random query over a random collection.
struct Case {
    collection: Collection,
    query: CanonicalQuery,
    params: (usize, bool),
    text: String,
}

fn case(seed: u64) -> Option<Case> {
    let mut r = Generator {
        random: Random::new(seed),
        paths: Vec::new(),
    };
    for _ in 0..1 + r.below(3) {
        let path = PATHS[r.below(PATHS.len())];
        r.paths.push(path);
    }
    // Without arrays, more bounds are exact and more plans are covered; both cases matter.
    let depth = [0, 2, 2, 2][r.below(4)];
    let docs: Vec<String> = (0..4 + r.below(14))
        .map(|_| r.document(depth, &["a", "b", "c"]))
        .collect();
    let mut indexes = Vec::new();
    let mut text = format!("docs [{}]\n", docs.join(", "));
    for at in 0..1 + r.below(3) {
        let pattern = r.pattern(3);
        let mut index: IndexEntry = index_of(doc(&pattern));
        index.name = format!("i{at}");
        index.sparse = r.one_in(8);
        if r.one_in(8) {
            let partial = r.filter(0, false);
            let parsed = matcher::parse(doc(&partial).as_raw(), &ParseContext::default());
            index.partial_filter = Some(Arc::new(parsed.ok()?.normalize()));
            text += &format!("partial {partial} ");
        }
        text += &format!("index {pattern} sparse {}\n", index.sparse);
        indexes.push(index);
    }
    let filter = r.filter(2, false);
    let sort = if r.one_in(2) {
        r.pattern(2)
    } else {
        "{}".into()
    };
    let proj = match r.below(3) {
        0 => "{a: 1, b: 1, _id: 0}".to_owned(),
        1 => format!("{{\"{}\": 1, _id: 0}}", r.path()),
        _ => "{}".to_owned(),
    };
    let limit = r.one_in(3).then(|| 1 + r.below(4) as u64);
    let skip = if r.one_in(4) { r.below(3) as u64 } else { 0 };
    let explode = [200, 3][r.below(2)];
    let intersect = r.one_in(6);
    text += &format!("plan {filter} sort={sort} proj={proj} limit={limit:?} skip={skip}\n");
    let collection = Collection::new(docs.iter().map(|d| doc(d)).collect(), indexes);
    let (filter, sort, proj) = (doc(&filter), doc(&sort), doc(&proj));
    let query = CanonicalQuery::new(
        sheaf_bson::DateTime(0),
        FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(sort.as_raw()),
            projection: Some(proj.as_raw()),
            limit,
            skip,
            ..FindSpec::default()
        },
    );
    // Some operands are rejected (a range of a regex, for example); such cases are skipped.
    Some(Case {
        collection,
        query: query.ok()?,
        params: (explode, intersect),
        text,
    })
}

/// The seeds to test: `SHEAF_PLAN_SEED` is the first (default 1), `SHEAF_PLAN_ROUNDS` the number of
/// seeds (default `rounds`).
fn seeds(rounds: u64) -> std::ops::Range<u64> {
    let setting = |name: &str, default| match std::env::var(name) {
        Ok(text) => text.parse().expect(name),
        Err(_) => default,
    };
    let first = setting("SHEAF_PLAN_SEED", 1);
    first..first + setting("SHEAF_PLAN_ROUNDS", rounds)
}

#[test]
fn every_plan_gives_what_the_documents_say() {
    let mut indexed = 0;
    let mut cases = 0;
    for seed in seeds(3000) {
        let Some(case) = case(seed) else {
            continue;
        };
        let Case {
            collection, query, ..
        } = &case;
        if let Some(sort) = &query.sort
            && sort_is_undefined(&case)
        {
            assert!(!sort.parts.is_empty());
            continue;
        }
        cases += 1;
        let params = PlannerParams {
            options: PlannerOptions {
                scans_to_explode_max: case.params.0,
                force_intersection: case.params.1,
                hash_intersection: case.params.1,
                ..PlannerOptions::DEFAULT
            },
            ..PlannerParams::new(&collection.indexes)
        };
        let matching = collection.matching(&query.filter);
        for solution in plan(query, &params).unwrap() {
            if !matches!(leaf(&solution.root), SolutionNode::CollScan { .. }) {
                indexed += 1;
            }
            let rows = collection.run(&solution.root);
            let context = || format!("seed {seed}\n{}{solution}", case.text);
            check_rows(&case, &matching, &rows, &context);
            check_covered(&case, &solution.root, &rows, &context);
        }
        check_count(&case, &params, matching.len(), seed);
        check_distinct(&case, &params, &matching, seed);
    }
    // The generator must produce enough cases that an index serves.
    assert!(cases > 2000 && indexed > cases / 2, "{indexed} of {cases}");
}

/// The same property for plans that use statistics, and for any choice of plans for the branches.
#[test]
fn so_does_every_plan_beyond_the_published_ones() {
    let (mut skipping, mut exploding, mut intersecting, mut branching) = (0, 0, 0, 0);
    for seed in seeds(3000) {
        let Some(case) = case(seed) else {
            continue;
        };
        if sort_is_undefined(&case) {
            continue;
        }
        let Case {
            collection, query, ..
        } = &case;
        let statistics = Encouraging(collection);
        let params = PlannerParams {
            options: PlannerOptions {
                scans_to_explode_max: case.params.0,
                ..PlannerOptions::DEFAULT
            },
            statistics: Some(&statistics),
            ..PlannerParams::new(&collection.indexes)
        };
        let mut solutions = plan(query, &params).unwrap();
        if has_subplans(query) {
            let mut random = Random::new(seed);
            let mut pick = |_: &Arc<CanonicalQuery>, of: &[QuerySolution]| {
                assert!(of.len() > 1);
                Ok(random.below(of.len()))
            };
            for params in [&params, &PlannerParams::new(&collection.indexes)] {
                let planned = plan_branches(query, params, &mut pick, &|| false).unwrap();
                solutions.extend(
                    planned
                        .into_iter()
                        .flat_map(|(planned, _)| planned.solutions),
                );
            }
        }
        let matching = collection.matching(&query.filter);
        for solution in solutions {
            let rows = collection.run(&solution.root);
            let text = solution.to_string();
            skipping += usize::from(text.contains("skips: "));
            exploding += usize::from(text.contains("  every "));
            intersecting += usize::from(text.contains("AND_SORTED"));
            branching += usize::from(text.contains("SUBPLAN"));
            let context = || format!("seed {seed}\n{}{solution}", case.text);
            check_rows(&case, &matching, &rows, &context);
            check_covered(&case, &solution.root, &rows, &context);
        }
        check_count(&case, &params, matching.len(), seed);
    }
    let found = [skipping, exploding, intersecting, branching];
    let least = [300, 15, 5, 50];
    assert!(
        found.iter().zip(least).all(|(&n, least)| n > least),
        "{found:?}"
    );
}

/// A recipe builds the planner's plan, for its own query and for one of the same shape with other
/// constants.
#[test]
fn recipes_make_the_planners_plans() {
    let (mut made, mut again) = (0, 0);
    for seed in seeds(700) {
        let Some(case) = case(seed) else {
            continue;
        };
        if sort_is_undefined(&case) {
            continue;
        }
        let Case {
            collection, query, ..
        } = &case;
        let statistics = Encouraging(collection);
        let published = PlannerParams {
            options: PlannerOptions {
                scans_to_explode_max: case.params.0,
                ..PlannerOptions::DEFAULT
            },
            ..PlannerParams::new(&collection.indexes)
        };
        let extended = PlannerParams {
            statistics: Some(&statistics),
            ..published.clone()
        };
        let other = with_other_numbers(query, &collection.indexes);
        for params in [&published, &extended] {
            let solutions = plan(query, params).unwrap();
            let of_other = other.as_ref().map(|other| plan(other, params).unwrap());
            // Of equal numbers such as 1 and 1.0, either may be the bound.
            let shown = |solution: &QuerySolution| solution.to_string().replace(".0", "");
            let of_other: Vec<String> = of_other.iter().flatten().map(shown).collect();
            for (solution, signature) in solutions.iter().zip(signatures(&solutions)) {
                let Some(recipe) = recipe_of(query, params, &signature).unwrap() else {
                    continue;
                };
                let context = format!("seed {seed}\n{}", case.text);
                let same = shown(&make(&recipe, query, params).expect(&context));
                assert_eq!(same, shown(solution), "{context}");
                made += 1;
                if let Some(other) = &other
                    && let Some(plan) = make(&recipe, other, params)
                {
                    let text = shown(&plan);
                    assert!(of_other.contains(&text), "{context}{text}\n{of_other:#?}");
                    again += 1;
                }
            }
        }
    }
    assert!(made > 700 && again > 300, "{made} {again}");
}

/// The query with other small numbers in the filter, if it has the same shape and the same indexes
/// can serve it.
fn with_other_numbers(
    query: &CanonicalQuery,
    indexes: &[Arc<IndexEntry>],
) -> Option<CanonicalQuery> {
    let text = query.filter_spec.to_string();
    let filter: String = text
        .chars()
        .map(|c| match c {
            '0'..='3' => char::from(c as u8 + 1),
            c => c,
        })
        .collect();
    let filter = json::parse_doc(&filter).ok()?;
    let other = CanonicalQuery::new(
        sheaf_bson::DateTime(0),
        FindSpec {
            filter: Some(filter.as_raw()),
            sort: Some(query.sort_spec.as_raw()),
            projection: Some(query.projection_spec.as_raw()),
            limit: query.limit,
            skip: query.skip,
            ..FindSpec::default()
        },
    )
    .ok()?;
    let text = |query| shape::plan_cache_text(query, indexes);
    (text(&other) == text(query)).then_some(other)
}

/// Whether the order is undefined, because two sort fields traverse different arrays.
fn sort_is_undefined(case: &Case) -> bool {
    let Some(sort) = &case.query.sort else {
        return false;
    };
    let mut generator = crate::sort::SortKeyGenerator::new(sort);
    case.collection.docs.iter().any(|doc| {
        generator
            .key_of_document(doc.as_raw(), &mut Vec::new())
            .is_err()
    })
}

fn leaf(node: &SolutionNode) -> &SolutionNode {
    match node {
        SolutionNode::Fetch { child, .. }
        | SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. }
        | SolutionNode::Subplan { child }
        | SolutionNode::Projection { child, .. } => leaf(child),
        other => other,
    }
}

fn check_rows(case: &Case, matching: &[usize], rows: &[Row], context: &dyn Fn() -> String) {
    let query = &case.query;
    let got: Vec<usize> = rows.iter().map(|row| row.doc).collect();
    let unique: BTreeSet<usize> = got.iter().copied().collect();
    assert_eq!(unique.len(), got.len(), "twice: {got:?}\n{}", context());
    assert!(
        got.iter().all(|doc| matching.contains(doc)),
        "{got:?} of {matching:?}\n{}",
        context()
    );
    let skip = query.skip as usize;
    let limit = query.limit.map_or(usize::MAX, |l| l as usize);
    let wanted = matching.len().saturating_sub(skip).min(limit);
    assert_eq!(got.len(), wanted, "{got:?} of {matching:?}\n{}", context());
    if let Some(sort) = &query.sort {
        let key = |doc: usize| case.collection.sort_key(&Row { doc, key: None }, sort);
        let mut all: Vec<_> = matching.iter().map(|&doc| key(doc)).collect();
        all.sort();
        let page: Vec<_> = all.into_iter().skip(skip).take(limit).collect();
        let keys: Vec<_> = got.iter().map(|&doc| key(doc)).collect();
        assert_eq!(keys, page, "order {got:?} of {matching:?}\n{}", context());
    }
}

/// Asserts that a covered projection returns the same as the document, unless the key has a null,
/// which may represent a missing field.
fn check_covered(case: &Case, root: &SolutionNode, rows: &[Row], context: &dyn Fn() -> String) {
    let Some(projection) = &case.query.projection else {
        return;
    };
    let covered = has_covered(root);
    let apply = |doc: &DocBuf| {
        let mut out = DocBuilder::new();
        projection
            .apply(doc.as_raw(), None, Default::default(), &mut out)
            .unwrap();
        let mut fields: Vec<String> = out.finish().iter().map(|e| format!("{e:?}")).collect();
        fields.sort();
        fields
    };
    for row in rows {
        let Some((index, key)) = &row.key else {
            assert!(!covered, "{}", context());
            continue;
        };
        if key.iter().any(|v| matches!(v, Value::Null)) {
            continue;
        }
        let from_key = apply(&key_document(index, key));
        let from_doc = apply(&case.collection.docs[row.doc]);
        assert_eq!(from_key, from_doc, "{}", context());
    }
}

fn has_covered(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::Projection { kind, .. } => *kind == ProjectionKind::Covered,
        SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Subplan { child }
        | SolutionNode::Skip { child, .. } => has_covered(child),
        _ => false,
    }
}

fn check_count(case: &Case, params: &PlannerParams<'_>, matching: usize, seed: u64) {
    let Some(solution) = plan_count(&case.query, params).unwrap() else {
        return;
    };
    let rows = case.collection.run(&solution.root);
    let skip = case.query.skip as usize;
    let limit = case.query.limit.map_or(usize::MAX, |l| l as usize);
    let wanted = matching.saturating_sub(skip).min(limit);
    assert_eq!(rows.len(), wanted, "seed {seed}\n{}{solution}", case.text);
    if let SolutionNode::CountScan(scan) = leaf(&solution.root) {
        let IndexBounds::Fields(lists) = &scan.bounds else {
            panic!("bounds by field");
        };
        assert!(lists.iter().all(|list| list.len() == 1));
    }
}

fn check_distinct(case: &Case, params: &PlannerParams<'_>, matching: &[usize], seed: u64) {
    let query = CanonicalQuery {
        sort: None,
        projection: None,
        ..case.query.clone()
    };
    for path in ["a", "b", "a.b", "a.c"] {
        let path = FieldPath::parse(path).unwrap();
        let Some(solution) = plan_distinct(&query, &path, params).unwrap() else {
            continue;
        };
        let mut got: Vec<Value> = Vec::new();
        for row in case.collection.run(&solution.root) {
            let (index, key) = row.key.unwrap();
            let at = index.fields.iter().position(|f| *f.path == path).unwrap();
            got.push(key[at].clone());
        }
        let mut wanted: Vec<Value> = Vec::new();
        for &at in matching {
            let _ = sheaf_bson::path::for_each_value(
                case.collection.docs[at].as_raw(),
                &path,
                sheaf_bson::path::LeafArrayBehavior::NoTraverse,
                |item| {
                    match item.value() {
                        Some(RawValue::Array(array)) => {
                            wanted.extend(array.iter().map(Value::from))
                        }
                        Some(value) => wanted.push(Value::from(value)),
                        None => {}
                    }
                    std::ops::ControlFlow::<()>::Continue(())
                },
            );
        }
        for values in [&mut got, &mut wanted] {
            // null may represent a missing field, undefined an empty array.
            values.retain(|v| !matches!(v, Value::Null | Value::Undefined));
            values.sort_by(|x, y| compare_values(x.as_raw(), y.as_raw()));
            values.dedup_by(|x, y| compare_values(x.as_raw(), y.as_raw()).is_eq());
        }
        let same = got.len() == wanted.len()
            && got
                .iter()
                .zip(&wanted)
                .all(|(x, y)| compare_values(x.as_raw(), y.as_raw()).is_eq());
        assert!(
            same,
            "seed {seed}\n{}{solution}\n{got:?} {wanted:?}",
            case.text
        );
    }
}
