//! Random documents, and random queries that often match them: few field names, few values, many
//! arrays and nested documents.
//!
//! ```text
//!   document()     {_id: 3, a: [1, {b: "x"}], c: null}
//!   filter()       {"a.b": {$in: ["x", 2]}, $or: [{c: null}, {a: {$size: 2}}]}
//!   sort()         {"a.b": 1, c: -1}
//!   projection()   {"a.b": 1, _id: 0}
//! ```
//!
//! All are valid. Paths may contain array positions ("a.0"), except in
//! [`filter_without_positions`].

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{ArrayBuf, DateTime, DocBuf, DocBuilder, ObjectId, Value, doc};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A document with these fields.
fn document_of(fields: &[(String, Value)]) -> DocBuf {
    let mut builder = DocBuilder::new();
    for (name, value) in fields {
        builder.append_value(name, value);
    }
    builder.finish()
}

/// One of a few dozen scalars, of many types.
pub fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (0i32..5).prop_map(Value::Int32),
        2 => (0i64..5).prop_map(Value::Int64),
        2 => select(vec![0.0, -0.0, 1.0, 1.5, 4.0, -1.0, f64::NAN, f64::INFINITY])
            .prop_map(Value::Double),
        1 => select(vec!["0", "1.0", "1.5", "NaN", "-Infinity"])
            .prop_map(|s| Value::Decimal128(s.parse().unwrap())),
        4 => select(vec!["", "a", "b", "ab", "abc", "B"]).prop_map(|s| Value::String(s.into())),
        1 => select(vec!["a", "b"]).prop_map(|s| Value::Symbol(s.into())),
        2 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => select(vec![0i64, 1, 2]).prop_map(|ms| Value::DateTime(DateTime(ms))),
        1 => select(vec![1u8, 2]).prop_map(|b| Value::ObjectId(ObjectId([b; 12]))),
        1 => select(vec![vec![], vec![1u8], vec![5, 6]])
            .prop_map(|bytes| Value::Binary { subtype: 0, bytes }),
        1 => select(vec![Value::MinKey, Value::MaxKey]),
    ]
}

/// Values that may be in documents but not in filters.
fn stored() -> impl Strategy<Value = Value> {
    prop_oneof![
        30 => scalar(),
        1 => Just(Value::Undefined),
        1 => Just(Value::Regex { pattern: "^a".into(), options: String::new() }),
    ]
}

/// The fields of an embedded document; names are unique, and occasionally numeric.
fn fields_of(
    value: impl Strategy<Value = Value> + Clone,
) -> impl Strategy<Value = Vec<(String, Value)>> {
    let name = prop_oneof![9 => select(NAMES.to_vec()), 1 => select(vec!["0", "1"])];
    vec((name, value), 0..4).prop_map(|fields| {
        let mut seen = std::collections::HashSet::new();
        let named = fields.into_iter().map(|(n, v)| (n.to_owned(), v));
        named
            .filter(|(name, _)| seen.insert(name.clone()))
            .collect()
    })
}

fn nested(leaf: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            2 => fields_of(inner.clone()).prop_map(|f| Value::Document(document_of(&f))),
            3 => vec(inner, 0..4).prop_map(|v| Value::Array(ArrayBuf::from_values(&v))),
        ]
    })
}

/// Any value that a document may contain.
pub fn value() -> impl Strategy<Value = Value> {
    nested(stored())
}

/// A document with a small integer as `_id`.
pub fn document() -> impl Strategy<Value = DocBuf> {
    (0i32..1000, fields_of(value().boxed())).prop_map(|(id, fields)| {
        let mut all = vec![("_id".to_owned(), Value::Int32(id))];
        all.extend(fields);
        document_of(&all)
    })
}

/// A dotted path of one to three parts.
pub fn path(positions: bool) -> impl Strategy<Value = String> {
    let part = if positions {
        prop_oneof![8 => select(NAMES.to_vec()), 1 => select(vec!["0", "1", "2"])].boxed()
    } else {
        select(NAMES.to_vec()).boxed()
    };
    (select(NAMES.to_vec()), vec(part, 0..3)).prop_map(|(first, rest)| {
        let mut path = first.to_owned();
        for part in rest {
            path.push('.');
            path.push_str(part);
        }
        path
    })
}

fn regex() -> impl Strategy<Value = Value> {
    let patterns = select(vec!["^a", "b$", "a.?", "^(a|b)$", ""]);
    (patterns, select(vec!["", "i", "s"])).prop_map(|(pattern, options)| Value::Regex {
        pattern: pattern.into(),
        options: options.into(),
    })
}

/// The operand of a comparison.
fn operand() -> impl Strategy<Value = Value> {
    prop_oneof![5 => scalar(), 1 => nested(scalar())]
}

