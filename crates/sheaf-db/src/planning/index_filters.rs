//! Index filters: restrict the indexes that queries of one shape may use.
//!
//! ```text
//!   planCacheSetFilter orders, {status: 1}, indexes [{status: 1}, "by_date"]
//!
//!   find {status: "A"}                      planned with only these two; hints are ignored
//!   find {status: "A"} sort {date: 1}       another shape: all indexes
//! ```
//!
//! Filters belong to a collection, survive changes of its indexes, and are lost when the server
//! stops. An index that a filter names need not exist; if none applies, the collection is scanned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use sheaf_bson::{DocBuf, compare_docs};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::shape;

/// How a filter, or query settings, identify an index.
#[derive(Debug, Clone, PartialEq)]
pub enum FilteredIndex {
    /// By its name.
    Name(String),
    /// By its key pattern; 1 equals 1.0. Several indexes may have it.
    KeyPattern(DocBuf),
}

impl FilteredIndex {
    pub(crate) fn means(&self, index: &IndexEntry) -> bool {
        match self {
            FilteredIndex::Name(name) => index.name == *name,
            FilteredIndex::KeyPattern(key) => {
                compare_docs(index.key_pattern.as_raw(), key.as_raw()).is_eq()
            }
        }
    }
}

/// One filter, as set by the client.
#[derive(Debug, Clone)]
pub struct IndexFilter {
    /// An example query of the shape.
    pub query: DocBuf,
    /// Its sort, or empty.
    pub sort: DocBuf,
    /// Its projection, or empty.
    pub projection: DocBuf,
    /// Its collation, or empty.
    pub collation: DocBuf,
    /// The indexes that plans may use.
    pub indexes: Vec<FilteredIndex>,
}

/// The filters of one collection.
#[derive(Debug, Default)]
pub struct IndexFilters {
    /// Number of filters. Almost always 0, and then the map is not read.
    count: AtomicUsize,
    /// By encoded shape.
    filters: RwLock<BTreeMap<String, Arc<IndexFilter>>>,
}

impl IndexFilters {
    /// The filter for this query's shape.
    pub fn of(&self, query: &CanonicalQuery) -> Option<Arc<IndexFilter>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.filters
            .read()
            .get(&shape::encode_query(query))
            .cloned()
    }

    /// Whether a filter exists for a shape with this hash (`planCacheShapeHash`).
    pub fn has_shape(&self, number: u32) -> bool {
        let filters = self.filters.read();
        filters
            .keys()
            .any(|shape| shape::hash(shape.as_bytes()) as u32 == number)
    }

    /// Sets the filter for this query's shape, replacing any other.
    pub fn set(&self, query: &CanonicalQuery, filter: IndexFilter) {
        let mut filters = self.filters.write();
        filters.insert(shape::encode_query(query), Arc::new(filter));
        self.count.store(filters.len(), Ordering::Release);
    }

    /// Removes the filter for this query's shape, or all filters for `None`.
    pub fn clear(&self, query: Option<&CanonicalQuery>) {
        let mut filters = self.filters.write();
        match query {
            Some(query) => drop(filters.remove(&shape::encode_query(query))),
            None => filters.clear(),
        }
        self.count.store(filters.len(), Ordering::Release);
    }

    /// All filters, ordered by shape.
    pub fn all(&self) -> Vec<Arc<IndexFilter>> {
        self.filters.read().values().cloned().collect()
    }
}

impl IndexFilter {
    /// The indexes that the filter permits.
    pub fn apply(&self, indexes: &[Arc<IndexEntry>]) -> Vec<Arc<IndexEntry>> {
        let is_left =
            |index: &&Arc<IndexEntry>| self.indexes.iter().any(|filter| filter.means(index));
        indexes.iter().filter(is_left).cloned().collect()
    }
}
