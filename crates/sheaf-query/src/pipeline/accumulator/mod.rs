//! Accumulators: what `$group` and windows compute over many documents.
//!
//! ```text
//!   {$topN: {n: 2, sortBy: {a: 1}, output: "$b"}}
//!      │ parse
//!   AccumulatorSpec ──start(_id)──> Accumulator        one for each group
//!      │                               ▲
//!   document ──AccumulatorFeed──> key, value ──add
//!                                      │
//!                         into_partial ┴ merge         states that went to disk
//!                                      ▼
//!                                   finish
//! ```
//!
//! Invariant: splitting the documents anywhere, accumulating the parts separately and merging the
//! later part's state into the earlier one's has the same result as accumulating all of them in one
//! state (percentiles of many numbers and deviations up to rounding).

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{ArrayBuilder, Collator, RawDoc, RawValue, Value, compare_values_with};

use crate::arithmetic::{Deviation, Number, Quantiles, Sum};
use crate::expression::{EvalValue, Expression, Merged, location};
use crate::key_table::KeyTable;
use crate::matcher::Dependencies;
use crate::sort::{SortKeyGenerator, SortPattern};

use super::limits::BLOCKING_BYTES_MAX;

mod parse;
mod ranked;
mod script;
#[cfg(test)]
mod tests;

pub(crate) use ranked::Ranked;
pub(crate) use script::{ScriptSpec, ScriptState};

/// The kind of an accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccumulatorKind {
    /// `$addToSet`.
    AddToSet,
    /// `$avg`.
    Avg,
    /// `$bottom`.
    Bottom,
    /// `$bottomN`.
    BottomN,
    /// `$concatArrays`.
    ConcatArrays,
    /// `$first`.
    First,
    /// `$firstN`.
    FirstN,
    /// `$last`.
    Last,
    /// `$lastN`.
    LastN,
    /// `$max`.
    Max,
    /// `$maxN`.
    MaxN,
    /// `$median`.
    Median,
    /// `$mergeObjects`.
    MergeObjects,
    /// `$min`.
    Min,
    /// `$minN`.
    MinN,
    /// `$percentile`.
    Percentile,
    /// `$push`.
    Push,
    /// `$accumulator`, and the reduce of mapReduce.
    Script,
    /// `$setUnion`.
    SetUnion,
    /// `$stdDevPop`.
    StdDevPop,
    /// `$stdDevSamp`.
    StdDevSamp,
    /// `$sum`, and `$count` as the sum of ones.
    Sum,
    /// `$top`.
    Top,
    /// `$topN`.
    TopN,
}

/// Every accumulator by name. `$count` is not one: it is a sum of ones.
pub(super) static TABLE: &[(&str, AccumulatorKind)] = &[
    ("$addToSet", AccumulatorKind::AddToSet),
    ("$avg", AccumulatorKind::Avg),
    ("$bottom", AccumulatorKind::Bottom),
    ("$bottomN", AccumulatorKind::BottomN),
    ("$concatArrays", AccumulatorKind::ConcatArrays),
    ("$first", AccumulatorKind::First),
    ("$firstN", AccumulatorKind::FirstN),
    ("$last", AccumulatorKind::Last),
    ("$lastN", AccumulatorKind::LastN),
    ("$max", AccumulatorKind::Max),
    ("$maxN", AccumulatorKind::MaxN),
    ("$median", AccumulatorKind::Median),
    ("$mergeObjects", AccumulatorKind::MergeObjects),
    ("$min", AccumulatorKind::Min),
    ("$minN", AccumulatorKind::MinN),
    ("$percentile", AccumulatorKind::Percentile),
    ("$push", AccumulatorKind::Push),
    ("$setUnion", AccumulatorKind::SetUnion),
    ("$stdDevPop", AccumulatorKind::StdDevPop),
    ("$stdDevSamp", AccumulatorKind::StdDevSamp),
    ("$sum", AccumulatorKind::Sum),
    ("$top", AccumulatorKind::Top),
    ("$topN", AccumulatorKind::TopN),
];