/// One operator with its argument, except `$not` and `$elemMatch`.
fn plain_operator() -> impl Strategy<Value = DocBuf> {
    let comparison = (
        select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
        operand(),
    );
    let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
    let types = select(vec!["number", "string", "array", "object", "null", "bool"]);
    let bits = select(vec![
        "$bitsAllSet",
        "$bitsAllClear",
        "$bitsAnySet",
        "$bitsAnyClear",
    ]);
    prop_oneof![
        8 => comparison.prop_map(|(op, v)| doc! {op: v}),
        3 => (
            select(vec!["$in", "$nin"]),
            vec(prop_oneof![6 => operand().boxed(), 1 => regex().boxed()], 0..4)
        )
            .prop_map(move |(op, values)| doc! {op: list(values)}),
        2 => any::<bool>().prop_map(|yes| doc! {"$exists": yes}),
        1 => types.prop_map(|name| doc! {"$type": name}),
        1 => (0i32..4).prop_map(|n| doc! {"$size": n}),
        1 => (1i32..4, 0i32..3).prop_map(|(d, r)| doc! {"$mod": [d, r]}),
        1 => regex().prop_map(|re| doc! {"$regex": re}),
        1 => vec(operand(), 0..3).prop_map(move |values| doc! {"$all": list(values)}),
        1 => (bits, 0i32..8).prop_map(|(op, mask)| doc! {op: mask}),
    ]
}

/// One or two operators, including `$not` and `$elemMatch`.
fn operators(positions: bool) -> BoxedStrategy<DocBuf> {
    let joined = |docs: Vec<DocBuf>| {
        // A repeated name would hide the second operator.
        let mut builder = DocBuilder::new();
        let mut seen = std::collections::HashSet::new();
        for doc in &docs {
            for element in doc.iter() {
                if seen.insert(element.key().to_owned()) {
                    builder.append_raw_element(element);
                }
            }
        }
        builder.finish()
    };
    let plain = vec(plain_operator(), 1..3).prop_map(joined);
    plain
        .prop_recursive(2, 6, 2, move |inner| {
            prop_oneof![
                4 => vec(plain_operator(), 1..3).prop_map(joined),
                1 => inner.clone().prop_map(|ops| doc! {"$not": ops}),
                2 => inner.clone().prop_map(|ops| doc! {"$elemMatch": ops}),
                2 => (path(positions), inner)
                    .prop_map(|(path, ops)| doc! {"$elemMatch": {path: ops}}),
            ]
        })
        .boxed()
}

/// Any valid filter.
pub fn filter() -> impl Strategy<Value = DocBuf> {
    filter_over(true)
}

/// A filter whose paths contain no array positions.
pub fn filter_without_positions() -> impl Strategy<Value = DocBuf> {
    filter_over(false)
}

fn filter_over(positions: bool) -> BoxedStrategy<DocBuf> {
    let predicate = prop_oneof![
        2 => (path(positions), operand()).prop_map(|(path, v)| doc! {path: v}),
        4 => (path(positions), operators(positions)).prop_map(|(path, ops)| doc! {path: ops}),
        1 => (path(positions), regex()).prop_map(|(path, re)| doc! {path: re}),
        1 => Just(doc! {}),
    ];
    predicate
        .prop_recursive(3, 10, 3, |inner| {
            let list = vec(inner.clone(), 1..4).boxed();
            prop_oneof![
                4 => vec(inner, 1..3).prop_map(|docs| {
                    let mut builder = DocBuilder::new();
                    docs.iter().for_each(|doc| {
                        builder.extend(doc.as_raw());
                    });
                    builder.finish()
                }),
                1 => list.clone().prop_map(|docs| doc! {"$and": docs}),
                2 => list.clone().prop_map(|docs| doc! {"$or": docs}),
                1 => list.prop_map(|docs| doc! {"$nor": docs}),
            ]
        })
        .boxed()
}

/// A sort of one to three fields with unique names.
pub fn sort(positions: bool) -> impl Strategy<Value = DocBuf> {
    vec((path(positions), any::<bool>()), 1..4).prop_map(|parts| {
        let mut seen = std::collections::HashSet::new();
        let mut builder = DocBuilder::new();
        for (path, ascending) in parts {
            if seen.insert(path.clone()) {
                builder.append(&path, if ascending { 1 } else { -1 });
            }
        }
        builder.finish()
    })
}

/// An inclusion or an exclusion of one to three paths that do not collide, with or without `_id`.
pub fn projection() -> impl Strategy<Value = DocBuf> {
    let paths = vec(path(false), 1..4);
    (paths, any::<bool>(), select(vec![None, Some(0), Some(1)])).prop_map(|(paths, include, id)| {
        let mut kept: Vec<String> = Vec::new();
        for path in paths {
            let collides = |have: &String| {
                sheaf_bson::path::is_path_prefix(have, &path)
                    || sheaf_bson::path::is_path_prefix(&path, have)
            };
            if !kept.iter().any(collides) {
                kept.push(path);
            }
        }
        let mut builder = DocBuilder::new();
        for path in &kept {
            builder.append(path, i32::from(include));
        }
        if let Some(id) = id {
            builder.append("_id", id);
        }
        builder.finish()
    })
}
