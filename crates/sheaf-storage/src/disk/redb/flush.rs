//! Background work: syncs buffered commits, and makes a checkpoint once writing has paused.
//!
//! ```text
//!   commits    b b b s b b                                   (b buffered, s synced)
//!   flusher    └─ interval ─> sync └─ interval ─> sync └─ a second without commits ─> checkpoint, asleep
//! ```
//!
//! Invariant: a buffered commit is followed by a sync after one interval at the latest, and an idle
//! engine wakes no thread.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::Shared;
use super::commit::Plan;
use super::errors::begin_error;
use crate::error::Result;

/// Duration without writes after which the flusher makes a checkpoint.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Flush {
    /// Whether a commit is not durable yet.
    wanted: bool,
    /// Whether the flusher waits, without a time limit, to be notified of the next commit.
    asleep: bool,
    pub(super) stop: bool,
}

impl Shared {
    /// Notifies the flusher of a commit.
    pub(super) fn wake_flusher(&self, durable: bool) {
        let mut flush = self.flush.lock();
        let wants_sync = !durable && !flush.wanted;
        flush.wanted |= wants_sync;
        if wants_sync || flush.asleep {
            self.flush_changed.notify_one();
        }
    }

    pub(super) fn flush_loop(&self, interval: Duration) {
        let mut flush = self.flush.lock();
        while !flush.stop {
            if flush.wanted {
                // The thread is only woken early to stop.
                self.flush_changed.wait_for(&mut flush, interval);
                flush.wanted = false;
                if !flush.stop {
                    // A failure is kept by the engine and returned to the next writer.
                    let _ = MutexGuard::unlocked(&mut flush, || self.sync());
                }
            } else if self.is_checkpointed() {
                flush.asleep = true;
                self.flush_changed.wait(&mut flush);
                flush.asleep = false;
            } else {
                let before = self.begun.load(Ordering::Acquire);
                let waited = self.flush_changed.wait_for(&mut flush, SETTLED_AFTER);
                let settled = waited.timed_out() && !flush.wanted && !flush.stop;
                if settled && before == self.begun.load(Ordering::Acquire) {
                    let _ = MutexGuard::unlocked(&mut flush, || self.checkpoint());
                }
            }
        }
    }

    pub(super) fn is_checkpointed(&self) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        self.checkpointed.load(Ordering::Acquire) >= begun || self.failed.lock().is_some()
    }

    /// Makes everything durable, with the allocator's state, so that the file opens fast.
    pub(super) fn checkpoint(&self) -> Result<()> {
        self.as_writer(|db| {
            if self.is_checkpointed() {
                return Ok(());
            }
            let mut txn = db.begin_write().map_err(begin_error)?;
            txn.set_quick_repair(true);
            self.write_and_commit(txn, &Plan::default(), true)?;
            let applied = self.applied.load(Ordering::Acquire);
            self.durable.store(applied, Ordering::Release);
            self.checkpointed.store(applied, Ordering::Release);
            Ok(())
        })
    }
}
