//! What is known of a capped collection while it is open: by all, and by the unit that inserts into it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sheaf_bson::RecordId;

use crate::catalog::options::Capped;

/// What a unit that inserts into a capped collection knows of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct CappedWriter {
    /// With the unit's own records, without those that it has removed.
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
    /// All records of the snapshot before this one are gone.
    pub(crate) oldest: i64,
    /// Records that the unit has inserted, and how many of them it has removed again.
    pub(crate) inserted: Vec<RecordId>,
    pub(crate) removed: usize,
}

/// What all know of a capped collection while it is open.
#[derive(Debug)]
pub(crate) struct CappedState {
    /// All records before this one are gone: where to look for the oldest, past what was removed.
    pub(crate) oldest: AtomicI64,
    /// Counts commits of inserts.
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
    /// The writer's unit is visible: wakes who waits for it.
    pub(crate) fn committed(&self, writer: &CappedWriter) {
        self.oldest.fetch_max(writer.oldest, Ordering::Relaxed);
        *self.commits.lock() += 1;
        self.inserted.notify_all();
    }

    /// How many commits of inserts there were: to be asked before looking for new records.
    pub(crate) fn commits(&self) -> u64 {
        *self.commits.lock()
    }

    /// Waits until there were more commits than `seen`, but no longer than `limit`. False: there were none.
    /// A wait ends now and then, for the caller to look whether it still makes sense.
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
