//! All databases and collections at one catalog version.
//!
//! Readers take a snapshot with a single atomic load and no lock. A change creates a new one, which
//! shares all databases except the changed one with the old.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::namespace::Namespace;
use crate::catalog::uuid::Uuid;
use crate::catalog::views::ViewDefinition;
use crate::collection::Collection;
use crate::usage::CollectionUsage;

/// The catalog at one version.
#[derive(Debug, Clone, Default)]
pub struct CatalogSnapshot {
    databases: BTreeMap<Arc<str>, Arc<DatabaseCatalog>>,
    generation: u64,
}

/// One database at one catalog version. It has at least one collection or view.
#[derive(Debug, Clone, Default)]
pub struct DatabaseCatalog {
    collections: BTreeMap<Arc<str>, Arc<Collection>>,
    views: BTreeMap<Arc<str>, Arc<ViewDefinition>>,
}

impl CatalogSnapshot {
    /// The collection of this name.
    pub fn collection(&self, ns: &Namespace) -> Option<&Arc<Collection>> {
        self.database(ns.db())?.collection(ns.collection())
    }

    /// The view of this name.
    pub fn view(&self, ns: &Namespace) -> Option<&Arc<ViewDefinition>> {
        self.database(ns.db())?.views.get(ns.collection())
    }

    /// Usage of the collection or view of this name.
    pub fn usage(&self, ns: &Namespace) -> Option<&CollectionUsage> {
        match self.collection(ns) {
            Some(collection) => Some(collection.usage()),
            None => self.view(ns).map(|view| view.usage()),
        }
    }

    /// The collection with this UUID. Linear in the number of collections.
    pub fn collection_by_uuid(&self, uuid: Uuid) -> Option<&Arc<Collection>> {
        self.collections().find(|c| c.uuid() == uuid)
    }

    /// The database of this name.
    pub fn database(&self, name: &str) -> Option<&Arc<DatabaseCatalog>> {
        self.databases.get(name)
    }

    /// All databases, ordered by name.
    pub fn databases(&self) -> impl Iterator<Item = (&str, &Arc<DatabaseCatalog>)> {
        self.databases.iter().map(|(name, db)| (&**name, db))
    }

    /// All collections of all databases, ordered by name.
    pub fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.databases.values().flat_map(|db| db.collections())
    }

    /// All views of all databases, ordered by name.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDefinition>> {
        self.databases.values().flat_map(|db| db.views())
    }

    /// Number of changes since the server started.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A database whose name differs from this one only in case.
    pub(crate) fn database_of_other_case(&self, name: &str) -> Option<&str> {
        let lower = name.to_lowercase();
        self.databases
            .keys()
            .map(|known| &**known)
            .find(|known| *known != name && known.to_lowercase() == lower)
    }

    /// The catalog without the removed and with the added collections and views, one generation
    /// later.
    pub(crate) fn changed(&self, change: &CatalogChange) -> CatalogSnapshot {
        let mut next = self.clone();
        next.generation += 1;
        debug_assert!(
            (change.added.iter()).all(|c| change.views.iter().all(|view| view.ns != c.ns)),
            "one name for a collection and a view"
        );
        for ns in &change.removed {
            if let Some(db) = next.databases.get_mut(ns.db()) {
                let db = Arc::make_mut(db);
                db.collections.remove(ns.collection());
                db.views.remove(ns.collection());
                if db.collections.is_empty() && db.views.is_empty() {
                    next.databases.remove(ns.db());
                }
            }
        }
        for collection in &change.added {
            let mut collection = Collection::clone(collection);
            collection.generation = next.generation;
            next.put(Arc::new(collection));
        }
        for view in &change.views {
            let db = next.databases.entry(view.ns.db().into()).or_default();
            Arc::make_mut(db)
                .views
                .insert(view.ns.collection().into(), Arc::new(view.clone()));
        }
        next
    }

    /// The catalog with this collection replacing the one of the same name; the shape must be the
    /// same.
    pub(crate) fn with_collection(&self, collection: Arc<Collection>) -> CatalogSnapshot {
        let mut next = self.clone();
        next.put(collection);
        next
    }

    fn put(&mut self, collection: Arc<Collection>) {
        let ns = collection.ns().clone();
        debug_assert!(collection.generation <= self.generation);
        let db = self.databases.entry(ns.db().into()).or_default();
        Arc::make_mut(db)
            .collections
            .insert(ns.collection().into(), collection);
    }
}

/// The effect of one DDL step on the catalog.
#[derive(Debug, Default)]
pub(crate) struct CatalogChange {
    /// Removed names.
    pub(crate) removed: Vec<Namespace>,
    /// Collections that are new or replace one of the same name.
    pub(crate) added: Vec<Collection>,
    /// Views that are new or replace one of the same name.
    pub(crate) views: Vec<ViewDefinition>,
}

impl DatabaseCatalog {
    /// The collection of this name (without the database).
    pub fn collection(&self, name: &str) -> Option<&Arc<Collection>> {
        self.collections.get(name)
    }

    /// All collections, ordered by name.
    pub fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.collections.values()
    }

    /// All views, ordered by name.
    pub fn views(&self) -> impl Iterator<Item = &Arc<ViewDefinition>> {
        self.views.values()
    }
}
