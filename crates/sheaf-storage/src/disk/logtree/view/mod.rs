//! A read view: a stack of generations over the tree, as of one sequence.
//!
//! ```text
//!   View      active ─ frozen ... frozen ─ roots       replaced when a generation is frozen or checkpointed
//!   Snapshot  a view, and the sequence up to which it is seen
//!   Cursor    the tree's cursor merged with one walk over each generation that holds something of the table
//! ```
//!
//! The newest generation that has the key, a range over it, or the end of its table, decides; lower
//! layers are not read. A generation's filter excludes most keys that it does not have.
//!
//! Invariant: the sequences in a generation are greater than those of everything below it in the
//! view. The creator of a snapshot of a view at a sequence ensures that the view holds all batches
//! up to that sequence.

mod cursor;
mod insert;
mod open;
mod snapshot;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::memtable::{Fate, Generation, NodeRef, hash};
use crate::engine::{Cursor, TableId, TableStats};
use crate::error::{Result, StorageError};

pub(super) use self::open::{Candidate, OpenSnapshots};
pub(super) use self::snapshot::LogTreeSnapshot;

/// The layer below the generations: the trees as of one checkpoint.
pub(super) trait Base: Send + Sync + 'static {
    /// A cursor over one table.
    type Cursor: Cursor;

    /// The value under `key`; `None` also if the table does not exist.
    fn get(self: &Arc<Self>, table: TableId, key: &[u8]) -> Result<Option<Bytes>>;

    /// The length of the value under `key`; `None` also if the table does not exist.
    fn value_len(self: &Arc<Self>, table: TableId, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.get(table, key)?.map(|value| value.len()))
    }

    /// A cursor over an existing table. It keeps the base alive.
    fn cursor(self: &Arc<Self>, table: TableId) -> Result<Self::Cursor>;

    /// Like [`Base::cursor`], without taking a reference: cursors are created often, and threads
    /// would contend for one counter.
    ///
    /// # Safety
    /// This `Arc` must not be moved or dropped while the cursor lives.
    unsafe fn lent_cursor(self: &Arc<Self>, table: TableId) -> Result<Self::Cursor> {
        self.cursor(table)
    }

    /// The size of a table; `None` if it does not exist.
    fn table(&self, table: TableId) -> Option<TableStats>;

    /// The tables, ascending.
    fn tables(&self) -> Vec<TableId>;
}

/// See the module's head.
pub(super) struct View<R> {
    active: Arc<Generation>,
    /// Newest first.
    frozen: Vec<Arc<Generation>>,
    roots: Arc<R>,
}

/// The result of a look-up in the generations.
enum Found<'a> {
    /// A version, which may be a deletion.
    Version(NodeRef<'a>),
    /// The generations decide that the key does not exist.
    Gone,
    /// The generations have no information on the key: the tree decides.
    Below,
}

impl<R: Base> View<R> {
    /// `frozen` is newest first.
    pub(super) fn new(
        active: Arc<Generation>,
        frozen: Vec<Arc<Generation>>,
        roots: Arc<R>,
    ) -> View<R> {
        View {
            active,
            frozen,
            roots,
        }
    }

    pub(super) fn active(&self) -> &Arc<Generation> {
        &self.active
    }

    /// The generations that wait for a checkpoint, newest first.
    pub(super) fn frozen(&self) -> &[Arc<Generation>] {
        &self.frozen
    }

    pub(super) fn roots(&self) -> &Arc<R> {
        &self.roots
    }

    /// The view after the active generation is frozen and `fresh` takes the writes.
    pub(super) fn rotated(&self, fresh: Arc<Generation>) -> View<R> {
        debug_assert!(fresh.is_empty(), "a new generation takes the writes");
        let mut frozen = Vec::with_capacity(self.frozen.len() + 1);
        frozen.push(self.active.clone());
        frozen.extend(self.frozen.iter().cloned());
        View {
            active: fresh,
            frozen,
            roots: self.roots.clone(),
        }
    }

    /// The view after the `merged` oldest frozen generations have been merged into `roots`.
    pub(super) fn checkpointed(&self, roots: Arc<R>, merged: usize) -> View<R> {
        debug_assert!(merged <= self.frozen.len());
        let left = self.frozen.len().saturating_sub(merged);
        View {
            active: self.active.clone(),
            frozen: self.frozen[..left].to_vec(),
            roots,
        }
    }

    /// The same view over other roots with the same contents.
    pub(super) fn on(&self, roots: Arc<R>) -> View<R> {
        View {
            active: self.active.clone(),
            frozen: self.frozen.clone(),
            roots,
        }
    }

    /// All generations, newest first.
    pub(super) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The last fate of the table in the generations up to `visible`.
    fn fate(&self, table: TableId, visible: u64) -> Option<Fate> {
        self.generations()
            .filter(|generation| generation.has_more())
            .find_map(|generation| generation.table(table)?.fate(visible))
    }

