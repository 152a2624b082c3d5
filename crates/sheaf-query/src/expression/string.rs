//! Operators on strings. As in MongoDB, case conversion affects only ASCII letters.

use sheaf_bson::error_code::{Error, Result};
use sheaf_bson::{ArrayBuilder, RawValue, Timestamp, Value};

use super::date::Civil;
use super::eval::{EvalContext, EvalValue, pair};
use super::operator::{Operator, is_absent};
use super::{Expression, budget, coerce, convert};

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
                budget::check_string(out.len() + text.len())?;
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

/// The operand as text: strings, numbers, dates; "" for null and missing. Errors: 16007 for other
/// types.
fn text_of(operator: &'static Operator, value: &EvalValue<'_>) -> Result<String> {
    let Some(raw) = value.non_null() else {
        return Ok(String::new());
    };
    match raw {
        RawValue::String(text) | RawValue::Symbol(text) | RawValue::JavaScript(text) => {
            budget::check_string(text.len())?;
            Ok(text.to_owned())
        }
        RawValue::Double(x) => Ok(six_digits(x)),
        RawValue::Timestamp(time) => Ok(timestamp_text(time)),
        RawValue::Int32(_)
        | RawValue::Int64(_)
        | RawValue::Decimal128(_)
        | RawValue::DateTime(_) => Ok(convert::text(raw).unwrap_or_default()),
        other => Err(operator.error(
            16007,
            format_args!(
                "cannot convert a value of type {} to a string",
                other.type_name()
            ),
        )),
    }
}

/// A double as text, as these operators convert it: six significant digits, unlike `$toString`,
/// without trailing zeros, and with an exponent of two digits or more if it is below -4 or above 5.
fn six_digits(x: f64) -> String {
    if x.is_nan() {
        return "nan".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{x:.5e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let cut = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(5 - exponent) {
        Ok(places) if exponent >= -4 => cut(&format!("{x:.places$}")),
        _ => format!("{}{}", cut(digits), convert::exponent_text(exponent)),
    }
}

/// A timestamp as `Jan  2 03:04:05:6`, where 6 is its ordinal. The year is omitted.
fn timestamp_text(time: Timestamp) -> String {
    let civil = Civil::from_millis(i64::from(time.time) * 1000);
    let seconds = civil.millis / 1000;
    format!(
        "{} {:>2} {:02}:{:02}:{:02}:{}",
        civil.month_abbreviation(),
        civil.day,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        time.increment
    )
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

/// -1, 0 or 1; ignores the case of ASCII letters.
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

/// A start or length of `$substrBytes`: any number. Errors: `code` for another type, 31109 for a
/// double that does not fit a long.
fn byte_count(
    operator: &'static Operator,
    value: &EvalValue<'_>,
    code: i32,
    role: &str,
) -> Result<i64> {
    match value.as_raw() {
        Some(raw) if raw.is_number() => coerce::to_long(raw),
        _ => Err(operator.error(
            code,
            format_args!("takes a number as its {role}, not {}", value.type_name()),
        )),
    }
}

/// `[string, start, bytes]`; a negative length means up to the end.
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
            format_args!("requires a start that is not negative, found: {start}"),
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
    let count = |arg: &'e Expression, role: &str, codes: [i32; 2]| -> Result<i32> {
        let value = arg.evaluate(ctx)?;
        let raw = value.as_raw().unwrap_or(RawValue::Null);
        if !raw.is_number() {
            return Err(operator.error(
                codes[0],
                format_args!("takes a number as its {role}, not {}", value.type_name()),
            ));
        }
        let integer = raw.as_i64_exact().and_then(|n| i32::try_from(n).ok());
        integer.ok_or_else(|| {
            operator.error(
                codes[1],
                format_args!("takes a 32-bit integer as its {role}"),
            )
        })
    };
    let start = count(&args[1], "start", [34450, 34451])?;
    let length = count(&args[2], "length", [34452, 34453])?;
    let natural = |n: i32, role: &str, code: i32| {
        usize::try_from(n).map_err(|_| {
            operator.error(
                code,
                format_args!("requires a {role} that is not negative, found: {n}"),
            )
        })
    };
    let length = natural(length, "length", 34454)?;
    let start = natural(start, "start", 34455)?;
    let part: String = text.chars().skip(start).take(length).collect();
    Ok(Value::String(part).into())
}

/// Splits a string at a delimiter.
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
                "requires an expression that evaluates to a string as a first argument, found: {}",
                text.type_name()
            ),
        ));
    };
    let mut out = ArrayBuilder::new();
    let Some(delimiter) = delimiter.as_str() else {
        return Err(operator.error(
            10503900,
            format_args!(
                "requires an expression that evaluates to a string as a second argument, found: {}",
                delimiter.type_name()
            ),
        ));
    };
    if delimiter.is_empty() {
        return Err(operator.error(40087, "requires a delimiter that is not empty"));
    }
    for part in text.split(delimiter) {
        out.push(part);
        budget::check_value(out.current_len())?;
    }
    Ok(Value::Array(out.finish()).into())
}

/// The characters that trims remove by default: white space as listed in MongoDB's manual.
fn is_space(c: char) -> bool {
    matches!(
        c,
        '\0' | ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{a0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200a}'
    )
}

