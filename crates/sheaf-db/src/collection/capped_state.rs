//! State of an open capped collection: shared, and per unit of work that inserts into it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sheaf_bson::RecordId;

use crate::catalog::options::Capped;

/// The state of a unit of work that inserts into a capped collection.
#[derive(Debug, Clone, Default)]
pub(crate) struct CappedWriter {
    /// Includes the unit's own records, excludes those it has removed.
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    /// All records of the snapshot before this id are gone.
    pub(crate) oldest: i64,
    /// Records inserted by the unit; it has removed the first `removed` of them again.
    pub(crate) inserted: Vec<RecordId>,
    pub(crate) removed: usize,
}

/// The shared state of a capped collection while it is open.
#[derive(Debug)]
pub(crate) struct CappedState {
    /// All records before this id are gone: the search for the oldest starts here, past removed
    /// records.
    pub(crate) oldest: AtomicI64,
    /// Number of commits with inserts.
    commits: Mutex<u64>,
    inserted: Condvar,
}

impl Default for CappedState {
    fn default() -> Self {
        CappedState {
            oldest: AtomicI64::new(i64::MIN),
            commits: Mutex::default(),
            inserted: Condvar::new(),
        }
    }
}

impl CappedState {
    /// Called once the writer's unit is visible: wakes waiting readers.
    pub(crate) fn committed(&self, writer: &CappedWriter) {
        self.oldest.fetch_max(writer.oldest, Ordering::Relaxed);
        *self.commits.lock() += 1;
        self.inserted.notify_all();
    }

    /// Number of commits with inserts so far. Read it before looking for new records.
    pub(crate) fn commits(&self) -> u64 {
        *self.commits.lock()
    }

    /// Waits until there are more commits than `seen`, for at most `limit`. Returns false if there
    /// were none. Wakes spuriously at times, so that the caller can check whether to continue.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) -> bool {
        let mut commits = self.commits.lock();
        if *commits == seen {
            self.inserted.wait_for(&mut commits, limit);
        }
        *commits != seen
    }
}

impl CappedWriter {
    pub(crate) fn is_over(&self, limit: &Capped) -> bool {
        self.bytes > limit.bytes || limit.documents.is_some_and(|max| self.documents > max)
    }
}
