//! `$facet`: several pipelines over the same documents, each of which produces one array.
//!
//! ```text
//!   input ─┬─> a: [$match, $group]  ─┐
//!          ├─> b: [$sort, $limit]   ─┼─> {a: [...], b: [...]}
//!          └─> c: [$count]          ─┘
//! ```
//!
//! The input is read once, and each document is pushed through every pipeline before the next is
//! read. All pipelines buffer documents at the same time, so if there are more than
//! [`FULL_SHARES`], they share the memory limits of that many stages.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuilder, DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::expression::location;
use crate::matcher::Dependencies;
use crate::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignRequest, JoinRequest, SpillStore,
};
use crate::pipeline::exec::PipelineExec;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};
use crate::pipeline::{Pipeline, Stage};

const NAME: &str = "$facet";
/// Maximum total size of the arrays before the document is built, in bytes.
const OUTPUT_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Maximum number of pipelines that each have the memory limit of a stage; with more, they share
/// the limit of that many.
const FULL_SHARES: usize = 8;

/// A parsed `$facet`.
#[derive(Debug, Clone)]
pub struct Facet {
    facets: Arc<[(Box<str>, Vec<Stage>)]>,
    optimized: bool,
}

/// Parses `{name: [stages], ...}`.
///
/// Errors: 40169 for an operand that is not an object or is empty, 40170 for a facet that is not an
/// array, 40600 for a stage that is not allowed in a facet, 16410 and similar codes for an invalid
/// name.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let spec = match value {
        RawValue::Document(spec) if !spec.is_empty() => spec,
        _ => {
            return Err(location(
                40169,
                "the $facet specification must be a non-empty object",
            ));
        }
    };
    let mut facets: Vec<(Box<str>, Vec<Stage>)> = Vec::new();
    for element in spec {
        let name = element.key();
        let RawValue::Array(stages) = element.value() else {
            return Err(location(
                40170,
                format!(
                    "arguments to $facet must be arrays, {name} is type {}",
                    element.value().type_name()
                ),
            ));
        };
        check_name(name)?;
        if facets.iter().any(|(known, _)| **known == *name) {
            return Err(location(
                40172,
                format!("the name '{name}' of a facet is specified twice"),
            ));
        }
        let pipeline = Pipeline::parse_sub(stages, NAME, context)?;
        facets.push((name.into(), pipeline.stages));
    }
    Ok(ParsedStage::of(Facet {
        facets: facets.into(),
        optimized: false,
    }))
}

/// Checks the name of an output field. Errors: 15998, 16410, 16411, 16412.
fn check_name(name: &str) -> Result<()> {
    let (code, why) = match name {
        "" => (15998, "must not be empty"),
        _ if name.starts_with('$') => (16410, "must not begin with '$'"),
        _ if name.contains('\0') => (16411, "must not contain a zero byte"),
        _ if name.contains('.') => (16412, "must not contain '.'"),
        _ => return Ok(()),
    };
    Err(location(
        code,
        format!("the name '{name}' of a facet {why}"),
    ))
}

impl PipelineStage for Facet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        let mut out = DocBuilder::new();
        for (name, stages) in &*self.facets {
            out.begin_array(name);
            for stage in stages {
                out.push_document_bytes(stage.serialize().as_bytes());
            }
            out.end();
        }
        Value::Document(out.finish())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        for (_, stages) in &*self.facets {
            match crate::pipeline::optimize::dependencies(stages) {
                Some(reads) => found.extend(&reads),
                None => found.whole_document = true,
            }
        }
        Passes::Computed
    }

    fn optimized(&self) -> Option<Stage> {
        if self.optimized {
            return None;
        }
        let facets = self.facets.iter().map(|(name, stages)| {
            let stages = crate::pipeline::optimize::reorder(stages.clone());
            (name.clone(), stages)
        });
        Some(Stage::Other(Arc::new(Facet {
            facets: facets.collect(),
            optimized: true,
        })))
    }

    fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        for (_, stages) in &*self.facets {
            stages
                .iter()
                .for_each(|stage| stage.for_each_foreign(visit));
        }
    }

    fn start(&self) -> Box<dyn StageExec> {
        let running = self.facets.iter().map(|(_, stages)| Running {
            exec: PipelineExec::within(stages),
            out: ArrayBuilder::new(),
        });
        Box::new(FacetExec {
            facets: self.facets.clone(),
            running: running.collect(),
            result: None,
        })
    }
}

