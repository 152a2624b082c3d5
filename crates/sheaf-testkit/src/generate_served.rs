//! Finds built for given indexes, so that plans are more than collection scans.
//!
//! ```text
//!   index {b: 1, c: 1, d: -1}
//!     {b: 2, c: {$in: [0, 1]}} sort {d: 1}                   points, then the index order: merged
//!     {b: {$gte: 1}} proj {b: 1, c: 1, d: 1, _id: 0}         covered
//!   and index {a: 1}
//!     {b: 2, c: 0, d: 1, a: 1}                               points in two indexes: intersected
//!     {$or: [{a: 1}, {b: 2, c: 0}]} sort {d: -1}             two branches
//! ```

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::path::is_path_prefix;
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Value, doc};

use crate::model::Query;

/// The paths of an index that predicates can use, with their directions.
fn fields_of(pattern: &DocBuf) -> Vec<(String, i32)> {
    let named = pattern
        .iter()
        .filter(|element| !element.key().contains('$'));
    named
        .map(|element| {
            let descends = element.value().as_i64_exact() == Some(-1);
            (element.key().to_owned(), if descends { -1 } else { 1 })
        })
        .collect()
}

/// A find for these indexes; `value` generates the operands. `None` if no index has a usable path.
pub fn served_find(
    indexes: &[(DocBuf, DocBuf)],
    value: BoxedStrategy<Value>,
) -> Option<BoxedStrategy<Query>> {
    let patterns: Vec<Vec<(String, i32)>> = (indexes.iter())
        .map(|(pattern, _)| fields_of(pattern))
        .filter(|fields| !fields.is_empty())
        .collect();
    if patterns.is_empty() {
        return None;
    }
    let one = || select(patterns.clone());
    let by_one = one().prop_flat_map({
        let value = value.clone();
        move |fields| by_one(fields, value.clone())
    });
    let by_points =
        (one(), one(), vec(value.clone(), 8)).prop_map(|(some, others, values)| Query {
            filter: points(some.iter().chain(&others), &values),
            ..Query::default()
        });
    let by_branches =
        (one(), one(), vec(value, 8), 0u64..5).prop_map(|(some, others, values, limit)| {
            let mut sort = DocBuilder::new();
            // The model does not sort by array positions.
            if let Some((path, direction)) = some.last().filter(|(path, _)| !path.contains('0')) {
                sort.append(path, *direction);
            }
            let (few, rest) = values.split_at(4);
            // Leave out the last field, by which the query sorts.
            let lead = some.len().max(2) - 1;
            let branches = vec![
                points(some.iter().take(lead), few),
                points(others.iter(), rest),
                points(some.iter().take(lead), rest),
            ];
            Query {
                filter: doc! {"$or": branches},
                sort: sort.finish(),
                limit,
                ..Query::default()
            }
        });
    Some(prop_oneof![4 => by_one, 1 => by_points, 2 => by_branches].boxed())
}

/// An equality on each path; for a repeated path, the first one.
fn points<'f>(fields: impl Iterator<Item = &'f (String, i32)>, values: &[Value]) -> DocBuf {
    let mut out = DocBuilder::new();
    let mut seen = std::collections::HashSet::new();
    for ((path, _), value) in fields.zip(values.iter().cycle()) {
        if path != "_id" && seen.insert(path) {
            out.append_bson(path, &doc! {"$eq": value.clone()});
        }
    }
    out.finish()
}

/// A find for one index: predicates on its leading fields, a sort on trailing ones, and a
/// projection that it may cover.
fn by_one(fields: Vec<(String, i32)>, value: BoxedStrategy<Value>) -> impl Strategy<Value = Query> {
    let count = fields.len();
    let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
    let test = prop_oneof![
        4 => value.clone().prop_map(|value| doc! {"$eq": value}),
        3 => vec(value.clone(), 1..4).prop_map(move |values| doc! {"$in": list(values)}),
        1 => (value.clone(), value).prop_map(|(low, high)| doc! {"$gte": low, "$lte": high}),
        1 => Just(doc! {"$gte": Value::MinKey}),
    ];
    let tests = vec(test, count);
    let picks = (
        0..=count,
        0..=count,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let page = (
        prop_oneof![3 => Just(0u64), 1 => 1u64..3],
        prop_oneof![1 => Just(0u64), 1 => 1u64..6],
    );
    (tests, picks, page).prop_map(move |(tests, picks, (skip, limit))| {
        let (bounded, sorted_from, back, covers, with_sort) = picks;
        let (mut filter, mut sort, mut projection) =
            (DocBuilder::new(), DocBuilder::new(), DocBuilder::new());
        for ((path, _), test) in fields.iter().zip(&tests).take(bounded) {
            if path != "_id" {
                filter.append_bson(path, test);
            }
        }
        let positional = fields.iter().any(|(path, _)| path.contains('0'));
        for (path, direction) in fields.iter().skip(sorted_from) {
            if with_sort && !positional {
                sort.append(path, if back { -direction } else { *direction });
            }
        }
        if covers && !positional {
            let has_id = fields.iter().any(|(path, _)| path == "_id");
            let collides = |path: &str| {
                let others = fields.iter().filter(|(other, _)| other != path);
                others
                    .into_iter()
                    .any(|(other, _)| is_path_prefix(other, path))
            };
            for (path, _) in fields.iter().filter(|(path, _)| path != "_id") {
                if !collides(path) {
                    projection.append(path, 1);
                }
            }
            if !has_id {
                projection.append("_id", 0);
            }
        }
        Query {
            filter: filter.finish(),
            sort: sort.finish(),
            projection: projection.finish(),
            skip,
            limit,
        }
    })
}
