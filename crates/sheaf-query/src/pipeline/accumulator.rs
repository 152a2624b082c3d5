//! Accumulators: what `$group` computes over the documents of a group.

use std::cmp::Ordering;
use std::collections::HashSet;

use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{ArrayBuilder, RawValue, Value, compare_values};

use crate::arithmetic::{Number, Sum};
use crate::expression::{EvalValue, Merged, location};

/// Which accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccumulatorKind {
    /// `$sum`, and `$count` as the sum of ones.
    Sum,
    /// `$avg`.
    Avg,
    /// `$min`.
    Min,
    /// `$max`.
    Max,
    /// `$first`.
    First,
    /// `$last`.
    Last,
    /// `$push`.
    Push,
    /// `$addToSet`.
    AddToSet,
    /// `$mergeObjects`.
    MergeObjects,
}

/// Every accumulator by name. `$count` is not one: it is a sum of ones.
pub(super) static TABLE: &[(&str, AccumulatorKind)] = &[
    ("$addToSet", AccumulatorKind::AddToSet),
    ("$avg", AccumulatorKind::Avg),
    ("$first", AccumulatorKind::First),
    ("$last", AccumulatorKind::Last),
    ("$max", AccumulatorKind::Max),
    ("$mergeObjects", AccumulatorKind::MergeObjects),
    ("$min", AccumulatorKind::Min),
    ("$push", AccumulatorKind::Push),
    ("$sum", AccumulatorKind::Sum),
];

impl AccumulatorKind {
    /// The accumulator of this name.
    pub(super) fn find(name: &str) -> Option<AccumulatorKind> {
        TABLE
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }

    /// The state before the first document.
    pub(super) fn start(self) -> Accumulator {
        match self {
            AccumulatorKind::Sum => Accumulator::Sum(Sum::default()),
            AccumulatorKind::Avg => Accumulator::Avg(Sum::default()),
            AccumulatorKind::Min => Accumulator::Min(None),
            AccumulatorKind::Max => Accumulator::Max(None),
            AccumulatorKind::First => Accumulator::First(None),
            AccumulatorKind::Last => Accumulator::Last(Value::Null),
            AccumulatorKind::Push => Accumulator::Push(ArrayBuilder::new()),
            AccumulatorKind::AddToSet => Accumulator::AddToSet {
                seen: HashSet::new(),
                values: ArrayBuilder::new(),
            },
            AccumulatorKind::MergeObjects => Accumulator::MergeObjects(Merged::default()),
        }
    }
}

/// The running state of one accumulator in one group.
#[derive(Debug)]
pub(super) enum Accumulator {
    Sum(Sum),
    Avg(Sum),
    Min(Option<Value>),
    Max(Option<Value>),
    First(Option<Value>),
    Last(Value),
    Push(ArrayBuilder),
    AddToSet {
        seen: HashSet<Vec<u8>>,
        values: ArrayBuilder,
    },
    MergeObjects(Merged),
}

fn size(value: RawValue<'_>) -> usize {
    match value {
        RawValue::String(s) | RawValue::Symbol(s) | RawValue::JavaScript(s) => s.len(),
        RawValue::Document(d) => d.len_bytes(),
        RawValue::Array(a) => a.len_bytes(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        _ => 16,
    }
}

impl Accumulator {
    /// Takes the value of one document; gives by how many bytes the state grew.
    /// Errors: a value that the accumulator does not take.
    pub(super) fn add(&mut self, value: &EvalValue<'_>) -> Result<usize> {
        let raw = value.as_raw();
        match self {
            Accumulator::Sum(sum) | Accumulator::Avg(sum) => {
                if let Some(number) = raw.and_then(Number::from_raw) {
                    sum.add(number);
                }
            }
            Accumulator::Min(best) => return Ok(keep(best, value, Ordering::Less)),
            Accumulator::Max(best) => return Ok(keep(best, value, Ordering::Greater)),
            Accumulator::First(first) => {
                if first.is_none() {
                    let raw = raw.unwrap_or(RawValue::Null);
                    *first = Some(raw.to_value());
                    return Ok(size(raw));
                }
            }
            Accumulator::Last(last) => {
                let before = size(last.as_raw());
                *last = raw.unwrap_or(RawValue::Null).to_value();
                return Ok(size(last.as_raw()).saturating_sub(before));
            }
            Accumulator::Push(values) => {
                let before = values.current_len();
                if let Some(raw) = raw {
                    values.push(raw);
                }
                return Ok(values.current_len() - before);
            }
            Accumulator::AddToSet { seen, values } => {
                if let Some(raw) = raw {
                    let mut key = KeyStringBuilder::new(Directions::default());
                    key.append(raw);
                    if !seen.contains(key.as_bytes()) {
                        let (key, _) = key.finish();
                        let before = values.current_len();
                        values.push(raw);
                        let grown = values.current_len() - before + key.len() + 48;
                        seen.insert(key);
                        return Ok(grown);
                    }
                }
            }
            Accumulator::MergeObjects(merged) => match value.non_null() {
                None => {}
                Some(RawValue::Document(doc)) => {
                    merged.merge(doc);
                    return Ok(doc.len_bytes());
                }
                Some(other) => {
                    return Err(location(
                        40400,
                        format!(
                            "$mergeObjects requires object inputs, but input {} is of type {}",
                            shell(other),
                            other.type_name()
                        ),
                    ));
                }
            },
        }
        Ok(0)
    }

    /// The result.
    pub(super) fn finish(self) -> Value {
        match self {
            Accumulator::Sum(sum) => sum.total().into(),
            Accumulator::Avg(sum) => sum.average().map_or(Value::Null, Value::from),
            Accumulator::Min(best) | Accumulator::Max(best) => best.unwrap_or(Value::Null),
            Accumulator::First(first) => first.unwrap_or(Value::Null),
            Accumulator::Last(last) => last,
            Accumulator::Push(values) => Value::Array(values.finish()),
            Accumulator::AddToSet { values, .. } => Value::Array(values.finish()),
            Accumulator::MergeObjects(merged) => Value::Document(merged.finish()),
        }
    }
}

/// Keeps the better of two values; null and missing do not take part.
fn keep(best: &mut Option<Value>, value: &EvalValue<'_>, better: Ordering) -> usize {
    let Some(new) = value.non_null() else {
        return 0;
    };
    let before = match best {
        Some(old) if compare_values(new, old.as_raw()) != better => return 0,
        Some(old) => size(old.as_raw()),
        None => 0,
    };
    *best = Some(new.to_value());
    size(new).saturating_sub(before)
}
