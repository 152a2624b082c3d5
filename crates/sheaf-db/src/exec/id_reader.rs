//! Repeated lookups by `_id` at one snapshot.
//!
//! Does what [`super::express`] does once, without creating cursors and buffers for every lookup.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::Error;
use sheaf_bson::keystring::{self, KeyStringBuilder};
use sheaf_bson::{RawDoc, RawValue, RecordId};
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_storage::{Cursor, TableId};

use super::express::{self, not_a_key};
use super::key_document::directions_of;
use crate::catalog::ReadView;
use crate::collection::Collection;
use crate::damage::{in_record, missing_record};
use crate::record_key::record_key;
use crate::storage_error::IntoClientError;

/// See the module.
pub struct IdReader {
    collection: Arc<Collection>,
    index: Arc<IndexEntry>,
    key: KeyStringBuilder,
    /// `None` for a clustered collection, whose records are keyed by `_id`.
    keys: Option<Box<dyn Cursor>>,
    records: Box<dyn Cursor>,
}

impl IdReader {
    /// Creates a reader of the view's collection; `None` if the collection does not exist.
    /// Errors: those of the storage engine.
    pub fn new(view: &ReadView) -> Result<Option<IdReader>, Error> {
        let Some(collection) = &view.collection else {
            return Ok(None);
        };
        let index = collection.id_index();
        Ok(Some(IdReader {
            collection: collection.clone(),
            index: index.clone(),
            key: KeyStringBuilder::new(directions_of(index)),
            keys: match index.clustered {
                true => None,
                false => Some(
                    view.snapshot
                        .cursor(TableId(index.ident))
                        .into_client_error()?,
                ),
            },
            records: view
                .snapshot
                .cursor(collection.table())
                .into_client_error()?,
        }))
    }

    /// Index keys examined per document found: 1, or 0 in a clustered collection.
    pub fn keys_of_one(&self) -> u64 {
        u64::from(self.keys.is_some())
    }

    /// Releases the memory the cursors pin; the next lookup seeks again.
    pub fn suspend(&mut self) {
        if let Some(keys) = &mut self.keys {
            keys.suspend();
        }
        self.records.suspend();
    }

    /// Returns the record id and the document with this `_id`.
    /// Errors: those of the storage engine; `DataCorruptionDetected` for an index entry that is not
    /// a key or has no record, and for a record that is not a document.
    pub fn find(&mut self, id: RawValue<'_>) -> Result<Option<(RecordId, Bytes)>, Error> {
        let found = self.look_up(id);
        found.map_err(|e| self.collection.report_damage(e))
    }

    fn look_up(&mut self, id: RawValue<'_>) -> Result<Option<(RecordId, Bytes)>, Error> {
        self.key.reset();
        self.key.append_with(id, self.index.collator.as_deref());
        let record_id = match &mut self.keys {
            None => RecordId::of_key_string(self.key.as_bytes()),
            Some(keys) => {
                if !keys.seek(self.key.as_bytes()).into_client_error()? {
                    return Ok(None);
                }
                let (record_id, key_len) = keystring::decode_record_id(keys.key())
                    .ok_or_else(|| not_a_key(&self.index))?;
                if keys.key()[..key_len] != *self.key.as_bytes() {
                    return Ok(None);
                }
                record_id
            }
        };
        let record = record_key(&record_id);
        let found =
            self.records.seek(&record).into_client_error()? && self.records.key() == &record[..];
        if !found {
            return match &self.keys {
                Some(_) => Err(missing_record(&express::summary(&self.index), &record_id)),
                None => Ok(None),
            };
        }
        RawDoc::stored(self.records.value()).map_err(|e| in_record(e, &record_id))?;
        Ok(Some((record_id, self.records.value_bytes())))
    }
}
