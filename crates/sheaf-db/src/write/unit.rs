//! A unit of work on collections, on top of a storage transaction: what that is to keys, this is to
//! documents.
//!
//! ```text
//!   begin ─ shared intent ─ catalog ─ storage unit ─┬─ lock_record ─ insert / update / delete ─┬─ commit
//!                                                   └── savepoint ... rollback_to ─────────────┘
//! ```
//!
//! The intent is taken first, so the set of indexes stays the same until the unit ends, and the
//! snapshot of the storage transaction is at least as new as the catalog.
//!
//! Invariant: whatever way the unit ends, index entries fit the records, and planners know of every
//! multikey path before a document that has it can be seen.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sheaf_bson::{Error, ErrorCode, RecordId, Result};
use sheaf_storage::{
    Cursor, Durability, LockMode, Savepoint, Snapshot, StorageError, StorageTransaction, TableId,
};

use crate::catalog::ReadView;
use crate::catalog::namespace::Namespace;
use crate::catalog::new_collection::{check_name, exists_otherwise, new_collection};
use crate::catalog::options::CollectionOptions;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::change::{Change, DdlChange};
use crate::collection::Collection;
use crate::collection::capped_state::CappedWriter;
use crate::collection::intent::SharedIntent;
use crate::database::Db;
use crate::index::definition::IndexSpec;
use crate::index::key_set::{EntryKey, KeySet};
use crate::index::{Index, IndexConstraints};
use crate::op_context::OpContext;
use crate::record_key::record_key;
use crate::statement::StatementContext;
use crate::storage_error::{IntoClientError, client_error};
use crate::transaction_memory::Charge;
use crate::txn::{self, Isolation, Transaction};
use crate::write::observer::{ObserverMark, OpObserver};

/// How long a wait for a lock goes on before it looks whether the operation was killed.
const LOCK_WAIT_SLICE: Duration = Duration::from_millis(50);

/// How long a transaction that creates collections waits for other changes of its databases.
const CREATION_WAIT: Duration = Duration::from_millis(100);

/// Whether a unit waits for what others hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Its first lock is waited for, until the operation is killed or out of time: single writes.
    Waits,
    /// Whatever is held is a `WriteConflict` at once: multi-document transactions.
    FailsAtOnce,
}

/// What writes did, for explain, the log and the profiler.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WriteStats {
    /// Index entries added.
    pub keys_inserted: u64,
    /// Index entries removed.
    pub keys_deleted: u64,
    /// Documents inserted.
    pub docs_inserted: u64,
    /// Documents changed.
    pub docs_modified: u64,
    /// Documents deleted.
    pub docs_deleted: u64,
}

impl WriteStats {
    /// Adds the other's counts.
    pub fn add(&mut self, other: &WriteStats) {
        self.keys_inserted += other.keys_inserted;
        self.keys_deleted += other.keys_deleted;
        self.docs_inserted += other.docs_inserted;
        self.docs_modified += other.docs_modified;
        self.docs_deleted += other.docs_deleted;
    }
}

/// A unit of work. Dropped without a commit it leaves no trace.
pub struct WriteUnitOfWork {
    db: Arc<Db>,
    pub(crate) storage: StorageTransaction,
    /// The unit's snapshot without its own writes, and cursors on it.
    base: Arc<dyn Snapshot>,
    cursors: Vec<(TableId, Box<dyn Cursor>)>,
    generation: u64,
    collections: Vec<OpenCollection>,
    patience: Patience,
    constraints: IndexConstraints,
    holds_locks: bool,
    pub(crate) stats: WriteStats,
    pub(crate) scratch: Scratch,
    pub(crate) observer: OpObserver,
    /// What a transaction's unit holds of the memory for transactions.
    charge: Option<Charge>,
    /// The transaction whose statement has the unit now.
    lent: Option<Lent>,
}

/// What a unit had done before the statement that has it.
struct Lent {
    transaction: Arc<Transaction>,
    stats: WriteStats,
    bytes: u64,
}

/// Buffers that live from document to document, and from unit to unit of a thread.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) old: Vec<KeySet>,
    pub(crate) new: Vec<KeySet>,
    pub(crate) entry: EntryKey,
}

