//! `$hash` and `$hexHash`: `{input, algorithm}`, the hash of a string or of binary data.
//!
//! ```text
//!   md5     16 bytes        sha256   32 bytes
//!   xxh64    8 bytes, big-endian, seed 0
//! ```

use md5::{Digest, Md5};
use sha2::Sha256;
use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{RawValue, Value};
use twox_hash::XxHash64;

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::Operator;
use super::{Expression, convert};

/// The hash; `None` if the input is null or missing.
fn digest<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<Option<Vec<u8>>> {
    let (input, algorithm) = pair(args, ctx)?;
    let algorithm: fn(&[u8]) -> Vec<u8> = match algorithm.as_raw() {
        Some(RawValue::String("md5")) => |bytes| Md5::digest(bytes).to_vec(),
        Some(RawValue::String("sha256")) => |bytes| Sha256::digest(bytes).to_vec(),
        Some(RawValue::String("xxh64")) => |bytes| XxHash64::oneshot(0, bytes).to_be_bytes().into(),
        other => {
            return Err(operator.error(
                ErrorCode::BAD_VALUE.0,
                format_args!(
                    "requires 'algorithm' to be 'md5', 'sha256' or 'xxh64', found: {}",
                    other.map_or("missing".to_owned(), sheaf_bson::json::shell)
                ),
            ));
        }
    };
    match input.non_null() {
        None => Ok(None),
        Some(RawValue::String(text)) => Ok(Some(algorithm(text.as_bytes()))),
        Some(RawValue::Binary { bytes, .. }) => Ok(Some(algorithm(bytes))),
        Some(other) => Err(operator.error(
            ErrorCode::TYPE_MISMATCH.0,
            format_args!(
                "requires 'input' to be a string or binary data, found: {}",
                other.type_name()
            ),
        )),
    }
}

/// The hash as binary data.
pub(super) fn hash<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let bytes = digest(operator, args, ctx)?;
    Ok(bytes.map_or(EvalValue::NULL, |bytes| {
        Value::Binary { subtype: 0, bytes }.into()
    }))
}

/// The hash as uppercase hexadecimal digits.
pub(super) fn hex_hash<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let bytes = digest(operator, args, ctx)?;
    Ok(bytes.map_or(EvalValue::NULL, |bytes| {
        Value::String(convert::hex(&bytes)).into()
    }))
}
