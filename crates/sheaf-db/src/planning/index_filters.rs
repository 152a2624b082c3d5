//! Index filters: which indexes queries of one shape may use.
//!
//! ```text
//!   planCacheSetFilter orders, {status: 1}, indexes [{status: 1}, "by_date"]
//!
//!   find {status: "A"}                      only these two are planned with; a hint is not listened to
//!   find {status: "A"} sort {date: 1}       another shape: all indexes
//! ```
//!
//! They belong to a collection, outlive changes of its indexes, and are forgotten when the server
//! ends. An index that a filter names need not exist; without any that serves, the collection is scanned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use sheaf_bson::{DocBuf, compare_docs};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::shape;

/// How a filter means an index.
#[derive(Debug, Clone, PartialEq)]
pub enum FilteredIndex {
    /// By its name.
    Name(String),
    /// By its key pattern; 1 equals 1.0. Several may have it.
    KeyPattern(DocBuf),
}

impl FilteredIndex {
    fn means(&self, index: &IndexEntry) -> bool {
        match self {
            FilteredIndex::Name(name) => index.name == *name,
            FilteredIndex::KeyPattern(key) => {
                compare_docs(index.key_pattern.as_raw(), key.as_raw()).is_eq()
            }
        }
    }
}

/// One filter, as it was set.
#[derive(Debug, Clone)]
pub struct IndexFilter {
    /// A query of the shape.
    pub query: DocBuf,
    /// Its sort, or empty.
    pub sort: DocBuf,
    /// Its projection, or empty.
    pub projection: DocBuf,
    /// Its collation, or empty.
    pub collation: DocBuf,
    /// What its plans may use.
    pub indexes: Vec<FilteredIndex>,
}

/// The filters of one collection.
#[derive(Debug, Default)]
pub struct IndexFilters {
    /// Nearly always 0, and then nothing else is looked at.
    count: AtomicUsize,
    /// By shape, in full.
    filters: RwLock<BTreeMap<String, Arc<IndexFilter>>>,
}

impl IndexFilters {
    /// The filter for queries of this one's shape.
    pub fn of(&self, query: &CanonicalQuery) -> Option<Arc<IndexFilter>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.filters.read().get(&shape::encode(query)).cloned()
    }

    /// Whether some filter is for a shape with this number (`planCacheShapeHash`).
    pub fn has_shape(&self, number: u32) -> bool {
        let filters = self.filters.read();
        filters
            .keys()
            .any(|shape| shape::hash(shape.as_bytes()) as u32 == number)
    }

    /// Sets the filter for queries of this one's shape, in place of another.
    pub fn set(&self, query: &CanonicalQuery, filter: IndexFilter) {
        let mut filters = self.filters.write();
        filters.insert(shape::encode(query), Arc::new(filter));
        self.count.store(filters.len(), Ordering::Release);
    }

    /// Takes away the filter for queries of this one's shape; all of them without one.
    pub fn clear(&self, query: Option<&CanonicalQuery>) {
        let mut filters = self.filters.write();
        match query {
            Some(query) => drop(filters.remove(&shape::encode(query))),
            None => filters.clear(),
        }
        self.count.store(filters.len(), Ordering::Release);
    }

    /// All of them, in the order of their shapes.
    pub fn all(&self) -> Vec<Arc<IndexFilter>> {
        self.filters.read().values().cloned().collect()
    }
}

impl IndexFilter {
    /// The indexes that are left.
    pub fn apply(&self, indexes: &[Arc<IndexEntry>]) -> Vec<Arc<IndexEntry>> {
        let is_left =
            |index: &&Arc<IndexEntry>| self.indexes.iter().any(|filter| filter.means(index));
        indexes.iter().filter(is_left).cloned().collect()
    }
}
