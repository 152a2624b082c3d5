//! `$and`, `$or`, `$not`: accept operands of any type and short-circuit.

use sheaf_bson::error_code::Result;

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::operator::Operator;

pub(super) fn and<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    for arg in args {
        if !arg.evaluate(ctx)?.is_truthy() {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

pub(super) fn or<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    for arg in args {
        if arg.evaluate(ctx)?.is_truthy() {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

pub(super) fn not<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok((!args[0].evaluate(ctx)?.is_truthy()).into())
}
