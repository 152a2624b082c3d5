//! Plan stages: execute a query solution.
//!
//! Every stage pulls from its children by `work`, one step at a time, so that several plans can run
//! alternately and any of them can be dropped. A step has one of three results, counted once, here,
//! for explain, the slow log and the planner's trial alike:
//!
//! ```text
//!   LIMIT ──work──> FETCH ──work──> IXSCAN ──seek/next──> storage cursor
//!         <─Advanced(member)        <─NeedTime | Eof
//! ```
//!
//! Documents pass through the tree as the engine's own bytes ([`Doc::Shared`]); only stages that
//! build something (projections) allocate.

mod and_hash;
mod and_sorted;
mod build;
mod clustered_ixscan;
mod collscan;
mod count_scan;
mod distinct_scan;
mod eof;
mod executor;
pub mod express;
mod fetch;
pub(crate) mod id_reader;
mod id_set;
pub(crate) mod index_cursor;
mod ixscan;
pub mod key_document;
mod limit;
pub mod multi_plan;
mod or;
mod projection;
mod return_key;
mod skip;
pub mod sort;
mod sort_merge;
pub mod spill;
mod subplan;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sheaf_bson::RecordId;
use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, RawDoc};
use sheaf_query::planner::index_entry::IndexEntry;

pub use build::{BuildContext, build};
pub use executor::{ExecutionStats, PlanExecutor, SelectionReport, TrialPlan};
pub use id_set::RecordIdSet;

use crate::op_context::OpContext;

/// A document in a plan. Invariant: its bytes are a valid document, checked when read
/// ([`crate::records`]) or produced by a builder.
#[derive(Debug, Clone)]
pub enum Doc {
    /// The engine's bytes, not copied.
    Shared(Bytes),
    /// Built by a stage.
    Owned(Vec<u8>),
}

impl Doc {
    /// The bytes, a whole BSON document.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Doc::Shared(bytes) => bytes,
            Doc::Owned(bytes) => bytes,
        }
    }

    /// The document, read in place.
    #[inline]
    pub fn as_raw(&self) -> RawDoc<'_> {
        RawDoc::from_bytes_unchecked(self.as_bytes())
    }

    /// Memory to count against a stage's limit, in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Converts to shared bytes without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Doc::Shared(bytes) => bytes,
            Doc::Owned(bytes) => bytes.into(),
        }
    }

    /// Whether there are no bytes, which no stage produces.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

/// The key of an index entry, kept for stages that read values from it.
#[derive(Debug, Clone)]
pub struct IndexKey {
    /// The index it belongs to.
    pub index: Arc<IndexEntry>,
    /// The KeyString without the record id.
    pub key: Box<[u8]>,
    /// Restores the exact types.
    pub type_bits: Box<[u8]>,
}

/// The unit of data passed between stages (MongoDB's working set member).
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// Id of the record, if any.
    pub record_id: Option<RecordId>,
    /// The document, once fetched or built.
    pub doc: Option<Doc>,
    /// The index key it was found by, if a stage above needs it.
    pub key: Option<IndexKey>,
    /// The sort key, if SORT produced the member and a stage above needs it.
    pub sort_key: Option<Arc<[u8]>>,
}

/// The result of one step of a stage.
#[derive(Debug)]
pub enum StageState {
    /// A result.
    Advanced(Member),
    /// No result yet; call again.
    NeedTime,
    /// No more results, ever.
    Eof,
}

/// What a step may use.
pub struct WorkContext<'a> {
    /// Deadline and kill flag; stages with long inner loops check it.
    pub op: &'a OpContext,
    /// Cost of the steps so far, in the units of [`statistics`](sheaf_query::planner::statistics).
    pub cost: u64,
}

impl<'a> WorkContext<'a> {
    /// Creates a context with zero cost.
    pub fn new(op: &'a OpContext) -> Self {
        WorkContext { op, cost: 0 }
    }
}

/// One operator of a plan.
pub trait PlanStage: Send {
    /// Performs one step. After `Eof`, every further step returns `Eof`.
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error>;
    /// Whether it is known, without another step, that no result follows.
    fn is_eof(&self) -> bool;
    /// Explain name, fields and counters.
    fn describe(&self) -> StageDescription;
    /// Adds the work of this stage and its children: the cheap part of `describe`.
    fn add_counts(&self, counts: &mut WorkCounts);
    /// [Suspends](sheaf_storage::Cursor::suspend) this stage's storage cursors and its children's.
    /// The next `work` resumes them. Between two steps no stage needs the value its cursor is on.
    fn suspend(&mut self);
}

/// Work done by a tree of stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Index keys examined.
    pub keys_examined: u64,
    /// Records read.
    pub docs_examined: u64,
}