/// What a thread keeps of its last unit's buffers, at most, in bytes.
const SCRATCH_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

impl Scratch {
    /// Those of the last unit that ended on this thread, or new ones.
    fn take() -> Scratch {
        SCRATCH.take().unwrap_or_default()
    }

    fn give_back(self) {
        let held = |sets: &[KeySet]| sets.iter().map(KeySet::held_bytes).sum::<usize>();
        if held(&self.old) + held(&self.new) <= SCRATCH_MAX {
            SCRATCH.set(Some(self));
        }
    }
}

struct OpenCollection {
    collection: Arc<Collection>,
    /// Some document of the unit has multikey paths.
    multikey: bool,
    /// `None`: the unit creates the collection, and nobody else knows of it.
    intent: Option<SharedIntent>,
    /// The unit is the one that inserts into it.
    capped: Option<CappedWriter>,
}

/// One of the collections that a unit has open. Worth nothing in another unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(usize);

/// A point within a unit to go back to.
#[must_use]
pub struct UnitSavepoint {
    storage: Savepoint,
    stats: WriteStats,
    observed: ObserverMark,
}

impl Db {
    /// Begins a unit of work on a collection. `None` when there is no such collection.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`, `LockTimeout`, the engine's.
    pub fn begin_write(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        patience: Patience,
    ) -> Result<Option<(WriteUnitOfWork, Slot)>> {
        if ns.is_oplog() {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                format!("cannot write to {ns}: the server alone does"),
            ));
        }
        if let Some(transaction) = op.transaction() {
            return transaction.enter(op, ns);
        }
        let Some(open) = self.open_for_write(op, ns, None)? else {
            return Ok(None);
        };
        // Under the intent, so that no change of the shape can lie between the snapshot and the catalog.
        let unit = self.unit_of(vec![open], patience, Isolation::Snapshot)?;
        Ok(Some((unit, Slot(0))))
    }

    /// Begins a transaction's unit, which has no collection open yet.
    pub(crate) fn begin_unit(self: &Arc<Self>, isolation: Isolation) -> Result<WriteUnitOfWork> {
        let mut unit = self.unit_of(Vec::new(), Patience::FailsAtOnce, isolation)?;
        unit.charge = Some(Charge::new(self.transaction_memory()));
        Ok(unit)
    }

    fn unit_of(
        self: &Arc<Self>,
        collections: Vec<OpenCollection>,
        patience: Patience,
        isolation: Isolation,
    ) -> Result<WriteUnitOfWork> {
        let generation = self.catalog().generation();
        let observer = OpObserver::begin(self);
        let unit = match isolation {
            Isolation::Snapshot => self.storage().begin(),
            Isolation::Serializable => self.storage().begin_serializable(),
        };
        let unit = unit.into_client_error()?;
        let base = unit.reader();
        Ok(WriteUnitOfWork {
            db: self.clone(),
            observer,
            charge: None,
            storage: unit,
            base,
            cursors: Vec::new(),
            generation,
            collections,
            patience,
            constraints: IndexConstraints::Enforced,
            holds_locks: false,
            stats: WriteStats::default(),
            scratch: Scratch::take(),
            lent: None,
        })
    }

    fn open_for_write(
        &self,
        op: &OpContext,
        ns: &Namespace,
        limit: Option<Duration>,
    ) -> Result<Option<OpenCollection>> {
        loop {
            let catalog = self.catalog();
            let Some(seen) = catalog.collection(ns) else {
                return Ok(None);
            };
            let intent = seen.state.intents.shared(op, limit)?;
            let catalog = self.catalog();
            match catalog.collection(ns) {
                Some(now) if now.uuid() == seen.uuid() => {
                    now.state.record_ids.recover(self.storage(), now.table())?;
                    return Ok(Some(OpenCollection {
                        collection: now.clone(),
                        multikey: false,
                        intent: Some(intent),
                        capped: None,
                    }));
                }
                // Dropped, renamed or replaced while we waited.
                _ => drop(intent),
            }
        }
    }
}

