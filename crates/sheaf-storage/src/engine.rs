//! The engine trait: ordered tables of byte keys, immutable snapshots, atomic batches.
//!
//! ```text
//!   writers ── WriteBatch ──> apply ──> visible to snapshots taken from now on
//!                               │
//!                               └─ Buffered: durable within the flush interval
//!                                  Synced:   durable when apply returns
//!   readers ── snapshot() ──> get / cursor, for any length of time, never blocked by writers
//! ```
//!
//! Invariants, which `testing/checked.rs` asserts for any engine:
//!
//! - A batch is all or nothing, across tables and together with the tables it creates and drops,
//!   both for snapshots and after a crash.
//! - A snapshot never changes. It sees exactly the batches whose `apply` had made them visible when
//!   it was taken, which includes every batch whose `apply` had returned.
//! - After a crash, the engine contains a prefix of the batches in the order of their sequences,
//!   and the prefix includes every batch that was acknowledged as durable.
//! - Within a table, entries come in byte order of their keys, each key once. The empty key and the
//!   empty value are a key and a value like any other.
//!
//! The trait has no locks and no conflicts: two batches that put the same key both succeed and the
//! later one wins. First-writer-wins is built on top, in [`crate::StorageTransaction`], once for
//! all engines.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::batch::WriteBatch;
use crate::error::{Result, StorageError};

/// Identifies one ordered table: a collection's records, or one index. Chosen by the caller, which
/// does not reuse a number after dropping the table (the engine would allow it), and never uses the
/// greatest number, which an engine may reserve for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

impl TableId {
    /// The table that lists the other tables. It exists in every engine from the start and cannot
    /// be dropped.
    pub const CATALOG: TableId = TableId(0);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Orders the batches of one engine since it was opened; a later batch has a greater number.
/// May start again when the engine is reopened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSeq(pub u64);

/// What `apply` guarantees when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Visible immediately, durable within the engine's flush interval (100 ms unless configured).
    Buffered,
    /// Visible and on disk.
    Synced,
}

