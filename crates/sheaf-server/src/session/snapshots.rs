//! Reads of one moment over several commands: `readConcern: {level: "snapshot", atClusterTime}`.
//!
//! The first such read takes a snapshot of everything and tells its time; later reads name the time and find the
//! snapshot here, for as long as the window is. Nothing is kept for those who never ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::{Error, ErrorCode, Timestamp};
use sheaf_db::catalog::snapshot::CatalogSnapshot;
use sheaf_db::{Db, Namespace, OpContext, ReadView};
use sheaf_storage::Snapshot;

/// How long a snapshot that nobody has asked for since can still be asked for.
const WINDOW: Duration = Duration::from_secs(300);

/// Snapshots are taken anew at most so often: reads between share one.
const SHARED: Duration = Duration::from_millis(5);

/// The snapshots that can be read.
#[derive(Default)]
pub struct SnapshotWindow {
    kept: Mutex<BTreeMap<u64, Kept>>,
}

struct Kept {
    catalog: Arc<CatalogSnapshot>,
    snapshot: Arc<dyn Snapshot>,
    taken: Instant,
    used: Instant,
}

impl SnapshotWindow {
    /// The collection at `at`, or now; with the time to name for reading the same again.
    ///
    /// Errors: `SnapshotTooOld` for a time that is no longer, or never was, kept; `InvalidOptions` for one that is
    /// to come.
    pub fn view(
        &self,
        db: &Arc<Db>,
        op: &OpContext,
        ns: &Namespace,
        at: Option<Timestamp>,
    ) -> Result<(ReadView, Timestamp), Error> {
        if let Some(at) = at {
            self.keep_newest(db, op, at)?;
        }
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.retain(|_, one| now.duration_since(one.used) < WINDOW);
        let time = match at {
            Some(at) => at.as_u64(),
            None => match kept.last_key_value() {
                // No commit can lie between: the oplog's times would tell, and there is none.
                Some((time, newest))
                    if db.oplog().is_on()
                        && *time == db.oplog().visible().as_u64()
                        && now.duration_since(newest.taken) < SHARED =>
                {
                    *time
                }
                _ => {
                    let (time, one) = take(db, now)?;
                    kept.insert(time, one);
                    time
                }
            },
        };
        let Some(one) = kept.get_mut(&time) else {
            return Err(Error::new(
                ErrorCode::SNAPSHOT_TOO_OLD,
                format!(
                    "Read timestamp {:?} is not in the window of snapshots that are kept; begin with a read \
                     without atClusterTime",
                    Timestamp::from_u64(time)
                ),
            ));
        };
        one.used = now;
        let view = ReadView {
            collection: one.catalog.collection(ns).cloned(),
            snapshot: one.snapshot.clone(),
        };
        Ok((view, Timestamp::from_u64(time)))
    }

    /// Takes the snapshot of a time that nothing has been committed after: what was read or written last.
    fn keep_newest(&self, db: &Arc<Db>, op: &OpContext, at: Timestamp) -> Result<(), Error> {
        if self.kept.lock().contains_key(&at.as_u64()) || at < db.operation_time() {
            return Ok(());
        }
        if at > db.cluster_time() {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "readConcern atClusterTime value must not be greater than the current clusterTime. Requested \
                     clusterTime: {at:?}; current clusterTime: {:?}",
                    db.cluster_time()
                ),
            ));
        }
        db.wait_for_time(op, at)?;
        let now = Instant::now();
        let (catalog, snapshot) = db.whole_view()?;
        // A commit since then would show in it.
        if db.newest_is(at) {
            self.kept.lock().entry(at.as_u64()).or_insert(Kept {
                catalog,
                snapshot,
                taken: now,
                used: now,
            });
        }
        Ok(())
    }

    /// Forgets snapshots that nobody has asked for lately.
    pub fn expire(&self) {
        let now = Instant::now();
        self.kept
            .lock()
            .retain(|_, one| now.duration_since(one.used) < WINDOW);
    }
}

fn take(db: &Arc<Db>, now: Instant) -> Result<(u64, Kept), Error> {
    // The time is read before the snapshot, which therefore holds all that is not after it.
    let time = match db.oplog().is_on() {
        true => db.operation_time(),
        false => db.next_timestamp(),
    };
    let (catalog, snapshot) = db.whole_view()?;
    Ok((
        time.as_u64(),
        Kept {
            catalog,
            snapshot,
            taken: now,
            used: now,
        },
    ))
}
