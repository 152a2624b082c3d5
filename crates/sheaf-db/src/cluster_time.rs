//! The database's use of its clock: ticks for commits, the stored ceiling, waits for a time.
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
use crate::storage_error::IntoClientError;

/// Seconds by which the stored ceiling is ahead of the wall clock.
const AHEAD_SECONDS: u64 = 20;

/// Distance from the ceiling at which it is raised.
const NEAR: u64 = 10 << 32;

/// Ticks by which the ceiling is raised while it is ahead of the wall clock anyway, as after a
/// crash: so repeated crashes do not push the time further and further ahead.
const TICKS_AHEAD: u64 = 1 << 24;

impl Db {
    /// A timestamp greater than any issued before, for values in documents. Commits use
    /// `tick`.
    pub fn next_timestamp(&self) -> Timestamp {
        Timestamp::from_u64(self.clock().next(1).0)
    }

    /// The machine's wall clock, for dates that are displayed: `wall` of entries.
    pub(crate) fn wall_clock(&self) -> DateTime {
        (self.clock().wall)()
    }

    /// Issues `count` consecutive commit times, each greater than any before. Returns the first.
    pub(crate) fn tick(&self, count: u64) -> Timestamp {
        let clock = self.clock();
        let (first, last) = clock.next(count);
        if last > clock.ceiling.load(Ordering::Acquire) {
            let one = clock.raising.lock();
            self.raise_ceiling(last, one);
        }
        Timestamp::from_u64(first)
    }

    /// Raises the ceiling if the time has come near it. Called ahead of a tick, while no commit
    /// waits for it.
    #[inline]
    pub(crate) fn renew_ceiling(&self) {
        let clock = self.clock();
        let now = u64::from((clock.seconds)()) << 32;
        let last = clock.last.load(Ordering::Relaxed);
        let soon = (now + NEAR).max(last + TICKS_AHEAD / 2);
        if soon > clock.ceiling.load(Ordering::Acquire)
            && let Some(one) = clock.raising.try_lock()
        {
            self.raise_ceiling(soon, one);
        }
    }

    /// The newest time issued or received: `$clusterTime`.
    pub fn cluster_time(&self) -> Timestamp {
        Timestamp::from_u64(self.clock().last.load(Ordering::Acquire))
    }

    /// `$$CLUSTER_TIME`; `None` without an oplog, as outside of a replica set.
    pub fn cluster_time_of_expressions(&self) -> Option<Timestamp> {
        self.oplog().is_on().then(|| self.cluster_time())
    }

    /// Everything committed up to this time is readable: `operationTime`.
    pub fn operation_time(&self) -> Timestamp {
        self.oplog().visible()
    }

    /// Whether `time` is the newest visible commit, and no pending commit has reserved a later
    /// time.
    pub fn newest_is(&self, time: Timestamp) -> bool {
        self.oplog().newest_is(time)
    }

    /// Receives a time that a client has from elsewhere: every later commit gets a greater one.
    ///
    /// Errors: `ClusterTimeFailsRateLimiter` for a time more than `ahead_max` seconds ahead of this
    /// machine's.
    #[inline]
    pub fn advance_cluster_time(&self, time: Timestamp, ahead_max: u64) -> Result<()> {
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

    /// Waits until everything up to `time` is readable: `afterClusterTime`. A time received from
    /// elsewhere and not issued here counts as past immediately, since no commit can have it any
    /// more.
    ///
    /// Errors: `InvalidOptions` for a time beyond the cluster time, `Interrupted`,
    /// `MaxTimeMSExpired`.
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

    /// Stores a ceiling beyond `time`. Ignores a failure: the commit that follows fails with the
    /// same error.
    #[cold]
    fn raise_ceiling(&self, time: u64, _one: MutexGuard<'_, ()>) {
        let clock = self.clock();
        let ceiling = &clock.ceiling;
        if time <= ceiling.load(Ordering::Acquire) {
            return;
        }
        let by_wall = (u64::from((clock.seconds)()) + AHEAD_SECONDS) << 32;
        let raised = by_wall.max(time + TICKS_AHEAD);
        if self.store_ceiling(raised).is_ok() {
            ceiling.store(raised, Ordering::Release);
        }
    }

    fn store_ceiling(&self, ceiling: u64) -> Result<()> {
        let mut unit = self.storage().begin().into_client_error()?;
        rows::put_clock(&mut unit, Timestamp::from_u64(ceiling));
        unit.commit(Durability::Synced).into_client_error()?;
        Ok(())
    }

    /// Restores the clock from what the last run stored.
    pub(crate) fn find_clock(self: &Arc<Self>) -> Result<()> {
        let snapshot = self.storage().snapshot().into_client_error()?;
        if let Some(ceiling) = rows::read_clock(&*snapshot)? {
            self.clock().begin_at(ceiling.as_u64());
            self.oplog().not_before(ceiling.as_u64());
        }
        Ok(())
    }

    /// Called before the engine is closed, so that the next run need not start ahead of the time.
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
