//! Numbers per collection: the next RecordId, and the size.
//!
//! The storage engine knows the number of documents and bytes of a table exactly and at no cost,
//! for the newest committed state, even after a crash: its counters change atomically with the
//! data. So there is no second count here that could diverge.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use sheaf_bson::{RecordId, Result};
use sheaf_storage::{Storage, TableId, TableStats};

use crate::damage::not_a_record_id;
use crate::record_key::record_id_of;
use crate::storage_error::IntoClientError;

/// Issues RecordIds, each greater than all before, whether or not its record is ever committed.
///
/// After a start, the first id is derived from the table's last record. Every writer of the
/// collection does so before it writes, so a last record deleted since then has been taken into
/// account.
#[derive(Debug, Default)]
pub struct RecordIdSource {
    /// The next id; 0 until recovered from the table.
    next: AtomicI64,
    recovering: Mutex<()>,
}

impl RecordIdSource {
    /// For a table being created: there is nothing to recover.
    pub fn of_new_table() -> RecordIdSource {
        RecordIdSource {
            next: AtomicI64::new(1),
            recovering: Mutex::default(),
        }
    }

    /// Recovers the next id from the table, once. Must be called before anything is written to it.
    pub fn recover(&self, storage: &Storage, table: TableId) -> Result<()> {
        if self.next.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let _one = self.recovering.lock();
        if self.next.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let snapshot = storage.snapshot().into_client_error()?;
        let mut cursor = snapshot.cursor(table).into_client_error()?;
        // Records of clustered collections have no numbers, and their ids are never issued here.
        let last = match cursor.seek_last().into_client_error()? {
            true => record_id_of(cursor.key())
                .ok_or_else(|| not_a_record_id(cursor.key()))?
                .number()
                .unwrap_or(0),
            false => 0,
        };
        self.next.store(last + 1, Ordering::Release);
        Ok(())
    }

    /// Issues `n` consecutive ids; returns the first. Call [`RecordIdSource::recover`] before.
    pub fn take(&self, n: u64) -> RecordId {
        debug_assert_ne!(
            self.next.load(Ordering::Acquire),
            0,
            "the table was not looked at"
        );
        RecordId::new(self.next.fetch_add(n as i64, Ordering::AcqRel))
    }
}

/// Size of a collection at its newest committed state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectionSize {
    /// Number of documents.
    pub count: u64,
    /// Total size of the documents, in bytes.
    pub data_bytes: u64,
    /// Bytes on disk, estimated by the engine.
    pub storage_bytes: u64,
}

impl CollectionSize {
    /// Reads the size from the engine.
    pub fn of(storage: &Storage, table: TableId) -> Result<CollectionSize> {
        let stats = storage.engine().table_stats(table).into_client_error()?;
        Ok(CollectionSize {
            count: stats.entries,
            data_bytes: stats.value_bytes,
            storage_bytes: storage_bytes(&stats),
        })
    }

    /// Mean document size in bytes; 0 for an empty collection.
    pub fn document_bytes_mean(&self) -> u64 {
        self.data_bytes.checked_div(self.count).unwrap_or(0)
    }
}

/// Bytes that a table occupies on disk; in memory, for an engine without files.
pub(crate) fn storage_bytes(stats: &TableStats) -> u64 {
    match stats.disk_bytes {
        0 => stats.key_bytes + stats.value_bytes,
        bytes => bytes,
    }
}
