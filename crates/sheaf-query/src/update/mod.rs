//! Updates: parsed once, applied to raw documents.
//!
//! ```text
//!   update ──parse──> UpdateDriver ──apply(document)──> NoChange | Changed{document, paths}
//! ```
//!
//! An update is a *replacement* (a document of plain fields), *operators*
//! (`{$set: ...}`) or a *pipeline* (an array of stages). What the update does
//! not touch is copied as bytes, and an update that would write the bytes that
//! are there is [`Outcome::NoChange`]: the caller then writes nothing at all.

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

/// Deepest nesting of a stored document.
const DEPTH_MAX: usize = 100;
/// Most nulls that one update puts in front of a new array element.
const PADDING_MAX: u32 = 1_500_000;
/// Largest stored document.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What an application depends on besides update and document.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyContext {
    /// The wall clock: `$currentDate` with dates.
    pub now: DateTime,
    /// The logical clock: `$currentDate` with timestamps, and zero timestamps of replacements.
    pub timestamp: Timestamp,
    /// What `$` stands for: the array element the query matched.
    pub matched_array_index: Option<usize>,
    /// The document is being made by an upsert: `$setOnInsert` applies.
    pub is_insert: bool,
}

/// What an application gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The document is as the update wants it.
    NoChange,
    /// The document as it is now.
    Changed {
        /// Whole; `_id` where it was.
        doc: DocBuf,
        /// What differs.
        modified: ModifiedPaths,
    },
}

/// A parsed update, which borrows a replacement: that may be the longest document there is.
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

/// Which of the three forms an update has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateKind {
    /// A whole document; not allowed with `multi: true`.
    Replacement,
    /// `{$set: ...}` and its like.
    Operators,
    /// An array of stages.
    Pipeline,
}

impl<'u> UpdateDriver<'u> {
    /// Parses an update. `scope` holds `let` variables and the clock's reading.
    ///
    /// Errors: FailedToParse for a form that is none of the three or an unknown
    /// operator, ConflictingUpdateOperators, and what the operators refuse.
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

    /// Which form the update has.
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

    /// Applies the update to a stored document, which has an `_id`.
    ///
    /// Errors: operators that do not fit the values they meet, a changed `_id`
    /// (ImmutableField), a result too large or too deep. The document is then
    /// as it was.
    pub fn apply(&self, doc: RawDoc<'_>, context: &ApplyContext) -> Result<Outcome> {
        let (new, modified) = match &self.form {
            Form::Replacement(new) => replacement::apply(*new, doc, context)?,
            Form::Operators(operators) => operators.apply(doc, context)?,
            Form::Pipeline(pipeline) => pipeline_form::apply(pipeline, doc)?,
        };
        if modified.is_empty() {
            return Ok(Outcome::NoChange);
        }
        document_rules::check_id_unchanged(doc, new.as_raw())?;
        document_rules::check_size(new.as_raw())?;
        Ok(Outcome::Changed { doc: new, modified })
    }
}

/// Every update operator, for lists of what there is; `$rename` included.
pub fn operator_names() -> impl Iterator<Item = &'static str> {
    operator::TABLE
        .iter()
        .map(|(name, _)| *name)
        .chain(["$rename"])
}

/// Operators begin with a dollar sign; the first field decides.
fn is_operators(doc: RawDoc<'_>) -> bool {
    doc.first()
        .is_some_and(|first| first.key().starts_with('$'))
}

#[cfg(test)]
mod tests;
