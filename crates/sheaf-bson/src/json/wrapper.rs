//! Extended JSON wrapper objects, such as `{"$oid": "..."}`, which represent a value. An object
//! whose first key is a wrapper key must be a valid wrapper.

use super::date;
use crate::base64;
use crate::decimal128::Decimal128;
use crate::instant::{DateTime, Timestamp};
use crate::object_id::ObjectId;
use crate::raw::RawDoc;
use crate::raw_value::RawValue;
use crate::value::Value;

/// The value that a wrapper object represents; `None` for an ordinary object. Errors: a message
/// that says what is wrong with the wrapper.
pub(super) fn unwrap(object: RawDoc<'_>) -> Result<Option<Value>, String> {
    let Some(first) = object.first() else {
        return Ok(None);
    };
    let key = first.key();
    if !key.starts_with('$') {
        return Ok(None);
    }
    let value = first.value();
    let known = match key {
        "$oid" => text(value)
            .and_then(ObjectId::parse_hex)
            .map(Value::ObjectId),
        "$numberInt" => text(value).and_then(|s| s.parse().ok()).map(Value::Int32),
        "$numberLong" => text(value).and_then(|s| s.parse().ok()).map(Value::Int64),
        "$numberDouble" => text(value).and_then(double).map(Value::Double),
        "$numberDecimal" => text(value)
            .and_then(|s| s.parse::<Decimal128>().ok())
            .map(Value::Decimal128),
        "$symbol" => text(value).map(|s| Value::Symbol(s.to_owned())),
        "$uuid" => text(value).and_then(uuid).map(|id| Value::Binary {
            subtype: 4,
            bytes: id,
        }),
        "$binary" => document(value).and_then(binary),
        "$regularExpression" => document(value).and_then(regex),
        "$timestamp" => document(value).and_then(timestamp),
        "$dbPointer" => document(value).and_then(db_pointer),
        "$date" => match value {
            RawValue::Int64(ms) => Some(Value::DateTime(DateTime(ms))),
            RawValue::String(s) => date::parse(s).map(|ms| Value::DateTime(DateTime(ms))),
            _ => None,
        },
        "$undefined" => (value == RawValue::Boolean(true)).then_some(Value::Undefined),
        "$minKey" => (value == RawValue::Int32(1)).then_some(Value::MinKey),
        "$maxKey" => (value == RawValue::Int32(1)).then_some(Value::MaxKey),
        "$code" | "$scope" => return code(object).map(Some),
        _ => return Ok(None),
    };
    match known {
        Some(known) if object.iter().count() == 1 => Ok(Some(known)),
        Some(_) => Err(format!("{key} must be the only field of its object")),
        None => Err(format!("invalid value for {key}")),
    }
}

fn text<'a>(value: RawValue<'a>) -> Option<&'a str> {
    value.as_str()
}

fn document(value: RawValue<'_>) -> Option<RawDoc<'_>> {
    value.as_document()
}

/// The values of two fields, in either order; `None` unless the object has exactly these two.
fn two<'a>(object: RawDoc<'a>, a: &str, b: &str) -> Option<(RawValue<'a>, RawValue<'a>)> {
    let both = (object.get(a)?, object.get(b)?);
    (object.iter().count() == 2).then_some(both)
}

fn double(s: &str) -> Option<f64> {
    match s {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ if s
            .bytes()
            .all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b)) =>
        {
            s.parse().ok()
        }
        _ => None,
    }
}

fn binary(object: RawDoc<'_>) -> Option<Value> {
    let (data, subtype) = two(object, "base64", "subType")?;
    let subtype = text(subtype).filter(|s| matches!(s.len(), 1 | 2))?;
    let subtype = u8::from_str_radix(subtype, 16).ok()?;
    let mut bytes = base64::decode(text(data)?)?;
    if subtype == 2 {
        // Subtype 2 (old binary) repeats its length inside.
        let length = i32::try_from(bytes.len()).ok()?;
        bytes.splice(0..0, length.to_le_bytes());
    }
    Some(Value::Binary { subtype, bytes })
}

fn regex(object: RawDoc<'_>) -> Option<Value> {
    let (pattern, options) = two(object, "pattern", "options")?;
    let (pattern, options) = (text(pattern)?, text(options)?);
    if pattern.contains('\0') || options.contains('\0') {
        return None;
    }
    let mut sorted: Vec<char> = options.chars().collect();
    sorted.sort_unstable();
    Some(Value::Regex {
        pattern: pattern.to_owned(),
        options: sorted.into_iter().collect(),
    })
}

fn timestamp(object: RawDoc<'_>) -> Option<Value> {
    let (time, increment) = two(object, "t", "i")?;
    let half = |value: RawValue<'_>| u32::try_from(value.as_i64_exact()?).ok();
    Some(Value::Timestamp(Timestamp::new(
        half(time)?,
        half(increment)?,
    )))
}

fn db_pointer(object: RawDoc<'_>) -> Option<Value> {
    match two(object, "$ref", "$id")? {
        (RawValue::String(namespace), RawValue::ObjectId(id)) => Some(Value::DbPointer {
            namespace: namespace.to_owned(),
            id,
        }),
        _ => None,
    }
}

fn code(object: RawDoc<'_>) -> Result<Value, String> {
    let code = object.get("$code").and_then(text).map(str::to_owned);
    let scope = object.get("$scope").map(document);
    let fields = object.iter().count();
    match (code, scope) {
        (Some(code), None) if fields == 1 => Ok(Value::JavaScript(code)),
        (Some(code), Some(Some(scope))) if fields == 2 => Ok(Value::JavaScriptWithScope {
            code,
            scope: scope.to_buf(),
        }),
        _ => Err("$code must be a string, and only a $scope object may accompany it".to_owned()),
    }
}

/// The 16 bytes of `8-4-4-4-12` hexadecimal digits.
pub(super) fn uuid(text: &str) -> Option<Vec<u8>> {
    let lengths = [8, 4, 4, 4, 12];
    let mut parts = text.split('-');
    let fits = lengths
        .iter()
        .all(|&n| parts.next().is_some_and(|p| p.len() == n));
    if !fits || parts.next().is_some() {
        return None;
    }
    from_hex(&text.replace('-', ""))
}

/// Decodes pairs of hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |b: u8| (b as char).to_digit(16);
    text.as_bytes()
        .chunks_exact(2)
        .map(|p| Some((digit(p[0])? * 16 + digit(p[1])?) as u8))
        .collect()
}
