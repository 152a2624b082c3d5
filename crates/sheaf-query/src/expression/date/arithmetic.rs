//! `$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.
//!
//! Days and longer units are counted on the local calendar, hours and shorter ones in elapsed time.
//! So adding a day across a clock change keeps the time of day, while adding 24 hours may not.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DateTime, RawValue, Value};

use super::super::budget::heap_bytes;
use super::super::eval::{EvalContext, EvalValue, pair};
use super::super::operator::{Operator, is_absent};
use super::super::{Expression, location};
use super::zone::{self, Zone};
use super::{Civil, DAY_MILLIS, millis_of};

/// A calendar or clock unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// 1/1000 of a second.
    Millisecond,
    /// 1000 ms.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// A calendar day.
    Day,
    /// 7 days.
    Week,
    /// A calendar month.
    Month,
    /// 3 months.
    Quarter,
    /// 12 months.
    Year,
}

impl Unit {
    /// The unit with this name; `None` if unknown.
    pub(crate) fn find(name: &str) -> Option<Unit> {
        Some(match name {
            "millisecond" => Unit::Millisecond,
            "second" => Unit::Second,
            "minute" => Unit::Minute,
            "hour" => Unit::Hour,
            "day" => Unit::Day,
            "week" => Unit::Week,
            "month" => Unit::Month,
            "quarter" => Unit::Quarter,
            "year" => Unit::Year,
            _ => return None,
        })
    }

    /// Length in milliseconds of a unit with a fixed length; weeks and days as if clocks never
    /// changed. `None` for months and longer units.
    pub(crate) fn millis(self) -> Option<i64> {
        Some(match self {
            Unit::Millisecond => 1,
            Unit::Second => 1000,
            Unit::Minute => 60_000,
            Unit::Hour => 3_600_000,
            Unit::Day => DAY_MILLIS,
            Unit::Week => 7 * DAY_MILLIS,
            Unit::Month | Unit::Quarter | Unit::Year => return None,
        })
    }

    /// Number of months in the unit; 0 for units shorter than a month.
    fn months(self) -> i64 {
        match self {
            Unit::Month => 1,
            Unit::Quarter => 3,
            Unit::Year => 12,
            _ => 0,
        }
    }
}

/// The time `amount` units later (earlier if negative), on the local calendar of `zone`. A day that
/// the resulting month does not have becomes its last day. `None` if the result is out of range.
pub(crate) fn shift(millis: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let by_clock = |length: i64| millis.checked_add(amount.checked_mul(length)?);
    match unit {
        Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => by_clock(unit.millis()?),
        Unit::Day | Unit::Week => {
            if let Zone::Fixed(_) = zone {
                return by_clock(unit.millis()?);
            }
            let moved = zone
                .to_local(millis)
                .checked_add(amount.checked_mul(unit.millis()?)?)?;
            zone.to_utc(moved)
        }
        Unit::Month | Unit::Quarter | Unit::Year => {
            let civil = Civil::from_millis(zone.to_local(millis));
            let months = (civil.year * 12 + civil.month - 1)
                .checked_add(amount.checked_mul(unit.months())?)?;
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
            // No valid date is beyond this, and days_of would overflow.
            if year.abs() > 300_000_000 {
                return None;
            }
            let first = Civil::days_of(year, month, 1);
            let length = Civil::days_of(year + month / 12, month % 12 + 1, 1) - first;
            let days = first + civil.day.min(length) - 1;
            zone.to_utc(days.checked_mul(DAY_MILLIS)?.checked_add(civil.millis)?)
        }
    }
}

/// The time unit in an operand; `None` for null and missing.
fn unit_operand(
    operator: &'static Operator,
    value: &EvalValue<'_>,
    not_string: i32,
    unknown: i32,
) -> Result<Option<Unit>> {
    match value.non_null() {
        None => Ok(None),
        Some(RawValue::String(name)) => match Unit::find(name) {
            Some(unit) => Ok(Some(unit)),
            None => Err(location(
                unknown,
                format!("{} unknown time unit value: {name}", operator.name),
            )),
        },
        Some(other) => Err(operator.error(
            not_string,
            format_args!(
                "requires 'unit' to be a string, but got {}",
                other.type_name()
            ),
        )),
    }
}

/// The date in an operand, in milliseconds; `None` for null and missing.
fn date_operand(
    operator: &'static Operator,
    name: &str,
    value: &EvalValue<'_>,
    code: i32,
) -> Result<Option<i64>> {
    match value.non_null() {
        None => Ok(None),
        Some(raw) => match millis_of(raw) {
            Some(millis) => Ok(Some(millis)),
            None => Err(operator.error(
                code,
                format_args!(
                    "requires '{name}' to be a date, but got {}",
                    raw.type_name()
                ),
            )),
        },
    }
}

