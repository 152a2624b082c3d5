//! Executes the stages that the find layer does not execute.
//!
//! A document is pushed through the stages until one buffers it: `$sort` and `$group` buffer all
//! documents and are drained when their input ends; `$unwind` buffers one and is stepped before the
//! next document is pushed to it. At most one document per `$unwind` and the buffers of blocking
//! stages are in memory.
//!
//! ```text
//!   source ─> $match ─> $unwind ─> $group ┆─> $project ─> $sort ┆─> output
//!                        one kept   kept  ┆ drained        kept ┆ drained
//! ```
//!
//! Execution is not recursive: a thousand stages use no more stack than one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc};

use crate::expression::Expression;
use crate::expression::projection_exec::{ProjectionExec, evaluate_root};
use crate::matcher::MatchExpression;

use super::Stage;
use super::environment::Environment;
use super::group::{Grouper, UnwoundGroup};
use super::sorter::Sorter;
use super::stage::{Pushed, StageExec};
use super::unwind::Unwinder;

/// Maximum size of a result of a pipeline, in bytes: that of a stored document, plus the margin
/// that MongoDB leaves for fields around a large value.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// Maximum size of a document between stages, in bytes: the limit of `$lookup` and `$facet`, plus a
/// margin.
const PASSING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The source of a pipeline's documents.
pub trait DocSource {
    /// The next document, valid until the next call; `None` at the end.
    fn next(&mut self) -> Result<Option<RawDoc<'_>>>;
}

/// A source of documents in memory.
#[derive(Debug, Default)]
pub struct Documents {
    docs: VecDeque<DocBuf>,
    current: DocBuf,
}

impl From<Vec<DocBuf>> for Documents {
    fn from(docs: Vec<DocBuf>) -> Documents {
        Documents {
            docs: docs.into(),
            current: DocBuf::new(),
        }
    }
}

impl DocSource for Documents {
    fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
        match self.docs.pop_front() {
            Some(doc) => {
                self.current = doc;
                Ok(Some(self.current.as_raw()))
            }
            None => Ok(None),
        }
    }
}

enum Running {
    Match(Arc<MatchExpression>),
    Skip(u64),
    Limit(u64),
    Project(Arc<ProjectionExec>),
    ReplaceRoot(Arc<Expression>),
    Sort(Box<Sorter>),
    Group(Box<Grouper>),
    Unwind(Unwinder),
    /// Executed by the next stage.
    Done,
    UnwoundGroup(Box<(UnwoundGroup, Grouper)>),
    Other {
        exec: Box<dyn StageExec>,
        pending: bool,
        ended: bool,
    },
}

impl Running {
    fn new(stage: &Stage) -> Running {
        match stage {
            Stage::Match { filter, .. } => Running::Match(Arc::clone(filter)),
            Stage::Sort {
                pattern,
                limit,
                keeps,
            } => Running::Sort(Box::new(Sorter::new(pattern, *limit, keeps.clone()))),
            Stage::Skip(n) => Running::Skip(*n),
            Stage::Limit(n) => Running::Limit(*n),
            Stage::Project { projection, .. } => Running::Project(Arc::clone(projection)),
            Stage::ReplaceRoot { expression, .. } => Running::ReplaceRoot(Arc::clone(expression)),
            Stage::Group(group) => Running::Group(Box::new(Grouper::new(Arc::clone(group)))),
            Stage::Unwind(unwind) => Running::Unwind(Unwinder::new(unwind.clone())),
            Stage::Other(stage) => Running::Other {
                exec: stage.start(),
                pending: false,
                ended: false,
            },
        }
    }

    fn has_pending(&self) -> bool {
        match self {
            Running::Unwind(unwinder) => unwinder.has_pending(),
            Running::Other { pending, .. } => *pending,
            _ => false,
        }
    }
}

/// The current input of the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feed {
    /// The source.
    Source,
    /// The stage at this position, whose input has ended.
    Drain(usize),
}

/// Execution statistics of a stage, for explain.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageCounts {
    /// Number of documents returned.
    pub returned: u64,
    /// Time spent in the stage; zero unless the pipeline is timed.
    pub elapsed: Duration,
}

/// A running pipeline.
pub struct PipelineExec {
    stages: Vec<Running>,
    counts: Vec<StageCounts>,
    timed: bool,
    output: VecDeque<DocBuf>,
    /// Maximum size of a result, in bytes.
    result_bytes_max: usize,
    feed: Feed,
    /// Stages before this position need no more documents, because a later limit is reached.
    closed: usize,
    /// No stage from this position on has pending output.
    pending_below: usize,
}

impl std::fmt::Debug for PipelineExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineExec")
            .field("stages", &self.stages.len())
            .field("feed", &self.feed)
            .finish_non_exhaustive()
    }
}

/// A document that is passed between stages.
enum Doc<'a> {
    Borrowed(RawDoc<'a>),
    Owned(DocBuf),
}

impl Doc<'_> {
    fn as_raw(&self) -> RawDoc<'_> {
        match self {
            Doc::Borrowed(doc) => *doc,
            Doc::Owned(doc) => doc.as_raw(),
        }
    }
}

