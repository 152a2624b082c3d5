//! Running the stages that the find layer does not do.
//!
//! A document is pushed through the stages until one keeps it: `$sort` and
//! `$group` keep all and are drained when their input ends, `$unwind` keeps
//! one and is stepped before anything is pushed behind it. So at most one
//! document per `$unwind` and what blocking stages hold is in memory.
//!
//! ```text
//!   source ─> $match ─> $unwind ─> $group ┆─> $project ─> $sort ┆─> output
//!                        one kept   kept  ┆ drained        kept ┆ drained
//! ```
//!
//! Nothing here recurses: a thousand stages take no more of the machine's
//! stack than one.

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

/// Largest document that a pipeline gives.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest document that passes from stage to stage: what `$lookup` or `$facet` may put together, and some more.
const PASSING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Where a pipeline's documents come from.
pub trait DocSource {
    /// The next document, valid until the next call; `None` at the end.
    fn next(&mut self) -> Result<Option<RawDoc<'_>>>;
}

/// Documents that are in memory already.
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
    /// Done by the stage behind it.
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
            Stage::Sort { pattern, limit } => Running::Sort(Box::new(Sorter::new(pattern, *limit))),
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

/// What feeds the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feed {
    /// The source.
    Source,
    /// The stage of this number, whose input has ended.
    Drain(usize),
}

/// What a stage has done, for explain.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageCounts {
    /// Documents it gave.
    pub returned: u64,
    /// Time spent in it, when it was asked for.
    pub elapsed: Duration,
}

/// A running pipeline.
pub struct PipelineExec {
    stages: Vec<Running>,
    counts: Vec<StageCounts>,
    timed: bool,
    output: VecDeque<DocBuf>,
    /// How large a result may be.
    result_bytes_max: usize,
    feed: Feed,
    /// Stages before this one need no more documents: a limit behind them is reached.
    closed: usize,
    /// No stage behind this one has pending output.
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

/// A document on its way.
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

/// The stages at their beginning, neighbours done together where that is cheaper.
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
                "a pipeline's document of {} bytes is larger than the {bytes_max} that it may have here",
                doc.len_bytes()
            ),
        ));
    }
    Ok(())
}

impl PipelineExec {
    /// Stages at their beginning.
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

    /// Stages at their beginning, whose results go into a document of another stage.
    pub(super) fn within(stages: &[Stage]) -> PipelineExec {
        PipelineExec {
            result_bytes_max: PASSING_BYTES_MAX,
            ..PipelineExec::new(stages)
        }
    }

    /// Stages at their beginning, each by itself, so that it can be said what each gave and took.
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

    /// What each stage has done so far.
    pub fn counts(&self) -> &[StageCounts] {
        &self.counts
    }

    /// Appends the figures that stage `at` has of its own (`usedDisk`, ...).
    pub fn append_stats(&self, at: usize, out: &mut DocBuilder) {
        match self.stages.get(at) {
            Some(Running::Sort(sorter)) => sorter.append_stats(out),
            Some(Running::Group(grouper)) => grouper.append_stats(out),
            Some(Running::Other { exec, .. }) => exec.append_stats(out),
            _ => {}
        }
    }

    /// The next result; `None` when there are no more. `source` is asked for
    /// documents as they are needed, and not again after it gave `None`.
    ///
    /// Errors: the source's, those of expressions, too much memory
    /// (QueryExceededMemoryLimitNoDiskUseAllowed), a result over 16 MiB, an interruption.
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

    /// Nothing may be asked for a while: cursors over other collections hold no more than they must to go on.
    pub fn rest(&mut self) {
        for stage in &mut self.stages {
            if let Running::Other { exec, .. } = stage {
                exec.rest();
            }
        }
    }

    /// Whether a further document can change anything.
    pub(super) fn wants_input(&self) -> bool {
        self.feed == Feed::Source && self.closed == 0
    }

    /// Takes one document and gives what comes out of the last stage for it, until `give` says no.
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

    /// The next result behind the last document that was fed.
    pub(super) fn finish_next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        self.next(&mut Documents::default(), env)
    }

    /// Results that were made and not yet asked for.
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

    /// The next output that stage `at` has kept, before its input has ended.
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

    /// Pushes a document into stage `at` and on, as far as it goes.
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