impl AccumulatorKind {
    /// Whether its operand is a document of named fields rather than one expression.
    fn has_fields(self) -> bool {
        use AccumulatorKind::{
            Bottom, BottomN, FirstN, LastN, MaxN, Median, MinN, Percentile, Top, TopN,
        };
        matches!(
            self,
            Bottom | BottomN | FirstN | LastN | MaxN | Median | MinN | Percentile | Top | TopN
        )
    }

    /// `$name`.
    fn name(self) -> &'static str {
        let found = TABLE.iter().find(|(_, kind)| *kind == self);
        found.map_or("an accumulator", |(name, _)| name)
    }
}

/// A parsed accumulator, `{$sum: "$x"}`.
#[derive(Debug, Clone)]
pub struct AccumulatorSpec {
    /// The kind.
    pub kind: AccumulatorKind,
    /// The expression that is evaluated on each document.
    pub argument: Expression,
    /// How many values are kept: a constant, or an expression over the group's `_id`.
    n: Option<Expression>,
    /// The sort of `$top` and similar accumulators.
    sort: Option<SortPattern>,
    /// The requested shares of `$percentile` and `$median`.
    shares: Arc<[f64]>,
    /// How text compares; `None`: by bytes.
    collator: Option<Arc<Collator>>,
    /// The functions of `$accumulator`.
    script: Option<Arc<ScriptSpec>>,
}

impl AccumulatorSpec {
    /// The initial state of the group with this `_id`. Errors: `n` is not a positive integer.
    pub(crate) fn start(&self, id: RawValue<'_>) -> Result<Accumulator> {
        let ranked = |last| -> Result<Accumulator> {
            let n = match &self.n {
                None => 1,
                Some(n) => parse::evaluate_n(n, id)?,
            };
            Ok(Accumulator::Ranked(Ranked::new(n, last), self.kind))
        };
        Ok(match self.kind {
            AccumulatorKind::AddToSet | AccumulatorKind::SetUnion => Accumulator::Set {
                seen: KeyTable::new(),
                values: ArrayBuilder::new(),
                of_arrays: self.kind == AccumulatorKind::SetUnion,
                collator: self.collator.clone(),
            },
            AccumulatorKind::Avg => Accumulator::Avg(Sum::default()),
            AccumulatorKind::Sum => Accumulator::Sum(Sum::default()),
            AccumulatorKind::Min => {
                Accumulator::Extreme(None, Ordering::Less, self.collator.clone())
            }
            AccumulatorKind::Max => {
                Accumulator::Extreme(None, Ordering::Greater, self.collator.clone())
            }
            AccumulatorKind::First => Accumulator::First(None),
            AccumulatorKind::Last => Accumulator::Last(None),
            AccumulatorKind::Push => Accumulator::Push(ArrayBuilder::new()),
            AccumulatorKind::Script => match &self.script {
                Some(script) => Accumulator::Script(Box::new(ScriptState::start(script, id)?)),
                None => Accumulator::First(None),
            },
            AccumulatorKind::ConcatArrays => Accumulator::Concat(ArrayBuilder::new()),
            AccumulatorKind::MergeObjects => Accumulator::MergeObjects(Merged::default()),
            AccumulatorKind::StdDevPop => Accumulator::StdDev(Deviation::default(), false),
            AccumulatorKind::StdDevSamp => Accumulator::StdDev(Deviation::default(), true),
            AccumulatorKind::Percentile | AccumulatorKind::Median => Accumulator::Quantiles {
                numbers: Box::default(),
                shares: Arc::clone(&self.shares),
                one: self.kind == AccumulatorKind::Median,
            },
            AccumulatorKind::Top
            | AccumulatorKind::TopN
            | AccumulatorKind::FirstN
            | AccumulatorKind::MinN => ranked(false)?,
            AccumulatorKind::Bottom
            | AccumulatorKind::BottomN
            | AccumulatorKind::LastN
            | AccumulatorKind::MaxN => ranked(true)?,
        })
    }

    /// How text compares.
    pub(crate) fn collator(&self) -> Option<&Arc<Collator>> {
        self.collator.as_ref()
    }

