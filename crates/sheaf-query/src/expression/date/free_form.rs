//! Parses dates without a format, in the notations that people and programs commonly use.
//!
//! ```text
//!   2024-02-29   2024/2/9   20240229   2024-060   2/29/2024   29.2.2024   29-Feb-2024
//!   Feb 29, 2024   29 February 2024   Thu, 29 Feb 2024   2024-W09-4
//!   ...each with a time:  T12:30   12:30:15.5   12:30 pm   3pm   t123015
//!   ...and a zone:        Z   UTC   +01:00   -0500   EST   Europe/Berlin
//! ```
//!
//! A text must contain year, month and day. Any text before or after the date that is none of the
//! above is an error: a wrong guess is worse than an error.

use super::format::{Parsed, take_digits, take_month, take_offset};
use super::zone::Zone;
use super::{Civil, DAY_MILLIS};

/// Parses a text. Errors: why it is not a date.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut rest = skip(skip_weekday(text.trim_matches(is_margin)));
    let mut timed = false;
    let mut zone: Option<Zone> = None;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(['T', 't']).filter(|r| starts_digit(r))
            && parsed.year.or(parsed.iso_year).is_some()
        {
            rest = after;
        }
        let dated = parsed.year.or(parsed.iso_year).is_some();
        if !timed && let Some((time, after)) = take_time(rest, dated) {
            parsed.time = time;
            timed = true;
            rest = skip(after);
            continue;
        }
        if !dated && let Some(after) = take_date(rest, &mut parsed) {
            rest = skip_after_date(after);
            continue;
        }
        if parsed.offset.is_none()
            && zone.is_none()
            && dated
            && let Some(after) = take_zone(rest, timed, &mut parsed, &mut zone)
        {
            rest = skip(after);
            continue;
        }
        return Err(format!("unexpected text: '{rest}'"));
    }
    if let Some(zone) = zone {
        let local = parsed.days()? * DAY_MILLIS + parsed.time;
        let instant = zone.to_utc(local).ok_or("the date does not exist")?;
        parsed.offset = Some(local - instant);
    }
    // Also fails if the day does not exist.
    parsed.days()?;
    Ok(parsed)
}

/// Whether a character before or after the text has no meaning: white space and zero bytes.
fn is_margin(c: char) -> bool {
    matches!(c, '\0' | ' ' | '\t'..='\r' | '\u{a0}' | '\u{202f}')
}

fn starts_digit(text: &str) -> bool {
    text.as_bytes().first().is_some_and(u8::is_ascii_digit)
}

fn skip(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', ','])
}

/// Skips separators, and an "at", after a date.
fn skip_after_date(text: &str) -> &str {
    let rest = skip(text);
    match rest.strip_prefix("at ") {
        Some(rest) => skip(rest),
        None => rest,
    }
}

/// Skips the name of a weekday, which adds no information.
fn skip_weekday(text: &str) -> &str {
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = text.split_at(letters);
    let known = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let is_day = known
        .iter()
        .any(|day| word.eq_ignore_ascii_case(day) || word.eq_ignore_ascii_case(&day[..3]));
    match is_day {
        true => rest.trim_start_matches('.'),
        false => text,
    }
}

/// Takes `12:30`, `12:30:15`, `12:30:15.123456`, `12:30 pm` or `3pm`, or after a date also
/// `123015`.
fn take_time(text: &str, dated: bool) -> Option<(i64, &str)> {
    let (hour, rest) = take_digits(text, 2)?;
    let Some(after) = rest.strip_prefix(':') else {
        if let Some((hour, rest)) = take_half_day(hour, rest) {
            return Some((hour * 3_600_000, rest));
        }
        // Four or six digits in a row, after a T or a space.
        let count = text.bytes().take_while(u8::is_ascii_digit).count();
        if !dated || !matches!(count, 4 | 6) {
            return None;
        }
        let (minute, rest) = take_digits(rest, 2)?;
        let (second, rest) = match count {
            6 => take_digits(rest, 2)?,
            _ => (0, rest),
        };
        return Some((clock(hour, minute, second)?, rest));
    };
    let (minute, rest) = take_digits(after, 2)?;
    let (mut second, mut milli, mut rest) = (0, 0, rest);
    if let Some(after) = rest.strip_prefix(':') {
        (second, rest) = take_digits(after, 2)?;
        if let Some(after) = rest
            .strip_prefix(['.', ',', ':'])
            .filter(|r| starts_digit(r))
        {
            let count = after.bytes().take_while(u8::is_ascii_digit).count();
            let padded: String = after[..count].chars().chain("00".chars()).take(3).collect();
            milli = padded.parse().ok()?;
            rest = &after[count..];
        }
    }
    let (hour, rest) = take_half_day(hour, rest).unwrap_or((hour, rest));
    Some((clock(hour, minute, second)? + milli, rest))
}

