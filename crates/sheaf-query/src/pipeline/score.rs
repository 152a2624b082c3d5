//! `{$meta: "vectorSearchScore"}`: how the score of `$vectorSearch` passes through a pipeline.
//!
//! Stages pass documents without metadata. If a stage reads the score, the source therefore appends
//! it to each document as a field with a reserved name ([`SCORE_FIELD`]), stages that build new
//! documents before the last such stage keep the field, and the caller that runs the pipeline
//! removes it from the results:
//!
//! ```text
//!   $vectorSearch      {a, b, score}
//!   $project {a: 1}    {a, score}       the projection also keeps the score
//!   $sort by $meta     {a, score}       sorts by the field
//!   strip              {a}              the result
//! ```
//!
//! Stages that combine several documents, such as `$group`, drop the score.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, RawArray, RawDoc, RawValue, Value, doc};

use crate::expression::projection_exec::{Mode, ProjectionExec};
use crate::expression::{self, VariableScope};

use super::Stage;

pub use crate::metadata::{META_NAME, SCORE_FIELD};

/// Maximum nesting depth at which scores are removed, which exceeds that of any valid document;
/// deeper levels are unchanged.
const STRIP_DEPTH_MAX: usize = 250;

/// Whether a stage may read the score. May return a false positive: any `vectorSearchScore` in the
/// bytes of the operand counts.
fn asks(stage: &Stage) -> bool {
    let spec = stage.serialize();
    let name = META_NAME.as_bytes();
    spec.as_bytes().windows(name.len()).any(|w| w == name)
}

/// Changes the stages before the last one that reads the score to keep it. Returns whether any
/// stage reads it. Errors: those of parsing the changed operands.
pub(super) fn carry(stages: &mut [Stage], scope: &VariableScope) -> Result<bool> {
    let Some(last) = stages.iter().rposition(asks) else {
        return Ok(false);
    };
    for stage in &mut stages[..last] {
        match stage {
            Stage::Project {
                spec: Value::Document(spec),
                projection,
                ..
            } if projection.mode() == Mode::Inclusion => {
                let mut with = DocBuilder::from_doc(spec.as_raw());
                with.append(SCORE_FIELD, true);
                *projection = Arc::new(ProjectionExec::parse_project(
                    with.finish().as_raw(),
                    scope,
                )?);
            }
            Stage::ReplaceRoot { spec, expression } => {
                let root = spec.as_raw().get("newRoot").unwrap_or(RawValue::Null);
                let with = doc! {"$mergeObjects": [root, {SCORE_FIELD: format!("${SCORE_FIELD}")}]};
                let with = RawValue::Document(with.as_raw());
                *expression = Arc::new(expression::parse(with, scope)?);
            }
            _ => {}
        }
    }
    Ok(true)
}

/// The operand of a `$sort` with each `{$meta: "vectorSearchScore"}` replaced by a descending sort
/// on the score field.
pub(super) fn sort_by_score(spec: RawDoc<'_>) -> DocBuf {
    let is_score = |value: RawValue<'_>| {
        let name = value.as_document().and_then(|doc| doc.get("$meta"));
        name == Some(RawValue::String(META_NAME))
    };
    let mut out = DocBuilder::new();
    for element in spec {
        match is_score(element.value()) {
            true => out.append(SCORE_FIELD, -1),
            false => out.append_raw_element(element),
        };
    }
    out.finish()
}

/// The document with its score appended as the last field.
pub fn with_score(doc: RawDoc<'_>, score: f64) -> DocBuf {
    let mut out = DocBuilder::from_doc(doc);
    out.append(SCORE_FIELD, score);
    out.finish()
}

/// The result with all score fields removed, at any depth; `None` if it has none.
pub fn strip(doc: RawDoc<'_>) -> Option<DocBuf> {
    let name = SCORE_FIELD.as_bytes();
    let carries = |bytes: &[u8]| bytes.windows(name.len()).any(|w| w == name);
    if !carries(doc.as_bytes()) {
        return None;
    }
    let mut out = DocBuilder::new();
    strip_fields(doc, 0, &mut out);
    Some(out.finish())
}

fn strip_fields(doc: RawDoc<'_>, depth: usize, out: &mut DocBuilder) {
    for element in doc {
        match element.value() {
            _ if element.key() == SCORE_FIELD => {}
            RawValue::Document(inner) if depth < STRIP_DEPTH_MAX => {
                out.begin_document(element.key());
                strip_fields(inner, depth + 1, out);
                out.end();
            }
            RawValue::Array(inner) if depth < STRIP_DEPTH_MAX => {
                out.begin_array(element.key());
                strip_elements(inner, depth + 1, out);
                out.end();
            }
            _ => {
                out.append_raw_element(element);
            }
        }
    }
}

fn strip_elements(array: RawArray<'_>, depth: usize, out: &mut DocBuilder) {
    for value in array {
        match value {
            RawValue::Document(inner) if depth < STRIP_DEPTH_MAX => {
                out.push_begin_document();
                strip_fields(inner, depth + 1, out);
                out.end();
            }
            RawValue::Array(inner) if depth < STRIP_DEPTH_MAX => {
                out.push_begin_array();
                strip_elements(inner, depth + 1, out);
                out.end();
            }
            value => {
                out.push(value);
            }
        }
    }
}