    /// `n` where it cannot depend on an `_id`; 1 for accumulators without `n`. Errors: `n` is not a
    /// positive integer.
    pub(crate) fn constant_n(&self) -> Result<usize> {
        match &self.n {
            None => Ok(1),
            Some(n) => parse::evaluate_n(n, RawValue::Null),
        }
    }

    /// The shares of `$percentile` and `$median`.
    pub(crate) fn shares(&self) -> Arc<[f64]> {
        Arc::clone(&self.shares)
    }

    /// Creates the converter from documents to keys and values for this accumulator's states.
    pub(crate) fn feed(&self) -> AccumulatorFeed {
        AccumulatorFeed {
            kind: self.kind,
            sort: self.sort.as_ref().map(SortKeyGenerator::new),
            of_value: KeyStringBuilder::new(Directions::default()),
            collator: self.collator.clone(),
            key: Vec::new(),
        }
    }

    /// Whether documents are read in addition to the argument, for their order.
    pub(crate) fn sorts(&self) -> bool {
        self.sort.is_some()
    }

    /// Adds the document paths that are read.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        self.argument.add_dependencies(found);
        if let Some(sort) = &self.sort {
            sort.paths().for_each(|path| found.insert(path));
        }
    }
}

/// The buffers in which one accumulator's keys are built.
#[derive(Debug)]
pub(crate) struct AccumulatorFeed {
    kind: AccumulatorKind,
    sort: Option<SortKeyGenerator>,
    of_value: KeyStringBuilder,
    collator: Option<Arc<Collator>>,
    key: Vec<u8>,
}

impl AccumulatorFeed {
    /// Adds the value of `doc` to `state`; returns by how many bytes the state grew.
    /// Errors: those of the expression; values that the accumulator does not accept.
    #[inline]
    pub fn feed(
        &mut self,
        spec: &AccumulatorSpec,
        doc: RawDoc<'_>,
        state: &mut Accumulator,
    ) -> Result<usize> {
        let value = spec.argument.evaluate_on(doc)?;
        self.feed_value(doc, &value, state)
    }

    /// As [`AccumulatorFeed::feed`], with the argument evaluated.
    #[inline]
    pub fn feed_value(
        &mut self,
        doc: RawDoc<'_>,
        value: &EvalValue<'_>,
        state: &mut Accumulator,
    ) -> Result<usize> {
        let key = self.key(doc, value)?;
        state.add(key, value)
    }

    /// The key by which a value is ranked; empty if none is needed.
    /// Errors: parallel arrays in the sort.
    pub fn key(&mut self, doc: RawDoc<'_>, value: &EvalValue<'_>) -> Result<&[u8]> {
        self.key.clear();
        if let Some(sort) = &mut self.sort {
            sort.key_of_document(doc, &mut self.key)?;
        } else if matches!(self.kind, AccumulatorKind::MinN | AccumulatorKind::MaxN)
            && let Some(raw) = value.non_null()
        {
            self.of_value.reset();
            self.of_value.append_with(raw, self.collator.as_deref());
            self.key.extend_from_slice(self.of_value.as_bytes());
        }
        Ok(&self.key)
    }
}

/// The running state of one accumulator in one group.
#[derive(Debug)]
pub(crate) enum Accumulator {
    /// `$sum`.
    Sum(Sum),
    /// `$avg`.
    Avg(Sum),
    /// `$min` and `$max`: the value that compares this way to all others.
    Extreme(Option<Value>, Ordering, Option<Arc<Collator>>),
    /// `$first`.
    First(Option<Value>),
    /// `$last`.
    Last(Option<Value>),
    /// `$push`.
    Push(ArrayBuilder),
    /// `$concatArrays`.
    Concat(ArrayBuilder),
    /// `$addToSet`, and `$setUnion` of arrays.
    Set {
        /// KeyStrings of the values.
        seen: KeyTable,
        /// The values, as first encountered.
        values: ArrayBuilder,
        /// `$setUnion`.
        of_arrays: bool,
        /// How text compares.
        collator: Option<Arc<Collator>>,
    },
    /// `$mergeObjects`.
    MergeObjects(Merged),
    /// `$stdDevPop`, and `$stdDevSamp` (true).
    StdDev(Deviation, bool),
    /// `$top`, `$bottom` and everything that ends in N.
    Ranked(Ranked, AccumulatorKind),
    /// `$accumulator`.
    Script(Box<ScriptState>),
    /// `$percentile` and `$median`.
    Quantiles {
        /// The numbers so far.
        numbers: Box<Quantiles>,
        /// The requested shares.
        shares: Arc<[f64]>,
        /// `$median`: a number, not an array of them.
        one: bool,
    },
}

