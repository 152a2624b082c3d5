//! Decimal128: sixteen bytes of decimal floating point, 34 digits.
//!
//! BSON stores the binary integer form (BID) of IEEE 754-2008, little-endian:
//!
//! ```text
//!  bit 127   126 ..... 113   112 ........ 0
//!      sign  exponent+6176   coefficient         first two exponent bits not 11
//!      sign  11 ...                              coefficient above 10^34 - 1: reads as 0
//!      sign  11110 ...                           infinity
//!      sign  11111 ...                           NaN
//! ```
//!
//! A value is sign, coefficient (0 ..= 10^34 - 1) and exponent (-6176 ..= 6111); 1.0 and 1.00 are
//! two representations of one value, and storage preserves both. This module has representation,
//! text, exact comparison and conversion; arithmetic is in the expression language.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::error::BsonError;

/// A decimal as stored, little-endian. `==` compares representations; for values see
/// [`Decimal128::cmp_value`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal128(pub [u8; 16]);

const COEFFICIENT_MAX: u128 = 10u128.pow(34) - 1;
const EXPONENT_MAX: i32 = 6111;
const EXPONENT_MIN: i32 = -6176;
const BIAS: i32 = 6176;
const DIGITS_MAX: usize = 34;

impl Decimal128 {
    /// Zero with exponent 0.
    pub const ZERO: Decimal128 = Decimal128::from_bits(0x3040 << 112);
    /// Not a number.
    pub const NAN: Decimal128 = Decimal128::from_bits(0x7C00 << 112);
    /// Positive infinity.
    pub const INFINITY: Decimal128 = Decimal128::from_bits(0x7800 << 112);
    /// Negative infinity.
    pub const NEG_INFINITY: Decimal128 = Decimal128::from_bits(0xF800 << 112);

    const fn from_bits(bits: u128) -> Decimal128 {
        Decimal128(bits.to_le_bytes())
    }

