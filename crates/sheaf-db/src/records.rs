//! Records: a collection's documents under their record ids.
//!
//! ```text
//!   table of the collection:  record id, 8 bytes  ->  the document's bytes
//! ```

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::RecordId;
use sheaf_bson::error_code::Error;
use sheaf_bson::record_id::RecordKeyBytes;
use sheaf_storage::{Cursor, Snapshot, TableId};

use crate::storage_error::Coded;

/// The key of a record: keys in byte order are records in order of insertion.
#[inline]
pub fn record_key(id: &RecordId) -> RecordKeyBytes {
    id.to_key()
}

/// The inverse of [`record_key`]; `None` for what no record is stored under.
#[inline]
pub fn record_id_of(key: &[u8]) -> Option<RecordId> {
    RecordId::from_key(key)
}

/// Reads single records of one collection as of one snapshot.
#[derive(Clone)]
pub struct RecordReader {
    snapshot: Arc<dyn Snapshot>,
    table: TableId,
}

impl RecordReader {
    /// Reads `table` through `snapshot`.
    pub fn new(snapshot: Arc<dyn Snapshot>, table: TableId) -> Self {
        RecordReader { snapshot, table }
    }

    /// The record, or `None`.
    #[inline]
    pub fn get(&self, id: &RecordId) -> Result<Option<Bytes>, Error> {
        self.snapshot.get(self.table, &record_key(id)).coded()
    }
}

/// Walks the records of one collection in either direction.
pub struct RecordCursor {
    cursor: Box<dyn Cursor>,
}

impl RecordCursor {
    /// Not positioned yet.
    pub fn new(snapshot: &Arc<dyn Snapshot>, table: TableId) -> Result<Self, Error> {
        Ok(RecordCursor {
            cursor: snapshot.cursor(table).coded()?,
        })
    }

    /// To the first record.
    pub fn first(&mut self) -> Result<bool, Error> {
        self.cursor.seek_first().coded()
    }

    /// To the last record.
    pub fn last(&mut self) -> Result<bool, Error> {
        self.cursor.seek_last().coded()
    }

    /// To the first record from this one on.
    pub fn seek(&mut self, id: &RecordId) -> Result<bool, Error> {
        self.cursor.seek(&record_key(id)).coded()
    }

    /// To the next record.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<bool, Error> {
        self.cursor.next().coded()
    }

    /// To the previous record.
    #[inline]
    pub fn prev(&mut self) -> Result<bool, Error> {
        self.cursor.prev().coded()
    }

    /// No move may follow for a while; see [`Cursor::rest`].
    pub fn rest(&mut self) {
        self.cursor.rest();
    }

    /// The record's id.
    #[inline]
    pub fn record_id(&self) -> RecordId {
        record_id_of(self.cursor.key()).unwrap_or(RecordId::MIN)
    }

    /// The document's bytes, until the next move.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// The document's bytes, to keep.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        self.cursor.value_bytes()
    }
}
