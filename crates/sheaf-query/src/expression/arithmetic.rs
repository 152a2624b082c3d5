//! `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`, rounding, `$sum`, `$avg`.
//!
//! A null or missing operand makes the result null, except in `$sum` and `$avg`, which ignore
//! everything that is not a number. `$add` and `$subtract` also accept dates, in milliseconds.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{DateTime, RawValue, Value};

use crate::arithmetic::{Number, Rounding, Sum};

use super::Expression;
use super::eval::{EvalContext, EvalValue, pair};
use super::operator::Operator;

const TYPE_MISMATCH: i32 = ErrorCode::TYPE_MISMATCH.0;
const BAD_VALUE: i32 = ErrorCode::BAD_VALUE.0;
const OVERFLOW: i32 = ErrorCode::OVERFLOW.0;

/// The number; `None` for null and missing. Errors: `code` for any other type.
pub(super) fn number(
    operator: &'static Operator,
    value: &EvalValue<'_>,
    code: i32,
) -> Result<Option<Number>> {
    let Some(raw) = value.non_null() else {
        return Ok(None);
    };
    match Number::from_raw(raw) {
        Some(number) => Ok(Some(number)),
        None => Err(operator.error(
            code,
            format_args!("only supports numeric types, not {}", raw.type_name()),
        )),
    }
}

fn result<'e>(number: Number) -> Result<EvalValue<'e>> {
    Ok(Value::from(number).into())
}

pub(super) fn add<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut total = Number::Int(0);
    let mut date: Option<DateTime> = None;
    for arg in args {
        let value = arg.evaluate(ctx)?;
        let Some(raw) = value.non_null() else {
            return Ok(EvalValue::NULL);
        };
        match raw {
            RawValue::DateTime(_) if date.is_some() => {
                return Err(operator.error(16612, "takes at most one date"));
            }
            RawValue::DateTime(found) => date = Some(found),
            other => match Number::from_raw(other) {
                Some(number) => total = total.plus(number),
                None => {
                    return Err(operator.error(
                        TYPE_MISMATCH,
                        format_args!(
                            "only supports numeric or date types, not {}",
                            other.type_name()
                        ),
                    ));
                }
            },
        }
    }
    match date {
        None => result(total),
        Some(date) => shift_date(operator, date, total),
    }
}

/// The date plus a number of milliseconds, rounded to a whole number.
fn shift_date<'e>(
    operator: &'static Operator,
    date: DateTime,
    millis: Number,
) -> Result<EvalValue<'e>> {
    let millis = match millis {
        Number::Int(n) => Some(i64::from(n)),
        Number::Long(n) => Some(n),
        other => {
            let x = other.to_f64().round();
            (x.abs() < 9.3e18).then_some(x as i64)
        }
    };
    match millis.and_then(|millis| date.0.checked_add(millis)) {
        Some(moved) => Ok(Value::DateTime(DateTime(moved)).into()),
        None => Err(operator.error(OVERFLOW, "gives a date outside the range of dates")),
    }
}

pub(super) fn subtract<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (left, right) = pair(args, ctx)?;
    let (Some(left), Some(right)) = (left.non_null(), right.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    let wrong = || {
        operator.error(
            TYPE_MISMATCH,
            format_args!(
                "cannot take a {} from a {}",
                right.type_name(),
                left.type_name()
            ),
        )
    };
    match (left, right) {
        (RawValue::DateTime(a), RawValue::DateTime(b)) => match a.0.checked_sub(b.0) {
            Some(millis) => Ok(Value::Int64(millis).into()),
            None => Err(operator.error(OVERFLOW, "gives a difference of dates that fits no long")),
        },
        (RawValue::DateTime(date), other) => {
            let number = Number::from_raw(other).ok_or_else(wrong)?;
            shift_date(operator, date, Number::Int(0).minus(number))
        }
        (a, b) => {
            let a = Number::from_raw(a).ok_or_else(wrong)?;
            result(a.minus(Number::from_raw(b).ok_or_else(wrong)?))
        }
    }
}

pub(super) fn multiply<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut product = Number::Int(1);
    for arg in args {
        match number(operator, &arg.evaluate(ctx)?, TYPE_MISMATCH)? {
            Some(number) => product = product.times(number),
            None => return Ok(EvalValue::NULL),
        }
    }
    result(product)
}

