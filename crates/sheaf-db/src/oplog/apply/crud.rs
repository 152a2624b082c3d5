//! Applies inserts, updates and deletes of an oplog, in units of work.
//!
//! Documents are identified by `_id`. An insert of an existing document replaces it; a delete of a
//! missing document does nothing.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{Error, ErrorCode, RawDoc, RawValue, RecordId, Result};
use sheaf_query::update::diff;

use super::{ApplyRules, Operation, OperationKind};
use crate::database::Db;
use crate::exec::id_reader::IdReader;
use crate::index::modified::Modified;
use crate::statement::StatementContext;
use crate::storage_error::is_write_conflict;
use crate::write::document_rules::{check_replacement, prepare_for_insert};
use crate::write::retry::Backoff;
use crate::write::unit::{Patience, Slot, WriteUnitOfWork};

/// The field of `$v: 2` entries that holds the diff.
const DIFF: &str = "diff";

/// Applies one operation in a separate unit.
pub(super) fn apply(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let ns = operation.namespace()?;
    let mut backoff = Backoff::default();
    loop {
        op.check_interrupt_now()?;
        let collection = operation.collection(db, &ns)?;
        let Some((mut unit, slot)) = db.begin_write(op, collection.ns(), Patience::Waits)? else {
            continue;
        };
        if unit.collection(slot).uuid() != collection.uuid() {
            continue;
        }
        let applied = apply_in(&mut unit, op, slot, rules, operation);
        match applied.and_then(|()| unit.commit(op)) {
            Err(error) if is_write_conflict(&error) => backoff.wait(op)?,
            done => return done.map(|_| ()),
        }
    }
}

/// Applies one operation in a unit that has opened the collection.
/// Errors: `WriteConflict`, those of the write.
pub(super) fn apply_in(
    unit: &mut WriteUnitOfWork,
    op: &StatementContext,
    slot: Slot,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    if !rules.is_checked {
        unit.relax_constraints();
    }
    let o = operation.o;
    match operation.kind {
        OperationKind::Insert => {
            let id = id_of(o, "insert")?;
            match find(unit, op, slot, id)? {
                Some((record, old)) => replace(
                    unit,
                    op,
                    slot,
                    rules,
                    (&record, &old),
                    o,
                    Modified::Everything,
                ),
                None => insert(unit, op, slot, rules, o),
            }
        }
        OperationKind::Update => update(unit, op, slot, rules, operation),
        OperationKind::Delete => {
            let id = id_of(o, "delete")?;
            match find(unit, op, slot, id)? {
                Some((record, old)) => unit.delete(op, slot, &record, RawDoc::stored(&old)?),
                None => Ok(()),
            }
        }
        OperationKind::Command | OperationKind::Noop => Ok(()),
    }
}

fn update(
    unit: &mut WriteUnitOfWork,
    op: &StatementContext,
    slot: Slot,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let Some(criteria) = operation.o2 else {
        return Err(super::missing("o2"));
    };
    let id = id_of(criteria, "update")?;
    let o = operation.o;
    let difference = difference(o)?;
    match (find(unit, op, slot, id)?, difference) {
        (Some((record, old)), Some(difference)) => {
            let new = diff::apply(RawDoc::stored(&old)?, difference)?;
            if new.as_bytes() == &old[..] {
                return Ok(());
            }
            let anywhere = |_: &FieldPath| true;
            let modified = Modified::Paths(&anywhere);
            replace(
                unit,
                op,
                slot,
                rules,
                (&record, &old),
                new.as_raw(),
                modified,
            )
        }
        (Some((record, old)), None) => replace(
            unit,
            op,
            slot,
            rules,
            (&record, &old),
            o,
            Modified::Everything,
        ),
        (None, None) if rules.upserts => insert(unit, op, slot, rules, o),
        (None, _) if rules.is_idempotent => Ok(()),
        (None, _) => Err(Error::new(
            ErrorCode::UPDATE_OPERATION_FAILED,
            format!("Failed to apply update due to missing _id: {criteria}"),
        )),
    }
}

/// Returns the diff of an update `{$v: 2, diff: {..}}`; `None` for a replacement.
/// Errors: 4772600 for another version, `FailedToParse`.
fn difference(o: RawDoc<'_>) -> Result<Option<RawDoc<'_>>> {
    let Some(version) = o.get("$v") else {
        return Ok(None);
    };
    if version.as_i64_exact() != Some(2) {
        return Err(Error::new(
            ErrorCode(4772600),
            format!("an update of the oplog has $v: 2, got {version}"),
        ));
    }
    match o.get(DIFF) {
        Some(RawValue::Document(diff)) => Ok(Some(diff)),
        _ => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "an update of the oplog with $v: 2 needs the document 'diff'",
        )),
    }
}

fn insert(
    unit: &mut WriteUnitOfWork,
    op: &StatementContext,
    slot: Slot,
    rules: ApplyRules,
    doc: RawDoc<'_>,
) -> Result<()> {
    if rules.is_checked {
        let db = unit.db().clone();
        let bytes = prepare_for_insert(doc, &mut || db.next_timestamp())?;
        let stored = Bytes::from(bytes.into_owned());
        return unit.insert(op, slot, stored).map(|_| ());
    }
    // Records that a capped collection removes have separate oplog entries.
    unit.insert_record(op, slot, Bytes::copy_from_slice(doc.as_bytes()))
        .map(|_| ())
}

fn replace(
    unit: &mut WriteUnitOfWork,
    op: &StatementContext,
    slot: Slot,
    rules: ApplyRules,
    (record, old): (&RecordId, &Bytes),
    new: RawDoc<'_>,
    modified: Modified<'_>,
) -> Result<()> {
    if rules.is_checked {
        check_replacement(new)?;
    }
    let stored = Bytes::copy_from_slice(new.as_bytes());
    let before = RawDoc::stored(old)?;
    if before.get("_id") != new.get("_id") {
        return Err(Error::new(
            ErrorCode::IMMUTABLE_FIELD,
            "an update of the oplog must keep the document's _id",
        ));
    }
    unit.update(op, slot, record, before, Some(old), &stored, modified)
}

/// Finds and locks the document with this `_id`; returns it as it is under the lock.
fn find(
    unit: &mut WriteUnitOfWork,
    op: &StatementContext,
    slot: Slot,
    id: RawValue<'_>,
) -> Result<Option<(RecordId, Bytes)>> {
    loop {
        let view = unit.read_view(slot);
        let Some(mut reader) = IdReader::new(&view)? else {
            return Ok(None);
        };
        let Some((record, _)) = reader.find(id)? else {
            return Ok(None);
        };
        drop(reader);
        unit.lock_record(op, slot, &record)?;
        if let Some(now) = unit.document(slot, &record)? {
            return Ok(Some((record, now)));
        }
        // Deleted before the lock was granted: another record may now have this _id.
    }
}

/// Errors: `NoSuchKey`.
fn id_of<'d>(doc: RawDoc<'d>, what: &str) -> Result<RawValue<'d>> {
    doc.get("_id").ok_or_else(|| {
        Error::new(
            ErrorCode::NO_SUCH_KEY,
            format!("Failed to apply {what} due to missing _id: {doc}"),
        )
    })
}
