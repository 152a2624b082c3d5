//! The interface of pipeline stages: a parsed form, and an executor.
//!
//! The stages that the optimiser moves and merges are variants of [`Stage`]. Every other stage is a
//! file under `stages/` with a type that implements [`PipelineStage`], a type that implements
//! [`StageExec`], and a line in the table of `parse.rs`:
//!
//! ```text
//!   {$stage: operand} ──parse──> Arc<dyn PipelineStage> ──start──> Box<dyn StageExec>
//!                                   │ for the optimiser: dependencies, which matches may
//!                                   │ move before it, which neighbour it absorbs
//! ```
//!
//! Documents are pushed to a running stage, one at a time. It returns output immediately
//! ([`Pushed`]) or buffers it. [`StageExec::next`] returns buffered output, after a push that
//! returned [`Pushed::Pending`] and after [`StageExec::end`]. Output must not accumulate in memory:
//! build one document per call.

use std::fmt::Debug;
use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, Value};

use crate::matcher::{Dependencies, ParseContext};

use super::environment::{Environment, OtherInput};
use super::place::{PipelinePlace, PipelineTarget};
use super::{PipelineSink, PipelineSource, Stage};

/// The context for parsing a stage.
#[derive(Debug, Clone, Copy)]
pub struct StageContext<'c> {
    /// Variables and collation.
    pub parse: &'c ParseContext,
    /// Number of enclosing pipelines; 0 for the pipeline of the command.
    pub depth: usize,
    /// The place of the pipeline.
    pub place: PipelinePlace,
    /// Whether the pipeline is within a `$facet`, directly or indirectly.
    pub in_facet: bool,
    /// What the pipeline runs over, if known.
    pub target: Option<PipelineTarget>,
}

/// The result of parsing one stage.
#[derive(Debug)]
pub enum ParsedStage {
    /// One stage, or several that the stage is shorthand for.
    Stages(Vec<Stage>),
    /// The stage produces the documents, and must be first.
    Source(PipelineSource),
    /// The stage writes the results, and must be last.
    Sink(PipelineSink),
}

impl From<Stage> for ParsedStage {
    fn from(stage: Stage) -> ParsedStage {
        ParsedStage::Stages(vec![stage])
    }
}

impl ParsedStage {
    /// A stage that implements [`PipelineStage`].
    pub fn of(stage: impl PipelineStage + 'static) -> ParsedStage {
        Stage::Other(Arc::new(stage)).into()
    }
}

/// What later stages can read of a stage's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// All fields that the stage does not change: later stages may read the input, too.
    Documents,
    /// Only values computed from the stage's dependencies: later stages do not read the input.
    Computed,
}

/// A parsed stage.
pub trait PipelineStage: Debug + Send + Sync {
    /// The stage's name: `$group`, ...
    fn name(&self) -> &'static str;

    /// The stage's operand, for explain and for views.
    fn operand(&self) -> Value;

    /// Adds the input paths that the stage reads; returns what it passes on.
    fn add_dependencies(&self, found: &mut Dependencies) -> Passes;

    /// Whether a `$match` that only reads these paths may move before this stage.
    ///
    /// Condition: each output document is computed from one input document, independently of other
    /// documents, and has the same values at these paths. Stages that add documents (`$unionWith`,
    /// `$densify`) or depend on several (`$setWindowFields`, `$sample`) return false, even if no
    /// path is read: the filter may be a constant.
    fn lets_through(&self, reads: &Dependencies) -> bool {
        let _ = reads;
        false
    }

    /// Whether each input document results in exactly one output document, in order, so that
    /// `$skip` and `$limit` may move before this stage.
    fn is_one_to_one(&self) -> bool {
        false
    }

    /// Fuses this stage with `next`: returns the replacement stages, or `None` to leave both
    /// unchanged.
    fn absorb(&self, next: &Stage) -> Option<Vec<Stage>> {
        let _ = next;
        None
    }

    /// The stage narrowed to the output fields that later stages read; `None` if it does not
    /// change.
    fn giving(&self, wanted: &Dependencies) -> Option<Stage> {
        let _ = wanted;
        None
    }

    /// Visits the names of other collections that the stage reads.
    fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        let _ = visit;
    }

    /// The pipeline whose documents the stage appends to its input (`$unionWith`), for explain.
    fn other_input(&self) -> Option<OtherInput> {
        None
    }

    /// The stage with its sub-pipelines optimised; `None` if there are none.
    fn optimized(&self) -> Option<Stage> {
        None
    }

    /// A new executor of the stage.
    fn start(&self) -> Box<dyn StageExec>;
}

/// The result of pushing a document.
#[derive(Debug)]
pub enum Pushed {
    /// The document was dropped, or buffered until the end.
    Nothing,
    /// The document passes unchanged.
    Same,
    /// The document is replaced by this one.
    One(DocBuf),
    /// There is buffered output, which [`StageExec::next`] must return before the next push.
    Pending,
    /// Like `Nothing`, and the stage needs no more input.
    Enough,
}

/// A running stage.
pub trait StageExec: Send {
    /// Processes a document.
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed>;

    /// Signals the end of the input; the caller then calls [`StageExec::next`] until it returns
    /// `None`.
    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        let _ = env;
        Ok(())
    }

    /// The next buffered output document; `None` if there is none (before the end: none at
    /// present).
    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let _ = env;
        Ok(None)
    }

    /// Suspends the stage: its cursors over other collections release pins
    /// ([`suspend`](super::environment::ForeignCursor::suspend)).
    fn suspend(&mut self) {}

    /// Appends the stage's statistics (`usedDisk`, `totalKeysExamined`, ...) for explain's
    /// executionStats.
    fn append_stats(&self, out: &mut DocBuilder) {
        let _ = out;
    }
}