/// An engine: tables, snapshots, batches.
pub trait StorageEngine: Send + Sync + 'static {
    /// A short name for logs and `serverStatus`: `memory`, `redb`, `sheaf`.
    fn name(&self) -> &'static str;

    /// An immutable view of everything applied so far. Cheap (no table is read). It may live for
    /// minutes, but the engine cannot reclaim the space of the versions that it sees.
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Applies the batch: all of it or, on any error that `apply` returns, none of it.
    ///
    /// An empty batch is allowed and has the sequence of the last one; with `Synced` it is a
    /// [`StorageEngine::sync`].
    /// Errors: `NoSuchTable`, `TableExists` (the batch contradicts the existing tables),
    /// `TooLarge`, `NoSpace`, `ReadOnly`, `Io`, `Closed`. After `Io` (and only then) it is unknown
    /// whether the batch will be found after a restart; an engine that shows batches before they
    /// are synced may show it until then.
    fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq>;

    /// Like [`StorageEngine::apply`]; also returns the bytes logged for the batch: the length of
    /// its record in the log, or of its keys and values if the engine has no log.
    fn apply_counted(&self, batch: WriteBatch, durability: Durability) -> Result<(CommitSeq, u64)> {
        let bytes = self.bytes_to_log(&batch);
        Ok((self.apply(batch, durability)?, bytes))
    }

    /// The bytes that would be logged for the batch; see [`StorageEngine::apply_counted`].
    fn bytes_to_log(&self, batch: &WriteBatch) -> u64 {
        batch.bytes()
    }

    /// Makes all batches applied so far durable. Concurrent callers share one sync.
    fn sync(&self) -> Result<()>;

    /// Fills an empty table from entries in strictly ascending order of keys, and returns their
    /// number. Much faster than batches, and not atomic: while it runs, snapshots may see any
    /// prefix of the entries, so the caller keeps the table out of its catalog until the load is
    /// done. Durable when it returns. On an error (also one that the iterator yields) the table is
    /// left existing and empty, unless the engine itself can no longer write.
    ///
    /// The caller does not write to the table meanwhile. Progress can be reported from the
    /// iterator. Errors: `TableNotEmpty`, `OutOfOrder`, `NoSuchTable`, and those of `apply`.
    fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64>;

    /// Does the engine's background housekeeping now: syncs, and brings the files into the form
    /// that opens fastest and is smallest. May take long.
    fn checkpoint(&self) -> Result<()>;

    /// Whether the engine makes checkpoints by itself, at the interval that it was opened with.
    /// Otherwise the caller must call [`StorageEngine::checkpoint`] regularly.
    fn checkpoints_itself(&self) -> bool {
        true
    }

    /// Counters since the engine was opened, and current sizes. Cheap.
    fn stats(&self) -> EngineStats;

    /// Calls `out` with the name and value of each counter that only this engine has and that is
    /// not in [`EngineStats`]. Names are those of `serverStatus`: camelCase, with a unit last; a
    /// dot separates the parts of a nested name, and names with a common first part are
    /// consecutive. Cheap.
    fn report(&self, out: &mut dyn FnMut(&str, u64)) {
        let _ = out;
    }

    /// Size of a table, in the newest applied state. Cheap: does not read the table.
    fn table_stats(&self, table: TableId) -> Result<TableStats>;

    /// The existing tables, ascending, in the newest applied state; includes [`TableId::CATALOG`].
    /// For cleaning up after a crash: a table that is not in the catalog is dropped.
    fn tables(&self) -> Result<Vec<TableId>>;

    /// Copies the newest state, without stopping the engine, into a folder that is empty or does
    /// not exist. The copy opens like any engine's files. Returns the bytes written. `go_on` is
    /// called at intervals; if it returns false, the backup ends with `Closed`. A failed backup
    /// leaves an empty folder; one interrupted by the end of the process leaves files that do not
    /// open (`Unfinished`).
    /// Errors: `Unsupported`, `Io`, `NoSpace`, `Corrupt`, `Closed`.
    fn backup(&self, to: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        let _ = (to, go_on);
        Err(StorageError::Unsupported {
            what: format!("a backup by the {} engine", self.name()),
        })
    }

    /// Returns free space in the files to the file system, as far as old snapshots allow, without
    /// stopping the engine. Returns by how many bytes the files became shorter. May take long.
    /// Errors: `Unsupported`, `Io`, `NoSpace`, `Corrupt`, `Closed`.
    fn compact(&self) -> Result<u64> {
        Err(StorageError::Unsupported {
            what: format!("compaction by the {} engine", self.name()),
        })
    }

    /// Reads and checks everything on disk, without stopping the engine. Returns what is damaged.
    /// `progress` is called with the part that is done, from 0 to 1.
    /// Errors: `Unsupported`, `Io`, `Closed`.
    fn verify(&self, progress: &mut dyn FnMut(f64)) -> Result<Vec<Finding>> {
        let _ = progress;
        Err(StorageError::Unsupported {
            what: format!("a verification by the {} engine", self.name()),
        })
    }

    /// Syncs and closes. Every later call returns `Closed`; snapshots and cursors that are still
    /// held stay readable, or return `Closed`. A second close does nothing.
    fn close(&self) -> Result<()>;
}

/// An immutable view of all tables.
pub trait Snapshot: Send + Sync {
    /// The value under `key`, or `None`.
    ///
    /// The bytes may point into the engine's cache and pin a page and the snapshot: copy values
    /// that are kept for a long time, or in large numbers. Errors: `NoSuchTable`, `Corrupt`, `Io`,
    /// `Closed`.
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>>;

    /// A cursor over the table, not yet positioned. It keeps the snapshot alive.
    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>>;

    /// Number of entries in the table. Constant time on an engine's own snapshot, except for the
    /// batches that have changed the number since it was taken; on a unit of work's reader it costs
    /// a look-up for each own write.
    fn len(&self, table: TableId) -> Result<u64>;

    /// Whether the table exists in this view.
    fn contains_table(&self, table: TableId) -> Result<bool>;
}

