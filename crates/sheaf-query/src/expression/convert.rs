//! `$convert` and its short forms (`$toInt`, `$toString`, ...).
//!
//! ```text
//!   to        from
//!   double    numbers, bool, date, string, binData of 4 and 8 bytes
//!   string    numbers, bool, date, objectId, binData (by `format`)
//!   binData   string (by `format`), int, long, double (by `byteOrder`)
//!   objectId  string of 24 hexadecimal digits
//!   bool      everything
//!   date      double, decimal, long, string, objectId, timestamp
//!   int       numbers, bool, string, binData of 1, 2 and 4 bytes
//!   long      numbers, bool, string, date, binData of 1, 2, 4 and 8 bytes
//!   decimal   numbers, bool, string, date
//!   array     string of JSON, binData of a vector
//!   object    string of JSON
//! ```
//!
//! A value that already has the target type is unchanged. Null and missing return `onNull` (default
//! null). A value that cannot be converted returns `onError`, or fails with ConversionFailure (241)
//! without one.

use std::fmt::Write;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DateTime, Decimal128, ElementType, ObjectId, RawValue, Value};

use crate::arithmetic::{Number, decimal};

use super::base64;
use super::budget;
use super::date::{Civil, format, millis_of};
use super::eval::{EvalContext, EvalValue};
use super::operator::{Operator, is_absent};
use super::{Expression, float_text, json_text, location, vector};

/// The binary subtype of UUIDs.
const UUID: u8 = 4;

/// The type to convert to.
#[derive(Debug, Clone, Copy)]
struct Target {
    element_type: ElementType,
    /// Used only if the target is binary data.
    subtype: u8,
}

/// How strings encode bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Base64,
    Base64Url,
    Utf8,
    Hex,
    Uuid,
    /// UUIDs in their own notation, everything else in base64.
    Auto,
}

/// Conversion options other than the target type.
#[derive(Debug, Clone, Copy)]
struct How {
    format: Option<Format>,
    big_endian: bool,
}

const PLAIN: How = How {
    format: None,
    big_endian: false,
};

fn no_conversion(value: RawValue<'_>, to: ElementType) -> String {
    format!(
        "Unsupported conversion from {} to {} in $convert with no onError value",
        value.type_name(),
        to.name()
    )
}

/// Converts a value that is not null. Errors: why it cannot be converted.
fn convert(value: RawValue<'_>, target: Target, how: How) -> Result<Value, String> {
    let to = target.element_type;
    let no = || Err(no_conversion(value, to));
    match to {
        ElementType::Double => to_double(value, how).unwrap_or_else(no),
        ElementType::String => to_string(value, how).unwrap_or_else(no),
        ElementType::Binary => to_binary(value, target.subtype, how).unwrap_or_else(no),
        ElementType::ObjectId => match value {
            RawValue::ObjectId(id) => Ok(Value::ObjectId(id)),
            RawValue::String(text) => match ObjectId::parse_hex(text) {
                Some(id) => Ok(Value::ObjectId(id)),
                None => Err(format!(
                    "Failed to parse objectId {} in $convert with no onError value: it is not 24 hexadecimal digits",
                    shell(value)
                )),
            },
            _ => no(),
        },
        ElementType::Boolean => Ok(Value::Boolean(value.is_truthy())),
        ElementType::DateTime => match value {
            RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => {
                integer(value, "date", how, i64::MIN, i64::MAX)
                    .unwrap_or_else(|| Err(no_conversion(value, to)))
                    .map(|n| Value::DateTime(DateTime(n)))
            }
            RawValue::String(text) => match format::parse_any(text) {
                Ok(millis) => Ok(Value::DateTime(DateTime(millis))),
                Err(why) => Err(format!("Error parsing date string {}: {why}", shell(value))),
            },
            other => match millis_of(other) {
                Some(millis) => Ok(Value::DateTime(DateTime(millis))),
                None => no(),
            },
        },
        ElementType::Int32 => {
            let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
            match integer(value, "int", how, least, most) {
                Some(n) => n.map(|n| Value::Int32(n as i32)),
                None => no(),
            }
        }
        ElementType::Int64 => match value {
            RawValue::DateTime(date) => Ok(Value::Int64(date.0)),
            _ => match integer(value, "long", how, i64::MIN, i64::MAX) {
                Some(n) => n.map(Value::Int64),
                None => no(),
            },
        },
        ElementType::Decimal128 => to_decimal(value).unwrap_or_else(no),
        ElementType::Array => match value {
            RawValue::Array(_) => Ok(value.to_value()),
            _ => no(),
        },
        ElementType::Document => match value {
            RawValue::Document(_) => Ok(value.to_value()),
            _ => no(),
        },
        _ => no(),
    }
}

