//! The planner's view of the indexes for one query: restricted by index filters, with wildcard
//! indexes expanded.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::{self, ExpressKey};
use sheaf_query::shape;
use sheaf_storage::TableId;

use super::index_filters::IndexFilter;
use crate::catalog::ReadView;
use crate::collection::Collection;
use crate::index::wildcard_keys::array_entry;
use crate::storage_error::IntoClientError;

pub(crate) fn indexes_of(view: &ReadView) -> &[Arc<IndexEntry>] {
    match &view.collection {
        Some(collection) => collection.indexes(),
        None => &[],
    }
}

/// The indexes available to plan one query.
pub(crate) struct PlanningIndexes<'v> {
    list: Cow<'v, [Arc<IndexEntry>]>,
    /// An index filter restricted the list; hints are ignored.
    pub is_filtered: bool,
}

impl Deref for PlanningIndexes<'_> {
    type Target = [Arc<IndexEntry>];
    fn deref(&self) -> &[Arc<IndexEntry>] {
        &self.list
    }
}

/// The indexes that a filter for the query's shape permits, with wildcard indexes expanded.
pub(crate) fn planning_indexes<'v>(
    view: &'v ReadView,
    query: &CanonicalQuery,
) -> Result<PlanningIndexes<'v>, Error> {
    let mut all = Cow::Borrowed(indexes_of(view));
    let filter = index_filter(view, query);
    if let Some(filter) = &filter {
        all = Cow::Owned(filter.apply(&all));
    }
    let mut is_array = |index: &IndexEntry, path: &str| {
        // The planner identifies an index by its table.
        let table = TableId(index.ident);
        let known = view
            .snapshot
            .get(table, &array_entry(path))
            .into_client_error()?;
        Ok(known.is_some())
    };
    let expanded = planner::wildcard::expand(&query.filter, &all, &mut is_array)?;
    Ok(PlanningIndexes {
        list: expanded.map_or(all, Cow::Owned),
        is_filtered: filter.is_some(),
    })
}

/// The filter for the query's shape. Queries with `min` or `max` name their index themselves.
fn index_filter(view: &ReadView, query: &CanonicalQuery) -> Option<Arc<IndexFilter>> {
    let collection = view.collection.as_ref()?;
    if query.min.is_some() || query.max.is_some() {
        return None;
    }
    collection.index_filters().of(query)
}

/// The key for the express path, if the query needs no plan. Honours an index filter for the
/// query's shape, except on `_id`, where there is no choice.
pub(crate) fn express_key<'a>(
    view: &'a ReadView,
    collection: &'a Collection,
    query: &'a CanonicalQuery,
) -> Option<ExpressKey<'a>> {
    let key = planner::express_key(query, collection.indexes())?;
    let is_id = key.index.ident == collection.id_index().ident;
    (is_id || index_filter(view, query).is_none()).then_some(key)
}

/// Hash of the query's shape, and of the shape with its usable indexes: `queryHash` and
/// `planCacheKey`. `None` if the collection does not exist.
/// Errors: those of the storage engine.
pub fn plan_hashes(
    view: &ReadView,
    query: &CanonicalQuery,
) -> Result<Option<(String, String)>, Error> {
    if view.collection.is_none() {
        return Ok(None);
    }
    let indexes = planning_indexes(view, query)?;
    let key = shape::plan_cache_key(query, &indexes) as u32;
    Ok(Some((shape::shape_hash(query), format!("{key:08X}"))))
}
