//! A short description of a plan, for the log, the profiler and the query statistics.

use std::sync::Arc;

use sheaf_query::planner;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::solution::QuerySolution;

use crate::exec::express;

/// A short description of a plan; converted to text on demand.
#[derive(Debug, Clone, Default)]
pub struct PlanDigest {
    kind: DigestKind,
    /// The plan came from the plan cache.
    pub from_cache: bool,
    /// Replaces a cached plan that performed badly.
    pub replanned: bool,
    /// Won a trial against other plans.
    pub multi_planned: bool,
}

#[derive(Debug, Clone, Default)]
enum DigestKind {
    #[default]
    None,
    Express(Arc<IndexEntry>),
    ExpressWrite(Arc<IndexEntry>, &'static str),
    Eof,
    RecordCount,
    CollectionScan,
    Solution(Arc<QuerySolution>),
}

impl PlanDigest {
    /// The express path, through this index.
    pub fn express(index: &Arc<IndexEntry>) -> Self {
        PlanDigest {
            kind: DigestKind::Express(index.clone()),
            ..Default::default()
        }
    }

    /// The express path to one record, with the stage that modifies it (`EXPRESS_UPDATE`).
    pub fn express_write(index: &Arc<IndexEntry>, stage: &'static str) -> Self {
        PlanDigest {
            kind: DigestKind::ExpressWrite(index.clone(), stage),
            ..Default::default()
        }
    }

    /// The collection does not exist.
    pub fn nothing() -> Self {
        PlanDigest {
            kind: DigestKind::Eof,
            ..Default::default()
        }
    }

    /// The engine's record count.
    pub fn record_count() -> Self {
        PlanDigest {
            kind: DigestKind::RecordCount,
            ..Default::default()
        }
    }

    /// A collection scan without planning.
    pub fn collection_scan() -> Self {
        PlanDigest {
            kind: DigestKind::CollectionScan,
            ..Default::default()
        }
    }

    /// A planned query.
    pub fn solution(solution: &Arc<QuerySolution>) -> Self {
        PlanDigest {
            kind: DigestKind::Solution(solution.clone()),
            ..Default::default()
        }
    }

    /// The same plan, marked as cached or replanned.
    pub(crate) fn chosen(mut self, from_cache: bool, replanned: bool) -> Self {
        self.from_cache = from_cache;
        self.replanned = replanned;
        self
    }

    /// `IXSCAN { a: 1 }`, `COLLSCAN`, `EXPRESS_IXSCAN { _id: 1 }`; `None` if nothing was planned.
    pub fn summary(&self) -> Option<String> {
        match &self.kind {
            DigestKind::None => None,
            DigestKind::Express(index) => Some(express::summary(index)),
            DigestKind::ExpressWrite(index, stage) => {
                Some(format!("{},{stage}", express::summary(index)))
            }
            DigestKind::Eof => Some("EOF".into()),
            DigestKind::CollectionScan => Some("COLLSCAN".into()),
            DigestKind::RecordCount => Some("RECORD_STORE_FAST_COUNT".into()),
            DigestKind::Solution(solution) => Some(planner::plan_summary(&solution.root)),
        }
    }

    /// Whether the plan reads the whole collection in the order of its records.
    pub fn scans_collection(&self) -> bool {
        match &self.kind {
            DigestKind::CollectionScan => true,
            DigestKind::Solution(solution) => planner::scans_collection(&solution.root),
            _ => false,
        }
    }

    /// Whether the plan includes a blocking sort.
    pub fn has_sort_stage(&self) -> bool {
        matches!(&self.kind, DigestKind::Solution(s) if s.has_blocking_stage)
    }
}
