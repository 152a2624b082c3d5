//! Errors whose code has a number but no name in MongoDB.

use sheaf_bson::error_code::{Error, ErrorCode};

/// An error with a numbered code that has no name in MongoDB.
pub(crate) fn location(code: i32, message: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), message)
}