/// A position in a table, moved in either direction. Reusable: any number of seeks, in any order.
///
/// ```text
///            seek_for_prev(k)   seek(k)
///                    │            │
///   ...  a    c      f      |k    m     q  ...
///                    ├─ prev ◄──►─┤ next
/// ```
///
/// Every move returns whether the cursor is now on an entry. If it is not (past either end, or
/// after an error) the cursor is not `valid`, and `next` and `prev` return `false` until the next
/// seek. A step does not allocate.
///
/// Errors of every move: `Corrupt`, `Io`, `Closed`.
pub trait Cursor: Send {
    /// Moves to the first entry whose key is >= `key`.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    /// Moves to the last entry whose key is <= `key`.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool>;
    /// Moves to the table's first entry.
    fn seek_first(&mut self) -> Result<bool>;
    /// Moves to the table's last entry.
    fn seek_last(&mut self) -> Result<bool>;
    /// Moves to the entry with the next greater key.
    fn next(&mut self) -> Result<bool>;
    /// Moves to the entry with the next smaller key.
    fn prev(&mut self) -> Result<bool>;
    /// The entry's key; empty when not `valid`.
    fn key(&self) -> &[u8];
    /// The entry's value; empty when not `valid`.
    fn value(&self) -> &[u8];
    /// The entry's value, to keep beyond the next move. See [`Snapshot::get`] for what it may pin.
    fn value_bytes(&self) -> Bytes;
    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;
    /// Releases the memory that the cursor pins, for a cursor that will not be moved for a while.
    /// It keeps its position, and `key` remains valid; `value` is empty until the next move, which
    /// finds the position again.
    fn suspend(&mut self) {}
}

/// Statistics common to all engines: counters since the engine was opened, and current sizes.
/// `None` if the engine does not know. Counters of a single engine are in
/// [`StorageEngine::report`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Batches applied.
    pub commits: u64,
    /// Keys put and deleted by those batches (a range or a table dropped counts as one).
    pub operations: u64,
    /// Bytes of keys and values in those batches.
    pub bytes_logged: u64,
    /// Bytes that the engine wrote to its files.
    pub bytes_written: u64,
    /// Bytes that the engine read from its files (not from its cache).
    pub bytes_read: u64,
    /// Calls that forced files to disk.
    pub syncs: u64,
    /// Engine transactions that applied at least one batch; `commits / groups` is the mean group.
    pub groups: u64,
    /// Maximum number of batches that shared one engine transaction.
    pub group_max: u64,
    /// Size of the engine's files, in bytes.
    pub file_bytes: Option<u64>,
    /// Part of `file_bytes` that is free for reuse.
    pub file_free_bytes: Option<u64>,
    /// Memory that the engine's cache holds, in bytes; for an engine that accounts all its memory,
    /// all of it.
    pub cache_bytes: Option<u64>,
    /// Heap memory that the engine holds, in bytes (mapped files are not heap); `None` for an
    /// engine that does not account all of it.
    pub heap_bytes: Option<u64>,
    /// Open snapshots, including those that only a cursor still holds.
    pub open_snapshots: u64,
    /// Age of the oldest open snapshot.
    pub oldest_snapshot_age: Option<Duration>,
    /// Why no writes are accepted any more (`ReadOnly`); `None` while they are.
    pub refuses_writes: Option<String>,
    /// Why the last checkpoint that the engine made by itself failed; `None` once one has
    /// succeeded.
    pub checkpoint_failure: Option<String>,
}

/// Damage found by [`StorageEngine::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The damaged file.
    pub file: String,
    /// The offset in the file, if it is known.
    pub offset: Option<u64>,
    /// The table, if it is known.
    pub table: Option<TableId>,
    /// What is wrong.
    pub detail: String,
}

/// Size of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Entries, exact.
    pub entries: u64,
    /// Sum of the keys' lengths in bytes, exact.
    pub key_bytes: u64,
    /// Sum of the values' lengths in bytes, exact.
    pub value_bytes: u64,
    /// An estimate of the bytes on disk, including the engine's overhead; 0 for an engine without
    /// files.
    pub disk_bytes: u64,
}
