//! Queries that the naive model does not implement, and that are compared with a collection scan:
//! projections that compute, pipelines that group. Also documents of nearly equal values.
//!
//! ```text
//!   computed_projection()   {x: {$ifNull: ["$a", "$b"]}}, {a: {$slice: 1}}, {b: "$c"}
//!   positional_projection() {"a.$": 1}
//!   pipeline()              $match, then $group by a path with $first, $last, $min, $max, ...
//!   odd_document()          {a: [NaN, null], b: -0.0, c: [[]]}
//! ```

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{ArrayBuf, DateTime, DocBuf, DocBuilder, Value, doc};

fn list(values: Vec<Value>) -> Value {
    Value::Array(ArrayBuf::from_values(&values))
}

/// A projection of a kind that the model does not implement.
pub fn computed_projection(paths: &[&'static str]) -> impl Strategy<Value = DocBuf> + use<> {
    let path = || select(paths.to_vec());
    let field = |path: &str| format!("${path}");
    prop_oneof![
        path().prop_map(move |p| doc! {"x": field(p).as_str(), "_id": 0}),
        (path(), path()).prop_map(
            move |(p, q)| doc! {"x": {"$ifNull": [field(p).as_str(), field(q).as_str()]}}
        ),
        path().prop_map(move |p| doc! {"x": {"$type": field(p).as_str()}, "_id": 0}),
        (path(), path()).prop_map(
            move |(p, q)| doc! {"x": {"$cmp": [field(p).as_str(), field(q).as_str()]}, "b": 1}
        ),
        (path(), path()).prop_map(move |(p, q)| doc! {
            "x": {"$cond": [{"$gt": [field(p).as_str(), 1]}, field(q).as_str(), "none"]}, "_id": 0
        }),
        path().prop_map(move |p| doc! {"b": field(p).as_str(), "_id": 0}),
        (select(vec!["a", "b", "c"]), -2i32..3).prop_map(|(p, n)| doc! {p: {"$slice": n}}),
        (select(vec!["a", "c"]), 0i32..3)
            .prop_map(|(p, n)| doc! {p: {"$elemMatch": {"$gte": n}}, "b": 1}),
        (0i32..3).prop_map(|n| doc! {"a": {"$elemMatch": {"b": n}}, "_id": 0}),
        Just(doc! {"b": {"$literal": 1}, "_id": 0}),
    ]
}

/// The projection of the element that a filter `{path: ...}` matched.
pub fn positional_projection(path: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(format!("{path}.$"), 1);
    out.finish()
}

/// A pipeline that ends in groups or counts, so that its results are unordered.
pub fn pipeline(
    filter: impl Strategy<Value = DocBuf>,
    paths: &[&'static str],
) -> impl Strategy<Value = Vec<DocBuf>> {
    let path = || select(paths.to_vec());
    let direction = || select(vec![1, -1]);
    let accumulator = || {
        prop_oneof![
            3 => path().prop_map(|p| doc! {"$min": format!("${p}").as_str()}),
            3 => path().prop_map(|p| doc! {"$max": format!("${p}").as_str()}),
            1 => Just(doc! {"$sum": 1}),
        ]
    };
    let by = |path: &str, others: Vec<DocBuf>| {
        let mut group = DocBuilder::new();
        group.append("_id", format!("${path}").as_str());
        for (at, other) in others.iter().enumerate() {
            group.append_bson(format!("x{at}"), other);
        }
        doc! {"$group": group.finish()}
    };
    let grouped =
        (path(), vec(accumulator(), 0..3)).prop_map(move |(p, others)| vec![by(p, others)]);
    let ends = select(vec!["$first", "$last"]);
    // The first value of a group is determined only for the fields of the sort.
    let in_order = (path(), path(), direction(), direction(), ends).prop_map(
        move |(p, q, first, second, end)| {
            let mut sort = DocBuilder::new();
            sort.append(p, first);
            if p != q {
                sort.append(q, second);
            }
            let taken = vec![doc! {end: format!("${q}").as_str()}];
            vec![doc! {"$sort": sort.finish()}, by(p, taken)]
        },
    );
    let counted = Just(vec![doc! {"$count": "n"}]);
    let renamed = (path(), path(), 0i32..3).prop_map(move |(p, q, n)| {
        vec![
            doc! {"$project": {"x": format!("${p}").as_str(), "y": format!("${q}").as_str()}},
            doc! {"$match": {"x": {"$gte": n}}},
            by("y", vec![doc! {"$sum": 1}]),
        ]
    });
    let unwound =
        (select(vec!["a", "c"]), path(), accumulator()).prop_map(move |(array, p, other)| {
            vec![
                doc! {"$unwind": format!("${array}").as_str()},
                by(p, vec![other]),
            ]
        });
    let rest = prop_oneof![
        4 => grouped,
        4 => in_order,
        1 => counted,
        1 => renamed,
        1 => unwound,
    ];
    (option::weighted(0.7, filter), rest).prop_map(|(filter, rest)| {
        let mut stages = Vec::new();
        stages.extend(filter.map(|filter| doc! {"$match": filter}));
        stages.extend(rest);
        stages
    })
}

/// Values that orders, keys or types are prone to confuse.
pub fn odd() -> impl Strategy<Value = Value> {
    let decimals = select(vec!["0", "-0", "1", "1.0", "NaN", "Infinity", "0.1"]);
    prop_oneof![
        4 => select(vec![0.0, -0.0, 1.0, 0.1, f64::NAN, f64::NEG_INFINITY]).prop_map(Value::Double),
        3 => decimals.prop_map(|text| Value::Decimal128(text.parse().unwrap())),
        3 => (0i32..2).prop_map(Value::Int32),
        2 => (0i64..2).prop_map(Value::Int64),
        3 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => select(vec![0i64, 1]).prop_map(|ms| Value::DateTime(DateTime(ms))),
        1 => select(vec![Value::MinKey, Value::MaxKey]),
        1 => select(vec!["", "a"]).prop_map(|text| Value::String(text.into())),
        1 => Just(Value::Document(DocBuf::new())),
        1 => odd_element().prop_map(|b| Value::Document(doc! {"b": b})),
    ]
}

fn odd_element() -> impl Strategy<Value = Value> {
    select(vec![
        Value::Null,
        Value::Int32(1),
        Value::Double(-0.0),
        Value::Double(f64::NAN),
    ])
}

/// A document of such values and of arrays of them.
pub fn odd_document() -> impl Strategy<Value = DocBuf> {
    let value = || {
        let stored = prop_oneof![12 => odd(), 1 => Just(Value::Undefined)].boxed();
        let within = prop_oneof![
            6 => stored.clone(),
            1 => vec(stored.clone(), 0..3).prop_map(list),
        ];
        prop_oneof![5 => stored, 3 => vec(within, 0..4).prop_map(list)]
    };
    let field = || option::weighted(0.85, value());
    (field(), field(), field(), field()).prop_map(|(a, b, c, d)| {
        let mut out = DocBuilder::new();
        for (name, value) in [("a", a), ("b", b), ("c", c), ("d", d)] {
            if let Some(value) = value {
                out.append_value(name, &value);
            }
        }
        out.finish()
    })
}
