//! `$dateToString` and `$dateFromString`, and their format specifiers.
//!
//! ```text
//!   %Y year  %m month  %d day  %H hour  %M minute  %S second  %L millisecond  %j day of year
//!   %b %B name of month  %G ISO year  %V ISO week  %u ISO weekday
//!   %z +hhmm  %Z minutes ahead of UTC  %% percent
//!   only when formatting: %U week  %w weekday, 1 for Sunday
//! ```

use std::fmt::Write;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DateTime, RawValue, Value};

use super::super::eval::{EvalContext, EvalValue};
use super::super::operator::{Operator, is_absent};
use super::super::{Expression, budget, location};
use super::zone::{self, Zone};
use super::{Civil, DAY_MILLIS, days_of_iso, free_form, millis_of, not_a_date};

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Formats a date. Errors: 18535 and 18536 for an invalid format, 18537 for a year outside 0-9999.
fn write(format: &str, millis: i64, zone: &Zone) -> Result<String> {
    let local = zone.to_local(millis);
    let civil = Civil::from_millis(local);
    let (iso_year, iso_week) = civil.iso_week();
    let four_digits = |year: i64| match (0..=9999).contains(&year) {
        true => Ok(year),
        false => Err(location(
            18537,
            format!(
                "Could not convert date to string: the year {year} is outside the supported range of 0-9999"
            ),
        )),
    };
    let mut out = String::with_capacity(format.len() + 16);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(specifier) = chars.next() else {
            return Err(location(18535, "Unmatched '%' at end of format string"));
        };
        // Writing to a String cannot fail.
        let _ = match specifier {
            '%' => write!(out, "%"),
            'Y' => write!(out, "{:04}", four_digits(civil.year)?),
            'm' => write!(out, "{:02}", civil.month),
            'd' => write!(out, "{:02}", civil.day),
            'H' => write!(out, "{:02}", civil.millis / 3_600_000),
            'M' => write!(out, "{:02}", civil.millis / 60_000 % 60),
            'S' => write!(out, "{:02}", civil.millis / 1000 % 60),
            'L' => write!(out, "{:03}", civil.millis % 1000),
            'j' => write!(out, "{:03}", civil.day_of_year()),
            'b' => write!(out, "{}", &MONTHS[civil.month as usize - 1][..3]),
            'B' => write!(out, "{}", MONTHS[civil.month as usize - 1]),
            'G' => write!(out, "{:04}", four_digits(iso_year)?),
            'V' => write!(out, "{iso_week:02}"),
            'u' => write!(out, "{}", civil.iso_weekday()),
            'U' => write!(out, "{:02}", civil.sunday_week()),
            'w' => write!(out, "{}", civil.iso_weekday() % 7 + 1),
            'z' => {
                let minutes = zone.offset_at(millis) / 60_000;
                let sign = if minutes < 0 { '-' } else { '+' };
                let minutes = minutes.abs();
                write!(out, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            'Z' => {
                let minutes = zone.offset_at(millis) / 60_000;
                write!(out, "{minutes}")
            }
            other => return Err(unknown_specifier(other)),
        };
        budget::check_value(out.len())?;
    }
    Ok(out)
}

/// Checks a format before a date is known. Errors: 18535 and 18536.
fn check_written(format: &str) -> Result<()> {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        match chars.next() {
            None => return Err(location(18535, "Unmatched '%' at end of format string")),
            Some(known) if "%YmdHMSLjbBGVuUwzZ".contains(known) => {}
            Some(other) => return Err(unknown_specifier(other)),
        }
    }
    Ok(())
}

/// Checks a constant zone of `$dateToString` or `$dateFromString` when the call is parsed.
pub(in crate::expression) fn check_zone(
    operator: &'static Operator,
    args: &[Expression],
) -> Result<()> {
    zone::check_constant(operator, args, 2)
}

fn unknown_specifier(specifier: char) -> Error {
    location(
        18536,
        format!("Invalid format character '%{specifier}' in format string"),
    )
}

