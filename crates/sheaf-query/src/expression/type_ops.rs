//! `$type`, `$isNumber`, `$isArray`, `$bsonSize`, `$binarySize`, `$subtype`, `$tsSecond`,
//! `$tsIncrement`, `$toHashedIndexKey`.

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::hash64::hash64;
use sheaf_bson::{RawValue, Timestamp, Value};

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::operator::Operator;

/// The name of the type; "missing" for a missing value.
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

/// The size of a document in bytes.
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

/// The size of a string or of binary data in bytes.
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

/// The subtype of binary data.
pub(super) fn subtype<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    match args[0].evaluate(ctx)?.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::Binary { subtype, .. }) => Ok(Value::Int32(i32::from(subtype)).into()),
        Some(other) => Err(operator.error(
            ErrorCode::TYPE_MISMATCH.0,
            format_args!("requires binary data, found: {}", other.type_name()),
        )),
    }
}

fn of_timestamp<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    code: i32,
    part: fn(Timestamp) -> u32,
) -> Result<EvalValue<'e>> {
    match args[0].evaluate(ctx)?.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::Timestamp(time)) => Ok(Value::Int64(i64::from(part(time))).into()),
        Some(other) => Err(operator.error(
            code,
            format_args!(
                "requires a timestamp argument, found: {}",
                other.type_name()
            ),
        )),
    }
}

/// The seconds of a timestamp.
pub(super) fn ts_second<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    of_timestamp(operator, args, ctx, 5687301, |time| time.time)
}

/// The ordinal of a timestamp within its second.
pub(super) fn ts_increment<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    of_timestamp(operator, args, ctx, 5687302, |time| time.increment)
}

/// The key of the value in a hashed index; a missing value is hashed as null.
pub(super) fn to_hashed_index_key<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let raw = value.as_raw().unwrap_or(RawValue::Null);
    Ok(Value::Int64(hash64(raw)).into())
}
