//! What returns documents to a cursor: a find, a pipeline, a tailable cursor, a change stream, a listing.

use std::time::Duration;

use sheaf_bson::DocBuf;
use sheaf_bson::error_code::Error;

use crate::exec::{Doc, WorkCounts};
use crate::op_context::OpContext;
use crate::planning::PlanDigest;

/// A source of documents.
pub trait ResultSource: Send {
    /// The next document; `None` at the end.
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error>;
    /// Whether the end is known to be reached.
    fn is_exhausted(&self) -> bool;
    /// Whether more may come after what looks like the end: the cursor stays open.
    fn is_tailable(&self) -> bool {
        false
    }
    /// Waits until there may be more, for at most so long; whether there may be. Only for the tailable.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    fn await_more(&mut self, _op: &OpContext, _limit: Duration) -> Result<bool, Error> {
        Ok(false)
    }
    /// Whether a getMore waits for more; else one that finds nothing answers at once. Only for the tailable.
    fn awaits_data(&self) -> bool {
        self.is_tailable()
    }
    /// A batch is complete: what is needed only while one is made may go.
    fn batch_ended(&mut self) {}
    /// No batch may be asked for for a while: what is read goes on to be kept, as of the same moment, but no memory of
    /// the engine is held for it. The next batch costs a seek more.
    fn rest(&mut self) {}
    /// Where a change stream is: `postBatchResumeToken`.
    fn post_batch_resume_token(&self) -> Option<DocBuf> {
        None
    }
    /// What was read so far.
    fn counts(&self) -> WorkCounts {
        WorkCounts::default()
    }
    /// Which plan it is, for the log; cheap to take.
    fn plan(&self) -> PlanDigest {
        PlanDigest::default()
    }
    /// What the stages of the plan have done so far (`execStats`), if there is a plan.
    fn exec_stats(&self) -> Option<DocBuf> {
        None
    }
}