/// Converts a value that is not null. Errors: failures that `onError` does not catch. The inner
/// error is why the value cannot be converted, which `onError` does catch.
fn converted(
    value: RawValue<'_>,
    target: Target,
    how: How,
) -> Result<std::result::Result<Value, String>> {
    let to = target.element_type;
    let text = match (value, to) {
        (RawValue::String(text), ElementType::Array | ElementType::Document) => text,
        (
            RawValue::Binary {
                subtype: crate::vector::BINARY_SUBTYPE,
                bytes,
            },
            ElementType::Array,
        ) => {
            let array = vector::to_array(bytes)?;
            return Ok(
                array.ok_or_else(|| "the binary data is not a vector of a supported format".into())
            );
        }
        _ => return Ok(convert(value, target, how)),
    };
    Ok(match json_text::parse(text)? {
        Ok(value) if value.as_raw().element_type() == to => Ok(value),
        Ok(_) => Err(format!(
            "the input does not match the expected type '{}'",
            to.name()
        )),
        Err(why) => Err(format!("the input does not represent valid JSON: {why}")),
    })
}

/// The text that `$toString` converts a value other than binary data to; `None` for types without
/// one.
pub(super) fn text(value: RawValue<'_>) -> Option<String> {
    Some(match value {
        RawValue::String(text) => text.to_owned(),
        RawValue::Int32(n) => n.to_string(),
        RawValue::Int64(n) => n.to_string(),
        RawValue::Double(x) => double_text(x),
        RawValue::Decimal128(d) => d.to_string(),
        RawValue::Boolean(b) => b.to_string(),
        RawValue::ObjectId(id) => id.to_hex(),
        RawValue::DateTime(date) => Civil::from_millis(date.0).iso(),
        _ => return None,
    })
}

/// The shortest text that parses to the same double; very large and very small numbers have
/// exponents.
fn double_text(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 {
            "Infinity".to_owned()
        } else {
            "-Infinity".to_owned()
        };
    }
    let magnitude = x.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{x:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) => {
                format!("{digits}{}", exponent_text(exponent.parse().unwrap_or(0)))
            }
            None => text,
        };
    }
    x.to_string()
}

/// An exponent with its sign and at least two digits: `e+06`.
pub(super) fn exponent_text(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("e{sign}{:02}", exponent.unsigned_abs())
}

/// Converts to an integer in `least..=most`: numbers are truncated toward zero, strings must be
/// decimal integers. `None` if the type has no such conversion.
fn integer(
    value: RawValue<'_>,
    to: &str,
    how: How,
    least: i64,
    most: i64,
) -> Option<Result<i64, String>> {
    let too_large = |shown: String| {
        Err(format!(
            "conversion would overflow target type: {shown} does not fit the type {to}"
        ))
    };
    let range = |n: i64| {
        if (least..=most).contains(&n) {
            Ok(n)
        } else {
            too_large(n.to_string())
        }
    };
    Some(match value {
        RawValue::Int32(n) => Ok(i64::from(n)),
        RawValue::Int64(n) => range(n),
        RawValue::Boolean(b) => Ok(i64::from(b)),
        RawValue::Double(x) => {
            let cut = x.trunc();
            if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&cut) {
                range(cut as i64)
            } else if x.is_finite() {
                too_large(shell(value))
            } else {
                Err(format!("cannot convert {} to the type {to}", shell(value)))
            }
        }
        RawValue::Decimal128(d) if !d.is_finite() => {
            Err(format!("cannot convert {d} to the type {to}"))
        }
        RawValue::Decimal128(d) => {
            match decimal::round(d, 0, crate::arithmetic::Rounding::Down).to_i64_exact() {
                Some(n) => range(n),
                None => too_large(d.to_string()),
            }
        }
        RawValue::String(text) => match text.parse::<i64>() {
            Ok(n) => range(n),
            Err(_) => Err(format!(
                "Failed to parse number {} in $convert with no onError value: it is not an integer in range",
                shell(value)
            )),
        },
        RawValue::Binary { bytes, .. } if to != "date" => {
            let widths: &[usize] = if to == "int" {
                &[1, 2, 4]
            } else {
                &[1, 2, 4, 8]
            };
            if widths.contains(&bytes.len()) {
                Ok(signed(bytes, how.big_endian))
            } else {
                Err(format!(
                    "binary data of {} bytes cannot be converted to the type {to}",
                    bytes.len()
                ))
            }
        }
        _ => return None,
    })
}

