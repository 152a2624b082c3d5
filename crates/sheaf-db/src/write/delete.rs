//! Deletes the records that a plan found.

use std::sync::Arc;

use sheaf_bson::{DocBuf, RawDoc, RecordId, Result};

use crate::collection::Collection;
use crate::database::Db;
use crate::statement::StatementContext;
use crate::write::RecordSource;
use crate::write::observer::StatementOutcome;
use crate::write::unit::WriteStats;
use crate::write::update::BatchWriter;

/// A delete statement as seen by the write path.
pub trait DocumentDelete {
    /// The document that findAndModify returns, if any.
    fn returned(&self) -> Option<&DocBuf> {
        None
    }

    /// Whether a document that changed since the plan read it still matches.
    fn still_matches(&mut self, doc: RawDoc<'_>) -> Result<bool>;

    /// Computes the document that findAndModify returns. Called before the record is deleted, and
    /// again if the delete is retried. An error ends the statement and leaves the record in place.
    fn prepare_returned(&mut self, _id: &RecordId, _doc: RawDoc<'_>) -> Result<()> {
        Ok(())
    }
}

/// The result of a delete statement.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DeleteResult {
    /// Documents removed.
    pub deleted: u64,
    /// Index keys removed.
    pub stats: WriteStats,
}

impl Db {
    /// Deletes the records that a plan finds in `collection`: the first, or with `multi` all of
    /// them. `result` is updated continuously, so that after an error it reports what was already
    /// deleted.
    ///
    /// Errors: those of the plan, `QueryPlanKilled` if the collection is dropped concurrently.
    pub fn delete_records(
        self: &Arc<Self>,
        op: &StatementContext,
        collection: &Arc<Collection>,
        records: &mut dyn RecordSource,
        delete: &mut dyn DocumentDelete,
        multi: bool,
        result: &mut DeleteResult,
    ) -> Result<()> {
        let mut writer = BatchWriter::new(self, op, collection);
        let done = writer.write_all(records, multi, &mut |writer, record| {
            let deleted = writer.attempt(|unit, op, slot| {
                unit.lock_record(op, slot, &record.id)?;
                let Some(bytes) = unit.document(slot, &record.id)? else {
                    return Ok(false);
                };
                let doc = RawDoc::stored(&bytes)?;
                if bytes != record.document && !delete.still_matches(doc)? {
                    return Ok(false);
                }
                delete.prepare_returned(&record.id, doc)?;
                unit.delete(op, slot, &record.id, doc)?;
                let returned = delete.returned();
                let modified = false;
                unit.record_outcome(op, StatementOutcome::Wrote { modified, returned });
                Ok(true)
            })?;
            result.deleted += u64::from(deleted);
            Ok(deleted)
        });
        result.stats.add(&writer.stats);
        done.map_err(|e| collection.report_damage(e))
    }
}
