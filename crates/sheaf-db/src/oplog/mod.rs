//! The oplog: committed changes, in order, as idempotent entries in `local.oplog.rs`.
//!
//! ```text
//!   unit of work ── records its changes ─> commit: times reserved ── entries put into the same unit ─ visible
//!                                                   │                                                  │
//!   readers        read up to the time before the oldest reservation  <── released, readers woken  ────┘
//! ```
//!
//! The oplog is off, and costs nothing, until a replica set or the first change stream turns it on.
//! From then on, even after a restart, each commit writes its entries in its own batch, so that an
//! entry exists exactly when its change does.
//!
//! Invariant: an entry's time is greater than those of all entries that were visible when it was
//! reserved, and the visible entries have no gaps: two concurrent commits may become visible in
//! either order, and readers wait for the earlier time.

pub mod apply;
pub mod entry;
pub(crate) mod observer;
pub mod op_time;
mod trim;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sheaf_bson::{DateTime, DocBuilder, Error, ErrorCode, RawDoc, Result, Timestamp};
use sheaf_storage::{Snapshot, TableId};

use crate::catalog::namespace::Namespace;
use crate::catalog::new_collection::new_collection;
use crate::catalog::options::{Capped, CollectionOptions};
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::op_context::{OpContext, Waker};
use crate::record_key::record_id_of;
use crate::storage_error::IntoClientError;
use crate::system_names::OPLOG_NAMESPACE;

use entry::{EntryWriter, WriteOrigin};

pub use entry::LoggedOp;
pub use op_time::{OpTime, Term};

/// Default minimum size of the entries kept, in bytes.
const OPLOG_BYTES: u64 = 1 << 30;

/// The shared state of the oplog.
pub struct Oplog {
    on: AtomicBool,
    table: AtomicU64,
    /// Minimum size of the entries kept, in bytes.
    bytes_max: AtomicU64,
    /// The term of new entries.
    term: AtomicI64,
    /// Maximum number of a transaction's operations in one entry.
    transaction_entry_operations_max: AtomicUsize,
    /// Number of units that began before the oplog was turned on, and therefore record no entries.
    silent: AtomicU64,
    times: Arc<Mutex<Times>>,
    /// A copy of the visible time in `times`, readable without the lock. While the oplog is off,
    /// the time of the newest commit.
    visible: AtomicU64,
    advanced: Arc<Condvar>,
    /// Wakes all waiters for a commit.
    waker: Waker,
}

#[derive(Default)]
struct Times {
    /// The newest time issued to an entry.
    newest: u64,
    /// The first times of the reservations that are not yet visible.
    reserved: BTreeSet<u64>,
}

impl Times {
    fn visible(&self) -> u64 {
        match self.reserved.first() {
            Some(first) => first - 1,
            None => self.newest,
        }
    }
}

impl Default for Oplog {
    fn default() -> Self {
        let times = Arc::new(Mutex::new(Times::default()));
        let advanced = Arc::new(Condvar::new());
        let waker = {
            let (times, advanced) = (times.clone(), advanced.clone());
            Waker::new(move || {
                // A waiter that checked for a kill before it came is waiting by now.
                drop(times.lock());
                advanced.notify_all();
            })
        };
        Oplog {
            on: AtomicBool::new(false),
            table: AtomicU64::new(0),
            bytes_max: AtomicU64::new(OPLOG_BYTES),
            term: AtomicI64::new(Term::FIRST.0),
            transaction_entry_operations_max: AtomicUsize::new(usize::MAX),
            silent: AtomicU64::new(0),
            times,
            visible: AtomicU64::new(0),
            advanced,
            waker,
        }
    }
}

/// Times reserved for the entries of one commit. Released on drop: the entries are then visible, or
/// will never exist.
pub struct Reservation<'d> {
    oplog: &'d Oplog,
    first: u64,
    wall: DateTime,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut times = self.oplog.times.lock();
        times.reserved.remove(&self.first);
        self.oplog.publish(&times);
        drop(times);
        self.oplog.advanced.notify_all();
    }
}

/// A unit that records nothing, because it began while the oplog was off.
pub(crate) struct Silent(Arc<Db>);

impl Drop for Silent {
    fn drop(&mut self) {
        let oplog = self.0.oplog();
        // Sequentially consistent, as are the store of `on` and the load of `silent` by the thread
        // that waits: either that thread finds no unit left, or the last unit finds the oplog on.
        if oplog.silent.fetch_sub(1, Ordering::SeqCst) == 1 && oplog.on.load(Ordering::SeqCst) {
            drop(oplog.times.lock());
            oplog.advanced.notify_all();
        }
    }
}

impl Oplog {
    /// Whether commits write entries.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// The table of the entries.
    pub fn table(&self) -> TableId {
        TableId(self.table.load(Ordering::Acquire))
    }

    /// Sets the minimum size of the entries kept, in bytes.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The minimum size of the entries kept, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// The term of new entries.
    pub fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// The position up to which all entries are visible.
    pub fn visible_op_time(&self) -> OpTime {
        OpTime {
            ts: self.visible(),
            term: self.term(),
        }
    }

