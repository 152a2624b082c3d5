//! Reads in the past: `readConcern: {level: "snapshot", atClusterTime: T}`.
//!
//! ```text
//!   a read without T          takes a current snapshot, kept under its time, which the reply reports
//!   a read at T               T is kept ──> exactly the state as of T
//!                             T is newest, no commits ──> taken now, exactly the state as of T
//!                             else SnapshotTooOld
//!   the first commit after T  while clients read in the past: the state as of T is kept before it
//! ```
//!
//! A snapshot is kept under a time at which it is exact: it contains every commit up to that time
//! and none after it. A read at T therefore returns the state as of T or an error, never a nearby
//! state. (Exception: a read without T concurrent with writers that leave no gap between two
//! commits, see [`EXACT_ATTEMPTS`].)
//!
//! Nothing is kept until the first snapshot read. From then on, for the window, the state before a
//! commit is kept if it has been the newest for [`SPACING`]: a time that a client received, and
//! that stayed the newest for that long, remains readable for the window. Limits: the window, and
//! [`KEPT_MAX`] snapshots, beyond which every other unread one is removed, oldest first.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::{Error, ErrorCode, Result, Timestamp};
use sheaf_storage::Snapshot;

use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::{Namespace, ReadView};
use crate::database::Db;
use crate::op_context::OpContext;

/// Default of `minSnapshotHistoryWindowInSeconds`.
pub const WINDOW_SECONDS: u64 = 300;

/// Minimum interval between states kept before commits.
pub const SPACING: Duration = Duration::from_millis(10);

/// Maximum number of kept snapshots.
pub const KEPT_MAX: usize = 512;

/// Current reads less than this apart share a snapshot, if there was no commit in between.
const SHARED: Duration = Duration::from_millis(5);

/// Attempts to take a current snapshot that is exact at its time. After that it may contain commits
/// made while it was taken.
const EXACT_ATTEMPTS: u32 = 50;

/// Readable snapshots by time. Lock order: the oplog's times first, then this.
pub struct SnapshotHistory {
    kept: Mutex<BTreeMap<u64, Kept>>,
    /// States before commits are kept until this time, in milliseconds after `began`; 0 before the
    /// first snapshot read.
    active_until: AtomicU64,
    /// Time at which the last state before a commit was kept, in milliseconds after `began`.
    last_kept: AtomicU64,
    began: Instant,
    window_seconds: AtomicU64,
    too_old: AtomicU64,
}

struct Kept {
    catalog: Arc<CatalogSnapshot>,
    snapshot: Arc<dyn Snapshot>,
    taken: Instant,
    /// Time of the last read; `None` if it was kept for a possible later read.
    read: Option<Instant>,
}

/// Statistics for `serverStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHistoryStats {
    /// Number of readable snapshots.
    pub kept: usize,
    /// Time of the oldest snapshot.
    pub oldest: Option<Timestamp>,
    /// Number of reads that failed with `SnapshotTooOld`.
    pub too_old: u64,
    /// Retention time of a snapshot, in seconds.
    pub window_seconds: u64,
    /// Whether states before commits are currently kept.
    pub is_active: bool,
}

impl Default for SnapshotHistory {
    fn default() -> Self {
        SnapshotHistory {
            kept: Mutex::default(),
            active_until: AtomicU64::new(0),
            last_kept: AtomicU64::new(0),
            began: Instant::now(),
            window_seconds: AtomicU64::new(WINDOW_SECONDS),
            too_old: AtomicU64::new(0),
        }
    }
}

impl SnapshotHistory {
    /// Sets `minSnapshotHistoryWindowInSeconds`.
    pub fn set_window_seconds(&self, seconds: u64) {
        self.window_seconds.store(seconds, Ordering::Relaxed);
    }