/// Two numbers; `None` if either is null or missing. Errors: `code` for any other type.
fn two_numbers<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    code: i32,
) -> Result<Option<(Number, Number)>> {
    let (left, right) = pair(args, ctx)?;
    let (Some(left), Some(right)) = (left.non_null(), right.non_null()) else {
        return Ok(None);
    };
    match (Number::from_raw(left), Number::from_raw(right)) {
        (Some(left), Some(right)) => Ok(Some((left, right))),
        _ => Err(operator.error(
            code,
            format_args!(
                "only supports numeric types, not {} and {}",
                left.type_name(),
                right.type_name()
            ),
        )),
    }
}

pub(super) fn divide<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some((left, right)) = two_numbers(operator, args, ctx, TYPE_MISMATCH)? else {
        return Ok(EvalValue::NULL);
    };
    match left.divide(right) {
        Some(quotient) => result(quotient),
        None => Err(operator.error(BAD_VALUE, "cannot divide by zero")),
    }
}

pub(super) fn modulo<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some((left, right)) = two_numbers(operator, args, ctx, 16611)? else {
        return Ok(EvalValue::NULL);
    };
    match left.remainder(right) {
        Some(remainder) => result(remainder),
        None => Err(operator.error(16610, "cannot divide by zero")),
    }
}

pub(super) fn abs<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    match number(operator, &args[0].evaluate(ctx)?, 28765)? {
        None => Ok(EvalValue::NULL),
        Some(number) => match number.abs() {
            Some(number) => result(number),
            None => Err(operator.error(28680, "of the least long fits no long")),
        },
    }
}

fn round_whole<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    rounding: Rounding,
) -> Result<EvalValue<'e>> {
    match number(operator, &args[0].evaluate(ctx)?, 28765)? {
        None => Ok(EvalValue::NULL),
        Some(number) => result(number.round(0, rounding).unwrap_or(number)),
    }
}

pub(super) fn ceil<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    round_whole(operator, args, ctx, Rounding::Ceiling)
}

pub(super) fn floor<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    round_whole(operator, args, ctx, Rounding::Floor)
}

fn round_at<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    rounding: Rounding,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let place = match args.get(1) {
        None => 0,
        Some(place) => {
            let place = place.evaluate(ctx)?;
            let Some(raw) = place.non_null() else {
                return Ok(EvalValue::NULL);
            };
            match raw.as_i64_exact() {
                Some(place) if (-20..=100).contains(&place) => place as i32,
                Some(place) => {
                    return Err(operator.error(
                        51083,
                        format_args!("takes a place between -20 and 100, not {place}"),
                    ));
                }
                None => {
                    return Err(operator.error(
                        51082,
                        format_args!(
                            "takes an integral place, not {}",
                            sheaf_bson::json::shell(raw)
                        ),
                    ));
                }
            }
        }
    };
    match number(operator, &value, 51081)? {
        None => Ok(EvalValue::NULL),
        Some(number) => match number.round(place, rounding) {
            Some(number) => result(number),
            None => Err(operator.error(51080, "gives a result that fits no long")),
        },
    }
}

pub(super) fn round<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    round_at(operator, args, ctx, Rounding::HalfEven)
}

pub(super) fn trunc<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    round_at(operator, args, ctx, Rounding::Down)
}

/// Sums the operands that are numbers. If the only operand is an array, sums its elements.
fn sum_of<'e>(args: &'e [Expression], ctx: EvalContext<'e>) -> Result<Sum> {
    let mut sum = Sum::default();
    let mut add = |raw: RawValue<'_>| {
        if let Some(number) = Number::from_raw(raw) {
            sum.add(number);
        }
    };
    for arg in args {
        match arg.evaluate(ctx)?.as_raw() {
            Some(RawValue::Array(array)) if args.len() == 1 => array.iter().for_each(&mut add),
            Some(raw) => add(raw),
            None => {}
        }
    }
    Ok(sum)
}

pub(super) fn sum<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    result(sum_of(args, ctx)?.total())
}

pub(super) fn avg<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    match sum_of(args, ctx)?.average() {
        Some(mean) => result(mean),
        None => Ok(EvalValue::NULL),
    }
}
