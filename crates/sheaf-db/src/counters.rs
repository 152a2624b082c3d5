//! Numbers a collection keeps: the next RecordId, and how much there is.
//!
//! How many documents and bytes a table has, the storage engine knows exactly and at once, of the
//! newest committed state, also after a crash: its figures change in the same atomic step as the
//! data. So no second count is kept here that could come to differ.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use sheaf_bson::{RecordId, Result};
use sheaf_storage::{Storage, TableId, TableStats};

use crate::damage::not_a_record_id;
use crate::record_key::record_id_of;
use crate::storage_error::IntoClientError;

/// Gives out RecordIds, each greater than all before it, whether or not its record is ever committed.
///
/// The first one after a start is found by looking at the table's last record. Every writer of the
/// collection does so before it writes, so a last record that was deleted since has been counted.
#[derive(Debug, Default)]
pub struct RecordIdSource {
    /// The next id; 0 while the table has not been looked at.
    next: AtomicI64,
    recovering: Mutex<()>,
}

impl RecordIdSource {
    /// Of a table that is being created: there is nothing to look at.
    pub fn of_new_table() -> RecordIdSource {
        RecordIdSource {
            next: AtomicI64::new(1),
            recovering: Mutex::default(),
        }
    }

    /// Looks at the table unless that has been done. To be called before anything is written to it.
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
        // Records of clustered collections have no numbers, and nobody asks for any.
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

    /// The next `n` ids: the first of them. Only after [`RecordIdSource::recover`].
    pub fn take(&self, n: u64) -> RecordId {
        debug_assert_ne!(
            self.next.load(Ordering::Acquire),
            0,
            "the table was not looked at"
        );
        RecordId::new(self.next.fetch_add(n as i64, Ordering::AcqRel))
    }
}

/// How much a collection holds, of the newest committed state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectionSize {
    /// Documents.
    pub count: u64,
    /// Bytes of all documents.
    pub data_bytes: u64,
    /// Bytes on disk for them, as the engine estimates.
    pub storage_bytes: u64,
}

impl CollectionSize {
    /// Asks the engine.
    pub fn of(storage: &Storage, table: TableId) -> Result<CollectionSize> {
        let stats = storage.engine().table_stats(table).into_client_error()?;
        Ok(CollectionSize {
            count: stats.entries,
            data_bytes: stats.value_bytes,
            storage_bytes: storage_bytes(&stats),
        })
    }

    /// Bytes of a mean document; 0 for an empty collection.
    pub fn document_bytes_mean(&self) -> u64 {
        self.data_bytes.checked_div(self.count).unwrap_or(0)
    }
}

/// What a table takes; of an engine without files, its bytes in memory.
pub(crate) fn storage_bytes(stats: &TableStats) -> u64 {
    match stats.disk_bytes {
        0 => stats.key_bytes + stats.value_bytes,
        bytes => bytes,
    }
}
