//! `$toString` and its relatives: null stays null, what cannot be converted is
//! a ConversionFailure (241).

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DateTime, Decimal128, ObjectId, RawValue, Value};

use crate::arithmetic::{Number, decimal};

use super::Expression;
use super::date::{Civil, format, millis_of};
use super::eval::{EvalContext, EvalValue};
use super::operators::Operator;

fn convert<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    how: fn(RawValue<'_>) -> Result<Value, String>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let Some(raw) = value.non_null() else {
        return Ok(EvalValue::NULL);
    };
    match how(raw) {
        Ok(value) => Ok(value.into()),
        Err(why) => {
            let message = format!("{}: {why}", operator.name);
            Err(Error::new(ErrorCode::CONVERSION_FAILURE, message))
        }
    }
}

fn no_conversion(value: RawValue<'_>, to: &str) -> String {
    format!("there is no conversion from {} to {to}", value.type_name())
}

/// The text of a value that `$toString` converts; `None` for other types.
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
        RawValue::Timestamp(time) => Civil::from_millis(i64::from(time.time) * 1000).iso(),
        _ => return None,
    })
}

/// The shortest text that reads back as the same double; exponents for the very large and small.
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
    if magnitude != 0.0 && !(1e-5..1e21).contains(&magnitude) {
        let text = format!("{x:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        };
    }
    x.to_string()
}

pub(super) fn to_string<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| {
        text(value)
            .map(Value::String)
            .ok_or_else(|| no_conversion(value, "string"))
    })
}

pub(super) fn to_bool<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| match value {
        RawValue::Boolean(_)
        | RawValue::Int32(_)
        | RawValue::Int64(_)
        | RawValue::Double(_)
        | RawValue::Decimal128(_)
        | RawValue::String(_)
        | RawValue::ObjectId(_)
        | RawValue::DateTime(_) => Ok(Value::Boolean(value.is_truthy())),
        other => Err(no_conversion(other, "bool")),
    })
}

/// An integer in `least..=most`: numbers are cut toward zero, strings hold decimal digits only.
fn integer(value: RawValue<'_>, to: &str, least: i64, most: i64) -> Result<i64, String> {
    let range = |n: i64| {
        if (least..=most).contains(&n) {
            Ok(n)
        } else {
            Err(format!("{n} does not fit the type {to}"))
        }
    };
    match value {
        RawValue::Int32(n) => Ok(i64::from(n)),
        RawValue::Int64(n) => range(n),
        RawValue::Boolean(b) => Ok(i64::from(b)),
        RawValue::Double(x) => {
            let cut = x.trunc();
            if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&cut) {
                range(cut as i64)
            } else {
                Err(format!("{} does not fit the type {to}", shell(value)))
            }
        }
        RawValue::Decimal128(d) => {
            match decimal::round(d, 0, crate::arithmetic::Rounding::Down).to_i64_exact() {
                Some(n) => range(n),
                None => Err(format!("{d} does not fit the type {to}")),
            }
        }
        RawValue::String(text) => match text.parse::<i64>() {
            Ok(n) if !text.starts_with('+') || text.len() > 1 => range(n),
            _ => Err(format!("the string {} is not an integer", shell(value))),
        },
        RawValue::DateTime(date) if to == "long" => Ok(date.0),
        other => Err(no_conversion(other, to)),
    }
}

pub(super) fn to_int<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| {
        let n = integer(value, "int", i64::from(i32::MIN), i64::from(i32::MAX))?;
        Ok(Value::Int32(n as i32))
    })
}

pub(super) fn to_long<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| {
        integer(value, "long", i64::MIN, i64::MAX).map(Value::Int64)
    })
}

pub(super) fn to_double<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| match value {
        RawValue::Boolean(b) => Ok(Value::Double(f64::from(u8::from(b)))),
        RawValue::DateTime(date) => Ok(Value::Double(date.0 as f64)),
        RawValue::String(text) => match text.parse::<f64>() {
            Ok(x) => Ok(Value::Double(x)),
            Err(_) => Err(format!("the string {} is not a number", shell(value))),
        },
        RawValue::Decimal128(d) => {
            let x = d.to_f64();
            if x.is_infinite() && d.is_finite() {
                return Err(format!("{d} does not fit the type double"));
            }
            Ok(Value::Double(x))
        }
        other => match Number::from_raw(other) {
            Some(number) => Ok(Value::Double(number.to_f64())),
            None => Err(no_conversion(other, "double")),
        },
    })
}

pub(super) fn to_decimal<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| {
        let decimal: Decimal128 = match value {
            RawValue::Boolean(b) => decimal::from_i64(i64::from(b)),
            RawValue::DateTime(date) => decimal::from_i64(date.0),
            RawValue::String(text) => decimal::parse_rounded(text)
                .ok_or_else(|| format!("the string {} is not a number", shell(value)))?,
            other => match Number::from_raw(other) {
                Some(number) => number.to_decimal(),
                None => return Err(no_conversion(other, "decimal")),
            },
        };
        Ok(Value::Decimal128(decimal))
    })
}

pub(super) fn to_object_id<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| match value {
        RawValue::ObjectId(id) => Ok(Value::ObjectId(id)),
        RawValue::String(text) => match ObjectId::parse_hex(text) {
            Some(id) => Ok(Value::ObjectId(id)),
            None => Err(format!(
                "the string {} is not 24 hexadecimal digits",
                shell(value)
            )),
        },
        other => Err(no_conversion(other, "objectId")),
    })
}

pub(super) fn to_date<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    convert(operator, args, ctx, |value| match value {
        RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => {
            integer(value, "date", i64::MIN, i64::MAX).map(|n| Value::DateTime(DateTime(n)))
        }
        RawValue::String(text) => match format::parse_any(text) {
            Ok(millis) => Ok(Value::DateTime(DateTime(millis))),
            Err(why) => Err(format!("the string {} is not a date: {why}", shell(value))),
        },
        other => match millis_of(other) {
            Some(millis) => Ok(Value::DateTime(DateTime(millis))),
            None => Err(no_conversion(other, "date")),
        },
    })
}
