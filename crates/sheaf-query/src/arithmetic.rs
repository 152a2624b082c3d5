//! Arithmetic over BSON's four numeric types.
//!
//! The result has the wider type of the two operands, in the order
//!
//! ```text
//!   int < long < double < decimal
//! ```
//!
//! and an int result that does not fit an int becomes a long. The caller decides what happens when
//! a long overflows: updates (`$inc`, `$mul`) reject it ([`Number::add_exact`] returns `None`),
//! expressions continue in double ([`Number::plus`]). As in MongoDB, doubles are rounded to 15
//! digits when they become decimals.

use sheaf_bson::{Decimal128, RawValue, Value};

pub mod decimal;
pub mod decimal_functions;
pub(crate) mod deviation;
pub(crate) mod quantiles;
pub mod sum;

pub(crate) use deviation::Deviation;
pub(crate) use quantiles::Quantiles;
pub use sum::Sum;

/// A number of any of BSON's four numeric types.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// 32-bit integer.
    Int(i32),
    /// 64-bit integer.
    Long(i64),
    /// Double.
    Double(f64),
    /// Decimal128.
    Decimal(Decimal128),
}

/// Two operands converted to a common type. Ints are computed as longs.
enum Pair {
    /// The flag is true if both were ints, so that the result is an int if it fits.
    Integers(i64, i64, bool),
    Doubles(f64, f64),
    Decimals(Decimal128, Decimal128),
}

