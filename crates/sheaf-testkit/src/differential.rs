//! Rounds of a differential test: documents, indexes, and what is asked of them.
//!
//! ```text
//!   Round   documents in one of four styles, up to three indexes,
//!           steps: find, distinct, update, delete, pipeline
//! ```
//!
//! The same rounds run against the database in one process and against a
//! server over its socket; the model ([`crate::model`]) says what must come out.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawValue, Value, doc};

use crate::generate_beyond::{
    computed_projection, odd, odd_document, pipeline, positional_projection,
};
use crate::generate_query::{
    document, filter, filter_without_positions, path, projection, scalar, sort,
};
use crate::generate_served::served_find;
use crate::model::Query;

/// One collection's life.
#[derive(Debug, Clone)]
pub struct Round {
    /// Their `_id`s differ.
    pub docs: Vec<DocBuf>,
    /// The collection's; empty for none.
    pub collation: DocBuf,
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
    /// A find whose projection the model does not know: it gives what a collection scan gives.
    Projected {
        /// Of these documents.
        filter: DocBuf,
        /// Computes, slices or names the element found.
        projection: DocBuf,
    },
    /// A pipeline, whose results have no order: they are those over a collection scan.
    Pipeline(Vec<DocBuf>),
    /// Inserts with an `_id` of their own, which indexes may refuse.
    Insert(Vec<DocBuf>),
    /// One of the others (but inserts) with a collation of its own.
    By(DocBuf, Box<Step>),
}

/// Carries out `rounds` rounds, the first with this seed, the others with the
/// seeds that follow it. A round that fails is made smaller before it is shown.
pub fn run(first_seed: u64, rounds: u64, carry_out: impl FnMut(&Round) -> Result<(), String>) {
    run_of(round().boxed(), first_seed, rounds, carry_out);
}

/// As [`run`], with text in place of many numbers, and with collations.
pub fn run_collated(
    first_seed: u64,
    rounds: u64,
    carry_out: impl FnMut(&Round) -> Result<(), String>,
) {
    run_of(collated_round().boxed(), first_seed, rounds, carry_out);
}

/// As [`run_collated`], where `_id`s are of several types, and most of what else asks for `d` asks for `_id`.
pub fn run_by_id(
    first_seed: u64,
    rounds: u64,
    carry_out: impl FnMut(&Round) -> Result<(), String>,
) {
    let rounds_of = prop_oneof![1 => round(), 1 => collated_round()];
    run_of(
        rounds_of.prop_map(by_id).boxed(),
        first_seed,
        rounds,
        carry_out,
    );
}