impl WriteUnitOfWork {
    /// Opens a further collection: for transactions. `None` when there is no such collection.
    ///
    /// Errors: `LockTimeout` after `limit`; `WriteConflict` when the collection's shape has changed since
    /// the unit began, for its snapshot does not fit the new one.
    pub fn open(
        &mut self,
        op: &OpContext,
        ns: &Namespace,
        limit: Option<Duration>,
    ) -> Result<Option<Slot>> {
        let known = |open: &OpenCollection| open.collection.ns() == ns;
        if let Some(at) = self.collections.iter().position(known) {
            return Ok(Some(Slot(at)));
        }
        let Some(open) = self.db.open_for_write(op, ns, limit)? else {
            return Ok(None);
        };
        if open.collection.generation > self.generation {
            return Err(Error::new(
                ErrorCode::WRITE_CONFLICT,
                format!("{ns} was created or changed after the transaction began; try again"),
            ));
        }
        self.collections.push(open);
        Ok(Some(Slot(self.collections.len() - 1)))
    }

    /// The collection as the unit sees it: its indexes stay these until the unit ends, but for
    /// multikey paths that documents of the unit add.
    pub fn collection(&self, slot: Slot) -> &Arc<Collection> {
        &self.collections[slot.0].collection
    }

    /// The collection with the unit's writes up to now, for reading.
    pub fn read_view(&self, slot: Slot) -> ReadView {
        ReadView {
            collection: Some(self.collection(slot).clone()),
            snapshot: self.storage.reader(),
        }
    }

    /// The data with the unit's writes up to now, for reading a collection that is not there.
    pub(crate) fn empty_view(&self) -> ReadView {
        ReadView {
            collection: None,
            snapshot: self.storage.reader(),
        }
    }

    /// Creates a collection that only the unit sees until it commits. One that the unit has open with
    /// the same options is left as it is.
    ///
    /// Errors: `NamespaceExists`, `InvalidNamespace`, `DatabaseDifferCase`, `WriteConflict`.
    pub(crate) fn create_collection(
        &mut self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        if let Some(slot) = self.open(op, ns, Some(Duration::ZERO))? {
            let collection = self.collection(slot).clone();
            return match collection.options().same(options) {
                true => Ok(collection),
                false => Err(exists_otherwise(&collection)),
            };
        }
        let db = self.db.clone();
        let catalog = db.catalog_writer();
        check_name(&catalog.current(), ns)?;
        let created = new_collection(catalog, &mut self.storage, ns, options, None)?;
        self.observer
            .ddl(&db, DdlChange::CollectionCreated(&created))?;
        let collection = Arc::new(created);
        self.collections.push(OpenCollection {
            collection: collection.clone(),
            multikey: false,
            intent: None,
            capped: None,
        });
        Ok(collection)
    }

    /// Makes indexes of a collection that the unit creates and has put nothing into; false for any other.
    pub(crate) fn create_indexes(&mut self, ns: &Namespace, specs: Vec<IndexSpec>) -> Result<bool> {
        let own = |open: &OpenCollection| open.intent.is_none() && open.collection.ns() == ns;
        let Some(at) = self.collections.iter().position(own) else {
            return Ok(false);
        };
        let collection = self.collections[at].collection.clone();
        let records = self.storage.writes().table(collection.table());
        if records.is_some_and(|records| !records.keys().is_empty()) {
            return Ok(false);
        }
        let db = self.db.clone();
        let mut list = collection.index_list().to_vec();
        for spec in specs {
            let (table, ident) = db.catalog_writer().allocate("index", &mut self.storage);
            self.storage.create_table(table);
            let index = Index::new(spec, ident, table, Vec::new())?;
            self.observer
                .ddl(&db, DdlChange::IndexCreated(&collection, &index))?;
            list.push(index);
        }
        self.collections[at].collection = Arc::new(collection.with_indexes(list)?);
        Ok(true)
    }

    /// What the unit has done so far.
    pub fn stats(&self) -> &WriteStats {
        &self.stats
    }

    /// Bytes of keys and values put so far; in a transaction, by the statement.
    pub fn bytes(&self) -> u64 {
        self.storage.writes().bytes() - self.lent.as_ref().map_or(0, |lent| lent.bytes)
    }

    /// The document of a record as the unit sees it.
    pub fn document(&self, slot: Slot, id: &RecordId) -> Result<Option<Bytes>> {
        let table = self.collection(slot).table();
        self.storage.get(table, &record_key(id)).into_client_error()
    }

