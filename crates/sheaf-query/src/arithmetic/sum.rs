//! Sums whose result does not depend on the order of the types of their terms.
//!
//! Integers are added exactly, doubles as a *double-double* (the sum and its accumulated rounding
//! error), decimals separately. Only the total is converted to one type, so `[0.1, 0.2, 0.3]` sums
//! to 0.6, and an intermediate total may exceed a long.

use sheaf_bson::{ArrayBuf, ArrayBuilder, Decimal128, RawArray, RawValue};

use super::{Number, decimal};

/// A running sum.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    integers: i128,
    high: f64,
    low: f64,
    decimals: Decimal128,
    widest: Widest,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Widest {
    Int,
    Long,
    Double,
    Decimal,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            integers: 0,
            high: 0.0,
            low: 0.0,
            decimals: Decimal128::ZERO,
            widest: Widest::Int,
            count: 0,
        }
    }
}

impl Sum {
    /// Adds one term.
    pub fn add(&mut self, number: Number) {
        self.count += 1;
        let widest = match number {
            Number::Int(n) => {
                self.integers += i128::from(n);
                Widest::Int
            }
            Number::Long(n) => {
                self.integers += i128::from(n);
                Widest::Long
            }
            Number::Double(x) => {
                self.add_double(x);
                Widest::Double
            }
            Number::Decimal(d) => {
                self.decimals = decimal::add(self.decimals, d);
                Widest::Decimal
            }
        };
        if widest > self.widest {
            self.widest = widest;
        }
    }

    fn add_double(&mut self, x: f64) {
        let sum = self.high + x;
        if sum.is_finite() {
            // Knuth's two-sum: computes the exact rounding error of the addition.
            let back = sum - self.high;
            self.low += (self.high - (sum - back)) + (x - back);
        }
        self.high = sum;
    }

    /// Subtracts a finite term, as a sliding window needs. The widest type and the count do not
    /// change: see [`Sum::set_terms`].
    pub fn take_away(&mut self, number: Number) {
        match number {
            Number::Int(n) => self.integers -= i128::from(n),
            Number::Long(n) => self.integers -= i128::from(n),
            Number::Double(x) => self.add_double(-x),
            Number::Decimal(d) => self.decimals = decimal::subtract(self.decimals, d),
        }
    }

    /// Sets the number of terms, and whether some are longs, doubles, decimals.
    pub fn set_terms(&mut self, count: u64, longs: bool, doubles: bool, decimals: bool) {
        self.count = count;
        self.widest = match (longs, doubles, decimals) {
            (_, _, true) => Widest::Decimal,
            (_, true, false) => Widest::Double,
            (true, false, false) => Widest::Long,
            (false, false, false) => Widest::Int,
        };
    }

    /// Makes the sum infinite or NaN, regardless of its terms.
    pub fn override_with(&mut self, special: f64) {
        self.high = special;
        self.low = 0.0;
    }

    /// Adds all terms of another sum.
    pub fn merge(&mut self, other: &Sum) {
        self.integers += other.integers;
        self.add_double(other.high);
        self.low += other.low;
        self.decimals = decimal::add(self.decimals, other.decimals);
        if other.widest > self.widest {
            self.widest = other.widest;
        }
        self.count += other.count;
    }

    /// The state as an array, for [`Sum::from_partial`].
    pub fn to_partial(&self) -> ArrayBuf {
        let mut out = ArrayBuilder::new();
        out.push((self.integers >> 64) as i64)
            .push(self.integers as i64)
            .push(self.high)
            .push(self.low)
            .push(self.decimals)
            .push(self.widest as i32)
            .push(self.count as i64);
        out.finish()
    }

    /// Restores the state that [`Sum::to_partial`] wrote; `None` if the array has another form.
    pub fn from_partial(partial: RawArray<'_>) -> Option<Sum> {
        let mut values = partial.iter();
        let mut next = || values.next();
        let (Some(RawValue::Int64(top)), Some(RawValue::Int64(bottom))) = (next(), next()) else {
            return None;
        };
        let (Some(RawValue::Double(high)), Some(RawValue::Double(low))) = (next(), next()) else {
            return None;
        };
        let (
            Some(RawValue::Decimal128(decimals)),
            Some(RawValue::Int32(widest)),
            Some(RawValue::Int64(count)),
        ) = (next(), next(), next())
        else {
            return None;
        };
        Some(Sum {
            integers: (i128::from(top) << 64) | i128::from(bottom as u64),
            high,
            low,
            decimals,
            widest: match widest {
                0 => Widest::Int,
                1 => Widest::Long,
                2 => Widest::Double,
                _ => Widest::Decimal,
            },
            count: count as u64,
        })
    }

