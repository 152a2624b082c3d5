//! `$documents`: literal documents as the source of a pipeline, in place of a collection.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuf, RawDoc, RawValue};

use crate::expression::{location, parse as parse_expression};
use crate::pipeline::PipelineSource;
use crate::pipeline::stage::{ParsedStage, StageContext};

use super::sub_pipeline::names_variable;

/// Parses and evaluates the operand: an expression that reads no document and whose value is an
/// array of objects.
///
/// Errors: 5858203 for any other value, unless it depends on a variable of an outer document that
/// is not known yet; those of expressions.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let expression = parse_expression(value, &context.parse.variables)?;
    let mut unknown = context.parse.variables.unknown();
    if unknown.any(|name| names_variable(value, name)) {
        // The pipeline is parsed again when the variable has a value.
        return Ok(ParsedStage::Source(PipelineSource::Documents(
            Arc::default(),
        )));
    }
    let evaluated = expression.evaluate_on(RawDoc::EMPTY)?;
    let wrong = |found: Option<RawValue<'_>>| {
        location(
            5858203,
            format!(
                "an array of objects is expected for $documents, found: {}",
                found.map_or("missing".to_owned(), shell)
            ),
        )
    };
    let Some(RawValue::Array(array)) = evaluated.as_raw() else {
        return Err(wrong(evaluated.as_raw()));
    };
    let docs: Vec<DocBuf> = array
        .iter()
        .map(|v| match v {
            RawValue::Document(doc) => Ok(doc.to_buf()),
            other => Err(wrong(Some(other))),
        })
        .collect::<Result<_>>()?;
    Ok(ParsedStage::Source(PipelineSource::Documents(docs.into())))
}
