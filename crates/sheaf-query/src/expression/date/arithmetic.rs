//! `$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.
//!
//! Days and longer units are counted on the local calendar, hours and shorter ones in elapsed time.
//! So adding a day across a clock change keeps the time of day, while adding 24 hours may not.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DateTime, RawValue, Value};

use super::super::Expression;
use super::super::budget::heap_bytes;
use super::super::eval::{EvalContext, EvalValue, pair};
use super::super::operator::{Operator, all_constant, is_absent};
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

/// The time unit in an operand; `None` for null and missing. Errors: FailedToParse for an unknown
/// unit, 5439013 for a value that is not a string.
fn unit_operand(operator: &'static Operator, value: &EvalValue<'_>) -> Result<Option<Unit>> {
    match value.non_null() {
        None => Ok(None),
        Some(RawValue::String(name)) => match Unit::find(name) {
            Some(unit) => Ok(Some(unit)),
            None => Err(operator.error(
                ErrorCode::FAILED_TO_PARSE.0,
                format_args!("unknown time unit value: {name}"),
            )),
        },
        Some(other) => Err(operator.error(
            5439013,
            format_args!(
                "requires 'unit' to be a string, but got {}",
                other.type_name()
            ),
        )),
    }
}

/// The date in an operand that is not null, in milliseconds. Errors: `code` for another type.
fn date_operand(
    operator: &'static Operator,
    name: &str,
    value: RawValue<'_>,
    code: i32,
) -> Result<i64> {
    millis_of(value).ok_or_else(|| {
        operator.error(
            code,
            format_args!(
                "requires '{name}' to be a date, but got {}",
                value.type_name()
            ),
        )
    })
}

/// The first day of the week in the operand `args[at]`, 1 for Monday; Sunday if it is absent,
/// `None` for null and missing. Units other than weeks do not evaluate it.
fn first_weekday<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    at: usize,
    unit: Unit,
    ctx: EvalContext<'e>,
) -> Result<Option<i64>> {
    let arg = &args[at];
    if is_absent(arg) {
        return Ok(Some(7));
    }
    if unit != Unit::Week {
        // Among constants only, MongoDB evaluates in order and skips the operand. Otherwise it
        // reads a constant operand in advance, and a null is remembered whatever the unit is.
        let null_in_advance = arg.as_constant().is_some_and(|v| {
            v.is_none_or(|v| matches!(v, RawValue::Null | RawValue::Undefined))
                && !all_constant(args)
        });
        return Ok((!null_in_advance).then_some(7));
    }
    weekday_operand(operator, &arg.evaluate(ctx)?)
}

/// The day of the week in an operand; `None` for null and missing. Errors: 5439015 for a value that
/// is not a string, 5439016 for an unknown day.
fn weekday_operand(operator: &'static Operator, value: &EvalValue<'_>) -> Result<Option<i64>> {
    match value.non_null() {
        None => Ok(None),
        Some(RawValue::String(name)) => weekday(name).map(Some).ok_or_else(|| {
            operator.error(5439016, format_args!("unknown day of week value: {name}"))
        }),
        Some(other) => Err(operator.error(
            5439015,
            format_args!(
                "requires 'startOfWeek' to be a string, but got {}",
                other.type_name()
            ),
        )),
    }
}

/// The number of units in a bin; `None` for null and missing. Errors: 5439017 for a value that is
/// not a long, 5439018 for one below 1.
fn bin_operand(operator: &'static Operator, value: &EvalValue<'_>) -> Result<Option<i64>> {
    let Some(raw) = value.non_null() else {
        return Ok(None);
    };
    match raw.as_i64_exact() {
        None => Err(operator.error(
            5439017,
            format_args!(
                "requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                shell(raw),
                raw.type_name()
            ),
        )),
        Some(n) if n <= 0 => Err(operator.error(
            5439018,
            format_args!("requires 'binSize' to be greater than 0, but got value {n}"),
        )),
        Some(n) => Ok(Some(n)),
    }
}

/// The value of the operand `args[at]` if it is constant and another operand is not: a call of
/// constants is evaluated as a whole.
fn constant(args: &[Expression], at: usize) -> Option<EvalValue<'_>> {
    match is_absent(&args[at]) || all_constant(args) {
        true => None,
        false => args[at].as_constant().map(EvalValue::from),
    }
}

/// Checks constant operands when the call is parsed, so that a wrong unit is an error even if no
/// document is reached: `{startDate, unit, amount, timezone}`.
pub(in crate::expression) fn check_moved(
    operator: &'static Operator,
    args: &[Expression],
) -> Result<()> {
    check_constants(operator, args, 1)
}

/// As [`check_moved`], for `{startDate, endDate, unit, timezone, startOfWeek}`.
pub(in crate::expression) fn check_diff(
    operator: &'static Operator,
    args: &[Expression],
) -> Result<()> {
    check_constants(operator, args, 2)?;
    constant(args, 4).map_or(Ok(()), |v| weekday_operand(operator, &v).map(drop))
}

/// As [`check_moved`], for `{date, unit, binSize, timezone, startOfWeek}`.
pub(in crate::expression) fn check_trunc(
    operator: &'static Operator,
    args: &[Expression],
) -> Result<()> {
    check_constants(operator, args, 1)?;
    constant(args, 2).map_or(Ok(()), |v| bin_operand(operator, &v).map(drop))?;
    constant(args, 4).map_or(Ok(()), |v| weekday_operand(operator, &v).map(drop))
}

