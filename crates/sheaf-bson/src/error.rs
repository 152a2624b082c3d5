//! The error for malformed input: what is wrong, and where.

use std::fmt;

/// Why bytes, a text or a path are malformed.
///
/// `offset` counts bytes from the start of the input of the failing function; `path` is the dotted
/// path of the element, empty at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BsonError {
    message: String,
    offset: usize,
    path: String,
    too_deep: bool,
}

impl BsonError {
    /// An error at `offset`, without a path.
    pub fn new(message: impl Into<String>, offset: usize) -> BsonError {
        BsonError {
            message: message.into(),
            offset,
            path: String::new(),
            too_deep: false,
        }
    }

    /// The error for a document at `offset` that is nested deeper than `depth_max` levels.
    pub(crate) fn too_deep(depth_max: usize, offset: usize) -> BsonError {
        BsonError {
            too_deep: true,
            ..BsonError::new(
                format!("nesting exceeds the limit of {depth_max} levels"),
                offset,
            )
        }
    }

    /// Whether the only fault is that documents are nested too deep.
    pub fn is_too_deep(&self) -> bool {
        self.too_deep
    }

    /// The same error, with the dotted path of the element it was found in.
    pub fn with_path(mut self, path: impl Into<String>) -> BsonError {
        self.path = path.into();
        self
    }

    /// The message without offset and path.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Bytes from the start of the input.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The dotted path of the element, empty when unknown or at the top.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for BsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.message, self.offset)?;
        if !self.path.is_empty() {
            write!(f, " in element with field name '{}'", self.path)?;
        }
        Ok(())
    }
}

impl std::error::Error for BsonError {}