/// `{input, chars}`: removes the characters of a set from the left, the right, or both ends.
fn trimmed<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    (left, right): (bool, bool),
) -> Result<EvalValue<'e>> {
    let input = args[0].evaluate(ctx)?;
    let Some(raw) = input.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let Some(text) = raw.as_str() else {
        return Err(operator.error(
            50699,
            format_args!("requires its input to be a string, got {}", raw.type_name()),
        ));
    };
    let chars = args[1].evaluate(ctx.holding(budget::heap_bytes(&input))?)?;
    let set: Option<Vec<char>> = match is_absent(&args[1]) {
        true => None,
        false => match chars.non_null() {
            None => return Ok(EvalValue::NULL),
            Some(RawValue::String(chars)) => Some(chars.chars().collect()),
            Some(other) => {
                return Err(operator.error(
                    50700,
                    format_args!("requires 'chars' to be a string, got {}", other.type_name()),
                ));
            }
        },
    };
    let goes = |c: char| match &set {
        None => is_space(c),
        Some(set) => set.contains(&c),
    };
    let mut rest = text;
    if left {
        rest = rest.trim_start_matches(goes);
    }
    if right {
        rest = rest.trim_end_matches(goes);
    }
    Ok(Value::String(rest.to_owned()).into())
}

pub(super) fn trim<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    trimmed(operator, args, ctx, (true, true))
}

pub(super) fn ltrim<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    trimmed(operator, args, ctx, (true, false))
}

pub(super) fn rtrim<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    trimmed(operator, args, ctx, (false, true))
}

/// `{input, find, replacement}`: replaces at most `most` occurrences.
fn replaced<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    most: usize,
) -> Result<EvalValue<'e>> {
    let mut values = Vec::with_capacity(3);
    let mut held = 0;
    for arg in args {
        let value = arg.evaluate(ctx.holding(held)?)?;
        held += budget::heap_bytes(&value);
        values.push(value);
    }
    let mut texts = [""; 3];
    let mut null = false;
    let roles = [
        ("input", 10503904),
        ("find", 10503901),
        ("replacement", 10503902),
    ];
    // A wrong type is an error even if another operand is null.
    for ((value, (role, code)), text) in values.iter().zip(roles).zip(&mut texts) {
        match value.non_null() {
            None => null = true,
            Some(RawValue::String(found)) => *text = found,
            Some(other) => {
                return Err(operator.error(
                    code,
                    format_args!(
                        "requires that '{role}' be a string, found: {}",
                        sheaf_bson::json::shell(other)
                    ),
                ));
            }
        }
    }
    if null {
        return Ok(EvalValue::NULL);
    }
    let [input, find, replacement] = texts;
    let found = input.matches(find).take(most).count();
    let grown = input.len() + found.saturating_mul(replacement.len());
    budget::check_string(grown - found * find.len())?;
    Ok(Value::String(input.replacen(find, replacement, most)).into())
}

pub(super) fn replace_one<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    replaced(operator, args, ctx, 1)
}

pub(super) fn replace_all<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    replaced(operator, args, ctx, usize::MAX)
}

/// `[string, substring, start, end]`: the position of the first occurrence within `start..end`, or
/// -1. Positions count bytes or characters.
fn index_of<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    by_bytes: bool,
) -> Result<EvalValue<'e>> {
    let (text, wanted) = pair(args, ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&text) + budget::heap_bytes(&wanted))?;
    let codes = if by_bytes {
        (40091, 40092)
    } else {
        (40093, 40094)
    };
    let text = match text.non_null() {
        None => return Ok(EvalValue::NULL),
        Some(RawValue::String(text)) => text,
        Some(other) => {
            return Err(operator.error(
                codes.0,
                format_args!(
                    "requires a string as the first argument, found: {}",
                    other.type_name()
                ),
            ));
        }
    };
    let Some(RawValue::String(wanted)) = wanted.as_raw() else {
        return Err(operator.error(
            codes.1,
            format_args!(
                "requires a string as the second argument, found: {}",
                wanted.type_name()
            ),
        ));
    };
    let bound = |at: usize| -> Result<Option<usize>> {
        let Some(arg) = args.get(at) else {
            return Ok(None);
        };
        let value = arg.evaluate(ctx)?;
        let integer = value.as_raw().and_then(|v| v.as_i64_exact());
        match integer.and_then(|n| i32::try_from(n).ok()) {
            Some(n) if n >= 0 => Ok(Some(n as usize)),
            Some(n) => Err(operator.error(
                40097,
                format_args!(
                    "requires a starting or ending index that is not negative, found: {n}"
                ),
            )),
            None => Err(operator.error(
                40096,
                format_args!("requires an integral index, found: {}", value.type_name()),
            )),
        }
    };
    let (from, to) = (bound(2)?, bound(3)?);
    let from = from.unwrap_or(0);
    let found = match by_bytes {
        true => byte_index(text, wanted, from, to),
        false => code_point_index(text, wanted, from, to),
    };
    Ok(Value::Int32(found.map_or(-1, |at| at as i32)).into())
}

/// The byte position of `wanted`, which must end within `from..to`.
fn byte_index(text: &str, wanted: &str, from: usize, to: Option<usize>) -> Option<usize> {
    let to = to.unwrap_or(text.len()).min(text.len());
    let searched = text.as_bytes().get(from..to)?;
    memchr::memmem::find(searched, wanted.as_bytes()).map(|found| from + found)
}

/// The position in characters of `wanted`, which must begin within `from..to` but may end after it.
/// So an empty text is found before every character, and after the last one only in an empty text.
fn code_point_index(text: &str, wanted: &str, from: usize, to: Option<usize>) -> Option<usize> {
    if text.is_empty() && wanted.is_empty() && from == 0 {
        return Some(0);
    }
    let start = text.char_indices().nth(from)?.0;
    let found = start + memchr::memmem::find(&text.as_bytes()[start..], wanted.as_bytes())?;
    let at = from + text[start..found].chars().count();
    (at < to.unwrap_or(usize::MAX) && found < text.len()).then_some(at)
}

pub(super) fn index_of_bytes<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    index_of(operator, args, ctx, true)
}

pub(super) fn index_of_cp<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    index_of(operator, args, ctx, false)
}
