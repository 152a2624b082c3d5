//! What a statement would write, for its explain: builds the batches that it would commit, without
//! applying them.
//!
//! ```text
//!   match, new version ──keys of both──> the differences ──> WriteBatch ──> bytes the engine would log
//! ```
//!
//! Batches end where those of a real statement end, so the numbers are those of the log line and
//! the profiler for the same statement, except for oplog entries. Keys that an index rejects are
//! left out: an explain does not fail for them.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::{RawDoc, RecordId, Result};
use sheaf_storage::{Prior, StorageEngine, WriteBatch};

use crate::collection::Collection;
use crate::index::key_set::{Difference, EntryKey, KeySet};
use crate::index::modified::Modified;
use crate::record_key::record_key;
use crate::write::{UNIT_BYTES_MAX, UNIT_DOCUMENTS_MAX};

/// See the module.
pub(super) struct WouldWrite<'a> {
    engine: &'a dyn StorageEngine,
    collection: Option<&'a Arc<Collection>>,
    batch: WriteBatch,
    in_batch: usize,
    entry: EntryKey,
    pub(super) keys_inserted: i64,
    pub(super) keys_deleted: i64,
    bytes_logged: u64,
}

impl<'a> WouldWrite<'a> {
    pub(super) fn new(
        engine: &'a dyn StorageEngine,
        collection: Option<&'a Arc<Collection>>,
    ) -> WouldWrite<'a> {
        WouldWrite {
            engine,
            collection,
            batch: WriteBatch::new(),
            in_batch: 0,
            entry: EntryKey::default(),
            keys_inserted: 0,
            keys_deleted: 0,
            bytes_logged: 0,
        }
    }

    /// Adds the change of record `id` from `old` to `new`; `None` deletes it.
    pub(super) fn write(
        &mut self,
        id: &RecordId,
        old: RawDoc<'_>,
        new: Option<RawDoc<'_>>,
        modified: Modified<'_>,
    ) -> Result<()> {
        let Some(collection) = self.collection else {
            return Ok(());
        };
        let (mut old_keys, mut new_keys) = (KeySet::new(), KeySet::new());
        for index in collection.index_list() {
            if !modified.touches(index) {
                continue;
            }
            old_keys.clear();
            new_keys.clear();
            let refused = index.keys_of(old, &mut old_keys).is_err()
                || new.is_some_and(|new| index.keys_of(new, &mut new_keys).is_err());
            if refused {
                continue;
            }
            let table = index.table();
            KeySet::differences(&old_keys, &new_keys, |difference| {
                let (gone, here) = match difference {
                    Difference::Removed(key) => (Some(key), None),
                    Difference::Added(key) => (None, Some((key, Prior::Absent))),
                    Difference::Retyped(key) => (None, Some((key, Prior::Unknown))),
                };
                if let Some(key) = gone {
                    let prior = Prior::value(key.type_bits);
                    let entry = self.entry.of(key.key, id);
                    self.batch.delete_with(table, entry, prior);
                    self.keys_deleted += 1;
                }
                if let Some((key, prior)) = here {
                    let entry = self.entry.of(key.key, id);
                    let type_bits = key.type_bits.to_vec();
                    self.batch.put_with(table, entry, type_bits, prior);
                    self.keys_inserted += 1;
                    self.keys_deleted += i64::from(prior == Prior::Unknown);
                }
                Ok(())
            })?;
        }
        let (table, key) = (collection.table(), record_key(id));
        match new {
            Some(new) => {
                let base = Bytes::copy_from_slice(old.as_bytes());
                let value = Bytes::copy_from_slice(new.as_bytes());
                self.batch.put_over(table, &key, value, &base);
            }
            None => {
                let prior = Prior::value(old.as_bytes());
                self.batch.delete_with(table, &key, prior);
            }
        }
        self.in_batch += 1;
        if self.in_batch >= UNIT_DOCUMENTS_MAX || self.batch.bytes() >= UNIT_BYTES_MAX {
            self.bytes_logged += self.engine.bytes_to_log(&std::mem::take(&mut self.batch));
            self.in_batch = 0;
        }
        Ok(())
    }

    pub(super) fn bytes_logged(&self) -> i64 {
        (self.bytes_logged + self.engine.bytes_to_log(&self.batch)) as i64
    }
}
