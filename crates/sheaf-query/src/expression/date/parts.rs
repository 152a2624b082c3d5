//! `$dateToParts` and `$dateFromParts`.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{DateTime, DocBuilder, RawValue, Value};

use super::super::Expression;
use super::super::eval::{EvalContext, EvalValue};
use super::super::operator::{Operator, is_absent};
use super::{Civil, DAY_MILLIS, days_of_iso, millis_of, not_a_date, zone};

/// `$dateToParts: {date, timezone, iso8601}`.
pub(in crate::expression) fn date_to_parts<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let date = args[0].evaluate(ctx)?;
    let ctx = ctx.holding(super::super::budget::heap_bytes(&date))?;
    let Some(zone) = zone::operand(operator, &args[1], ctx)? else {
        return Ok(EvalValue::NULL);
    };
    let iso = if is_absent(&args[2]) {
        false
    } else {
        let value = args[2].evaluate(ctx)?;
        match value.non_null() {
            None => return Ok(EvalValue::NULL),
            Some(RawValue::Boolean(iso)) => iso,
            Some(other) => {
                return Err(operator.error(
                    40521,
                    format_args!(
                        "requires 'iso8601' to evaluate to a bool, not {}",
                        other.type_name()
                    ),
                ));
            }
        }
    };
    let Some(raw) = date.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let millis = millis_of(raw).ok_or_else(|| not_a_date(operator, 16006, raw))?;
    let civil = Civil::from_millis(zone.to_local(millis));
    let mut out = DocBuilder::new();
    let day = if iso {
        let (year, week) = civil.iso_week();
        [
            ("isoWeekYear", year),
            ("isoWeek", week),
            ("isoDayOfWeek", civil.iso_weekday()),
        ]
    } else {
        [
            ("year", civil.year),
            ("month", civil.month),
            ("day", civil.day),
        ]
    };
    let time = [
        ("hour", civil.millis / 3_600_000),
        ("minute", civil.millis / 60_000 % 60),
        ("second", civil.millis / 1000 % 60),
        ("millisecond", civil.millis % 1000),
    ];
    for (name, n) in day.into_iter().chain(time) {
        out.append(name, n as i32);
    }
    Ok(Value::Document(out.finish()).into())
}

/// The operands of `$dateFromParts`, in the order of its arguments.
pub(in crate::expression) const PARTS: [(&str, Option<i32>); 11] = [
    ("year", None),
    ("isoWeekYear", None),
    ("month", None),
    ("isoWeek", None),
    ("day", None),
    ("isoDayOfWeek", None),
    ("hour", None),
    ("minute", None),
    ("second", None),
    ("millisecond", None),
    ("timezone", None),
];

/// Checks which parts are given, and a constant zone, when the call is parsed.
pub(in crate::expression) fn check_from_parts(
    operator: &'static Operator,
    args: &[Expression],
) -> Result<()> {
    check_given(operator, args)?;
    zone::check_constant(operator, args, 10)
}

/// Errors: 40489, 40525 and 40516 for parts of different calendars, or none.
fn check_given(operator: &'static Operator, args: &[Expression]) -> Result<()> {
    let given = |at: usize| !is_absent(&args[at]);
    match (given(0), given(1)) {
        (true, true) => {
            Err(operator.error(40489, "does not allow mixing natural dates with ISO dates"))
        }
        (true, false) if given(3) || given(5) => {
            Err(operator.error(40489, "does not allow mixing natural dates with ISO dates"))
        }
        (false, true) if given(2) || given(4) => {
            Err(operator.error(40525, "does not allow mixing ISO dates with natural dates"))
        }
        (false, false) => Err(operator.error(40516, "requires either 'year' or 'isoWeekYear'")),
        _ => Ok(()),
    }
}

/// Checks a constant zone of `$dateToParts` when the call is parsed.
pub(in crate::expression) fn check_to_parts(
    operator: &'static Operator,
    args: &[Expression],
) -> Result<()> {
    zone::check_constant(operator, args, 1)
}

/// `$dateFromParts: {year, month, day, hour, ...}` or `{isoWeekYear, isoWeek, isoDayOfWeek, hour,
/// ...}`. Parts out of range carry over: month 14 is February of the next year.
pub(in crate::expression) fn date_from_parts<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    check_given(operator, args)?;
    let given = |at: usize| !is_absent(&args[at]);
    let iso = given(1);
    // Inner `None`: the part is null, which makes the result null.
    let part = |at: usize, default: i64| -> Result<Option<i64>> {
        if !given(at) {
            return Ok(Some(default));
        }
        let value = args[at].evaluate(ctx)?;
        let Some(raw) = value.non_null() else {
            return Ok(None);
        };
        match raw.as_i64_exact() {
            Some(n) => Ok(Some(n)),
            None => Err(operator.error(
                40515,
                format_args!(
                    "requires '{}' to evaluate to an integer, found {}",
                    PARTS[at].0,
                    sheaf_bson::json::shell(raw)
                ),
            )),
        }
    };
    let (year_at, month_at, day_at) = if iso { (1, 3, 5) } else { (0, 2, 4) };
    let (Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second), Some(millis)) = (
        part(year_at, 1970)?,
        part(month_at, 1)?,
        part(day_at, 1)?,
        part(6, 0)?,
        part(7, 0)?,
        part(8, 0)?,
        part(9, 0)?,
    ) else {
        return Ok(EvalValue::NULL);
    };
    let Some(zone) = zone::operand(operator, &args[10], ctx)? else {
        return Ok(EvalValue::NULL);
    };
    if !(1..=9999).contains(&year) {
        return Err(operator.error(
            40523,
            format_args!(
                "requires '{}' to evaluate to an integer in the range 1 to 9999, found {year}",
                PARTS[year_at].0
            ),
        ));
    }
    for (at, n) in [(month_at, month), (day_at, day), (6, hour), (7, minute)] {
        if i16::try_from(n).is_err() {
            return Err(operator.error(
                31034,
                format_args!(
                    "requires '{}' to evaluate to a value in the range [-32768, 32767], found {n}",
                    PARTS[at].0
                ),
            ));
        }
    }
    let days = if iso {
        days_of_iso(year, month, day)
    } else {
        let months = year * 12 + month - 1;
        Civil::days_of(months.div_euclid(12), months.rem_euclid(12) + 1, 1) + day - 1
    };
    let instant = second
        .checked_mul(1000)
        .and_then(|ms| ms.checked_add(millis))
        .and_then(|ms| ms.checked_add(days * DAY_MILLIS + hour * 3_600_000 + minute * 60_000))
        .and_then(|local| zone.to_utc(local));
    match instant {
        Some(instant) => Ok(Value::DateTime(DateTime(instant)).into()),
        None => Err(operator.error(
            ErrorCode::DURATION_OVERFLOW.0,
            "results in a date outside the range of dates",
        )),
    }
}