/// The format in an operand; `None` for null and missing. Errors: `code` for any other type.
fn format_operand<'v>(
    operator: &'static Operator,
    value: &'v EvalValue<'_>,
    code: i32,
) -> Result<Option<&'v str>> {
    match value.non_null() {
        None => Ok(None),
        Some(RawValue::String(format)) => Ok(Some(format)),
        Some(other) => Err(operator.error(
            code,
            format_args!(
                "requires that 'format' be a string, found: {} with value {}",
                other.type_name(),
                shell(other)
            ),
        )),
    }
}

/// `$dateToString: {date, format, timezone, onNull}`.
pub(in crate::expression) fn date_to_string<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let date = args[0].evaluate(ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&date))?;
    let format = args[1].evaluate(ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&format))?;
    // An invalid format or zone is an error even if the date is null.
    let given = format_operand(operator, &format, 18533)?;
    if let Some(format) = given {
        check_written(format)?;
    }
    let zone = zone::operand(operator, &args[2], ctx)?;
    let Some(raw) = date.non_null() else {
        return match is_absent(&args[3]) {
            true => Ok(EvalValue::NULL),
            false => args[3].evaluate(ctx),
        };
    };
    let Some(zone) = zone else {
        return Ok(EvalValue::NULL);
    };
    let format = match (is_absent(&args[1]), given) {
        (true, _) if zone.is_utc() => "%Y-%m-%dT%H:%M:%S.%LZ",
        (true, _) => "%Y-%m-%dT%H:%M:%S.%L",
        (false, Some(format)) => format,
        (false, None) => return Ok(EvalValue::NULL),
    };
    let millis = millis_of(raw).ok_or_else(|| not_a_date(operator, 16006, raw))?;
    Ok(Value::String(write(format, millis, &zone)?).into())
}

/// The parts of a date found in a text; `None` for parts that are absent.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Parsed {
    pub(super) year: Option<i64>,
    pub(super) month: Option<i64>,
    pub(super) day: Option<i64>,
    pub(super) day_of_year: Option<i64>,
    pub(super) iso_year: Option<i64>,
    pub(super) iso_week: Option<i64>,
    pub(super) iso_weekday: Option<i64>,
    /// Time of day in milliseconds.
    pub(super) time: i64,
    /// Offset from UTC in milliseconds, positive if ahead.
    pub(super) offset: Option<i64>,
}

impl Parsed {
    /// Days since 1970. Errors: parts are missing, or the day does not exist.
    pub(super) fn days(&self) -> Result<i64, String> {
        if let Some(year) = self.iso_year {
            let (Some(week), weekday) = (self.iso_week, self.iso_weekday.unwrap_or(1)) else {
                return Err("the ISO week is missing".to_owned());
            };
            let days = days_of_iso(year, week, weekday);
            let (back, same) = Civil::from_millis(days * DAY_MILLIS).iso_week();
            if (back, same) != (year, week) || !(1..=7).contains(&weekday) {
                return Err("the day does not exist".to_owned());
            }
            return Ok(days);
        }
        let missing = |part: &str| format!("an incomplete date: the {part} is missing");
        let year = self.year.ok_or_else(|| missing("year"))?;
        if let (Some(day), None) = (self.day_of_year, self.month) {
            let length = Civil::days_of(year + 1, 1, 1) - Civil::days_of(year, 1, 1);
            if !(1..=length).contains(&day) {
                return Err("the day does not exist".to_owned());
            }
            return Ok(Civil::days_of(year, 1, 1) + day - 1);
        }
        let month = self.month.ok_or_else(|| missing("month"))?;
        let day = self.day.ok_or_else(|| missing("day"))?;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err("the day does not exist".to_owned());
        }
        let days = Civil::days_of(year, month, day);
        let back = Civil::from_millis(days * DAY_MILLIS);
        match (back.month, back.day) == (month, day) {
            true => Ok(days),
            false => Err("the day does not exist".to_owned()),
        }
    }
}

