//! Rounds of a differential test: documents, indexes, and what is asked of them.
//!
//! ```text
//!   Round   documents in one of three styles, up to three indexes,
//!           steps: find, distinct, update, delete
//! ```
//!
//! The same rounds run against the database in one process and against a
//! server over its socket; the model ([`crate::model`]) says what must come out.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Value, doc};

use crate::generate_query::{
    document, filter, filter_without_positions, path, projection, scalar, sort,
};
use crate::model::Query;

/// One collection's life.
#[derive(Debug, Clone)]
pub struct Round {
    /// Their `_id`s differ.
    pub docs: Vec<DocBuf>,
    /// Built before the documents come, or after.
    pub indexes_first: bool,
    /// Key pattern and options; some cannot be built over some documents.
    pub indexes: Vec<(DocBuf, DocBuf)>,
    /// In this order.
    pub steps: Vec<Step>,
}

/// One thing asked.
#[derive(Debug, Clone)]
pub enum Step {
    /// A find.
    Find(Query),
    /// A distinct.
    Distinct {
        /// Whose values.
        path: String,
        /// Among these documents.
        filter: DocBuf,
    },
    /// An update by one operator on one path.
    Update {
        /// Of these documents.
        filter: DocBuf,
        /// As [`crate::model::update`] takes it.
        update: DocBuf,
        /// All of them, not one.
        multi: bool,
    },
    /// A delete.
    Delete {
        /// Of these documents.
        filter: DocBuf,
        /// All of them, not one.
        multi: bool,
    },
}

/// Carries out `rounds` rounds, the first with this seed, the others with the
/// seeds that follow it. A round that fails is made smaller before it is shown.
pub fn run(first_seed: u64, rounds: u64, mut carry_out: impl FnMut(&Round) -> Result<(), String>) {
    for seed in first_seed..first_seed + rounds {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: 20_000,
            ..Config::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let carry_out = std::cell::RefCell::new(&mut carry_out);
        let result = TestRunner::new_with_rng(config, rng).run(&round(), |round| {
            (*carry_out.borrow_mut())(&round).map_err(TestCaseError::fail)
        });
        if let Err(error) = result {
            panic!("seed {seed}: {error}");
        }
    }
}

/// A number from the environment, to replay a seed or to run longer.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Any round.
pub fn round() -> impl Strategy<Value = Round> {
    let docs = prop_oneof![
        vec(document(), 0..30),
        vec(flat_document(), 0..40),
        vec(table_document(), 0..40),
    ];
    let steps = vec(step(), 1..24);
    (docs, any::<bool>(), vec(index(), 0..4), steps).prop_map(
        |(docs, indexes_first, indexes, steps)| Round {
            docs: docs
                .iter()
                .enumerate()
                .map(|(i, doc)| numbered(i, doc))
                .collect(),
            indexes_first,
            indexes,
            steps,
        },
    )
}

/// With its place in the list as `_id`.
fn numbered(i: usize, doc: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("_id", i as i32);
    for element in doc.iter().filter(|element| element.key() != "_id") {
        out.append_raw_element(element);
    }
    out.finish()
}

/// No arrays: indexes that are not multikey.
fn flat_document() -> impl Strategy<Value = DocBuf> {
    let field = || option::weighted(0.85, scalar());
    (
        field(),
        field(),
        field(),
        field(),
        option::of((field(), field())),
    )
        .prop_map(|(a, b, c, d, inner)| {
            let inner = inner.map(|(b, c)| fields(&[("b", b), ("c", c)]));
            let a = inner.map_or(a, |inner| Some(Value::Document(inner)));
            fields(&[("a", a), ("b", b), ("c", c), ("d", d)])
        })
}

/// Arrays where applications have them: a list of values, a list of sub-documents.
fn table_document() -> impl Strategy<Value = DocBuf> {
    let field = || option::weighted(0.9, scalar());
    let line = (field(), field()).prop_map(|(b, c)| Value::Document(fields(&[("b", b), ("c", c)])));
    (
        option::weighted(0.9, vec(line, 0..4)),
        field(),
        option::weighted(0.9, vec(scalar(), 0..4)),
        field(),
    )
        .prop_map(|(a, b, c, d)| {
            let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
            fields(&[("a", a.map(list)), ("b", b), ("c", c.map(list)), ("d", d)])
        })
}

fn fields(list: &[(&str, Option<Value>)]) -> DocBuf {
    let mut out = DocBuilder::new();
    for (name, value) in list {
        if let Some(value) = value {
            out.append_value(name, value);
        }
    }
    out.finish()
}

/// An index: plain or compound on any paths, or one with options.
fn index() -> impl Strategy<Value = (DocBuf, DocBuf)> {
    let options = select(vec![
        doc! {"sparse": true},
        doc! {"unique": true},
        doc! {"unique": true, "sparse": true},
        doc! {"hidden": true},
        doc! {"partialFilterExpression": {"b": {"$exists": true}}},
        doc! {"partialFilterExpression": {"a": {"$gt": 1}}},
        doc! {"partialFilterExpression": {"c": {"$type": "number"}}},
        doc! {"partialFilterExpression": {"d": 1, "a": {"$lte": 3}}},
    ]);
    let usual = select(vec![
        doc! {"a": 1},
        doc! {"a": -1},
        doc! {"a": 1, "b": 1},
        doc! {"a": 1, "b": -1},
        doc! {"a.b": 1},
        doc! {"a.b": 1, "a.c": 1},
        doc! {"a.b": 1, "a.c": -1, "b": 1},
        doc! {"b": 1, "c": 1, "d": 1},
        doc! {"c": 1, "b": 1},
        doc! {"d": 1, "_id": -1},
        doc! {"a.0": 1},
    ]);
    let pattern = prop_oneof![2 => usual, 1 => sort(false)];
    (pattern, option::weighted(0.25, options))
        .prop_map(|(pattern, options)| (pattern, options.unwrap_or_default()))
}

fn any_filter() -> impl Strategy<Value = DocBuf> {
    prop_oneof![filter(), filter_without_positions(), simple_filter()]
}

/// Conjunctions of few comparisons on top-level fields: what compound indexes are made for.
fn simple_filter() -> impl Strategy<Value = DocBuf> {
    let name = select(vec!["a", "b", "c", "d", "a.b", "a.c"]);
    let op = select(vec!["$eq", "$eq", "$gt", "$gte", "$lt", "$lte"]);
    let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
    let test = prop_oneof![
        3 => (op, scalar()).prop_map(|(op, value)| doc! {op: value}),
        1 => vec(scalar(), 1..5).prop_map(move |values| doc! {"$in": list(values)}),
    ];
    vec((name, test), 1..4).prop_map(|tests| {
        let mut out = DocBuilder::new();
        for (name, test) in &tests {
            out.append_bson(name, test);
        }
        out.finish()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let find = (
        any_filter(),
        option::weighted(0.5, sort(false)),
        option::weighted(0.4, projection()),
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
    let distinct =
        (path(false), option::of(any_filter())).prop_map(|(path, filter)| Step::Distinct {
            path,
            filter: filter.unwrap_or_default(),
        });
    let update =
        (any_filter(), update(), any::<bool>()).prop_map(|(filter, update, multi)| Step::Update {
            filter,
            update,
            multi,
        });
    let delete = (any_filter(), prop::bool::weighted(0.2))
        .prop_map(|(filter, multi)| Step::Delete { filter, multi });
    prop_oneof![12 => find, 2 => distinct, 4 => update, 1 => delete]
}

fn update() -> impl Strategy<Value = DocBuf> {
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
