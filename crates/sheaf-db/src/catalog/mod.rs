//! The catalog of databases, collections and indexes: rows on disk (`rows.rs`), and in memory an
//! immutable snapshot that readers take without a lock ([`snapshot`]).
//!
//! ```text
//!   DDL:  database lock ─ checks ─ exclusive intent ─┬─ unit: rows + tables ─ commit ─┐ order depends,
//!                                                    └─ publish a new snapshot ───────┘ see below
//! ```
//!
//! Creations are committed first and published afterwards; removals are published first and
//! committed afterwards. A reader takes the catalog, then a storage snapshot, then checks that the
//! catalog is unchanged ([`crate::Db::read_view`]): so its snapshot has every table that its
//! catalog names.
//!
//! DDL on one database is serialised; index builds hold that lock only at their beginning and end.

pub mod clustered;
pub mod duplicate_key;
pub mod kind;
pub mod namespace;
pub(crate) mod new_collection;
pub(crate) mod open;
pub mod options;
pub(crate) mod rows;
pub mod snapshot;
pub(crate) mod system_views;
pub mod uuid;
pub mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sheaf_bson::{CollationChoice, Collator, DateTime, Result, Timestamp};
use sheaf_query::expression::VariableScope;
use sheaf_query::planner::index_entry::MultikeyPaths;
use sheaf_storage::{CommitSeq, Durability, Snapshot, Storage, StorageTransaction, TableId};

use crate::catalog::snapshot::{CatalogChange, CatalogSnapshot};
use crate::catalog::uuid::Uuid;
use crate::catalog::views::ViewDefinition;
use crate::collection::Collection;
use crate::collection::intent::{CollectionIntents, ExclusiveIntent};
use crate::events::Events;
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;

pub use crate::catalog::namespace::Namespace;

/// Number of database locks above which unused ones are removed.
const DATABASE_LOCKS_KEPT: usize = 1024;

/// A collection and a consistent storage snapshot: the snapshot has the tables of the collection
/// and of its indexes, and no document that is more multikey than the indexes record.
///
/// Reading from it never blocks, and its contents stay the same even if the collection is dropped.
#[derive(Clone)]
pub struct ReadView {
    /// `None` if the collection does not exist.
    pub collection: Option<Arc<Collection>>,
    /// The storage snapshot.
    pub snapshot: Arc<dyn Snapshot>,
    /// `$$CLUSTER_TIME` of a statement that reads this view; `None` without an oplog.
    pub cluster_time: Option<Timestamp>,
}

impl ReadView {
    /// Number of records of the collection in this view; 0 if it does not exist.
    pub fn record_count(&self) -> Result<u64> {
        match &self.collection {
            Some(collection) => self.snapshot.len(collection.table()).into_client_error(),
            None => Ok(0),
        }
    }

    /// The constants of a statement on this view: the collation, `$$NOW` and `$$CLUSTER_TIME`.
    pub fn variables(&self, now: DateTime, collation: &CollationChoice) -> VariableScope {
        VariableScope::new(now)
            .with_collator(self.collator(collation))
            .with_cluster_time(self.cluster_time)
    }

    /// Collation of an operation with this choice; by default, the collection's.
    pub fn collator(&self, choice: &CollationChoice) -> Option<Arc<Collator>> {
        let own = self.collection.as_ref().and_then(|c| c.collator());
        choice.resolve(own)
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView")
            .field("collection", &self.collection)
            .finish_non_exhaustive()
    }
}

/// Fills a slice with random bytes.
pub type Random = fn(&mut [u8]);

/// The catalog of a server.
pub struct Catalog {
    current: ArcSwap<CatalogSnapshot>,
    /// Number of the next table; also part of identifiers.
    next_table: AtomicU64,
    /// By lower-case name, so that two names that differ only in case exclude each other.
    databases: Mutex<HashMap<String, Arc<CollectionIntents>>>,
    random: Random,
    events: Events,
}

impl Catalog {
    pub(crate) fn new(
        snapshot: CatalogSnapshot,
        next_table: u64,
        random: Random,
        events: Events,
    ) -> Catalog {
        Catalog {
            current: ArcSwap::from_pointee(snapshot),
            next_table: AtomicU64::new(next_table),
            databases: Mutex::default(),
            random,
            events,
        }
    }

    /// The event sink to which new collections report damage.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The current catalog.
    pub fn current(&self) -> Arc<CatalogSnapshot> {
        self.current.load_full()
    }

