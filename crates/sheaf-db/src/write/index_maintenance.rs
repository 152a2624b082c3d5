//! Index maintenance: the effect of an insert, an update and a delete on every index.
//!
//! ```text
//!   old document ──keys──┐
//!                        ├─ differences ─> unique keys locked and looked up ─> entries put, deleted
//!   new document ──keys──┘                 multikey paths published            builds notified
//! ```
//!
//! Nothing is written before all indexes have accepted the document: a document that one index
//! rejects leaves no trace in the others, and publishes no multikey path.
//!
//! A unique key is locked before it is looked up and before it is removed. Of two units that add
//! the same key, the second therefore sees the first one's entry, or conflicts.

use std::ops::Bound;

use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::{RawDoc, RecordId, Result};
use sheaf_storage::{KeyWrite, Prior, TableFate, TableId};

use crate::catalog::duplicate_key::duplicate_key;
use crate::index::key_set::{Difference, Key, KeySet, damaged_key};
use crate::index::modified::Modified;
use crate::index::wildcard_keys::array_entry;
use crate::index::{Index, IndexConstraints};
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;
use crate::write::unit::{Scratch, Slot, WriteUnitOfWork};

/// A change of one document, as indexes see it. `old` is `None` for an insert, `new` for a delete.
pub(crate) struct Change<'a> {
    pub(crate) id: &'a RecordId,
    pub(crate) old: Option<RawDoc<'a>>,
    pub(crate) new: Option<RawDoc<'a>>,
    pub(crate) modified: Modified<'a>,
}

impl WriteUnitOfWork {
    /// Applies the change of one document to all indexes of the collection.
    ///
    /// Errors: `DuplicateKey`, `CannotIndexParallelArrays`, `CannotBuildIndexKeys`,
    /// `WriteConflict`. On error the unit may hold further locks, and nothing is written.
    pub(crate) fn maintain_indexes(
        &mut self,
        op: &OpContext,
        slot: Slot,
        change: &Change<'_>,
    ) -> Result<()> {
        let collection = self.collection(slot).clone();
        // The key sets are moved out so that the unit can be borrowed at the same time.
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.maintain_with(op, slot, change, &collection, &mut scratch);
        self.scratch = scratch;
        result
    }

    fn maintain_with(
        &mut self,
        op: &OpContext,
        slot: Slot,
        change: &Change<'_>,
        collection: &crate::collection::Collection,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let being_built = collection
            .builds()
            .iter()
            .flat_map(|build| build.indexes().iter());
        let all: Vec<&Index> = collection.index_list().iter().chain(being_built).collect();
        let Scratch { old, new, entry } = scratch;
        let constraints = self.index_constraints();
        old.resize_with(old.len().max(all.len()), KeySet::new);
        new.resize_with(new.len().max(all.len()), KeySet::new);
        debug_assert!(old.len() >= all.len() && new.len() >= all.len());
        for ((index, old), new) in all.iter().zip(&mut *old).zip(&mut *new) {
            old.clear();
            new.clear();
            if !change.modified.touches(index) {
                continue;
            }
            if let Some(doc) = change.old {
                index.keys_under(constraints, doc, old)?;
            }
            if let Some(doc) = change.new {
                index.keys_under(constraints, doc, new)?;
            }
        }
        let complete = collection.index_list();
        for ((index, old), new) in complete.iter().zip(&*old).zip(&*new) {
            if index.spec().refuses_duplicates() && constraints == IndexConstraints::Enforced {
                KeySet::differences(old, new, |difference| match difference {
                    Difference::Removed(key) => self.lock(op, index.table(), key.key),
                    Difference::Added(key) => {
                        self.lock(op, index.table(), key.key)?;
                        self.refuse_duplicate(collection, index, key, change.id)
                    }
                    Difference::Retyped(_) => Ok(()),
                })?;
            }
        }
        self.publish_multikey(slot, complete, new)?;
        // Planners know every array before an entry derived from it becomes readable.
        debug_assert!((complete.iter().zip(&*new)).all(|(index, keys)| {
            let published = self.collection(slot).index_by_ident(index.table().0);
            published.is_none_or(|index| index.has_multikey_paths(keys.multikey_paths()))
        }));
        for ((index, old), new) in complete.iter().zip(&*old).zip(&*new) {
            let table = index.table();
            KeySet::differences(old, new, |difference| {
                match difference {
                    Difference::Removed(key) => {
                        let prior = Prior::value(key.type_bits);
                        self.storage
                            .delete_with(table, entry.of(key.key, change.id), prior);
                        self.stats.keys_deleted += 1;
                    }
                    Difference::Added(key) => {
                        let entry = entry.of(key.key, change.id);
                        self.put_entry(table, entry, key, Prior::Absent);
                        self.stats.keys_inserted += 1;
                    }
                    Difference::Retyped(key) => {
                        let entry = entry.of(key.key, change.id);
                        self.put_entry(table, entry, key, Prior::Unknown);
                        self.stats.keys_deleted += 1;
                        self.stats.keys_inserted += 1;
                    }
                }
                Ok(())
            })?;
        }
        for (index, new) in complete.iter().zip(&*new) {
            for path in new.array_paths() {
                let entry = array_entry(path);
                if self
                    .storage
                    .get(index.table(), &entry)
                    .into_client_error()?
                    .is_none()
                {
                    // Another writer may concurrently put the same entry: its prior state is
                    // unknown.
                    self.storage.put(index.table(), &entry, Vec::new());
                }
            }
        }
        let mut at = complete.len();
        for build in collection.builds() {
            for number in 0..build.indexes().len() {
                build.note(
                    &mut self.storage,
                    number,
                    &old[at],
                    &new[at],
                    change.id,
                    entry,
                )?;
                at += 1;
            }
        }
        debug_assert_eq!(
            at,
            all.len(),
            "every index and every build receives the change"
        );
        Ok(())
    }

