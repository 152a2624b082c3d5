//! What the database does with its clock: ticks for commits, the ceiling on disk, waits for a time.
//!
//! See `clock.rs` for the clock and its invariant.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use sheaf_bson::{DateTime, Error, ErrorCode, Result, Timestamp};
use sheaf_storage::Durability;

use crate::catalog::rows;
use crate::database::Db;
use crate::op_context::OpContext;
use crate::storage_error::Coded;

/// Seconds that the ceiling is put ahead of the time.
const AHEAD_SECONDS: u64 = 20;

/// It is raised when time has come as near as this to it.
const NEAR: u64 = 10 << 32;

impl Db {
    /// The time as a timestamp greater than all given before: for values in documents. A commit's is a tick.
    pub fn next_timestamp(&self) -> Timestamp {
        Timestamp::from_u64(self.clock().next(1).0)
    }

    /// The machine's clock, for dates that are shown: `wall` of entries.
    pub(crate) fn wall_clock(&self) -> DateTime {
        (self.clock().wall)()
    }

    /// Times of commits: so many in a row, each greater than all given before. The first of them.
    pub(crate) fn tick(&self, count: u64) -> Timestamp {
        let clock = self.clock();
        let (first, last) = clock.next(count);
        if last > clock.ceiling.load(Ordering::Acquire) {
            let one = clock.raising.lock();
            self.raise_ceiling(last, one);
        }
        Timestamp::from_u64(first)
    }

    /// Before a tick, where nobody waits for it: raises the ceiling when it has come near.
    #[inline]
    pub(crate) fn renew_ceiling(&self) {
        let clock = self.clock();
        let now = u64::from((clock.seconds)()) << 32;
        let last = clock.last.load(Ordering::Relaxed).max(now);
        if last + NEAR > clock.ceiling.load(Ordering::Acquire)
            && let Some(one) = clock.raising.try_lock()
        {
            self.raise_ceiling(last + NEAR, one);
        }
    }

    /// The newest time that was given out or heard of: `$clusterTime`.
    pub fn cluster_time(&self) -> Timestamp {
        Timestamp::from_u64(self.clock().last.load(Ordering::Acquire))
    }

    /// Everything committed up to this time can be read: `operationTime`.
    pub fn operation_time(&self) -> Timestamp {
        self.oplog().visible()
    }

    /// Whether nothing was committed after this time, and nothing is about to be with its time reserved.
    pub fn newest_is(&self, time: Timestamp) -> bool {
        self.oplog().newest_is(time)
    }

    /// Takes note of a time that a client has from elsewhere: no commit will have one that is not after it.
    ///
    /// Errors: `ClusterTimeFailsRateLimiter` for a time more than `ahead_max` seconds beyond this machine's.
    #[inline]
    pub fn hear_of(&self, time: Timestamp, ahead_max: u64) -> Result<()> {
        if time <= self.cluster_time() {
            return Ok(());
        }
        self.advance_clock(time, ahead_max)
    }

    #[cold]
    fn advance_clock(&self, time: Timestamp, ahead_max: u64) -> Result<()> {
        let now = u64::from((self.clock().seconds)());
        if u64::from(time.time) > now.saturating_add(ahead_max) {
            return Err(Error::new(
                ErrorCode::CLUSTER_TIME_FAILS_RATE_LIMITER,
                format!(
                    "New cluster time, {}, is too far from this node's wall clock time, {now}; at most \
                     {ahead_max} seconds are accepted (maxAcceptableLogicalClockDriftSecs)",
                    time.time
                ),
            ));
        }
        self.clock().not_before(time.as_u64());
        Ok(())
    }

    /// Waits until everything up to `time` can be read: `afterClusterTime`. What was heard of and not given here
    /// is past at once, since no commit can have it any more.
    ///
    /// Errors: `InvalidOptions` for a time beyond the cluster time, `Interrupted`, `MaxTimeMSExpired`.
    pub fn wait_for_time(&self, op: &OpContext, time: Timestamp) -> Result<()> {
        if time <= self.operation_time() {
            return Ok(());
        }
        let cluster = self.cluster_time();
        if time > cluster {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "readConcern afterClusterTime value must not be greater than the current clusterTime. \
                     Requested clusterTime: {time:?}; current clusterTime: {cluster:?}"
                ),
            ));
        }
        self.oplog().reach(op, time)
    }

    /// Writes down a ceiling beyond `time`. A failure is left to the commit that follows, which meets it too.
    #[cold]
    fn raise_ceiling(&self, time: u64, _one: MutexGuard<'_, ()>) {
        let ceiling = &self.clock().ceiling;
        if time <= ceiling.load(Ordering::Acquire) {
            return;
        }
        let raised = ((time >> 32) + AHEAD_SECONDS) << 32;
        if self.store_ceiling(raised).is_ok() {
            ceiling.store(raised, Ordering::Release);
        }
    }

    fn store_ceiling(&self, ceiling: u64) -> Result<()> {
        let mut unit = self.storage().begin().coded()?;
        rows::put_clock(&mut unit, Timestamp::from_u64(ceiling));
        unit.commit(Durability::Synced).coded()?;
        Ok(())
    }

    /// Takes up what the last run has left.
    pub(crate) fn find_clock(self: &Arc<Self>) -> Result<()> {
        let snapshot = self.storage().snapshot().coded()?;
        if let Some(ceiling) = rows::read_clock(&*snapshot)? {
            self.clock().begin_at(ceiling.as_u64());
            self.oplog().not_before(ceiling.as_u64());
        }
        Ok(())
    }

    /// Before the engine is closed: the next run need not begin ahead of the time.
    pub(crate) fn settle_clock(&self) -> Result<()> {
        let clock = self.clock();
        let _one = clock.raising.lock();
        let last = clock.last.load(Ordering::Acquire);
        if last < clock.ceiling.load(Ordering::Acquire) {
            self.store_ceiling(last)?;
            clock.ceiling.store(last, Ordering::Release);
        }
        Ok(())
    }
}
