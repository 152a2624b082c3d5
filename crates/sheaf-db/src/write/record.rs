//! Inserts, replaces and removes one record with its index entries, in a unit of work.

use bytes::Bytes;
use sheaf_bson::{Error, ErrorCode, RawDoc, RawValue, RecordId, Result};
use sheaf_storage::Prior;

use crate::catalog::clustered::record_id_of_id;
use crate::catalog::options::validation::Verdict;
use crate::events::DbEvent;
use crate::index::IndexConstraints;
use crate::index::modified::Modified;
use crate::op_context::OpContext;
use crate::record_key::record_key;
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;
use crate::write::index_maintenance::Change;
use crate::write::unit::{Slot, WriteUnitOfWork};
use crate::{change, write::capped};

/// The `_id` of a clustered collection is too large for a record key.
const ID_TOO_LARGE: ErrorCode = ErrorCode(5894900);
/// Maximum size of a record key in a clustered collection, in bytes: entries of other indexes
/// repeat it.
const PLACE_BYTES_MAX: usize = 8 << 20;

impl WriteUnitOfWork {
    /// Validates a new document, or the result of updating `old`, with the collection's validator.
    /// Errors: `DocumentValidationFailure`, those of the validator's expressions.
    pub(super) fn check_document(
        &self,
        op: &StatementContext,
        slot: Slot,
        new: RawDoc<'_>,
        old: Option<RawDoc<'_>>,
    ) -> Result<()> {
        if op.bypasses_validation() || self.index_constraints() == IndexConstraints::Relaxed {
            return Ok(());
        }
        let collection = self.collection(slot);
        let (info, refused) = match collection.options().validation().judge(new, old)? {
            Verdict::Passes => return Ok(()),
            Verdict::Warned(info) => (Some(info), None),
            Verdict::Refused { error, logged } => (logged, Some(error)),
        };
        if let Some(info) = info {
            self.db().events().send(DbEvent::ValidationFailed {
                ns: collection.ns().clone(),
                info,
                refused: refused.is_some(),
            });
        }
        refused.map_or(Ok(()), Err)
    }

    /// Stores a prepared document ([`crate::write::document_rules`]) as a new record.
    ///
    /// Errors: `DocumentValidationFailure`, `DuplicateKey`, `CannotIndexParallelArrays`,
    /// `CannotBuildIndexKeys`, `WriteConflict`. On error the unit is unchanged except for locks.
    pub fn insert(&mut self, op: &StatementContext, slot: Slot, stored: Bytes) -> Result<RecordId> {
        capped::check_transaction(self, op, slot)?;
        self.check_document(op, slot, RawDoc::stored(&stored)?, None)?;
        match self.collection(slot).options().capped() {
            Some(limit) => self.insert_capped(op, slot, &limit, stored),
            None => self.insert_record(op, slot, stored),
        }
    }

    /// Stores a new record with its index entries.
    pub(crate) fn insert_record(
        &mut self,
        op: &OpContext,
        slot: Slot,
        stored: Bytes,
    ) -> Result<RecordId> {
        let doc = RawDoc::stored(&stored)?;
        let collection = self.collection(slot);
        let table = collection.table();
        let is_clustered = collection.clustered().is_some();
        let id = match is_clustered {
            true => self.claim_place(op, slot, doc)?,
            // The new record is unknown to others before the commit, so it needs no lock.
            false => collection.state.record_ids.take(1),
        };
        let change = Change {
            id: &id,
            old: None,
            new: Some(doc),
            modified: Modified::Everything,
        };
        self.maintain_indexes(op, slot, &change)?;
        self.report(slot, change::Change::Inserted(doc));
        let key = record_key(&id);
        match is_clustered {
            true => self.storage.put_with(table, &key, stored, Prior::Absent),
            false => self.storage.insert_new(table, &key, stored),
        }
        self.stats.docs_inserted += 1;
        Ok(id)
    }