/// Takes up to `most` digits from the start of a text; returns their value and the remaining text.
pub(super) fn take_digits(text: &str, most: usize) -> Option<(i64, &str)> {
    let count = text
        .bytes()
        .take(most)
        .take_while(u8::is_ascii_digit)
        .count();
    let (digits, rest) = text.split_at(count);
    Some((digits.parse().ok()?, rest))
}

/// Takes the name of a month, or its first three letters, from the start of a text; ignores case.
pub(super) fn take_month(text: &str) -> Option<(i64, &str)> {
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = text.split_at(letters);
    let fits =
        |full: &str| word.eq_ignore_ascii_case(full) || word.eq_ignore_ascii_case(&full[..3]);
    let at = MONTHS.iter().position(|full| fits(full))?;
    Some((at as i64 + 1, rest))
}

/// For a numeric specifier: the maximum number of digits, the smallest and the largest value.
fn numeric(specifier: char) -> Option<(usize, i64, i64)> {
    Some(match specifier {
        'Y' | 'G' => (4, 0, 9999),
        'm' => (2, 1, 12),
        'd' => (2, 1, 31),
        'H' => (2, 0, 24),
        'M' | 'S' => (2, 0, 59),
        'L' => (3, 0, 999),
        'j' => (3, 1, 366),
        'V' => (2, 1, 53),
        'u' => (1, 1, 7),
        _ => return None,
    })
}

/// Parses a text by a format. The outer error is an invalid format, the inner one a text that does
/// not match it.
fn read(format: &str, text: &str) -> Result<Result<Parsed, String>> {
    let mut parsed = Parsed::default();
    let (mut hour, mut minute, mut second, mut milli) = (0, 0, 0, 0);
    let mut rest = text;
    let mut failure: Option<String> = None;
    let mut chars = format.chars();
    // Check the whole format even if the text does not match: the format may be invalid, too.
    while let Some(c) = chars.next() {
        let literal = match c {
            '%' => match chars.next() {
                None => return Err(location(18535, "Unmatched '%' at end of format string")),
                Some('%') => '%',
                Some(specifier) => {
                    let number = numeric(specifier);
                    if number.is_none() && !matches!(specifier, 'b' | 'B' | 'z' | 'Z') {
                        return Err(unknown_specifier(specifier));
                    }
                    if failure.is_some() {
                        continue;
                    }
                    let taken = match (number, specifier) {
                        (Some((digits, least, most)), _) => {
                            take_digits(rest, digits).filter(|(n, _)| (least..=most).contains(n))
                        }
                        (None, 'z') => take_offset(rest),
                        (None, 'Z') => take_minutes(rest),
                        (None, _) => take_month(rest),
                    };
                    let Some((n, after)) = taken else {
                        failure = Some(format!(
                            "the text does not fit the format at '%{specifier}'"
                        ));
                        continue;
                    };
                    rest = after;
                    match specifier {
                        'Y' => parsed.year = Some(n),
                        'G' => parsed.iso_year = Some(n),
                        'm' | 'b' | 'B' => parsed.month = Some(n),
                        'd' => parsed.day = Some(n),
                        'H' => hour = n,
                        'M' => minute = n,
                        'S' => second = n,
                        'L' => milli = n,
                        'j' => parsed.day_of_year = Some(n),
                        'V' => parsed.iso_week = Some(n),
                        'u' => parsed.iso_weekday = Some(n),
                        _ => parsed.offset = Some(n),
                    }
                    continue;
                }
            },
            other => other,
        };
        if failure.is_none() {
            match rest.strip_prefix(literal) {
                Some(after) => rest = after,
                None => failure = Some(format!("the text does not fit the format at '{literal}'")),
            }
        }
    }
    if failure.is_none() && !rest.is_empty() {
        failure = Some(format!("there is trailing data: '{rest}'"));
    }
    parsed.time = hour * 3_600_000 + minute * 60_000 + second * 1000 + milli;
    Ok(match failure {
        Some(why) => Err(why),
        None => Ok(parsed),
    })
}

