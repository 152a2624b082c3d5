//! Query settings, as far as the planner is concerned: the indexes that the queries of one shape
//! may use.
//!
//! ```text
//!   settings of find {a, b}: indexHints {ns: db.c, allowedIndexes: ["a_1"]}
//!
//!   a_1 serves the query     planned with a_1 alone; hints and index filters are ignored
//!   only b_1 serves it       planned as if there were no settings
//! ```
//!
//! `$natural` counts as an index: without it, a collection scan is not allowed. Settings that leave
//! no plan are ignored, so that they cannot make a query fail. The shape that the settings are for
//! is that of the whole command: a pipeline's settings apply to each collection that it reads.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::index_entry::IndexEntry;

use super::index_filters::FilteredIndex;
use crate::catalog::{Namespace, ReadView};

/// The settings of one shape.
#[derive(Debug, Clone)]
pub struct QuerySettings {
    /// The allowed indexes, by collection; at most one element for each.
    pub index_hints: Vec<IndexHints>,
    /// Queries are refused.
    pub rejects: bool,
    /// As `$querySettings` and explain show them.
    pub shown: DocBuf,
}

/// The indexes that plans over one collection may use.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexHints {
    /// The collection.
    pub ns: Namespace,
    /// The indexes, which need not exist.
    pub indexes: Vec<FilteredIndex>,
    /// The direction in which a collection scan is allowed; `None` if it is not.
    pub scan: Option<i8>,
}

/// What applied hints leave to the planner besides the list of indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppliedHints {
    /// As [`IndexHints::scan`].
    pub(crate) scan: Option<i8>,
    /// Differs between hints: plans that were cached under others do not apply.
    pub(crate) key: u64,
}

impl QuerySettings {
    /// The hints for a query on the view's collection. `None` for a query that names its index or
    /// its order itself, by `min`, `max` or a `$natural` sort.
    pub(crate) fn hints_for(&self, view: &ReadView, query: &CanonicalQuery) -> Option<&IndexHints> {
        let collection = view.collection.as_ref()?;
        let names_itself =
            query.min.is_some() || query.max.is_some() || query.sort_spec.get("$natural").is_some();
        let hints = self.index_hints.iter().find(|h| h.ns == *collection.ns());
        hints.filter(|_| !names_itself)
    }
}

impl IndexHints {
    /// Whether plans may use the index.
    pub(crate) fn allows(&self, index: &IndexEntry) -> bool {
        self.indexes.iter().any(|allowed| allowed.means(index))
    }

    /// The allowed indexes among these.
    pub(crate) fn apply(&self, indexes: &[Arc<IndexEntry>]) -> Vec<Arc<IndexEntry>> {
        let allowed = indexes.iter().filter(|index| self.allows(index));
        allowed.cloned().collect()
    }

    pub(crate) fn applied(&self) -> AppliedHints {
        let mut hasher = DefaultHasher::new();
        self.scan.hash(&mut hasher);
        for index in &self.indexes {
            match index {
                FilteredIndex::Name(name) => name.hash(&mut hasher),
                FilteredIndex::KeyPattern(key) => key.as_raw().as_bytes().hash(&mut hasher),
            }
        }
        AppliedHints {
            scan: self.scan,
            key: hasher.finish(),
        }
    }
}
