//! The oplog as an observer: writes entries in the commit that the changes belong to.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Result};
use sheaf_storage::StorageTransaction;

use crate::change::{AppendChanges, Change, DdlChange};
use crate::collection::Collection;
use crate::database::Db;
use crate::oplog::entry::{
    self, COLLECTION_OPTIONS_BEFORE, INDEX_OPTIONS_BEFORE, LoggedOp, WriteOrigin,
};
use crate::oplog::{Reservation, Silent};
use crate::storage_error::IntoClientError;

/// Operations of one unit of work.
pub(crate) struct OplogNotes {
    /// `None` while the oplog is off.
    logged: Option<Vec<LoggedOp>>,
    bytes: u64,
    _silent: Option<Silent>,
}

/// Number of operations, and their bytes, at a savepoint.
#[derive(Clone, Copy)]
pub(crate) struct OplogMark {
    operations: usize,
    bytes: u64,
}

impl OplogNotes {
    pub(crate) fn begin(db: &Arc<Db>) -> OplogNotes {
        let silent = db.silent_unit();
        OplogNotes {
            logged: silent.is_none().then(Vec::new),
            bytes: 0,
            _silent: silent,
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.logged.is_some()
    }

    pub(crate) fn changed(&mut self, collection: &Collection, change: Change<'_>) {
        if collection.ns().is_replicated() {
            self.push(LoggedOp::of_change(collection, change));
        }
    }

    pub(crate) fn ddl(&mut self, db: &Db, change: DdlChange<'_>) -> Result<()> {
        if let Some(logged) = LoggedOp::of_ddl(db, change)? {
            self.push(logged);
        }
        Ok(())
    }

    fn push(&mut self, op: LoggedOp) {
        if let Some(logged) = &mut self.logged {
            self.bytes += op.len_bytes() as u64;
            logged.push(op);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn mark(&self) -> OplogMark {
        OplogMark {
            operations: self.logged.as_ref().map_or(0, Vec::len),
            bytes: self.bytes,
        }
    }

    pub(crate) fn rollback_to(&mut self, mark: OplogMark) {
        if let Some(logged) = &mut self.logged {
            logged.truncate(mark.operations);
            self.bytes = mark.bytes;
        }
    }

    /// Adds the entries to the unit, at times that no reader passes before the commit. `None`
    /// without operations.
    pub(crate) fn prepare<'d>(
        &mut self,
        db: &'d Db,
        unit: &mut StorageTransaction,
        origin: Option<&WriteOrigin>,
        transaction: bool,
    ) -> Option<Reservation<'d>> {
        let logged = self.logged.take().filter(|logged| !logged.is_empty())?;
        let operations_max = db.oplog().transaction_entry_operations_max();
        let count = match transaction {
            true => entry::entries_of_transaction(&logged, operations_max),
            false => logged.len(),
        };
        let reservation = db.reserve_oplog(count);
        let writer = reservation.writer(origin);
        match transaction {
            true => writer.put_transaction(unit, &logged, operations_max),
            false => writer.put_each(unit, &logged),
        }
        Some(reservation)
    }
}

impl Db {
    /// Adds DDL entries to the unit that executes it.
    pub(crate) fn log_ddl(
        &self,
        unit: &mut StorageTransaction,
        changes: &mut dyn Iterator<Item = DdlChange<'_>>,
    ) -> Result<Option<Reservation<'_>>> {
        let mut logged = Vec::new();
        for change in changes {
            logged.extend(LoggedOp::of_ddl(self, change)?);
        }
        if logged.is_empty() {
            return Ok(None);
        }
        let reservation = self.reserve_oplog(logged.len());
        reservation.writer(None).put_each(unit, &logged);
        Ok(Some(reservation))
    }
}

impl LoggedOp {
    fn of_change(collection: &Collection, change: Change<'_>) -> LoggedOp {
        let (ns, uuid) = (collection.ns(), collection.uuid());
        let keeps = collection.options().keeps_images();
        match change {
            Change::Inserted(doc) => LoggedOp::insert(ns, uuid, doc),
            Change::Updated { old, new, modified } => {
                LoggedOp::update(ns, uuid, old, new, modified).with_pre_image(old, keeps)
            }
            Change::Deleted(old) => LoggedOp::delete(ns, uuid, old).with_pre_image(old, keeps),
        }
    }

