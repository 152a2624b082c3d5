//! Which databases, collections and indexes there are: on disk as rows (`rows.rs`), in memory as an
//! immutable snapshot that readers take without a lock ([`snapshot`]).
//!
//! ```text
//!   DDL:  database lock ─ checks ─ exclusive intent ─┬─ unit: rows + tables ─ commit ─┐ order depends,
//!                                                    └─ publish a new snapshot ───────┘ see below
//! ```
//!
//! What comes into being is committed first and published after; what goes is published (as gone) first and
//! committed after. A reader takes the catalog, then a storage snapshot, then looks whether the
//! catalog is still the same ([`crate::Db::read_view`]): so every table that its catalog names is in its snapshot.
//!
//! DDL on one database is serialised; index builds hold that lock only when they begin and end.

pub mod clustered;
pub mod duplicate_key;
pub mod namespace;
pub(crate) mod new_collection;
pub(crate) mod open;
pub mod options;
pub(crate) mod rows;
pub mod snapshot;
pub mod uuid;
pub mod views;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sheaf_bson::{CollationChoice, Collator, Result};
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

/// Locks of databases that nobody uses are forgotten when there are this many.
const DATABASE_LOCKS_KEPT: usize = 1024;

/// A collection and a storage snapshot that fit together: the snapshot has the tables of the collection
/// and of its indexes, and no document that is more multikey than the indexes say.
///
/// Reading from it waits for nobody, and goes on seeing the same when the collection is dropped.
#[derive(Clone)]
pub struct ReadView {
    /// `None`: there was no such collection.
    pub collection: Option<Arc<Collection>>,
    /// The data.
    pub snapshot: Arc<dyn Snapshot>,
}

impl ReadView {
    /// How many records the collection has in this view; 0 without a collection.
    pub fn record_count(&self) -> Result<u64> {
        match &self.collection {
            Some(collection) => self.snapshot.len(collection.table()).into_client_error(),
            None => Ok(0),
        }
    }

    /// How an operation that says this compares text: where it says nothing, as the collection does.
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
    /// Number of the next table; also part of the identifiers.
    next_table: AtomicU64,
    /// By name in lower case, so that two names which differ only in case exclude each other.
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

    /// Where new collections report damage to.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// The catalog now.
    pub fn current(&self) -> Arc<CatalogSnapshot> {
        self.current.load_full()
    }

    /// Whether the catalog `seen`, in which `ns` was `collection`, still says so.
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

    /// Makes sure that planners know of these multikey paths of an index, before a document that has
    /// them can be seen. Gives the collection as it is then. The caller holds an intent on it.
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
        // Set first: who sees the paths must also see that they are not saved.
        changed.multikey_unsaved().store(true, Ordering::Release);
        *place = changed;
        let changed = Arc::new(now.with_indexes(list)?);
        // A collection that a transaction has created is not for others to see.
        if published.is_none_or(|published| published.uuid() != collection.uuid()) {
            return Ok(changed);
        }
        self.current
            .rcu(|current| current.with_collection(changed.clone()));
        Ok(changed)
    }

    /// Brings the catalog's row up to date with the multikey paths that planners know, in a unit of its own.
    /// The caller holds an intent on the collection.
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
        // Under the row's lock nobody has added a path since.
        for index in now.index_list() {
            index.multikey_unsaved().store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Excludes other DDL on the database, and on one whose name differs only in case.
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

    /// Locks the databases of these names, in an order that all follow.
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

    /// A table number that was never used, with its identifier: `collection-<n>-<hex>`.
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

    /// Makes the change what everybody sees from now on.
    pub(crate) fn publish(&self, change: &CatalogChange) -> Arc<CatalogSnapshot> {
        self.current.rcu(|current| current.changed(change));
        self.current()
    }

    /// Commits what comes into being, then shows it.
    pub(crate) fn commit_then_publish(
        &self,
        unit: StorageTransaction,
        change: &CatalogChange,
    ) -> Result<CommitSeq> {
        let seq = unit.commit(Durability::Buffered).into_client_error()?;
        self.publish(change);
        Ok(seq)
    }

    /// Shows that something is gone, then commits it; shows it again when that fails.
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
