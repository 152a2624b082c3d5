//! A set of writes to any number of tables, applied atomically.
//!
//! Operations take effect in the order of the calls. They are stored in a normalised form, which
//! engines apply and in which a unit of work reads its own writes: for each table its fate, then
//! the deleted ranges, then the keys, sorted.
//!
//! ```text
//!   put(7, "b", 1)  delete_range(7, "a".."c")  put(7, "b", 2)  delete(7, "x")
//!
//!   table 7:  fate Kept   ranges ["a", "c")   keys {b: Put 2, x: Delete}
//! ```
//!
//! Invariant: applying fate, then ranges, then keys gives the same result as the sequence of calls.
//! A range therefore removes the keys that it covers from `keys`, and a drop removes both.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::engine::TableId;
use crate::error::{Result, StorageError};

/// What a batch does to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyWrite {
    /// Sets the value of the key.
    Put(Bytes),
    /// Removes the key, if it exists.
    Delete,
}

/// What the writer knows about a key's state before a batch. With it, engines that count entries
/// and bytes need not look the key up.
///
/// A hint concerns the state before the whole batch, and is used only if the table is
/// [`TableFate::Kept`] and no range of the batch covers the key. A false hint corrupts the table's
/// sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prior {
    /// Unknown: the engine looks the key up if it needs to.
    #[default]
    Unknown,
    /// The key did not exist.
    Absent,
    /// The key existed.
    Present {
        /// Length in bytes of its value.
        value_len: u32,
    },
}

impl Prior {
    /// The key existed with this value.
    pub fn value(value: &[u8]) -> Prior {
        match u32::try_from(value.len()) {
            Ok(value_len) => Prior::Present { value_len },
            Err(_) => Prior::Unknown,
        }
    }
}

/// A write to a key, and what is known of its previous state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The combined effect of the batch's operations on the key.
    pub write: KeyWrite,
    /// What is known of the key before the batch.
    pub prior: Prior,
    /// The value that the key had before the batch, if the writer has given it
    /// ([`WriteBatch::put_over`]): an engine may then log only the difference. Used under the same
    /// conditions as `prior`.
    pub base: Option<Bytes>,
}

/// Values shorter than this are not worth keeping as a base.
const BASE_MIN: usize = 64;
/// Maximum bytes of bases that a batch keeps.
const BASES_BYTES_MAX: u64 = 32 << 20;
/// Number of puts after which bases are copied, so that a large batch does not pin many of the
/// engine's pages.
const BASES_PINNED_MAX: u64 = 256;

/// What a batch does to a table as a whole, before its ranges and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableFate {
    /// The table must exist and keeps its entries.
    #[default]
    Kept,
    /// The table must not exist, and is created.
    Created,
    /// The table must exist, and is dropped. Has neither ranges nor keys.
    Dropped,
    /// The table must exist, and is replaced by an empty one.
    Replaced,
    /// The table must not exist; it is created and dropped again. Has neither ranges nor keys.
    Transient,
}

impl TableFate {
    /// Whether the table exists after the batch.
    pub fn exists_after(self) -> bool {
        match self {
            TableFate::Kept | TableFate::Created | TableFate::Replaced => true,
            TableFate::Dropped | TableFate::Transient => false,
        }
    }

    /// Whether the table must exist before the batch.
    pub fn exists_before(self) -> bool {
        match self {
            TableFate::Kept | TableFate::Dropped | TableFate::Replaced => true,
            TableFate::Created | TableFate::Transient => false,
        }
    }
}

/// Key ranges, sorted and not empty; they neither overlap nor touch.
///
/// The upper end is exclusive; `None` is the end of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRanges(BTreeMap<Bytes, Option<Bytes>>);

impl KeyRanges {
    /// Adds `[lo, hi)`, joined with the ranges that it overlaps or touches. An empty range adds
    /// nothing.
    pub fn add(&mut self, lo: Bytes, hi: Option<Bytes>) {
        if hi.as_ref().is_some_and(|hi| *hi <= lo) {
            return;
        }
        let (mut lo, mut hi) = (lo, hi);
        // A range that begins before the new one and reaches it.
        if let Some((before_lo, before_hi)) = self.0.range(..lo.clone()).next_back()
            && before_hi.as_ref().is_none_or(|end| *end >= lo)
        {
            lo = before_lo.clone();
        }
        // Every range that begins inside the new one or at its end.
        while let Some((next_lo, next_hi)) = self.0.range(lo.clone()..).next() {
            if hi.as_ref().is_some_and(|hi| next_lo > hi) {
                break;
            }
            hi = match (hi, next_hi.clone()) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
            let next_lo = next_lo.clone();
            self.0.remove(&next_lo);
        }
        debug_assert!(
            self.is_separate(&lo, hi.as_ref()),
            "ranges overlap or touch"
        );
        self.0.insert(lo, hi);
    }