    fn put_entry(&mut self, table: TableId, entry: &[u8], key: Key<'_>, prior: Prior) {
        self.storage
            .put_with(table, entry, key.type_bits.to_vec(), prior);
    }

    /// Checks whether another record has the key, in the unit's snapshot and among its own writes.
    fn refuse_duplicate(
        &mut self,
        collection: &crate::collection::Collection,
        index: &Index,
        key: Key<'_>,
        id: &RecordId,
    ) -> Result<()> {
        let table = index.table();
        let mut taken = false;
        if let Some(own) = self.storage.writes().table(table) {
            let from = (Bound::Included(key.key), Bound::Unbounded);
            let entries = own.keys().range::<[u8], _>(from);
            for (entry, change) in entries.take_while(|(entry, _)| entry.starts_with(key.key)) {
                taken |=
                    matches!(change.write, KeyWrite::Put(_)) && record_of(entry, key.key)? != *id;
            }
        }
        let own = self.storage.writes().table(table).cloned();
        // A table that the unit itself creates is not in the snapshot.
        let is_new = own
            .as_ref()
            .is_some_and(|own| own.fate() != TableFate::Kept);
        if !taken && !is_new {
            let cursor = self.base_cursor(table)?;
            let mut on = cursor.seek(key.key).into_client_error()?;
            while on && !taken && cursor.key().starts_with(key.key) {
                let entry = cursor.key();
                // The loop above has already handled entries that the unit itself has written.
                let replaced = own
                    .as_ref()
                    .is_some_and(|own| !own.keeps(entry) || own.keys().contains_key(entry));
                taken = !replaced && record_of(entry, key.key)? != *id;
                on = cursor.next().into_client_error()?;
            }
        }
        if taken {
            return Err(duplicate_key(collection.ns(), index, key));
        }
        Ok(())
    }

    fn publish_multikey(&mut self, slot: Slot, complete: &[Index], new: &[KeySet]) -> Result<()> {
        for (index, keys) in complete.iter().zip(new) {
            let paths = keys.multikey_paths();
            if paths.iter().all(Vec::is_empty) {
                continue;
            }
            self.record_multikey(slot);
            if !index.has_multikey_paths(paths) {
                let changed = self.db().catalog_writer().publish_multikey(
                    self.collection(slot),
                    index.table(),
                    paths,
                )?;
                self.set_collection(slot, changed);
            }
        }
        Ok(())
    }
}

/// The record of an entry that begins with `key`.
fn record_of(entry: &[u8], key: &[u8]) -> Result<RecordId> {
    match decode_record_id(entry) {
        Some((id, key_len)) if key_len == key.len() => Ok(id),
        _ => Err(damaged_key("it does not end with a record id")),
    }
}