/// Approximate heap size of a value, in bytes.
pub(crate) fn size(value: RawValue<'_>) -> usize {
    match value {
        RawValue::String(s) | RawValue::Symbol(s) | RawValue::JavaScript(s) => s.len(),
        RawValue::Document(d) => d.len_bytes(),
        RawValue::Array(a) => a.len_bytes(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        _ => 16,
    }
}

/// Errors: a single state exceeds the memory limit of a stage, so that spilling cannot help.
fn check(name: &str, bytes: usize) -> Result<()> {
    if bytes > BLOCKING_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::EXCEEDED_MEMORY_LIMIT,
            format!(
                "{name} used too much memory for one group: the limit is {BLOCKING_BYTES_MAX} bytes"
            ),
        ));
    }
    Ok(())
}

fn add_to_set(
    seen: &mut KeyTable,
    values: &mut ArrayBuilder,
    raw: RawValue<'_>,
    collator: Option<&Collator>,
) -> Result<usize> {
    let mut key = KeyStringBuilder::new(Directions::default());
    key.append_with(raw, collator);
    let key = key.as_bytes();
    if !seen.insert(key).1 {
        return Ok(0);
    }
    let before = values.current_len();
    values.push(raw);
    check("$addToSet", values.current_len())?;
    Ok(values.current_len() - before + key.len() + 48)
}

fn append_all(name: &str, values: &mut ArrayBuilder, raw: RawValue<'_>) -> Result<usize> {
    let RawValue::Array(array) = raw else {
        return Err(not_an_array(name, raw));
    };
    let before = values.current_len();
    check(name, before + array.len_bytes())?;
    for element in array.elements() {
        values.push_element(element);
    }
    Ok(values.current_len() - before)
}

pub(in crate::pipeline) fn not_an_array(name: &str, found: RawValue<'_>) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!(
            "{name} requires array inputs, but an input is of type {}",
            found.type_name()
        ),
    )
}

