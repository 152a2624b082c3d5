//! `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`, rounding, `$sum`, `$avg`.
//!
//! A null or missing operand makes the result null, except in `$sum` and `$avg`, which ignore
//! everything that is not a number. `$add` and `$subtract` also accept dates, in milliseconds.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{DateTime, RawValue, Value};

use crate::arithmetic::{Number, Rounding, Sum, decimal};

use super::budget::heap_bytes;
use super::eval::{EvalContext, EvalValue, pair};
use super::operator::{Arity, Operator};
use super::{Expression, coerce, location};

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
                return Err(location(
                    16612,
                    "only one date allowed in an $add expression",
                ));
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
    let Some(date) = date else {
        return result(total);
    };
    // The numbers are rounded once, as their sum.
    let moved = whole_millis(total).and_then(|millis| date.0.checked_add(millis));
    date_at(operator, moved)
}

/// The date at this time. Errors: Overflow if there is none.
fn date_at<'e>(operator: &'static Operator, millis: Option<i64>) -> Result<EvalValue<'e>> {
    match millis {
        Some(millis) => Ok(Value::DateTime(DateTime(millis)).into()),
        None => Err(operator.error(OVERFLOW, "results in a date outside the range of dates")),
    }
}

/// Milliseconds rounded to a whole number; `None` if they do not fit a long.
fn whole_millis(millis: Number) -> Option<i64> {
    match millis {
        Number::Int(n) => Some(i64::from(n)),
        Number::Long(n) => Some(n),
        Number::Double(x) => {
            let x = x.round();
            coerce::fits_long(x).then_some(x as i64)
        }
        Number::Decimal(d) => decimal::round(d, 0, Rounding::HalfEven).to_i64_exact(),
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
                "cannot subtract {} from {}",
                right.type_name(),
                left.type_name()
            ),
        )
    };
    match (left, right) {
        (RawValue::DateTime(a), RawValue::DateTime(b)) => match a.0.checked_sub(b.0) {
            Some(millis) => Ok(Value::Int64(millis).into()),
            None => Err(operator.error(
                OVERFLOW,
                "results in a difference of dates that does not fit a long",
            )),
        },
        (RawValue::DateTime(date), other) => {
            let number = Number::from_raw(other).ok_or_else(wrong)?;
            let moved = whole_millis(number).and_then(|millis| date.0.checked_sub(millis));
            date_at(operator, moved)
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
        None => Err(location(BAD_VALUE, "can't $divide by zero")),
    }
}

/// `$divide` and `$mod` as `$group` evaluates them: a division by zero has another code.
pub(super) static IN_GROUP: [Operator; 2] = [
    Operator {
        name: "$divide",
        arity: Arity::Exactly(2),
        eval: divide_in_group,
    },
    Operator {
        name: "$mod",
        arity: Arity::Exactly(2),
        eval: modulo_in_group,
    },
];

fn divide_in_group<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    divide(operator, args, ctx).map_err(|e| match e.code().0 {
        BAD_VALUE => location(4848401, e.message()),
        _ => e,
    })
}

fn modulo_in_group<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    modulo(operator, args, ctx).map_err(|e| match e.code().0 {
        16610 | 5733415 => location(4848403, e.message()),
        _ => e,
    })
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
        None if matches!(
            (left, right),
            (Number::Decimal(_), _) | (_, Number::Decimal(_))
        ) =>
        {
            Err(location(5733415, "can't $mod by zero"))
        }
        None => Err(location(16610, "can't $mod by zero")),
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
            None => Err(location(28680, "can't take $abs of long long min")),
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
        Some(Number::Decimal(d)) => result(Number::Decimal(decimal::quantize(d, 0, rounding))),
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
    if value.non_null().is_none() {
        return Ok(EvalValue::NULL);
    }
    let place = match args.get(1) {
        None => 0,
        Some(place) => match place.evaluate(ctx.holding(heap_bytes(&value))?)?.non_null() {
            None => return Ok(EvalValue::NULL),
            Some(raw) => place_of(operator, raw)?,
        },
    };
    match number(operator, &value, 51081)? {
        None => Ok(EvalValue::NULL),
        // A decimal is rounded to the requested number of places, or unchanged if 34 digits do not
        // suffice.
        Some(Number::Decimal(d)) => {
            let quantized = decimal::quantize(d, place, rounding);
            result(Number::Decimal(match quantized.is_nan() {
                true => d,
                false => quantized,
            }))
        }
        Some(number) => match number.round(place, rounding) {
            Some(number) => result(number),
            None => Err(operator.error(51080, "results in a number that does not fit a long")),
        },
    }
}

/// The place of `$round` and `$trunc`. Errors: those of a conversion to long; 51082 for a number
/// that is not a 32-bit integer, 51083 for one outside -20 to 100.
fn place_of(operator: &'static Operator, value: RawValue<'_>) -> Result<i32> {
    coerce::to_long(value)?;
    let integer = value.as_i64_exact().and_then(|n| i32::try_from(n).ok());
    match integer {
        Some(place) if (-20..=100).contains(&place) => Ok(place),
        Some(place) => Err(location(
            51083,
            format!(
                "cannot apply {} with precision value {place} value must be in [-20, 100]",
                operator.name
            ),
        )),
        None => Err(location(
            51082,
            format!(
                "precision argument to {} must be an integral value",
                operator.name
            ),
        )),
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

/// Sums the operands that are numbers, each after `map`. If the only operand is an array, sums its
/// elements.
fn sum_of<'e>(
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    map: fn(Number) -> Number,
) -> Result<Sum> {
    let mut sum = Sum::default();
    let mut add = |raw: RawValue<'_>| {
        if let Some(number) = Number::from_raw(raw) {
            sum.add(map(number));
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
    result(sum_of(args, ctx, |number| number)?.total())
}

pub(super) fn avg<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    // Unlike the accumulator, the expression adds longs as doubles.
    let as_double = |number| match number {
        Number::Long(n) => Number::Double(n as f64),
        other => other,
    };
    match sum_of(args, ctx, as_double)?.average() {
        Some(mean) => result(mean),
        None => Ok(EvalValue::NULL),
    }
}