    #[inline]
    const fn bits(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    #[inline]
    const fn special(self) -> u32 {
        (self.bits() >> 122) as u32 & 0x1F
    }

    /// Whether this is NaN, of either sign and any payload.
    #[inline]
    pub const fn is_nan(self) -> bool {
        self.special() == 0x1F
    }

    /// Whether this is an infinity.
    #[inline]
    pub const fn is_infinite(self) -> bool {
        self.special() == 0x1E
    }

    /// Whether this is neither NaN nor infinite.
    #[inline]
    pub const fn is_finite(self) -> bool {
        self.special() < 0x1E
    }

    /// Whether the sign bit is set; true for -0, and possibly for NaN.
    #[inline]
    pub const fn is_negative(self) -> bool {
        self.bits() >> 127 == 1
    }

    /// Whether this is a zero of either sign and any exponent.
    #[inline]
    pub fn is_zero(self) -> bool {
        self.is_finite() && self.decompose().1 == 0
    }

    /// Sign (true: negative), coefficient, exponent: the value is coefficient times ten to the
    /// exponent. NaN and infinities return coefficient 0.
    #[inline]
    pub const fn decompose(self) -> (bool, u128, i32) {
        let bits = self.bits();
        let negative = bits >> 127 == 1;
        if self.special() >= 0x1E {
            return (negative, 0, 0);
        }
        if (bits >> 125) & 3 == 3 {
            let exponent = ((bits >> 111) & 0x3FFF) as i32 - BIAS;
            return (negative, 0, exponent);
        }
        let exponent = ((bits >> 113) & 0x3FFF) as i32 - BIAS;
        let coefficient = bits & ((1 << 113) - 1);
        (
            negative,
            if coefficient > COEFFICIENT_MAX {
                0
            } else {
                coefficient
            },
            exponent,
        )
    }

    /// The decimal with these parts; `None` when coefficient or exponent is out of range, even if
    /// another representation of the value would fit.
    pub const fn from_parts(
        negative: bool,
        coefficient: u128,
        exponent: i32,
    ) -> Option<Decimal128> {
        if coefficient > COEFFICIENT_MAX || exponent < EXPONENT_MIN || exponent > EXPONENT_MAX {
            return None;
        }
        let bits = ((negative as u128) << 127) | (((exponent + BIAS) as u128) << 113) | coefficient;
        Some(Decimal128::from_bits(bits))
    }

    /// The value as an `i64` if it is exactly one.
    pub fn to_i64_exact(self) -> Option<i64> {
        if !self.is_finite() {
            return None;
        }
        let (negative, mut coefficient, mut exponent) = self.decompose();
        if coefficient == 0 {
            return Some(0);
        }
        while exponent < 0 {
            if !coefficient.is_multiple_of(10) {
                return None;
            }
            coefficient /= 10;
            exponent += 1;
        }
        let scale = 10u128.checked_pow(u32::try_from(exponent).ok()?)?;
        let magnitude = i128::try_from(coefficient.checked_mul(scale)?).ok()?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }

    /// The value as an `i64`, rounded half to even; out of range it is the nearest end of the
    /// range, and NaN is 0.
    pub fn to_i64_saturating(self) -> i64 {
        let limit = |negative| if negative { i64::MIN } else { i64::MAX };
        let (negative, coefficient, exponent) = self.decompose();
        if self.is_nan() {
            return 0;
        }
        if self.is_infinite() {
            return limit(negative);
        }
        let magnitude = match u32::try_from(exponent) {
            Ok(exponent) if coefficient > 0 => {
                let scale = 10u128.checked_pow(exponent);
                match scale.and_then(|scale| coefficient.checked_mul(scale)) {
                    Some(magnitude) => magnitude,
                    None => return limit(negative),
                }
            }
            Ok(_) => 0,
            Err(_) => match 10u128.checked_pow(exponent.unsigned_abs()) {
                None => 0,
                Some(scale) => {
                    let (whole, rest) = (coefficient / scale, coefficient % scale);
                    let up = match rest.cmp(&(scale / 2)) {
                        Ordering::Less => false,
                        Ordering::Equal => whole % 2 == 1,
                        Ordering::Greater => true,
                    };
                    whole + u128::from(up)
                }
            },
        };
        match i128::try_from(magnitude) {
            Ok(magnitude) => i64::try_from(if negative { -magnitude } else { magnitude })
                .unwrap_or(limit(negative)),
            Err(_) => limit(negative),
        }
    }

    /// The nearest double, ties to even; infinite if out of a double's range.
    pub fn to_f64(self) -> f64 {
        let (negative, coefficient, exponent) = self.decompose();
        let magnitude = if self.is_nan() {
            f64::NAN
        } else if self.is_infinite() {
            f64::INFINITY
        } else if coefficient < 1 << 53 && (-22..=22).contains(&exponent) {
            // Both operands are exact doubles, so one operation rounds once.
            let scale = POWERS_F64[exponent.unsigned_abs() as usize];
            if exponent < 0 {
                coefficient as f64 / scale
            } else {
                coefficient as f64 * scale
            }
        } else {
            format!("{coefficient}e{exponent}")
                .parse()
                .unwrap_or(f64::NAN)
        };
        if negative { -magnitude } else { magnitude }
    }

    /// The double rounded to 15 significant digits, as in MongoDB's conversion.
    pub fn from_f64(x: f64) -> Decimal128 {
        if x.is_nan() {
            return Decimal128::NAN;
        }
        if x.is_infinite() {
            return if x < 0.0 {
                Decimal128::NEG_INFINITY
            } else {
                Decimal128::INFINITY
            };
        }
        if x == 0.0 {
            return Decimal128::from_parts(x.is_sign_negative(), 0, 0).unwrap_or(Decimal128::ZERO);
        }
        let text = format!("{:.14e}", x.abs());
        let parts = || {
            let (digits, exponent) = text.split_once('e')?;
            let coefficient: u128 = digits.replace('.', "").parse().ok()?;
            Decimal128::from_parts(x < 0.0, coefficient, exponent.parse::<i32>().ok()? - 14)
        };
        parts().unwrap_or(Decimal128::NAN)
    }

    /// Compares by value: NaN lowest and equal to itself, zeros equal, 1.0 equal to 1.00.
    pub fn cmp_value(self, other: Decimal128) -> Ordering {
        crate::number::cmp_decimal(self, other)
    }

    /// Compares with an integer by value, exactly.
    pub fn cmp_i64(self, other: i64) -> Ordering {
        crate::number::Number::from(self).cmp(&crate::number::Number::from(other))
    }

    /// Compares with a double by value, exactly; NaN is lowest and equal to NaN.
    pub fn cmp_f64(self, other: f64) -> Ordering {
        crate::number::Number::from(self).cmp(&crate::number::Number::from(other))
    }
}

const POWERS_F64: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

impl From<i32> for Decimal128 {
    fn from(n: i32) -> Decimal128 {
        Decimal128::from(i64::from(n))
    }
}

impl From<i64> for Decimal128 {
    fn from(n: i64) -> Decimal128 {
        Decimal128::from_parts(n < 0, u128::from(n.unsigned_abs()), 0).unwrap_or(Decimal128::ZERO)
    }
}

impl fmt::Display for Decimal128 {
    /// The text of the BSON Decimal128 specification: every digit of the coefficient; scientific
    /// notation when the exponent is positive or the value is below 1e-6.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nan() {
            return f.write_str("NaN");
        }
        let (negative, coefficient, exponent) = self.decompose();
        if negative {
            f.write_str("-")?;
        }
        if self.is_infinite() {
            return f.write_str("Infinity");
        }
        let digits = coefficient.to_string();
        let adjusted = exponent + digits.len() as i32 - 1;
        if exponent > 0 || adjusted < -6 {
            f.write_str(&digits[..1])?;
            if digits.len() > 1 {
                write!(f, ".{}", &digits[1..])?;
            }
            return write!(f, "E{adjusted:+}");
        }
        let point = digits.len() as i32 + exponent;
        if exponent == 0 {
            f.write_str(&digits)
        } else if point > 0 {
            let (whole, fraction) = digits.split_at(point as usize);
            write!(f, "{whole}.{fraction}")
        } else {
            write!(
                f,
                "0.{:0>width$}",
                digits,
                width = exponent.unsigned_abs() as usize
            )
        }
    }
}