/// The first day of the week in an operand, 1 for Monday; Sunday if the operand is absent, `None`
/// for null and missing.
fn first_weekday<'e>(
    operator: &'static Operator,
    arg: &'e Expression,
    ctx: EvalContext<'e>,
) -> Result<Option<i64>> {
    if is_absent(arg) {
        return Ok(Some(7));
    }
    let value = arg.evaluate(ctx)?;
    let name = match value.non_null() {
        None => return Ok(None),
        Some(RawValue::String(name)) => name,
        Some(other) => {
            return Err(operator.error(
                5439015,
                format_args!(
                    "requires 'startOfWeek' to be a string, but got {}",
                    other.type_name()
                ),
            ));
        }
    };
    weekday(name)
        .map(Some)
        .ok_or_else(|| operator.error(5439016, format_args!("unknown day of week value: {name}")))
}

/// 1 for "monday" or "mon", 7 for "sunday"; ignores case.
fn weekday(name: &str) -> Option<i64> {
    const NAMES: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let name = name.to_ascii_lowercase();
    let at = NAMES
        .iter()
        .position(|full| *full == name || full[..3] == name)?;
    Some(at as i64 + 1)
}

fn overflow(operator: &'static Operator) -> Error {
    operator.error(
        ErrorCode::DURATION_OVERFLOW.0,
        "gives a date outside the range of dates",
    )
}

fn moved<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    back: bool,
) -> Result<EvalValue<'e>> {
    // Operands of a wrong type may be large, and are held while the others are computed.
    let (date, unit) = pair(args, ctx)?;
    let inner = ctx.holding(heap_bytes(&date) + heap_bytes(&unit))?;
    let amount = args[2].evaluate(inner)?;
    let inner = inner.holding(heap_bytes(&amount))?;
    let zone = zone::operand(operator, &args[3], inner)?;
    let Some(date) = date_operand(operator, "startDate", &date, 5166403)? else {
        return Ok(EvalValue::NULL);
    };
    let failed = ErrorCode::FAILED_TO_PARSE.0;
    let Some(unit) = unit_operand(operator, &unit, 5166404, failed)? else {
        return Ok(EvalValue::NULL);
    };
    let Some(raw) = amount.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let Some(amount) = raw.as_i64_exact() else {
        return Err(operator.error(
            5166405,
            format_args!(
                "expects an integer amount of time units, found {}",
                shell(raw)
            ),
        ));
    };
    let Some(zone) = zone else {
        return Ok(EvalValue::NULL);
    };
    let amount = match back {
        false => amount,
        true => amount.checked_neg().ok_or_else(|| {
            operator.error(
                5166406,
                "cannot take away so many units: the amount overflows",
            )
        })?,
    };
    match shift(date, unit, amount, &zone) {
        Some(moved) => Ok(Value::DateTime(DateTime(moved)).into()),
        None => Err(overflow(operator)),
    }
}

/// `$dateAdd: {startDate, unit, amount, timezone}`.
pub(in crate::expression) fn date_add<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    moved(operator, args, ctx, false)
}

/// `$dateSubtract: {startDate, unit, amount, timezone}`.
pub(in crate::expression) fn date_subtract<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    moved(operator, args, ctx, true)
}

/// Number of `unit` boundaries crossed from one instant to the other. `None` if it does not fit a
/// long.
fn boundaries(start: i64, end: i64, unit: Unit, zone: &Zone, first_weekday: i64) -> Option<i64> {
    let local = |millis: i64| zone.to_local(millis);
    let days = |millis: i64| local(millis).div_euclid(DAY_MILLIS);
    let months = |millis: i64| {
        let civil = Civil::from_millis(local(millis));
        civil.year * 12 + civil.month - 1
    };
    // Day 0 was a Thursday.
    let weeks = |millis: i64| (days(millis) + 4 - first_weekday).div_euclid(7);
    Some(match unit {
        Unit::Year => months(end).div_euclid(12) - months(start).div_euclid(12),
        Unit::Quarter => months(end).div_euclid(3) - months(start).div_euclid(3),
        Unit::Month => months(end) - months(start),
        Unit::Week => weeks(end) - weeks(start),
        Unit::Day => days(end) - days(start),
        Unit::Hour => {
            // Boundaries are those of the local clock, corrected for a change of the UTC offset: an
            // hour that the clock skips does not count, and one that it repeats counts twice.
            let hours = |millis: i64| local(millis).div_euclid(3_600_000);
            let turned = zone.offset_at(end) - zone.offset_at(start);
            hours(end) - hours(start) - turned.div_euclid(3_600_000)
        }
        Unit::Minute | Unit::Second | Unit::Millisecond => {
            let length = unit.millis()?;
            end.div_euclid(length)
                .checked_sub(start.div_euclid(length))?
        }
    })
}

