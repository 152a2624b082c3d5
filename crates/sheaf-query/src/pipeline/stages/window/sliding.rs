//! Functions over a sliding window: documents enter at its end and leave at its beginning.
//!
//! Sums, counts, deviations and covariances subtract a document that leaves. Extremes keep the
//! candidates that may still become one (a later value displaces the worse ones before it).
//! Percentiles keep the numbers sorted. The other functions read the window's values.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{ArrayBuilder, Collator, RawValue, Value, compare_values_with};

use crate::arithmetic::Deviation;
use crate::arithmetic::Number;
use crate::pipeline::accumulator::{AccumulatorKind, not_an_array};

use super::covariance::Covariance;
use super::deviation::SlidingDeviation;
use super::functions::failed;
use super::inputs::{Input, Inputs};
use super::sliding_sum::SlidingSum;

/// A deviation of `count` terms, some of which are not finite.
fn undefined(count: u64, sample: bool) -> Value {
    match sample && count < 2 {
        true => Value::Null,
        false => Value::Double(f64::NAN),
    }
}

/// A function over the window.
#[derive(Debug)]
pub(super) enum Sliding {
    Sum(SlidingSum),
    Average(SlidingSum),
    Extreme {
        better: std::cmp::Ordering,
        /// Candidates by document number; none is worse than a later one.
        candidates: VecDeque<(u64, Value)>,
        collator: Option<Arc<Collator>>,
    },
    /// `$first`, `$last`.
    End {
        last: bool,
        /// The result, for windows that only grow.
        kept: Option<Value>,
    },
    /// `$firstN`, `$lastN`.
    Ends {
        n: usize,
        last: bool,
    },
    Push,
    /// `$concatArrays`.
    Concat,
    /// `$addToSet`, and `$setUnion` of arrays.
    Set {
        /// `$setUnion`.
        of_arrays: bool,
        /// How often each value is in the window.
        values: BTreeMap<Vec<u8>, (u64, Value)>,
        bytes: usize,
        collator: Option<Arc<Collator>>,
    },
    /// A deviation over a window that only grows.
    Deviation {
        state: Deviation,
        sample: bool,
        /// Count of numbers in the window that are not finite; they make the deviation NaN.
        special: u64,
    },
    SlidingDeviation {
        state: SlidingDeviation,
        sample: bool,
    },
    Numbers {
        sorted: Vec<f64>,
        shares: Arc<[f64]>,
        one: bool,
    },
    Ranked {
        n: usize,
        kind: AccumulatorKind,
        entries: BTreeMap<(Vec<u8>, u64), Value>,
        bytes: usize,
    },
    Covariance {
        state: Covariance,
        sample: bool,
    },
    /// The change of the value divided by the change of position, between the window's ends.
    Derivative,
    /// Trapezoids between neighbours with numbers: the area, and the last such neighbour.
    Integral {
        area: SlidingSum,
        last: Option<(Number, Number)>,
    },
    /// `$minMaxScaler`: the position of the current value between the window's extremes.
    Scaler {
        least: Number,
        most: Number,
        low: VecDeque<(u64, Number)>,
        high: VecDeque<(u64, Number)>,
    },
}

impl Sliding {
    /// Whether values in the window are read again, so that they must be kept.
    pub(super) fn reads_window(&self) -> bool {
        matches!(
            self,
            Sliding::Ends { .. }
                | Sliding::Push
                | Sliding::Concat
                | Sliding::Derivative
                | Sliding::Scaler { .. }
        )
    }

    /// Errors: a value that the function cannot accept.
    pub(super) fn check(&self, value: Option<RawValue<'_>>) -> Result<()> {
        match (self, value) {
            (Sliding::Concat, Some(RawValue::Array(_)) | None) => Ok(()),
            (Sliding::Concat, Some(other)) => Err(not_an_array("$concatArrays", other)),
            (
                Sliding::Set {
                    of_arrays: true, ..
                },
                Some(value),
            ) if !matches!(value, RawValue::Array(_)) => Err(not_an_array("$setUnion", value)),
            (Sliding::Scaler { .. }, Some(value)) if value.is_number() => Ok(()),
            (Sliding::Scaler { .. }, value) => Err(failed(format!(
                "$minMaxScaler takes a number as its input, not {}",
                value.map_or("missing", |v| v.type_name())
            ))),
            _ => Ok(()),
        }
    }

