//! Inserts a batch into the active generation, and updates the sizes of its tables.
//!
//! To keep the sizes exact, the previous state of each key must be known:
//!
//! ```text
//!   an older version in the generation itself    adjacent in the list: free
//!   a hint in the batch                          free
//!   otherwise                                    look-up below: filters first, then the tree
//! ```
//!
//! A version that is inserted below a newer one does not change the sizes: the newer one was
//! counted against the state below both.

use std::sync::Arc;

use super::cursor::Merged;
use super::{Base, Found, View};
use crate::batch::{KeyRanges, KeyWrite, Prior, TableFate, TableWrites, WriteBatch};
use crate::disk::logtree::memtable::{Delta, Met, TableMem, Writer};
use crate::engine::{Cursor, TableId};
use crate::error::Result;

impl<R: Base> View<R> {
    /// Inserts a batch, which has been checked against the existing tables, under its sequence. May
    /// be called from any number of threads; the sequence must be unique and greater than all in
    /// the frozen generations.
    ///
    /// Sizes are exact as long as two batches with the same key are not inserted concurrently. If
    /// the tree cannot be read, only the sizes are wrong, until the next checkpoint recounts.
    pub(in crate::disk::logtree) fn insert(self: &Arc<Self>, seq: u64, batch: &WriteBatch) {
        let mut writer = self.active.writer(seq);
        for (table, writes) in batch.tables() {
            if writes.fate() != TableFate::Transient {
                let mem = writer.table(table);
                self.insert_table(&mut writer, seq, mem, writes);
            }
        }
    }

    fn insert_table<'g>(
        self: &Arc<Self>,
        writer: &mut Writer<'g>,
        seq: u64,
        mem: &'g TableMem,
        writes: &TableWrites,
    ) {
        match writes.fate() {
            TableFate::Kept => {}
            TableFate::Created | TableFate::Replaced => writer.fate(mem, true),
            TableFate::Dropped | TableFate::Transient => {
                writer.fate(mem, false);
                return;
            }
        }
        let mut delta = Delta::default();
        for (lo, hi) in writes.ranges().iter() {
            if lo.is_empty() && hi.is_none() {
                // Deleting the whole table's range is equivalent to recreating the table.
                writer.fate(mem, true);
            } else {
                if writes.fate() == TableFate::Kept {
                    // If the tree cannot be read, count the entries up to there.
                    let hi_key = hi.map(|hi| &hi[..]);
                    let _ = self.count_range(mem.id(), lo, hi_key, seq - 1, &mut delta);
                }
                writer.range(mem, lo, hi);
            }
        }
        let keys = writes.keys().iter().map(|(key, change)| {
            let value = match &change.write {
                KeyWrite::Put(value) => Some(value),
                KeyWrite::Delete => None,
            };
            (&key[..], value, change.prior)
        });
        let floor = mem.fate(seq).map_or(0, |fate| fate.seq);
        let own_ranges = writes.ranges();
        writer.keys(mem, keys, |key, value, prior, met| {
            let before = match met {
                Met::Newer => return,
                Met::Older(version) if version.seq() < floor => None,
                Met::Older(version) => match mem.cover(key, floor, seq) {
                    Some(cover) if cover.seq > version.seq() => None,
                    _ => version.value_len(),
                },
                Met::Nothing if floor > 0 => None,
                Met::Nothing => self.value_len_below(mem, key, prior, own_ranges, seq),
            };
            delta.add(key, before, value.map(|value| value.len()));
        });
        writer.resize(mem, delta);
    }

    /// The length of the previous value of a key of which the active generation has no version.
    fn value_len_below(
        &self,
        mem: &TableMem,
        key: &[u8],
        prior: Prior,
        own_ranges: &KeyRanges,
        seq: u64,
    ) -> Option<usize> {
        if own_ranges.covering(key).is_some() {
            return None;
        }
        match prior {
            Prior::Absent => None,
            Prior::Present { value_len } => Some(value_len as usize),
            // A range of an earlier batch in this generation has deleted the key.
            Prior::Unknown if mem.cover(key, 0, seq).is_some() => None,
            Prior::Unknown => {
                let table = mem.id();
                match Self::find(self.frozen.iter(), table, key, u64::MAX) {
                    Ok(Found::Version(version)) => version.value_len(),
                    Ok(Found::Gone) | Err(_) => None,
                    Ok(Found::Below) => self.roots.value_len(table, key).unwrap_or(None),
                }
            }
        }
    }

    /// Subtracts the entries of a range, as of `visible`, from the table's size.
    fn count_range(
        self: &Arc<Self>,
        table: TableId,
        lo: &[u8],
        hi: Option<&[u8]>,
        visible: u64,
        delta: &mut Delta,
    ) -> Result<()> {
        // SAFETY: the walk ends with this call, and the view is borrowed for longer.
        let mut entries = unsafe { Merged::new(self, table, visible)? }.without_notes();
        let mut found = entries.seek(lo)?;
        while found && hi.is_none_or(|hi| entries.key() < hi) {
            delta.add(entries.key(), Some(entries.value().len()), None);
            found = entries.next()?;
        }
        Ok(())
    }
}
