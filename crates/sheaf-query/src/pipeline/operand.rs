//! Operands of stages that are documents of named fields, read with MongoDB's checks and codes.
//!
//! ```text
//!   a field given twice   IDLDuplicateField   40413
//!   an unknown field      IDLUnknownField     40415
//!   a required one absent IDLFailedToParse    40414     null counts as absent
//!   a wrong type          TypeMismatch        14
//! ```

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::{RawArray, RawDoc, RawElement, RawValue};

/// The fields of an operand, by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand<'a> {
    /// The stage, or the path of the document within it: `$merge`, `$merge.into`.
    path: &'a str,
    doc: RawDoc<'a>,
}

impl<'a> Operand<'a> {
    /// The fields of `doc`, which may have those of `known` and no others.
    /// Errors: IDLUnknownField, IDLDuplicateField.
    pub(super) fn new(path: &'a str, doc: RawDoc<'a>, known: &[&str]) -> Result<Operand<'a>> {
        let mut seen = vec![false; known.len()];
        for element in doc {
            let name = element.key();
            let Some(at) = known.iter().position(|known| *known == name) else {
                return Err(unknown_field(path, name));
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(duplicate_field(path, name));
            }
        }
        Ok(Operand { path, doc })
    }

    /// A field as specified; `None` if it is absent, null or undefined.
    pub(super) fn get(&self, name: &str) -> Option<RawElement<'a>> {
        let mut named = self.doc.iter().filter(|element| element.key() == name);
        named
            .next()
            .filter(|element| !matches!(element.value(), RawValue::Null | RawValue::Undefined))
    }

    /// A field that must be a string. Errors: TypeMismatch.
    pub(super) fn string(&self, name: &str) -> Result<Option<&'a str>> {
        self.typed(name, "string", |value| match value {
            RawValue::String(text) => Some(text),
            _ => None,
        })
    }

    /// A field that must be a document. Errors: TypeMismatch.
    pub(super) fn document(&self, name: &str) -> Result<Option<RawDoc<'a>>> {
        self.typed(name, "object", |value| value.as_document())
    }

    /// A field that must be an array. Errors: TypeMismatch.
    pub(super) fn array(&self, name: &str) -> Result<Option<RawArray<'a>>> {
        self.typed(name, "array", |value| value.as_array())
    }

    /// A field that must be true or false; a number is neither. Errors: TypeMismatch.
    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "bool", |value| match value {
            RawValue::Boolean(is) => Some(is),
            _ => None,
        })
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(RawValue<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(element) = self.get(name) else {
            return Ok(None);
        };
        match read(element.value()) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong_type(self.path, name, element.value(), expected)),
        }
    }

    /// The error for a required field that is absent.
    pub(super) fn missing(&self, name: &str) -> Error {
        fields::missing_field(format_args!("{}.{name}", self.path))
    }
}

/// The error for a field of a wrong type.
pub(super) fn wrong_type(path: &str, name: &str, value: RawValue<'_>, expected: &str) -> Error {
    fields::wrong_type(format_args!("{path}.{name}"), value, expected)
}

/// The error for a field that the document must not have.
pub(super) fn unknown_field(path: &str, name: &str) -> Error {
    fields::unknown_field(format_args!("{path}.{name}"))
}

/// The error for a field that is specified twice.
pub(super) fn duplicate_field(path: &str, name: &str) -> Error {
    Error::new(
        ErrorCode::IDL_DUPLICATE_FIELD,
        format!("BSON field '{path}.{name}' is a duplicate field"),
    )
}
