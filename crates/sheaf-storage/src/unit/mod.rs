//! The unit of work: one snapshot, overlaid with the unit's own writes, locks, and one atomic
//! commit.
//!
//! ```text
//!   begin ─ snapshot ─┬─ lock(key) ─ read ─ put / delete ─┬─ commit ─ visible ─ unlocked ─ durable
//!                     │      savepoint ... rollback_to    │
//!                     └── reader(): snapshot + own writes └─ drop: nothing happened
//! ```
//!
//! All writes of the database go through here, those of a single document and those of a
//! multi-document transaction alike. An engine's batches do not conflict; the unit adds conflicts:
//! a writer of a key locks it first, and the first writer wins.
//!
//! Invariant: for every key that it has locked, a unit's commit is based on the state that it has
//! read: between its snapshot and its commit no other unit has changed such a key.
//!
//! While another unit waits for a lock, a commit becomes visible and releases its locks before its
//! sync: units that wait for the same hot record then share a sync instead of queueing for one
//! each.

mod locks;
mod overlay;
mod validation;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::batch::{KeyChange, KeyWrite, Prior, TableWrites, Totals, WriteBatch};
use crate::engine::{CommitSeq, Durability, Snapshot, StorageEngine, TableId};
use crate::error::{Result, StorageError};

pub use locks::LockMode;
use locks::{LockTable, Locked, UnitId};
use overlay::OverlaySnapshot;
use validation::{TrackedUnit, Validator};

/// An engine with the lock table that its units of work share. Clones share both.
#[derive(Clone)]
pub struct Storage {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<dyn StorageEngine>,
    locks: LockTable,
    validator: Validator,
}

/// Counters since the storage was opened, and the current state of the lock table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Units begun and not yet ended.
    pub open_units: u64,
    /// Keys whose holder or last commit is known.
    pub known_keys: u64,
    /// Locks refused, or obtained too late for the unit's snapshot.
    pub conflicts: u64,
    /// Locks that were waited for.
    pub waits: u64,
    /// Of those, the ones that reached their limit.
    pub timeouts: u64,
    /// Serializable units rejected because their reads were outdated.
    pub serialization_failures: u64,
}

impl Storage {
    /// Creates an empty lock table for the engine. There must be only one storage for an engine.
    pub fn new(engine: Arc<dyn StorageEngine>) -> Storage {
        Storage {
            shared: Arc::new(Shared {
                engine,
                locks: LockTable::new(),
                validator: Validator::default(),
            }),
        }
    }

    /// The engine, for operations that need no unit: statistics, syncs, bulk loads.
    pub fn engine(&self) -> &Arc<dyn StorageEngine> {
        &self.shared.engine
    }

    /// A read-only view.
    pub fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.shared.engine.snapshot()
    }

    /// Begins a unit of work.
    pub fn begin(&self) -> Result<StorageTransaction> {
        self.begin_with(|| Ok((None, self.shared.engine.snapshot()?)))
    }

    /// Begins a unit of work whose commit fails with `WriteConflict` if a unit that has committed
    /// since wrote anything that it has read.
    pub fn begin_serializable(&self) -> Result<StorageTransaction> {
        self.begin_with(|| {
            let (unit, snapshot) = self
                .shared
                .validator
                .begin(|| self.shared.engine.snapshot())?;
            Ok((Some(unit), snapshot))
        })
    }

    fn begin_with(
        &self,
        snapshot: impl FnOnce() -> Result<(Option<TrackedUnit>, Arc<dyn Snapshot>)>,
    ) -> Result<StorageTransaction> {
        let (unit, begin) = self.shared.locks.begin();
        match snapshot() {
            Ok((tracked, base)) => Ok(StorageTransaction {
                tracked,
                storage: self.clone(),
                unit,
                begin,
                base,
                writes: Arc::default(),
                held: Vec::new(),
                stale: false,
                undo: Vec::new(),
                savepoints: 0,
                open: true,
            }),
            Err(error) => {
                self.shared.locks.abandon(begin, &[]);
                Err(error)
            }
        }
    }

    /// Counters of the lock table. Visits all its shards: for statistics, not for every operation.
    pub fn lock_stats(&self) -> LockStats {
        let locks = &self.shared.locks;
        LockStats {
            open_units: locks.open_units(),
            known_keys: locks.known_keys() as u64,
            conflicts: locks.conflicts.load(Ordering::Relaxed),
            waits: locks.waits.load(Ordering::Relaxed),
            timeouts: locks.timeouts.load(Ordering::Relaxed),
            serialization_failures: self.shared.validator.refused.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage")
            .field("engine", &self.shared.engine.name())
            .finish_non_exhaustive()
    }
}

/// How to undo one write.
enum Undo {
    Key(TableId, Bytes, Option<KeyChange>),
    Table(TableId, Option<Arc<TableWrites>>),
}

/// A point within a unit to which its writes can be rolled back. Not valid in another unit.
#[derive(Clone, Debug)]
#[must_use]
pub struct Savepoint {
    undo: usize,
    totals: Totals,
}

