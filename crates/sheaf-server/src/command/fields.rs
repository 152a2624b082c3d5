//! Parses the fields of a command with type checks. Errors name the field.
//!
//! A handler walks its document once and passes every known field to one of these functions. An
//! unknown field goes to
//! [`CommandContext::unknown_field`](super::context::CommandContext::unknown_field).
//! Messages name command and field as `find.limit`.

use sheaf_bson::{CollationChoice, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue};

/// The error for a field of the wrong type. `expected` lists type names.
pub fn wrong_type(command: &str, element: &RawElement<'_>, expected: &str) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!(
            "BSON field '{command}.{}' is the wrong type '{}', expected type '{expected}'",
            element.key(),
            element.value().type_name()
        ),
    )
}

/// A document.
pub fn document<'a>(command: &str, element: &RawElement<'a>) -> Result<RawDoc<'a>, Error> {
    match element.value() {
        RawValue::Document(doc) => Ok(doc),
        _ => Err(wrong_type(command, element, "object")),
    }
}

/// A document; null counts as absent.
pub fn optional_document<'a>(
    command: &str,
    element: &RawElement<'a>,
) -> Result<Option<RawDoc<'a>>, Error> {
    match element.value() {
        RawValue::Null | RawValue::Undefined => Ok(None),
        _ => document(command, element).map(Some),
    }
}

/// An array.
pub fn array<'a>(command: &str, element: &RawElement<'a>) -> Result<RawArray<'a>, Error> {
    match element.value() {
        RawValue::Array(array) => Ok(array),
        _ => Err(wrong_type(command, element, "array")),
    }
}

/// A string.
pub fn string<'a>(command: &str, element: &RawElement<'a>) -> Result<&'a str, Error> {
    match element.value() {
        RawValue::String(s) => Ok(s),
        _ => Err(wrong_type(command, element, "string")),
    }
}

/// A collation document.
pub fn collation(command: &str, element: &RawElement<'_>) -> Result<CollationChoice, Error> {
    CollationChoice::parse(document(command, element)?)
}

/// A boolean. Numbers other than zero count as true; zero and null count as false.
pub fn boolean(command: &str, element: &RawElement<'_>) -> Result<bool, Error> {
    match element.value() {
        RawValue::Boolean(b) => Ok(b),
        RawValue::Null | RawValue::Undefined => Ok(false),
        value if value.is_number() => Ok(value.is_truthy()),
        _ => Err(wrong_type(
            command,
            element,
            "[bool, long, int, decimal, double]",
        )),
    }
}

/// An integer. Fractions are truncated; out-of-range values saturate; NaN is an error.
pub fn integer(command: &str, element: &RawElement<'_>) -> Result<i64, Error> {
    let value = element.value();
    if !value.is_number() {
        return Err(wrong_type(command, element, "[long, int, decimal, double]"));
    }
    match (value.as_i64_exact(), value.as_f64()) {
        (Some(n), _) => Ok(n),
        // As in MongoDB, fractions are truncated and out-of-range values saturate.
        (None, Some(f)) if !f.is_nan() => Ok(f as i64),
        _ => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("BSON field '{command}.{}' must be a number", element.key()),
        )),
    }
}

/// An integer that must not be negative.
pub fn non_negative(command: &str, element: &RawElement<'_>) -> Result<u64, Error> {
    let n = integer(command, element)?;
    u64::try_from(n).map_err(|_| {
        Error::new(
            ErrorCode(51024),
            format!(
                "BSON field '{}' value must be >= 0, actual value '{n}'",
                element.key()
            ),
        )
    })
}

/// `maxTimeMS`: 0 (no limit) to 2^31 - 1.
pub fn max_time_ms(element: &RawElement<'_>) -> Result<u64, Error> {
    let value = element.value();
    let Some(n) = value.as_i64_exact() else {
        let message = if value.is_number() {
            format!("{} has non-integral value", element.key())
        } else {
            format!("{} must be a number", element.key())
        };
        return Err(Error::bad_value(message));
    };
    match u64::try_from(n) {
        Ok(ms) if ms <= i32::MAX as u64 => Ok(ms),
        _ => Err(Error::bad_value(format!(
            "{n} value for {} is out of range",
            element.key()
        ))),
    }
}

/// The error for a missing required field.
pub fn missing(command: &str, field: &str) -> Error {
    Error::new(
        ErrorCode(40414),
        format!("BSON field '{command}.{field}' is missing but a required field"),
    )
}

/// The error for a field that a command or statement does not have.
pub fn unknown_field(command: &str, field: &str) -> Error {
    Error::new(
        ErrorCode(40415),
        format!("BSON field '{command}.{field}' is an unknown field."),
    )
}