/// The description of a stage; [`Node`] adds the common counters.
#[derive(Debug, Clone, Default)]
pub struct StageDescription {
    /// The explain name.
    pub stage: &'static str,
    /// The residual filter, serialised.
    pub filter: Option<DocBuf>,
    /// Fields of the plan (`keyPattern`, `indexBounds`, ...).
    pub plan_fields: DocBuf,
    /// Counters of the execution (`keysExamined`, ...).
    pub exec_fields: DocBuf,
    /// Index keys this stage itself examined.
    pub keys_examined: u64,
    /// Records this stage itself read.
    pub docs_examined: u64,
    /// Index seeks made by this stage itself.
    pub seeks: u64,
    /// The stage's part of a planSummary, if any.
    pub summary: Option<String>,
    /// Bytes this stage wrote to temporary files.
    pub spilled_bytes: u64,
    /// Set by stages that sort in memory.
    pub is_sort: bool,
    /// Set by stages that read records.
    pub is_fetch: bool,
    /// Set by stages that intersect indexes.
    pub is_intersection: bool,
    /// `inputStage` (one) or `inputStages` (several).
    pub children: Vec<StageStats>,
    /// Shows children as `inputStages` even if there is only one.
    pub many: bool,
}

/// The description and counters of a stage.
#[derive(Debug, Clone, Default)]
pub struct StageStats {
    /// Description by the stage.
    pub description: StageDescription,
    /// Counted by [`Node`].
    pub common: CommonStats,
}

/// Counters common to all stages.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommonStats {
    /// Number of steps.
    pub works: u64,
    /// Steps that returned a result.
    pub advanced: u64,
    /// Steps that returned none yet.
    pub need_time: u64,
    /// Whether the stage has ended.
    pub is_eof: bool,
    /// Wall time inside the stage and its children, if timed.
    pub elapsed: Duration,
}

/// A stage with its counters: the only way to run a stage.
pub struct Node {
    common: CommonStats,
    timed: bool,
    stage: Box<dyn PlanStage>,
}

impl Node {
    /// Wraps a stage; `timed` measures every step (explain only).
    pub fn new(stage: Box<dyn PlanStage>, timed: bool) -> Self {
        Node {
            common: CommonStats::default(),
            timed,
            stage,
        }
    }

    /// Performs one step and counts it.
    #[inline]
    pub fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        self.common.works += 1;
        let ended = cfg!(debug_assertions) && self.stage.is_eof();
        let begun = self.timed.then(Instant::now);
        let state = self.stage.work(cx)?;
        debug_assert!(
            !(ended && matches!(state, StageState::Advanced(_))),
            "{} returns a result after its end",
            self.stage.describe().stage
        );
        debug_assert!(
            !matches!(state, StageState::Eof) || self.stage.is_eof(),
            "{} does not know of its end",
            self.stage.describe().stage
        );
        if let Some(begun) = begun {
            self.common.elapsed += begun.elapsed();
        }
        match state {
            StageState::Advanced(_) => self.common.advanced += 1,
            StageState::NeedTime => self.common.need_time += 1,
            StageState::Eof => {}
        }
        debug_assert!(self.common.advanced + self.common.need_time <= self.common.works);
        Ok(state)
    }

    /// Whether no result can follow.
    pub fn is_eof(&self) -> bool {
        self.stage.is_eof()
    }

    /// Suspends storage cursors; see [`PlanStage::suspend`].
    pub fn suspend(&mut self) {
        self.stage.suspend();
    }

    /// Counters so far, without the tree.
    pub fn common(&self) -> CommonStats {
        CommonStats {
            is_eof: self.stage.is_eof(),
            ..self.common
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        self.stage.add_counts(counts);
    }

    /// Work done by the tree so far.
    pub fn counts(&self) -> WorkCounts {
        let mut counts = WorkCounts::default();
        self.stage.add_counts(&mut counts);
        counts
    }

    /// The tree with its counters.
    pub fn stats(&self) -> StageStats {
        StageStats {
            description: self.stage.describe(),
            common: self.common(),
        }
    }
}

impl StageStats {
    /// Calls `f` for the tree's stages, root first.
    pub fn visit(&self, f: &mut dyn FnMut(&StageStats)) {
        f(self);
        for child in &self.description.children {
            child.visit(f);
        }
    }

    /// Index keys examined by the whole tree.
    pub fn keys_examined(&self) -> u64 {
        self.sum(|d| d.keys_examined)
    }

    /// Records read by the whole tree.
    pub fn docs_examined(&self) -> u64 {
        self.sum(|d| d.docs_examined)
    }

    /// Whether some stage of the tree satisfies `f`.
    pub fn any(&self, f: impl Fn(&StageDescription) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |s| found |= f(&s.description));
        found
    }

    /// `IXSCAN { a: 1 }`, `COLLSCAN`: the leaves, joined by a comma.
    pub fn plan_summary(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        self.visit(&mut |s| {
            if let Some(summary) = &s.description.summary
                && !parts.contains(summary)
            {
                parts.push(summary.clone());
            }
        });
        parts.join(", ")
    }

    fn sum(&self, f: impl Fn(&StageDescription) -> u64) -> u64 {
        let mut total = 0;
        self.visit(&mut |s| total += f(&s.description));
        total
    }
}
