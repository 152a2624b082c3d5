//! `$_internalInhibitOptimization`: passes documents unchanged; the optimiser moves no stage across
//! it. Tests and benchmarks of drivers use it to run stages in the specified order.

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawDoc, RawValue, Value, doc};

use crate::expression::location;
use crate::matcher::Dependencies;
use crate::pipeline::environment::Environment;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};

pub(in crate::pipeline) const NAME: &str = "$_internalInhibitOptimization";

#[derive(Debug)]
struct Barrier;

/// Parses `{}`. Errors: 40536 for anything but an object.
pub fn parse(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    match value {
        RawValue::Document(_) => Ok(ParsedStage::of(Barrier)),
        other => Err(location(
            40536,
            format!(
                "{NAME} must take a nested object but found: {}",
                other.type_name()
            ),
        )),
    }
}

impl PipelineStage for Barrier {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        Value::Document(doc! {})
    }

    /// Later stages may read any field, so that the find layer reads whole documents.
    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        found.whole_document = true;
        Passes::Documents
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(Barrier)
    }
}

impl StageExec for Barrier {
    fn push(&mut self, _: RawDoc<'_>, _: &dyn Environment) -> Result<Pushed> {
        Ok(Pushed::Same)
    }
}