/// Starts the stages, fusing adjacent ones if that is cheaper.
fn start(stages: &[Stage]) -> Vec<Running> {
    let mut running = Vec::with_capacity(stages.len());
    let mut at = 0;
    while let Some(stage) = stages.get(at) {
        if let (Stage::Unwind(unwind), Some(Stage::Group(group))) = (stage, stages.get(at + 1))
            && let Some(unwound) = UnwoundGroup::of(unwind, group)
        {
            let grouper = Grouper::new(Arc::clone(group));
            running.push(Running::Done);
            running.push(Running::UnwoundGroup(Box::new((unwound, grouper))));
            at += 2;
            continue;
        }
        running.push(Running::new(stage));
        at += 1;
    }
    running
}

fn check_size(doc: &DocBuf, bytes_max: usize) -> Result<()> {
    if doc.len_bytes() > bytes_max {
        return Err(Error::new(
            ErrorCode::BSON_OBJECT_TOO_LARGE,
            format!(
                "a pipeline's document of {} bytes exceeds the limit of {bytes_max} bytes",
                doc.len_bytes()
            ),
        ));
    }
    Ok(())
}

impl PipelineExec {
    /// A new execution of the stages.
    pub fn new(stages: &[Stage]) -> PipelineExec {
        PipelineExec {
            stages: start(stages),
            counts: vec![StageCounts::default(); stages.len()],
            timed: false,
            output: VecDeque::new(),
            result_bytes_max: DOCUMENT_BYTES_MAX,
            feed: Feed::Source,
            closed: 0,
            pending_below: 0,
        }
    }

    /// A new execution whose results become part of a document of another stage.
    pub(super) fn within(stages: &[Stage]) -> PipelineExec {
        PipelineExec {
            result_bytes_max: PASSING_BYTES_MAX,
            ..PipelineExec::new(stages)
        }
    }

    /// A new execution without fused stages, which measures each stage for explain.
    pub fn explained(stages: &[Stage]) -> PipelineExec {
        PipelineExec {
            stages: stages.iter().map(Running::new).collect(),
            timed: true,
            ..PipelineExec::new(&[])
        }
        .counting(stages.len())
    }

    fn counting(mut self, stages: usize) -> PipelineExec {
        self.counts = vec![StageCounts::default(); stages];
        self
    }

    /// The statistics of each stage so far.
    pub fn counts(&self) -> &[StageCounts] {
        &self.counts
    }

    /// Appends the specific statistics of stage `at` (`usedDisk`, ...).
    pub fn append_stats(&self, at: usize, out: &mut DocBuilder) {
        match self.stages.get(at) {
            Some(Running::Sort(sorter)) => sorter.append_stats(out),
            Some(Running::Group(grouper)) => grouper.append_stats(out),
            Some(Running::Other { exec, .. }) => exec.append_stats(out),
            _ => {}
        }
    }

    /// The next result; `None` at the end. Reads documents from `source` as needed, and not after
    /// it returned `None`.
    ///
    /// Errors: those of the source and of expressions, QueryExceededMemoryLimitNoDiskUseAllowed, a
    /// result over 16 MiB, an interruption.
    pub fn next(
        &mut self,
        source: &mut dyn DocSource,
        env: &dyn Environment,
    ) -> Result<Option<DocBuf>> {
        loop {
            if let Some(doc) = self.output.pop_front() {
                return Ok(Some(doc));
            }
            env.check_interrupt()?;
            if let Some(at) = self.deepest_pending() {
                if let Some(doc) = self.step(at, env)? {
                    self.push(at + 1, Doc::Owned(doc), env)?;
                }
                continue;
            }
            match self.feed {
                Feed::Source if self.closed > 0 => self.feed = Feed::Drain(self.closed),
                Feed::Source => match source.next()? {
                    Some(doc) => self.push(0, Doc::Borrowed(doc), env)?,
                    None => self.feed = Feed::Drain(0),
                },
                Feed::Drain(at) => {
                    let at = at.max(self.closed);
                    if at == self.stages.len() {
                        return Ok(None);
                    }
                    match self.drain(at, env)? {
                        Some(doc) => {
                            self.feed = Feed::Drain(at);
                            self.push(at + 1, Doc::Owned(doc), env)?;
                        }
                        None => self.feed = Feed::Drain(at + 1),
                    }
                }
            }
        }
    }

    /// Suspends the pipeline: cursors over other collections release everything that they do not
    /// need to continue.
    pub fn suspend(&mut self) {
        for stage in &mut self.stages {
            if let Running::Other { exec, .. } = stage {
                exec.suspend();
            }
        }
    }

    /// Whether a further document can change the results.
    pub(super) fn wants_input(&self) -> bool {
        self.feed == Feed::Source && self.closed == 0
    }

