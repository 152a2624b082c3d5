//! Decimal128 arithmetic, implemented by decNumber.
//!
//! BSON stores the coefficient in binary (BID), decNumber in declets (DPD), so values are converted
//! through sign, coefficient and exponent. Both formats have the same 34 digits and the same range
//! of exponents, so the conversion is exact.

use dec::Context;
use sheaf_bson::Decimal128;

use super::Rounding;

type Dec = dec::Decimal128;

fn context() -> Context<Dec> {
    Context::default()
}

/// Flips the sign, which is the top bit in this encoding, too.
fn negate(d: Dec) -> Dec {
    let mut bytes = d.to_le_bytes();
    bytes[15] ^= 0x80;
    Dec::from_le_bytes(bytes)
}

fn infinity() -> Dec {
    // 0x78 in the top byte is infinity in both encodings.
    let mut bytes = [0; 16];
    bytes[15] = 0x78;
    Dec::from_le_bytes(bytes)
}

pub(super) fn to_dec(d: Decimal128) -> Dec {
    if d.is_nan() {
        return Dec::NAN;
    }
    let (negative, coefficient, exponent) = d.decompose();
    let magnitude = if d.is_infinite() {
        infinity()
    } else {
        let mut cx = context();
        let mut out = match u64::try_from(coefficient) {
            Ok(small) => Dec::from(small),
            Err(_) => cx.from_u128(coefficient),
        };
        cx.set_exponent(&mut out, exponent);
        out
    };
    if negative {
        negate(magnitude)
    } else {
        magnitude
    }
}

pub(super) fn from_dec(d: Dec) -> Decimal128 {
    if d.is_nan() {
        return Decimal128::NAN;
    }
    let negative = d.is_signed();
    if d.is_infinite() {
        return if negative {
            Decimal128::NEG_INFINITY
        } else {
            Decimal128::INFINITY
        };
    }
    Decimal128::from_parts(negative, d.coefficient().unsigned_abs(), d.exponent())
        .unwrap_or(Decimal128::NAN)
}

fn binary(
    a: Decimal128,
    b: Decimal128,
    op: impl FnOnce(&mut Context<Dec>, Dec, Dec) -> Dec,
) -> Decimal128 {
    from_dec(op(&mut context(), to_dec(a), to_dec(b)))
}

/// `a + b`, rounded half to even.
pub fn add(a: Decimal128, b: Decimal128) -> Decimal128 {
    binary(a, b, |cx, a, b| cx.add(a, b))
}

/// `a - b`, rounded half to even.
pub fn subtract(a: Decimal128, b: Decimal128) -> Decimal128 {
    binary(a, b, |cx, a, b| cx.sub(a, b))
}

/// `a * b`, rounded half to even.
pub fn multiply(a: Decimal128, b: Decimal128) -> Decimal128 {
    binary(a, b, |cx, a, b| cx.mul(a, b))
}

/// `a / b`, rounded half to even; division by zero returns an infinity or NaN.
pub fn divide(a: Decimal128, b: Decimal128) -> Decimal128 {
    binary(a, b, |cx, a, b| cx.div(a, b))
}

/// The remainder of `a / b` truncated toward zero; NaN for infinite `a` or zero `b`.
pub fn remainder(a: Decimal128, b: Decimal128) -> Decimal128 {
    if !a.is_finite() || b.is_nan() || b.is_zero() {
        return Decimal128::NAN;
    }
    let (mut a, b) = (to_dec(a), to_dec(b));
    let mut cx = context();
    let step_exponent = b.exponent();
    loop {
        let out = cx.rem(a, b);
        if !out.is_nan() {
            return from_dec(out);
        }
        // decNumber rejects a quotient of more than 34 digits. Reduce `a` first by a multiple of
        // `b`, which does not change the remainder: `b` scaled so that the quotient has at most 34
        // digits.
        let digits = |d: Dec| d.exponent() + d.digits() as i32;
        let shift = digits(a) - digits(b) - 32;
        if shift <= 0 {
            return Decimal128::NAN;
        }
        let mut scaled = b;
        cx.set_exponent(&mut scaled, step_exponent + shift);
        let reduced = cx.rem(a, scaled);
        if reduced.is_nan() {
            return Decimal128::NAN;
        }
        if reduced.is_zero() {
            return from_dec(cx.rem(reduced, b));
        }
        a = reduced;
    }
}

/// The absolute value; NaN is unchanged.
pub fn abs(d: Decimal128) -> Decimal128 {
    if d.is_negative() && !d.is_nan() {
        from_dec(negate(to_dec(d)))
    } else {
        d
    }
}

/// The integer as an exact decimal.
pub fn from_i64(n: i64) -> Decimal128 {
    Decimal128::from_parts(n < 0, u128::from(n.unsigned_abs()), 0).unwrap_or(Decimal128::NAN)
}

/// The double rounded to a decimal's 34 digits instead of 15.
pub fn from_f64_full(x: f64) -> Decimal128 {
    if !x.is_finite() {
        return Decimal128::from_f64(x);
    }
    let text = format!("{:.33e}", x.abs());
    let parts = || {
        let (digits, exponent) = text.split_once('e')?;
        let coefficient: u128 = digits.replace('.', "").parse().ok()?;
        Decimal128::from_parts(
            x.is_sign_negative(),
            coefficient,
            exponent.parse::<i32>().ok()? - 33,
        )
    };
    parts().unwrap_or(Decimal128::NAN)
}