    /// Locks a record that is to be changed, before it is read.
    /// Errors: `WriteConflict`, `Interrupted`, `MaxTimeMSExpired`.
    pub fn lock_record(&mut self, op: &OpContext, slot: Slot, id: &RecordId) -> Result<()> {
        let table = self.collection(slot).table();
        self.lock(op, table, &record_key(id))
    }

    /// Locks a key, until the unit ends.
    ///
    /// A patient unit waits for its first lock, and takes a new snapshot when the former holder has
    /// changed something: what it had read before is to be read again. Later locks are never waited
    /// for, since two units could wait for each other.
    ///
    /// Errors: `WriteConflict` (commit what there is, or begin the unit again), `Interrupted`,
    /// `MaxTimeMSExpired`.
    pub(crate) fn lock(&mut self, op: &OpContext, table: TableId, key: &[u8]) -> Result<()> {
        if self.patience == Patience::FailsAtOnce || self.holds_locks || !self.storage.is_empty() {
            self.storage
                .lock(table, key, LockMode::Fail)
                .into_client_error()?;
            self.holds_locks = true;
            return Ok(());
        }
        loop {
            let limit = op
                .remaining()
                .map_or(LOCK_WAIT_SLICE, |left| left.min(LOCK_WAIT_SLICE));
            match self.storage.lock(table, key, LockMode::Wait { limit }) {
                Ok(()) => break,
                // Somebody was faster by a moment, or a former holder has left something new.
                Err(StorageError::WriteConflict) => {
                    op.counters().write_conflicts.add(1);
                    self.storage.refresh().into_client_error()?;
                    self.base = self.storage.reader();
                    self.cursors.clear();
                }
                Err(StorageError::LockTimeout { .. }) => {}
                Err(error) => return Err(client_error(error)),
            }
            op.check_interrupt_now()?;
        }
        self.holds_locks = true;
        Ok(())
    }

    /// Marks this point.
    pub fn savepoint(&mut self) -> UnitSavepoint {
        UnitSavepoint {
            storage: self.storage.savepoint(),
            stats: self.stats,
            observed: self.observer.mark(),
        }
    }

    /// Takes back all writes since the savepoint and ends it. Locks stay.
    pub fn rollback_to(&mut self, savepoint: UnitSavepoint) {
        self.storage.rollback_to(&savepoint.storage);
        self.storage.release(savepoint.storage);
        self.stats = savepoint.stats;
        self.observer.rollback_to(savepoint.observed);
    }

    /// Ends a savepoint and keeps the writes.
    pub fn release(&mut self, savepoint: UnitSavepoint) {
        self.storage.release(savepoint.storage);
    }

    /// Commits: all writes become visible together, durable within the flush interval ([`Db::sync`] makes
    /// them so at once). Adds what was done to the operation's counters, and tells.
    ///
    /// The unit of a transaction goes back to it instead, and commits with it.
    pub fn commit(mut self, op: &StatementContext) -> Result<WriteStats> {
        if let Some(charge) = &mut self.charge {
            let writes = self.storage.writes();
            charge.hold(writes.bytes() + self.observer.bytes(), writes.operations())?;
        }
        let lent = self.lent.take();
        let stats = match &lent {
            Some(lent) => txn::since(&self.stats, &lent.stats),
            None => self.stats,
        };
        match lent {
            // What the transaction logs it logs, and counts, when it commits.
            Some(lent) => lent.transaction.park(self),
            None => self.commit_storage(op, false)?,
        }
        let counters = op.counters();
        counters.keys_inserted.add(stats.keys_inserted);
        counters.keys_deleted.add(stats.keys_deleted);
        counters.docs_inserted.add(stats.docs_inserted);
        counters.docs_modified.add(stats.docs_modified);
        counters.docs_deleted.add(stats.docs_deleted);
        Ok(stats)
    }

    /// Reports a change of a document of an open collection.
    #[inline]
    pub(crate) fn report(&mut self, slot: Slot, change: Change<'_>) {
        let collection = &self.collections[slot.0].collection;
        self.observer.changed(collection, change);
    }