/// A unit of work. Dropping it without a commit leaves no trace.
pub struct StorageTransaction {
    storage: Storage,
    unit: UnitId,
    begin: u64,
    base: Arc<dyn Snapshot>,
    writes: Arc<WriteBatch>,
    held: Vec<Bytes>,
    /// The unit waited for a lock, and the former holder committed a write that `base` does not
    /// see.
    stale: bool,
    /// Filled only while a savepoint is open.
    undo: Vec<Undo>,
    savepoints: usize,
    open: bool,
    /// The read set of a serializable unit, which must be unchanged when it commits.
    tracked: Option<TrackedUnit>,
}

impl StorageTransaction {
    /// Locks a key for writing. The caller locks every record that it is about to change and every
    /// unique key that it is about to add or remove, before the write; any bytes may be used as a
    /// key. Locking a key again does nothing.
    ///
    /// Errors: `WriteConflict` if another unit holds the key (and `mode` is not to wait, or this
    /// unit already holds a lock), or has committed a version of it that this unit's snapshot does
    /// not see. `LockTimeout` if the holder outlasted the limit.
    ///
    /// After a wait that ended in `WriteConflict` the unit *holds* the lock but cannot commit.
    /// Either drop it and retry the operation, or, while it has not written, call `refresh`: after
    /// that, everything must be read again; no other unit can change the locked keys this time.
    pub fn lock(&mut self, table: TableId, key: &[u8], mode: LockMode) -> Result<()> {
        if self.stale {
            return Err(StorageError::WriteConflict);
        }
        let mode = if self.held.is_empty() {
            mode
        } else {
            LockMode::Fail
        };
        let name = locks::lock_name(table, key);
        let locks = &self.storage.shared.locks;
        match locks.lock(self.unit, self.begin, &name, mode)? {
            Locked::Already => Ok(()),
            Locked::Taken => {
                self.held.push(name);
                Ok(())
            }
            Locked::Stale => {
                self.held.push(name);
                self.stale = true;
                Err(StorageError::WriteConflict)
            }
        }
    }

    /// Takes a new snapshot in place of the unit's own, keeping the locks. Only for a unit that has
    /// written nothing: its writes would be based on the old snapshot. Readers taken before keep
    /// the old one.
    /// Errors: `WriteConflict` if the unit has written, or is serializable.
    pub fn refresh(&mut self) -> Result<()> {
        // The reads of a serializable unit are of the old snapshot.
        if !self.writes.is_empty() || self.tracked.is_some() {
            return Err(StorageError::WriteConflict);
        }
        // The locks keep their keys from changing, so the new snapshot is current for all of them.
        // Until it is taken, the unit's begin is newer than its snapshot.
        self.stale = true;
        self.begin = self.storage.shared.locks.begin_again(self.begin);
        self.base = self.storage.shared.engine.snapshot()?;
        self.stale = false;
        Ok(())
    }