/// The number with exactly `place` digits after the point, rounded or padded with zeros; NaN if
/// that takes more than 34 digits. NaN and infinities are unchanged.
pub fn quantize(d: Decimal128, place: i32, rounding: Rounding) -> Decimal128 {
    if !d.is_finite() {
        return d;
    }
    let mut cx = context();
    cx.set_rounding(match rounding {
        Rounding::HalfEven => dec::Rounding::HalfEven,
        Rounding::Down => dec::Rounding::Down,
        Rounding::Floor => dec::Rounding::Floor,
        Rounding::Ceiling => dec::Rounding::Ceiling,
    });
    let mut unit = Dec::ONE;
    cx.set_exponent(&mut unit, -place);
    from_dec(cx.quantize(to_dec(d), unit))
}

/// Rounds to `place` digits after the point. A number with fewer digits is unchanged.
pub fn round(d: Decimal128, place: i32, rounding: Rounding) -> Decimal128 {
    let (_, _, exponent) = d.decompose();
    if exponent >= -place {
        return d;
    }
    quantize(d, place, rounding)
}

/// The double as an exact decimal of at most 34 digits, without trailing zeros: an integer has the
/// exponent 0.
pub fn from_f64_exact(x: f64) -> Decimal128 {
    let wide = from_f64_full(x);
    if !wide.is_finite() {
        return wide;
    }
    let (negative, mut coefficient, mut exponent) = wide.decompose();
    while exponent < 0 && coefficient % 10 == 0 {
        if coefficient == 0 {
            exponent = 0;
            break;
        }
        coefficient /= 10;
        exponent += 1;
    }
    let exact = Decimal128::from_parts(negative, coefficient, exponent).unwrap_or(wide);
    match exponent > 0 {
        true => Some(quantize(exact, 0, Rounding::HalfEven))
            .filter(|whole| !whole.is_nan())
            .unwrap_or(exact),
        false => exact,
    }
}

/// Parses a number, rounding it to 34 digits. `None` if the text is not a number.
pub fn parse_rounded(text: &str) -> Option<Decimal128> {
    context().parse(text).ok().map(from_dec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal128 {
        text.parse().unwrap()
    }

    #[test]
    fn crossing_loses_nothing() {
        for text in [
            "0",
            "-0",
            "0E+3",
            "-0E-6176",
            "1",
            "-1.50",
            "9999999999999999999999999999999999",
            "-9.999999999999999999999999999999999E+6144",
            "1E-6176",
            "12345678901234567890123.4",
            "Infinity",
            "-Infinity",
            "NaN",
            "18446744073709551615",
            "18446744073709551616",
        ] {
            assert_eq!(
                from_dec(to_dec(d(text))).to_string(),
                d(text).to_string(),
                "{text}"
            );
        }
    }

    #[test]
    fn arithmetic() {
        assert_eq!(add(d("0.1"), d("0.20")).to_string(), "0.30");
        assert_eq!(subtract(d("1"), d("1.00")).to_string(), "0.00");
        assert_eq!(multiply(d("-1.5"), d("0")).to_string(), "-0.0");
        assert_eq!(
            divide(d("1"), d("3")).to_string(),
            "0.3333333333333333333333333333333333"
        );
        assert_eq!(divide(d("1"), d("0")).to_string(), "Infinity");
        assert_eq!(add(d("Infinity"), d("-Infinity")).to_string(), "NaN");
        assert_eq!(abs(d("-0")).to_string(), "0");
        assert_eq!(
            add(d("9999999999999999999999999999999999"), d("1")).to_string(),
            "1.000000000000000000000000000000000E+34"
        );
    }

    #[test]
    fn remainders() {
        assert_eq!(remainder(d("-7.5"), d("2")).to_string(), "-1.5");
        assert_eq!(remainder(d("7"), d("Infinity")).to_string(), "7");
        assert_eq!(remainder(d("Infinity"), d("7")).to_string(), "NaN");
        // A quotient of 60 digits: 10^60 mod 7 = 1 (10^6 mod 7 = 1).
        assert_eq!(remainder(d("1E+60"), d("7")).to_i64_exact(), Some(1));
        assert_eq!(remainder(d("1E+6000"), d("9")).to_i64_exact(), Some(1));
        assert_eq!(remainder(d("1E+60"), d("5")).to_i64_exact(), Some(0));
    }

    #[test]
    fn rounding() {
        assert_eq!(round(d("2.5"), 0, Rounding::HalfEven).to_string(), "2");
        assert_eq!(
            round(d("1234"), -2, Rounding::HalfEven).to_string(),
            "1.2E+3"
        );
        assert_eq!(round(d("5"), 3, Rounding::HalfEven).to_string(), "5");
        assert_eq!(round(d("0.4"), 0, Rounding::Ceiling).to_string(), "1");
        assert_eq!(quantize(d("1.1"), 3, Rounding::Down).to_string(), "1.100");
        assert!(quantize(d("1E+40"), 0, Rounding::Floor).is_nan());
    }

    #[test]
    fn exact_doubles() {
        for (x, text) in [
            (0.0, "0"),
            (5.0, "5"),
            (-0.25, "-0.25"),
            (1.1, "1.100000000000000088817841970012523"),
            (1e20, "100000000000000000000"),
            (1e300, "1.000000000000000052504760255204420E+300"),
        ] {
            assert_eq!(from_f64_exact(x).to_string(), text);
        }
    }
}