    /// Whether `[lo, hi)` is not empty and neither overlaps nor touches another range.
    fn is_separate(&self, lo: &Bytes, hi: Option<&Bytes>) -> bool {
        let before = self.0.range(..lo.clone()).next_back();
        let after = self.0.range(lo.clone()..).next();
        hi.is_none_or(|hi| lo < hi)
            && before.is_none_or(|(_, end)| end.as_ref().is_some_and(|end| end < lo))
            && after.is_none_or(|(next, _)| hi.is_some_and(|hi| hi < next))
    }

    /// The range that covers `key`: its lower end, and its upper end (exclusive); `None` if there
    /// is none.
    pub fn covering(&self, key: &[u8]) -> Option<(&Bytes, Option<&Bytes>)> {
        let (lo, hi) = self
            .0
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
            .next_back()?;
        match hi {
            Some(hi) if hi.as_ref() <= key => None,
            hi => Some((lo, hi.as_ref())),
        }
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.0.iter().map(|(lo, hi)| (lo, hi.as_ref()))
    }

    /// Whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a batch does to one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableWrites {
    fate: TableFate,
    ranges: KeyRanges,
    keys: BTreeMap<Bytes, KeyChange>,
}

impl TableWrites {
    /// What happens to the table as a whole, before ranges and keys.
    pub fn fate(&self) -> TableFate {
        self.fate
    }

    /// The ranges that are deleted, before the keys are written.
    pub fn ranges(&self) -> &KeyRanges {
        &self.ranges
    }

    /// The keys written, ascending.
    pub fn keys(&self) -> &BTreeMap<Bytes, KeyChange> {
        &self.keys
    }

    /// Whether an entry that existed before the batch is kept by the table's fate and the ranges.
    /// `keys` may still replace or delete it.
    pub fn keeps(&self, key: &[u8]) -> bool {
        self.fate == TableFate::Kept && self.ranges.covering(key).is_none()
    }
}

/// A set of writes to any number of tables. See the module's head for the order of operations.
///
/// A clone is cheap and shares the tables' writes until either side changes them.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    tables: BTreeMap<TableId, Arc<TableWrites>>,
    totals: Totals,
}