impl Number {
    /// The number in a value; `None` if the value is not a number.
    #[inline]
    pub fn from_raw(value: RawValue<'_>) -> Option<Number> {
        Some(match value {
            RawValue::Int32(n) => Number::Int(n),
            RawValue::Int64(n) => Number::Long(n),
            RawValue::Double(x) => Number::Double(x),
            RawValue::Decimal128(d) => Number::Decimal(d),
            _ => return None,
        })
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int(n) => f64::from(n),
            Number::Long(n) => n as f64,
            Number::Double(x) => x,
            Number::Decimal(d) => d.to_f64(),
        }
    }

    /// The number as a decimal; a double is rounded to 15 digits.
    pub fn to_decimal(self) -> Decimal128 {
        match self {
            Number::Int(n) => decimal::from_i64(i64::from(n)),
            Number::Long(n) => decimal::from_i64(n),
            Number::Double(x) => Decimal128::from_f64(x),
            Number::Decimal(d) => d,
        }
    }

    /// Converts to a long as MongoDB does where it requires an integer: a double is truncated, a
    /// decimal is rounded half to even, a number out of range saturates, NaN is 0.
    pub fn saturating_i64(self) -> i64 {
        match self {
            Number::Int(n) => i64::from(n),
            Number::Long(n) => n,
            Number::Double(x) => x as i64,
            Number::Decimal(d) => {
                let (_, _, exponent) = d.decompose();
                let whole = match exponent < 0 {
                    true => decimal::quantize(d, 0, Rounding::HalfEven),
                    false => d,
                };
                let exact = RawValue::Decimal128(whole).as_i64_exact();
                exact.unwrap_or_else(|| whole.to_f64() as i64)
            }
        }
    }

    /// An int or a long, as a long; `None` for the other types.
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Number::Int(n) => Some(i64::from(n)),
            Number::Long(n) => Some(n),
            _ => None,
        }
    }

    /// A long that fits an int is converted to an int; any other number is unchanged.
    pub fn narrowed(self) -> Number {
        match self {
            Number::Long(n) => Number::integer(n, true),
            other => other,
        }
    }

    /// Whether the number is a zero of any type and sign.
    pub fn is_zero(self) -> bool {
        match self {
            Number::Int(n) => n == 0,
            Number::Long(n) => n == 0,
            Number::Double(x) => x == 0.0,
            Number::Decimal(d) => d.is_zero(),
        }
    }

    /// Whether the number is NaN, as a double or a decimal.
    pub fn is_nan(self) -> bool {
        match self {
            Number::Double(x) => x.is_nan(),
            Number::Decimal(d) => d.is_nan(),
            _ => false,
        }
    }

    fn pair(self, other: Number) -> Pair {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Pair::Integers(i64::from(a), i64::from(b), true),
            (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
                Pair::Decimals(self.to_decimal(), other.to_decimal())
            }
            (Number::Double(_), _) | (_, Number::Double(_)) => {
                Pair::Doubles(self.to_f64(), other.to_f64())
            }
            (a, b) => Pair::Integers(
                a.as_integer().unwrap_or(0),
                b.as_integer().unwrap_or(0),
                false,
            ),
        }
    }

    fn integer(n: i64, narrow: bool) -> Number {
        match i32::try_from(n) {
            Ok(n) if narrow => Number::Int(n),
            _ => Number::Long(n),
        }
    }

    /// The sum; `None` on overflow of a long.
    pub fn add_exact(self, other: Number) -> Option<Number> {
        Some(match self.pair(other) {
            Pair::Integers(a, b, narrow) => Number::integer(a.checked_add(b)?, narrow),
            Pair::Doubles(a, b) => Number::Double(a + b),
            Pair::Decimals(a, b) => Number::Decimal(decimal::add(a, b)),
        })
    }

    /// The product; `None` on overflow of a long.
    pub fn multiply_exact(self, other: Number) -> Option<Number> {
        Some(match self.pair(other) {
            Pair::Integers(a, b, narrow) => Number::integer(a.checked_mul(b)?, narrow),
            Pair::Doubles(a, b) => Number::Double(a * b),
            Pair::Decimals(a, b) => Number::Decimal(decimal::multiply(a, b)),
        })
    }

    /// The difference; `None` on overflow of a long.
    pub fn subtract_exact(self, other: Number) -> Option<Number> {
        Some(match self.pair(other) {
            Pair::Integers(a, b, narrow) => Number::integer(a.checked_sub(b)?, narrow),
            Pair::Doubles(a, b) => Number::Double(a - b),
            Pair::Decimals(a, b) => Number::Decimal(decimal::subtract(a, b)),
        })
    }

    /// The sum; a double on overflow of a long.
    pub fn plus(self, other: Number) -> Number {
        self.add_exact(other)
            .unwrap_or_else(|| Number::Double(self.to_f64() + other.to_f64()))
    }

    /// The product; a double on overflow of a long.
    pub fn times(self, other: Number) -> Number {
        self.multiply_exact(other)
            .unwrap_or_else(|| Number::Double(self.to_f64() * other.to_f64()))
    }

    /// The difference; a double on overflow of a long.
    pub fn minus(self, other: Number) -> Number {
        self.subtract_exact(other)
            .unwrap_or_else(|| Number::Double(self.to_f64() - other.to_f64()))
    }

    /// The quotient: a decimal if an operand is one, otherwise a double. `None`: division by zero.
    pub fn divide(self, other: Number) -> Option<Number> {
        if other.is_zero() {
            return None;
        }
        Some(match self.pair(other) {
            Pair::Integers(a, b, _) => Number::Double(a as f64 / b as f64),
            Pair::Doubles(a, b) => Number::Double(a / b),
            Pair::Decimals(a, b) => Number::Decimal(decimal::divide(a, b)),
        })
    }

    /// The remainder with the sign of `self`. `None`: division by zero.
    pub fn remainder(self, other: Number) -> Option<Number> {
        if other.is_zero() {
            return None;
        }
        Some(match self.pair(other) {
            // In machine arithmetic, i64::MIN % -1 overflows; the mathematical result is 0.
            Pair::Integers(a, b, narrow) => Number::integer(a.wrapping_rem(b), narrow),
            Pair::Doubles(a, b) => Number::Double(a % b),
            Pair::Decimals(a, b) => Number::Decimal(decimal::remainder(a, b)),
        })
    }

    /// The absolute value; an int that does not fit becomes a long. `None` for the smallest long.
    pub fn abs(self) -> Option<Number> {
        Some(match self {
            Number::Int(n) => Number::integer(i64::from(n).abs(), true),
            Number::Long(n) => Number::Long(n.checked_abs()?),
            Number::Double(x) => Number::Double(x.abs()),
            Number::Decimal(d) => Number::Decimal(decimal::abs(d)),
        })
    }

    /// Rounds to `place` digits after the decimal point (negative: before it). `None` if an integer
    /// result does not fit a long.
    pub fn round(self, place: i32, rounding: Rounding) -> Option<Number> {
        Some(match self {
            Number::Int(n) => Number::integer(round_integer(i64::from(n), place, rounding)?, true),
            Number::Long(n) => Number::Long(round_integer(n, place, rounding)?),
            Number::Double(x) => Number::Double(round_double(x, place, rounding)),
            Number::Decimal(d) => Number::Decimal(decimal::round(d, place, rounding)),
        })
    }
}

/// How discarded digits affect the remaining ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to the even digit.
    HalfEven,
    /// Toward zero.
    Down,
    /// Toward negative infinity.
    Floor,
    /// Toward positive infinity.
    Ceiling,
}

fn round_integer(n: i64, place: i32, rounding: Rounding) -> Option<i64> {
    if place >= 0 {
        return Some(n);
    }
    // A unit of 10^20 exceeds every long.
    let unit = 10i128.pow(place.unsigned_abs().min(20));
    let n = i128::from(n);
    let below = n.div_euclid(unit);
    let rest = n.rem_euclid(unit);
    let units = match rounding {
        Rounding::Floor => below,
        Rounding::Ceiling => below + i128::from(rest > 0),
        Rounding::Down => n / unit,
        Rounding::HalfEven => {
            let up = rest * 2 > unit || (rest * 2 == unit && below % 2 != 0);
            below + i128::from(up)
        }
    };
    i64::try_from(units * unit).ok()
}

fn round_double(x: f64, place: i32, rounding: Rounding) -> f64 {
    if !x.is_finite() {
        return x;
    }
    if place == 0 {
        return match rounding {
            Rounding::HalfEven => x.round_ties_even(),
            Rounding::Down => x.trunc(),
            Rounding::Floor => x.floor(),
            Rounding::Ceiling => x.ceil(),
        };
    }
    // Round in decimal: multiplying by a power of ten would itself round. 1.005 * 100 is not 100.5.
    decimal::round(decimal::from_f64_full(x), place, rounding).to_f64()
}