impl Accumulator {
    /// Adds the value of one document, with the key that [`AccumulatorFeed::key`] built for it;
    /// returns by how many bytes the state grew. Errors: the accumulator does not accept the value;
    /// the state is too large.
    pub fn add(&mut self, key: &[u8], value: &EvalValue<'_>) -> Result<usize> {
        let raw = value.as_raw();
        match self {
            Accumulator::Sum(sum) | Accumulator::Avg(sum) => {
                if let Some(number) = raw.and_then(Number::from_raw) {
                    sum.add(number);
                }
                Ok(0)
            }
            Accumulator::Extreme(best, better, collator) => {
                Ok(keep(best, value.non_null(), *better, collator.as_deref()))
            }
            Accumulator::First(Some(_)) => Ok(0),
            Accumulator::First(first) => {
                let raw = raw.unwrap_or(RawValue::Null);
                *first = Some(raw.to_value());
                Ok(size(raw))
            }
            Accumulator::Last(last) => {
                let before = last.as_ref().map_or(0, |last| size(last.as_raw()));
                let raw = raw.unwrap_or(RawValue::Null);
                *last = Some(raw.to_value());
                Ok(size(raw).saturating_sub(before))
            }
            Accumulator::Push(values) => {
                let before = values.current_len();
                if let Some(raw) = raw {
                    values.push(raw);
                    check("$push", values.current_len())?;
                }
                Ok(values.current_len() - before)
            }
            Accumulator::Concat(values) => match raw {
                None => Ok(0),
                Some(raw) => append_all("$concatArrays", values, raw),
            },
            Accumulator::Set {
                seen,
                values,
                of_arrays,
                collator,
            } => match raw {
                None => Ok(0),
                Some(RawValue::Array(array)) if *of_arrays => array.iter().try_fold(0, |sum, v| {
                    Ok(sum + add_to_set(seen, values, v, collator.as_deref())?)
                }),
                Some(other) if *of_arrays => Err(not_an_array("$setUnion", other)),
                Some(raw) => add_to_set(seen, values, raw, collator.as_deref()),
            },
            Accumulator::MergeObjects(merged) => match value.non_null() {
                None => Ok(0),
                Some(RawValue::Document(doc)) => {
                    let before = merged.bytes();
                    merged.merge(doc);
                    check("$mergeObjects", merged.bytes())?;
                    Ok(merged.bytes().saturating_sub(before))
                }
                Some(other) => Err(location(
                    40400,
                    format!(
                        "$mergeObjects requires object inputs, but input {} is of type {}",
                        shell(other),
                        other.type_name()
                    ),
                )),
            },
            Accumulator::StdDev(deviation, _) => {
                if let Some(number) = raw.and_then(Number::from_raw) {
                    deviation.add(number.to_f64());
                }
                Ok(0)
            }
            Accumulator::Ranked(ranked, kind) => {
                if matches!(kind, AccumulatorKind::MinN | AccumulatorKind::MaxN)
                    && value.non_null().is_none()
                {
                    return Ok(0);
                }
                let grown = ranked.add(key, raw.unwrap_or(RawValue::Null));
                check(kind.name(), ranked.bytes())?;
                Ok(grown)
            }
            Accumulator::Script(state) => state.add(raw),
            Accumulator::Quantiles { numbers, .. } => Ok(raw
                .and_then(Number::from_raw)
                .map_or(0, |number| numbers.add(number.to_f64()))),
        }
    }

    /// Like [`Accumulator::into_partial`]; also resets this state to the empty one.
    pub fn take_partial(&mut self) -> Value {
        std::mem::replace(self, Accumulator::First(None)).into_partial()
    }

    /// The state as a value that [`Accumulator::merge`] accepts, to be written to disk.
    pub fn into_partial(self) -> Value {
        let option = |value: Option<Value>| {
            let mut out = ArrayBuilder::new();
            if let Some(value) = value {
                out.push(value.as_raw());
            }
            Value::Array(out.finish())
        };
        match self {
            Accumulator::Sum(sum) | Accumulator::Avg(sum) => Value::Array(sum.to_partial()),
            Accumulator::Extreme(value, ..)
            | Accumulator::First(value)
            | Accumulator::Last(value) => option(value),
            Accumulator::Push(values)
            | Accumulator::Concat(values)
            | Accumulator::Set { values, .. } => Value::Array(values.finish()),
            Accumulator::MergeObjects(merged) => Value::Document(merged.finish()),
            Accumulator::StdDev(deviation, _) => deviation.to_partial(),
            Accumulator::Ranked(ranked, _) => ranked.into_partial(),
            Accumulator::Script(state) => state.into_partial(),
            Accumulator::Quantiles { numbers, .. } => numbers.to_partial(),
        }
    }

