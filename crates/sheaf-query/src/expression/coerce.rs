//! Implicit conversions that operators apply to their operands; `$convert` is the explicit one.

use sheaf_bson::RawValue;
use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;

use crate::arithmetic::{Rounding, decimal};

use super::location;

/// The smallest double that is too large for a long.
const LONG_END: f64 = 9_223_372_036_854_775_808.0;

/// Whether the truncated double fits a long.
pub(super) fn fits_long(x: f64) -> bool {
    (-LONG_END..LONG_END).contains(&x)
}

/// The number as a long. Doubles are truncated; decimals are rounded to the nearest, ties to even,
/// and one that is NaN or out of range becomes the smallest long. Errors: 16004 for another type,
/// 31109 for a double that does not fit a long.
pub(super) fn to_long(value: RawValue<'_>) -> Result<i64> {
    match value {
        RawValue::Int32(n) => Ok(i64::from(n)),
        RawValue::Int64(n) => Ok(n),
        RawValue::Double(x) if fits_long(x) => Ok(x as i64),
        RawValue::Double(_) => Err(location(
            31109,
            format!("Can't coerce out of range value {} to long", shell(value)),
        )),
        RawValue::Decimal128(d) => {
            let whole = decimal::round(d, 0, Rounding::HalfEven);
            Ok(whole.to_i64_exact().unwrap_or(i64::MIN))
        }
        other => Err(location(
            16004,
            format!("can't convert from BSON type {} to long", other.type_name()),
        )),
    }
}