    /// Whether the table exists as of `visible`; `u64::MAX` includes everything inserted.
    pub(super) fn contains_table(&self, table: TableId, visible: u64) -> bool {
        match self.fate(table, visible) {
            Some(fate) => fate.exists,
            None => self.roots.table(table).is_some(),
        }
    }

    /// The tables that exist as of `visible`, ascending.
    pub(super) fn tables(&self, visible: u64) -> Vec<TableId> {
        let mut tables: BTreeSet<TableId> = self.roots.tables().into_iter().collect();
        for generation in self.generations() {
            if generation.has_more() {
                tables.extend(generation.tables().map(|mem| mem.id()));
            }
        }
        tables.retain(|table| self.contains_table(*table, visible));
        tables.into_iter().collect()
    }

    /// The size of a table with everything inserted; `None` if it does not exist.
    pub(super) fn table_stats(&self, table: TableId) -> Option<TableStats> {
        let (mut entries, mut key_bytes, mut value_bytes) = (0, 0, 0);
        let mut emptied = false;
        for generation in self.generations() {
            let Some(mem) = generation.table(table) else {
                continue;
            };
            let fate = mem.fate(u64::MAX);
            let bytes = mem.size_bytes();
            entries += mem.entries(fate.map_or(0, |fate| fate.seq), u64::MAX);
            key_bytes += bytes.0;
            value_bytes += bytes.1;
            if let Some(fate) = fate {
                if !fate.exists {
                    return None;
                }
                emptied = true;
                break;
            }
        }
        let below = if emptied {
            TableStats::default()
        } else {
            self.roots.table(table)?
        };
        Some(TableStats {
            entries: below.entries.saturating_add_signed(entries),
            key_bytes: below.key_bytes.saturating_add_signed(key_bytes),
            value_bytes: below.value_bytes.saturating_add_signed(value_bytes),
            disk_bytes: below.disk_bytes,
        })
    }

    /// Number of entries of the table as of `visible`.
    /// Errors: `NoSuchTable`.
    fn len(&self, table: TableId, visible: u64) -> Result<u64> {
        let mut entries = 0;
        for generation in self.generations() {
            let Some(mem) = generation.table(table) else {
                continue;
            };
            match mem.fate(visible) {
                None => entries += mem.entries(0, visible),
                Some(Fate { exists: false, .. }) => return Err(StorageError::NoSuchTable(table)),
                Some(Fate { seq, .. }) => {
                    entries += mem.entries(seq, visible);
                    return Ok(u64::try_from(entries).unwrap_or(0));
                }
            }
        }
        match self.roots.table(table) {
            Some(below) => Ok(below.entries.saturating_add_signed(entries)),
            None => Err(StorageError::NoSuchTable(table)),
        }
    }

    /// Looks a key up in some of the view's generations, newest first.
    /// Errors: `NoSuchTable`, if the generations hold the table's end.
    fn find<'a>(
        generations: impl Iterator<Item = &'a Arc<Generation>>,
        table: TableId,
        key: &[u8],
        visible: u64,
    ) -> Result<Found<'a>> {
        let hash = hash(table.0, key);
        for generation in generations {
            let has_more = generation.has_more();
            let may_have = generation.may_have(hash);
            if !has_more && !may_have {
                continue;
            }
            let Some(mem) = generation.table(table) else {
                continue;
            };
            // Versions older than this are hidden, here and below.
            let mut floor = 0;
            if has_more {
                if let Some(fate) = mem.fate(visible) {
                    if !fate.exists {
                        return Err(StorageError::NoSuchTable(table));
                    }
                    floor = fate.seq;
                }
                if let Some(cover) = mem.cover(key, floor, visible) {
                    // A put of the same batch after it emptied the range is visible.
                    floor = cover.seq;
                }
            }
            if may_have
                && let Some(version) = generation.version(mem, hash, key, visible)
                && version.seq() >= floor
            {
                return Ok(Found::Version(version));
            }
            if floor > 0 {
                return Ok(Found::Gone);
            }
        }
        Ok(Found::Below)
    }

    /// The value under `key` as of `visible`.
    /// Errors: `NoSuchTable`, and those of the tree.
    pub(super) fn get(&self, table: TableId, key: &[u8], visible: u64) -> Result<Option<Bytes>> {
        match Self::find(self.generations(), table, key, visible)? {
            Found::Version(version) if version.is_deleted() => Ok(None),
            Found::Version(version) => Ok(Some(version.value_bytes())),
            Found::Gone => Ok(None),
            Found::Below => match self.roots.get(table, key)? {
                None if !self.contains_table(table, visible) => {
                    Err(StorageError::NoSuchTable(table))
                }
                value => Ok(value),
            },
        }
    }
}

#[cfg(test)]
#[cfg(all(test, not(explore)))]
mod fake;
#[cfg(all(test, not(explore)))]
mod tests;
