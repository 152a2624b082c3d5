//! Operators on strings. Case is changed for ASCII letters only, as MongoDB does.

use sheaf_bson::error_code::{Error, Result};
use sheaf_bson::{ArrayBuilder, RawValue, Value};

use super::eval::{EvalContext, EvalValue, pair};
use super::operators::Operator;
use super::{Expression, budget, convert};

pub(super) fn concat<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut out = String::new();
    for arg in args {
        let value = arg.evaluate(ctx.holding(out.len())?)?;
        match value.non_null() {
            None => return Ok(EvalValue::NULL),
            Some(RawValue::String(text)) => {
                budget::check_value(out.len() + text.len())?;
                out.push_str(text);
            }
            Some(other) => {
                return Err(operator.error(
                    16702,
                    format_args!("only supports strings, not {}", other.type_name()),
                ));
            }
        }
    }
    Ok(Value::String(out).into())
}

/// The operand as text: strings, numbers, dates; "" for null and missing.
fn text_of(operator: &'static Operator, value: &EvalValue<'_>) -> Result<String> {
    let Some(raw) = value.non_null() else {
        return Ok(String::new());
    };
    match raw {
        RawValue::String(text) | RawValue::Symbol(text) | RawValue::JavaScript(text) => {
            Ok(text.to_owned())
        }
        RawValue::Int32(_)
        | RawValue::Int64(_)
        | RawValue::Double(_)
        | RawValue::Decimal128(_)
        | RawValue::DateTime(_)
        | RawValue::Timestamp(_) => Ok(convert::text(raw).unwrap_or_default()),
        other => Err(operator.error(
            16007,
            format_args!(
                "cannot take a value of type {} as a string",
                other.type_name()
            ),
        )),
    }
}

pub(super) fn to_lower<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut text = text_of(operator, &args[0].evaluate(ctx)?)?;
    text.make_ascii_lowercase();
    Ok(Value::String(text).into())
}

pub(super) fn to_upper<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut text = text_of(operator, &args[0].evaluate(ctx)?)?;
    text.make_ascii_uppercase();
    Ok(Value::String(text).into())
}

/// -1, 0 or 1, ASCII case ignored.
pub(super) fn strcasecmp<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let a = text_of(operator, &args[0].evaluate(ctx)?)?.to_ascii_uppercase();
    let ctx = ctx.holding(a.len())?;
    let b = text_of(operator, &args[1].evaluate(ctx)?)?.to_ascii_uppercase();
    Ok(Value::Int32(a.as_bytes().cmp(b.as_bytes()) as i32).into())
}

fn length<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    code: i32,
    measure: fn(&str) -> usize,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    match value.as_raw() {
        Some(RawValue::String(text)) => Ok(Value::Int32(measure(text) as i32).into()),
        _ => Err(operator.error(
            code,
            format_args!("requires a string argument, found: {}", value.type_name()),
        )),
    }
}

pub(super) fn str_len_bytes<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    length(operator, args, ctx, 34473, str::len)
}

pub(super) fn str_len_cp<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    length(operator, args, ctx, 34471, |text| text.chars().count())
}

/// A start or a length of `$substrBytes`: any number, cut toward zero.
fn byte_count(
    operator: &'static Operator,
    value: &EvalValue<'_>,
    code: i32,
    role: &str,
) -> Result<i64> {
    match value.as_raw() {
        Some(RawValue::Int32(n)) => Ok(i64::from(n)),
        Some(RawValue::Int64(n)) => Ok(n),
        Some(RawValue::Double(x)) => Ok(x as i64),
        Some(RawValue::Decimal128(d)) => Ok(d.to_f64() as i64),
        _ => Err(operator.error(
            code,
            format_args!("takes a number as its {role}, not {}", value.type_name()),
        )),
    }
}

/// `[string, start, bytes]`; a negative length means to the end.
pub(super) fn substr_bytes<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let text = text_of(operator, &args[0].evaluate(ctx)?)?;
    let ctx = ctx.holding(text.len())?;
    let start = byte_count(operator, &args[1].evaluate(ctx)?, 16034, "start")?;
    let length = byte_count(operator, &args[2].evaluate(ctx)?, 16035, "length")?;
    let Ok(start) = usize::try_from(start) else {
        return Err(operator.error(
            50752,
            format_args!("takes no negative start, found: {start}"),
        ));
    };
    if start >= text.len() {
        return Ok(Value::String(String::new()).into());
    }
    let end = match usize::try_from(length) {
        Ok(length) => start.saturating_add(length).min(text.len()),
        Err(_) => text.len(),
    };
    let inside = |at: &str| -> Error {
        operator.error(
            28656,
            format_args!("must not {at} in the middle of a UTF-8 character"),
        )
    };
    if !text.is_char_boundary(start) {
        return Err(inside("start"));
    }
    match text.get(start..end) {
        Some(part) => Ok(Value::String(part.to_owned()).into()),
        None => Err(operator.error(28657, "must not end in the middle of a UTF-8 character")),
    }
}

/// `[string, start, characters]`.
pub(super) fn substr_cp<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let text = text_of(operator, &args[0].evaluate(ctx)?)?;
    let ctx = ctx.holding(text.len())?;
    let count = |arg: &'e Expression, role: &str, codes: [i32; 3]| -> Result<usize> {
        let value = arg.evaluate(ctx)?;
        let raw = value.as_raw().unwrap_or(RawValue::Null);
        if !raw.is_number() {
            return Err(operator.error(
                codes[0],
                format_args!("takes a number as its {role}, not {}", value.type_name()),
            ));
        }
        let integer = raw.as_i64_exact().and_then(|n| i32::try_from(n).ok());
        let integer = integer.ok_or_else(|| {
            operator.error(
                codes[1],
                format_args!("takes a 32-bit integer as its {role}"),
            )
        })?;
        usize::try_from(integer).map_err(|_| {
            operator.error(
                codes[2],
                format_args!("takes no negative {role}, found: {integer}"),
            )
        })
    };
    let start = count(&args[1], "start", [34450, 34451, 34455])?;
    let length = count(&args[2], "length", [34452, 34453, 34454])?;
    let part: String = text.chars().skip(start).take(length).collect();
    Ok(Value::String(part).into())
}

/// The pieces of a string between delimiters.
pub(super) fn split<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (text, delimiter) = pair(args, ctx)?;
    let (Some(text), Some(delimiter)) = (text.non_null(), delimiter.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    let Some(text) = text.as_str() else {
        return Err(operator.error(
            40085,
            format_args!(
                "takes a string as its first argument, found: {}",
                text.type_name()
            ),
        ));
    };
    let Some(delimiter) = delimiter.as_str() else {
        return Err(operator.error(
            40086,
            format_args!(
                "takes a string as its second argument, found: {}",
                delimiter.type_name()
            ),
        ));
    };
    if delimiter.is_empty() {
        return Err(operator.error(40087, "takes a delimiter that is not empty"));
    }
    let mut out = ArrayBuilder::new();
    for part in text.split(delimiter) {
        out.push(part);
        budget::check_value(out.current_len())?;
    }
    Ok(Value::Array(out.finish()).into())
}
