//! The planner's view of the indexes for one query: restricted by query settings or index filters,
//! with wildcard indexes expanded.

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
use super::options::QueryOptions;
use super::query_settings::{AppliedHints, IndexHints, QuerySettings};
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
    /// What restricted the list; hints are then ignored.
    pub restriction: Restriction,
}

/// What restricts the indexes of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restriction {
    /// Nothing does.
    Nothing,
    /// An index filter.
    Filter,
    /// Query settings, which apply instead of an index filter.
    Settings(AppliedHints),
}

impl Deref for PlanningIndexes<'_> {
    type Target = [Arc<IndexEntry>];
    fn deref(&self) -> &[Arc<IndexEntry>] {
        &self.list
    }
}

/// The indexes that the settings of the command, or a filter for the query's shape, permit, with
/// wildcard indexes expanded. Settings that leave no plan are ignored.
pub(crate) fn planning_indexes<'v>(
    view: &'v ReadView,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<PlanningIndexes<'v>, Error> {
    let all = indexes_of(view);
    if let Some(hints) = hints(view, query, options) {
        let allowed = PlanningIndexes {
            list: expanded(view, query, Cow::Owned(hints.apply(all)))?,
            restriction: Restriction::Settings(hints.applied()),
        };
        if planner::plan(query, &options.params(&allowed, None)).is_ok() {
            return Ok(allowed);
        }
    }
    let (list, restriction) = match index_filter(view, query) {
        Some(filter) => (Cow::Owned(filter.apply(all)), Restriction::Filter),
        None => (Cow::Borrowed(all), Restriction::Nothing),
    };
    Ok(PlanningIndexes {
        list: expanded(view, query, list)?,
        restriction,
    })
}

/// Replaces wildcard indexes by those that the query sees in them.
fn expanded<'v>(
    view: &ReadView,
    query: &CanonicalQuery,
    list: Cow<'v, [Arc<IndexEntry>]>,
) -> Result<Cow<'v, [Arc<IndexEntry>]>, Error> {
    let mut is_array = |index: &IndexEntry, path: &str| {
        // The planner identifies an index by its table.
        let table = TableId(index.ident);
        let known = view
            .snapshot
            .get(table, &array_entry(path))
            .into_client_error()?;
        Ok(known.is_some())
    };
    let expanded = planner::wildcard::expand(&query.filter, &list, &mut is_array)?;
    Ok(expanded.map_or(list, Cow::Owned))
}

/// The index hints of the command's settings for the collection.
fn hints<'o>(
    view: &ReadView,
    query: &CanonicalQuery,
    options: &'o QueryOptions,
) -> Option<&'o IndexHints> {
    options.settings.as_ref()?.hints_for(view, query)
}

/// The filter for the query's shape. Queries with `min` or `max` name their index themselves.
fn index_filter(view: &ReadView, query: &CanonicalQuery) -> Option<Arc<IndexFilter>> {
    let collection = view.collection.as_ref()?;
    if query.min.is_some() || query.max.is_some() {
        return None;
    }
    collection.index_filters().of(query)
}

/// The key for the express path, if the query needs no plan. Honours query settings and an index
/// filter for the query's shape, except on `_id`, where there is no choice.
pub(crate) fn express_key<'a>(
    view: &'a ReadView,
    collection: &'a Collection,
    query: &'a CanonicalQuery,
    options: &QueryOptions,
) -> Option<ExpressKey<'a>> {
    let key = planner::express_key(query, collection.indexes())?;
    let is_id = key.index.ident == collection.id_index().ident;
    let is_allowed = || match hints(view, query, options) {
        Some(hints) => hints.allows(key.index),
        None => index_filter(view, query).is_none(),
    };
    (is_id || is_allowed()).then_some(key)
}

/// Hash of the query's shape, and of the shape with its usable indexes: `queryHash` and
/// `planCacheKey`. `None` if the collection does not exist.
/// Errors: those of the storage engine.
pub fn plan_hashes(
    view: &ReadView,
    query: &CanonicalQuery,
    settings: Option<Arc<QuerySettings>>,
) -> Result<Option<(String, String)>, Error> {
    if view.collection.is_none() {
        return Ok(None);
    }
    let options = QueryOptions {
        settings,
        ..QueryOptions::default()
    };
    let indexes = planning_indexes(view, query, &options)?;
    let key = shape::plan_cache_key(query, &indexes) as u32;
    Ok(Some((shape::shape_hash(query), format!("{key:08X}"))))
}
