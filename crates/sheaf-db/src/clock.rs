//! The cluster time: a clock that commits advance, that clients carry on, and that never goes back.
//!
//! ```text
//!   commit ── tick ──> last given ──┐                      ┌── operationTime: the newest commit that can be read
//!   $clusterTime of a client ───────┴── the cluster time ──┴── every later tick is greater
//!                                            │ passes the ceiling: now and then
//!                                            └──> row "t" of the catalog, some seconds ahead
//! ```
//!
//! A time is seconds since 1970 and a count within the second. Of a commit it says what came before: whoever was
//! told of a time and reads after it (`afterClusterTime`) sees what the teller saw.
//!
//! Invariant: no commit is given a time beyond the ceiling that is written down, and after a restart the clock
//! begins at the ceiling or later. So no time is given twice, wherever the machine's own clock has gone meanwhile,
//! also where the commits that had them were lost because nobody had asked for them to be durable.
//! One commit in some seconds raises the ceiling, durably, long before the others come to it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sheaf_bson::DateTime;

/// The state of the clock that all share.
#[derive(Debug)]
pub(crate) struct ClusterClock {
    /// Seconds since 1970, as the machine has them.
    pub(crate) seconds: fn() -> u32,
    /// The same in milliseconds, for dates that are shown.
    pub(crate) wall: fn() -> DateTime,
    /// The newest time that was given out or heard of.
    pub(crate) last: AtomicU64,
    /// Times up to here may be given to commits.
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

    /// Takes up the ceiling that the last run has left.
    pub(crate) fn begin_at(&self, ceiling: u64) {
        self.ceiling.store(ceiling, Ordering::Release);
        self.not_before(ceiling);
    }

    /// Gives no time from now on that is not after this one.
    pub(crate) fn not_before(&self, time: u64) {
        self.last.fetch_max(time, Ordering::AcqRel);
    }

    /// So many times in a row, each greater than all given before: the first and the last of them.
    pub(crate) fn next(&self, count: u64) -> (u64, u64) {
        let now = u64::from((self.seconds)()) << 32;
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let next = last.max(now) + count;
            // What was done before an earlier tick is seen by whoever ticks later.
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
