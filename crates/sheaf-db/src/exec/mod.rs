//! Plan stages: a solution made to run.
//!
//! Every stage pulls from its children by `work`, one step at a time, so that
//! several plans can be tried side by side and any of them dropped. A step
//! ends in one of three ways, counted once, here, for explain, the slow log
//! and the planner's trial alike:
//!
//! ```text
//!   LIMIT ──work──> FETCH ──work──> IXSCAN ──seek/next──> storage cursor
//!         <─Advanced(member)        <─NeedTime | Eof
//! ```
//!
//! A document crosses the tree as the engine's own bytes ([`Doc::Shared`]);
//! only stages that build something (projections) allocate.

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

/// A document on its way through a plan. Invariant: its bytes are a document, checked where they were read
/// ([`crate::records`]) or made by a builder.
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

    /// Bytes of memory it stands for, to be counted against a stage's limit.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// The bytes, to keep: without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Doc::Shared(bytes) => bytes,
            Doc::Owned(bytes) => bytes.into(),
        }
    }

    /// True for a document without bytes, which no stage makes.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

/// An index entry's key, kept for stages that read values from it.
#[derive(Debug, Clone)]
pub struct IndexKey {
    /// Which index it is a key of.
    pub index: Arc<IndexEntry>,
    /// The KeyString without the record id.
    pub key: Box<[u8]>,
    /// What restores the exact types.
    pub type_bits: Box<[u8]>,
}

/// What travels between stages (MongoDB's working set member).
#[derive(Debug, Clone, Default)]
pub struct Member {
    /// The record, where there is one.
    pub record_id: Option<RecordId>,
    /// The document, once fetched or built.
    pub doc: Option<Doc>,
    /// The key it was found by, when a stage above asked for it.
    pub key: Option<IndexKey>,
    /// The sort key, when SORT gave the member and something above wants it.
    pub sort_key: Option<Arc<[u8]>>,
}

/// How one step of a stage ended.
#[derive(Debug)]
pub enum StageState {
    /// A result.
    Advanced(Member),
    /// Work was done, no result yet; call again.
    NeedTime,
    /// No more results, ever.
    Eof,
}

/// What a step may use.
pub struct WorkContext<'a> {
    /// Deadline and kill flag; stages with long inner loops ask it.
    pub op: &'a OpContext,
    /// What the steps cost so far, in the units of
    /// [`statistics`](sheaf_query::planner::statistics).
    pub cost: u64,
}

impl<'a> WorkContext<'a> {
    /// Nothing is done yet.
    pub fn new(op: &'a OpContext) -> Self {
        WorkContext { op, cost: 0 }
    }
}

/// One operator of a plan.
pub trait PlanStage: Send {
    /// One step. After `Eof` it stays at `Eof`.
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error>;
    /// Whether no result can follow, known without another step.
    fn is_eof(&self) -> bool;
    /// Its explain name, fields and counters.
    fn describe(&self) -> StageDescription;
    /// Adds what it and its children read: the cheap part of `describe`.
    fn add_counts(&self, counts: &mut WorkCounts);
    /// Has its storage cursors and those of its children [rest](sheaf_storage::Cursor::suspend): no step may follow for
    /// a while. Between two steps no stage needs the value on which a cursor of it stands.
    fn rest(&mut self);
}

/// What a tree of stages read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Index keys examined.
    pub keys_examined: u64,
    /// Records read.
    pub docs_examined: u64,
}

/// What a stage says of itself; the counters common to all are added by [`Node`].
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
    /// Index seeks of this stage itself.
    pub seeks: u64,
    /// What this stage is in a planSummary, if anything.
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
    /// Print children as `inputStages` even when there is one.
    pub many: bool,
}

/// A stage's description with its counters.
#[derive(Debug, Clone, Default)]
pub struct StageStats {
    /// What the stage says.
    pub description: StageDescription,
    /// Counted by [`Node`].
    pub common: CommonStats,
}

/// Counters every stage has.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommonStats {
    /// Steps.
    pub works: u64,
    /// Steps that gave a result.
    pub advanced: u64,
    /// Steps that gave none yet.
    pub need_time: u64,
    /// Whether it ended.
    pub is_eof: bool,
    /// Wall time inside the stage and its children, when timed.
    pub elapsed: Duration,
}

/// A stage with its counters: the only way a stage is worked.
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

    /// One counted step.
    #[inline]
    pub fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        self.common.works += 1;
        let ended = cfg!(debug_assertions) && self.stage.is_eof();
        let begun = self.timed.then(Instant::now);
        let state = self.stage.work(cx)?;
        debug_assert!(
            !(ended && matches!(state, StageState::Advanced(_))),
            "{} gives a result after its end",
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

    /// No step may follow for a while; see [`PlanStage::rest`].
    pub fn rest(&mut self) {
        self.stage.rest();
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

    /// What the tree read so far.
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
    /// The tree's stages, root first.
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
