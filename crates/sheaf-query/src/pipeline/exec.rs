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

use std::collections::VecDeque;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, RawDoc};

use crate::expression::Expression;
use crate::expression::projection_exec::{ProjectionExec, evaluate_root};
use crate::matcher::MatchExpression;

use super::Stage;
use super::group::Grouper;
use super::sorter::Sorter;
use super::unwind::Unwinder;

/// Largest document that a pipeline gives.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

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

#[derive(Debug)]
enum StageExec {
    Match(Arc<MatchExpression>),
    Skip(u64),
    Limit(u64),
    Project(Arc<ProjectionExec>),
    ReplaceRoot(Arc<Expression>),
    Sort(Box<Sorter>),
    Group(Box<Grouper>),
    Unwind(Unwinder),
}

impl StageExec {
    fn new(stage: &Stage) -> StageExec {
        match stage {
            Stage::Match { filter, .. } => StageExec::Match(Arc::clone(filter)),
            Stage::Sort { pattern, limit } => {
                StageExec::Sort(Box::new(Sorter::new(pattern, *limit)))
            }
            Stage::Skip(n) => StageExec::Skip(*n),
            Stage::Limit(n) => StageExec::Limit(*n),
            Stage::Project { projection, .. } => StageExec::Project(Arc::clone(projection)),
            Stage::ReplaceRoot { expression, .. } => StageExec::ReplaceRoot(Arc::clone(expression)),
            Stage::Group(group) => StageExec::Group(Box::new(Grouper::new(Arc::clone(group)))),
            Stage::Unwind(unwind) => StageExec::Unwind(Unwinder::new(unwind.clone())),
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

/// A running pipeline.
#[derive(Debug)]
pub struct PipelineExec {
    stages: Vec<StageExec>,
    output: VecDeque<DocBuf>,
    feed: Feed,
    /// Stages before this one need no more documents: a limit behind them is reached.
    closed: usize,
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

impl PipelineExec {
    /// Stages at their beginning.
    pub fn new(stages: &[Stage]) -> PipelineExec {
        PipelineExec {
            stages: stages.iter().map(StageExec::new).collect(),
            output: VecDeque::new(),
            feed: Feed::Source,
            closed: 0,
        }
    }

    /// The next result; `None` when there are no more. `source` is asked for
    /// documents as they are needed, and not again after it gave `None`.
    ///
    /// Errors: the source's, those of expressions, too much memory
    /// (QueryExceededMemoryLimitNoDiskUseAllowed), a result over 16 MiB.
    pub fn next(&mut self, source: &mut dyn DocSource) -> Result<Option<DocBuf>> {
        loop {
            if let Some(doc) = self.output.pop_front() {
                return Ok(Some(doc));
            }
            if let Some(at) = self.deepest_pending() {
                if let StageExec::Unwind(unwinder) = &mut self.stages[at]
                    && let Some(doc) = unwinder.step()
                {
                    self.push(at + 1, Doc::Owned(doc))?;
                }
                continue;
            }
            match self.feed {
                Feed::Source if self.closed > 0 => self.feed = Feed::Drain(self.closed),
                Feed::Source => match source.next()? {
                    Some(doc) => self.push(0, Doc::Borrowed(doc))?,
                    None => self.feed = Feed::Drain(0),
                },
                Feed::Drain(at) => {
                    let at = at.max(self.closed);
                    let drained = match self.stages.get_mut(at) {
                        None => return Ok(None),
                        Some(StageExec::Sort(sorter)) => sorter.drain(),
                        Some(StageExec::Group(grouper)) => grouper.drain(),
                        Some(_) => None,
                    };
                    match drained {
                        Some(doc) => {
                            self.feed = Feed::Drain(at);
                            self.push(at + 1, Doc::Owned(doc))?;
                        }
                        None => self.feed = Feed::Drain(at + 1),
                    }
                }
            }
        }
    }

    /// Results that were made and not yet asked for.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.output.len()
    }

    fn deepest_pending(&self) -> Option<usize> {
        let pending = |stage: &StageExec| matches!(stage, StageExec::Unwind(u) if u.has_pending());
        (self.closed..self.stages.len())
            .rev()
            .find(|at| pending(&self.stages[*at]))
    }

    /// Pushes a document into stage `at` and on, as far as it goes.
    fn push(&mut self, mut at: usize, mut doc: Doc<'_>) -> Result<()> {
        loop {
            let Some(stage) = self.stages.get_mut(at) else {
                return self.give(doc);
            };
            match stage {
                StageExec::Match(filter) => {
                    if !filter.matches(doc.as_raw())? {
                        return Ok(());
                    }
                }
                StageExec::Skip(0) => {}
                StageExec::Skip(left) => {
                    *left -= 1;
                    return Ok(());
                }
                StageExec::Limit(left) => {
                    let Some(after) = left.checked_sub(1) else {
                        return Ok(());
                    };
                    *left = after;
                    if after == 0 {
                        self.closed = self.closed.max(at + 1);
                    }
                }
                StageExec::Project(projection) => doc = Doc::Owned(projection.apply(doc.as_raw())?),
                StageExec::ReplaceRoot(expression) => {
                    doc = Doc::Owned(evaluate_root(expression, doc.as_raw())?);
                }
                StageExec::Sort(sorter) => return sorter.push(doc.as_raw()),
                StageExec::Group(grouper) => return grouper.push(doc.as_raw()),
                StageExec::Unwind(unwinder) => match unwinder.push(doc.as_raw()) {
                    Some(only) => doc = Doc::Owned(only),
                    None => return Ok(()),
                },
            }
            at += 1;
        }
    }

    fn give(&mut self, doc: Doc<'_>) -> Result<()> {
        let doc = match doc {
            Doc::Borrowed(doc) => doc.to_buf(),
            Doc::Owned(doc) => doc,
        };
        if doc.len_bytes() > DOCUMENT_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::BSON_OBJECT_TOO_LARGE,
                format!(
                    "a pipeline's result of {} bytes is larger than the {DOCUMENT_BYTES_MAX} that a document may have",
                    doc.len_bytes()
                ),
            ));
        }
        self.output.push_back(doc);
        Ok(())
    }
}