    /// `None` for changes that are not logged: the server's local data, and, as in MongoDB, search
    /// indexes.
    fn of_ddl(db: &Db, change: DdlChange<'_>) -> Result<Option<LoggedOp>> {
        let logged = match change {
            DdlChange::CollectionCreated(collection) => LoggedOp::collection_created(collection),
            DdlChange::CollectionDropped(collection) => {
                let table = db
                    .engine()
                    .table_stats(collection.table())
                    .into_client_error()?;
                let mut o2 = DocBuilder::new();
                o2.append("numRecords", table.entries as i64);
                let o = command("drop", collection);
                LoggedOp::on_collection(collection, o.finish(), Some(o2.finish()))
            }
            DdlChange::DatabaseDropped(name) => {
                let mut o = DocBuilder::new();
                o.append("dropDatabase", 1);
                LoggedOp::command(name, None, o.finish(), None)
            }
            DdlChange::CollectionRenamed {
                source,
                to,
                dropped,
            } => {
                let mut o = DocBuilder::new();
                o.append("renameCollection", source.ns().as_str());
                o.append("to", to.as_str());
                o.append("stayTemp", false);
                if let Some(dropped) = dropped {
                    o.append("dropTarget", dropped.uuid().as_raw());
                }
                LoggedOp::on_collection(source, o.finish(), None)
            }
            DdlChange::OptionsModified {
                collection,
                changes,
                before,
            } => {
                let mut o = command("collMod", collection);
                changes(&mut o);
                let o2 = state_before(before, None);
                LoggedOp::on_collection(collection, o.finish(), Some(o2))
            }
            DdlChange::IndexCreated(_, index)
            | DdlChange::IndexDropped(_, index)
            | DdlChange::IndexModified { index, .. }
                if index.is_vector() =>
            {
                return Ok(None);
            }
            DdlChange::IndexCreated(collection, index) => {
                let mut o = command("createIndexes", collection);
                o.extend(index.spec().to_doc().as_raw());
                LoggedOp::on_collection(collection, o.finish(), None)
            }
            DdlChange::IndexDropped(collection, index) => {
                let mut o = command("dropIndexes", collection);
                o.append("index", index.name());
                LoggedOp::on_collection(collection, o.finish(), Some(index.spec().to_doc()))
            }
            DdlChange::IndexModified {
                collection,
                index,
                changes,
                before,
            } => {
                let mut o = command("collMod", collection);
                o.begin_document("index");
                o.append("name", index.name());
                changes(&mut o);
                o.end();
                let o2 = state_before(collection, Some(before));
                LoggedOp::on_collection(collection, o.finish(), Some(o2))
            }
            DdlChange::ViewCreated(view) => LoggedOp::put_view(view, true),
            DdlChange::ViewModified(view) => LoggedOp::put_view(view, false),
            DdlChange::ViewDropped(ns) => LoggedOp::drop_view(ns),
        };
        Ok((!logged.is_local()).then_some(logged))
    }

    /// A command that changed a collection.
    fn on_collection(collection: &Collection, o: DocBuf, o2: Option<DocBuf>) -> LoggedOp {
        LoggedOp::command(collection.ns().db(), Some(collection.uuid()), o, o2)
    }
}

/// `o2` of a collMod: the options as they were, with the collection's UUID.
fn state_before(collection: &Collection, index: Option<AppendChanges<'_>>) -> DocBuf {
    let mut o2 = DocBuilder::new();
    o2.begin_document(COLLECTION_OPTIONS_BEFORE);
    o2.extend(collection.options().to_doc().as_raw());
    o2.append("uuid", collection.uuid().as_raw());
    o2.end();
    if let Some(append) = index {
        o2.begin_document(INDEX_OPTIONS_BEFORE);
        append(&mut o2);
        o2.end();
    }
    o2.finish()
}

/// The beginning of a command document, `{name: collection`.
fn command(name: &str, collection: &Collection) -> DocBuilder {
    let mut o = DocBuilder::new();
    o.append(name, collection.ns().collection());
    o
}
