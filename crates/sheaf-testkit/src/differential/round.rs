//! Rounds: documents in one of four styles, indexes, and steps that mostly use the indexed fields.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Value, doc};

use crate::generate_beyond::{computed_projection, odd_document, pipeline, positional_projection};
use crate::generate_query::{
    document, filter, filter_without_positions, path, projection, scalar, sort,
};
use crate::generate_served::served_find;
use crate::model::Query;

use super::documents::{few, flat_document, numbered, table_document};
use super::indexes::index;
use super::{Round, Step};

/// A random round.
pub fn round() -> impl Strategy<Value = Round> {
    let style = prop_oneof![
        1 => Just(document().boxed()),
        4 => Just(flat_document().boxed()),
        4 => Just(table_document().boxed()),
        3 => Just(odd_document().boxed()),
    ];
    style
        .prop_flat_map(|document| {
            let docs =
                prop_oneof![1 => vec(document.clone(), 0..8), 4 => vec(document.clone(), 20..60)];
            (
                docs,
                any::<bool>(),
                prop_oneof![1 => vec(index(), 0..2), 5 => vec(index(), 2..6)],
            )
                .prop_flat_map(move |(docs, indexes_first, indexes)| {
                    vec(step(document.clone(), &indexes), 1..30).prop_map(move |steps| Round {
                        docs: docs.clone(),
                        collation: DocBuf::new(),
                        indexes_first,
                        indexes: indexes.clone(),
                        steps,
                    })
                })
        })
        .prop_map(numbered_apart)
}

/// Assigns unique `_id`s to all documents of the round.
pub(super) fn numbered_apart(mut round: Round) -> Round {
    let inserted = round.steps.iter_mut().filter_map(|step| match step {
        Step::Insert(docs) => Some(docs),
        _ => None,
    });
    let all = std::iter::once(&mut round.docs).chain(inserted).flatten();
    for (id, doc) in all.enumerate() {
        *doc = numbered(id as i32, doc);
    }
    round
}

/// A filter, usually on indexed fields.
pub(super) fn any_filter(paths: &[String]) -> BoxedStrategy<DocBuf> {
    let simple = simple_filter(paths).boxed();
    let either = || vec(simple.clone(), 1..4);
    let both = (simple.clone(), either()).prop_map(|(and, or)| {
        let mut out = DocBuilder::from_doc(and.as_raw());
        out.append_bson("$or", &or);
        out.finish()
    });
    prop_oneof![
        6 => simple.clone(),
        1 => either().prop_map(|filters| doc! {"$or": filters}),
        1 => both,
        1 => expr_filter(paths),
        1 => filter(),
        1 => filter_without_positions(),
    ]
    .boxed()
}

