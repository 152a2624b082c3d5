//! Functions of preceding and following values: exponential moving averages and gap filling.

use std::collections::VecDeque;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Decimal128, RawDoc, RawValue, Value};

use crate::arithmetic::{Number, decimal};
use crate::expression::{EvalValue, Expression, location};
use crate::pipeline::accumulator::size;

use super::functions::WindowFunction;

/// `$expMovingAvg`.
pub(super) struct MovingAverage {
    input: Expression,
    alpha: Decimal128,
    average: Option<Decimal128>,
    /// Some input was a decimal: the result is a decimal.
    decimal: bool,
    ready: VecDeque<Value>,
}

impl MovingAverage {
    pub(super) fn new(input: &Expression, alpha: Decimal128) -> MovingAverage {
        MovingAverage {
            input: input.clone(),
            alpha,
            average: None,
            decimal: false,
            ready: VecDeque::new(),
        }
    }
}

impl WindowFunction for MovingAverage {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let value = self.input.evaluate_on(doc)?;
        // A value that is not a number leaves the average unchanged.
        if let Some(number) = value.as_raw().and_then(Number::from_raw) {
            self.decimal |= matches!(number, Number::Decimal(_));
            let x = match number {
                Number::Double(x) => decimal::from_f64_full(x),
                other => other.to_decimal(),
            };
            self.average = Some(match self.average {
                None => x,
                Some(before) => {
                    let rest = decimal::subtract(decimal::from_i64(1), self.alpha);
                    decimal::add(
                        decimal::multiply(x, self.alpha),
                        decimal::multiply(before, rest),
                    )
                }
            });
        }
        self.ready.push_back(match self.average {
            None => Value::Null,
            Some(average) if self.decimal => Value::Decimal128(average),
            Some(average) => Value::Double(average.to_f64()),
        });
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        Ok(self.ready.pop_front())
    }

    fn bytes(&self) -> usize {
        self.ready.len() * size_of::<Value>()
    }
}

/// The last value that was not null.
pub(super) struct Locf {
    input: Expression,
    last: Value,
    ready: VecDeque<Value>,
    bytes: usize,
}

impl Locf {
    pub(super) fn new(input: &Expression) -> Locf {
        Locf {
            input: input.clone(),
            last: Value::Null,
            ready: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl WindowFunction for Locf {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let value = self.input.evaluate_on(doc)?;
        if value.non_null().is_some() {
            self.last = value.into_value().unwrap_or(Value::Null);
        }
        self.bytes += size(self.last.as_raw()) + size_of::<Value>();
        self.ready.push_back(self.last.clone());
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        let value = self.ready.pop_front();
        if let Some(value) = &value {
            self.bytes -= size(value.as_raw()) + size_of::<Value>();
        }
        Ok(value)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Linear interpolation between the preceding and the following number.
pub(super) struct LinearFill {
    input: Expression,
    place: Option<Expression>,
    /// The last number and its position.
    before: Option<(Number, Number)>,
    last_place: Option<Number>,
    /// Positions of the later documents, which have no number.
    waiting: Vec<Number>,
    ready: VecDeque<Value>,
    ended: bool,
}

impl LinearFill {
    /// `place`: the only field that the partition is sorted by.
    pub(super) fn new(input: &Expression, place: Option<&Expression>) -> LinearFill {
        LinearFill {
            input: input.clone(),
            place: place.cloned(),
            before: None,
            last_place: None,
            waiting: Vec::new(),
            ready: VecDeque::new(),
            ended: false,
        }
    }
}

impl WindowFunction for LinearFill {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let place = match &self.place {
            Some(path) => path.evaluate_on(doc)?,
            None => EvalValue::Missing,
        };
        let at = match place.as_raw() {
            Some(RawValue::DateTime(date)) => Number::Long(date.0),
            other => other.and_then(Number::from_raw).ok_or_else(|| {
                location(
                    605002,
                    "$linearFill requires a sortBy field that is a number or a date",
                )
            })?,
        };
        if let Some(last) = self.last_place
            && sheaf_bson::compare_values(last.into(), at.into()).is_eq()
        {
            return Err(location(
                6050106,
                "There can be no repeated values in the sort field of $linearFill",
            ));
        }
        self.last_place = Some(at);
        let value = self.input.evaluate_on(doc)?;
        let Some(raw) = value.non_null() else {
            match self.before {
                // Before the first number there is nothing to interpolate from.
                None => self.ready.push_back(Value::Null),
                Some(_) => self.waiting.push(at),
            }
            return Ok(());
        };
        let Some(here) = Number::from_raw(raw) else {
            return Err(location(
                605001,
                format!(
                    "Value to be filled must be numeric or nullish, but found {}",
                    raw.type_name()
                ),
            ));
        };
        if let Some((start, from)) = self.before {
            let slope = here.minus(start).divide(at.minus(from));
            for place in self.waiting.drain(..) {
                let rise = slope.map(|slope| slope.times(place.minus(from)));
                let value = rise.map_or(start, |rise| start.plus(rise));
                self.ready.push_back(value.into());
            }
        }
        self.before = Some((here, at));
        self.ready.push_back(raw.to_value());
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
        // After the last number there is nothing to interpolate to.
        for _ in self.waiting.drain(..) {
            self.ready.push_back(Value::Null);
        }
    }

    fn next(&mut self) -> Result<Option<Value>> {
        Ok(self.ready.pop_front())
    }

    fn bytes(&self) -> usize {
        (self.ready.len() + self.waiting.len()) * size_of::<Value>()
    }
}
