//! Errors of documents with named fields: the options of commands, indexes and stages.
//!
//! Texts and codes are MongoDB's, and clients depend on them. `field` is the whole path, as in
//! `create.clusteredIndex.key`.

use std::fmt::Display;

use crate::error_code::{Error, ErrorCode};
use crate::raw_value::RawValue;

/// `TypeMismatch`: the field cannot have a value of this type. `expected` is the name of a type,
/// such as `object`.
pub fn wrong_type(field: impl Display, value: RawValue<'_>, expected: &str) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!(
            "BSON field '{field}' is the wrong type '{}', expected type '{expected}'",
            value.type_name()
        ),
    )
}

/// `IDLUnknownField`: there is no such field.
pub fn unknown_field(field: impl Display) -> Error {
    Error::new(
        ErrorCode::IDL_UNKNOWN_FIELD,
        format!("BSON field '{field}' is an unknown field."),
    )
}

/// `IDLFailedToParse`: the field was left out.
pub fn missing_field(field: impl Display) -> Error {
    Error::new(
        ErrorCode::IDL_FAILED_TO_PARSE,
        format!("BSON field '{field}' is missing but a required field"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_codes() {
        let wrong = wrong_type(format_args!("create.{}", "size"), RawValue::Null, "object");
        assert_eq!(wrong.code().0, 14);
        assert_eq!(
            wrong.message(),
            "BSON field 'create.size' is the wrong type 'null', expected type 'object'"
        );
        let unknown = unknown_field("create.x");
        assert_eq!(unknown.code().0, 40415);
        assert_eq!(
            unknown.message(),
            "BSON field 'create.x' is an unknown field."
        );
        let missing = missing_field("create.x");
        assert_eq!(missing.code().0, 40414);
        assert_eq!(
            missing.message(),
            "BSON field 'create.x' is missing but a required field"
        );
    }
}
