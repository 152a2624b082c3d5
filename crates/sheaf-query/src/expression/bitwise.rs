//! `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`, on ints and longs. The result is a long if an operand
//! is one.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{RawValue, Value};

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::operator::Operator;

/// The bits, and whether the operand is a long; `None` for null and missing.
fn bits(operator: &'static Operator, value: &EvalValue<'_>) -> Result<Option<(i64, bool)>> {
    match value.non_null() {
        None => Ok(None),
        Some(RawValue::Int32(n)) => Ok(Some((i64::from(n), false))),
        Some(RawValue::Int64(n)) => Ok(Some((n, true))),
        Some(other) => Err(operator.error(
            ErrorCode::TYPE_MISMATCH.0,
            format_args!(
                "only supports int and long operands, not {}",
                other.type_name()
            ),
        )),
    }
}

fn number(bits: i64, long: bool) -> EvalValue<'static> {
    match long {
        true => Value::Int64(bits).into(),
        // Both operands were sign-extended, so the upper half carries no information.
        false => Value::Int32(bits as i32).into(),
    }
}

fn folded<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    neutral: i64,
    f: fn(i64, i64) -> i64,
) -> Result<EvalValue<'e>> {
    let (mut all, mut long) = (neutral, false);
    for arg in args {
        let Some((n, is_long)) = bits(operator, &arg.evaluate(ctx)?)? else {
            return Ok(EvalValue::NULL);
        };
        all = f(all, n);
        long |= is_long;
    }
    Ok(number(all, long))
}

pub(super) fn bit_and<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    folded(operator, args, ctx, -1, |a, b| a & b)
}

pub(super) fn bit_or<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    folded(operator, args, ctx, 0, |a, b| a | b)
}

pub(super) fn bit_xor<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    folded(operator, args, ctx, 0, |a, b| a ^ b)
}

pub(super) fn bit_not<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(match bits(operator, &args[0].evaluate(ctx)?)? {
        Some((n, long)) => number(!n, long),
        None => EvalValue::NULL,
    })
}
