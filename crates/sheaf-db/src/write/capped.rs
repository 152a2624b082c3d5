//! Inserts into capped collections, and the removal of the oldest records to make room.
//!
//! ```text
//!   insert ─ wait for another writer ─ record ids in commit order ─┬─ the new record
//!                                                                  └─ over the limit: remove the oldest
//!   oldest:  [ records of the unit's snapshot, after those already removed | the unit's own, in order ]
//! ```
//!
//! One unit at a time inserts into a capped collection: from its first insert to its commit it
//! holds a lock on the empty key of the table, which no record has. Record ids therefore become
//! visible in order, and a reader that continues after the last record it saw misses none. Deletes
//! and updates do not take the lock.
//!
//! Invariant: a new record and the removal of the records that it displaces are in the same unit of
//! work.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use sheaf_bson::{Error, ErrorCode, RawDoc, RecordId, Result};

use crate::catalog::options::Capped;
use crate::collection::capped_state::CappedWriter;
use crate::counters::CollectionSize;
use crate::op_context::OpContext;
use crate::record_key::{record_id_of, record_key};
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;
use crate::write::unit::{Slot, WriteUnitOfWork};

/// The key that the single writer locks; shorter than any record's key.
const WRITER: &[u8] = b"";

/// Errors: `OperationNotSupportedInTransaction` for a write to a capped collection inside one.
pub(crate) fn check_transaction(
    unit: &WriteUnitOfWork,
    op: &StatementContext,
    slot: Slot,
) -> Result<()> {
    let collection = unit.collection(slot);
    if op.transaction().is_none() || collection.options().capped().is_none() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
        format!(
            "Collection '{}' is a capped collection. Writes in transactions are not allowed on capped collections.",
            collection.ns()
        ),
    ))
}

impl WriteUnitOfWork {
    /// Stores a new record of a capped collection, and removes the oldest records while it is over
    /// its limit. A document larger than the collection stays until the next insert.
    ///
    /// Errors: those of [`WriteUnitOfWork::insert`]. On error the unit is unchanged except for
    /// locks.
    pub(crate) fn insert_capped(
        &mut self,
        op: &OpContext,
        slot: Slot,
        limit: &Capped,
        document: Bytes,
    ) -> Result<RecordId> {
        let len = document.len();
        let table = self.collection(slot).table();
        self.lock(op, table, WRITER)?;
        let mut writer = match self.capped_writer(slot).take() {
            Some(writer) => writer,
            None => {
                // The lock excludes other inserts from now on.
                let size = CollectionSize::of(self.db().storage(), table)?;
                let state = &self.collection(slot).state.capped;
                CappedWriter {
                    documents: size.count,
                    bytes: size.data_bytes,
                    oldest: state.oldest.load(Ordering::Relaxed),
                    ..CappedWriter::default()
                }
            }
        };
        let before = (writer.documents, writer.bytes, writer.oldest);
        let (inserted, removed) = (writer.inserted.len(), writer.removed);
        let savepoint = self.savepoint();
        let stored = self.insert_record(op, slot, document).and_then(|id| {
            writer.documents += 1;
            writer.bytes += len as u64;
            writer.inserted.push(id.clone());
            while writer.is_over(limit) && self.remove_oldest(op, slot, &mut writer)? {}
            Ok(id)
        });
        match &stored {
            Ok(_) => self.release(savepoint),
            Err(_) => {
                self.rollback_to(savepoint);
                (writer.documents, writer.bytes, writer.oldest) = before;
                writer.inserted.truncate(inserted);
                writer.removed = removed;
            }
        }
        *self.capped_writer(slot) = Some(writer);
        stored
    }

    /// Removes the oldest record other than the one just inserted. Returns false if there is none.
    fn remove_oldest(
        &mut self,
        op: &OpContext,
        slot: Slot,
        writer: &mut CappedWriter,
    ) -> Result<bool> {
        let id = match self.oldest_of_snapshot(slot, writer.oldest)? {
            Some(id) => id,
            None if writer.removed + 1 < writer.inserted.len() => {
                writer.removed += 1;
                writer.inserted[writer.removed - 1].clone()
            }
            None => return Ok(false),
        };
        self.lock_record(op, slot, &id)?;
        writer.oldest = id.number().map_or(writer.oldest, |number| number + 1);
        if let Some(bytes) = self.document(slot, &id)? {
            let doc = RawDoc::stored(&bytes)?;
            self.remove_record(op, slot, &id, doc)?;
            writer.documents = writer.documents.saturating_sub(1);
            writer.bytes = writer.bytes.saturating_sub(doc.len_bytes() as u64);
        }
        Ok(true)
    }

    /// The first record of the unit's snapshot from `from` on.
    fn oldest_of_snapshot(&mut self, slot: Slot, from: i64) -> Result<Option<RecordId>> {
        let table = self.collection(slot).table();
        let cursor = self.base_cursor(table)?;
        match cursor
            .seek(&record_key(&RecordId::new(from)))
            .into_client_error()?
        {
            true => Ok(record_id_of(cursor.key())),
            false => Ok(None),
        }
    }
}
