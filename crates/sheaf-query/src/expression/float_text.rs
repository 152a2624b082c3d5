//! Text to double as C's `strtod` reads it: decimal, hexadecimal (`0x1.8p3`), infinity and NaN.
//!
//! ```text
//!   +0x1.8p1   3.0        0X1P-1    0.5        -0xff   -255.0
//!   0xff       refused: MongoDB rejects the usual notation of integers
//! ```

/// Parses the whole text. Errors: why it is not a double; also if it is out of the range of doubles
/// at either end.
pub(super) fn parse(text: &str) -> Result<f64, &'static str> {
    if text.starts_with("0x") {
        return Err("illegal hexadecimal input");
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let x = match unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))
    {
        Some(digits) => hexadecimal(digits)?,
        None if unsigned.starts_with(['+', '-']) => return Err("it is not a number"),
        None => decimal(unsigned)?,
    };
    Ok(if negative { -x } else { x })
}

fn decimal(text: &str) -> Result<f64, &'static str> {
    let x: f64 = text.parse().map_err(|_| "it is not a number")?;
    let is_named = text.starts_with(['i', 'I']);
    if x.is_infinite() && !is_named {
        return Err("out of range");
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    if x == 0.0 && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9')) {
        return Err("out of range: it is too close to 0");
    }
    Ok(x)
}

/// `digits[.digits][p[sign]exponent]`, rounded to the nearest double.
fn hexadecimal(text: &str) -> Result<f64, &'static str> {
    const NONE: &str = "it is not a hexadecimal number";
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, binary_exponent(exponent).ok_or(NONE)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(NONE);
    }
    // The first digits that are not zeros, as an integer of at most 120 bits. Further digits only
    // matter for rounding: the lowest bit records that one of them is not zero.
    let mut digits: u128 = 0;
    let mut scale: i64 = 0;
    for (place, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let digit = char::from(byte).to_digit(16).ok_or(NONE)?;
        if digits >> 116 == 0 {
            digits = digits << 4 | u128::from(digit);
            scale -= if place >= whole.len() { 4 } else { 0 };
        } else {
            digits |= u128::from(digit != 0);
            scale += if place < whole.len() { 4 } else { 0 };
        }
    }
    if digits == 0 {
        return Ok(0.0);
    }
    let x = scaled(digits, scale.saturating_add(exponent));
    match x {
        x if x.is_infinite() => Err("out of range"),
        0.0 => Err("out of range: it is too close to 0"),
        x => Ok(x),
    }
}

/// A decimal exponent with an optional sign; one beyond the range of doubles saturates.
fn binary_exponent(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude: i64 = unsigned.parse().unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    Some(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

/// `digits * 2^exponent`, rounded once, half to even.
fn scaled(digits: u128, exponent: i64) -> f64 {
    let bits = i64::from(128 - digits.leading_zeros());
    // The exponent of the value's highest bit.
    let high = exponent.saturating_add(bits - 1);
    if high > 1023 {
        return f64::INFINITY;
    }
    if high < -1076 {
        return 0.0;
    }
    // A normal double keeps 53 bits, a subnormal one those from 2^-1074 up.
    let kept = (high + 1075).min(53);
    let cut = bits - kept;
    let mut mantissa = digits;
    if cut > 0 {
        let rest = digits & ((1 << cut.min(127)) - 1);
        let half = 1u128 << (cut - 1).min(127);
        mantissa = digits.checked_shr(cut as u32).unwrap_or(0);
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
    }
    let power = exponent + cut.max(0);
    // At most 54 bits, so exact; the power is split, for 2^-1074 is no normal double.
    let first = power.clamp(-1000, 1000);
    mantissa as f64 * 2f64.powi(first as i32) * 2f64.powi((power - first) as i32)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers() {
        for (text, expected) in [
            ("1.5", 1.5),
            ("-.5e1", -5.0),
            ("+0x1.8p1", 3.0),
            ("-0xff", -255.0),
            ("0X1P-1", 0.5),
            ("+0x.8", 0.5),
            ("+0x0p0", 0.0),
            ("+0x1p1023", 2f64.powi(1023)),
            ("+0x1p-1074", f64::from_bits(1)),
            ("+0x1.fffffffffffffp1023", f64::MAX),
            ("+0x1.00000000000008", 1.0),
            ("+0x1.000000000000081", 1.0 + f64::EPSILON),
            ("+0x1.00000000000018", 1.0 + 2.0 * f64::EPSILON),
            ("+0x100000000000000000000000000000000000p-140", 1.0),
            ("1e-320", 1e-320),
            ("0e-999", 0.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        let zeros = format!("0X{}1", "0".repeat(100_000));
        assert_eq!(parse(&zeros), Ok(1.0));
        assert!(parse("NaN").is_ok_and(f64::is_nan));
    }

    #[test]
    fn refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "0x1p0",
            "0xff",
            "++1",
            "+-1",
            "0X",
            "+0x",
            "+0xp1",
            "+0x1p",
            "+0x1pz",
            "+0xg",
            "+0x1.2.3",
            "1e400",
            "-1e400",
            "1e-400",
            "+0x1p1024",
            "+0x1p-2000",
            "x",
            "1_0",
            "+0x1p99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