    /// Sets the maximum number of a transaction's operations per entry, in addition to the byte
    /// limit: MongoDB's `maxNumberOfTransactionOperationsInSingleOplogEntry`. No limit by default.
    pub fn set_transaction_entry_operations_max(&self, operations: usize) {
        self.transaction_entry_operations_max
            .store(operations.max(1), Ordering::Relaxed);
    }

    pub(crate) fn transaction_entry_operations_max(&self) -> usize {
        self.transaction_entry_operations_max
            .load(Ordering::Relaxed)
    }

    /// The time up to which everything is visible; no earlier entry will appear.
    pub fn visible(&self) -> Timestamp {
        Timestamp::from_u64(self.visible.load(Ordering::Acquire))
    }

    /// Whether `time` is the newest visible time, and no later time is reserved.
    pub(crate) fn newest_is(&self, time: Timestamp) -> bool {
        let times = self.times.lock();
        times.reserved.is_empty() && self.visible() == time
    }

    fn publish(&self, times: &Times) {
        self.visible.fetch_max(times.visible(), Ordering::AcqRel);
    }

    /// Marks everything up to `time` as past.
    pub(crate) fn not_before(&self, time: u64) {
        self.visible.fetch_max(time, Ordering::AcqRel);
    }

    /// Waits until everything up to `time` is visible. No time at or before it can be reserved any
    /// more, since the clock is past it.
    pub(crate) fn reach(&self, op: &OpContext, time: Timestamp) -> Result<()> {
        if !self.is_on() {
            self.not_before(time.as_u64());
            return Ok(());
        }
        let mut times = self.times.lock();
        times.newest = times.newest.max(time.as_u64());
        self.publish(&times);
        drop(times);
        while !self.wait_after(op, Timestamp::from_u64(time.as_u64() - 1), Duration::MAX)? {}
        Ok(())
    }

    /// Waits at most `limit` until something after `seen` is visible. Returns whether there is.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    pub fn wait_after(&self, op: &OpContext, seen: Timestamp, limit: Duration) -> Result<bool> {
        let begun = Instant::now();
        let limit = op.remaining().map_or(limit, |left| left.min(limit));
        op.set_waker(Some(self.waker.clone()));
        let waited = self.wait_woken(op, seen, begun.checked_add(limit));
        op.set_waker(None);
        waited
    }

    /// Sleeps until a commit, a kill or `until`: an idle wait uses no processor time.
    fn wait_woken(&self, op: &OpContext, seen: Timestamp, until: Option<Instant>) -> Result<bool> {
        let mut times = self.times.lock();
        loop {
            op.check_interrupt_now()?;
            if times.visible() > seen.as_u64() {
                return Ok(true);
            }
            match until {
                Some(until) if Instant::now() >= until => return Ok(false),
                Some(until) => drop(self.advanced.wait_until(&mut times, until)),
                None => self.advanced.wait(&mut times),
            }
        }
    }

    /// Starts with the oplog that the catalog has.
    pub(crate) fn found(&self, table: TableId, newest: u64) {
        self.table.store(table.0, Ordering::Release);
        let mut times = self.times.lock();
        times.newest = times.newest.max(newest);
        self.publish(&times);
        self.on.store(true, Ordering::SeqCst);
    }

    /// Waits until every unit that began while the oplog was off has ended.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    fn wait_for_silent_units(&self, op: &OpContext) -> Result<()> {
        let mut times = self.times.lock();
        while self.silent.load(Ordering::SeqCst) > 0 {
            op.check_interrupt_now()?;
            match op.deadline() {
                Some(deadline) => drop(self.advanced.wait_until(&mut times, deadline)),
                None => self.advanced.wait(&mut times),
            }
        }
        Ok(())
    }
}

impl Db {
    /// Marks a unit as one that records nothing. `None` if it must record its changes.
    pub(crate) fn silent_unit(self: &Arc<Self>) -> Option<Silent> {
        let oplog = self.oplog();
        if oplog.is_on() {
            return None;
        }
        oplog.silent.fetch_add(1, Ordering::SeqCst);
        // Turned on concurrently: the thread that did so may not have counted this unit.
        let silent = Silent(self.clone());
        (!oplog.on.load(Ordering::SeqCst)).then_some(silent)
    }

    /// Issues the time of a commit without an entry, before the commit becomes visible.
    pub(crate) fn tick_without_entry(&self) {
        if self.oplog().is_on() {
            return;
        }
        self.renew_ceiling();
        let time = self.tick(1);
        // The tick comes first: an earlier reservation was made with the oplog on, which is visible
        // here.
        if !self.oplog().is_on() {
            self.oplog().not_before(time.as_u64());
        }
    }

