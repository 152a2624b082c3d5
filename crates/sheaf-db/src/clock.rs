//! The cluster time: a monotonic clock that commits advance and clients propagate.
//!
//! ```text
//!   commit ── tick ──> last issued ─┐                      ┌── operationTime: the newest readable commit
//!   $clusterTime of a client ───────┴── the cluster time ──┴── every later tick is greater
//!                                            │ periodically passes the ceiling
//!                                            └──> row "t" of the catalog, seconds ahead of the wall clock
//! ```
//!
//! A time is seconds since 1970 and a count within the second. A commit's time implies causality: a
//! client that receives a time and reads after it (`afterClusterTime`) sees what the sender saw.
//!
//! Invariant: no commit gets a time beyond the stored ceiling, and after a restart the clock begins
//! at the ceiling or later. So no time is issued twice, however the machine's clock has moved
//! meanwhile, and even if the commits that had the times were lost because they were not durable.
//! One commit every few seconds raises the ceiling, durably, long before the others reach it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sheaf_bson::DateTime;

/// The shared state of the clock.
#[derive(Debug)]
pub(crate) struct ClusterClock {
    /// Wall clock in seconds since 1970.
    pub(crate) seconds: fn() -> u32,
    /// Wall clock with millisecond resolution, for dates that are displayed.
    pub(crate) wall: fn() -> DateTime,
    /// The newest time issued or received.
    pub(crate) last: AtomicU64,
    /// Upper bound of times that may be issued to commits.
    pub(crate) ceiling: AtomicU64,
    pub(crate) raising: Mutex<()>,
}

impl ClusterClock {
    pub(crate) fn new(seconds: fn() -> u32, wall: fn() -> DateTime) -> ClusterClock {
        ClusterClock {
            seconds,
            wall,
            last: AtomicU64::new(0),
            ceiling: AtomicU64::new(0),
            raising: Mutex::default(),
        }
    }

    /// Starts at the ceiling stored by the last run.
    pub(crate) fn begin_at(&self, ceiling: u64) {
        self.ceiling.store(ceiling, Ordering::Release);
        self.not_before(ceiling);
    }

    /// From now on, issues only times greater than `time`.
    pub(crate) fn not_before(&self, time: u64) {
        self.last.fetch_max(time, Ordering::AcqRel);
    }

    /// Issues `count` consecutive times, each greater than any before. Returns the first and the
    /// last.
    pub(crate) fn next(&self, count: u64) -> (u64, u64) {
        let now = u64::from((self.seconds)()) << 32;
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let next = last.max(now) + count;
            // Effects that precede an earlier tick are visible to later ticks.
            let swap =
                self.last
                    .compare_exchange_weak(last, next, Ordering::AcqRel, Ordering::Relaxed);
            match swap {
                Ok(_) => {
                    debug_assert!(next - count >= last && count > 0, "a time is given twice");
                    return (next - count + 1, next);
                }
                Err(now_last) => last = now_last,
            }
        }
    }
}