impl From<Number> for Value {
    fn from(number: Number) -> Value {
        match number {
            Number::Int(n) => Value::Int32(n),
            Number::Long(n) => Value::Int64(n),
            Number::Double(x) => Value::Double(x),
            Number::Decimal(d) => Value::Decimal128(d),
        }
    }
}

impl From<Number> for RawValue<'_> {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(n) => RawValue::Int32(n),
            Number::Long(n) => RawValue::Int64(n),
            Number::Double(x) => RawValue::Double(x),
            Number::Decimal(d) => RawValue::Decimal128(d),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dec(text: &str) -> Number {
        Number::Decimal(text.parse().unwrap())
    }

    #[test]
    fn promotion() {
        use Number::{Double, Int, Long};
        assert_eq!(Int(1).plus(Int(2)), Int(3));
        assert_eq!(Int(i32::MAX).plus(Int(1)), Long(1 << 31));
        assert_eq!(Int(i32::MIN).minus(Int(1)), Long(i64::from(i32::MIN) - 1));
        assert_eq!(Int(1).plus(Long(2)), Long(3));
        assert_eq!(Long(1).plus(Double(0.5)), Double(1.5));
        assert_eq!(Int(65536).times(Int(65536)), Long(1 << 32));
        assert_eq!(Double(0.1).plus(dec("0.2")), dec("0.300000000000000"));
        assert_eq!(Long(7).times(dec("1.10")), dec("7.70"));
    }

    #[test]
    fn read_as_an_integer() {
        for (number, whole) in [
            (Number::Double(1.9), 1),
            (Number::Double(-1.9), -1),
            (Number::Double(f64::NAN), 0),
            (Number::Double(1e300), i64::MAX),
            (dec("1.5"), 2),
            (dec("2.5"), 2),
            (dec("0.51"), 1),
            (dec("-1E+40"), i64::MIN),
            (dec("1E+3"), 1000),
            (dec("NaN"), 0),
        ] {
            assert_eq!(number.saturating_i64(), whole, "{number:?}");
        }
    }

    #[test]
    fn long_overflow() {
        use Number::{Double, Int, Long};
        assert_eq!(Long(i64::MAX).add_exact(Int(1)), None);
        assert_eq!(Long(i64::MAX).multiply_exact(Int(2)), None);
        assert_eq!(Long(i64::MIN).subtract_exact(Int(1)), None);
        assert_eq!(
            Long(i64::MAX).plus(Int(1)),
            Double(9_223_372_036_854_775_808.0)
        );
        assert_eq!(Long(i64::MIN).abs(), None);
        assert_eq!(Int(i32::MIN).abs(), Some(Long(1 << 31)));
        assert_eq!(Long(i64::MIN).remainder(Int(-1)), Some(Long(0)));
    }

    #[test]
    fn division() {
        use Number::{Double, Int, Long};
        assert_eq!(Int(7).divide(Int(2)), Some(Double(3.5)));
        assert_eq!(Int(7).divide(Int(0)), None);
        assert_eq!(Int(7).divide(dec("0.0")), None);
        assert_eq!(Int(7).divide(dec("2")), Some(dec("3.5")));
        assert_eq!(Int(-7).remainder(Int(3)), Some(Int(-1)));
        assert_eq!(Long(-7).remainder(Double(2.5)), Some(Double(-2.0)));
        assert_eq!(dec("7.5").remainder(Int(2)), Some(dec("1.5")));
    }

    #[test]
    fn rounding() {
        use Number::{Double, Int, Long};
        let round = |n: Number, place| n.round(place, Rounding::HalfEven);
        assert_eq!(round(Int(15), -1), Some(Int(20)));
        assert_eq!(round(Int(25), -1), Some(Int(20)));
        assert_eq!(round(Int(-25), -1), Some(Int(-20)));
        assert_eq!(round(Int(-15), -1), Some(Int(-20)));
        assert_eq!(round(Int(i32::MAX), -1), Some(Long(2_147_483_650)));
        assert_eq!(round(Long(i64::MAX), -1), None);
        assert_eq!(round(Long(5), -30), Some(Long(0)));
        assert_eq!(round(Double(1.005), 2), Some(Double(1.0)));
        assert_eq!(round(Double(2.5), 0), Some(Double(2.0)));
        assert_eq!(round(Double(1234.5), -2), Some(Double(1200.0)));
        assert_eq!(round(dec("2.675"), 2), Some(dec("2.68")));
        let down = |n: Number, place| n.round(place, Rounding::Down);
        assert_eq!(down(Double(-7.85), 1), Some(Double(-7.8)));
        assert_eq!(down(Int(-19), -1), Some(Int(-10)));
        assert_eq!(Double(-1.5).round(0, Rounding::Floor), Some(Double(-2.0)));
        assert_eq!(dec("-1.5").round(0, Rounding::Ceiling), Some(dec("-1")));
    }
}