/// The two's complement integer in up to eight bytes.
fn signed(bytes: &[u8], big_endian: bool) -> i64 {
    let negative = match big_endian {
        true => bytes.first(),
        false => bytes.last(),
    }
    .is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xFF } else { 0 }; 8];
    let width = bytes.len().min(8);
    match big_endian {
        true => {
            wide[8 - width..].copy_from_slice(&bytes[..width]);
            i64::from_be_bytes(wide)
        }
        false => {
            wide[..width].copy_from_slice(&bytes[..width]);
            i64::from_le_bytes(wide)
        }
    }
}

fn to_double(value: RawValue<'_>, how: How) -> Option<Result<Value, String>> {
    Some(match value {
        RawValue::Boolean(b) => Ok(Value::Double(f64::from(u8::from(b)))),
        RawValue::DateTime(date) => Ok(Value::Double(date.0 as f64)),
        RawValue::String(text) => match float_text::parse(text) {
            Ok(x) => Ok(Value::Double(x)),
            Err(why) => Err(format!(
                "Failed to parse number {} in $convert with no onError value: {why}",
                shell(value)
            )),
        },
        RawValue::Decimal128(d) => {
            let x = d.to_f64();
            if x.is_infinite() && d.is_finite() {
                Err(format!(
                    "conversion would overflow target type: {d} does not fit the type double"
                ))
            } else {
                Ok(Value::Double(x))
            }
        }
        RawValue::Binary { bytes, .. } => {
            let mut bytes = bytes.to_vec();
            if how.big_endian {
                bytes.reverse();
            }
            match (
                <[u8; 4]>::try_from(&bytes[..]),
                <[u8; 8]>::try_from(&bytes[..]),
            ) {
                (Ok(single), _) => Ok(Value::Double(f64::from(f32::from_le_bytes(single)))),
                (_, Ok(double)) => Ok(Value::Double(f64::from_le_bytes(double))),
                _ => Err(format!(
                    "binary data of {} bytes cannot be converted to the type double",
                    bytes.len()
                )),
            }
        }
        other => Ok(Value::Double(Number::from_raw(other)?.to_f64())),
    })
}

fn to_decimal(value: RawValue<'_>) -> Option<Result<Value, String>> {
    let decimal: Decimal128 = match value {
        RawValue::Boolean(b) => decimal::from_i64(i64::from(b)),
        RawValue::DateTime(date) => decimal::from_i64(date.0),
        RawValue::String(text) => match decimal::parse_rounded(text) {
            Some(d) if d.is_infinite() && !text.to_ascii_lowercase().contains("inf") => {
                return Some(Err(format!(
                    "Failed to parse number {} in $convert with no onError value: out of range",
                    shell(value)
                )));
            }
            Some(d) => d,
            None => {
                return Some(Err(format!(
                    "Failed to parse number {} in $convert with no onError value: it is not a number",
                    shell(value)
                )));
            }
        },
        other => Number::from_raw(other)?.to_decimal(),
    };
    Some(Ok(Value::Decimal128(decimal)))
}

fn to_string(value: RawValue<'_>, how: How) -> Option<Result<Value, String>> {
    let RawValue::Binary { subtype, bytes } = value else {
        return Some(Ok(Value::String(text(value)?)));
    };
    let is_uuid = subtype == UUID && bytes.len() == 16;
    let text = match how.format? {
        Format::Uuid | Format::Auto if is_uuid => uuid_text(bytes),
        Format::Uuid => {
            return Some(Err(format!(
                "binary data of subtype {subtype} and {} bytes is not a UUID",
                bytes.len()
            )));
        }
        Format::Base64 | Format::Auto => base64::encode(bytes, base64::STANDARD),
        Format::Base64Url => base64::encode(bytes, base64::URL),
        Format::Hex => hex(bytes),
        Format::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(Err("the binary data is not valid UTF-8".to_owned())),
        },
    };
    // A failure of the conversion, which `onError` catches.
    if budget::check_string(text.len()).is_err() {
        return Some(Err("the string would be longer than 16MB".to_owned()));
    }
    Some(Ok(Value::String(text)))
}

/// Two uppercase hexadecimal digits per byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02X}");
        out
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| {
            let pair = &text[at..at + 2];
            let digits = pair.bytes().all(|b| b.is_ascii_hexdigit());
            u8::from_str_radix(pair, 16).ok().filter(|_| digits)
        })
        .collect()
}