    /// Merges the state of the same accumulator over later documents; returns by how many bytes
    /// this state grew. Errors: the state is too large; InternalError if `partial` is not such a
    /// state.
    pub fn merge(&mut self, partial: RawValue<'_>) -> Result<usize> {
        let broken = || {
            Error::new(
                ErrorCode::INTERNAL_ERROR,
                "a partial state of an accumulator is damaged",
            )
        };
        let array = partial.as_array();
        let option = || Ok::<_, Error>(array.ok_or_else(broken)?.get(0));
        match self {
            Accumulator::Sum(sum) | Accumulator::Avg(sum) => {
                sum.merge(&array.and_then(Sum::from_partial).ok_or_else(broken)?);
                Ok(0)
            }
            Accumulator::Extreme(best, better, collator) => {
                Ok(keep(best, option()?, *better, collator.as_deref()))
            }
            Accumulator::First(Some(_)) => Ok(0),
            Accumulator::First(slot) | Accumulator::Last(slot) => {
                let Some(raw) = option()? else { return Ok(0) };
                *slot = Some(raw.to_value());
                Ok(size(raw))
            }
            Accumulator::Push(values) => append_all("$push", values, partial),
            Accumulator::Concat(values) => append_all("$concatArrays", values, partial),
            Accumulator::Set {
                seen,
                values,
                collator,
                ..
            } => array.ok_or_else(broken)?.iter().try_fold(0, |sum, v| {
                Ok(sum + add_to_set(seen, values, v, collator.as_deref())?)
            }),
            Accumulator::MergeObjects(merged) => {
                let doc = partial.as_document().ok_or_else(broken)?;
                let before = merged.bytes();
                merged.merge(doc);
                check("$mergeObjects", merged.bytes())?;
                Ok(merged.bytes().saturating_sub(before))
            }
            Accumulator::StdDev(deviation, _) => {
                let other = array.and_then(Deviation::from_partial);
                deviation.merge(&other.ok_or_else(broken)?);
                Ok(0)
            }
            Accumulator::Ranked(ranked, kind) => {
                let grown = array.and_then(|a| ranked.merge(a)).ok_or_else(broken)?;
                check(kind.name(), ranked.bytes())?;
                Ok(grown)
            }
            Accumulator::Script(state) => state.merge(partial),
            Accumulator::Quantiles { numbers, .. } => {
                let other = partial.as_document().and_then(Quantiles::from_partial);
                numbers.merge(other.ok_or_else(broken)?);
                Ok(0)
            }
        }
    }

    /// The result. Errors: those of the functions of `$accumulator`.
    pub fn finish(self) -> Result<Value> {
        match self {
            Accumulator::Script(state) => state.finish(),
            other => Ok(other.value()),
        }
    }

    /// The result of an accumulator that runs no user function.
    fn value(self) -> Value {
        match self {
            Accumulator::Script(_) => Value::Null,
            Accumulator::Sum(sum) => sum.total().into(),
            Accumulator::Avg(sum) => sum.average().map_or(Value::Null, Value::from),
            Accumulator::Extreme(value, ..)
            | Accumulator::First(value)
            | Accumulator::Last(value) => value.unwrap_or(Value::Null),
            Accumulator::Push(values)
            | Accumulator::Concat(values)
            | Accumulator::Set { values, .. } => Value::Array(values.finish()),
            Accumulator::MergeObjects(merged) => Value::Document(merged.finish()),
            Accumulator::StdDev(deviation, sample) => deviation.finish(sample),
            Accumulator::Ranked(ranked, kind) => {
                let mut values = ranked.into_values();
                let mut all = ArrayBuilder::new();
                match kind {
                    AccumulatorKind::Top | AccumulatorKind::Bottom => {
                        return values.next().unwrap_or(Value::Null);
                    }
                    AccumulatorKind::MaxN => values.rev().for_each(|v| {
                        all.push(v.as_raw());
                    }),
                    _ => values.for_each(|v| {
                        all.push(v.as_raw());
                    }),
                }
                Value::Array(all.finish())
            }
            Accumulator::Quantiles {
                numbers,
                shares,
                one,
            } => {
                let values = numbers.at(&shares);
                if one {
                    return values.into_iter().next().unwrap_or(Value::Null);
                }
                // Without a number the result is an array of nulls.
                Value::Array(values.iter().collect())
            }
        }
    }
}

/// Keeps the better of two values; ignores null and missing.
fn keep(
    best: &mut Option<Value>,
    new: Option<RawValue<'_>>,
    better: Ordering,
    collator: Option<&Collator>,
) -> usize {
    let Some(new) = new else {
        return 0;
    };
    let before = match best {
        Some(old) if compare_values_with(new, old.as_raw(), collator) != better => return 0,
        Some(old) => size(old.as_raw()),
        None => 0,
    };
    *best = Some(new.to_value());
    size(new).saturating_sub(before)
}
