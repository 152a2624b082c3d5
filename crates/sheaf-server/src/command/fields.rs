//! Parses the fields of a command with type checks. Errors name the field.
//!
//! A handler walks its document once and passes every known field to one of these functions. An
//! unknown field goes to
//! [`CommandContext::unknown_field`](super::context::CommandContext::unknown_field).
//! Messages name command and field as `find.limit`.

use sheaf_bson::{
    CollationChoice, ElementType, Error, ErrorCode, RawArray, RawDoc, RawElement, RawValue,
};

/// The error for a field of the wrong type. `expected` lists type names.
pub fn wrong_type(command: &str, element: &RawElement<'_>, expected: &str) -> Error {
    let field = format_args!("{command}.{}", element.key());
    sheaf_bson::fields::wrong_type(field, element.value(), expected)
}

/// A document.
pub fn document<'a>(command: &str, element: &RawElement<'a>) -> Result<RawDoc<'a>, Error> {
    match element.value() {
        RawValue::Document(doc) => Ok(doc),
        _ => Err(wrong_type(command, element, "object")),
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

/// Whether a value counts as absent wherever an argument is optional: null and undefined.
#[inline]
pub fn is_absent(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Null | RawValue::Undefined)
}

/// [`is_absent`] of an element's value, which is not decoded.
#[inline]
pub fn is_null(element: &RawElement<'_>) -> bool {
    matches!(
        element.element_type(),
        ElementType::Null | ElementType::Undefined
    )
}

/// Whether an argument is given: null and undefined count as absent, except where null is a value
/// of the wrong type.
#[inline]
pub fn is_given(element: &RawElement<'_>) -> bool {
    !is_null(element)
        || matches!(
            element.key(),
            "hint" | "u" | "updateMods" | "clusteredIndex" | "expireAfterSeconds"
        )
}

/// The elements of `doc` that are given.
pub fn given<'a>(doc: RawDoc<'a>) -> impl Iterator<Item = RawElement<'a>> + use<'a> {
    doc.iter().filter(is_given)
}

/// The value of a field that is given: null and undefined count as absent.
pub fn get_given<'a>(doc: RawDoc<'a>, name: &str) -> Option<RawElement<'a>> {
    let element = doc.get_element(name)?;
    (!is_null(&element)).then_some(element)
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

/// A boolean, where numbers are refused; null counts as false.
pub fn strict_boolean(command: &str, element: &RawElement<'_>) -> Result<bool, Error> {
    match element.value() {
        RawValue::Boolean(b) => Ok(b),
        RawValue::Null | RawValue::Undefined => Ok(false),
        _ => Err(wrong_type(command, element, "bool")),
    }
}

/// An integer. Doubles are truncated, decimals rounded half to even; out-of-range values saturate,
/// and NaN is 0.
pub fn integer(command: &str, element: &RawElement<'_>) -> Result<i64, Error> {
    element
        .value()
        .as_i64_saturating()
        .ok_or_else(|| wrong_type(command, element, "[long, int, decimal, double]"))
}

/// An integer that must not be negative.
pub fn non_negative(command: &str, element: &RawElement<'_>) -> Result<u64, Error> {
    let n = integer(command, element)?;
    u64::try_from(n).map_err(|_| {
        Error::bad_value(format!(
            "BSON field '{}' value must be >= 0, actual value '{n}'",
            element.key()
        ))
    })
}

/// `maxTimeMS`: 0 (no limit) to 2^31 - 1.
pub fn max_time_ms(command: &str, element: &RawElement<'_>) -> Result<u64, Error> {
    let value = element.value();
    if !value.is_number() {
        return Err(wrong_type(command, element, "[long, int, decimal, double]"));
    }
    let Some(n) = value.as_i64_exact() else {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("{} has non-integral value", element.key()),
        ));
    };
    match u64::try_from(n) {
        Ok(ms) if ms <= i32::MAX as u64 => Ok(ms),
        _ => Err(Error::bad_value(format!(
            "{n} value for {} is out of range [0, {}]",
            element.key(),
            i32::MAX
        ))),
    }
}

/// The error for a missing required field.
pub fn missing(command: &str, field: &str) -> Error {
    sheaf_bson::fields::missing_field(format_args!("{command}.{field}"))
}

/// The value of a field that must be given.
/// Errors: 40414 for an absent one.
pub fn required<T>(command: &str, field: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| missing(command, field))
}

/// The error for a field that a command or statement does not have.
pub fn unknown_field(command: &str, field: &str) -> Error {
    if field == "encryptionInformation" {
        return Error::new(
            ErrorCode::NOT_IMPLEMENTED,
            format!(
                "'{command}.{field}' is not supported: this server does not search by encrypted \
                 values; declare the fields without 'queries'"
            ),
        );
    }
    sheaf_bson::fields::unknown_field(format_args!("{command}.{field}"))
}