fn clock(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let valid = hour < 24 && minute < 60 && second < 60;
    let midnight = (hour, minute, second) == (24, 0, 0);
    (valid || midnight).then_some(hour * 3_600_000 + minute * 60_000 + second * 1000)
}

/// Takes ` am`, `PM` or `a.m.` after an hour from 1 to 12.
fn take_half_day(hour: i64, text: &str) -> Option<(i64, &str)> {
    let rest = text.trim_start_matches(' ');
    let (half, rest) = rest.split_at_checked(1)?;
    let afternoon = match half {
        "a" | "A" => 0,
        "p" | "P" => 12,
        _ => return None,
    };
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let rest = rest.strip_prefix(['m', 'M'])?;
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    if rest
        .as_bytes()
        .first()
        .is_some_and(u8::is_ascii_alphanumeric)
    {
        return None;
    }
    (1..=12)
        .contains(&hour)
        .then_some((hour % 12 + afternoon, rest))
}

/// Takes a date from the start of a text; returns the remaining text.
fn take_date<'t>(text: &'t str, parsed: &mut Parsed) -> Option<&'t str> {
    if let Some((month, rest)) = take_month(text) {
        // `Feb 29, 2024` or `Feb-29-2024`.
        let rest = rest.trim_start_matches(['.', ' ', '-']);
        let (day, rest) = take_day(rest)?;
        let rest = rest.trim_start_matches([',', ' ', '-']);
        let (year, rest) = take_year(rest)?;
        (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
        return Some(rest);
    }
    if let Some(rest) = text.strip_prefix(['-', '+']) {
        return signed_year(text.starts_with('-'), rest, parsed);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        8 => {
            let (year, rest) = take_digits(text, 4)?;
            let (month, rest) = take_digits(rest, 2)?;
            let (day, rest) = take_digits(rest, 2)?;
            (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
            Some(rest)
        }
        4 => year_first(text, parsed),
        1 | 2 => day_or_month_first(text, parsed),
        _ => None,
    }
}

/// Takes `0044-03-15` after a sign: years before year 1 are negative, and year 0 exists.
fn signed_year<'t>(negative: bool, text: &'t str, parsed: &mut Parsed) -> Option<&'t str> {
    let (year, rest) = take_year(text)?;
    let (month, rest) = take_digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = take_digits(rest.strip_prefix('-')?, 2)?;
    let year = if negative { -year } else { year };
    (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
    (!starts_digit(rest)).then_some(rest)
}