    /// Lends the unit to a statement of the transaction.
    pub(crate) fn lend(&mut self, transaction: Arc<Transaction>) {
        self.lent = Some(Lent {
            transaction,
            stats: self.stats,
            bytes: self.storage.writes().bytes(),
        });
    }

    /// Commits a transaction's unit, with the collections that it creates.
    /// Errors: `WriteConflict` when another has created one of them meanwhile.
    pub(crate) fn commit_transaction(mut self, op: &StatementContext) -> Result<()> {
        if !self.storage.is_empty() {
            self.observer.session().transaction_commits();
        }
        let created: Vec<Arc<Collection>> = self
            .collections
            .iter()
            .filter(|open| open.intent.is_none())
            .map(|open| open.collection.clone())
            .collect();
        if created.is_empty() {
            return self.commit_storage(op, true);
        }
        let db = self.db.clone();
        let catalog = db.catalog_writer();
        let names = created.iter().map(|collection| collection.ns().db());
        // Other DDL may hold a database and wait for what this unit holds: so the wait is short.
        let hurried = OpContext::new().with_max_time(CREATION_WAIT);
        let _databases = catalog.lock_databases(&hurried, names).map_err(|_| {
            Error::new(
                ErrorCode::LOCK_TIMEOUT,
                "the database is being changed by another command; try the transaction again",
            )
        })?;
        let current = catalog.current();
        let mut change = CatalogChange::default();
        for collection in created {
            let ns = collection.ns();
            if current.collection(ns).is_some() {
                return Err(Error::new(
                    ErrorCode::WRITE_CONFLICT,
                    format!("{ns} was created by another operation meanwhile; try again"),
                ));
            }
            check_name(&current, ns)?;
            // Its indexes may have become multikey since it was created.
            for index in collection.index_list() {
                index.multikey_unsaved().store(false, Ordering::Release);
            }
            rows::put_collection(&mut self.storage, &collection);
            change.added.push(Collection::clone(&collection));
        }
        self.commit_storage(op, true)?;
        catalog.publish(&change);
        Ok(())
    }

    fn commit_storage(mut self, op: &StatementContext, transaction: bool) -> Result<()> {
        let own = |open: &&OpenCollection| open.multikey && open.intent.is_some();
        for open in self.collections.iter().filter(own) {
            if open.collection.multikey_unsaved() {
                self.db
                    .catalog_writer()
                    .save_multikey(self.db.storage(), &open.collection)?;
            }
        }
        if !self.storage.is_empty() {
            op.counters().commits.add(1);
        }
        let db = self.db.clone();
        let ticket = self.prepare(&db, op, transaction)?;
        std::mem::take(&mut self.scratch).give_back();
        let (seq, logged) = self
            .storage
            .commit_counted(Durability::Buffered)
            .into_client_error()?;
        op.counters().bytes_logged.add(logged);
        for open in &self.collections {
            if let Some(writer) = &open.capped {
                open.collection.state.capped.committed(writer);
            }
        }
        ticket.committed(seq);
        Ok(())
    }

    pub(crate) fn set_collection(&mut self, slot: Slot, collection: Arc<Collection>) {
        self.collections[slot.0].collection = collection;
    }

    pub(crate) fn capped_writer(&mut self, slot: Slot) -> &mut Option<CappedWriter> {
        &mut self.collections[slot.0].capped
    }

    pub(crate) fn note_multikey(&mut self, slot: Slot) {
        self.collections[slot.0].multikey = true;
    }

    /// Sets whether the unit's writes keep what indexes promise.
    pub(crate) fn set_index_constraints(&mut self, constraints: IndexConstraints) {
        self.constraints = constraints;
    }

    pub(crate) fn index_constraints(&self) -> IndexConstraints {
        self.constraints
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// A cursor on a table as it was when the unit began, without the unit's own writes.
    pub(crate) fn base_cursor(&mut self, table: TableId) -> Result<&mut dyn Cursor> {
        let at = match self.cursors.iter().position(|(own, _)| *own == table) {
            Some(at) => at,
            None => {
                let cursor = self.base.cursor(table).into_client_error()?;
                self.cursors.push((table, cursor));
                self.cursors.len() - 1
            }
        };
        Ok(&mut *self.cursors[at].1)
    }
}
