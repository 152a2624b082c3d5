//! `$type`, `$isNumber`, `$isArray`, `$bsonSize`, `$binarySize`.

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawValue, Value};

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::operators::Operator;

/// The type's name, "missing" for a missing value.
pub(super) fn type_name<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(EvalValue::Raw(RawValue::String(
        args[0].evaluate(ctx)?.type_name(),
    )))
}

pub(super) fn is_number<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(args[0]
        .evaluate(ctx)?
        .as_raw()
        .is_some_and(|v| v.is_number())
        .into())
}

pub(super) fn is_array<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(matches!(args[0].evaluate(ctx)?.as_raw(), Some(RawValue::Array(_))).into())
}

fn size<'e>(bytes: usize) -> Result<EvalValue<'e>> {
    Ok(Value::Int32(bytes as i32).into())
}

/// Bytes of a document.
pub(super) fn bson_size<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    match args[0].evaluate(ctx)?.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::Document(doc)) => size(doc.len_bytes()),
        Some(other) => Err(operator.error(
            31393,
            format_args!(
                "requires a document as its input, found: {}",
                other.type_name()
            ),
        )),
    }
}

/// Bytes of a string or of binary data.
pub(super) fn binary_size<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    match args[0].evaluate(ctx)?.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::String(text)) => size(text.len()),
        Some(RawValue::Binary { bytes, .. }) => size(bytes.len()),
        Some(other) => Err(operator.error(
            51276,
            format_args!(
                "requires a string or binary data, found: {}",
                other.type_name()
            ),
        )),
    }
}