fn uuid_text(bytes: &[u8]) -> String {
    let digits = hex(bytes).to_ascii_lowercase();
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

fn uuid_bytes(text: &str) -> Option<Vec<u8>> {
    let dashes = [8, 13, 18, 23];
    if text.len() != 36 || !text.is_ascii() {
        return None;
    }
    let placed = |(at, b): (usize, u8)| (b == b'-') == dashes.contains(&at);
    if !text.bytes().enumerate().all(placed) {
        return None;
    }
    unhex(&text.replace('-', ""))
}

fn to_binary(value: RawValue<'_>, subtype: u8, how: How) -> Option<Result<Value, String>> {
    let ordered = |mut bytes: Vec<u8>| {
        if how.big_endian {
            bytes.reverse();
        }
        bytes
    };
    let bytes = match value {
        RawValue::Binary {
            subtype: own,
            bytes,
        } if own == subtype => bytes.to_vec(),
        RawValue::Binary { subtype: own, .. } => {
            return Some(Err(format!(
                "binary data of subtype {own} cannot be converted to subtype {subtype}"
            )));
        }
        // Numbers cannot be converted to a UUID, which has 16 bytes.
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) if subtype == UUID => {
            return None;
        }
        RawValue::Int32(n) => ordered(n.to_le_bytes().to_vec()),
        RawValue::Int64(n) => ordered(n.to_le_bytes().to_vec()),
        RawValue::Double(x) => ordered(x.to_le_bytes().to_vec()),
        RawValue::String(text) => {
            let format = how.format?;
            let bytes = match format {
                Format::Uuid | Format::Auto if subtype == UUID => uuid_bytes(text),
                Format::Uuid | Format::Auto => None,
                // Only the UUID notation produces a UUID.
                _ if subtype == UUID => None,
                Format::Base64 => base64::decode(text, base64::STANDARD),
                Format::Base64Url => base64::decode(text, base64::URL),
                Format::Hex => unhex(text),
                Format::Utf8 => Some(text.as_bytes().to_vec()),
            };
            match bytes {
                Some(bytes) => bytes,
                None => {
                    return Some(Err(format!(
                        "the string {} cannot be converted to binary data of subtype {subtype} in this format",
                        shell(value)
                    )));
                }
            }
        }
        _ => return None,
    };
    Some(Ok(Value::Binary { subtype, bytes }))
}

fn failure(operator: &'static Operator, why: &str) -> Error {
    Error::new(
        ErrorCode::CONVERSION_FAILURE,
        format!("{}: {why}", operator.name),
    )
}

/// Evaluates a short form, such as `{$toInt: e}`.
fn short<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    element_type: ElementType,
    subtype: u8,
    format: Option<Format>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let Some(raw) = value.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let target = Target {
        element_type,
        subtype,
    };
    let how = How { format, ..PLAIN };
    match converted(raw, target, how)? {
        Ok(value) => Ok(value.into()),
        Err(why) => Err(failure(operator, &why)),
    }
}

macro_rules! short_forms {
    ($($name:ident $to:ident $subtype:expr, $format:expr;)*) => {
        $(pub(super) fn $name<'e>(
            operator: &'static Operator,
            args: &'e [Expression],
            ctx: EvalContext<'e>,
        ) -> Result<EvalValue<'e>> {
            short(operator, args, ctx, ElementType::$to, $subtype, $format)
        })*
    };
}

short_forms! {
    to_array Array 0, None;
    to_bool Boolean 0, None;
    to_date DateTime 0, None;
    to_decimal_number Decimal128 0, None;
    to_double_number Double 0, None;
    to_int Int32 0, None;
    to_long Int64 0, None;
    to_object Document 0, None;
    to_object_id ObjectId 0, None;
    to_text String 0, Some(Format::Auto);
    to_uuid Binary UUID, Some(Format::Uuid);
}

fn wrong(message: String) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

/// Parses a type name or number.
fn element_type(value: RawValue<'_>) -> Result<ElementType> {
    if let RawValue::String(name) = value {
        return ElementType::from_name(name)
            .ok_or_else(|| Error::bad_value(format!("Unknown type name: {name}")));
    }
    if !value.is_number() {
        return Err(wrong(format!(
            "$convert's 'to' argument must be a string or number, but is {}",
            value.type_name()
        )));
    }
    let Some(number) = value.as_i64_exact() else {
        return Err(wrong(format!(
            "in $convert, a numeric 'to' argument must be an integer, not {}",
            shell(value)
        )));
    };
    ElementType::from_type_code(number).ok_or_else(|| {
        wrong(format!(
            "in $convert, the numeric value for 'to' does not correspond to a BSON type: {number}"
        ))
    })
}