    /// The value under `key` as this unit sees it.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        overlay::get(&*self.base, &self.writes, table, key)
    }

    /// The snapshot overlaid with the unit's writes up to now, for readers, cursors and plans that
    /// need not know that they run inside a unit. It does not show later writes. Cheap, but the
    /// first write after it copies the written table's own writes if the reader is still alive.
    pub fn reader(&self) -> Arc<dyn Snapshot> {
        if self.writes.is_empty() {
            self.base.clone()
        } else {
            Arc::new(OverlaySnapshot::new(self.base.clone(), self.writes.clone()))
        }
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>) {
        self.put_with(table, key, value, Prior::Unknown);
    }

    /// Sets the value of `key`, which the unit does not see.
    pub fn insert_new(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>) {
        self.put_with(table, key, value, Prior::Absent);
    }

    /// Like [`StorageTransaction::put`], with the state of the key that the unit sees. That must
    /// still be true at the commit: the key is locked, or no other unit can write it.
    pub fn put_with(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>, prior: Prior) {
        self.write(table, key, KeyWrite::Put(value.into()), prior, None);
    }

    /// Replaces the value `base` that the unit sees under `key`. As for
    /// [`StorageTransaction::put_with`] and [`WriteBatch::put_over`], it must still be the value at
    /// the commit.
    pub fn put_over(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>, base: &Bytes) {
        let prior = Prior::value(base);
        self.write(table, key, KeyWrite::Put(value.into()), prior, Some(base));
    }

    /// Removes `key`, if it exists.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        self.delete_with(table, key, Prior::Unknown);
    }

    /// Like [`StorageTransaction::delete`], with the state of the key that the unit sees; see
    /// [`StorageTransaction::put_with`].
    pub fn delete_with(&mut self, table: TableId, key: &[u8], prior: Prior) {
        self.write(table, key, KeyWrite::Delete, prior, None);
    }

    fn write(
        &mut self,
        table: TableId,
        key: &[u8],
        write: KeyWrite,
        prior: Prior,
        base: Option<&Bytes>,
    ) {
        let key = Bytes::copy_from_slice(key);
        let writes = Arc::make_mut(&mut self.writes);
        if self.savepoints == 0 {
            debug_assert!(
                self.undo.is_empty(),
                "undo is recorded only for a savepoint"
            );
            writes.write(table, key, write, prior, base);
        } else {
            let before = writes.write(table, key.clone(), write, prior, base);
            self.undo.push(Undo::Key(table, key, before));
        }
    }

    /// Removes the keys in `[lo, hi)`; `None` is the end of the table. Takes no locks on them.
    pub fn delete_range(&mut self, table: TableId, lo: &[u8], hi: Option<&[u8]>) {
        self.change_table(table, |batch| batch.delete_range(table, lo, hi));
    }

    /// Creates an empty table, which the unit can use immediately.
    pub fn create_table(&mut self, table: TableId) {
        self.change_table(table, |batch| batch.create_table(table));
    }

    /// Drops a table with all its entries.
    pub fn drop_table(&mut self, table: TableId) {
        self.change_table(table, |batch| batch.drop_table(table));
    }

    fn change_table(&mut self, table: TableId, change: impl FnOnce(&mut WriteBatch)) {
        if self.savepoints > 0 {
            let before = self.writes.table(table).cloned();
            self.undo.push(Undo::Table(table, before));
        }
        change(Arc::make_mut(&mut self.writes));
    }

    /// Whether the unit has no writes to commit.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The writes so far: for counting keys and bytes.
    pub fn writes(&self) -> &WriteBatch {
        &self.writes
    }

    /// Marks this point. Savepoints nest; each ends with `release`, or with the unit.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints += 1;
        Savepoint {
            undo: self.undo.len(),
            totals: self.writes.totals(),
        }
    }

    /// Undoes every write since the savepoint. Locks stay held until the unit ends. The savepoint
    /// stays open; later savepoints are invalid, but must still be released.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) {
        if self.undo.len() > savepoint.undo {
            let writes = Arc::make_mut(&mut self.writes);
            for undo in self.undo.drain(savepoint.undo..).rev() {
                match undo {
                    Undo::Key(table, key, before) => writes.unwrite(table, &key, before),
                    Undo::Table(table, before) => writes.restore_table(table, before),
                }
            }
            writes.restore_totals(savepoint.totals.clone());
        }
    }

    /// Ends a savepoint and keeps the writes. While none is open, no undo information is kept.
    pub fn release(&mut self, savepoint: Savepoint) {
        drop(savepoint);
        debug_assert!(self.savepoints > 0, "a savepoint is released once");
        self.savepoints = self.savepoints.saturating_sub(1);
        if self.savepoints == 0 {
            self.undo = Vec::new();
        }
    }

    /// Commits: all writes become visible together, and durable according to `durability`.
    ///
    /// A unit without writes commits nothing, and returns sequence 0. With `Synced` it still makes
    /// all previously visible commits durable, so that an acknowledgement of "nothing to change" is
    /// valid after a crash.
    ///
    /// Errors of the engine's `apply`: nothing was written and the unit is rolled back.
    /// `WriteConflict` if a stale lock was not refreshed; the unit is rolled back, too. An error of
    /// the sync may come after the writes have become visible: they are not undone, and the engine
    /// accepts no more writes.
    pub fn commit(self, durability: Durability) -> Result<CommitSeq> {
        self.commit_counted(durability).map(|(seq, _)| seq)
    }

    /// Like [`StorageTransaction::commit`]; also returns how many bytes the engine logged for it.
    pub fn commit_counted(mut self, durability: Durability) -> Result<(CommitSeq, u64)> {
        if self.stale {
            return Err(StorageError::WriteConflict);
        }
        let shared = self.storage.shared.clone();
        let written = !self.writes.is_empty();
        let early = shared.locks.is_waited_for();
        let (seq, logged) = if !written {
            (CommitSeq::default(), 0)
        } else {
            let writes = std::mem::take(&mut self.writes);
            let batch = Arc::try_unwrap(writes).unwrap_or_else(|shared| (*shared).clone());
            let durability = if early {
                Durability::Buffered
            } else {
                durability
            };
            let _guard = shared.validator.commit(self.tracked.as_ref(), &batch)?;
            shared.engine.apply_counted(batch, durability)?
        };
        // The unit is committed now: nothing below may undo it.
        self.open = false;
        if let Some(tracked) = self.tracked.take() {
            shared.validator.end(&tracked);
        }
        if written {
            let published = shared.locks.publish(self.begin);
            shared.locks.release_published(&published, &self.held);
        } else {
            shared.locks.abandon(self.begin, &self.held);
        }
        if durability == Durability::Synced && (early || !written) {
            shared.engine.sync()?;
        }
        Ok((seq, logged))
    }

    /// Rolls back. Equivalent to dropping the unit.
    pub fn abort(self) {}
}

impl Drop for StorageTransaction {
    fn drop(&mut self) {
        if let Some(tracked) = self.tracked.take() {
            self.storage.shared.validator.end(&tracked);
        }
        if self.open {
            let locks = &self.storage.shared.locks;
            locks.abandon(self.begin, &self.held);
        }
    }
}

impl fmt::Debug for StorageTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageTransaction")
            .field("begin", &self.begin)
            .field("locks", &self.held.len())
            .field("operations", &self.writes.operations())
            .finish_non_exhaustive()
    }
}