    /// Visits the members that a value adds to a set, with their keys.
    fn members(
        input: &Input,
        of_arrays: bool,
        collator: Option<&Collator>,
        mut visit: impl FnMut(Vec<u8>, RawValue<'_>),
    ) {
        let mut keyed = |value: RawValue<'_>| {
            let mut key = KeyStringBuilder::new(Directions::default());
            key.append_with(value, collator);
            visit(key.finish().0, value);
        };
        match input.value.as_ref().map(|v| v.as_raw()) {
            None => {}
            Some(RawValue::Array(array)) if of_arrays => array.iter().for_each(keyed),
            Some(value) => keyed(value),
        }
    }

    fn area(from: (Number, Number), to: (Number, Number)) -> Number {
        let (x, y) = from;
        let (x2, y2) = to;
        let mean = y.plus(y2).divide(Number::Int(2)).unwrap_or(Number::Int(0));
        mean.times(x2.minus(x))
    }

    /// Adds a document that enters the window.
    pub(super) fn add(&mut self, n: u64, input: &Input) -> Result<()> {
        match self {
            Sliding::Sum(sum) | Sliding::Average(sum) => {
                if let Some(number) = input.number() {
                    sum.add(number);
                }
            }
            Sliding::Extreme {
                better,
                candidates,
                collator,
            } => {
                let Some(raw) = input.non_null() else {
                    return Ok(());
                };
                while candidates.back().is_some_and(|(_, last)| {
                    compare_values_with(raw, last.as_raw(), collator.as_deref()) == *better
                }) {
                    candidates.pop_back();
                }
                candidates.push_back((n, raw.to_value()));
            }
            Sliding::End { last, kept } => {
                if *last || kept.is_none() {
                    *kept = Some(input.or_null().to_value());
                }
            }
            Sliding::Set {
                of_arrays,
                values,
                bytes,
                collator,
            } => Self::members(input, *of_arrays, collator.as_deref(), |key, value| {
                let size = 2 * key.len() + 64;
                let entry = values.entry(key).or_insert_with(|| {
                    *bytes += size;
                    (0, value.to_value())
                });
                entry.0 += 1;
            }),
            Sliding::Deviation { state, special, .. } => match input.number().map(Number::to_f64) {
                Some(x) if x.is_finite() => state.add(x),
                Some(_) => *special += 1,
                None => {}
            },
            Sliding::SlidingDeviation { state, .. } => {
                if let Some(x) = input.number() {
                    state.add(x.to_f64());
                }
            }
            Sliding::Numbers { sorted, .. } => {
                if let Some(x) = input.number().map(Number::to_f64)
                    && !x.is_nan()
                {
                    let at = sorted.partition_point(|y| *y < x);
                    sorted.insert(at, x);
                }
            }
            Sliding::Ranked {
                kind,
                entries,
                bytes,
                ..
            } => {
                let skips_null = matches!(kind, AccumulatorKind::MinN | AccumulatorKind::MaxN);
                if !skips_null || input.non_null().is_some() {
                    *bytes += input.bytes();
                    entries.insert((input.key.clone(), n), input.or_null().to_value());
                }
            }
            Sliding::Covariance { state, .. } => {
                if let Some((x, y)) = input.pair() {
                    state.add(x, y);
                }
            }
            Sliding::Integral { area, last } => {
                if let Some(y) = input.number() {
                    let here = (input.at, y);
                    if let Some(before) = last.replace(here) {
                        area.add(Self::area(before, here));
                    }
                }
            }
            Sliding::Scaler { low, high, .. } => {
                if let Some(x) = input.number() {
                    let compare =
                        |a: Number, b: Number| sheaf_bson::compare_values(a.into(), b.into());
                    while low.back().is_some_and(|(_, y)| compare(x, *y).is_lt()) {
                        low.pop_back();
                    }
                    low.push_back((n, x));
                    while high.back().is_some_and(|(_, y)| compare(x, *y).is_gt()) {
                        high.pop_back();
                    }
                    high.push_back((n, x));
                }
            }
            Sliding::Ends { .. } | Sliding::Push | Sliding::Concat | Sliding::Derivative => {}
        }
        Ok(())
    }

