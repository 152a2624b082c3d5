//! A unit of work on collections, on top of a storage transaction: documents and indexes instead of
//! keys.
//!
//! ```text
//!   begin ─ shared intent ─ catalog ─ storage unit ─┬─ lock_record ─ insert / update / delete ─┬─ commit
//!                                                   └── savepoint ... rollback_to ─────────────┘
//! ```
//!
//! The intent is taken first, so the set of indexes is fixed until the unit ends, and the snapshot
//! of the storage transaction is at least as new as the catalog.
//!
//! Invariant: however the unit ends, index entries match the records, and planners know every
//! multikey path before a document that has it becomes visible.

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
use crate::catalog::system_views::check_written_by_client;
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
use crate::system_names::is_access_control;
use crate::transaction_memory::Charge;
use crate::txn::{self, Isolation, Transaction};
use crate::write::observer::{ObserverMark, OpObserver};

/// Interval at which a wait for a lock checks whether the operation was killed.
const LOCK_WAIT_SLICE: Duration = Duration::from_millis(50);

/// Maximum wait of a transaction that creates collections for other changes of its databases.
const CREATION_WAIT: Duration = Duration::from_millis(100);

/// Whether a unit waits for locks that others hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Waits for its first lock until the operation is killed or times out: single writes.
    Waits,
    /// Fails with `WriteConflict` at once if a lock is held: multi-document transactions.
    FailsAtOnce,
}

/// Work done by writes, for explain, the log and the profiler.
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

/// A unit of work. Dropping it without a commit undoes everything.
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
    /// Memory charged to the transaction that owns the unit.
    charge: Option<Charge>,
    /// The transaction whose statement currently holds the unit.
    lent: Option<Lent>,
}

/// The state of a unit at the start of the current statement.
struct Lent {
    transaction: Arc<Transaction>,
    stats: WriteStats,
    bytes: u64,
}

/// Buffers reused across documents, and across units of a thread.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) old: Vec<KeySet>,
    pub(crate) new: Vec<KeySet>,
    pub(crate) entry: EntryKey,
}

/// Maximum size of the buffers that a thread keeps, in bytes.
const SCRATCH_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

impl Scratch {
    /// Returns the buffers of the last unit that ended on this thread, or new ones.
    fn take() -> Scratch {
        SCRATCH.take().unwrap_or_default()
    }

    fn recycle(self) {
        let held = |sets: &[KeySet]| sets.iter().map(KeySet::held_bytes).sum::<usize>();
        if held(&self.old) + held(&self.new) <= SCRATCH_MAX {
            SCRATCH.set(Some(self));
        }
    }
}

struct OpenCollection {
    collection: Arc<Collection>,
    /// Some document of the unit adds multikey paths.
    multikey: bool,
    /// `None` if the unit creates the collection, which is then invisible to others.
    intent: Option<SharedIntent>,
    /// Set if the unit is the one that inserts into it.
    capped: Option<CappedWriter>,
}

/// Identifies a collection that a unit has open. Meaningless for any other unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(usize);

/// A point within a unit to which it can roll back.
#[must_use]
pub struct UnitSavepoint {
    storage: Savepoint,
    stats: WriteStats,
    observed: ObserverMark,
}

impl Db {
    /// Begins a unit of work on a collection. `None` if it does not exist.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`, `LockTimeout`, those of the engine.
    pub fn begin_write(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        patience: Patience,
    ) -> Result<Option<(WriteUnitOfWork, Slot)>> {
        if ns.is_oplog() {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                format!("cannot write to {ns}: only the server writes to it"),
            ));
        }
        check_written_by_client(ns)?;
        if let Some(transaction) = op.transaction() {
            return transaction.enter(op, ns);
        }
        let Some(open) = self.open_for_write(op, ns, None)? else {
            return Ok(None);
        };
        // Under the intent, so that the shape cannot change between the snapshot and the catalog.
        let unit = self.unit_of(vec![open], patience, Isolation::Snapshot)?;
        Ok(Some((unit, Slot(0))))
    }

    /// Begins a transaction's unit, with no collection open yet.
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
                // Dropped, renamed or replaced during the wait.
                _ => drop(intent),
            }
        }
    }
}

impl WriteUnitOfWork {
    /// Opens a further collection, for transactions. `None` if it does not exist.
    ///
    /// Errors: `LockTimeout` after `limit`; `WriteConflict` if the collection's shape has changed
    /// since the unit began, so that the unit's snapshot does not match.
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

    /// The collection as the unit sees it. Its indexes are fixed until the unit ends, except for
    /// multikey paths that the unit's own documents add.
    pub fn collection(&self, slot: Slot) -> &Arc<Collection> {
        &self.collections[slot.0].collection
    }

