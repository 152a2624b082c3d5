//! Sources of documents for cursors: a find, a pipeline, a tailable cursor, a change stream, a
//! listing.

use std::time::Duration;

use sheaf_bson::DocBuf;
use sheaf_bson::error_code::Error;

use crate::exec::{Doc, WorkCounts};
use crate::op_context::OpContext;
use crate::planning::PlanDigest;

/// A source of documents.
pub trait ResultSource: Send {
    /// Returns the next document; `None` at the end.
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error>;
    /// Whether the end is known to be reached.
    fn is_exhausted(&self) -> bool;
    /// Whether more documents may follow after an apparent end: the cursor stays open.
    fn is_tailable(&self) -> bool {
        false
    }
    /// Waits at most `limit` until there may be more documents. Returns whether there may be. Only
    /// for tailable sources.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    fn await_more(&mut self, _op: &OpContext, _limit: Duration) -> Result<bool, Error> {
        Ok(false)
    }
    /// Whether a getMore waits for more documents; otherwise it returns at once. Only for tailable
    /// sources.
    fn awaits_data(&self) -> bool {
        self.is_tailable()
    }
    /// Whether it reads a collection, so that it ends with it; false for a change stream.
    fn reads_collection(&self) -> bool {
        true
    }
    /// Called after each batch: releases what is needed only during a batch.
    fn batch_ended(&mut self) {}
    /// Releases memory of the engine between batches. Reading continues at the same snapshot; the
    /// next batch costs an additional seek.
    fn suspend(&mut self) {}
    /// Position of a change stream: `postBatchResumeToken`.
    fn post_batch_resume_token(&self) -> Option<DocBuf> {
        None
    }
    /// Work done so far.
    fn counts(&self) -> WorkCounts {
        WorkCounts::default()
    }
    /// A description of the plan, for the log; cheap.
    fn plan(&self) -> PlanDigest {
        PlanDigest::default()
    }
    /// The stages of the plan with their counters (`execStats`), if there is a plan.
    fn exec_stats(&self) -> Option<DocBuf> {
        None
    }
}