    /// Removes the window's first document. `inputs` still holds it and those after it; `upper` is
    /// the window's exclusive end.
    pub(super) fn remove(&mut self, n: u64, inputs: &Inputs, upper: u64) {
        let Some(input) = inputs.get(n) else { return };
        match self {
            Sliding::Sum(sum) | Sliding::Average(sum) => {
                if let Some(number) = input.number() {
                    sum.remove(number);
                }
            }
            Sliding::Extreme { candidates, .. } => {
                if candidates.front().is_some_and(|(first, _)| *first == n) {
                    candidates.pop_front();
                }
            }
            Sliding::Set {
                of_arrays,
                values,
                bytes,
                collator,
            } => Self::members(input, *of_arrays, collator.as_deref(), |key, _| {
                if let Some((count, _)) = values.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        values.remove(&key);
                        *bytes -= 2 * key.len() + 64;
                    }
                }
            }),
            // Windows that documents leave use a sliding deviation instead.
            Sliding::Deviation { .. } => {}
            Sliding::SlidingDeviation { state, .. } => {
                if let Some(x) = input.number() {
                    state.remove(x.to_f64());
                }
            }
            Sliding::Numbers { sorted, .. } => {
                if let Some(x) = input.number().map(Number::to_f64)
                    && !x.is_nan()
                {
                    let at = sorted.partition_point(|y| *y < x);
                    if sorted.get(at) == Some(&x) {
                        sorted.remove(at);
                    }
                }
            }
            Sliding::Ranked { entries, bytes, .. } => {
                if entries.remove(&(input.key.clone(), n)).is_some() {
                    *bytes -= input.bytes();
                }
            }
            Sliding::Covariance { state, .. } => {
                if let Some((x, y)) = input.pair() {
                    state.remove(x, y);
                }
            }
            Sliding::Integral { area, last } => {
                if let Some(y) = input.number() {
                    let mut behind = inputs.range(n + 1, upper);
                    match behind.find_map(|i| Some((i.at, i.number()?))) {
                        Some(next) => area.remove(Self::area((input.at, y), next)),
                        None => *last = None,
                    }
                }
            }
            Sliding::Scaler { low, high, .. } => {
                for ends in [low, high] {
                    if ends.front().is_some_and(|(first, _)| *first == n) {
                        ends.pop_front();
                    }
                }
            }
            Sliding::End { .. }
            | Sliding::Ends { .. }
            | Sliding::Push
            | Sliding::Concat
            | Sliding::Derivative => {}
        }
    }

    /// The value over the window from `lower` up to `upper`, for document `current`.
    pub(super) fn value(
        &self,
        inputs: &Inputs,
        (lower, upper): (u64, u64),
        current: u64,
        slides: bool,
        unit_millis: Option<i64>,
    ) -> Value {
        match self {
            Sliding::Sum(sum) => sum.total(),
            Sliding::Average(sum) => sum.average(),
            Sliding::Extreme { candidates, .. } => {
                candidates.front().map_or(Value::Null, |(_, v)| v.clone())
            }
            Sliding::End { kept, .. } if !slides => kept.clone().unwrap_or(Value::Null),
            Sliding::End { last, .. } => {
                let at = if *last {
                    upper.checked_sub(1)
                } else {
                    Some(lower)
                };
                let found = at.filter(|at| (lower..upper).contains(at));
                let found = found.and_then(|at| inputs.get(at));
                found.map_or(Value::Null, |input| input.or_null().to_value())
            }
            Sliding::Ends { n, last } => {
                let mut out = ArrayBuilder::new();
                let values = inputs.range(lower, upper);
                let skip = if *last {
                    values.len().saturating_sub(*n)
                } else {
                    0
                };
                for input in values.skip(skip).take(*n) {
                    out.push(input.or_null());
                }
                Value::Array(out.finish())
            }
            Sliding::Push => {
                let mut out = ArrayBuilder::new();
                for input in inputs.range(lower, upper) {
                    if let Some(value) = &input.value {
                        out.push(value.as_raw());
                    }
                }
                Value::Array(out.finish())
            }
            Sliding::Concat => {
                let mut out = ArrayBuilder::new();
                for input in inputs.range(lower, upper) {
                    match input.value.as_ref().map(|v| v.as_raw()) {
                        None => {}
                        Some(RawValue::Array(array)) => array.iter().for_each(|v| {
                            out.push(v);
                        }),
                        Some(value) => {
                            out.push(value);
                        }
                    }
                }
                Value::Array(out.finish())
            }
            Sliding::Set { values, .. } => {
                let mut out = ArrayBuilder::new();
                for (_, value) in values.values() {
                    out.push(value.as_raw());
                }
                Value::Array(out.finish())
            }
            Sliding::Deviation {
                special: 0,
                state,
                sample,
            } => state.finish(*sample),
            Sliding::Deviation {
                state,
                sample,
                special,
            } => undefined(state.count() + special, *sample),
            Sliding::SlidingDeviation { state, sample } => state.value(*sample),
            Sliding::Numbers {
                sorted,
                shares,
                one,
            } => {
                let at = |share: &f64| match sorted.len() {
                    0 => Value::Null,
                    n => {
                        let rank = ((share * n as f64).ceil() as usize).clamp(1, n);
                        Value::Double(sorted[rank - 1])
                    }
                };
                if *one {
                    return shares.first().map_or(Value::Null, at);
                }
                let values: Vec<Value> = shares.iter().map(at).collect();
                Value::Array(values.iter().collect())
            }
            Sliding::Ranked {
                n, kind, entries, ..
            } => {
                let mut out = ArrayBuilder::new();
                let mut push = |v: &Value| {
                    out.push(v.as_raw());
                };
                match kind {
                    AccumulatorKind::Top => {
                        return entries.values().next().cloned().unwrap_or(Value::Null);
                    }
                    AccumulatorKind::Bottom => {
                        return entries.values().next_back().cloned().unwrap_or(Value::Null);
                    }
                    AccumulatorKind::MaxN => entries.values().rev().take(*n).for_each(&mut push),
                    AccumulatorKind::BottomN => {
                        let skip = entries.len().saturating_sub(*n);
                        entries.values().skip(skip).for_each(&mut push);
                    }
                    _ => entries.values().take(*n).for_each(&mut push),
                }
                Value::Array(out.finish())
            }
            Sliding::Covariance { state, sample } => state.value(*sample),
            Sliding::Derivative => {
                if upper < lower + 2 {
                    return Value::Null;
                }
                let (Some(first), Some(last)) = (inputs.get(lower), inputs.get(upper - 1)) else {
                    return Value::Null;
                };
                let (Some(y), Some(y2)) = (first.number(), last.number()) else {
                    return Value::Null;
                };
                let Some(slope) = y2.minus(y).divide(last.at.minus(first.at)) else {
                    return Value::Null;
                };
                match unit_millis {
                    Some(millis) => slope.times(Number::Long(millis)).into(),
                    None => slope.into(),
                }
            }
            Sliding::Integral { area, .. } => {
                // The position is needed even if the area has zero width.
                let area = match area.total() {
                    Value::Int32(_) if lower == upper => return Value::Null,
                    Value::Int32(n) => Number::Double(f64::from(n)),
                    other => match Number::from_raw(other.as_raw()) {
                        Some(number) => number,
                        None => return Value::Null,
                    },
                };
                match unit_millis.and_then(|millis| area.divide(Number::Long(millis))) {
                    Some(scaled) => scaled.into(),
                    None => area.into(),
                }
            }
            Sliding::Scaler {
                least,
                most,
                low,
                high,
            } => {
                let here = inputs.get(current).and_then(Input::number);
                let (Some(x), Some((_, low)), Some((_, high))) = (here, low.front(), high.front())
                else {
                    return Value::Null;
                };
                let share = x.minus(*low).divide(high.minus(*low));
                // All values are equal: each maps to the lower end.
                let share = share.unwrap_or(Number::Int(0));
                share.times(most.minus(*least)).plus(*least).into()
            }
        }
    }

    /// Computes sums that subtraction has made imprecise again from the window. Errors: an
    /// interruption.
    pub(super) fn settle(&mut self, inputs: &Inputs, (lower, upper): (u64, u64)) -> Result<()> {
        match self {
            Sliding::SlidingDeviation { state, .. } if state.is_imprecise() => {
                let numbers = inputs.range(lower, upper).filter_map(Input::number);
                state.restart(numbers.map(Number::to_f64))
            }
            _ => Ok(()),
        }
    }

    /// Approximate bytes held in addition to the inputs.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Sliding::Extreme { candidates, .. } => candidates.len() * 48,
            Sliding::Set { bytes, .. } => *bytes,
            Sliding::Numbers { sorted, .. } => sorted.len() * 8,
            Sliding::Ranked { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}
