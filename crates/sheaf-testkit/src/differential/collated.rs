//! Rounds with collations: text in place of many numbers, in words that differ in case, accents and
//! digits.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawValue, Value, doc};

use super::round::round;
use super::{Round, Step};

/// The collation of a collection, index or operation; empty means unspecified.
pub(super) fn collation() -> impl Strategy<Value = DocBuf> {
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

/// A round with text and collations.
pub(super) fn collated_round() -> impl Strategy<Value = Round> {
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

/// Replaces two of three numbers by words, some of which are equal under some collations. The
/// replacement is chosen in turn.
pub(super) struct Words(usize);

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

    /// Replaces the values in a document, except `_id`.
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

    /// Replaces the values that a filter, or a document of operators, compares with.
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

/// Changes the filter of a `$match`; returns any other stage unchanged.
pub(super) fn with_match(stage: &DocBuf, change: impl FnOnce(&DocBuf) -> DocBuf) -> DocBuf {
    match stage.get("$match") {
        Some(RawValue::Document(filter)) => doc! {"$match": change(&filter.to_buf())},
        _ => stage.clone(),
    }
}
