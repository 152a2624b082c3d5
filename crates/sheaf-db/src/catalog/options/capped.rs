//! `capped`, `size`, `max`: the limits of a collection that removes its oldest documents.

use sheaf_bson::fields::wrong_type;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawElement, RawValue, Result};

/// Minimum size of a capped collection, in bytes.
const BYTES_MIN: i64 = 4096;
/// Maximum size: 1 PB.
const BYTES_MAX: i64 = 1 << 50;
/// Larger sizes are rounded up to a multiple of this.
const BYTES_STEP: i64 = 256;
/// `max` must be below this.
const DOCUMENTS_LIMIT: i64 = 1 << 31;

/// Limits of a capped collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capped {
    /// Maximum size of the documents, in bytes.
    pub bytes: u64,
    /// Maximum number of documents; `None` for no limit.
    pub documents: Option<u64>,
}

impl Capped {
    /// A limit in bytes, as stored in the catalog.
    pub fn of_bytes(bytes: u64) -> Capped {
        Capped {
            bytes,
            documents: None,
        }
    }

    /// Parses `size` of a command: rounded as for [`super::CollectionOptions::parse`]. Errors:
    /// `InvalidOptions` for a value that is not a number above 0, `BadValue` above 1 PB.
    pub fn parse_size(command: &str, value: RawValue<'_>) -> Result<Capped> {
        if !value.is_number() || whole(command, "size", value)? < 1 {
            return Err(invalid("Capped collection size must be greater than zero"));
        }
        Ok(Capped::of_bytes(parse_size(command, "size", value)? as u64))
    }

    /// The error for a command without `size`.
    pub fn missing_size() -> Error {
        invalid("Capped collection size must be given, and greater than zero")
    }

    pub(super) fn append(&self, out: &mut DocBuilder) {
        out.append("capped", true);
        out.append("size", RawValue::int_or_long(self.bytes as i64));
        if let Some(documents) = self.documents {
            out.append("max", RawValue::int_or_long(documents as i64));
        }
    }
}

/// The three options while being parsed.
#[derive(Debug, Default)]
pub(super) struct Fields {
    capped: bool,
    size: Option<i64>,
    max: Option<i64>,
}

impl Fields {
    /// Accepts one of the options; returns false for any other field.
    pub(super) fn take(&mut self, element: RawElement<'_>) -> Result<bool> {
        let value = element.value();
        match element.key() {
            "capped" => self.capped = truthy(element)?,
            "size" => self.size = Some(parse_size("create", "size", value)?),
            "max" => self.max = Some(parse_max("create", "max", value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Errors: `InvalidOptions` if an option lacks another that it requires.
    pub(super) fn finish(self) -> Result<Option<Capped>> {
        match (self.capped, self.size) {
            (true, Some(bytes)) => Ok(Some(Capped {
                bytes: bytes as u64,
                documents: self.max.filter(|max| *max > 0).map(|max| max as u64),
            })),
            (true, None) => Err(invalid(
                "the 'size' field is required when 'capped' is true",
            )),
            (false, None) if self.max.is_none() => Ok(None),
            (false, _) => Err(invalid(
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
            )),
        }
    }
}

pub(super) fn truthy(element: RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Boolean(value) => Ok(value),
        RawValue::Null | RawValue::Undefined => Ok(false),
        value if value.is_number() => Ok(value.is_truthy()),
        value => Err(wrong_type(
            format_args!("create.{}", element.key()),
            value,
            "[bool, long, int, decimal, double]",
        )),
    }
}

/// Parses a number of bytes, rounded as MongoDB does: up to 4096, then up to a multiple of 256.
/// Errors: `TypeMismatch`, `BadValue` for a size outside 1 to 1 PB.
pub(crate) fn parse_size(command: &str, field: &str, value: RawValue<'_>) -> Result<i64> {
    let bytes = whole(command, field, value)?;
    if bytes < 1 {
        return Err(Error::bad_value(format!(
            "BSON field '{field}' value must be >= 1, actual value '{bytes}'"
        )));
    }
    if bytes > BYTES_MAX {
        return Err(Error::bad_value(format!(
            "BSON field '{field}' value must be <= {BYTES_MAX}, actual value '{bytes}'"
        )));
    }
    let steps = (bytes.max(BYTES_MIN) + BYTES_STEP - 1) / BYTES_STEP;
    Ok(steps * BYTES_STEP)
}

/// Parses a number of documents; zero and negative values mean no limit.
/// Errors: `TypeMismatch`, `BadValue` from 2^31 on.
pub(crate) fn parse_max(command: &str, field: &str, value: RawValue<'_>) -> Result<i64> {
    let documents = whole(command, field, value)?;
    if documents >= DOCUMENTS_LIMIT {
        return Err(Error::bad_value(
            "max in a capped collection has to be < 2^31 or not set",
        ));
    }
    Ok(documents)
}

fn whole(command: &str, field: &str, value: RawValue<'_>) -> Result<i64> {
    if !value.is_number() {
        let expected = "[long, int, decimal, double]";
        return Err(wrong_type(
            format_args!("{command}.{field}"),
            value,
            expected,
        ));
    }
    // As for other numbers in commands: fractions are truncated (those of decimals rounded to
    // even), large values saturate, and NaN is 0.
    Ok(match value {
        RawValue::Decimal128(decimal) => decimal.to_i64_saturating(),
        value => value
            .as_i64_exact()
            .unwrap_or_else(|| value.as_f64().unwrap_or(0.0) as i64),
    })
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorCode::INVALID_OPTIONS, message)
}