    /// Number of terms.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn double_total(&self) -> f64 {
        if !self.high.is_finite() {
            return self.high;
        }
        let mut total = *self;
        total.integers = 0;
        // Split the i128 into three parts, each exact as a double.
        let top = self.integers >> 96;
        let middle = (self.integers >> 48) & 0xFFFF_FFFF_FFFF;
        let bottom = self.integers & 0xFFFF_FFFF_FFFF;
        total.add_double(top as f64 * 2f64.powi(96));
        total.add_double(middle as f64 * 2f64.powi(48));
        total.add_double(bottom as f64);
        total.high + total.low
    }

    fn decimal_total(&self) -> Decimal128 {
        let mut total = self.decimals;
        if self.integers != 0 {
            let digits = Decimal128::from_parts(self.integers < 0, self.integers.unsigned_abs(), 0);
            total = decimal::add(total, digits.unwrap_or(Decimal128::NAN));
        }
        // A zero must be added, too: its exponent 0 lowers that of the total to 0.
        total = decimal::add(total, decimal::from_f64_exact(self.high));
        if self.high.is_finite() && self.low != 0.0 {
            total = decimal::add(total, decimal::from_f64_exact(self.low));
        }
        total
    }

    /// The sum: an int or long if all terms were integers and it fits, a decimal if a term was one,
    /// otherwise a double. 0 without terms.
    pub fn total(&self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.decimal_total()),
            Widest::Double => Number::Double(self.double_total()),
            Widest::Int if i32::try_from(self.integers).is_ok() => {
                Number::Int(self.integers as i32)
            }
            _ => match i64::try_from(self.integers) {
                Ok(n) => Number::Long(n),
                Err(_) => Number::Double(self.double_total()),
            },
        }
    }

    /// The mean; `None` without terms.
    pub fn average(&self) -> Option<Number> {
        if self.count == 0 {
            return None;
        }
        Some(if self.widest == Widest::Decimal {
            let count = Decimal128::from_parts(false, u128::from(self.count), 0);
            Number::Decimal(decimal::divide(
                self.decimal_total(),
                count.unwrap_or(Decimal128::NAN),
            ))
        } else {
            Number::Double(self.double_total() / self.count as f64)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(numbers: impl IntoIterator<Item = Number>) -> Sum {
        let mut sum = Sum::default();
        numbers.into_iter().for_each(|n| sum.add(n));
        sum
    }

    #[test]
    fn totals() {
        use Number::{Double, Int, Long};
        assert_eq!(sum([]).total(), Int(0));
        assert_eq!(sum([]).average(), None);
        assert_eq!(sum([Int(1), Int(2)]).total(), Int(3));
        assert_eq!(sum([Int(i32::MAX), Int(1)]).total(), Long(1 << 31));
        assert_eq!(sum([Int(1), Long(2)]).total(), Long(3));
        assert_eq!(
            sum([Double(0.1), Double(0.2), Double(0.3)]).total(),
            Double(0.6)
        );
        assert_eq!(
            sum([Double(1e100), Int(1), Double(-1e100)]).total(),
            Double(1.0)
        );
        assert_eq!(
            sum([Long(i64::MAX), Long(1), Long(-1)]).total(),
            Long(i64::MAX)
        );
        assert_eq!(
            sum([Long(i64::MAX), Long(1)]).total(),
            Double(9_223_372_036_854_775_808.0)
        );
        assert_eq!(
            sum([Double(f64::INFINITY), Int(1)]).total(),
            Double(f64::INFINITY)
        );
        let decimal: Decimal128 = "0.50".parse().unwrap();
        let total = sum([Number::Decimal(decimal), Int(2), Double(0.25)]).total();
        assert_eq!(
            Value::from(total),
            Value::Decimal128("2.75".parse().unwrap())
        );
        let opposite = ["9E+6144", "-9E+6144"].map(|d| Number::Decimal(d.parse().unwrap()));
        assert_eq!(
            Value::from(sum(opposite).total()),
            Value::Decimal128("0".parse().unwrap())
        );
    }

    #[test]
    fn a_sum_crosses_and_merges() {
        let decimal: Decimal128 = "0.1".parse().unwrap();
        let terms = [
            Number::Long(i64::MAX),
            Number::Long(i64::MAX),
            Number::Int(-3),
            Number::Double(0.1),
            Number::Double(1e100),
            Number::Double(-1e100),
            Number::Decimal(decimal),
        ];
        for cut in 0..=terms.len() {
            let mut left = sum(terms[..cut].iter().copied());
            let right = sum(terms[cut..].iter().copied());
            let crossed = Sum::from_partial(right.to_partial().as_raw()).unwrap();
            left.merge(&crossed);
            let whole = sum(terms);
            assert_eq!(
                Value::from(left.total()),
                Value::from(whole.total()),
                "{cut}"
            );
            assert_eq!(left.count(), whole.count());
        }
        assert!(Sum::from_partial(ArrayBuf::new().as_raw()).is_none());
    }

    #[test]
    fn averages() {
        use Number::{Double, Int};
        assert_eq!(sum([Int(1), Int(2)]).average(), Some(Double(1.5)));
        let extremes = sum([Number::Long(i64::MAX), Number::Long(i64::MIN)]);
        assert_eq!(extremes.average(), Some(Double(-0.5)));
        assert_eq!(extremes.total(), Number::Long(-1));
        let decimal: Decimal128 = "1".parse().unwrap();
        let average = sum([Number::Decimal(decimal), Int(2)]).average();
        assert_eq!(
            average.map(Value::from),
            Some(Value::Decimal128("1.5".parse().unwrap()))
        );
    }

    use sheaf_bson::Value;
}