struct FacetExec {
    facets: Arc<[(Box<str>, Vec<Stage>)]>,
    running: Vec<Running>,
    result: Option<DocBuf>,
}

struct Running {
    exec: PipelineExec,
    out: ArrayBuilder,
}

impl FacetExec {
    fn check_size(&self) -> Result<()> {
        let bytes: usize = self.running.iter().map(|r| r.out.current_len()).sum();
        if bytes > OUTPUT_BYTES_MAX {
            return Err(location(
                4031700,
                format!(
                    "the document that $facet builds has {bytes} bytes so far, more than the limit of {OUTPUT_BYTES_MAX}"
                ),
            ));
        }
        Ok(())
    }
}

/// The environment of one of several pipelines: that of the stage, with a share of its memory.
struct Share<'e> {
    env: &'e dyn Environment,
    bytes_max: usize,
}

impl<'e> Share<'e> {
    fn of(env: &'e dyn Environment, pipelines: usize) -> Share<'e> {
        let all = env.memory_bytes_max();
        Share {
            env,
            bytes_max: all.min(all.saturating_mul(FULL_SHARES) / pipelines.max(1)),
        }
    }
}

impl Environment for Share<'_> {
    fn check_interrupt(&self) -> Result<()> {
        self.env.check_interrupt()
    }

    fn memory_bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn spill(&self, stage: &'static str) -> Result<Box<dyn SpillStore>> {
        self.env.spill(stage)
    }

    fn open(&self, request: &ForeignRequest<'_>) -> Result<ForeignCursor> {
        self.env.open(request)
    }

    fn open_join(&self, request: &JoinRequest<'_>) -> Result<ForeignCursor> {
        self.env.open_join(request)
    }

    fn probe(&self, cursor: &mut ForeignCursor, values: &[RawValue<'_>]) -> Result<()> {
        self.env.probe(cursor, values)
    }

    fn advance<'c>(&self, cursor: &'c mut ForeignCursor) -> Result<Option<RawDoc<'c>>> {
        self.env.advance(cursor)
    }

    fn foreign_counts(&self, cursor: &ForeignCursor) -> ForeignCounts {
        self.env.foreign_counts(cursor)
    }

    fn random(&self) -> u64 {
        self.env.random()
    }
}

impl StageExec for FacetExec {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        let env = &Share::of(env, self.running.len());
        let mut wanted = false;
        for running in &mut self.running {
            if running.exec.wants_input() {
                wanted = true;
                let out = &mut running.out;
                running.exec.feed(doc, env, &mut |doc| {
                    out.push_document_bytes(doc.as_bytes());
                    out.current_len() <= OUTPUT_BYTES_MAX
                })?;
            }
        }
        self.check_size()?;
        Ok(match wanted {
            true => Pushed::Nothing,
            false => Pushed::Enough,
        })
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        let env = &Share::of(env, self.running.len());
        let mut result = DocBuilder::new();
        for at in 0..self.running.len() {
            let running = &mut self.running[at];
            while let Some(doc) = running.exec.finish_next(env)? {
                running.out.push_document_bytes(doc.as_bytes());
                if running.out.current_len() > OUTPUT_BYTES_MAX {
                    break;
                }
            }
            self.check_size()?;
        }
        for ((name, _), running) in self.facets.iter().zip(self.running.drain(..)) {
            result.append(name, &running.out.finish());
        }
        let result = result.finish();
        self.result = Some(result);
        Ok(())
    }

    fn next(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        Ok(self.result.take())
    }
}
