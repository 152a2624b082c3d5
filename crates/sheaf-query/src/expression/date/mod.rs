//! Dates: their parts, text, and arithmetic, in any time zone.
//!
//! ```text
//!   instant (ms since 1970, UTC) ──Zone──> local ms ──Civil──> year, month, day, ...
//! ```
//!
//! Operands may be any value that contains a time: dates, timestamps, object ids. The calendar is
//! the proleptic Gregorian one, over the whole range of dates.

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawValue, Value};

pub(super) mod arithmetic;
pub(super) mod format;
pub(super) mod free_form;
pub(super) mod parts;
pub(super) mod zone;

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::operator::Operator;

pub(super) const DAY_MILLIS: i64 = 86_400_000;

/// A date split into the parts of the proleptic Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    /// Days since 1970-01-01.
    days: i64,
    /// Milliseconds within the day.
    pub(crate) millis: i64,
}

impl Civil {
    /// Splits milliseconds since 1970.
    pub(crate) fn from_millis(millis: i64) -> Civil {
        let days = millis.div_euclid(DAY_MILLIS);
        // Days count from 0000-03-01, so that the leap day ends the year; an era is the 400 years
        // after which the calendar repeats.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Civil {
            year,
            month,
            day,
            days,
            millis: millis.rem_euclid(DAY_MILLIS),
        }
    }

    /// Days since 1970-01-01 of a calendar day.
    pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
        let year = year - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted_month = (month + 9) % 12;
        let of_year = (153 * shifted_month + 2) / 5 + day - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
    }

    /// The first three letters of the month's name.
    pub(crate) fn month_abbreviation(&self) -> &'static str {
        let at = usize::try_from(self.month - 1).unwrap_or(0);
        format::MONTHS.get(at).map_or("", |name| &name[..3])
    }

    /// ISO 8601 with milliseconds: `2024-02-29T12:00:00.000Z`.
    pub(crate) fn iso(&self) -> String {
        let (seconds, millis) = (self.millis / 1000, self.millis % 1000);
        let sign = if self.year < 0 { "-" } else { "" };
        format!(
            "{sign}{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{millis:03}Z",
            self.year.abs(),
            self.month,
            self.day,
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}

/// The time in a date, timestamp or object id, in milliseconds since 1970; `None` for other values.
pub(crate) fn millis_of(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::DateTime(date) => Some(date.0),
        RawValue::Timestamp(time) => Some(i64::from(time.time) * 1000),
        // MongoDB reads the seconds of an object id as signed: from 2038 on they count back from
        // 1970.
        RawValue::ObjectId(id) => Some(i64::from(id.seconds() as i32) * 1000),
        _ => None,
    }
}

impl Civil {
    /// The ISO weekday: 1 is Monday, 7 is Sunday.
    pub(crate) fn iso_weekday(&self) -> i64 {
        (self.days + 3).rem_euclid(7) + 1
    }

    /// The day of the year, from 1.
    pub(crate) fn day_of_year(&self) -> i64 {
        self.days - Civil::days_of(self.year, 1, 1) + 1
    }

    /// The ISO year and week: a week belongs to the year that contains its Thursday.
    pub(crate) fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days + 4 - self.iso_weekday();
        let of_thursday = Civil::from_millis(thursday.saturating_mul(DAY_MILLIS));
        (of_thursday.year, (of_thursday.day_of_year() - 1) / 7 + 1)
    }

    /// The week of the year, with weeks that begin on Sunday; days before the first Sunday are week
    /// 0.
    pub(crate) fn sunday_week(&self) -> i64 {
        let since_sunday = self.iso_weekday() % 7;
        (self.day_of_year() + 6 - since_sunday) / 7
    }
}

/// Days since 1970-01-01 of a day in an ISO week; weeks and days out of range carry over.
pub(crate) fn days_of_iso(year: i64, week: i64, weekday: i64) -> i64 {
    // January 4 is always in week 1.
    let fourth = Civil::days_of(year, 1, 4);
    let weekday_of_fourth = (fourth + 3).rem_euclid(7) + 1;
    fourth - weekday_of_fourth + (week - 1) * 7 + weekday
}

/// The error for an operand that is not a date.
fn not_a_date(
    operator: &'static Operator,
    code: i32,
    found: RawValue<'_>,
) -> sheaf_bson::error_code::Error {
    operator.error(
        code,
        format_args!("can't convert from BSON type {} to Date", found.type_name()),
    )
}

/// A part of the date `args[0]` in the zone `args[1]`.
fn part<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    pick: fn(Civil) -> Value,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let Some(raw) = value.non_null() else {
        return Ok(EvalValue::NULL);
    };
    // Check the date before evaluating the zone, so that nothing large is held meanwhile.
    let millis = millis_of(raw).ok_or_else(|| not_a_date(operator, 16006, raw))?;
    Ok(match zone::operand(operator, &args[1], ctx)? {
        Some(zone) => pick(Civil::from_millis(zone.to_local(millis))).into(),
        None => EvalValue::NULL,
    })
}

/// Checks a constant zone of a date part when the call is parsed.
pub(super) fn check_part(operator: &'static Operator, args: &[Expression]) -> Result<()> {
    zone::check_constant(operator, args, 1)
}

fn int(n: i64) -> Value {
    Value::Int32(n as i32)
}

macro_rules! parts {
    ($($name:ident $pick:expr;)*) => {
        $(pub(super) fn $name<'e>(
            operator: &'static Operator,
            args: &'e [Expression],
            ctx: EvalContext<'e>,
        ) -> Result<EvalValue<'e>> {
            part(operator, args, ctx, $pick)
        })*
    };
}

parts! {
    year |date| int(date.year);
    month |date| int(date.month);
    day_of_month |date| int(date.day);
    day_of_week |date| int(date.iso_weekday() % 7 + 1);
    day_of_year |date| int(date.day_of_year());
    week |date| int(date.sunday_week());
    iso_day_of_week |date| int(date.iso_weekday());
    iso_week |date| int(date.iso_week().1);
    // A long, unlike the result of $year.
    iso_week_year |date| Value::Int64(date.iso_week().0);
    hour |date| int(date.millis / 3_600_000);
    minute |date| int(date.millis / 60_000 % 60);
    second |date| int(date.millis / 1000 % 60);
    millisecond |date| int(date.millis % 1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_208_000_123, "2024-02-29T12:00:00.123Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Civil::from_millis(millis).iso(), text);
        }
    }

    #[test]
    fn days_invert() {
        for days in (-800_000..800_000).step_by(97) {
            let civil = Civil::from_millis(days * DAY_MILLIS);
            assert_eq!(Civil::days_of(civil.year, civil.month, civil.day), days);
        }
        // The ends of the range must not overflow.
        for end in [i64::MIN, i64::MAX] {
            let civil = Civil::from_millis(end);
            let (week, sunday) = (civil.iso_week(), civil.sunday_week());
            assert!((1..=53).contains(&week.1) && (0..=53).contains(&sunday));
        }
    }

    #[test]
    fn weeks_invert() {
        for days in (-200_000..200_000).step_by(13) {
            let civil = Civil::from_millis(days * DAY_MILLIS);
            let (year, week) = civil.iso_week();
            assert_eq!(days_of_iso(year, week, civil.iso_weekday()), days);
        }
    }
}
