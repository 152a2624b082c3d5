//! Encoding of numbers in a KeyString.
//!
//! The magnitude is written in base 128, most significant digit first. The class byte encodes how
//! many digits precede the point. The low bit of every digit byte says whether another follows, so
//! a shorter expansion sorts first:
//!
//! ```text
//!  class                  number of digits before the point (g), counted from zero
//!  ZERO+1                 below -2: g + 0x4000 follows, 16 bits
//!  ZERO+2 ..= ZERO+14     -2 ..= 10
//!  ZERO+15                above 10: g + 0x4000 follows, 16 bits
//!  digits                 | digit:7 more:1 | ...
//! ```
//!
//! Integers and doubles end there. A decimal that 64 bits cannot hold exactly is truncated after
//! ten digits (which hold at least those 64 bits), the last of them still marked "more", and then
//! written out in decimal:
//!
//! ```text
//!  | floor(log10) + 0x4000, 16 bits | pair of digits:7 more:1 | ...
//! ```
//!
//! A negative number has its class on the other side of zero, and all further bytes complemented.

use super::class::{INFINITY, NAN, ZERO};
use super::reader::Cursor;
use super::type_bits::{TypeBits, TypeBitsReader};
use crate::decimal128::Decimal128;
use crate::error::BsonError;
use crate::number::{DecimalDigits, Finite, Number};
use crate::raw_value::RawValue;

const INT: u16 = 0b00;
const LONG: u16 = 0b01;
const DOUBLE: u16 = 0b10;
const DECIMAL: u16 = 0b11;

const EXPONENT_BITS: usize = 14;
const DECIMAL_BIAS: i32 = 6176;
const BIAS: i32 = 0x4000;

/// Number of digits of a truncated expansion.
const CUT_DIGITS: usize = 10;
/// Digit counts before the point that the class byte encodes by itself.
const SHORT: std::ops::RangeInclusive<i32> = -2..=10;

pub(super) fn encode_int(out: &mut Vec<u8>, bits: &mut TypeBits, n: i32) {
    encode(out, Number::from(i64::from(n)));
    bits.push(INT, 2);
}

pub(super) fn encode_long(out: &mut Vec<u8>, bits: &mut TypeBits, n: i64) {
    encode(out, Number::from(n));
    bits.push(LONG, 2);
}

pub(super) fn encode_double(out: &mut Vec<u8>, bits: &mut TypeBits, x: f64) {
    encode(out, Number::from(x));
    bits.push(DOUBLE, 2);
    if x == 0.0 {
        bits.push(u16::from(x.is_sign_negative()), 1);
    }
}

pub(super) fn encode_decimal(out: &mut Vec<u8>, bits: &mut TypeBits, d: Decimal128) {
    encode(out, Number::from(d));
    bits.push(DECIMAL, 2);
    if d.is_finite() {
        let (negative, coefficient, exponent) = d.decompose();
        if coefficient == 0 {
            bits.push(u16::from(negative), 1);
        }
        bits.push((exponent + DECIMAL_BIAS) as u16, EXPONENT_BITS);
    }
}

fn encode(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::NaN => out.push(NAN),
        Number::Zero => out.push(ZERO),
        Number::Infinite(negative) => out.push(sided(INFINITY - ZERO, negative)),
        Number::Finite(finite) => encode_finite(out, &finite),
    }
}

/// The class at this distance from zero, on the given side.
fn sided(distance: u8, negative: bool) -> u8 {
    if negative {
        ZERO - distance
    } else {
        ZERO + distance
    }
}

