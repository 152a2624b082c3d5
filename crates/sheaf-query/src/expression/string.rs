//! Operators on strings. As in MongoDB, case conversion affects only ASCII letters.

use sheaf_bson::error_code::{Error, Result};
use sheaf_bson::{ArrayBuilder, RawValue, Value};

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::{Operator, is_absent};
use super::regular::{compiled, each_match};
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

/// The operand as text: strings, numbers, dates; "" for null and missing. Errors: 16007 for other
/// types.
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

/// A start or length of `$substrBytes`: any number, truncated toward zero.
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
                "takes a string as its first argument, found: {}",
                text.type_name()
            ),
        ));
    };
    let mut out = ArrayBuilder::new();
    if let RawValue::Regex { pattern, options } = delimiter {
        let regex = compiled(operator, pattern, options)?;
        let mut from = 0;
        each_match(&regex, text, usize::MAX, |start, end| {
            // An empty match delimits nothing.
            if start < end {
                out.push(&text[from..start]);
                from = end;
            }
            budget::check_value(out.current_len())
        })?;
        out.push(&text[from..]);
        return Ok(Value::Array(out.finish()).into());
    }
    let Some(delimiter) = delimiter.as_str() else {
        return Err(operator.error(
            40086,
            format_args!(
                "takes a string or a regular expression as its second argument, found: {}",
                delimiter.type_name()
            ),
        ));
    };
    if delimiter.is_empty() {
        return Err(operator.error(40087, "takes a delimiter that is not empty"));
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
    let mut pattern = None;
    let mut null = false;
    let roles = [("input", 51746), ("find", 51745), ("replacement", 51744)];
    for ((value, (role, code)), text) in values.iter().zip(roles).zip(&mut texts) {
        match value.non_null() {
            None => null = true,
            Some(RawValue::String(found)) => *text = found,
            Some(RawValue::Regex {
                pattern: found,
                options,
            }) if role == "find" => {
                pattern = Some(compiled(operator, found, options)?);
            }
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
    if let Some(regex) = pattern {
        let mut out = String::new();
        let mut from = 0;
        each_match(&regex, input, most, |start, end| {
            out.push_str(&input[from..start]);
            out.push_str(replacement);
            from = end;
            budget::check_value(out.len())
        })?;
        out.push_str(&input[from..]);
        return Ok(Value::String(out).into());
    }
    let found = input.matches(find).take(most).count();
    budget::check_value(input.len() + found.saturating_mul(replacement.len()))?;
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
    let length = if by_bytes {
        text.len()
    } else {
        text.chars().count()
    };
    let from = from.unwrap_or(0);
    let to = to.unwrap_or(length).min(length);
    let nowhere = Ok(Value::Int32(-1).into());
    if from > to {
        return nowhere;
    }
    // The byte offset of the nth character.
    let byte_of = |n: usize| match by_bytes {
        true => n,
        false => text.char_indices().nth(n).map_or(text.len(), |(at, _)| at),
    };
    let (start, end) = (byte_of(from), byte_of(to));
    let Some(found) = memchr::memmem::find(&text.as_bytes()[start..end], wanted.as_bytes()) else {
        return nowhere;
    };
    let at = match by_bytes {
        true => start + found,
        false => from + text[start..start + found].chars().count(),
    };
    Ok(Value::Int32(at as i32).into())
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
