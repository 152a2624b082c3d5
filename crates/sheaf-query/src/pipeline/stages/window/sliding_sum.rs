//! A sum over a sliding window.
//!
//! Infinities and NaN are counted separately from the sum, since they cannot be subtracted again.

use sheaf_bson::Value;

use crate::arithmetic::{Number, Sum};

/// A sum from which terms can be removed.
#[derive(Debug, Default)]
pub(super) struct SlidingSum {
    /// The sum of the finite terms.
    sum: Sum,
    /// Terms of each type: int, long, double, decimal.
    terms: [u64; 4],
    positive_infinities: u64,
    negative_infinities: u64,
    nans: u64,
}

impl SlidingSum {
    fn count_term(&mut self, number: Number, by: i64) {
        let add = |count: &mut u64| *count = count.saturating_add_signed(by);
        let at = match number {
            Number::Int(_) => 0,
            Number::Long(_) => 1,
            Number::Double(_) => 2,
            Number::Decimal(_) => 3,
        };
        add(&mut self.terms[at]);
        let x = number.to_f64();
        let infinite = match number {
            Number::Decimal(d) => d.is_infinite(),
            _ => x.is_infinite(),
        };
        if number.is_nan() {
            add(&mut self.nans);
        } else if infinite && x > 0.0 {
            add(&mut self.positive_infinities);
        } else if infinite {
            add(&mut self.negative_infinities);
        }
    }

    /// Whether the number is neither infinite nor NaN.
    pub(super) fn is_finite(number: Number) -> bool {
        match number {
            Number::Decimal(d) => d.is_finite(),
            other => other.to_f64().is_finite(),
        }
    }

    pub(super) fn add(&mut self, number: Number) {
        self.count_term(number, 1);
        if Self::is_finite(number) {
            self.sum.add(number);
        }
    }

    pub(super) fn remove(&mut self, number: Number) {
        self.count_term(number, -1);
        if Self::is_finite(number) {
            self.sum.take_away(number);
        }
        if self.terms == [0; 4] {
            // No term is left, so the rounding error is discarded too.
            self.sum = Sum::default();
        }
    }

    /// The sum with the types of its terms, and with its infinities and NaN.
    fn settled(&self) -> Sum {
        let mut sum = self.sum;
        let [ints, longs, doubles, decimals] = self.terms;
        sum.set_terms(
            ints + longs + doubles + decimals,
            longs > 0,
            doubles > 0,
            decimals > 0,
        );
        let special = match (
            self.nans,
            self.positive_infinities,
            self.negative_infinities,
        ) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        };
        if let Some(special) = special {
            sum.override_with(special);
        }
        sum
    }

    pub(super) fn number(&self) -> Number {
        self.settled().total()
    }

    pub(super) fn total(&self) -> Value {
        self.number().into()
    }

    pub(super) fn average(&self) -> Value {
        self.settled().average().map_or(Value::Null, Value::from)
    }
}