/// Takes `+hh`, `+hhmm`, `+hh:mm`, `Z`, `UTC` or `GMT` from the start of a text, in milliseconds.
pub(super) fn take_offset(text: &str) -> Option<(i64, &str)> {
    for word in ["UTC", "GMT", "Z"] {
        if let Some(rest) = text.strip_prefix(word) {
            return Some((0, rest));
        }
    }
    let lengths = [6, 5, 3];
    lengths.into_iter().find_map(|length| {
        let (offset, rest) = text.split_at_checked(length)?;
        Some((zone::offset(offset)?, rest))
    })
}

/// Takes minutes ahead of UTC, such as `+60` or `-445`, from the start of a text, in milliseconds.
fn take_minutes(text: &str) -> Option<(i64, &str)> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let (minutes, rest) = take_digits(rest, 4)?;
    Some((sign * minutes * 60_000, rest))
}

/// The instant of a parsed date in a zone (default UTC), in milliseconds since 1970. Errors: the
/// parts are not a date; or both the text and the argument give a zone, and the argument's is not
/// UTC.
fn instant(parsed: &Parsed, zone: Option<&Zone>) -> Result<i64, String> {
    let local = parsed.days()? * DAY_MILLIS + parsed.time;
    match (parsed.offset, zone) {
        (Some(_), Some(zone)) if !matches!(zone, Zone::Fixed(0)) => Err(
            "a text with time zone information cannot be passed together with a 'timezone'"
                .to_owned(),
        ),
        (Some(offset), _) => Ok(local - offset),
        (None, Some(zone)) => zone
            .to_utc(local)
            .ok_or_else(|| "the date does not exist".to_owned()),
        (None, None) => Ok(local),
    }
}

/// Parses a date in any common notation.
pub(in crate::expression) fn parse_any(text: &str) -> Result<i64, String> {
    instant(&free_form::parse(text)?, None)
}

/// Parses a date by a format, or in any common notation without one. The outer error is an invalid
/// format.
pub(in crate::expression) fn parse_by(
    format: Option<&str>,
    text: &str,
    zone: Option<&Zone>,
) -> Result<Result<i64, String>> {
    let parsed = match format {
        Some(format) => read(format, text)?,
        None => free_form::parse(text),
    };
    Ok(parsed.and_then(|parsed| instant(&parsed, zone)))
}

/// `$dateFromString: {dateString, format, timezone, onError, onNull}`.
pub(in crate::expression) fn date_from_string<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let text = args[0].evaluate(ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&text))?;
    let format = args[1].evaluate(ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&format))?;
    // An invalid format or zone is an error even if the text is null.
    let given = format_operand(operator, &format, 40684)?;
    if let Some(format) = given {
        read(format, "")?.ok();
    }
    let zone = match is_absent(&args[2]) {
        true => None,
        false => Some(zone::operand(operator, &args[2], ctx)?),
    };
    let Some(raw) = text.non_null() else {
        return match is_absent(&args[4]) {
            true => Ok(EvalValue::NULL),
            false => args[4].evaluate(ctx),
        };
    };
    let outcome = match raw {
        RawValue::String(_) if matches!(zone, Some(None)) => return Ok(EvalValue::NULL),
        RawValue::String(_) if given.is_none() && !is_absent(&args[1]) => {
            return Ok(EvalValue::NULL);
        }
        RawValue::String(text) => parse_by(given, text, zone.flatten().as_ref())?
            .map_err(|why| format!("Error parsing date string {}: {why}", shell(raw))),
        other => Err(format!(
            "requires that 'dateString' be a string, found: {} with value {}",
            other.type_name(),
            shell(other)
        )),
    };
    match outcome {
        Ok(millis) => Ok(Value::DateTime(DateTime(millis)).into()),
        Err(_) if !is_absent(&args[3]) => args[3].evaluate(ctx),
        Err(why) => Err(operator.error(ErrorCode::CONVERSION_FAILURE.0, why)),
    }
}
