//! Bulk loads: ordered entries, appended in chunks.
//!
//! Each chunk is its own transaction, outside the group: others may write in between, and gathering
//! a chunk (which may read and sort) blocks no writer.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use redb::{CursorError, ReadableTable, WriteTransaction};

use super::errors::{begin_error, commit_error, open_error, other_error, storage_error};
use super::file::{table_name, table_of};
use super::{LENGTH_MAX, Shared};
use crate::batch::WriteBatch;
use crate::engine::{Durability, TableId, TableStats};
use crate::error::{Result, StorageError};

/// Number of bytes that are gathered before they are written.
const CHUNK_BYTES: usize = 8 << 20;

impl Shared {
    /// See [`crate::StorageEngine::bulk_load`]; the caller has found the table empty.
    pub(super) fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        match self.load(table, entries) {
            Ok(count) => {
                self.sync()?;
                Ok(count)
            }
            Err(error) => {
                // Delete the loaded entries. If that fails too, the first error is more useful.
                let mut batch = WriteBatch::new();
                batch.drop_table(table);
                batch.create_table(table);
                let _ = self.submit(batch, Durability::Buffered);
                Err(error)
            }
        }
    }

    /// Runs `write`, which returns the table's new size, in its own transaction outside the group.
    fn write_alone(
        &self,
        table: TableId,
        write: impl FnOnce(&WriteTransaction, TableStats) -> Result<TableStats>,
    ) -> Result<()> {
        self.as_writer(|db| {
            let seq = self.applied.load(Ordering::Acquire) + 1;
            self.begun.store(seq, Ordering::Release);
            let mut txn = db.begin_write().map_err(begin_error)?;
            txn.set_durability(redb::Durability::None)
                .map_err(|error| other_error("begin a transaction", &error))?;
            let Some(before) = self.sizes.read().tables.get(&table).copied() else {
                return Err(StorageError::NoSuchTable(table));
            };
            let after = write(&txn, before)?;
            txn.commit().map_err(commit_error)?;
            let mut sizes = self.sizes.write();
            sizes.tables.insert(table, after);
            sizes.unsaved.insert(table);
            drop(sizes);
            *self.newest.lock() = None;
            self.applied.store(seq, Ordering::Release);
            Ok(())
        })?;
        self.wake_flusher(false);
        Ok(())
    }

    /// Gathers entries and writes them in chunks.
    fn load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        let mut count = 0;
        let mut last: Option<Vec<u8>> = None;
        let mut chunk: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut chunk_bytes = 0;
        loop {
            let entry = entries.next().transpose()?;
            let end = entry.is_none();
            if let Some((key, value)) = entry {
                let last = chunk.last().map(|(key, _)| key).or(last.as_ref());
                if last.is_some_and(|last| *last >= key) {
                    return Err(StorageError::OutOfOrder { position: count });
                }
                let longest = key.len().max(value.len()) as u64;
                if longest > LENGTH_MAX {
                    return Err(StorageError::TooLarge {
                        bytes: longest,
                        limit: LENGTH_MAX,
                    });
                }
                chunk_bytes += key.len() + value.len();
                chunk.push((key, value));
                count += 1;
            }
            if !chunk.is_empty() && (end || chunk_bytes >= CHUNK_BYTES) {
                if !self.has_room(chunk_bytes as u64, 2) {
                    return Err(StorageError::NoSpace {
                        context: "the free disk space has reached the reserve".into(),
                    });
                }
                self.write_alone(table, |txn, before| {
                    append(txn, table, &chunk, before, last.as_deref())
                })?;
                last = chunk.pop().map(|(key, _)| key);
                chunk.clear();
                chunk_bytes = 0;
            }
            if end {
                return Ok(count);
            }
        }
    }
}

/// Appends a chunk at the end of a table whose last key is `last`.
fn append(
    txn: &WriteTransaction,
    table: TableId,
    chunk: &[(Vec<u8>, Vec<u8>)],
    before: TableStats,
    last: Option<&[u8]>,
) -> Result<TableStats> {
    let write = |error| storage_error("bulk load", error);
    let name = table_name(table);
    let mut rows = txn
        .open_table(table_of(&name))
        .map_err(|error| open_error("bulk load", error))?;
    let found = rows.last().map_err(write)?;
    if found.as_ref().map(|(key, _)| key.value()) != last {
        return Err(StorageError::TableNotEmpty(table));
    }
    drop(found);
    let mut stats = before;
    let mut end = rows
        .upper_bound_mut(Bound::<&[u8]>::Unbounded)
        .map_err(write)?;
    for (key, value) in chunk {
        end.insert_before(&key[..], &value[..])
            .map_err(|error| match error {
                CursorError::Storage(error) => write(error),
                error => other_error("bulk load", &error),
            })?;
        stats.entries += 1;
        stats.key_bytes += key.len() as u64;
        stats.value_bytes += value.len() as u64;
    }
    end.close().map_err(write)?;
    Ok(stats)
}
