//! The pipeline form of an update: stages that transform the document.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawArray, RawDoc};

use crate::matcher::ParseContext;
use crate::pipeline::Pipeline;

use super::document_rules;
use super::modified_paths::ModifiedPaths;
use super::replacement::differences;

/// Parses the stages. Errors: those of the stages; InvalidOptions for a stage that is not allowed
/// in updates.
pub(super) fn parse(stages: RawArray<'_>, context: &ParseContext) -> Result<Pipeline> {
    let pipeline = Pipeline::parse(stages, context)?;
    match pipeline.first_stage_not_for_updates() {
        None => Ok(pipeline),
        Some(stage) => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!(
                "{stage} is not allowed to be used within an update; allowed are $addFields, $set, $project, $unset, $replaceRoot and $replaceWith"
            ),
        )),
    }
}

/// The document after the stages, with `_id` as the first field, and the top-level fields that
/// differ. If the stages remove `_id`, the old one is kept.
pub(super) fn apply(pipeline: &Pipeline, old: RawDoc<'_>) -> Result<(DocBuf, ModifiedPaths)> {
    let mut new = pipeline.transform(old)?;
    let made = new.as_raw();
    if let Some(id) = made.get_element("_id").or(old.get_element("_id"))
        && made.first().is_none_or(|first| first.key() != "_id")
    {
        let mut with_id = DocBuilder::new();
        with_id.append_raw_element(id);
        for element in made.iter().filter(|e| e.key_bytes() != b"_id") {
            with_id.append_raw_element(element);
        }
        new = with_id.finish();
    }
    document_rules::check_depth(new.as_raw())?;
    let modified = differences(old, new.as_raw());
    Ok((new, modified))
}
