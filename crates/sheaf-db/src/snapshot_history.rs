//! Reads in the past: `readConcern: {level: "snapshot", atClusterTime: T}`.
//!
//! ```text
//!   a read without T          takes a snapshot of now, kept under its time, which the reply names
//!   a read at T               T is kept ──> exactly the state as of T
//!                             T is newest, nothing commits ──> taken now, exactly the state as of T
//!                             else SnapshotTooOld
//!   the first commit after T  while somebody reads in the past: the state as of T is kept before it
//! ```
//!
//! A snapshot is kept under a time at which it is exact: every commit up to the time is in it and none
//! after it. So a read at T gets the state as of T or an error, never a state nearby. (Exception: a read
//! without T beside writers that leave no gap between two commits, see [`EXACT_ATTEMPTS`].)
//!
//! Nothing is kept for those who never ask. After a snapshot read, and for the window from then on, the
//! state before a commit is kept if it has been the newest for [`SPACING`]: a time that a client was
//! given, and that stayed the newest for so long, can be read for the window. Bounds: the window, and
//! [`KEPT_MAX`] snapshots, beyond which every other one that nobody has read goes, oldest first.

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

/// The default of `minSnapshotHistoryWindowInSeconds`.
pub const WINDOW_SECONDS: u64 = 300;

/// A state is kept before a commit if none was kept for this long.
pub const SPACING: Duration = Duration::from_millis(10);

/// Snapshots kept at most.
pub const KEPT_MAX: usize = 512;

/// Reads of now that are less than this apart share a snapshot, if nothing was committed in between.
const SHARED: Duration = Duration::from_millis(5);

/// Attempts at a snapshot of now that is exact at its time. After that it may hold commits that were
/// made while it was taken.
const EXACT_ATTEMPTS: u32 = 50;

/// The snapshots that can be read, by time. Locked after the oplog's times, never before.
pub struct SnapshotHistory {
    kept: Mutex<BTreeMap<u64, Kept>>,
    /// The states before commits are kept until then, in milliseconds after `began`; 0 before the first
    /// snapshot read.
    active_until: AtomicU64,
    /// When the last state before a commit was kept, in milliseconds after `began`.
    last_kept: AtomicU64,
    began: Instant,
    window_seconds: AtomicU64,
    too_old: AtomicU64,
}

struct Kept {
    catalog: Arc<CatalogSnapshot>,
    snapshot: Arc<dyn Snapshot>,
    taken: Instant,
    /// When it was read last; `None`: it was kept for somebody who may come.
    read: Option<Instant>,
}

/// What is kept, for `serverStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHistoryStats {
    /// Snapshots that can be read.
    pub kept: usize,
    /// The time of the oldest of them.
    pub oldest: Option<Timestamp>,
    /// Reads that failed with `SnapshotTooOld`.
    pub too_old: u64,
    /// How long a snapshot is kept, in seconds.
    pub window_seconds: u64,
    /// Whether the states before commits are being kept.
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

    /// Whether the state before a commit must be kept. Costs one load while nobody reads in the past.
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

    /// Keeps the state as of `time`, which is the newest, for a read that may come.
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

    /// Removes the snapshots that are older than the window.
    pub fn expire(&self) {
        let gone = self.take_expired(&mut self.kept.lock());
        // Their pins are released outside of the lock.
        drop(gone);
    }

    fn take_expired(&self, kept: &mut BTreeMap<u64, Kept>) -> Vec<Kept> {
        let (now, window) = (Instant::now(), self.window());
        let is_old = |one: &Kept| now.duration_since(one.read.unwrap_or(one.taken)) >= window;
        kept.extract_if(.., |_, one| is_old(one))
            .map(|(_, one)| one)
            .collect()
    }

    /// What is kept now.
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

    /// The time of a snapshot that is as good as one of now.
    fn shared(&self, db: &Db) -> Option<u64> {
        let kept = self.kept.lock();
        let (time, newest) = kept.last_key_value()?;
        // No commit can lie between: the oplog's times would tell, and there is none.
        let is_newest = db.oplog().is_on() && *time == db.oplog().visible().as_u64();
        (is_newest && newest.taken.elapsed() < SHARED).then_some(*time)
    }

    fn begin_read(&self) {
        let window = self.window_seconds.load(Ordering::Relaxed);
        let until = self.now_ms().saturating_add(window.saturating_mul(1000));
        self.active_until.fetch_max(until, Ordering::Relaxed);
    }
}

/// Removes every other one of the older half that nobody has read.
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
    /// The collection as of `at`, or now; with the time to name for reading the same again.
    ///
    /// Errors: `SnapshotTooOld` for a time that is no longer, or never was, kept; `InvalidOptions` for
    /// one that is to come.
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
                        "Read timestamp {time:?} is older than the snapshots that are kept, or lies between \
                         two of them; read without atClusterTime first, or at a newer operationTime"
                    ),
                ))
            }
        }
    }

    /// A snapshot of now with its time.
    fn take_now(&self) -> Result<(u64, Kept)> {
        if !self.oplog().is_on() {
            let time = self.next_timestamp();
            return Ok((time.as_u64(), take(self, Some(Instant::now()))?));
        }
        let mut attempts = 0;
        loop {
            // The time is read first: the snapshot holds all that is not after it.
            let time = self.operation_time();
            let one = take(self, Some(Instant::now()))?;
            attempts += 1;
            if self.newest_is(time) || attempts == EXACT_ATTEMPTS {
                return Ok((time.as_u64(), one));
            }
            std::thread::yield_now();
        }
    }

    /// Keeps the state of a time that nothing has been committed after: what was read or written last.
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
        // A commit since then would show in it.
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