    fn window(&self) -> Duration {
        Duration::from_secs(self.window_seconds.load(Ordering::Relaxed))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the state before a commit must be kept. Costs one load while no client reads in the
    /// past.
    #[inline]
    pub(crate) fn wants_state(&self) -> bool {
        let until = self.active_until.load(Ordering::Relaxed);
        until != 0 && self.wants_state_now(until)
    }

    #[cold]
    fn wants_state_now(&self, until: u64) -> bool {
        let now = self.now_ms();
        let since = now.saturating_sub(self.last_kept.load(Ordering::Relaxed));
        now < until && u128::from(since) >= SPACING.as_millis()
    }

    /// Keeps the state as of `time`, which must be the newest, for a possible later read.
    pub(crate) fn keep(&self, db: &Db, time: Timestamp) -> Result<()> {
        self.last_kept.store(self.now_ms(), Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.contains_key(&time.as_u64()) {
            return Ok(());
        }
        kept.insert(time.as_u64(), take(db, None)?);
        if kept.len() > KEPT_MAX {
            thin_out(&mut kept);
        }
        Ok(())
    }

    /// Removes snapshots older than the window.
    pub fn expire(&self) {
        let gone = self.take_expired(&mut self.kept.lock());
        // Their pins are released outside the lock.
        drop(gone);
    }

    fn take_expired(&self, kept: &mut BTreeMap<u64, Kept>) -> Vec<Kept> {
        let (now, window) = (Instant::now(), self.window());
        let is_old = |one: &Kept| now.duration_since(one.read.unwrap_or(one.taken)) >= window;
        kept.extract_if(.., |_, one| is_old(one))
            .map(|(_, one)| one)
            .collect()
    }

    /// Current statistics.
    pub fn stats(&self) -> SnapshotHistoryStats {
        let kept = self.kept.lock();
        SnapshotHistoryStats {
            kept: kept.len(),
            oldest: kept.keys().next().map(|time| Timestamp::from_u64(*time)),
            too_old: self.too_old.load(Ordering::Relaxed),
            window_seconds: self.window_seconds.load(Ordering::Relaxed),
            is_active: self.now_ms() < self.active_until.load(Ordering::Relaxed),
        }
    }

    /// The time of a kept snapshot that is equivalent to a current one.
    fn shared(&self, db: &Db) -> Option<u64> {
        let kept = self.kept.lock();
        let (time, newest) = kept.last_key_value()?;
        // There is no commit in between: the oplog's visible time is still this one.
        let is_newest = db.oplog().is_on() && *time == db.oplog().visible().as_u64();
        (is_newest && newest.taken.elapsed() < SHARED).then_some(*time)
    }

    fn begin_read(&self) {
        let window = self.window_seconds.load(Ordering::Relaxed);
        let until = self.now_ms().saturating_add(window.saturating_mul(1000));
        self.active_until.fetch_max(until, Ordering::Relaxed);
    }
}

/// Removes every other unread snapshot of the older half.
fn thin_out(kept: &mut BTreeMap<u64, Kept>) {
    let unread = kept.iter().filter(|(_, one)| one.read.is_none());
    let unread: Vec<u64> = unread.map(|(time, _)| *time).collect();
    for time in unread[..unread.len() / 2].iter().step_by(2) {
        kept.remove(time);
    }
}

fn take(db: &Db, read: Option<Instant>) -> Result<Kept> {
    let (catalog, snapshot) = db.whole_view()?;
    Ok(Kept {
        catalog,
        snapshot,
        taken: Instant::now(),
        read,
    })
}

impl Db {
    /// A view of the collection as of `at`, or now, and the time with which to read the same state
    /// again.
    ///
    /// Errors: `SnapshotTooOld` for a time that is not kept, or no longer; `InvalidOptions` for a
    /// future time.
    pub fn view_at(
        &self,
        op: &OpContext,
        ns: &Namespace,
        at: Option<Timestamp>,
    ) -> Result<(ReadView, Timestamp)> {
        let history = self.snapshot_history();
        history.begin_read();
        if let Some(at) = at {
            self.keep_newest(op, at)?;
        }
        let time = match (at, history.shared(self)) {
            (Some(at), _) => at.as_u64(),
            (None, Some(time)) => time,
            (None, None) => {
                let (time, one) = self.take_now()?;
                history.kept.lock().entry(time).or_insert(one);
                time
            }
        };
        let now = Instant::now();
        let mut kept = history.kept.lock();
        let expired = history.take_expired(&mut kept);
        let found = kept.get_mut(&time).map(|one| {
            one.read = Some(now);
            ReadView {
                collection: one.catalog.collection(ns).cloned(),
                snapshot: one.snapshot.clone(),
                cluster_time: self.cluster_time_of_expressions(),
            }
        });
        drop(kept);
        drop(expired);
        let time = Timestamp::from_u64(time);
        match found {
            Some(view) => Ok((view, time)),
            None => {
                history.too_old.fetch_add(1, Ordering::Relaxed);
                Err(Error::new(
                    ErrorCode::SNAPSHOT_TOO_OLD,
                    format!(
                        "Read timestamp {time:?} is older than the available snapshots, or between two of \
                         them; read without atClusterTime first, or at a newer operationTime"
                    ),
                ))
            }
        }
    }

    /// A current snapshot with its time.
    fn take_now(&self) -> Result<(u64, Kept)> {
        if !self.oplog().is_on() {
            let time = self.next_timestamp();
            return Ok((time.as_u64(), take(self, Some(Instant::now()))?));
        }
        let mut attempts = 0;
        loop {
            // The time is read first: the snapshot contains every commit up to it.
            let time = self.operation_time();
            let one = take(self, Some(Instant::now()))?;
            attempts += 1;
            if self.newest_is(time) || attempts == EXACT_ATTEMPTS {
                return Ok((time.as_u64(), one));
            }
            std::thread::yield_now();
        }
    }

    /// Keeps the state at `at`, if nothing has been committed after it: the last time read or
    /// written.
    fn keep_newest(&self, op: &OpContext, at: Timestamp) -> Result<()> {
        let history = self.snapshot_history();
        if history.kept.lock().contains_key(&at.as_u64()) || at < self.operation_time() {
            return Ok(());
        }
        if at > self.cluster_time() {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "readConcern atClusterTime value must not be greater than the current clusterTime. Requested \
                     clusterTime: {at:?}; current clusterTime: {:?}",
                    self.cluster_time()
                ),
            ));
        }
        self.wait_for_time(op, at)?;
        let one = take(self, Some(Instant::now()))?;
        // A commit since then would be part of the snapshot.
        if self.newest_is(at) {
            history.kept.lock().entry(at.as_u64()).or_insert(one);
        }
        Ok(())
    }
}

impl fmt::Debug for SnapshotHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotHistory")
            .field("stats", &self.stats())
            .finish()
    }
}