    /// A view of the collection with the unit's writes so far.
    pub fn read_view(&self, slot: Slot) -> ReadView {
        ReadView {
            collection: Some(self.collection(slot).clone()),
            snapshot: self.storage.reader(),
            cluster_time: self.db.cluster_time_of_expressions(),
        }
    }

    /// A view with the unit's writes so far, for reading a collection that does not exist.
    pub(crate) fn empty_view(&self) -> ReadView {
        ReadView {
            collection: None,
            snapshot: self.storage.reader(),
            cluster_time: self.db.cluster_time_of_expressions(),
        }
    }

    /// Creates a collection that only the unit sees until it commits. Does nothing if the unit has
    /// one open with the same options.
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
        self.create_new(ns, options)
    }

    /// Creates a collection that does not exist. Within a transaction an equal one is no success,
    /// unlike outside.
    /// Errors: `NamespaceExists`.
    pub(crate) fn create_missing(
        &mut self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        if let Some(slot) = self.open(op, ns, Some(Duration::ZERO))? {
            return Err(exists_otherwise(self.collection(slot)));
        }
        self.create_new(ns, options)
    }

    /// Creates a collection of a name that the unit has found free.
    fn create_new(
        &mut self,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
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

    /// Creates indexes on a collection that the unit has created and not written to; returns false
    /// for any other.
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

    /// Work done by the unit so far.
    pub fn stats(&self) -> &WriteStats {
        &self.stats
    }

    /// Bytes of keys and values written so far; in a transaction, by the current statement.
    pub fn bytes(&self) -> u64 {
        self.storage.writes().bytes() - self.lent.as_ref().map_or(0, |lent| lent.bytes)
    }

    /// The document of a record as the unit sees it.
    pub fn document(&self, slot: Slot, id: &RecordId) -> Result<Option<Bytes>> {
        let table = self.collection(slot).table();
        self.storage.get(table, &record_key(id)).into_client_error()
    }

    /// Locks a record that will be changed. Call this before reading it.
    /// Errors: `WriteConflict`, `Interrupted`, `MaxTimeMSExpired`.
    pub fn lock_record(&mut self, op: &OpContext, slot: Slot, id: &RecordId) -> Result<()> {
        let table = self.collection(slot).table();
        self.lock(op, table, &record_key(id))
    }

    /// Locks a key until the unit ends.
    ///
    /// A patient unit waits for its first lock, and takes a new snapshot if the former holder has
    /// changed anything: the caller must reread what it had read before. The unit never waits for
    /// later locks, to avoid deadlocks.
    ///
    /// Errors: `WriteConflict` (commit what there is, or retry the unit), `Interrupted`,
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
                // Another writer was slightly faster, or a former holder has committed a change.
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

    /// Creates a savepoint.
    pub fn savepoint(&mut self) -> UnitSavepoint {
        UnitSavepoint {
            storage: self.storage.savepoint(),
            stats: self.stats,
            observed: self.observer.mark(),
        }
    }

    /// Undoes all writes since the savepoint and ends it. Locks are kept.
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

    /// Commits: all writes become visible together, and durable within the flush interval
    /// ([`Db::sync`] makes them durable at once). Adds the work to the operation's counters, and
    /// returns it.
    ///
    /// The unit of a transaction returns to the transaction instead, and commits with it.
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
            // The transaction logs its writes, and counts the log bytes, when it commits.
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
    /// Errors: `WriteConflict` if another operation has created one of them concurrently.
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
        // Other DDL may hold a database and wait for a lock of this unit, so the wait is short.
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
                    format!("{ns} was created by another operation; try again"),
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
        std::mem::take(&mut self.scratch).recycle();
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
        let ns = |open: &OpenCollection| {
            is_access_control(open.collection.ns().db(), open.collection.ns().collection())
        };
        if self.collections.iter().any(ns) {
            db.access_changed();
        }
        Ok(())
    }

    pub(crate) fn set_collection(&mut self, slot: Slot, collection: Arc<Collection>) {
        self.collections[slot.0].collection = collection;
    }

    pub(crate) fn capped_writer(&mut self, slot: Slot) -> &mut Option<CappedWriter> {
        &mut self.collections[slot.0].capped
    }

    pub(crate) fn record_multikey(&mut self, slot: Slot) {
        self.collections[slot.0].multikey = true;
    }

    /// Makes the unit accept documents that index constraints or the validator reject: for
    /// applying oplog entries, which were checked when they were written.
    pub(crate) fn relax_constraints(&mut self) {
        self.constraints = IndexConstraints::Relaxed;
    }

    pub(crate) fn index_constraints(&self) -> IndexConstraints {
        self.constraints
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// A cursor on a table as of the unit's snapshot, without the unit's own writes.
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