/// The totals of a batch, including operations that later ones override.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    operations: u64,
    bytes: u64,
    puts: u64,
    /// Bytes of the bases that are kept.
    base_bytes: u64,
    /// The first operation that contradicts an earlier one of the same batch, such as a put into a
    /// table that the batch has dropped. Returned by `apply`.
    contradiction: Option<StorageError>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets the value of `key`, whether or not it exists.
    pub fn put(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>) {
        self.put_with(table, key, value, Prior::Unknown);
    }

    /// Sets the value of `key`, which must not exist.
    pub fn insert_new(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>) {
        self.put_with(table, key, value, Prior::Absent);
    }

    /// Like [`WriteBatch::put`], with what is known of the key.
    pub fn put_with(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>, prior: Prior) {
        let write = KeyWrite::Put(value.into());
        self.write(table, Bytes::copy_from_slice(key), write, prior, None);
    }

    /// Replaces the value `base` of `key`. It must be the key's value when the batch is applied:
    /// the caller has locked the key, or there is no other writer of it. An engine may log only the
    /// difference, and a log written with a false base cannot be read.
    pub fn put_over(&mut self, table: TableId, key: &[u8], value: impl Into<Bytes>, base: &Bytes) {
        let write = KeyWrite::Put(value.into());
        let prior = Prior::value(base);
        let key = Bytes::copy_from_slice(key);
        self.write(table, key, write, prior, Some(base));
    }

    /// Removes `key`, if it exists.
    pub fn delete(&mut self, table: TableId, key: &[u8]) {
        self.delete_with(table, key, Prior::Unknown);
    }

    /// Like [`WriteBatch::delete`], with what is known of the key.
    pub fn delete_with(&mut self, table: TableId, key: &[u8], prior: Prior) {
        let key = Bytes::copy_from_slice(key);
        self.write(table, key, KeyWrite::Delete, prior, None);
    }

    /// Removes the keys in `[lo, hi)`; `None` is the end of the table.
    pub fn delete_range(&mut self, table: TableId, lo: &[u8], hi: Option<&[u8]>) {
        self.count(lo.len() + hi.map_or(0, <[u8]>::len));
        if let Some(writes) = self.writable(table) {
            if hi.is_some_and(|hi| hi <= lo) {
                return;
            }
            let upper = hi.map_or(Bound::Unbounded, Bound::Excluded);
            let covered: Vec<Bytes> = writes
                .keys
                .range::<[u8], _>((Bound::Included(lo), upper))
                .map(|(key, _)| key.clone())
                .collect();
            for key in covered {
                writes.keys.remove(&key);
            }
            writes
                .ranges
                .add(Bytes::copy_from_slice(lo), hi.map(Bytes::copy_from_slice));
        }
    }

    /// Creates an empty table, to which later operations of the batch may write. It must not exist.
    pub fn create_table(&mut self, table: TableId) {
        self.count(0);
        match self.tables.entry(table) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Arc::new(TableWrites {
                    fate: TableFate::Created,
                    ..TableWrites::default()
                }));
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let fate = match occupied.get().fate {
                    TableFate::Dropped => TableFate::Replaced,
                    TableFate::Transient => TableFate::Created,
                    TableFate::Kept | TableFate::Created | TableFate::Replaced => {
                        self.totals
                            .contradiction
                            .get_or_insert(StorageError::TableExists(table));
                        return;
                    }
                };
                Arc::make_mut(occupied.get_mut()).fate = fate;
            }
        }
    }

    /// Drops a table with all its entries. It must exist. The catalog's table cannot be dropped.
    pub fn drop_table(&mut self, table: TableId) {
        self.count(0);
        if table == TableId::CATALOG {
            self.totals
                .contradiction
                .get_or_insert(StorageError::NoSuchTable(table));
            return;
        }
        match self.tables.entry(table) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Arc::new(TableWrites {
                    fate: TableFate::Dropped,
                    ..TableWrites::default()
                }));
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let fate = match occupied.get().fate {
                    TableFate::Created => TableFate::Transient,
                    TableFate::Kept | TableFate::Replaced => TableFate::Dropped,
                    TableFate::Dropped | TableFate::Transient => {
                        self.totals
                            .contradiction
                            .get_or_insert(StorageError::NoSuchTable(table));
                        return;
                    }
                };
                *occupied.get_mut() = Arc::new(TableWrites {
                    fate,
                    ..TableWrites::default()
                });
            }
        }
    }

    /// Appends the operations of a later batch: applying the result has the same effect as applying
    /// both.
    pub(crate) fn then(&mut self, later: WriteBatch) {
        if let Some(error) = later.totals.contradiction {
            self.totals.contradiction.get_or_insert(error);
        }
        for (table, writes) in later.tables {
            match writes.fate {
                TableFate::Kept => {}
                TableFate::Created => self.create_table(table),
                TableFate::Dropped => self.drop_table(table),
                TableFate::Replaced => {
                    self.drop_table(table);
                    self.create_table(table);
                }
                TableFate::Transient => {
                    self.create_table(table);
                    self.drop_table(table);
                }
            }
            let TableWrites { ranges, keys, .. } = Arc::unwrap_or_clone(writes);
            for (lo, hi) in ranges.iter() {
                self.delete_range(table, lo, hi.map(|hi| &hi[..]));
            }
            for (key, KeyChange { write, prior, base }) in keys {
                self.write(table, key, write, prior, base.as_ref());
            }
        }
    }

    /// Whether there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.totals.contradiction.is_none()
    }

    /// Number of operations, including those that later ones override.
    pub fn operations(&self) -> u64 {
        self.totals.operations
    }

    /// Number of puts: a batch without puts needs next to no space.
    pub fn puts(&self) -> u64 {
        self.totals.puts
    }

    /// Whether the batch frees space, judging by its keys: it drops a table, deletes ranges, or
    /// removes at least as many keys as it puts. A removal also puts an oplog entry and the record
    /// of a retryable write, which must not make it count as a write that needs space.
    pub fn makes_room(&self) -> bool {
        let (mut puts, mut removed) = (0u64, 0u64);
        for (_, writes) in self.tables() {
            if matches!(writes.fate, TableFate::Dropped | TableFate::Replaced)
                || !writes.ranges.is_empty()
            {
                return true;
            }
            for change in writes.keys.values() {
                match change.write {
                    KeyWrite::Put(_) => puts += 1,
                    KeyWrite::Delete => removed += 1,
                }
            }
        }
        puts <= removed
    }

    /// Bytes of keys and values in all operations.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// The writes to each table, ascending by table.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &TableWrites)> {
        self.tables
            .iter()
            .map(|(table, writes)| (*table, &**writes))
    }

    /// The writes to one table; `None` if the batch has none.
    pub fn table(&self, table: TableId) -> Option<&Arc<TableWrites>> {
        self.tables.get(&table)
    }

    /// Checks the batch against the existing tables, before anything is applied.
    /// Errors: `NoSuchTable`, `TableExists`.
    pub fn check(&self, exists: &mut dyn FnMut(TableId) -> bool) -> Result<()> {
        if let Some(error) = &self.totals.contradiction {
            return Err(error.clone());
        }
        for (table, writes) in self.tables() {
            match (writes.fate.exists_before(), exists(table)) {
                (true, false) => return Err(StorageError::NoSuchTable(table)),
                (false, true) => return Err(StorageError::TableExists(table)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes one key and returns the batch's earlier write of it. If a key is written several
    /// times, the hint and base of the first write are kept: only those describe the state before
    /// the batch.
    pub(crate) fn write(
        &mut self,
        table: TableId,
        key: Bytes,
        write: KeyWrite,
        prior: Prior,
        base: Option<&Bytes>,
    ) -> Option<KeyChange> {
        let value_len = match &write {
            KeyWrite::Put(value) => {
                self.totals.puts += 1;
                value.len()
            }
            KeyWrite::Delete => 0,
        };
        self.count(key.len() + value_len);
        let base = base.and_then(|base| self.remember(base, value_len));
        match self.writable(table)?.keys.entry(key) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(KeyChange { write, prior, base });
                None
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let forgotten = base.map_or(0, |base| base.len() as u64);
                let KeyChange { prior, base, .. } = occupied.get().clone();
                let before = occupied.insert(KeyChange { write, prior, base });
                debug_assert!(self.totals.base_bytes >= forgotten);
                self.totals.base_bytes -= forgotten;
                Some(before)
            }
        }
    }

    /// The base to keep, or `None` if it is too small or too many bytes are kept already.
    fn remember(&mut self, base: &Bytes, value_len: usize) -> Option<Bytes> {
        let bytes = base.len() as u64;
        if base.len().min(value_len) < BASE_MIN || self.totals.base_bytes + bytes > BASES_BYTES_MAX
        {
            return None;
        }
        self.totals.base_bytes += bytes;
        Some(match self.totals.puts > BASES_PINNED_MAX {
            true => Bytes::copy_from_slice(base),
            false => base.clone(),
        })
    }

    /// Undoes a [`WriteBatch::write`]: `before` is its result.
    pub(crate) fn unwrite(&mut self, table: TableId, key: &Bytes, before: Option<KeyChange>) {
        if let Some(writes) = self.tables.get_mut(&table) {
            let writes = Arc::make_mut(writes);
            match before {
                Some(before) => writes.keys.insert(key.clone(), before),
                None => writes.keys.remove(key),
            };
            // Without writes the table must not be checked for existence either.
            if writes.fate == TableFate::Kept && writes.keys.is_empty() && writes.ranges.is_empty()
            {
                self.tables.remove(&table);
            }
        }
    }

    /// Restores a table's writes; `None` removes them.
    pub(crate) fn restore_table(&mut self, table: TableId, writes: Option<Arc<TableWrites>>) {
        match writes {
            Some(writes) => self.tables.insert(table, writes),
            None => self.tables.remove(&table),
        };
    }

    /// The totals, for [`WriteBatch::restore_totals`].
    pub(crate) fn totals(&self) -> Totals {
        self.totals.clone()
    }

    /// Restores the result of [`WriteBatch::totals`].
    pub(crate) fn restore_totals(&mut self, totals: Totals) {
        self.totals = totals;
    }

    fn count(&mut self, bytes: usize) {
        self.totals.operations += 1;
        self.totals.bytes += bytes as u64;
    }

    /// The mutable writes of the table; if the batch has dropped it, `None`, and the contradiction
    /// is recorded.
    fn writable(&mut self, table: TableId) -> Option<&mut TableWrites> {
        let writes = self.tables.entry(table).or_default();
        if !writes.fate.exists_after() {
            self.totals
                .contradiction
                .get_or_insert(StorageError::NoSuchTable(table));
            return None;
        }
        Some(Arc::make_mut(writes))
    }
}