fn run_of(
    strategy: BoxedStrategy<Round>,
    first_seed: u64,
    rounds: u64,
    mut carry_out: impl FnMut(&Round) -> Result<(), String>,
) {
    for seed in first_seed..first_seed + rounds {
        let done = seed - first_seed;
        if rounds > 1000 && done.is_multiple_of(250) {
            eprintln!("{done} rounds from seed {first_seed} on are done");
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let tree = strategy.new_tree(&mut runner);
        let round = tree.expect("a round can be made").current();
        if let Err(error) = carry_out(&round) {
            let (round, error) = smaller(round, error, &mut carry_out);
            panic!("seed {seed}: {error}\n{round:#?}");
        }
    }
}

/// The round without what it fails without: steps, documents, indexes, fields of documents.
fn smaller(
    mut round: Round,
    mut error: String,
    carry_out: &mut dyn FnMut(&Round) -> Result<(), String>,
) -> (Round, String) {
    loop {
        let before = round.clone();
        let mut keep_if_it_fails = |round: &mut Round, without: Round| match carry_out(&without) {
            Ok(()) => false,
            Err(other) => {
                (*round, error) = (without, other);
                true
            }
        };
        // In chunks of half, a quarter, ..., one.
        for part in 0..3 {
            let len = |round: &Round| match part {
                0 => round.steps.len(),
                1 => round.docs.len(),
                _ => round.indexes.len(),
            };
            let mut chunk = len(&round).next_power_of_two();
            while chunk > 0 {
                let mut at = 0;
                while at < len(&round) {
                    let mut without = round.clone();
                    let end = (at + chunk).min(len(&round));
                    match part {
                        0 => drop(without.steps.drain(at..end)),
                        1 => drop(without.docs.drain(at..end)),
                        _ => drop(without.indexes.drain(at..end)),
                    }
                    if !keep_if_it_fails(&mut round, without) {
                        at += chunk;
                    }
                }
                chunk /= 2;
            }
        }
        for at in 0..round.steps.len() {
            for simpler in simpler_steps(&round.steps[at]) {
                let mut without = round.clone();
                without.steps[at] = simpler;
                if keep_if_it_fails(&mut round, without) {
                    break;
                }
            }
        }
        for at in 0..round.docs.len() {
            let names: Vec<String> = round.docs[at].iter().map(|e| e.key().to_owned()).collect();
            for name in names.iter().filter(|name| *name != "_id") {
                let mut without = round.clone();
                without.docs[at] = without_field(&round.docs[at], name);
                keep_if_it_fails(&mut round, without);
            }
        }
        let count = |round: &Round| {
            let bytes: usize = round.docs.iter().map(DocBuf::len_bytes).sum();
            let steps = format!("{:?}", round.steps);
            (steps, round.indexes.len(), bytes)
        };
        if count(&before) == count(&round) {
            return (round, error);
        }
    }
}

/// The step with something left out, in one way after the other.
fn simpler_steps(step: &Step) -> Vec<Step> {
    let without_one = |doc: &DocBuf| -> Vec<DocBuf> {
        let names: Vec<String> = doc.iter().map(|e| e.key().to_owned()).collect();
        names.iter().map(|name| without_field(doc, name)).collect()
    };
    match step {
        Step::Find(query) => {
            let empty = DocBuf::new;
            let mut simpler = vec![
                Query {
                    sort: empty(),
                    ..query.clone()
                },
                Query {
                    projection: empty(),
                    ..query.clone()
                },
                Query {
                    skip: 0,
                    ..query.clone()
                },
                Query {
                    limit: 0,
                    ..query.clone()
                },
            ];
            let filters = without_one(&query.filter).into_iter();
            simpler.extend(filters.map(|filter| Query {
                filter,
                ..query.clone()
            }));
            let sorts = without_one(&query.sort).into_iter();
            simpler.extend(sorts.map(|sort| Query {
                sort,
                ..query.clone()
            }));
            simpler.retain(|other| format!("{other:?}") != format!("{query:?}"));
            simpler.into_iter().map(Step::Find).collect()
        }
        Step::By(collation, step) => {
            let inner = simpler_steps(step).into_iter();
            inner
                .map(|step| Step::By(collation.clone(), Box::new(step)))
                .collect()
        }
        Step::Distinct { path, filter } => without_one(filter)
            .into_iter()
            .map(|filter| Step::Distinct {
                path: path.clone(),
                filter,
            })
            .collect(),
        Step::Projected { filter, projection } => without_one(filter)
            .into_iter()
            .map(|filter| Step::Projected {
                filter,
                projection: projection.clone(),
            })
            .collect(),
        Step::Pipeline(stages) => (0..stages.len())
            .map(|at| {
                let mut fewer = stages.clone();
                fewer.remove(at);
                Step::Pipeline(fewer)
            })
            .collect(),
        Step::Update { .. } | Step::Delete { .. } | Step::Insert(_) => Vec::new(),
    }
}

fn without_field(doc: &DocBuf, name: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in doc.iter().filter(|element| element.key() != name) {
        out.append_raw_element(element);
    }
    out.finish()
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

/// Collations of collections, indexes and operations; empty says nothing.
fn collation() -> impl Strategy<Value = DocBuf> {
    select(vec![
        doc! {},
        doc! {},
        doc! {"locale": "simple"},
        doc! {"locale": "en"},
        doc! {"locale": "en", "strength": 1},
        doc! {"locale": "en", "strength": 1},
        doc! {"locale": "en", "strength": 2},
        doc! {"locale": "en", "numericOrdering": true},
        doc! {"locale": "fr_CA", "alternate": "shifted"},
    ])
}

/// A round over text.
fn collated_round() -> impl Strategy<Value = Round> {
    (round(), collation(), vec(collation(), 36), 0usize..64).prop_map(
        |(mut round, own, others, first)| {
            let mut words = Words(first);
            round.collation = own;
            for doc in &mut round.docs {
                *doc = words.document(doc);
            }
            let mut others = others.iter().cycle();
            for (_, options) in &mut round.indexes {
                let mut with_text = DocBuilder::new();
                for element in options.iter() {
                    match element.value() {
                        RawValue::Document(filter) if element.key() != "wildcardProjection" => {
                            with_text.append_bson(element.key(), &words.filter(&filter.to_buf()));
                        }
                        value => drop(with_text.append(element.key(), value)),
                    }
                }
                if let Some(other) = others.next().filter(|other| !other.is_empty()) {
                    with_text.append_bson("collation", other);
                }
                *options = with_text.finish();
            }
            for step in &mut round.steps {
                match step {
                    Step::Find(query) => query.filter = words.filter(&query.filter),
                    Step::Distinct { filter, .. }
                    | Step::Delete { filter, .. }
                    | Step::Projected { filter, .. } => {
                        *filter = words.filter(filter);
                    }
                    Step::Pipeline(stages) => {
                        for stage in stages {
                            *stage = with_match(stage, |filter| words.filter(filter));
                        }
                    }
                    Step::Update { filter, update, .. } => {
                        *filter = words.filter(filter);
                        *update = words.update(update);
                    }
                    Step::Insert(docs) => {
                        docs.iter_mut().for_each(|doc| *doc = words.document(doc));
                        continue;
                    }
                    Step::By(..) => continue,
                }
                if let Some(other) = others.next().filter(|other| !other.is_empty()) {
                    *step = Step::By(other.clone(), Box::new(step.clone()));
                }
            }
            round
        },
    )
}

/// Puts words into the place of two numbers of three: words that some
/// collations take for equal, each in its turn.
struct Words(usize);

impl Words {
    const OF: [[&'static str; 4]; 3] = [
        ["a", "A", "á", "a-b"],
        ["b", "B", "ab", "aB"],
        ["10", "9", "a b", "côte"],
    ];

    fn value(&mut self, value: RawValue<'_>) -> Value {
        match value {
            RawValue::Int32(n @ 0..=2) => {
                self.0 += 1;
                match self.0 % 3 {
                    0 => Value::Int32(n),
                    _ => Value::from(Words::OF[n as usize][self.0 / 3 % 4]),
                }
            }
            RawValue::Document(doc) => Value::Document(self.document(&doc.to_buf())),
            RawValue::Array(array) => {
                let values: Vec<Value> = array.iter().map(|v| self.value(v)).collect();
                Value::Array(ArrayBuf::from_values(&values))
            }
            other => other.to_value(),
        }
    }

    /// The `_id`s stay what they are.
    fn document(&mut self, doc: &DocBuf) -> DocBuf {
        let mut out = DocBuilder::new();
        for element in doc.iter() {
            match element.key() {
                "_id" => drop(out.append_raw_element(element)),
                name => drop(out.append_value(name, &self.value(element.value()))),
            }
        }
        out.finish()
    }

    /// A filter, or operators: only operands that are compared.
    fn filter(&mut self, filter: &DocBuf) -> DocBuf {
        let mut out = DocBuilder::new();
        for element in filter.iter() {
            let value = element.value();
            let new = match (element.key(), value) {
                ("$and" | "$or" | "$nor", RawValue::Array(clauses)) => {
                    let clauses = clauses.iter().map(|clause| match clause {
                        RawValue::Document(clause) => {
                            Value::Document(self.filter(&clause.to_buf()))
                        }
                        other => other.to_value(),
                    });
                    Value::Array(ArrayBuf::from_values(&clauses.collect::<Vec<_>>()))
                }
                ("$not" | "$elemMatch", RawValue::Document(inner)) => {
                    Value::Document(self.filter(&inner.to_buf()))
                }
                ("$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte", value) => self.value(value),
                ("$in" | "$nin" | "$all", RawValue::Array(values)) => {
                    let values = values.iter().map(|value| match value {
                        RawValue::Document(inner) => Value::Document(self.filter(&inner.to_buf())),
                        other => self.value(other),
                    });
                    Value::Array(ArrayBuf::from_values(&values.collect::<Vec<_>>()))
                }
                (name, value) if name.starts_with('$') || name == "_id" => value.to_value(),
                (_, RawValue::Document(inner))
                    if inner.first().is_some_and(|e| e.key().starts_with('$')) =>
                {
                    Value::Document(self.filter(&inner.to_buf()))
                }
                (_, value) => self.value(value),
            };
            out.append_value(element.key(), &new);
        }
        out.finish()
    }

    fn update(&mut self, update: &DocBuf) -> DocBuf {
        let mut out = DocBuilder::new();
        for operator in update.iter() {
            match (operator.key(), operator.value()) {
                (name @ ("$set" | "$push"), RawValue::Document(paths)) => {
                    out.append_bson(name, &self.document(&paths.to_buf()));
                }
                (name @ "$pull", RawValue::Document(paths)) => {
                    out.append_bson(name, &self.filter(&paths.to_buf()));
                }
                (name, value) => drop(out.append(name, value)),
            }
        }
        out.finish()
    }
}

/// The stage; if it is a `$match`, with another filter.
fn with_match(stage: &DocBuf, change: impl FnOnce(&DocBuf) -> DocBuf) -> DocBuf {
    match stage.get("$match") {
        Some(RawValue::Document(filter)) => doc! {"$match": change(&filter.to_buf())},
        _ => stage.clone(),
    }
}

/// With `_id`s that differ.
fn numbered_apart(mut round: Round) -> Round {
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

/// With `_id`s of several types, of which filters and sorts ask where they asked for `d`.
fn by_id(mut round: Round) -> Round {
    let inserted = round.steps.iter_mut().filter_map(|step| match step {
        Step::Insert(docs) => Some(docs),
        _ => None,
    });
    for doc in std::iter::once(&mut round.docs).chain(inserted).flatten() {
        *doc = with_mixed_id(doc);
    }
    for step in &mut round.steps {
        ask_by_id(step);
    }
    round
}

fn ask_by_id(step: &mut Step) {
    match step {
        Step::Find(query) => {
            query.filter = filter_by_id(&query.filter, false);
            let mut sort = DocBuilder::new();
            let by_id = query.sort.get("_id").is_some();
            for part in query.sort.iter() {
                let path = match part.key() {
                    "d" if !by_id => "_id",
                    path => path,
                };
                sort.append(path, part.value());
            }
            query.sort = sort.finish();
        }
        Step::Distinct { path, filter } => {
            if path == "d" {
                *path = "_id".to_owned();
            }
            *filter = filter_by_id(filter, false);
        }
        Step::Update { filter, .. }
        | Step::Delete { filter, .. }
        | Step::Projected { filter, .. } => {
            *filter = filter_by_id(filter, false);
        }
        Step::Pipeline(stages) => {
            for stage in stages {
                *stage = with_match(stage, |filter| filter_by_id(filter, false));
            }
        }
        Step::By(_, step) => ask_by_id(step),
        Step::Insert(_) => {}
    }
}

/// The `_id` n as what is different for every n, and of a type of four.
fn mixed(n: i32) -> Value {
    match n.rem_euclid(4) {
        0 => Value::Int32(n),
        1 => Value::String(["x", "Y", "z"][n as usize / 4 % 3].repeat(1 + n as usize / 12)),
        2 => Value::DateTime(sheaf_bson::DateTime(i64::from(n))),
        _ => Value::Document(sheaf_bson::doc! {"d": n}),
    }
}

fn with_mixed_id(doc: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in doc.iter() {
        match (element.key(), element.value()) {
            ("_id", RawValue::Int32(n)) => drop(out.append_value("_id", &mixed(n))),
            _ => drop(out.append_raw_element(element)),
        }
    }
    out.finish()
}

/// A filter whose predicates on `d` are on `_id`; inside those (`operands`) numbers are mixed, as `_id`s are.
fn filter_by_id(filter: &DocBuf, operands: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in filter.iter() {
        let (name, value) = (element.key(), element.value());
        let is_id = name == "d" && !operands;
        let path = if is_id { "_id" } else { name };
        let of_values = matches!(
            name,
            "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" | "$in" | "$nin" | "$all" | "$not"
        );
        let new = match (value, name) {
            (RawValue::Array(clauses), "$and" | "$or" | "$nor") => {
                let clauses = clauses.iter().map(|clause| match clause {
                    RawValue::Document(clause) => {
                        Value::Document(filter_by_id(&clause.to_buf(), operands))
                    }
                    other => other.to_value(),
                });
                Value::Array(ArrayBuf::from_values(&clauses.collect::<Vec<_>>()))
            }
            (RawValue::Document(inner), _)
                if (is_id || operands && of_values)
                    && inner.first().is_some_and(|e| e.key().starts_with('$')) =>
            {
                Value::Document(filter_by_id(&inner.to_buf(), true))
            }
            (RawValue::Int32(n @ 0..), _) if is_id || operands && of_values => mixed(n),
            (RawValue::Array(values), "$in" | "$nin") if operands => {
                let values = values.iter().map(|value| match value {
                    RawValue::Int32(n @ 0..) => mixed(n),
                    other => other.to_value(),
                });
                Value::Array(ArrayBuf::from_values(&values.collect::<Vec<_>>()))
            }
            (value, _) => value.to_value(),
        };
        out.append_value(path, &new);
    }
    out.finish()
}

/// Mostly one of three integers, so that filters find something and sorts meet ties.
fn few() -> impl Strategy<Value = Value> {
    prop_oneof![
        12 => (0i32..3).prop_map(Value::Int32),
        1 => Just(Value::Null),
        1 => select(vec!["a", "ab"]).prop_map(|s| Value::String(s.into())),
        2 => scalar(),
        2 => odd(),
    ]
}

/// With this `_id`.
fn numbered(id: i32, doc: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("_id", id);
    for element in doc.iter().filter(|element| element.key() != "_id") {
        out.append_raw_element(element);
    }
    out.finish()
}

/// No arrays: indexes that are not multikey.
fn flat_document() -> impl Strategy<Value = DocBuf> {
    let field = || option::weighted(0.85, few());
    (
        field(),
        field(),
        field(),
        field(),
        option::weighted(0.3, (field(), field())),
    )
        .prop_map(|(a, b, c, d, inner)| {
            let inner = inner.map(|(b, c)| fields(&[("b", b), ("c", c)]));
            let a = inner.map_or(a, |inner| Some(Value::Document(inner)));
            fields(&[("a", a), ("b", b), ("c", c), ("d", d)])
        })
}

/// Arrays where applications have them: a list of values, a list of sub-documents.
fn table_document() -> impl Strategy<Value = DocBuf> {
    let field = || option::weighted(0.9, few());
    let line = (field(), field()).prop_map(|(b, c)| Value::Document(fields(&[("b", b), ("c", c)])));
    (
        option::weighted(0.9, vec(line, 0..4)),
        field(),
        option::weighted(0.9, vec(few(), 0..4)),
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
        doc! {"c": 1},
        doc! {"d": 1, "a.b": -1},
        doc! {"b": 1, "c": -1},
        doc! {"d": 1, "_id": -1},
        doc! {"a.0": 1},
    ]);
    let pattern = prop_oneof![4 => usual, 1 => sort(false)];
    let ordered = (pattern, option::weighted(0.25, options))
        .prop_map(|(pattern, options)| (pattern, options.unwrap_or_default()));
    prop_oneof![5 => ordered, 1 => wildcard_index(), 1 => hashed_index()]
}

fn wildcard_index() -> impl Strategy<Value = (DocBuf, DocBuf)> {
    select(vec![
        (doc! {"$**": 1}, doc! {}),
        (doc! {"$**": 1}, doc! {}),
        (
            doc! {"$**": -1},
            doc! {"wildcardProjection": {"_id": 1, "b": 0}},
        ),
        (
            doc! {"$**": 1},
            doc! {"wildcardProjection": {"a.b": 1, "c": 1}},
        ),
        (doc! {"$**": 1}, doc! {"wildcardProjection": {"a.b": 0}}),
        (
            doc! {"$**": 1},
            doc! {"partialFilterExpression": {"b": {"$gte": 1}}},
        ),
        (doc! {"a.$**": 1}, doc! {}),
        (doc! {"a.b.$**": 1}, doc! {}),
        (doc! {"b": 1, "a.$**": 1}, doc! {}),
        (
            doc! {"b": 1, "$**": 1},
            doc! {"wildcardProjection": {"b": 0}},
        ),
        (doc! {"d": -1, "a.$**": -1, "b": 1}, doc! {}),
        (doc! {"c.$**": 1, "d": -1}, doc! {}),
    ])
}

fn hashed_index() -> impl Strategy<Value = (DocBuf, DocBuf)> {
    select(vec![
        (doc! {"a": "hashed"}, doc! {}),
        (doc! {"b": "hashed"}, doc! {}),
        (doc! {"d": "hashed"}, doc! {}),
        (doc! {"a.b": "hashed"}, doc! {}),
        (doc! {"d": "hashed"}, doc! {"sparse": true}),
        (
            doc! {"b": "hashed"},
            doc! {"partialFilterExpression": {"d": {"$exists": true}}},
        ),
        (doc! {"d": 1, "b": "hashed"}, doc! {}),
        (doc! {"b": "hashed", "d": -1}, doc! {}),
        (doc! {"d": 1, "b": "hashed", "c": 1}, doc! {}),
    ])
}

/// Any filter, most of them over what indexes have.
fn any_filter(paths: &[String]) -> BoxedStrategy<DocBuf> {
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

/// `$expr` with comparisons of a field and a constant, alone or beside another filter.
fn expr_filter(paths: &[String]) -> impl Strategy<Value = DocBuf> + use<> {
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
    (expression, simple_filter(&paths), any::<bool>()).prop_map(|(expression, beside, alone)| {
        let mut out = match alone {
            true => DocBuilder::new(),
            false => DocBuilder::from_doc(beside.as_raw()),
        };
        out.append_bson("$expr", &expression);
        out.finish()
    })
}

const PATHS: [&str; 6] = ["a", "b", "c", "d", "a.b", "a.c"];

/// Conjunctions of few comparisons on the paths that indexes have: what compound indexes are for.
fn simple_filter(paths: &[String]) -> impl Strategy<Value = DocBuf> + use<> {
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

/// Operators, as they stand beside a path.
fn test() -> impl Strategy<Value = DocBuf> {
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

/// Sorts that indexes can give: one of theirs, forward or backward, or another.
fn usual_sort(indexes: &[(DocBuf, DocBuf)]) -> BoxedStrategy<DocBuf> {
    let others = some_sort();
    // The model does not sort by positions.
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
        // Without its first fields it is a sort behind points.
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

fn some_sort() -> impl Strategy<Value = DocBuf> {
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

/// Projections that index keys can cover.
fn usual_projection() -> impl Strategy<Value = DocBuf> {
    select(vec![
        doc! {"a": 1, "_id": 0},
        doc! {"b": 1, "a": 1, "_id": 0},
        doc! {"a.b": 1, "_id": 0},
        doc! {"a.b": 1, "a.c": 1, "_id": 0},
        doc! {"b": 1, "c": 1, "_id": 0},
        doc! {"d": 1},
    ])
}

fn step(
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

/// The paths of the indexes, twice, among those that documents have.
fn interesting_paths(indexes: &[(DocBuf, DocBuf)]) -> Vec<String> {
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
