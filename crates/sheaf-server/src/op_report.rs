//! What a handler reports of its operation, to be counted, logged and profiled.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::DocBuf;
use sheaf_db::planning::QuerySettings;
use sheaf_db::{Namespace, PlanDigest};

use crate::query_stats::Recording;

/// Facts of an operation that only its handler knows, for the slow-operation line, the profiler and
/// the metrics. Counters are in the [`sheaf_db::OpContext`].
#[derive(Debug, Default, Clone)]
pub struct OpReport {
    /// The collection concerned.
    pub namespace: Option<Namespace>,
    /// The plan; formatted only when a line is written.
    pub plan: PlanDigest,
    /// The settings of the command's shape.
    pub query_settings: Option<Arc<QuerySettings>>,
    /// Records the query's work, if `$queryStats` counts it.
    pub query_stats: Option<Arc<Recording>>,
    /// Documents returned.
    pub n_returned: Option<u64>,
    /// The cursor opened or continued.
    pub cursor_id: Option<i64>,
    /// The cursor is exhausted.
    pub cursor_exhausted: bool,
    /// A stage wrote temporary files.
    pub used_disk: bool,
    /// Execution statistics of the plan's stages; only if the profiler is on.
    pub exec_stats: Option<DocBuf>,
    /// The command that opened the cursor (getMore).
    pub originating_command: Option<DocBuf>,
    /// Time that the command waited on purpose, which is not counted as its own.
    pub waited: Duration,
    /// The profiler skips the command: it has switched the profiler on.
    pub is_unprofiled: bool,
    /// One for each statement of a write command; each is logged on a separate line.
    pub writes: Vec<WriteReport>,
}

/// What one write statement did.
#[derive(Debug, Default, Clone)]
pub struct WriteReport {
    /// The collection written to.
    pub namespace: Option<Namespace>,
    /// `update`, `remove`, `insert`.
    pub kind: &'static str,
    /// The statement (`{q, u, multi, upsert}` or `{q, limit}`).
    pub statement: DocBuf,
    /// The plan that found the documents.
    pub plan: PlanDigest,
    /// Index keys examined.
    pub keys_examined: u64,
    /// Documents examined.
    pub docs_examined: u64,
    /// Matched by the filter.
    pub n_matched: u64,
    /// Actually changed.
    pub n_modified: u64,
    /// Inserted by an upsert.
    pub n_upserted: u64,
    /// Deleted.
    pub n_deleted: u64,
    /// Inserted.
    pub n_inserted: u64,
    /// `None` if no document was changed.
    pub keys_inserted: Option<u64>,
    /// As `keys_inserted`.
    pub keys_deleted: Option<u64>,
    /// Bytes that the storage engine logged; `None` as for `keys_inserted`, and in a transaction.
    pub bytes_logged: Option<u64>,
    /// Retries after conflicts.
    pub write_conflicts: u64,
    /// How long it took.
    pub elapsed: Duration,
}