    /// Reserves times for `entries` entries, all greater than any before.
    pub(crate) fn reserve_oplog(&self, entries: usize) -> Reservation<'_> {
        self.renew_ceiling();
        let mut times = self.oplog().times.lock();
        // Nothing is between its time and its commit: what is visible is exactly the state of that
        // time.
        if times.reserved.is_empty() && self.snapshot_history().wants_state() {
            // Without it a read of that time fails, and no commit need fail with it.
            let _ = self.snapshot_history().keep(self, self.oplog().visible());
        }
        let first = self.tick(entries as u64).as_u64();
        times.reserved.insert(first);
        times.newest = first + entries as u64 - 1;
        self.oplog().publish(&times);
        Reservation {
            oplog: self.oplog(),
            first,
            wall: self.wall_clock(),
        }
    }

    /// Turns the oplog on, if it is off; waits for the units that began before.
    ///
    /// Errors: `Interrupted`, `MaxTimeMSExpired`, those of the engine.
    pub fn turn_oplog_on(self: &Arc<Self>, op: &OpContext) -> Result<()> {
        if !self.oplog().is_on() {
            self.create_oplog(op)?;
        }
        let oplog = self.oplog();
        op.set_waker(Some(oplog.waker.clone()));
        let waited = oplog.wait_for_silent_units(op);
        op.set_waker(None);
        waited
    }

    fn create_oplog(self: &Arc<Self>, op: &OpContext) -> Result<()> {
        let ns = Namespace::parse(OPLOG_NAMESPACE)?;
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        if self.oplog().is_on() {
            return Ok(());
        }
        let mut unit = self.storage().begin().into_client_error()?;
        let options = CollectionOptions::capped_at(self.oplog().bytes_max());
        let collection = new_collection(catalog, &mut unit, &ns, &options, None)?;
        let table = collection.table();
        let change = CatalogChange {
            removed: Vec::new(),
            added: vec![collection],
            ..CatalogChange::default()
        };
        catalog.commit_then_publish(unit, &change)?;
        let newest = self.tick(1).as_u64();
        self.oplog().found(table, newest);
        self.log_note("initiating the oplog")
    }

    /// Called when the database is opened: starts with the oplog that the catalog has.
    pub(crate) fn find_oplog(self: &Arc<Self>) -> Result<()> {
        let ns = Namespace::parse(OPLOG_NAMESPACE)?;
        let catalog = self.catalog();
        let Some(collection) = catalog.collection(&ns) else {
            return Ok(());
        };
        let snapshot = self.storage().snapshot().into_client_error()?;
        if let Some(limit) = collection.options().capped() {
            self.oplog().set_bytes_max(limit.bytes);
        }
        let newest = newest_time(&*snapshot, collection)?;
        self.clock().not_before(newest);
        self.oplog().found(collection.table(), newest);
        Ok(())
    }

    /// Changes the size of the oplog, also for later starts. A smaller one is trimmed soon.
    pub fn resize_oplog(&self, op: &OpContext, bytes: u64) -> Result<()> {
        let ns = Namespace::parse(OPLOG_NAMESPACE)?;
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        if let Some(collection) = catalog.current().collection(&ns) {
            let mut changed = Collection::clone(collection);
            let limit = Some(Capped::of_bytes(bytes));
            changed.options = changed.options.with_capped(limit);
            let mut unit = self.storage().begin().into_client_error()?;
            rows::put_collection(&mut unit, &changed);
            let change = CatalogChange {
                added: vec![changed],
                ..CatalogChange::default()
            };
            catalog.commit_then_publish(unit, &change)?;
        }
        self.oplog().set_bytes_max(bytes);
        Ok(())
    }

    /// Writes a no-op entry with a message.
    pub fn log_note(self: &Arc<Self>, message: &str) -> Result<()> {
        let mut o = DocBuilder::new();
        o.append("msg", message);
        self.append_note(o.finish().as_raw())
    }

    /// Writes a no-op entry with this content.
    pub fn append_note(self: &Arc<Self>, o: RawDoc<'_>) -> Result<()> {
        let mut unit = self.storage().begin().into_client_error()?;
        if !self.oplog().is_on() {
            return Ok(());
        }
        let reservation = self.reserve_oplog(1);
        let note = LoggedOp::note(o.to_buf());
        reservation.writer(None).put_each(&mut unit, &[note]);
        unit.commit(sheaf_storage::Durability::Buffered)
            .into_client_error()?;
        drop(reservation);
        Ok(())
    }
}

impl Reservation<'_> {
    /// A writer for entries at these times.
    pub(crate) fn writer<'a>(&self, origin: Option<&'a WriteOrigin>) -> EntryWriter<'a> {
        EntryWriter {
            table: self.oplog.table(),
            first: OpTime {
                ts: Timestamp::from_u64(self.first),
                term: self.oplog.term(),
            },
            wall: self.wall,
            origin,
        }
    }
}

fn newest_time(snapshot: &dyn Snapshot, collection: &Collection) -> Result<u64> {
    let mut cursor = snapshot.cursor(collection.table()).into_client_error()?;
    if !cursor.seek_last().into_client_error()? {
        return Ok(0);
    }
    match record_id_of(cursor.key()) {
        Some(sheaf_bson::RecordId::Number(number)) => Ok(number as u64),
        _ => Err(Error::new(
            ErrorCode::DATA_CORRUPTION_DETECTED,
            "the oplog has a key that is not a timestamp",
        )),
    }
}

impl fmt::Debug for Oplog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oplog")
            .field("on", &self.is_on())
            .finish_non_exhaustive()
    }
}