/// An `$expr` with comparisons of fields and constants, alone or combined with another filter.
pub(super) fn expr_filter(paths: &[String]) -> impl Strategy<Value = DocBuf> + use<> {
    let paths: Vec<String> = (paths.iter())
        .filter(|path| !path.contains('$') && !path.contains(|c: char| c.is_ascii_digit()))
        .cloned()
        .chain(["a".to_owned()])
        .collect();
    let op = select(vec!["$eq", "$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]);
    let value = prop_oneof![6 => few(), 1 => Just(Value::Null), 1 => Just(Value::MinKey)];
    let comparison = (op, select(paths.clone()), value).prop_map(|(op, path, value)| {
        let path = Value::String(format!("${path}"));
        doc! {op: vec![path, Value::Document(doc! {"$literal": value})]}
    });
    let list = vec(comparison.clone(), 1..4);
    let expression = prop_oneof![
        4 => comparison,
        2 => list.clone().prop_map(|all| doc! {"$and": all}),
        1 => list.prop_map(|all| doc! {"$or": all}),
    ];
    (expression, simple_filter(&paths), any::<bool>()).prop_map(|(expression, simple, alone)| {
        let mut out = match alone {
            true => DocBuilder::new(),
            false => DocBuilder::from_doc(simple.as_raw()),
        };
        out.append_bson("$expr", &expression);
        out.finish()
    })
}

pub(super) const PATHS: [&str; 6] = ["a", "b", "c", "d", "a.b", "a.c"];

/// A conjunction of a few comparisons on the paths of indexes, the purpose of compound indexes.
pub(super) fn simple_filter(paths: &[String]) -> impl Strategy<Value = DocBuf> + use<> {
    let count = prop_oneof![5 => Just(1usize), 4 => Just(2), 1 => Just(3)];
    let tests = (vec((select(paths.to_vec()), test()), 3), count);
    tests.prop_map(|(mut tests, count)| {
        tests.truncate(count);
        let mut out = DocBuilder::new();
        for (name, test) in &tests {
            out.append_bson(name, test);
        }
        out.finish()
    })
}

/// The operators that a filter applies to a path.
pub(super) fn test() -> impl Strategy<Value = DocBuf> {
    let op = || select(vec!["$gt", "$gte", "$lt", "$lte", "$ne"]);
    let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
    let begins = Value::Regex {
        pattern: "^a".into(),
        options: String::new(),
    };
    let types = select(vec![
        "number", "string", "array", "object", "null", "double", "bool",
    ]);
    prop_oneof![
        6 => few().prop_map(|value| doc! {"$eq": value}),
        3 => (op(), few()).prop_map(|(op, value)| doc! {op: value}),
        2 => vec(few(), 1..5).prop_map(move |values| doc! {"$in": list(values)}),
        2 => (few(), few()).prop_map(|(low, high)| doc! {"$gte": low, "$lte": high}),
        1 => (op(), few()).prop_map(|(op, value)| doc! {"$not": {op: value}}),
        1 => any::<bool>().prop_map(|there| doc! {"$exists": there}),
        1 => (op(), few()).prop_map(|(op, value)| doc! {"$elemMatch": {op: value}}),
        1 => (few(), op(), few())
            .prop_map(|(b, op, c)| doc! {"$elemMatch": {"b": b, "c": {op: c}}}),
        1 => vec(few(), 1..3).prop_map(move |values| doc! {"$all": list(values)}),
        1 => Just(doc! {"$regex": begins}),
        1 => types.prop_map(|name| doc! {"$type": name}),
        1 => (vec(few(), 1..4)).prop_map(move |values| doc! {"$nin": list(values)}),
        1 => (0i32..3).prop_map(|n| doc! {"$size": n}),
        1 => (0i32..2).prop_map(|n| doc! {"$mod": [2, n]}),
        1 => (few(), few()).prop_map(|(low, high)| doc! {"$elemMatch": {"$gte": low, "$lt": high}}),
        1 => few().prop_map(|value| doc! {"$gte": value, "$ne": 1}),
        1 => select(vec![doc! {"$gte": Value::MinKey}, doc! {"$lte": Value::MaxKey}, doc! {"$gt": Value::MinKey}]),
        1 => vec(few(), 0..3).prop_map(move |values| doc! {"$eq": list(values)}),
        1 => vec(few(), 0..3).prop_map(move |values| doc! {"$gte": list(values)}),
        1 => few().prop_map(|b| doc! {"$lt": {"b": b}}),
    ]
}

/// A sort that an index may provide: the order of an index, forward or backward, or another.
pub(super) fn usual_sort(indexes: &[(DocBuf, DocBuf)]) -> BoxedStrategy<DocBuf> {
    let others = some_sort();
    // The model does not sort by array positions.
    let sorts = |pattern: &DocBuf| {
        pattern.iter().all(|element| {
            element.key() != "a.0" && !element.key().contains('$') && element.value().is_number()
        })
    };
    let patterns: Vec<DocBuf> = (indexes.iter())
        .map(|(pattern, _)| pattern.clone())
        .filter(sorts)
        .collect();
    if patterns.is_empty() {
        return others.boxed();
    }
    let own = (select(patterns), any::<bool>(), 0usize..3).prop_map(|(pattern, back, skipped)| {
        // Without the leading fields, this is the order after equality predicates on them.
        let fields = pattern.iter().count();
        let mut out = DocBuilder::new();
        for element in pattern.iter().skip(skipped.min(fields - 1)) {
            let ascending = element.value().as_i64_exact() == Some(1);
            out.append(element.key(), if ascending == back { -1 } else { 1 });
        }
        out.finish()
    });
    prop_oneof![2 => own, 1 => others].boxed()
}

pub(super) fn some_sort() -> impl Strategy<Value = DocBuf> {
    select(vec![
        doc! {"a": 1},
        doc! {"a": -1},
        doc! {"b": 1},
        doc! {"a": 1, "b": 1},
        doc! {"a": -1, "b": -1},
        doc! {"a": 1, "b": -1},
        doc! {"a.b": 1},
        doc! {"a.b": -1, "a.c": -1},
        doc! {"b": 1, "c": 1, "d": 1},
        doc! {"b": -1},
        doc! {"c": 1},
        doc! {"d": -1, "_id": 1},
        doc! {"_id": -1},
    ])
}

/// A projection that index keys may cover.
pub(super) fn usual_projection() -> impl Strategy<Value = DocBuf> {
    select(vec![
        doc! {"a": 1, "_id": 0},
        doc! {"b": 1, "a": 1, "_id": 0},
        doc! {"a.b": 1, "_id": 0},
        doc! {"a.b": 1, "a.c": 1, "_id": 0},
        doc! {"b": 1, "c": 1, "_id": 0},
        doc! {"d": 1},
    ])
}

pub(super) fn step(
    document: BoxedStrategy<DocBuf>,
    indexes: &[(DocBuf, DocBuf)],
) -> impl Strategy<Value = Step> + use<> {
    let paths = interesting_paths(indexes);
    let any_filter = || any_filter(&paths);
    let find = (
        any_filter(),
        option::weighted(0.5, prop_oneof![3 => usual_sort(indexes), 1 => sort(false)]),
        option::weighted(0.4, prop_oneof![2 => usual_projection(), 1 => projection()]),
        prop_oneof![3 => Just(0u64), 1 => 0u64..5],
        prop_oneof![2 => Just(0u64), 1 => 1u64..8],
    )
        .prop_map(|(filter, sort, projection, skip, limit)| {
            Step::Find(Query {
                filter,
                sort: sort.unwrap_or_default(),
                projection: projection.unwrap_or_default(),
                skip,
                limit,
            })
        });
    let find = match served_find(indexes, few().boxed()) {
        Some(served) => prop_oneof![3 => find, 2 => served.prop_map(Step::Find)].boxed(),
        None => find.boxed(),
    };
    let distinct = (
        prop_oneof![3 => select(PATHS.to_vec()).prop_map(str::to_owned), 1 => path(false)],
        option::of(any_filter()),
    )
        .prop_map(|(path, filter)| Step::Distinct {
            path,
            filter: filter.unwrap_or_default(),
        });
    let update =
        (any_filter(), update(), any::<bool>()).prop_map(|(filter, update, multi)| Step::Update {
            filter,
            update,
            multi,
        });
    let delete = (any_filter(), prop::bool::weighted(0.1))
        .prop_map(|(filter, multi)| Step::Delete { filter, multi });
    let insert = vec(document, 1..10).prop_map(Step::Insert);
    let projected = (any_filter(), computed_projection(&PATHS))
        .prop_map(|(filter, projection)| Step::Projected { filter, projection });
    let positional = (select(vec!["a", "c"]), test()).prop_map(|(path, test)| Step::Projected {
        filter: doc! {path: test},
        projection: positional_projection(path),
    });
    let pipeline = pipeline(any_filter(), &PATHS).prop_map(Step::Pipeline);
    prop_oneof![
        20 => find,
        3 => distinct,
        4 => update,
        1 => delete,
        2 => insert,
        2 => projected,
        1 => positional,
        4 => pipeline,
    ]
}

/// The paths of the indexes, each twice, and the paths that documents have.
pub(super) fn interesting_paths(indexes: &[(DocBuf, DocBuf)]) -> Vec<String> {
    let own: Vec<String> = (indexes.iter())
        .flat_map(|(pattern, _)| pattern.iter().map(|e| e.key().to_owned()))
        .map(|path| path.strip_suffix(".$**").unwrap_or(&path).to_owned())
        .filter(|path| path != "_id" && path != "$**")
        .collect();
    let others = PATHS.iter().map(|path| (*path).to_owned());
    own.iter()
        .cloned()
        .chain(own.clone())
        .chain(others)
        .collect()
}

pub(super) fn update() -> impl Strategy<Value = DocBuf> {
    let target = || select(vec!["a", "b", "c", "d", "a.b", "b.a", "c.d.a"]);
    let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
    prop_oneof![
        3 => (target(), scalar()).prop_map(|(path, v)| doc! {"$set": {path: v}}),
        1 => (target(), vec(scalar(), 0..3)).prop_map(move |(path, v)| doc! {"$set": {path: list(v)}}),
        1 => (target(), scalar(), scalar())
            .prop_map(|(path, b, c)| doc! {"$set": {path: [{"b": b, "c": c}]}}),
        2 => target().prop_map(|path| doc! {"$unset": {path: ""}}),
        2 => (target(), -2i32..3).prop_map(|(path, n)| doc! {"$inc": {path: n}}),
        2 => (target(), scalar()).prop_map(|(path, v)| doc! {"$push": {path: v}}),
        1 => (target(), scalar()).prop_map(|(path, v)| doc! {"$pull": {path: v}}),
        1 => (target(), 0i32..4).prop_map(|(path, n)| doc! {"$pull": {path: {"$gte": n}}}),
    ]
}
