//! Updates: parsed once, then applied to raw documents.
//!
//! ```text
//!   update ──parse──> UpdateDriver ──apply(document)──> NoChange | Changed{document, paths}
//! ```
//!
//! An update is a *replacement* (a document of plain fields), *operators* (`{$set: ...}`) or a
//! *pipeline* (an array of stages). Fields that the update does not change are copied as bytes. An
//! update whose result is identical to the stored document is [`Outcome::NoChange`]: the caller
//! writes nothing. A replacement without `_id` is a change even then, so that it is validated.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DateTime, DocBuf, RawArray, RawDoc, RawValue, Timestamp};

use crate::expression::VariableScope;
use crate::matcher::ParseContext;
use crate::pipeline::Pipeline;

mod apply;
mod array_filters;
mod array_operators;
pub mod diff;
mod document_rules;
mod modified_paths;
mod operator;
mod operators;
mod path;
mod pipeline_form;
mod replacement;
mod tree;
mod upsert;

pub use modified_paths::ModifiedPaths;
pub use upsert::document_from_query;

use operators::Operators;

/// Maximum nesting depth of a stored document.
const DEPTH_MAX: usize = sheaf_bson::DOCUMENT_DEPTH_MAX;
/// Maximum number of nulls with which one update pads an array before a new element.
const PADDING_MAX: u32 = 1_500_000;
/// Maximum size of a stored document, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The context in which an update is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyContext {
    /// The wall clock time, for `$currentDate` with dates.
    pub now: DateTime,
    /// The logical time, for `$currentDate` with timestamps, and for zero timestamps of
    /// replacements.
    pub timestamp: Timestamp,
    /// Whether zero timestamps of replacements are stored unchanged.
    pub keeps_empty_timestamps: bool,
    /// The position of `$`: the array element that the query matched.
    pub matched_array_index: Option<usize>,
    /// Whether an upsert inserts the document: `$setOnInsert` applies.
    pub is_insert: bool,
}

/// The result of applying an update.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The document already has the result of the update.
    NoChange,
    /// The document changes.
    Changed {
        /// The whole new document; the position of `_id` does not change.
        doc: DocBuf,
        /// The paths that differ; empty for a replacement without `_id` that changes nothing.
        modified: ModifiedPaths,
    },
}

/// A parsed update. Borrows a replacement, which may have the maximum document size.
#[derive(Debug, Clone)]
pub struct UpdateDriver<'u> {
    form: Form<'u>,
}

#[derive(Debug, Clone)]
enum Form<'u> {
    Replacement(RawDoc<'u>),
    Operators(Operators),
    Pipeline(Pipeline),
}

/// The form of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateKind {
    /// A whole document; not allowed with `multi: true`.
    Replacement,
    /// A document of operators: `{$set: ...}`.
    Operators,
    /// An array of stages.
    Pipeline,
}

impl<'u> UpdateDriver<'u> {
    /// Parses an update. `scope` has the `let` variables and the current time.
    ///
    /// Errors: FailedToParse for an unknown form or an unknown operator,
    /// ConflictingUpdateOperators, and the errors of the operators.
    pub fn parse(
        update: RawValue<'u>,
        array_filters: Option<RawArray<'_>>,
        scope: &VariableScope,
    ) -> Result<UpdateDriver<'u>> {
        let context = ParseContext {
            variables: scope.clone(),
        };
        let form = match update {
            RawValue::Document(doc) if is_operators(doc) => {
                Form::Operators(Operators::parse(doc, array_filters, &context)?)
            }
            RawValue::Document(doc) => {
                if array_filters.is_some_and(|filters| !filters.is_empty()) {
                    return Err(Error::new(
                        ErrorCode::FAILED_TO_PARSE,
                        "arrayFilters may not be specified for replacement-style updates",
                    ));
                }
                replacement::check(doc)?;
                Form::Replacement(doc)
            }
            RawValue::Array(stages) => {
                if array_filters.is_some_and(|filters| !filters.is_empty()) {
                    return Err(Error::new(
                        ErrorCode::FAILED_TO_PARSE,
                        "arrayFilters may not be specified for pipeline-style updates",
                    ));
                }
                Form::Pipeline(pipeline_form::parse(stages, &context)?)
            }
            other => {
                return Err(Error::new(
                    ErrorCode::FAILED_TO_PARSE,
                    format!(
                        "an update must be an object or an array of pipeline stages, not {}",
                        other.type_name()
                    ),
                ));
            }
        };
        Ok(UpdateDriver { form })
    }

    /// The form of the update.
    pub fn kind(&self) -> UpdateKind {
        match &self.form {
            Form::Replacement(_) => UpdateKind::Replacement,
            Form::Operators(_) => UpdateKind::Operators,
            Form::Pipeline(_) => UpdateKind::Pipeline,
        }
    }

    /// Whether a path contains `$`: the caller must match with details.
    pub fn needs_matched_array_index(&self) -> bool {
        match &self.form {
            Form::Operators(operators) => operators.needs_matched_array_index(),
            _ => false,
        }
    }

    /// Whether the update is a change even of documents that already have its result.
    fn always_changes(&self) -> bool {
        matches!(self.form, Form::Replacement(new) if new.get("_id").is_none())
    }

    /// The error code for a result over 16 MiB.
    fn too_large(&self) -> ErrorCode {
        match self.form {
            Form::Replacement(_) => document_rules::REPLACEMENT_TOO_LARGE,
            Form::Operators(_) | Form::Pipeline(_) => document_rules::UPDATE_TOO_LARGE,
        }
    }

    /// Applies the update to a stored document, which has an `_id`.
    ///
    /// Errors: an operator that does not apply to the type of an existing value, a changed `_id`
    /// (ImmutableField), a result that is too large or too deeply nested. The stored document does
    /// not change.
    pub fn apply(&self, doc: RawDoc<'_>, context: &ApplyContext) -> Result<Outcome> {
        let (new, modified) = match &self.form {
            Form::Replacement(new) => replacement::apply(*new, doc, context)?,
            Form::Operators(operators) => operators.apply(doc, context)?,
            Form::Pipeline(pipeline) => pipeline_form::apply(pipeline, doc)?,
        };
        if modified.is_empty() && !self.always_changes() {
            return Ok(Outcome::NoChange);
        }
        document_rules::check_id_unchanged(doc, new.as_raw())?;
        document_rules::check_size(new.as_raw(), self.too_large())?;
        Ok(Outcome::Changed { doc: new, modified })
    }
}

/// The names of all update operators, including `$rename`.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    operator::TABLE
        .iter()
        .map(|(name, _)| *name)
        .chain(["$rename"])
}

/// Whether the update has operators: its first name begins with a dollar sign.
fn is_operators(doc: RawDoc<'_>) -> bool {
    doc.first()
        .is_some_and(|first| first.key().starts_with('$'))
}

#[cfg(test)]
mod tests;