    /// Locks the key of a new document in a clustered collection and checks that it is free. This
    /// ensures that `_id` is unique.
    ///
    /// Errors: `DuplicateKey`, `WriteConflict`, 5894900 for an `_id` that is too large for a
    /// record key.
    fn claim_place(&mut self, op: &OpContext, slot: Slot, doc: RawDoc<'_>) -> Result<RecordId> {
        let collection = self.collection(slot).clone();
        let collator = collection.collator().map(|collator| &**collator);
        let value = doc.get("_id").unwrap_or(RawValue::Null);
        let id = record_id_of_id(value, collator);
        let key = record_key(&id);
        if key.len() > PLACE_BYTES_MAX {
            return Err(Error::new(
                ID_TOO_LARGE,
                format!(
                    "an _id of a clustered collection must not exceed {PLACE_BYTES_MAX} bytes as a \
                     key, this one has {}",
                    key.len()
                ),
            ));
        }
        self.lock(op, collection.table(), &key)?;
        match (
            self.storage
                .get(collection.table(), &key)
                .into_client_error()?,
            collection.clustered(),
        ) {
            (Some(_), Some(clustered)) => {
                Err(clustered.duplicate_key(collection.ns(), collator, value))
            }
            _ => Ok(id),
        }
    }

    /// Replaces the document of a record that is locked ([`WriteUnitOfWork::lock_record`]) and was
    /// read after that. `modified` is the extent of the change; indexes on other paths are skipped.
    /// `base` is `old` as returned by [`WriteUnitOfWork::document`] under the lock: it lets the
    /// engine log only the difference. `stored` is the whole new document.
    ///
    /// Errors: those of [`WriteUnitOfWork::insert`], and `BSONObjectTooLarge`.
    #[expect(
        clippy::too_many_arguments,
        reason = "one document's change is all of these"
    )]
    pub fn update(
        &mut self,
        op: &StatementContext,
        slot: Slot,
        id: &RecordId,
        old: RawDoc<'_>,
        base: Option<&Bytes>,
        stored: &Bytes,
        modified: Modified<'_>,
    ) -> Result<()> {
        crate::write::document_rules::check_size(stored.len())?;
        self.update_of_any_size(op, slot, id, old, base, stored, modified)
    }

    /// Like [`WriteUnitOfWork::update`], for the server's own documents, whose size the caller
    /// bounds.
    #[expect(
        clippy::too_many_arguments,
        reason = "one document's change is all of these"
    )]
    pub(crate) fn update_of_any_size(
        &mut self,
        op: &StatementContext,
        slot: Slot,
        id: &RecordId,
        old: RawDoc<'_>,
        base: Option<&Bytes>,
        stored: &Bytes,
        modified: Modified<'_>,
    ) -> Result<()> {
        let new = RawDoc::stored(stored)?;
        capped::check_transaction(self, op, slot)?;
        self.check_document(op, slot, new, Some(old))?;
        let change = Change {
            id,
            old: Some(old),
            new: Some(new),
            modified,
        };
        self.maintain_indexes(op, slot, &change)?;
        let (table, key) = (self.collection(slot).table(), record_key(id));
        let value = stored.clone();
        match base {
            Some(base) => self.storage.put_over(table, &key, value, base),
            None => {
                let prior = Prior::value(old.as_bytes());
                self.storage.put_with(table, &key, value, prior);
            }
        }
        self.report(slot, change::Change::Updated { old, new, modified });
        self.stats.docs_modified += 1;
        Ok(())
    }

    /// Removes a record that is locked and was read after that.
    /// Errors: `WriteConflict`.
    pub fn delete(
        &mut self,
        op: &StatementContext,
        slot: Slot,
        id: &RecordId,
        old: RawDoc<'_>,
    ) -> Result<()> {
        capped::check_transaction(self, op, slot)?;
        self.remove_record(op, slot, id, old)?;
        self.stats.docs_deleted += 1;
        Ok(())
    }

    /// Removes a locked record with its index entries.
    pub(crate) fn remove_record(
        &mut self,
        op: &OpContext,
        slot: Slot,
        id: &RecordId,
        old: RawDoc<'_>,
    ) -> Result<()> {
        let change = Change {
            id,
            old: Some(old),
            new: None,
            modified: Modified::Everything,
        };
        self.maintain_indexes(op, slot, &change)?;
        let table = self.collection(slot).table();
        self.storage
            .delete_with(table, &record_key(id), Prior::value(old.as_bytes()));
        self.report(slot, change::Change::Deleted(old));
        Ok(())
    }
}
