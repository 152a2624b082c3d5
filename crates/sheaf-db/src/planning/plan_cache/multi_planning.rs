//! The details of the multi-planning that produced a cache entry.
//!
//! They serve only display (`$planCacheStats`), so a limit applies to their total size across all
//! caches; beyond it, new entries are stored without them.

use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_bson::{DateTime, DocBuf, DocBuilder};
use sheaf_query::canonical::CanonicalQuery;

/// Total size of all live trial details. The limit is per process, and so is the count.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// See the module.
#[derive(Debug)]
pub struct MultiPlanning {
    time: DateTime,
    query: DocBuf,
    sort: DocBuf,
    projection: DocBuf,
    plan: DocBuf,
    /// Best first.
    execution: Vec<DocBuf>,
    /// In the same order.
    scores: Vec<f64>,
    /// Size as counted in [`BYTES`].
    bytes: u64,
}

impl MultiPlanning {
    /// Details for a query: the winning plan, and the counters and score of each candidate, best
    /// first.
    pub fn new(
        query: &CanonicalQuery,
        plan: DocBuf,
        candidates: impl Iterator<Item = (DocBuf, f64)>,
    ) -> MultiPlanning {
        let (execution, scores) = candidates.unzip();
        MultiPlanning {
            time: DateTime::now(),
            query: query.filter_spec.clone(),
            sort: query.sort_spec.clone(),
            projection: query.projection_spec.clone(),
            plan,
            execution,
            scores,
            bytes: 0,
        }
        .counted()
    }

    fn counted(mut self) -> MultiPlanning {
        let parts = [&self.query, &self.sort, &self.projection, &self.plan];
        let docs = parts.into_iter().chain(&self.execution);
        let bytes: usize = docs.map(|doc| doc.len_bytes() + size_of::<DocBuf>()).sum();
        self.bytes = (bytes + self.scores.len() * 8) as u64;
        BYTES.fetch_add(self.bytes, Ordering::Relaxed);
        self
    }

    /// Whether the total size is below `bytes_max`.
    pub fn has_room(bytes_max: u64) -> bool {
        BYTES.load(Ordering::Relaxed) < bytes_max
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Appends the fields for `$planCacheStats`.
    pub(super) fn append(&self, out: &mut DocBuilder) {
        out.append("timeOfCreation", self.time);
        out.begin_document("createdFromQuery");
        out.append("query", self.query.as_raw());
        out.append("sort", self.sort.as_raw());
        out.append("projection", self.projection.as_raw());
        out.end();
        out.append("cachedPlan", self.plan.as_raw());
        out.begin_array("creationExecStats");
        for execution in &self.execution {
            out.push(execution.as_raw());
        }
        out.end();
        out.begin_array("candidatePlanScores");
        for score in &self.scores {
            out.push(*score);
        }
        out.end();
    }
}

impl Default for MultiPlanning {
    /// Empty details.
    fn default() -> Self {
        MultiPlanning {
            time: DateTime::now(),
            query: DocBuf::default(),
            sort: DocBuf::default(),
            projection: DocBuf::default(),
            plan: DocBuf::default(),
            execution: Vec::new(),
            scores: Vec::new(),
            bytes: 0,
        }
        .counted()
    }
}

impl Drop for MultiPlanning {
    fn drop(&mut self) {
        let before = BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "more is released than was held");
    }
}