/// Parses `to`: a type, or `{type, subtype}`; `None` for null and missing.
fn target_of(value: &EvalValue<'_>) -> Result<Option<Target>> {
    let Some(raw) = value.non_null() else {
        return Ok(None);
    };
    let RawValue::Document(doc) = raw else {
        return Ok(Some(Target {
            element_type: element_type(raw)?,
            subtype: 0,
        }));
    };
    if let Some(other) = doc.iter().find(|e| !matches!(e.key(), "type" | "subtype")) {
        return Err(wrong(format!(
            "$convert found an unknown field of 'to': '{}'",
            other.key()
        )));
    }
    let Some(name) = doc.get("type") else {
        return Err(wrong(
            "$convert requires the field 'type' of 'to'".to_owned(),
        ));
    };
    let subtype = doc.get("subtype").map_or(Ok(0), binary_subtype)?;
    Ok(Some(Target {
        element_type: element_type(name)?,
        subtype,
    }))
}

/// Parses `to.subtype`. Errors: 4341108 for a value that is not a number, 4341106 for one that is
/// not an integer, 4341107 for one that is not a binary subtype.
fn binary_subtype(value: RawValue<'_>) -> Result<u8> {
    if !value.is_number() {
        return Err(location(
            4341108,
            format!(
                "In $convert, the 'subtype' argument must be a number, but is {}",
                value.type_name()
            ),
        ));
    }
    let integer = value.as_i64_exact().and_then(|n| i32::try_from(n).ok());
    let Some(integer) = integer else {
        return Err(location(
            4341106,
            format!(
                "In $convert, a numeric 'subtype' argument must be a 32-bit integer, not {}",
                shell(value)
            ),
        ));
    };
    u8::try_from(integer)
        .ok()
        .filter(|n| *n < 10 || *n >= 128)
        .ok_or_else(|| {
            location(
                4341107,
                format!("In $convert, {integer} is not the number of a binary subtype"),
            )
        })
}

fn format_of(value: &EvalValue<'_>) -> Result<Option<Format>> {
    Ok(Some(match value.non_null() {
        None => return Ok(None),
        Some(RawValue::String(name)) => match name {
            "base64" => Format::Base64,
            "base64url" => Format::Base64Url,
            "utf8" => Format::Utf8,
            "hex" => Format::Hex,
            "uuid" => Format::Uuid,
            "auto" => Format::Auto,
            other => {
                return Err(Error::new(
                    ErrorCode(4341125),
                    format!("invalid 'format' argument for $convert: {other}"),
                ));
            }
        },
        Some(other) => {
            return Err(Error::new(
                ErrorCode(4341114),
                format!(
                    "$convert requires that 'format' be a string, found: {}",
                    other.type_name()
                ),
            ));
        }
    }))
}

fn big_endian(value: &EvalValue<'_>) -> Result<bool> {
    match value.non_null() {
        None | Some(RawValue::String("little")) => Ok(false),
        Some(RawValue::String("big")) => Ok(true),
        Some(RawValue::String(other)) => Err(location(
            9130002,
            format!("invalid 'byteOrder' argument for $convert: {other}; use 'little' or 'big'"),
        )),
        Some(other) => Err(location(
            9130001,
            format!(
                "$convert requires that 'byteOrder' be a string, found: {}",
                other.type_name()
            ),
        )),
    }
}

/// `$convert: {input, to, format, byteOrder, onError, onNull}`.
pub(super) fn convert_any<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let input = args[0].evaluate(ctx)?;
    let inner = ctx.holding(budget::heap_bytes(&input))?;
    let target = target_of(&args[1].evaluate(inner)?)?;
    let Some(raw) = input.non_null() else {
        return match is_absent(&args[5]) {
            true => Ok(EvalValue::NULL),
            false => args[5].evaluate(inner),
        };
    };
    let Some(target) = target else {
        return Ok(EvalValue::NULL);
    };
    // These operands are not checked if there is nothing to convert.
    let how = How {
        format: format_of(&args[2].evaluate(inner)?)?,
        big_endian: big_endian(&args[3].evaluate(inner)?)?,
    };
    let text_and_bytes = matches!(
        (raw, target.element_type),
        (RawValue::Binary { .. }, ElementType::String) | (RawValue::String(_), ElementType::Binary)
    );
    if text_and_bytes && how.format.is_none() {
        return Err(operator.error(
            4341115,
            format_args!(
                "requires 'format' when converting from {} to {}",
                raw.type_name(),
                target.element_type.name()
            ),
        ));
    }
    match converted(raw, target, how)? {
        Ok(value) => Ok(value.into()),
        Err(_) if !is_absent(&args[4]) => args[4].evaluate(inner),
        Err(why) => Err(failure(operator, &why)),
    }
}
