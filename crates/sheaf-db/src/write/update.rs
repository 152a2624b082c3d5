//! Updates of what a plan has found.
//!
//! ```text
//!   plan (on its own snapshot) ─ record ─> apply ─┬─ unchanged: counted, no lock, no write
//!                                                 └─ changed: lock, read again
//!                                                      ├─ the same as the plan saw: written
//!                                                      ├─ another: matched and applied anew
//!                                                      └─ gone: passed over
//! ```
//!
//! The plan's snapshot is older than the writes, so no update meets its own results.

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

/// What an update makes of one document.
pub enum Applied {
    /// The document does not match (any more).
    NoMatch,
    /// It matches, and is already as the update wants it.
    Unchanged,
    /// It matches, and becomes another.
    Changed {
        /// The new document, whole, with the same `_id` first.
        document: Bytes,
        /// What may differ.
        modified: ModifiedBy,
    },
}

/// What an update may have changed, to keep.
pub enum ModifiedBy {
    /// Only what is at these paths: operators did it.
    Operators(ModifiedPaths),
    /// Only what is at these paths: a pipeline did it.
    Pipeline(ModifiedPaths),
    /// Anything: a replacement, which the oplog tells as a whole.
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

/// An update statement, as the write path needs it.
pub trait DocumentUpdate {
    /// Applies the update. `recheck`: the document is another than the plan saw, so the filter must be
    /// asked again; else the document is known to match.
    /// Errors end the statement.
    fn apply(&mut self, doc: RawDoc<'_>, recheck: bool) -> Result<Applied>;

    /// The document that findAndModify answers with, if it does.
    fn returned(&self) -> Option<&DocBuf> {
        None
    }

    /// Computes the document that findAndModify returns. Called before the record is written, and
    /// again if the write is retried. An error ends the statement and leaves the record unchanged.
    fn prepare_returned(&mut self, _record: &UpdatedRecord<'_>) -> Result<()> {
        Ok(())
    }

    /// The update of the record is part of the unit of work.
    fn applied(&mut self, _record: &UpdatedRecord<'_>) -> Result<()> {
        Ok(())
    }
}

/// A record that an update has matched. `old` and `new` are the same when nothing changed.
#[derive(Debug, Clone, Copy)]
pub struct UpdatedRecord<'a> {
    /// Its record.
    pub id: &'a RecordId,
    /// As it was.
    pub old: RawDoc<'a>,
    /// As it will be.
    pub new: RawDoc<'a>,
}

/// What an update statement did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UpdateResult {
    /// `n`: documents that matched.
    pub matched: u64,
    /// `nModified`: documents that are others now.
    pub modified: u64,
    /// Keys written.
    pub stats: WriteStats,
}

impl Db {
    /// Updates the records that a plan finds in `collection`: the first, or with `multi` all of them.
    /// `result` is kept up to date, so it says after an error what was done before.
    ///
    /// Errors: those of the plan and of the update, `DuplicateKey`..., `QueryPlanKilled` when the collection is
    /// dropped meanwhile.
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

/// Updates one record; false when it turned out not to match.
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
                let updated = UpdatedRecord {
                    id: &record.id,
                    old: now,
                    new,
                };
                update.prepare_returned(&updated)?;
                let base = Some(&bytes);
                let modified_by = modified.borrowed();
                let stands = unit.update(op, slot, &record.id, now, base, &document, modified_by);
                if let Err(error) = stands {
                    // The next attempt need not compute it again.
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

/// Writes record after record in units of bounded size, and begins again after conflicts.
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

    /// Has `write` write every match of a plan, or without `multi` the first for which it says that it
    /// did. No unit is open while the plan searches.
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
            // Whatever ended the loop, the records before are written.
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

    /// Has `write` write one record in the current unit. On a conflict what the unit has is committed, and
    /// `write` called again in a new one, which can wait for the other writer.
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

    /// Commits what there is.
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
