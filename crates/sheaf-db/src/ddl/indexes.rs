//! Drops indexes.

use sheaf_bson::json::shell_doc;
use sheaf_bson::{Error, ErrorCode, RawDoc, Result};

use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::clustered::means_clustered;
use crate::ddl::drop::BuildsMeet;
use crate::index::Index;
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;
use crate::timeseries::indexes::key_on_buckets;

/// The indexes that a command names.
#[derive(Debug, Clone)]
pub enum IndexSelector<'a> {
    /// `"*"`: all except the one on `_id`.
    All,
    /// All indexes with these names.
    Names(Vec<&'a str>),
    /// The index with this key pattern.
    KeyPattern(RawDoc<'a>),
}

impl Db {
    /// Drops indexes, and aborts builds of matching indexes. Returns `nIndexesWas`.
    ///
    /// Errors: `NamespaceNotFound`, `IndexNotFound` (then none is dropped), `InvalidOptions` for
    /// the index on `_id`, `AmbiguousIndexKeyPattern`.
    pub fn drop_indexes(
        &self,
        op: &OpContext,
        ns: &Namespace,
        selector: &IndexSelector<'_>,
    ) -> Result<usize> {
        if let Some(series) = self.catalog().timeseries(ns) {
            let key = match selector {
                IndexSelector::KeyPattern(key) => Some(key_on_buckets(*key, &series.options)?),
                _ => None,
            };
            let selector = match &key {
                Some(key) => &IndexSelector::KeyPattern(key.as_raw()),
                None => selector,
            };
            return self.drop_indexes(op, series.buckets.ns(), selector);
        }
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        loop {
            let current = catalog.current();
            let Some(collection) = current.collection(ns) else {
                return Err(ns_not_found(ns));
            };
            let (intent, collection) = self.exclusive_on(op, collection, BuildsMeet::Allow)?;
            let mut ended = Vec::new();
            for build in collection.builds() {
                let means = |index: &Index| selector.means(index);
                if build.indexes().iter().any(means) {
                    build.abort(Error::new(
                        ErrorCode::INDEX_BUILD_ABORTED,
                        "index build ended: its index was dropped",
                    ));
                    ended.push(build.clone());
                }
            }
            if !ended.is_empty() {
                // The builders themselves need the intent to clean up.
                drop(intent);
                let indexes_was = collection.index_count();
                for build in &ended {
                    build.wait_ended(op)?;
                }
                // A build may have completed before it noticed the abort: then its indexes exist
                // now.
                let left = match catalog.current().collection(ns) {
                    Some(now) => selector.select(now).is_ok_and(|found| !found.is_empty()),
                    None => false,
                };
                if left {
                    continue;
                }
                return Ok(indexes_was);
            }
            let indexes_was = collection.index_count();
            let dropped = selector.select(&collection)?;
            if dropped.is_empty() {
                return Ok(indexes_was);
            }
            let mut unit = self.storage().begin().into_client_error()?;
            for index in &dropped {
                unit.drop_table(index.table());
            }
            let gone = |index: &&Index| dropped.iter().any(|d| d.table() == index.table());
            let kept = collection.index_list().iter().filter(|i| !gone(i));
            let changed = collection.with_indexes(kept.cloned().collect())?;
            rows::put_collection(&mut unit, &changed);
            let gone = dropped.iter();
            let gone = gone.map(|index| DdlChange::IndexDropped(&changed, index));
            let ticket = self.observe_ddl(&mut unit, gone)?;
            let change = CatalogChange {
                removed: Vec::new(),
                added: vec![changed],
                ..Default::default()
            };
            ticket.committed(catalog.publish_then_commit(unit, &change)?);
            return Ok(indexes_was);
        }
    }
}

impl IndexSelector<'_> {
    /// Whether the selector matches an index being built.
    fn means(&self, index: &Index) -> bool {
        if index.is_vector() {
            return false;
        }
        match self {
            IndexSelector::All => true,
            IndexSelector::Names(names) => names.contains(&index.name()),
            IndexSelector::KeyPattern(key) => index.spec().same_key(*key),
        }
    }

    /// The complete indexes that match. Empty only for `All`.
    fn select(&self, collection: &Collection) -> Result<Vec<Index>> {
        match self {
            IndexSelector::All => {
                let droppable = |index: &&Index| !index.spec().is_id_index() && !index.is_vector();
                let all = collection.index_list().iter();
                Ok(all.filter(droppable).cloned().collect())
            }
            IndexSelector::Names(names) => {
                let mut found = Vec::new();
                for name in names {
                    check_not_clustered(collection, Some(name), None)?;
                    let index = index_by_name(collection, name)?;
                    found.push(droppable(index)?);
                }
                Ok(found)
            }
            IndexSelector::KeyPattern(key) => {
                check_not_clustered(collection, None, Some(*key))?;
                Ok(vec![droppable(index_by_key(collection, *key)?)?])
            }
        }
    }
}

/// Errors: `InvalidOptions` if the clustered index matches.
fn check_not_clustered(
    collection: &Collection,
    name: Option<&str>,
    key: Option<RawDoc<'_>>,
) -> Result<()> {
    if means_clustered(collection, name, key) {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "cannot drop the clustered index, in which the documents are stored; drop the \
             collection",
        ));
    }
    Ok(())
}

fn droppable(index: &Index) -> Result<Index> {
    if index.spec().is_id_index() {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "cannot drop _id index",
        ));
    }
    Ok(index.clone())
}

/// Errors: `IndexNotFound`.
pub(crate) fn index_by_name<'c>(collection: &'c Collection, name: &str) -> Result<&'c Index> {
    collection.index_by_name(name).ok_or_else(|| {
        Error::new(
            ErrorCode::INDEX_NOT_FOUND,
            format!("index not found with name [{name}]"),
        )
    })
}

/// Errors: `IndexNotFound`, `AmbiguousIndexKeyPattern`.
pub(crate) fn index_by_key<'c>(collection: &'c Collection, key: RawDoc<'_>) -> Result<&'c Index> {
    match collection.indexes_by_key(key)[..] {
        [] => Err(Error::new(
            ErrorCode::INDEX_NOT_FOUND,
            format!("can't find index with key: {}", shell_doc(key)),
        )),
        [one] => Ok(one),
        [first, second, ..] => Err(Error::new(
            ErrorCode::AMBIGUOUS_INDEX_KEY_PATTERN,
            format!(
                "{} indexes have the key {}: '{}', '{}'...; specify the index by name",
                collection.indexes_by_key(key).len(),
                shell_doc(key),
                first.name(),
                second.name()
            ),
        )),
    }
}

/// The error of commands that require the collection to exist.
pub(crate) fn ns_not_found(ns: &Namespace) -> Error {
    Error::new(ErrorCode::NAMESPACE_NOT_FOUND, format!("ns not found {ns}"))
}
