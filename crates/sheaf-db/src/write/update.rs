//! Updates the records that a plan found.
//!
//! ```text
//!   plan (on its own snapshot) ─ record ─> apply ─┬─ unchanged: counted, no lock, no write
//!                                                 └─ changed: lock, read again
//!                                                      ├─ same as the plan saw: written
//!                                                      ├─ different: matched and applied again
//!                                                      └─ gone: skipped
//! ```
//!
//! The plan's snapshot precedes the writes, so an update never sees its own results.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, RecordId, Result};

use sheaf_query::update::ModifiedPaths;

use crate::collection::Collection;
use crate::database::Db;
use crate::index::modified::Modified;
use crate::statement::StatementContext;
use crate::storage_error::is_write_conflict;
use crate::write::observer::StatementOutcome;
use crate::write::retry::Backoff;
use crate::write::unit::{Patience, Slot, WriteStats, WriteUnitOfWork};
use crate::write::{Gathered, MatchedRecord, RecordSource, UNIT_BYTES_MAX, UNIT_DOCUMENTS_MAX};

/// The result of applying an update to one document.
pub enum Applied {
    /// The document does not match (any more).
    NoMatch,
    /// It matches and is not changed by the update.
    Unchanged,
    /// It matches and changes.
    Changed {
        /// The new document, whole, with the same `_id` first.
        document: Bytes,
        /// The extent of the change.
        modified: ModifiedBy,
    },
}

/// The extent of an update; owned counterpart of [`Modified`].
pub enum ModifiedBy {
    /// Only these paths, changed by update operators.
    Operators(ModifiedPaths),
    /// Only these paths, changed by a pipeline.
    Pipeline(ModifiedPaths),
    /// Anything: a replacement, which the oplog stores as a whole.
    Everything,
}

impl ModifiedBy {
    pub(crate) fn borrowed(&self) -> Modified<'_> {
        match self {
            ModifiedBy::Operators(paths) => Modified::Operators(paths),
            ModifiedBy::Pipeline(paths) => Modified::Pipeline(paths),
            ModifiedBy::Everything => Modified::Everything,
        }
    }
}

/// An update statement as seen by the write path.
pub trait DocumentUpdate {
    /// Applies the update. With `recheck`, the document differs from the one the plan saw, so the
    /// filter must be evaluated again; otherwise it is known to match. Errors end the statement.
    fn apply(&mut self, doc: RawDoc<'_>, recheck: bool) -> Result<Applied>;

    /// The document that findAndModify returns, if any.
    fn returned(&self) -> Option<&DocBuf> {
        None
    }

    /// Computes the document that findAndModify returns. Called before the record is written, and
    /// again if the write is retried. An error ends the statement and leaves the record unchanged.
    fn prepare_returned(&mut self, _record: &UpdatedRecord<'_>) -> Result<()> {
        Ok(())
    }

    /// Called when the update of the record has been added to the unit of work.
    fn applied(&mut self, _record: &UpdatedRecord<'_>) -> Result<()> {
        Ok(())
    }
}

/// A record that an update matched. `old` and `new` are equal if nothing changed.
#[derive(Debug, Clone, Copy)]
pub struct UpdatedRecord<'a> {
    /// Id of the record.
    pub id: &'a RecordId,
    /// The document before the update.
    pub old: RawDoc<'a>,
    /// The document after the update.
    pub new: RawDoc<'a>,
}

/// The result of an update statement.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UpdateResult {
    /// `n`: documents that matched.
    pub matched: u64,
    /// `nModified`: documents that changed.
    pub modified: u64,
    /// Index keys written.
    pub stats: WriteStats,
}

impl Db {
    /// Updates the records that a plan finds in `collection`: the first, or with `multi` all of
    /// them. `result` is updated continuously, so that after an error it reports what was already
    /// updated.
    ///
    /// Errors: those of the plan and of the update, `DuplicateKey`..., `QueryPlanKilled` if the
    /// collection is dropped concurrently.
    pub fn update_records(
        self: &Arc<Self>,
        op: &StatementContext,
        collection: &Arc<Collection>,
        records: &mut dyn RecordSource,
        update: &mut dyn DocumentUpdate,
        multi: bool,
        result: &mut UpdateResult,
    ) -> Result<()> {
        let mut writer = BatchWriter::new(self, op, collection);
        let done = writer.write_all(records, multi, &mut |writer, record| {
            update_record(writer, update, record, result)
        });
        result.stats.add(&writer.stats);
        done.map_err(|e| collection.report_damage(e))
    }
}

