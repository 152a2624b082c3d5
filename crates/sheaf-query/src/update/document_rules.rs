//! Rules for every stored document, checked on documents that updates produce.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{RawDoc, RawValue, values_equal};

use super::operator::depth;
use super::{DEPTH_MAX, DOCUMENT_BYTES_MAX};

/// Operators or a pipeline make a document larger than 16 MiB.
pub(super) const UPDATE_TOO_LARGE: ErrorCode = ErrorCode(17419);
/// A replacement, or a document that an upsert would insert, is larger than 16 MiB.
pub(super) const REPLACEMENT_TOO_LARGE: ErrorCode = ErrorCode(17420);

/// Errors: `code` for a document over 16 MiB.
pub(super) fn check_size(doc: RawDoc<'_>, code: ErrorCode) -> Result<()> {
    if doc.len_bytes() <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        code,
        format!(
            "the document would have {} bytes after the update; at most {DOCUMENT_BYTES_MAX} can be stored",
            doc.len_bytes()
        ),
    ))
}

/// Errors: Overflow for nesting deeper than [`DEPTH_MAX`].
pub(super) fn check_depth(doc: RawDoc<'_>) -> Result<()> {
    if depth(RawValue::Document(doc)) <= DEPTH_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::OVERFLOW,
        format!("the document is nested deeper than {DEPTH_MAX} levels"),
    ))
}

/// Errors: a value that is not allowed as `_id`.
pub(super) fn check_id(id: RawValue<'_>) -> Result<()> {
    match id {
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => Err(Error::new(
            ErrorCode::INVALID_ID_FIELD,
            format!("the '_id' value cannot be of type {}", id.type_name()),
        )),
        RawValue::Document(doc) => match doc.iter().find(|e| e.key().starts_with('$')) {
            Some(field) => Err(Error::new(
                ErrorCode::DOLLAR_PREFIXED_FIELD_NAME,
                format!(
                    "_id fields may not contain '$'-prefixed fields: {}",
                    field.key()
                ),
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Errors: ImmutableField if the `_id`s are not equal.
pub(super) fn check_same_id(old: RawValue<'_>, new: RawValue<'_>) -> Result<()> {
    if values_equal(old, new) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::IMMUTABLE_FIELD,
        format!(
            "after applying the update, the (immutable) field '_id' was found to have been altered from {} to {}",
            shell(old),
            shell(new)
        ),
    ))
}

/// Errors: ImmutableField if the update removed or changed the `_id`.
pub(super) fn check_id_unchanged(old: RawDoc<'_>, new: RawDoc<'_>) -> Result<()> {
    match (old.get("_id"), new.get("_id")) {
        (Some(old), Some(new)) => check_same_id(old, new),
        (Some(_), None) => Err(Error::new(
            ErrorCode::IMMUTABLE_FIELD,
            "performing an update on the path '_id' would remove the immutable field '_id'",
        )),
        (None, _) => Ok(()),
    }
}
