//! One record, in a unit of work: inserted, replaced, removed, with its index entries.

use bytes::Bytes;
use sheaf_bson::{RawDoc, RecordId, Result};
use sheaf_storage::Prior;

use crate::catalog::collection::record_key;
use crate::index::maintain::{Change, Modified};
use crate::op_context::OpContext;
use crate::oplog::LoggedOp;
use crate::write::unit::{Slot, WriteUnit};

impl WriteUnit {
    /// Stores a document that has been prepared ([`crate::write::document_rules`]) as a new record.
    ///
    /// Errors: `DuplicateKey`, `CannotIndexParallelArrays`, `CannotBuildIndexKeys`, `WriteConflict`: then the
    /// unit is as it was, but for locks.
    pub fn insert(&mut self, op: &OpContext, slot: Slot, doc: RawDoc<'_>) -> Result<RecordId> {
        let collection = self.collection(slot);
        let table = collection.table();
        // Nobody can know the new record before the commit: it needs no lock.
        let id = collection.state.record_ids.take(1);
        let change = Change {
            id: &id,
            old: None,
            new: Some(doc),
            modified: Modified::Everything,
        };
        self.maintain_indexes(op, slot, &change)?;
        self.unit.insert_new(
            table,
            &record_key(&id),
            Bytes::copy_from_slice(doc.as_bytes()),
        );
        self.log(slot, |c| LoggedOp::insert(c.ns(), c.uuid(), doc));
        self.stats.docs_inserted += 1;
        Ok(id)
    }

    /// Replaces the document of a record that is locked ([`WriteUnit::lock_record`]) and was read after
    /// that. `modified` says what may differ; indexes on other paths are not looked at. `base` is `old` as
    /// [`WriteUnit::document`] gave it, under the lock: an engine may then log what differs from it.
    ///
    /// Errors: as [`WriteUnit::insert`], and `BSONObjectTooLarge`.
    #[expect(
        clippy::too_many_arguments,
        reason = "one document's change is all of these"
    )]
    pub fn update(
        &mut self,
        op: &OpContext,
        slot: Slot,
        id: &RecordId,
        old: RawDoc<'_>,
        base: Option<&Bytes>,
        new: RawDoc<'_>,
        modified: Modified<'_>,
    ) -> Result<()> {
        crate::write::document_rules::check_size(new.len_bytes())?;
        let replaced = matches!(modified, Modified::Everything);
        let change = Change {
            id,
            old: Some(old),
            new: Some(new),
            modified,
        };
        self.maintain_indexes(op, slot, &change)?;
        let (table, key) = (self.collection(slot).table(), record_key(id));
        let value = Bytes::copy_from_slice(new.as_bytes());
        match base {
            Some(base) => self.unit.put_over(table, &key, value, base),
            None => {
                let prior = Prior::value(old.as_bytes());
                self.unit.put_with(table, &key, value, prior);
            }
        }
        self.log(slot, |c| {
            LoggedOp::update(c.ns(), c.uuid(), old, new, replaced)
                .with_pre_image(old, c.options().keeps_images())
        });
        self.stats.docs_modified += 1;
        Ok(())
    }

    /// Removes a record that is locked and was read after that.
    /// Errors: `WriteConflict`.
    pub fn delete(
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
        self.unit
            .delete_with(table, &record_key(id), Prior::value(old.as_bytes()));
        self.log(slot, |c| {
            LoggedOp::delete(c.ns(), c.uuid(), old).with_pre_image(old, c.options().keeps_images())
        });
        self.stats.docs_deleted += 1;
        Ok(())
    }
}