    /// Whether `ns` still resolves to `collection`, as it did in `seen`.
    pub(crate) fn still_has(
        &self,
        seen: &Arc<CatalogSnapshot>,
        ns: &Namespace,
        collection: Option<&Arc<Collection>>,
    ) -> bool {
        let now = self.current.load();
        if Arc::ptr_eq(&now, seen) {
            return true;
        }
        match (now.collection(ns), collection) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, None) => true,
            _ => false,
        }
    }

    /// Publishes these multikey paths of an index to planners, before a document that has them
    /// becomes visible. Returns the updated collection. The caller holds an intent on it.
    pub(crate) fn publish_multikey(
        &self,
        collection: &Arc<Collection>,
        index: TableId,
        paths: &MultikeyPaths,
    ) -> Result<Arc<Collection>> {
        let _one = collection.state.row.lock();
        let current = self.current();
        let published = current.collection(collection.ns());
        let now = published.unwrap_or(collection);
        let mut list = now.index_list().to_vec();
        let Some(place) = list.iter_mut().find(|own| own.table() == index) else {
            return Ok(now.clone());
        };
        let Some(changed) = place.with_multikey(paths) else {
            return Ok(now.clone());
        };
        // Set first: a reader that sees the paths must also see that they are not saved.
        changed.multikey_unsaved().store(true, Ordering::Release);
        *place = changed;
        let changed = Arc::new(now.with_indexes(list)?);
        // A collection created by a transaction is not visible to others.
        if published.is_none_or(|published| published.uuid() != collection.uuid()) {
            return Ok(changed);
        }
        self.current
            .rcu(|current| current.with_collection(changed.clone()));
        Ok(changed)
    }

    /// Writes the multikey paths that planners know to the catalog row, in a separate unit. The
    /// caller holds an intent on the collection.
    pub(crate) fn save_multikey(
        &self,
        storage: &Storage,
        collection: &Arc<Collection>,
    ) -> Result<()> {
        let _one = collection.state.row.lock();
        let current = self.current();
        let now = current.collection(collection.ns()).unwrap_or(collection);
        if !now.multikey_unsaved() {
            return Ok(());
        }
        let mut unit = storage.begin().into_client_error()?;
        rows::put_collection(&mut unit, now);
        unit.commit(Durability::Buffered).into_client_error()?;
        // The row lock is held, so no path has been added since.
        for index in now.index_list() {
            index.multikey_unsaved().store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Excludes other DDL on the database, and on databases whose names differ only in case.
    pub(crate) fn lock_database(&self, op: &OpContext, name: &str) -> Result<ExclusiveIntent> {
        let lock = {
            let mut databases = self.databases.lock();
            if databases.len() >= DATABASE_LOCKS_KEPT {
                databases.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            databases.entry(name.to_lowercase()).or_default().clone()
        };
        lock.exclusive(op)
    }

    /// Locks the databases with these names, in a global order.
    pub(crate) fn lock_databases<'n>(
        &self,
        op: &OpContext,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Vec<ExclusiveIntent>> {
        let mut names: Vec<String> = names.map(str::to_lowercase).collect();
        names.sort();
        names.dedup();
        names
            .iter()
            .map(|name| self.lock_database(op, name))
            .collect()
    }

    /// Allocates an unused table number, with its identifier: `collection-<n>-<hex>`.
    pub(crate) fn allocate(
        &self,
        what: &str,
        unit: &mut StorageTransaction,
    ) -> (TableId, Arc<str>) {
        let number = self.next_table.fetch_add(1, Ordering::Relaxed);
        rows::put_next_table(unit, number + 1);
        let mut random = [0; 8];
        (self.random)(&mut random);
        let ident = format!("{what}-{number}-{:016x}", u64::from_be_bytes(random));
        (TableId(number), ident.into())
    }

    pub(crate) fn new_uuid(&self) -> Uuid {
        let mut random = [0; 16];
        (self.random)(&mut random);
        Uuid::from_random(random)
    }

    /// Publishes a change to all readers.
    pub(crate) fn publish(&self, change: &CatalogChange) -> Arc<CatalogSnapshot> {
        self.current.rcu(|current| current.changed(change));
        self.current()
    }

    /// Commits a creation, then publishes it.
    pub(crate) fn commit_then_publish(
        &self,
        unit: StorageTransaction,
        change: &CatalogChange,
    ) -> Result<CommitSeq> {
        let seq = unit.commit(Durability::Buffered).into_client_error()?;
        self.publish(change);
        Ok(seq)
    }

    /// Publishes a removal, then commits it; reverts the publication if the commit fails.
    pub(crate) fn publish_then_commit(
        &self,
        unit: StorageTransaction,
        change: &CatalogChange,
    ) -> Result<CommitSeq> {
        let before = self.current();
        self.publish(change);
        let committed = unit.commit(Durability::Buffered).into_client_error();
        if committed.is_err() {
            let touched = change
                .removed
                .iter()
                .chain(change.added.iter().map(Collection::ns));
            let mut back = CatalogChange::default();
            for ns in touched {
                match (before.collection(ns), before.view(ns)) {
                    (Some(collection), _) => back.added.push(Collection::clone(collection)),
                    (None, Some(view)) => back.views.push(ViewDefinition::clone(view)),
                    (None, None) => back.removed.push(ns.clone()),
                }
            }
            self.publish(&back);
        }
        committed
    }
}