    /// Pushes one document and passes the resulting output to `give`, until `give` returns false.
    pub(super) fn feed(
        &mut self,
        doc: RawDoc<'_>,
        env: &dyn Environment,
        give: &mut dyn FnMut(DocBuf) -> bool,
    ) -> Result<()> {
        self.push(0, Doc::Borrowed(doc), env)?;
        loop {
            while let Some(doc) = self.output.pop_front() {
                if !give(doc) {
                    return Ok(());
                }
            }
            env.check_interrupt()?;
            let Some(at) = self.deepest_pending() else {
                return Ok(());
            };
            if let Some(doc) = self.step(at, env)? {
                self.push(at + 1, Doc::Owned(doc), env)?;
            }
        }
    }

    /// The next result after the end of the fed documents.
    pub(super) fn finish_next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        self.next(&mut Documents::default(), env)
    }

    /// Number of buffered results.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.output.len()
    }

    fn deepest_pending(&mut self) -> Option<usize> {
        while self.pending_below > self.closed {
            if self.stages[self.pending_below - 1].has_pending() {
                return Some(self.pending_below - 1);
            }
            self.pending_below -= 1;
        }
        None
    }

    fn begin(&self) -> Option<Instant> {
        self.timed.then(Instant::now)
    }

    fn finish(&mut self, at: usize, begun: Option<Instant>, gave: bool) {
        self.counts[at].returned += u64::from(gave);
        if let Some(begun) = begun {
            self.counts[at].elapsed += begun.elapsed();
        }
    }

    /// The next buffered output of stage `at`, before the end of its input.
    fn step(&mut self, at: usize, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let begun = self.begin();
        let doc = match &mut self.stages[at] {
            Running::Unwind(unwinder) => unwinder.step(),
            Running::Other { exec, pending, .. } => {
                let doc = exec.next(env)?;
                *pending = doc.is_some();
                doc
            }
            _ => None,
        };
        self.finish(at, begun, doc.is_some());
        Ok(doc)
    }

    /// The next output of stage `at`, whose input has ended.
    fn drain(&mut self, at: usize, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let begun = self.begin();
        let doc = match &mut self.stages[at] {
            Running::Sort(sorter) => sorter.drain(env)?,
            Running::Group(grouper) => grouper.drain(env)?,
            Running::UnwoundGroup(both) => both.1.drain(env)?,
            Running::Other { exec, ended, .. } => {
                if !*ended {
                    *ended = true;
                    exec.end(env)?;
                }
                exec.next(env)?
            }
            _ => None,
        };
        self.finish(at, begun, doc.is_some());
        Ok(doc)
    }

    /// Pushes a document into stage `at` and the following ones, until a stage drops or buffers it.
    fn push(&mut self, mut at: usize, mut doc: Doc<'_>, env: &dyn Environment) -> Result<()> {
        loop {
            let begun = self.begin();
            let Some(stage) = self.stages.get_mut(at) else {
                return self.give(doc);
            };
            let mut passes = true;
            match stage {
                Running::Match(filter) => passes = filter.matches(doc.as_raw())?,
                Running::Skip(0) => {}
                Running::Skip(left) => {
                    *left -= 1;
                    passes = false;
                }
                Running::Limit(left) => match left.checked_sub(1) {
                    None => passes = false,
                    Some(after) => {
                        *left = after;
                        if after == 0 {
                            self.closed = self.closed.max(at + 1);
                        }
                    }
                },
                Running::Project(projection) => doc = Doc::Owned(projection.apply(doc.as_raw())?),
                Running::ReplaceRoot(expression) => {
                    doc = Doc::Owned(evaluate_root(expression, doc.as_raw())?);
                }
                Running::Sort(sorter) => {
                    sorter.push(doc.as_raw(), env)?;
                    passes = false;
                }
                Running::Group(grouper) => {
                    grouper.push(doc.as_raw(), env)?;
                    passes = false;
                }
                Running::Done => {}
                Running::UnwoundGroup(both) => {
                    let (unwound, grouper) = &mut **both;
                    grouper.push_unwound(doc.as_raw(), unwound, env)?;
                    passes = false;
                }
                Running::Unwind(unwinder) => match unwinder.push(doc.as_raw()) {
                    Some(only) => doc = Doc::Owned(only),
                    None => {
                        self.pending_below = self.pending_below.max(at + 1);
                        passes = false;
                    }
                },
                Running::Other { exec, pending, .. } => match exec.push(doc.as_raw(), env)? {
                    Pushed::Same => {}
                    Pushed::One(new) => doc = Doc::Owned(new),
                    Pushed::Nothing => passes = false,
                    Pushed::Pending => {
                        *pending = true;
                        self.pending_below = self.pending_below.max(at + 1);
                        passes = false;
                    }
                    Pushed::Enough => {
                        self.closed = self.closed.max(at);
                        passes = false;
                    }
                },
            }
            self.finish(at, begun, passes);
            if !passes {
                return Ok(());
            }
            if let Doc::Owned(made) = &doc {
                check_size(made, PASSING_BYTES_MAX)?;
            }
            at += 1;
        }
    }

    fn give(&mut self, doc: Doc<'_>) -> Result<()> {
        let doc = match doc {
            Doc::Borrowed(doc) => doc.to_buf(),
            Doc::Owned(doc) => doc,
        };
        check_size(&doc, self.result_bytes_max)?;
        self.output.push_back(doc);
        Ok(())
    }
}