impl fmt::Debug for Decimal128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NumberDecimal(\"{self}\")")
    }
}

impl FromStr for Decimal128 {
    type Err = BsonError;

    /// Reads the text form of the BSON specification. More digits than fit are
    /// an error unless they are zeros: nothing is rounded.
    fn from_str(text: &str) -> Result<Decimal128, BsonError> {
        let bad = |at: usize| BsonError::new(format!("'{text}' is not a decimal number"), at);
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case("nan") {
            return Ok(Decimal128::NAN);
        }
        if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
            return Ok(if negative {
                Decimal128::NEG_INFINITY
            } else {
                Decimal128::INFINITY
            });
        }
        let mut digits: Vec<u8> = Vec::new();
        let mut exponent = 0i64;
        let (mut seen_digit, mut seen_point) = (false, false);
        let mut rest = unsigned.as_bytes();
        while let [byte, tail @ ..] = rest {
            match byte {
                b'0'..=b'9' => {
                    seen_digit = true;
                    if !(digits.is_empty() && *byte == b'0') {
                        digits.push(byte - b'0');
                    }
                    exponent -= i64::from(seen_point);
                }
                b'.' if !seen_point => seen_point = true,
                _ => break,
            }
            rest = tail;
        }
        if !seen_digit {
            return Err(bad(0));
        }
        if let [b'e' | b'E', power @ ..] = rest {
            let power_digits = power
                .strip_prefix(b"-")
                .or(power.strip_prefix(b"+"))
                .unwrap_or(power);
            if power_digits.is_empty() || !power_digits.iter().all(u8::is_ascii_digit) {
                return Err(bad(text.len() - power.len()));
            }
            // Cap the sum so that it cannot overflow: 2^40 is far beyond any valid exponent.
            let size = power_digits
                .iter()
                .fold(0i64, |sum, d| (sum * 10 + i64::from(d - b'0')).min(1 << 40));
            exponent += if power.first() == Some(&b'-') {
                -size
            } else {
                size
            };
        } else if !rest.is_empty() {
            return Err(bad(text.len() - rest.len()));
        }

        while digits.len() > DIGITS_MAX
            || (exponent < i64::from(EXPONENT_MIN) && !digits.is_empty())
        {
            if digits.pop() != Some(0) {
                return Err(BsonError::new(
                    format!("'{text}' has more significant digits than Decimal128 can represent"),
                    0,
                ));
            }
            exponent += 1;
        }
        if digits.is_empty() {
            exponent = exponent.clamp(i64::from(EXPONENT_MIN), i64::from(EXPONENT_MAX));
        }
        while exponent > i64::from(EXPONENT_MAX) && digits.len() < DIGITS_MAX {
            digits.push(0);
            exponent -= 1;
        }
        let coefficient = digits
            .iter()
            .fold(0u128, |sum, &d| sum * 10 + u128::from(d));
        i32::try_from(exponent)
            .ok()
            .and_then(|exponent| Decimal128::from_parts(negative, coefficient, exponent))
            .ok_or_else(|| BsonError::new(format!("'{text}' is out of range for Decimal128"), 0))
    }
}
