//! The flusher: makes buffered commits durable within the flush interval, without a wake-up for
//! each commit.
//!
//! ```text
//!   idle ── first commit ──> interval ──> sync ──> anything since? ── yes ──> interval ...
//!     ^                          │                       │ no
//!     │                          └ much waiting: write   │
//!     └──────────────────────────────────────────────────┘
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Shared;

/// Requests to the flusher.
#[derive(Default)]
pub(super) struct Flusher {
    /// Whether it sleeps until it is woken.
    idle: AtomicBool,
    /// Whether the pending records must be written before the interval ends.
    crowded: AtomicBool,
    stop: Mutex<bool>,
    called: Condvar,
}

impl Flusher {
    /// Called after a record has been appended. A record appended before the flusher goes idle is
    /// seen by it; a caller that appends later sees that it is idle.
    pub(super) fn wake_if_idle(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::AcqRel) {
            drop(self.stop.lock());
            self.called.notify_one();
        }
    }

    /// Requests that pending records be written, without a sync.
    pub(super) fn write_soon(&self) {
        if !self.crowded.swap(true, Ordering::AcqRel) {
            self.idle.store(false, Ordering::Release);
            drop(self.stop.lock());
            self.called.notify_one();
        }
    }

    pub(super) fn stop(&self) {
        *self.stop.lock() = true;
        self.called.notify_one();
    }

    /// Sleeps until it is woken, or until the given time. Returns whether to stop.
    fn sleep(&self, until: Option<Instant>) -> bool {
        let mut stop = self.stop.lock();
        loop {
            let called = match until {
                None => !self.idle.load(Ordering::Acquire),
                Some(_) => self.crowded.load(Ordering::Acquire),
            };
            if *stop || called {
                return *stop;
            }
            match until {
                None => self.called.wait(&mut stop),
                Some(until) => {
                    if self.called.wait_until(&mut stop, until).timed_out() {
                        return *stop;
                    }
                }
            }
        }
    }
}

impl Shared {
    /// The flusher's thread.
    pub(super) fn flush_loop(&self, interval: Duration) {
        let flusher = &self.flusher;
        let mut due = Instant::now() + interval;
        loop {
            self.refresh_free_space();
            self.log.look_ahead();
            self.retired.sweep();
            let unsynced = || self.log.head().last() > self.log.durable();
            let until = if self.log.check().is_ok() && unsynced() {
                Some(due)
            } else {
                flusher.idle.store(true, Ordering::Release);
                match self.log.check().is_ok() && unsynced() {
                    true => {
                        flusher.idle.store(false, Ordering::Release);
                        due = Instant::now() + interval;
                        Some(due)
                    }
                    false => None,
                }
            };
            if flusher.sleep(until) {
                return;
            }
            if until.is_none() {
                due = Instant::now() + interval;
            }
            // Failures are kept by the log, and returned to the next writer.
            if flusher.crowded.swap(false, Ordering::AcqRel) {
                let _ = self.log.write();
            }
            if Instant::now() >= due {
                let last = self.log.head().last();
                let _ = self.log.sync_to(last);
                due = Instant::now() + interval;
            }
        }
    }
}