/// Updates one record. Returns false if it did not match after all.
fn update_record(
    writer: &mut BatchWriter<'_>,
    update: &mut dyn DocumentUpdate,
    record: &MatchedRecord,
    result: &mut UpdateResult,
) -> Result<bool> {
    let seen = RawDoc::stored(&record.document)?;
    let first = update.apply(seen, false)?;
    match first {
        Applied::NoMatch => return Ok(false),
        Applied::Unchanged => {
            unchanged(update, &record.id, seen, result)?;
            return Ok(true);
        }
        Applied::Changed { .. } => {}
    }
    let mut first = Some(first);
    writer.attempt(|unit, op, slot| {
        unit.lock_record(op, slot, &record.id)?;
        let Some(bytes) = unit.document(slot, &record.id)? else {
            return Ok(false);
        };
        let now = RawDoc::stored(&bytes)?;
        let applied = match first.take() {
            Some(applied) if bytes == record.document => applied,
            _ => update.apply(now, true)?,
        };
        match applied {
            Applied::NoMatch => Ok(false),
            Applied::Unchanged => {
                unchanged(update, &record.id, now, result)?;
                Ok(true)
            }
            Applied::Changed { document, modified } => {
                let new = RawDoc::stored(&document)?;
                if matches!(modified, ModifiedBy::Everything) && document == bytes {
                    // A replacement by the same content is validated, but nothing is written.
                    unit.check_document(op, slot, new, Some(now))?;
                    unchanged(update, &record.id, now, result)?;
                    return Ok(true);
                }
                let updated = UpdatedRecord {
                    id: &record.id,
                    old: now,
                    new,
                };
                update.prepare_returned(&updated)?;
                let base = Some(&bytes);
                let modified_by = modified.borrowed();
                let written = unit.update(op, slot, &record.id, now, base, &document, modified_by);
                if let Err(error) = written {
                    // Keeps the result for the next attempt.
                    first = Some(Applied::Changed { document, modified });
                    return Err(error);
                }
                result.matched += 1;
                result.modified += 1;
                update.applied(&updated)?;
                let returned = update.returned();
                let modified = true;
                unit.record_outcome(op, StatementOutcome::Wrote { modified, returned });
                Ok(true)
            }
        }
    })
}

fn unchanged(
    update: &mut dyn DocumentUpdate,
    id: &RecordId,
    doc: RawDoc<'_>,
    result: &mut UpdateResult,
) -> Result<()> {
    let record = UpdatedRecord {
        id,
        old: doc,
        new: doc,
    };
    update.prepare_returned(&record)?;
    result.matched += 1;
    update.applied(&record)
}

/// Writes records in units of bounded size, and retries after conflicts.
pub(crate) struct BatchWriter<'a> {
    db: &'a Arc<Db>,
    op: &'a StatementContext,
    collection: &'a Arc<Collection>,
    unit: Option<(WriteUnitOfWork, Slot)>,
    in_unit: usize,
    pub(crate) stats: WriteStats,
}

impl<'a> BatchWriter<'a> {
    pub(crate) fn new(
        db: &'a Arc<Db>,
        op: &'a StatementContext,
        collection: &'a Arc<Collection>,
    ) -> BatchWriter<'a> {
        BatchWriter {
            db,
            op,
            collection,
            unit: None,
            in_unit: 0,
            stats: WriteStats::default(),
        }
    }

    /// Calls `write` for every match, or, unless `multi`, until it returns true once. No unit is
    /// open while the plan searches.
    pub(crate) fn write_all(
        &mut self,
        records: &mut dyn RecordSource,
        multi: bool,
        write: &mut dyn FnMut(&mut BatchWriter<'a>, &MatchedRecord) -> Result<bool>,
    ) -> Result<()> {
        loop {
            let gathered = Gathered::from(records, self.op, multi);
            let mut written = Ok(false);
            for record in &gathered.records {
                written = self.op.check_interrupt().and_then(|()| write(self, record));
                if written.is_err() {
                    break;
                }
            }
            // Commits the records written so far, whatever ended the loop.
            let committed = self.finish();
            let written = written?;
            committed?;
            if let Some(end) = gathered.end {
                return end;
            }
            if written && !multi {
                return Ok(());
            }
        }
    }

    /// Calls `write` for one record in the current unit. On a conflict commits what the unit has,
    /// and calls `write` again in a new unit, which can wait for the other writer.
    pub(crate) fn attempt<T>(
        &mut self,
        mut write: impl FnMut(&mut WriteUnitOfWork, &StatementContext, Slot) -> Result<T>,
    ) -> Result<T> {
        let mut backoff = Backoff::default();
        loop {
            let (unit, slot) = match &mut self.unit {
                Some((unit, slot)) => (unit, *slot),
                none => {
                    let (unit, slot) = none.insert(begin(self.db, self.op, self.collection)?);
                    (unit, *slot)
                }
            };
            match write(unit, self.op, slot) {
                Ok(done) => {
                    self.in_unit += 1;
                    if self.in_unit >= UNIT_DOCUMENTS_MAX || unit.bytes() >= UNIT_BYTES_MAX {
                        self.finish()?;
                    }
                    return Ok(done);
                }
                Err(error) if is_write_conflict(&error) && self.op.transaction().is_none() => {
                    let progressed = !unit.storage.is_empty();
                    self.finish()?;
                    if !progressed {
                        backoff.wait(self.op)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits the current unit, if any.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.in_unit = 0;
        if let Some((unit, _)) = self.unit.take() {
            self.stats.add(&unit.commit(self.op)?);
        }
        Ok(())
    }
}

fn begin(
    db: &Arc<Db>,
    op: &StatementContext,
    collection: &Arc<Collection>,
) -> Result<(WriteUnitOfWork, Slot)> {
    match db.begin_write(op, collection.ns(), Patience::Waits)? {
        Some((unit, slot)) if unit.collection(slot).uuid() == collection.uuid() => Ok((unit, slot)),
        _ => Err(Error::new(
            ErrorCode::QUERY_PLAN_KILLED,
            format!("collection dropped or renamed: {}", collection.ns()),
        )),
    }
}
