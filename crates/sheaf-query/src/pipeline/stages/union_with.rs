//! `$unionWith`: appends the documents of another collection or pipeline to the input.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::{DocBuf, DocBuilder, RawArray, RawDoc, RawValue, Value};

use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignName, ForeignRequest, OtherInput,
};
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};

use super::sub_pipeline::{SubPipeline, collection_name};
use crate::pipeline::Pipeline;

const NAME: &str = "$unionWith";

/// A parsed `$unionWith`.
#[derive(Debug, Clone)]
pub struct UnionWith {
    from: ForeignName,
    pipeline: Arc<SubPipeline>,
    /// Later stages that apply to both inputs.
    then: Vec<Stage>,
}

/// Parses `"collection"` or `{coll, pipeline}`.
///
/// Errors: FailedToParse for another operand, or without a collection and `$documents`; 31441 for
/// stages that write.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let (mut from, mut stages) = (None, RawArray::EMPTY);
    match value {
        RawValue::String(_) => from = Some(collection_name(NAME, "coll", value)?),
        RawValue::Document(spec) => {
            for element in spec {
                match (element.key(), element.value()) {
                    ("coll", value) => from = Some(collection_name(NAME, "coll", value)?),
                    ("pipeline", RawValue::Array(array)) => stages = array,
                    ("pipeline", other) => {
                        return Err(fields::wrong_type("$unionWith.pipeline", other, "array"));
                    }
                    (other, _) => {
                        return Err(fields::unknown_field(format_args!("$unionWith.{other}")));
                    }
                }
            }
        }
        other => {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                format!(
                    "the $unionWith stage specification must be an object or string, but found {}",
                    other.type_name()
                ),
            ));
        }
    }
    let pipeline = SubPipeline::parse(stages, None, NAME, context)?;
    let from = match (from, pipeline.makes_documents()) {
        (Some(from), _) => from,
        (None, true) => Box::default(),
        (None, false) => {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
            ));
        }
    };
    Ok(ParsedStage::of(UnionWith {
        from: ForeignName {
            db: None,
            collection: from,
        },
        pipeline: Arc::new(pipeline),
        then: Vec::new(),
    }))
}

impl PipelineStage for UnionWith {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        let mut out = DocBuilder::new();
        if !self.from.collection.is_empty() {
            out.append("coll", &*self.from.collection);
        }
        out.begin_array("pipeline");
        for stage in self.pipeline.text().as_raw() {
            out.push(stage);
        }
        for stage in &self.then {
            out.push_document_bytes(stage.serialize().as_bytes());
        }
        out.end();
        Value::Document(out.finish())
    }

    fn add_dependencies(&self, _: &mut Dependencies) -> Passes {
        Passes::Documents
    }

    fn absorb(&self, next: &Stage) -> Option<Vec<Stage>> {
        let Stage::Match { .. } = next else {
            return None;
        };
        let mut together = self.clone();
        together.then.push(next.clone());
        Some(vec![next.clone(), Stage::Other(Arc::new(together))])
    }

    fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        if !self.from.collection.is_empty() {
            visit(&self.from.collection);
        }
        self.pipeline.for_each_foreign(visit);
    }

    fn other_input(&self) -> Option<OtherInput> {
        Some(OtherInput {
            from: self.from.clone(),
            pipeline: self.whole_pipeline(),
            context: self.pipeline.context().clone(),
        })
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(UnionExec {
            union: self.clone(),
            cursor: None,
            counts: ForeignCounts::default(),
        })
    }
}

impl UnionWith {
    /// The pipeline, with the stages that apply to both inputs.
    fn whole_pipeline(&self) -> Pipeline {
        let mut pipeline = Pipeline::clone(self.pipeline.declared());
        pipeline.stages.extend(self.then.iter().cloned());
        pipeline
    }
}

struct UnionExec {
    union: UnionWith,
    cursor: Option<ForeignCursor>,
    counts: ForeignCounts,
}

impl StageExec for UnionExec {
    fn push(&mut self, _: RawDoc<'_>, _: &dyn Environment) -> Result<Pushed> {
        Ok(Pushed::Same)
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        let pipeline = self.union.whole_pipeline();
        let request = ForeignRequest {
            from: &self.union.from,
            pipeline: &pipeline,
            context: self.union.pipeline.context(),
        };
        self.cursor = Some(env.open(&request)?);
        Ok(())
    }

    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(None);
        };
        let doc = env.advance(cursor)?.map(|doc| doc.to_buf());
        if doc.is_none() {
            self.counts = env.foreign_counts(cursor);
            self.cursor = None;
        }
        Ok(doc)
    }

    fn suspend(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.suspend();
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.counts.append(out);
    }
}