#[inline]
fn encode_finite(out: &mut Vec<u8>, f: &Finite) {
    let before_point = f.exponent.div_euclid(7) + 1;
    let distance = match before_point {
        g if SHORT.contains(&g) => (g + 4) as u8,
        g if g < 0 => 1,
        _ => 15,
    };
    out.push(sided(distance, f.negative));
    let start = out.len();
    if !SHORT.contains(&before_point) {
        out.extend_from_slice(&((before_point + BIAS) as u16).to_be_bytes());
    }
    // The first digit has 1 to 7 bits, every other digit 7.
    let lead = f.exponent.rem_euclid(7) as u32 + 1;
    let mut digit = f.mantissa >> (64 - lead);
    let mut rest = f.mantissa << lead;
    let mut count = 1;
    loop {
        let more = if f.rest.is_some() {
            count <= CUT_DIGITS
        } else {
            rest != 0
        };
        out.push((digit as u8) << 1 | u8::from(more));
        if !more || (f.rest.is_some() && count == CUT_DIGITS) {
            break;
        }
        digit = rest >> 57;
        rest <<= 7;
        count += 1;
    }
    if let Some(decimal) = &f.rest {
        encode_decimal_digits(out, decimal);
    }
    if f.negative {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
}

fn encode_decimal_digits(out: &mut Vec<u8>, decimal: &DecimalDigits) {
    out.extend_from_slice(&((decimal.exponent + BIAS) as u16).to_be_bytes());
    let mut scale = 10u128.pow(32);
    let mut rest = decimal.digits;
    loop {
        let pair = rest / scale;
        rest %= scale;
        out.push((pair as u8) << 1 | u8::from(rest != 0));
        if rest == 0 {
            return;
        }
        scale /= 100;
    }
}

/// Whether a class byte belongs to a number.
#[inline]
pub(super) fn is_number(class: u8) -> bool {
    (NAN..=INFINITY).contains(&class)
}

/// Skips the number whose class byte was already read.
pub(super) fn skip(cursor: &mut Cursor<'_>, class: u8) -> Result<(), BsonError> {
    if matches!(class, NAN | ZERO | INFINITY) || class == NAN + 1 {
        return Ok(());
    }
    let flip = if class < ZERO { 0xFF } else { 0 };
    if matches!(class.abs_diff(ZERO), 1 | 15) {
        cursor.take(2)?;
    }
    for _ in 0..CUT_DIGITS {
        if (cursor.byte()? ^ flip) & 1 == 0 {
            return Ok(());
        }
    }
    cursor.take(2)?;
    while (cursor.byte()? ^ flip) & 1 == 1 {}
    Ok(())
}

/// Decodes the number whose class byte was already read, with its type.
pub(super) fn decode(
    cursor: &mut Cursor<'_>,
    bits: &mut TypeBitsReader<'_>,
    class: u8,
) -> Result<RawValue<'static>, BsonError> {
    let at = cursor.position();
    let number = read(cursor, class)?;
    let value = match bits.take(2) {
        DECIMAL => decimal(number, bits).map(RawValue::Decimal128),
        DOUBLE => double(number, bits).map(RawValue::Double),
        LONG => integer(number).map(RawValue::Int64),
        _ => integer(number)
            .and_then(|n| i32::try_from(n).ok())
            .map(RawValue::Int32),
    };
    value.ok_or_else(|| BsonError::new("type bits do not match the number in the key", at))
}

fn read(cursor: &mut Cursor<'_>, class: u8) -> Result<Number, BsonError> {
    let negative = class < ZERO;
    match class {
        NAN => return Ok(Number::NaN),
        ZERO => return Ok(Number::Zero),
        _ if class.abs_diff(ZERO) == INFINITY - ZERO => return Ok(Number::Infinite(negative)),
        _ => {}
    }
    let flip = if negative { 0xFF } else { 0 };
    let before_point = match class.abs_diff(ZERO) {
        1 | 15 => i32::from(read_u16(cursor, flip)?) - BIAS,
        distance => i32::from(distance) - 4,
    };
    let bad =
        |cursor: &Cursor<'_>| BsonError::new("malformed number in the key", cursor.position());
    let first = cursor.byte()? ^ flip;
    let digit = u64::from(first >> 1);
    if digit == 0 {
        return Err(bad(cursor));
    }
    let lead = 64 - digit.leading_zeros();
    let mut mantissa = digit << (64 - lead);
    let mut filled = lead;
    let mut byte = first;
    for _ in 1..CUT_DIGITS {
        if byte & 1 == 0 {
            break;
        }
        byte = cursor.byte()? ^ flip;
        let digit = u64::from(byte >> 1);
        mantissa |= if filled + 7 <= 64 {
            digit << (64 - 7 - filled)
        } else {
            digit.checked_shr(filled + 7 - 64).unwrap_or(0)
        };
        filled = (filled + 7).min(64);
    }
    let rest = if byte & 1 == 1 {
        Some(read_decimal_digits(cursor, flip)?)
    } else {
        None
    };
    let exponent = (before_point - 1) * 7 + lead as i32 - 1;
    Ok(Number::Finite(Finite {
        negative,
        exponent,
        mantissa,
        rest,
    }))
}

fn read_u16(cursor: &mut Cursor<'_>, flip: u8) -> Result<u16, BsonError> {
    let high = cursor.byte()? ^ flip;
    let low = cursor.byte()? ^ flip;
    Ok(u16::from_be_bytes([high, low]))
}

