//! How a stage joins the pipeline: a parsed form, and what runs.
//!
//! The stages that the optimiser moves and merges are variants of
//! [`Stage`](super::Stage). Every other stage is a file under `stages/` with a type that
//! implements [`PipelineStage`], a type that implements [`StageExec`], and a
//! line in the table of `parse.rs`:
//!
//! ```text
//!   {$stage: operand} ──parse──> Arc<dyn PipelineStage> ──start──> Box<dyn StageExec>
//!                                   │ optimiser asks: dependencies, what a match may
//!                                   │ pass, which neighbour is absorbed
//! ```
//!
//! A running stage is pushed documents, one at a time. It answers at once
//! ([`Pushed`]) or keeps them; kept output is asked for by [`StageExec::next`],
//! after a push that says [`Pushed::Pending`] and after [`StageExec::end`].
//! Output must not pile up in memory: make one document a call.

use std::fmt::Debug;
use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, Value};

use crate::matcher::{Dependencies, ParseContext};

use super::environment::Environment;
use super::{PipelineSink, PipelineSource, Stage};

/// What a stage is parsed with.
#[derive(Debug, Clone, Copy)]
pub struct StageContext<'c> {
    /// Variables and the like.
    pub parse: &'c ParseContext,
    /// How many pipelines stand around this one: 0 for the command's own.
    pub depth: usize,
    /// Where the pipeline stands.
    pub place: PipelinePlace,
}

/// Where a pipeline stands; some stages are refused in some places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelinePlace {
    /// A command's own.
    Command,
    /// Within the stage of this name: `$lookup`, `$unionWith`, `$facet`.
    Within(&'static str),
}

/// What the operand of one stage becomes.
#[derive(Debug)]
pub enum ParsedStage {
    /// Some stages are short for several.
    Stages(Vec<Stage>),
    /// It makes the documents itself, and stands first.
    Source(PipelineSource),
    /// It writes the results, and stands last.
    Sink(PipelineSink),
}

impl From<Stage> for ParsedStage {
    fn from(stage: Stage) -> ParsedStage {
        ParsedStage::Stages(vec![stage])
    }
}

impl ParsedStage {
    /// A stage of its own file.
    pub fn of(stage: impl PipelineStage + 'static) -> ParsedStage {
        Stage::Other(Arc::new(stage)).into()
    }
}

/// What stages behind one can see of the documents before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Everything that came in and was not changed: what later stages read is read of the input too.
    Documents,
    /// Nothing but what was computed of the paths named: later stages read none of the input.
    Computed,
}

/// A parsed stage.
pub trait PipelineStage: Debug + Send + Sync {
    /// `$name`.
    fn name(&self) -> &'static str;

    /// Its operand, for explain and for views.
    fn operand(&self) -> Value;

    /// Adds the paths of its input that it reads, and says what it lets through.
    fn add_dependencies(&self, found: &mut Dependencies) -> Passes;

    /// Whether a `$match` that reads no more than this may be done before this stage.
    ///
    /// Condition: each output document is made of one input document, whatever other documents there
    /// are, and has what is read as that document has it. Stages that add documents
    /// (`$unionWith`, `$densify`) or look at several at once (`$setWindowFields`, `$sample`) say no,
    /// even where nothing is read: the filter may be a constant.
    fn lets_through(&self, reads: &Dependencies) -> bool {
        let _ = reads;
        false
    }

    /// Whether each input document gives exactly one output document, in order:
    /// then `$skip` and `$limit` may be done before this stage.
    fn is_one_to_one(&self) -> bool {
        false
    }

    /// What this stage and the next are together, when that is better than one after the other.
    fn absorb(&self, next: &Stage) -> Option<Vec<Stage>> {
        let _ = next;
        None
    }

    /// The stage when the stages behind it read no other fields than these; `None`: it is the same.
    fn giving(&self, wanted: &Dependencies) -> Option<Stage> {
        let _ = wanted;
        None
    }

    /// Visits the names of other collections that it reads.
    fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        let _ = visit;
    }

    /// The stage with its own sub-pipelines optimised, when it has any.
    fn optimized(&self) -> Option<Stage> {
        None
    }

    /// The stage at its beginning.
    fn start(&self) -> Box<dyn StageExec>;
}

/// What became of a document that was pushed.
#[derive(Debug)]
pub enum Pushed {
    /// It was dropped, or kept until the end.
    Nothing,
    /// It passes as it is.
    Same,
    /// It became this one.
    One(DocBuf),
    /// There is output: [`StageExec::next`] gives it before the next push.
    Pending,
    /// As `Nothing`, and no more input is wanted.
    Enough,
}

/// A running stage.
pub trait StageExec: Send {
    /// Takes a document.
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed>;

    /// The input has ended; [`StageExec::next`] is called until it gives `None`.
    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        let _ = env;
        Ok(())
    }

    /// The next output document that is kept; `None` when there is none (for now, before the end).
    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let _ = env;
        Ok(None)
    }

    /// Nothing may be asked of the pipeline for a while: cursors that the stage keeps between two documents
    /// [rest](super::environment::ForeignCursor::rest).
    fn rest(&mut self) {}

    /// Appends the stage's own figures (`usedDisk`, `totalKeysExamined`, ...) for explain's executionStats.
    fn append_stats(&self, out: &mut DocBuilder) {
        let _ = out;
    }
}