/// Takes `2024-02-29`, `2024/2/29`, `2024-060`, `2024-W09-4`, `2024-Feb-29` or `2024 Feb 29`.
fn year_first<'t>(text: &'t str, parsed: &mut Parsed) -> Option<&'t str> {
    let (year, rest) = take_digits(text, 4)?;
    let separator = rest.chars().next().filter(|c| "-/. ".contains(*c))?;
    let rest = &rest[1..];
    if let Some(week) = rest.strip_prefix('W') {
        let (week, rest) = take_digits(week, 2)?;
        let (weekday, rest) = match rest.strip_prefix('-') {
            Some(day) => take_digits(day, 1)?,
            None => (1, rest),
        };
        parsed.iso_year = Some(year);
        (parsed.iso_week, parsed.iso_weekday) = (Some(week), Some(weekday));
        return Some(rest);
    }
    if let Some((month, rest)) = take_month(rest) {
        let (day, rest) = take_day(rest.trim_start_matches(['-', ' ', '.', ',']))?;
        (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
        return Some(rest);
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 3 && separator == '-' {
        let (of_year, rest) = take_digits(rest, 3)?;
        let length = Civil::days_of(year + 1, 1, 1) - Civil::days_of(year, 1, 1);
        if !(1..=length).contains(&of_year) {
            return None;
        }
        let days = Civil::days_of(year, 1, 1) + of_year - 1;
        let civil = Civil::from_millis(days * DAY_MILLIS);
        (parsed.year, parsed.month, parsed.day) = (Some(year), Some(civil.month), Some(civil.day));
        return Some(rest);
    }
    if separator == ' ' || digits > 2 {
        return None;
    }
    let (month, rest) = take_digits(rest, 2)?;
    let (day, rest) = take_digits(rest.strip_prefix(separator)?, 2)?;
    if starts_digit(rest) {
        return None;
    }
    (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
    Some(rest)
}

/// Takes `2/29/2024` (month first), `29.2.2024` or `29-2-2024` (day first), `29 Feb 2024` or `29th
/// of February, 2024`.
fn day_or_month_first<'t>(text: &'t str, parsed: &mut Parsed) -> Option<&'t str> {
    let (first, rest) = take_digits(text, 2)?;
    let separator = rest.chars().next()?;
    if let Some(after) = rest.strip_prefix(['/', '.', '-'])
        && starts_digit(after)
    {
        let (second, rest) = take_digits(after, 2)?;
        let (year, rest) = take_year(rest.strip_prefix(separator)?)?;
        let (month, day) = match separator {
            '/' => (first, second),
            _ => (second, first),
        };
        (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
        return Some(rest);
    }
    let (day, rest) = take_day(text)?;
    let rest = rest.trim_start_matches([' ', '-', '.']);
    let rest = rest.strip_prefix("of ").unwrap_or(rest);
    let (month, rest) = take_month(rest)?;
    let (year, rest) = take_year(rest.trim_start_matches([',', ' ', '-', '.']))?;
    (parsed.year, parsed.month, parsed.day) = (Some(year), Some(month), Some(day));
    Some(rest)
}

/// Takes one or two digits, and an optional `st`, `nd`, `rd` or `th` after them.
fn take_day(text: &str) -> Option<(i64, &str)> {
    let (day, rest) = take_digits(text, 2)?;
    for suffix in ["st", "nd", "rd", "th"] {
        if let Some(rest) = rest.strip_prefix(suffix) {
            return Some((day, rest));
        }
    }
    (!starts_digit(rest)).then_some((day, rest))
}

/// Takes exactly four digits.
fn take_year(text: &str) -> Option<(i64, &str)> {
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    (count == 4).then(|| take_digits(text, 4)).flatten()
}

/// Zone abbreviations of North America and Central Europe, with their offsets in hours. Other zones
/// are written as place names.
const ABBREVIATIONS: [(&str, i64); 10] = [
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
    ("CET", 1),
    ("CEST", 2),
];

/// Takes a zone after a time (or a date): an offset, an abbreviation, or a place.
fn take_zone<'t>(
    text: &'t str,
    timed: bool,
    parsed: &mut Parsed,
    zone: &mut Option<Zone>,
) -> Option<&'t str> {
    let length = text
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || b"/_+-:".contains(b))
        .count();
    let (word, rest) = text.split_at(length);
    let known = |offset: i64| offset * 3_600_000;
    if let Some((_, hours)) = ABBREVIATIONS
        .iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name))
    {
        parsed.offset = Some(known(*hours));
        return Some(rest);
    }
    if word.eq_ignore_ascii_case("z") || word.eq_ignore_ascii_case("utc") {
        parsed.offset = Some(0);
        return Some(rest);
    }
    if let Some((offset, rest)) = take_offset(text)
        && timed
        && !rest
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphanumeric)
    {
        parsed.offset = Some(offset);
        return Some(rest);
    }
    if word.contains('/') {
        *zone = Some(Zone::find(word)?);
        return Some(rest);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::date::format::parse_any;

    #[test]
    fn what_is_a_date() {
        let table = [
            ("2024-02-29", "2024-02-29T00:00:00.000Z"),
            ("2024/2/9", "2024-02-09T00:00:00.000Z"),
            ("20240229", "2024-02-29T00:00:00.000Z"),
            ("2024-060", "2024-02-29T00:00:00.000Z"),
            ("2024-W09-4", "2024-02-29T00:00:00.000Z"),
            ("02/29/2024", "2024-02-29T00:00:00.000Z"),
            ("29.2.2024", "2024-02-29T00:00:00.000Z"),
            ("29-02-2024", "2024-02-29T00:00:00.000Z"),
            ("Feb 29, 2024", "2024-02-29T00:00:00.000Z"),
            ("february 29th 2024", "2024-02-29T00:00:00.000Z"),
            ("29 February 2024", "2024-02-29T00:00:00.000Z"),
            ("29-Feb-2024", "2024-02-29T00:00:00.000Z"),
            ("Thu, 29 Feb 2024 12:30:15 GMT", "2024-02-29T12:30:15.000Z"),
            (
                "Thursday 29th of February, 2024",
                "2024-02-29T00:00:00.000Z",
            ),
            ("2024-02-29T12:30:15.5", "2024-02-29T12:30:15.500Z"),
            ("2024-02-29T12:30:15.123456789Z", "2024-02-29T12:30:15.123Z"),
            ("2024-02-29 12:30", "2024-02-29T12:30:00.000Z"),
            ("20240229T123015Z", "2024-02-29T12:30:15.000Z"),
            ("2024-02-29 12:30 am", "2024-02-29T00:30:00.000Z"),
            ("2024-02-29 3pm", "2024-02-29T15:00:00.000Z"),
            ("2024-02-29T12:30:15+01:00", "2024-02-29T11:30:15.000Z"),
            ("2024-02-29 12:30:15 -0530", "2024-02-29T18:00:15.000Z"),
            ("2024-02-29T12:30:15-05", "2024-02-29T17:30:15.000Z"),
            ("2024-02-29T12:30:15 EST", "2024-02-29T17:30:15.000Z"),
            (
                "2024-07-04T12:00:00 America/New_York",
                "2024-07-04T16:00:00.000Z",
            ),
            ("2024-02-29T24:00:00Z", "2024-03-01T00:00:00.000Z"),
            ("12:30 2024-02-29", "2024-02-29T12:30:00.000Z"),
            (" 2024-02-29 ", "2024-02-29T00:00:00.000Z"),
            ("\0\u{a0}2024-02-29\u{a0}\0", "2024-02-29T00:00:00.000Z"),
            ("-0044-03-15T12:00:00Z", "-0044-03-15T12:00:00.000Z"),
            ("+2024-02-29", "2024-02-29T00:00:00.000Z"),
        ];
        for (text, expected) in table {
            let found = parse_any(text).map(|ms| Civil::from_millis(ms).iso());
            assert_eq!(found.as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_none() {
        for text in [
            "",
            " ",
            "Friday",
            "x",
            "2024",
            "2024-02",
            "2024-13-01",
            "2023-02-29",
            "2024-02-30",
            "2024-00-10",
            "2024-01-00",
            "2024-367",
            "2024-02-29T25:00:00",
            "2024-02-29T12:60",
            "2024-02-29x",
            "2024-02-29 x",
            "2024-02-29T12:00Q",
            "31.4.2024",
            "13/01/2024",
            "2024-02-29 Mars/Olympus",
            "1",
            "12",
            "é",
            "2024-é",
            "2024-02-29T12:00+é1",
            "2024-W54-1",
            "24-02-29",
            "2024-02-29T",
            "-44-03-15",
            "20\u{0}24-02-29",
            "Feb 2024",
        ] {
            assert!(parse_any(text).is_err(), "{text}");
        }
    }
}