fn check_constants(operator: &'static Operator, args: &[Expression], unit_at: usize) -> Result<()> {
    constant(args, unit_at).map_or(Ok(()), |v| unit_operand(operator, &v).map(drop))?;
    zone::check_constant(operator, args, 3)
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

/// Number of years in the range of dates, which is that of longs in milliseconds.
const YEARS_MAX: i64 = 584_942_417;

/// Whether a date can be moved by `amount` units within the range of dates.
fn is_possible(amount: i64, unit: Unit) -> bool {
    let most = match unit.millis() {
        None => YEARS_MAX * 12 / unit.months(),
        Some(length) => i64::try_from(u64::MAX / length.unsigned_abs()).unwrap_or(i64::MAX),
    };
    amount.unsigned_abs() <= most.unsigned_abs()
}

fn moved<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    back: bool,
) -> Result<EvalValue<'e>> {
    // Operands of a wrong type may be large, and are held while the others are computed.
    let date = args[0].evaluate(ctx)?;
    let Some(date_raw) = date.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let inner = ctx.holding(heap_bytes(&date))?;
    let Some(unit) = unit_operand(operator, &args[1].evaluate(inner)?)? else {
        return Ok(EvalValue::NULL);
    };
    let amount = args[2].evaluate(inner)?;
    let Some(raw) = amount.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let inner = inner.holding(heap_bytes(&amount))?;
    let Some(zone) = zone::operand(operator, &args[3], inner)? else {
        return Ok(EvalValue::NULL);
    };
    let date = date_operand(operator, "startDate", date_raw, 5166403)?;
    let Some(amount) = raw.as_i64_exact() else {
        return Err(operator.error(
            5166405,
            format_args!(
                "expects integer amount of time units, but got {}",
                shell(raw)
            ),
        ));
    };
    let amount = match back {
        false => amount,
        true => amount.checked_neg().ok_or_else(|| {
            operator.error(
                6045000,
                format_args!(
                    "does not accept an amount of {amount}: its negation does not fit a long"
                ),
            )
        })?,
    };
    if !is_possible(amount, unit) {
        return Err(operator.error(
            5976500,
            format_args!(
                "does not accept an amount of {amount} units: it exceeds the range of dates"
            ),
        ));
    }
    match shift(date, unit, amount, &zone) {
        Some(moved) => Ok(Value::DateTime(DateTime(moved)).into()),
        None => Err(overflow(operator, 5166406)),
    }
}

/// The error for a result outside the range of dates.
fn overflow(operator: &'static Operator, code: i32) -> Error {
    operator.error(code, "has a result outside the range of dates")
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
    let (Some(start_raw), Some(end_raw)) = (start.non_null(), end.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    let ctx = ctx.holding(heap_bytes(&start) + heap_bytes(&end))?;
    let Some(unit) = unit_operand(operator, &args[2].evaluate(ctx)?)? else {
        return Ok(EvalValue::NULL);
    };
    let Some(first) = first_weekday(operator, args, 4, unit, ctx)? else {
        return Ok(EvalValue::NULL);
    };
    let Some(zone) = zone::operand(operator, &args[3], ctx)? else {
        return Ok(EvalValue::NULL);
    };
    let start = date_operand(operator, "startDate", start_raw, 5166307)?;
    let end = date_operand(operator, "endDate", end_raw, 5166307)?;
    match boundaries(start, end, unit, &zone, first) {
        Some(n) => Ok(Value::Int64(n).into()),
        None => Err(overflow(operator, 5166308)),
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
    let date = args[0].evaluate(ctx)?;
    let Some(raw) = date.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let ctx = ctx.holding(heap_bytes(&date))?;
    let Some(unit) = unit_operand(operator, &args[1].evaluate(ctx)?)? else {
        return Ok(EvalValue::NULL);
    };
    let bin = match is_absent(&args[2]) {
        true => Some(1),
        false => bin_operand(operator, &args[2].evaluate(ctx)?)?,
    };
    let Some(bin) = bin else {
        return Ok(EvalValue::NULL);
    };
    let Some(first) = first_weekday(operator, args, 4, unit, ctx)? else {
        return Ok(EvalValue::NULL);
    };
    let Some(zone) = zone::operand(operator, &args[3], ctx)? else {
        return Ok(EvalValue::NULL);
    };
    let date = date_operand(operator, "date", raw, 5166307)?;
    let code = match unit {
        Unit::Month | Unit::Quarter | Unit::Year => 5439006,
        Unit::Week => 5439005,
        Unit::Day => 5439004,
        _ => 5439002,
    };
    match truncate(date, unit, bin, &zone, first) {
        Some(begin) => Ok(Value::DateTime(DateTime(begin)).into()),
        None => Err(overflow(operator, code)),
    }
}

/// An instant shifted by calendar units in UTC; `None` if out of range.
pub(crate) fn shift_utc(millis: i64, unit: Unit, amount: i64) -> Option<i64> {
    shift(millis, unit, amount, &super::zone::Zone::UTC)
}
