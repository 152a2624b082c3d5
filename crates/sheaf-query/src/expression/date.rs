//! Parts of a date, in UTC. Time zones and formats are not here yet.
//!
//! Operands that hold a time (dates, timestamps, object ids) all serve.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{RawValue, Value};

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::operators::Operator;

const DAY_MILLIS: i64 = 86_400_000;

/// A date taken apart in the proleptic Gregorian calendar.
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
    /// Takes milliseconds since 1970 apart.
    pub(crate) fn from_millis(millis: i64) -> Civil {
        let days = millis.div_euclid(DAY_MILLIS);
        // Counted from 0000-03-01, so that the leap day ends the year; an era
        // is the 400 years after which the calendar repeats.
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

    /// ISO 8601 with milliseconds: `2024-02-29T12:00:00.000Z`.
    pub(crate) fn iso(&self) -> String {
        let (seconds, millis) = (self.millis / 1000, self.millis % 1000);
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{millis:03}Z",
            self.year,
            self.month,
            self.day,
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}

/// Milliseconds since 1970 of a value that holds a time.
pub(crate) fn millis_of(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::DateTime(date) => Some(date.0),
        RawValue::Timestamp(time) => Some(i64::from(time.time) * 1000),
        RawValue::ObjectId(id) => Some(i64::from(id.seconds()) * 1000),
        _ => None,
    }
}

fn part<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    pick: fn(Civil) -> i64,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let Some(raw) = value.non_null() else {
        return Ok(EvalValue::NULL);
    };
    match millis_of(raw) {
        Some(millis) => Ok(Value::Int32(pick(Civil::from_millis(millis)) as i32).into()),
        None if matches!(raw, RawValue::Document(_)) => Err(operator.error(
            ErrorCode::NOT_IMPLEMENTED.0,
            "with a time zone ({date, timezone}) is not supported yet; give the date alone, in UTC",
        )),
        None => Err(operator.error(16006, format_args!("takes a date, not {}", raw.type_name()))),
    }
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
    year |date| date.year;
    month |date| date.month;
    day_of_month |date| date.day;
    day_of_week |date| (date.days + 4).rem_euclid(7) + 1;
    day_of_year |date| date.days - Civil::days_of(date.year, 1, 1) + 1;
    hour |date| date.millis / 3_600_000;
    minute |date| date.millis / 60_000 % 60;
    second |date| date.millis / 1000 % 60;
    millisecond |date| date.millis % 1000;
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
        Civil::from_millis(i64::MIN);
        Civil::from_millis(i64::MAX);
    }
}
