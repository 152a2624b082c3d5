//! Parses the operand of `$lookup`.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuf, RawArray, RawDoc, RawValue};

use crate::expression::field_path;
use crate::pipeline::environment::ForeignName;
use crate::pipeline::operand::{Operand, wrong_type};
use crate::pipeline::stage::{ParsedStage, StageContext};
use crate::pipeline::stages::sub_pipeline::{SubPipeline, collection_name};

use super::{Equality, Lookup, NAME};

const FIELDS: &[&str] = &[
    "from",
    "localField",
    "foreignField",
    "let",
    "pipeline",
    "as",
];

/// Parses the operand.
///
/// Errors: FailedToParse for an operand that is not a document, a missing `from` and a combination
/// of fields that is not one of the forms; TypeMismatch and the other codes of [`Operand`] for a
/// single field; 51047 for stages that are not allowed in a sub-pipeline.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(failed(format!(
            "the specification of $lookup must be an object, not {}",
            value.type_name()
        )));
    };
    let from = from(spec)?;
    let operand = Operand::new(NAME, spec, FIELDS)?;
    let let_spec = operand.document("let")?;
    let stages = match spec.get("pipeline") {
        None => None,
        Some(RawValue::Array(stages)) => Some(stages),
        // Null is not an absent pipeline.
        Some(other) => return Err(wrong_type(NAME, "pipeline", other, "array")),
    };
    let as_path = operand.string("as")?.ok_or_else(|| operand.missing("as"))?;
    let as_path = field_path::split(as_path)?;
    let equality = equality(&operand, stages.is_some())?;
    if let_spec.is_some() && stages.is_none() {
        return Err(failed(
            "$lookup with a 'let' argument must also specify 'pipeline'",
        ));
    }
    let pipeline = stages
        .map(|stages| SubPipeline::parse(stages, let_spec, NAME, context))
        .transpose()?;
    let makes_documents = pipeline.as_ref().is_some_and(SubPipeline::makes_documents);
    let from = match from {
        Some(_) if makes_documents => {
            return Err(failed(
                "$lookup with a pipeline that begins with $documents must not have a 'from' field",
            ));
        }
        // `from` may only be absent if the pipeline begins with `$documents`.
        from => from.unwrap_or_default(),
    };
    Ok(ParsedStage::of(Lookup {
        from: ForeignName {
            db: None,
            collection: from,
        },
        equality,
        pipeline: pipeline.map(Arc::new),
        as_path,
        filter: DocBuf::new(),
        unwind: None,
        context: Arc::new(context.parse.clone()),
    }))
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

/// The foreign collection. MongoDB checks it before any other field.
fn from(spec: RawDoc<'_>) -> Result<Option<Box<str>>> {
    match spec.get("from") {
        Some(RawValue::Document(other)) => Err(failed(format!(
            "$lookup 'from' must be the name of a collection; another database cannot be named: {}",
            shell(other)
        ))),
        None | Some(RawValue::Null | RawValue::Undefined) => match spec.get("pipeline") {
            Some(RawValue::Array(stages)) if begins_with_documents(stages) => Ok(None),
            _ => Err(failed(
                "must specify 'from' field for a $lookup, unless its pipeline begins with $documents",
            )),
        },
        Some(value) => collection_name(NAME, "from", value).map(Some),
    }
}

fn begins_with_documents(stages: RawArray<'_>) -> bool {
    let first = stages.get(0).and_then(|stage| stage.as_document());
    first
        .and_then(|stage| stage.first())
        .is_some_and(|stage| stage.key() == "$documents")
}

/// The equality of a local and a foreign field. An empty name counts as absent.
fn equality(operand: &Operand<'_>, has_pipeline: bool) -> Result<Option<Equality>> {
    let named = |name| Ok::<_, Error>(operand.string(name)?.filter(|path| !path.is_empty()));
    match (named("localField")?, named("foreignField")?) {
        (Some(local), Some(foreign)) => {
            field_path::split(foreign)?;
            Ok(Some(Equality {
                local: field_path::split(local)?,
                foreign: foreign.into(),
            }))
        }
        (None, None) if has_pipeline => Ok(None),
        (None, None) => Err(failed(
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
        )),
        _ => Err(failed(
            "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
        )),
    }
}
