//! Records: a collection's documents, keyed by record id.
//!
//! ```text
//!   table of the collection:  record id, 8 bytes  ->  the document's bytes
//! ```
//!
//! Every read returns a valid document or an error: callers need not check the bytes again.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::Error;
use sheaf_bson::{RawDoc, RecordId};
use sheaf_storage::{Cursor, Snapshot};

use crate::collection::Collection;
use crate::damage::{in_record, missing_record, not_a_record_id};
use crate::record_key::{record_id_of, record_key};
use crate::storage_error::IntoClientError;

/// Reads the record `id` of `collection` at `snapshot`. Returned bytes are a valid document.
/// Errors: `DataCorruptionDetected` if the stored bytes are not; those of the storage engine.
#[inline]
pub fn read(
    snapshot: &dyn Snapshot,
    collection: &Collection,
    id: &RecordId,
) -> Result<Option<Bytes>, Error> {
    let found = snapshot
        .get(collection.table(), &record_key(id))
        .into_client_error()?;
    match &found {
        Some(bytes) => match RawDoc::stored(bytes) {
            Ok(_) => Ok(found),
            Err(error) => Err(damaged(collection, error, id)),
        },
        None => Ok(None),
    }
}

#[cold]
fn damaged(collection: &Collection, error: Error, id: &RecordId) -> Error {
    collection.report_damage(in_record(error, id))
}

/// Reads single records of one collection at one snapshot.
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

    /// Like [`read`].
    #[inline]
    pub fn get(&self, id: &RecordId) -> Result<Option<Bytes>, Error> {
        read(&*self.snapshot, &self.collection, id)
    }

    /// Reads the record that an entry of `index` refers to.
    /// Errors: those of [`read`], and `DataCorruptionDetected` if it does not exist.
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

/// Iterates over the records of one collection in either direction.
pub struct RecordCursor {
    cursor: Box<dyn Cursor>,
    collection: Arc<Collection>,
}

impl RecordCursor {
    /// Creates an unpositioned cursor.
    pub fn new(snapshot: &Arc<dyn Snapshot>, collection: &Arc<Collection>) -> Result<Self, Error> {
        Ok(RecordCursor {
            cursor: snapshot.cursor(collection.table()).into_client_error()?,
            collection: collection.clone(),
        })
    }

    /// Moves to the first record. Returns false if there is none.
    pub fn first(&mut self) -> Result<bool, Error> {
        self.cursor.seek_first().into_client_error()
    }

    /// Moves to the last record. Returns false if there is none.
    pub fn last(&mut self) -> Result<bool, Error> {
        self.cursor.seek_last().into_client_error()
    }

    /// Moves to the first record with an id of at least `id`. Returns false if there is none.
    pub fn seek(&mut self, id: &RecordId) -> Result<bool, Error> {
        self.cursor.seek(&record_key(id)).into_client_error()
    }

    /// Moves to the next record. Returns false at the end.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<bool, Error> {
        self.cursor.next().into_client_error()
    }

    /// Moves to the previous record. Returns false at the start.
    #[inline]
    pub fn prev(&mut self) -> Result<bool, Error> {
        self.cursor.prev().into_client_error()
    }

    /// Releases what the cursor pins until the next move; see [`Cursor::suspend`].
    pub fn suspend(&mut self) {
        self.cursor.suspend();
    }

    /// The current record's id.
    /// Errors: `DataCorruptionDetected` if the key is not a record id.
    #[inline]
    pub fn record_id(&self) -> Result<RecordId, Error> {
        let key = self.cursor.key();
        record_id_of(key).ok_or_else(|| self.collection.report_damage(not_a_record_id(key)))
    }

    /// The current document, valid until the next move.
    /// Errors: `DataCorruptionDetected` if the bytes are not a document.
    #[inline]
    pub fn document(&self) -> Result<RawDoc<'_>, Error> {
        RawDoc::stored(self.cursor.value()).map_err(|e| match self.record_id() {
            Ok(id) => self.collection.report_damage(in_record(e, &id)),
            Err(no_record) => no_record,
        })
    }

    /// Length of the current document, in bytes.
    #[inline]
    pub fn value_len(&self) -> usize {
        self.cursor.value().len()
    }

    /// The bytes of [`RecordCursor::document`], shared rather than borrowed.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        self.cursor.value_bytes()
    }
}
