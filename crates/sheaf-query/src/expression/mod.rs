//! Aggregation expressions. Until they stand, `$expr` is refused by name.

use std::collections::BTreeSet;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{RawDoc, RawValue, Value};

/// The constants an expression is parsed with.
#[derive(Debug, Clone, Default)]
pub struct VariableScope;

/// An expression used as a predicate: `{$expr: ...}`.
#[derive(Debug, Clone)]
pub struct BoundExpression {
    spec: Value,
}

impl BoundExpression {
    /// Parses the operand of `$expr`.
    pub fn parse(_spec: RawValue<'_>, _scope: &VariableScope) -> Result<BoundExpression, Error> {
        Err(not_implemented())
    }

    /// Whether the expression is true for this document.
    pub fn matches(&self, _doc: RawDoc<'_>) -> Result<bool, Error> {
        Err(not_implemented())
    }

    /// The answer, when it is the same for every document.
    pub fn constant_answer(&self) -> Option<bool> {
        None
    }

    /// As the user wrote it.
    pub fn spec(&self) -> RawValue<'_> {
        self.spec.as_raw()
    }

    /// Dotted paths that the answer depends on; `None` when it is the whole document.
    pub fn fields(&self) -> Option<BTreeSet<String>> {
        None
    }
}

fn not_implemented() -> Error {
    Error::new(ErrorCode::NOT_IMPLEMENTED, "$expr is not supported")
}
