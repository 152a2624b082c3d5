//! Documents by `_id`, again and again as of one snapshot.
//!
//! What [`super::express`] does once, without making cursors and buffers anew each time.

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
use crate::storage_error::Coded;

/// See the module.
pub struct IdReader {
    collection: Arc<Collection>,
    index: Arc<IndexEntry>,
    key: KeyStringBuilder,
    /// `None`: the records of a clustered collection stand under their `_id`.
    keys: Option<Box<dyn Cursor>>,
    records: Box<dyn Cursor>,
}

impl IdReader {
    /// Reads the view's collection; `None` where there is none.
    /// Errors: the engine's.
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
                false => Some(view.snapshot.cursor(TableId(index.ident)).coded()?),
            },
            records: view.snapshot.cursor(collection.table()).coded()?,
        }))
    }

    /// How many index keys a document found stands for: none where the collection is clustered.
    pub fn keys_of_one(&self) -> u64 {
        u64::from(self.keys.is_some())
    }

    /// Nothing may be asked for a while.
    pub fn rest(&mut self) {
        if let Some(keys) = &mut self.keys {
            keys.suspend();
        }
        self.records.suspend();
    }

    /// The record and its document.
    /// Errors: the engine's; `DataCorruptionDetected` for an index entry that is no key or has no record,
    /// and for a record that is no document.
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
                if !keys.seek(self.key.as_bytes()).coded()? {
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
        let found = self.records.seek(&record).coded()? && self.records.key() == &record[..];
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