/// `$dateDiff: {startDate, endDate, unit, timezone, startOfWeek}`.
pub(in crate::expression) fn date_diff<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (start, end) = pair(args, ctx)?;
    let ctx = ctx.holding(heap_bytes(&start) + heap_bytes(&end))?;
    let unit = args[2].evaluate(ctx)?;
    let ctx = ctx.holding(heap_bytes(&unit))?;
    let zone = zone::operand(operator, &args[3], ctx)?;
    let Some(start) = date_operand(operator, "startDate", &start, 5166307)? else {
        return Ok(EvalValue::NULL);
    };
    let Some(end) = date_operand(operator, "endDate", &end, 5166307)? else {
        return Ok(EvalValue::NULL);
    };
    let Some(unit) = unit_operand(operator, &unit, 5439013, 5439014)? else {
        return Ok(EvalValue::NULL);
    };
    let first = match unit {
        Unit::Week => first_weekday(operator, &args[4], ctx)?,
        _ => Some(7),
    };
    let (Some(zone), Some(first)) = (zone, first) else {
        return Ok(EvalValue::NULL);
    };
    match boundaries(start, end, unit, &zone, first) {
        Some(n) => Ok(Value::Int64(n).into()),
        None => Err(overflow(operator)),
    }
}

/// The start of the bin that contains an instant. Bins count from 2000-01-01 on the local calendar,
/// those of weeks from the first `first_weekday` of that year. `None` if the start is out of range.
pub(crate) fn truncate(
    millis: i64,
    unit: Unit,
    bin: i64,
    zone: &Zone,
    first_weekday: i64,
) -> Option<i64> {
    /// 2000-01-01, a Saturday, in days since 1970.
    const REFERENCE: i64 = 10_957;
    let down = |n: i64, bin: i64| n.div_euclid(bin).checked_mul(bin);
    match unit {
        Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => {
            let reference = zone.to_utc(REFERENCE * DAY_MILLIS)?;
            let length = unit.millis()?.checked_mul(bin)?;
            reference.checked_add(down(millis.checked_sub(reference)?, length)?)
        }
        Unit::Day | Unit::Week => {
            let (reference, length) = match unit {
                Unit::Day => (REFERENCE, bin),
                _ => (
                    REFERENCE + (first_weekday - 6).rem_euclid(7),
                    bin.checked_mul(7)?,
                ),
            };
            let days = zone.to_local(millis).div_euclid(DAY_MILLIS);
            let begin = reference.checked_add(down(days - reference, length)?)?;
            zone.to_utc(begin.checked_mul(DAY_MILLIS)?)
        }
        Unit::Month | Unit::Quarter | Unit::Year => {
            let civil = Civil::from_millis(zone.to_local(millis));
            let months = (civil.year - 2000) * 12 + civil.month - 1;
            let begin = down(months, bin.checked_mul(unit.months())?)?;
            let year = 2000 + begin.div_euclid(12);
            if year.abs() > 300_000_000 {
                return None;
            }
            let days = Civil::days_of(year, begin.rem_euclid(12) + 1, 1);
            zone.to_utc(days.checked_mul(DAY_MILLIS)?)
        }
    }
}

/// `$dateTrunc: {date, unit, binSize, timezone, startOfWeek}`.
pub(in crate::expression) fn date_trunc<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (date, unit) = pair(args, ctx)?;
    let ctx = ctx.holding(heap_bytes(&date) + heap_bytes(&unit))?;
    let zone = zone::operand(operator, &args[3], ctx)?;
    let Some(date) = date_operand(operator, "date", &date, 5439012)? else {
        return Ok(EvalValue::NULL);
    };
    let bin = if is_absent(&args[2]) {
        1
    } else {
        let value = args[2].evaluate(ctx)?;
        let Some(raw) = value.non_null() else {
            return Ok(EvalValue::NULL);
        };
        match raw.as_i64_exact() {
            None => {
                return Err(operator.error(
                    5439017,
                    format_args!(
                        "requires 'binSize' to be a 64-bit integer, but got {}",
                        shell(raw)
                    ),
                ));
            }
            Some(n) if n <= 0 => {
                return Err(operator.error(
                    5439018,
                    format_args!("requires 'binSize' to be greater than 0, but got {n}"),
                ));
            }
            Some(n) => n,
        }
    };
    let Some(unit) = unit_operand(operator, &unit, 5439013, 5439014)? else {
        return Ok(EvalValue::NULL);
    };
    let first = match unit {
        Unit::Week => first_weekday(operator, &args[4], ctx)?,
        _ => Some(7),
    };
    let (Some(zone), Some(first)) = (zone, first) else {
        return Ok(EvalValue::NULL);
    };
    match truncate(date, unit, bin, &zone, first) {
        Some(begin) => Ok(Value::DateTime(DateTime(begin)).into()),
        None => Err(overflow(operator)),
    }
}

/// An instant shifted by calendar units in UTC; `None` if out of range.
pub(crate) fn shift_utc(millis: i64, unit: Unit, amount: i64) -> Option<i64> {
    shift(millis, unit, amount, &super::zone::Zone::UTC)
}