fn read_decimal_digits(cursor: &mut Cursor<'_>, flip: u8) -> Result<DecimalDigits, BsonError> {
    let exponent = i32::from(read_u16(cursor, flip)?) - BIAS;
    let mut digits = 0u128;
    let mut scale = 10u128.pow(32);
    loop {
        let byte = cursor.byte()? ^ flip;
        let pair = u128::from(byte >> 1);
        if pair > 99 || scale == 0 {
            return Err(BsonError::new(
                "malformed decimal in the key",
                cursor.position(),
            ));
        }
        digits += pair * scale;
        scale /= 100;
        if byte & 1 == 0 {
            return Ok(DecimalDigits { exponent, digits });
        }
    }
}

fn integer(number: Number) -> Option<i64> {
    match number {
        Number::Zero => Some(0),
        Number::Finite(Finite {
            negative,
            exponent,
            mantissa,
            rest: None,
        }) => {
            let shift = u32::try_from(63 - exponent).ok()?;
            let magnitude = mantissa.checked_shr(shift)?;
            if magnitude << shift != mantissa {
                return None;
            }
            let magnitude = i128::from(magnitude);
            i64::try_from(if negative { -magnitude } else { magnitude }).ok()
        }
        _ => None,
    }
}

fn double(number: Number, bits: &mut TypeBitsReader<'_>) -> Option<f64> {
    match number {
        Number::NaN => Some(f64::NAN),
        Number::Infinite(true) => Some(f64::NEG_INFINITY),
        Number::Infinite(false) => Some(f64::INFINITY),
        Number::Zero => Some(if bits.take(1) == 1 { -0.0 } else { 0.0 }),
        Number::Finite(Finite {
            negative,
            exponent,
            mantissa,
            rest: None,
        }) => {
            let magnitude = match exponent {
                -1022..=1023 if mantissa & 0x7FF == 0 => {
                    let biased = (exponent + 1023) as u64;
                    f64::from_bits(biased << 52 | (mantissa << 1) >> 12)
                }
                -1074..=-1023 => {
                    let shift = (63 - (exponent + 1074)) as u32;
                    let fraction = mantissa >> shift;
                    if fraction << shift != mantissa {
                        return None;
                    }
                    f64::from_bits(fraction)
                }
                _ => return None,
            };
            Some(if negative { -magnitude } else { magnitude })
        }
        Number::Finite(_) => None,
    }
}

fn decimal(number: Number, bits: &mut TypeBitsReader<'_>) -> Option<Decimal128> {
    let exponent =
        |bits: &mut TypeBitsReader<'_>| i32::from(bits.take(EXPONENT_BITS)) - DECIMAL_BIAS;
    match number {
        Number::NaN => Some(Decimal128::NAN),
        Number::Infinite(true) => Some(Decimal128::NEG_INFINITY),
        Number::Infinite(false) => Some(Decimal128::INFINITY),
        Number::Zero => {
            let negative = bits.take(1) == 1;
            Decimal128::from_parts(negative, 0, exponent(bits))
        }
        Number::Finite(f) => {
            let exponent = exponent(bits);
            let coefficient = match &f.rest {
                Some(decimal) => coefficient_of_digits(decimal, exponent)?,
                None => coefficient_of_binary(f.exponent, f.mantissa, exponent)?,
            };
            Decimal128::from_parts(f.negative, coefficient, exponent)
        }
    }
}

/// The coefficient of a decimal with these digits and this exponent; `None` if there is none.
fn coefficient_of_digits(decimal: &DecimalDigits, exponent: i32) -> Option<u128> {
    let zeros = u32::try_from(exponent - (decimal.exponent - 33)).ok()?;
    let scale = 10u128.checked_pow(zeros)?;
    (decimal.digits.is_multiple_of(scale)).then_some(decimal.digits / scale)
}

/// The coefficient of a decimal that equals mantissa * 2^(exponent2 - 63) and has this exponent;
/// `None` if there is none.
fn coefficient_of_binary(exponent2: i32, mantissa: u64, exponent: i32) -> Option<u128> {
    let zeros = mantissa.trailing_zeros();
    let odd = u128::from(mantissa >> zeros);
    // The value is odd * 2^twos, and 10^exponent = 2^exponent * 5^exponent.
    let twos = u32::try_from(exponent2 - 63 + zeros as i32 - exponent).ok()?;
    let power = 5u128.checked_pow(exponent.unsigned_abs())?;
    let fives = if exponent >= 0 {
        if !odd.is_multiple_of(power) {
            return None;
        }
        odd / power
    } else {
        odd.checked_mul(power)?
    };
    // No bit may be shifted out: a coefficient has at most 113 bits.
    (twos <= fives.leading_zeros()).then(|| fives << twos.min(127))
}
