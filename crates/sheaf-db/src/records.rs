//! Records: a collection's documents under their record ids.
//!
//! ```text
//!   table of the collection:  record id, 8 bytes  ->  the document's bytes
//! ```
//!
//! Bytes leave here as a document or as an error: callers need not check them again.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::Error;
use sheaf_bson::{RawDoc, RecordId};
use sheaf_storage::{Cursor, Snapshot};

use crate::collection::Collection;
use crate::damage::{in_record, missing_record, not_a_record_id};
use crate::record_key::{record_id_of, record_key};
use crate::storage_error::Coded;

/// The record `id` of `collection` as of `snapshot`, or `None`. Its bytes are a document.
/// Errors: `DataCorruptionDetected` when they are not; the engine's.
#[inline]
pub fn read(
    snapshot: &dyn Snapshot,
    collection: &Collection,
    id: &RecordId,
) -> Result<Option<Bytes>, Error> {
    let found = snapshot.get(collection.table(), &record_key(id)).coded()?;
    if let Some(bytes) = &found {
        RawDoc::stored(bytes).map_err(|e| collection.report_damage(in_record(e, id)))?;
    }
    Ok(found)
}

/// Reads single records of one collection as of one snapshot.
#[derive(Clone)]
pub struct RecordReader {
    snapshot: Arc<dyn Snapshot>,
    collection: Arc<Collection>,
}

impl RecordReader {
    /// Reads the records of `collection` through `snapshot`.
    pub fn new(snapshot: Arc<dyn Snapshot>, collection: Arc<Collection>) -> Self {
        RecordReader {
            snapshot,
            collection,
        }
    }

    /// As [`read`].
    #[inline]
    pub fn get(&self, id: &RecordId) -> Result<Option<Bytes>, Error> {
        read(&*self.snapshot, &self.collection, id)
    }

    /// The record that an entry of `index` refers to.
    /// Errors: as [`read`], and `DataCorruptionDetected` when it does not exist.
    #[inline]
    pub fn get_indexed(
        &self,
        id: &RecordId,
        index: impl FnOnce() -> String,
    ) -> Result<Bytes, Error> {
        match self.get(id)? {
            Some(bytes) => Ok(bytes),
            None => Err(self.collection.report_damage(missing_record(&index(), id))),
        }
    }
}

/// Walks the records of one collection in either direction.
pub struct RecordCursor {
    cursor: Box<dyn Cursor>,
    collection: Arc<Collection>,
}

impl RecordCursor {
    /// Not positioned yet.
    pub fn new(snapshot: &Arc<dyn Snapshot>, collection: &Arc<Collection>) -> Result<Self, Error> {
        Ok(RecordCursor {
            cursor: snapshot.cursor(collection.table()).coded()?,
            collection: collection.clone(),
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

    /// No move may follow for a while; see [`Cursor::suspend`].
    pub fn rest(&mut self) {
        self.cursor.suspend();
    }

    /// The record's id.
    /// Errors: `DataCorruptionDetected` when the key is none.
    #[inline]
    pub fn record_id(&self) -> Result<RecordId, Error> {
        let key = self.cursor.key();
        record_id_of(key).ok_or_else(|| self.collection.report_damage(not_a_record_id(key)))
    }

    /// The document, until the next move.
    /// Errors: `DataCorruptionDetected` when the bytes are none.
    #[inline]
    pub fn document(&self) -> Result<RawDoc<'_>, Error> {
        RawDoc::stored(self.cursor.value()).map_err(|e| match self.record_id() {
            Ok(id) => self.collection.report_damage(in_record(e, &id)),
            Err(no_record) => no_record,
        })
    }

    /// Bytes of the document.
    #[inline]
    pub fn value_len(&self) -> usize {
        self.cursor.value().len()
    }

    /// The bytes of [`RecordCursor::document`], to keep.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        self.cursor.value_bytes()
    }
}
