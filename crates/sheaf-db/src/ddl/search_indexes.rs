//! Search indexes: create, update, drop, list, and retrain when a collection has outgrown them.
//!
//! ```text
//!   create   sample vectors ─ train centroids ─ index build, concurrent with reads and writes ─ ready
//!   update   the same with another definition; the old index serves until the new one replaces it
//!   retrain  the same with the same definition, when there are far more or far fewer vectors
//! ```
//!
//! Their names are separate from those of ordinary indexes, and their identifiers persist across
//! updates.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, ObjectId, RawDoc, Result};
use sheaf_query::vector::VectorIndexDefinition;

use crate::catalog::ReadView;
use crate::catalog::kind::NamespaceKind;
use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::catalog::views::not_on_view;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::index_build::{run, vector_training};
use crate::index::Index;
use crate::index::definition::IndexSpec;
use crate::index::vector::VectorSpec;
use crate::index::vector::lists::Lists;
use crate::op_context::OpContext;
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;

/// Maximum number of search indexes of a collection.
const SEARCH_INDEXES_MAX: usize = 64;
/// An index is retrained when the number of vectors is at least this multiple of the number trained
/// on, ...
const GROWTH: u64 = 3;
/// ... or below this fraction (1/n) of it.
const SHRINKAGE: u64 = 8;

/// A requested search index.
#[derive(Debug, Clone)]
pub struct NewSearchIndex {
    /// Name, unique among the search indexes of the collection.
    pub name: String,
    /// The definition.
    pub definition: Arc<VectorIndexDefinition>,
}

/// Identifies a search index in a command.
#[derive(Debug, Clone, Copy)]
pub enum SearchIndexSelector<'a> {
    /// By name.
    Name(&'a str),
    /// By identifier.
    Id(&'a str),
}

impl SearchIndexSelector<'_> {
    fn means(&self, index: &Index) -> bool {
        match (self, &index.spec().vector) {
            (SearchIndexSelector::Name(name), Some(_)) => index.name() == *name,
            (SearchIndexSelector::Id(id), Some(vector)) => vector.id == *id,
            (_, None) => false,
        }
    }

    fn not_found(&self, ns: &Namespace) -> Error {
        let which = match self {
            SearchIndexSelector::Name(name) => format!("the name '{name}'"),
            SearchIndexSelector::Id(id) => format!("the id '{id}'"),
        };
        Error::new(
            ErrorCode::INDEX_NOT_FOUND,
            format!("{ns} has no search index with {which}"),
        )
    }
}

impl Db {
    /// Creates search indexes, all or, on an error, none; they are ready when it returns.
    /// Concurrent reads and writes continue. Returns their identifiers.
    ///
    /// Errors: `NamespaceNotFound`, `CommandNotSupportedOnView`, `IndexAlreadyExists`,
    /// `OperationNotSupportedInTransaction`, `IndexBuildAborted` (dropped concurrently),
    /// `Interrupted`.
    pub fn create_search_indexes(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        wanted: &[NewSearchIndex],
    ) -> Result<Vec<String>> {
        refuse_in_transaction(op)?;
        let collection = self.collection_to_search(ns)?;
        check_new(&collection, wanted)?;
        let view = self.read_view(ns)?;
        let mut specs = Vec::new();
        for index in wanted {
            let lists = vector_training::train(op, &view, &index.definition)?;
            let vector = VectorSpec {
                id: ObjectId::new().to_hex(),
                version: 0,
                definition: index.definition.clone(),
            };
            specs.push((IndexSpec::of_vectors(&index.name, vector), Some(lists)));
        }
        drop(view);
        let ids = specs.iter().filter_map(|(spec, _)| spec.vector.as_ref());
        let ids = ids.map(|vector| vector.id.clone()).collect();
        let database = self.catalog_writer().lock_database(op, ns.db())?;
        let collection = self.collection_to_search(ns)?;
        let (intent, collection) = self.exclusive_on(op, &collection, BuildsMeet::Allow)?;
        check_new(&collection, wanted)?;
        let begun = self.begin_indexes(&collection, specs, None)?;
        drop((intent, database));
        if let Some((collection, build)) = begun {
            run::run(self, op, &collection, &build)?;
        }
        Ok(ids)
    }

    /// Changes the definition of a search index. The old index serves until the new one is ready.
    ///
    /// Errors: those of [`Db::create_search_indexes`], and `IndexNotFound`.
    pub fn update_search_index(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        which: SearchIndexSelector<'_>,
        definition: Arc<VectorIndexDefinition>,
    ) -> Result<()> {
        refuse_in_transaction(op)?;
        let collection = self.collection_to_search(ns)?;
        let (spec, table) = vector_index(&collection, which)?;
        if *spec.definition == *definition {
            return Ok(());
        }
        let updated = VectorSpec {
            version: spec.version + 1,
            definition,
            ..spec
        };
        self.replace_search_index(op, ns, which, table, updated)
    }

    /// Builds a search index into a new table, which replaces the old one.
    fn replace_search_index(
        self: &Arc<Self>,
        op: &OpContext,
        ns: &Namespace,
        which: SearchIndexSelector<'_>,
        table: sheaf_storage::TableId,
        vector: VectorSpec,
    ) -> Result<()> {
        let lists = vector_training::train(op, &self.read_view(ns)?, &vector.definition)?;
        let begun = loop {
            let database = self.catalog_writer().lock_database(op, ns.db())?;
            let collection = self.collection_to_search(ns)?;
            let (intent, collection) = self.exclusive_on(op, &collection, BuildsMeet::Allow)?;
            let meant = |index: &Index| which.means(index);
            let other = collection
                .builds()
                .iter()
                .find(|b| b.indexes().iter().any(meant));
            if let Some(other) = other.cloned() {
                drop((intent, database));
                other.wait_ended(op)?;
                continue;
            }
            let Some(old) = collection.vector_indexes().find(|index| which.means(index)) else {
                return Err(which.not_found(ns));
            };
            if old.table() != table {
                return Err(Error::new(
                    ErrorCode::CONFLICTING_OPERATION_IN_PROGRESS,
                    format!(
                        "the search index '{}' was changed by another operation; try again",
                        old.name()
                    ),
                ));
            }
            let spec = IndexSpec::of_vectors(old.name(), vector);
            break self.begin_indexes(&collection, vec![(spec, Some(lists))], Some(table))?;
        };
        if let Some((collection, build)) = begun {
            run::run(self, op, &collection, &build)?;
        }
        Ok(())
    }

    /// Drops a search index, and aborts its build, if any.
    /// Errors: `NamespaceNotFound`, `CommandNotSupportedOnView`, `IndexNotFound`.
    pub fn drop_search_index(
        &self,
        op: &StatementContext,
        ns: &Namespace,
        which: SearchIndexSelector<'_>,
    ) -> Result<()> {
        refuse_in_transaction(op)?;
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let mut ended = false;
        loop {
            let collection = self.collection_to_search(ns)?;
            let (intent, collection) = self.exclusive_on(op, &collection, BuildsMeet::Allow)?;
            let meant = |index: &Index| which.means(index);
            let build = collection
                .builds()
                .iter()
                .find(|b| b.indexes().iter().any(meant));
            if let Some(build) = build.cloned() {
                build.abort(Error::new(
                    ErrorCode::INDEX_BUILD_ABORTED,
                    "index build ended: the search index was dropped",
                ));
                // The builder itself needs the intent to clean up.
                drop(intent);
                build.wait_ended(op)?;
                ended = true;
                continue;
            }
            let Some(index) = collection.vector_indexes().find(|index| which.means(index)) else {
                return match ended {
                    true => Ok(()),
                    false => Err(which.not_found(ns)),
                };
            };
            let kept = collection.index_list().iter();
            let kept = kept.filter(|other| other.table() != index.table());
            let changed = collection.with_indexes(kept.cloned().collect())?;
            let mut unit = self.storage().begin().into_client_error()?;
            unit.drop_table(index.table());
            rows::put_collection(&mut unit, &changed);
            let change = CatalogChange {
                added: vec![changed],
                ..Default::default()
            };
            return catalog.publish_then_commit(unit, &change).map(drop);
        }
    }

    /// Retrains the search indexes that have far more or far fewer vectors than their centroids
    /// were trained for. Returns their number.
    /// Errors: an interruption; failures of single indexes go to `failed`.
    pub fn retrain_search_indexes(
        self: &Arc<Self>,
        op: &OpContext,
        failed: &mut dyn FnMut(&str, &Error),
    ) -> Result<u64> {
        let mut retrained = 0;
        for collection in self.catalog().collections() {
            for index in collection.vector_indexes() {
                op.check_interrupt_now()?;
                let (Some(vector), true) = (&index.spec().vector, self.is_outgrown(index)?) else {
                    continue;
                };
                let (ns, which) = (collection.ns(), SearchIndexSelector::Id(&vector.id));
                let replaced =
                    self.replace_search_index(op, ns, which, index.table(), vector.clone());
                match replaced {
                    Ok(()) => retrained += 1,
                    Err(error) if op.is_killed() => return Err(error),
                    Err(error) => failed(index.name(), &error),
                }
            }
        }
        Ok(retrained)
    }

    fn is_outgrown(&self, index: &Index) -> Result<bool> {
        let Some(lists) = index.all_lists() else {
            return Ok(false);
        };
        let entries = match self.engine().table_stats(index.table()) {
            Ok(stats) => stats.entries / lists.len().max(1) as u64,
            // Dropped concurrently.
            Err(_) => return Ok(false),
        };
        let trained = lists.iter().map(Lists::trained).max().unwrap_or(0);
        Ok(match trained {
            0 => entries >= vector_training::VECTORS_MIN,
            _ => entries >= trained.saturating_mul(GROWTH) || entries < trained / SHRINKAGE,
        })
    }

    fn collection_to_search(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let catalog = self.catalog();
        match catalog.kind(ns) {
            NamespaceKind::Collection(collection) => Ok(collection.clone()),
            NamespaceKind::View(_) | NamespaceKind::TimeSeries(..) => Err(not_on_view(ns)),
            NamespaceKind::Missing => Err(Error::new(
                ErrorCode::NAMESPACE_NOT_FOUND,
                format!("Collection '{ns}' does not exist."),
            )),
        }
    }
}

fn refuse_in_transaction(op: &StatementContext) -> Result<()> {
    match op.transaction() {
        None => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            "search indexes cannot be created, updated or dropped in a multi-document transaction",
        )),
    }
}

/// Errors: `IndexAlreadyExists`, `CannotCreateIndex` if there are too many.
fn check_new(collection: &Collection, wanted: &[NewSearchIndex]) -> Result<()> {
    let being_built = collection.builds().iter().flat_map(|build| build.indexes());
    let known = collection
        .vector_indexes()
        .chain(being_built.filter(|index| index.is_vector()));
    let mut names: Vec<&str> = known.map(Index::name).collect();
    for index in wanted {
        if names.contains(&index.name.as_str()) {
            return Err(Error::new(
                ErrorCode::INDEX_ALREADY_EXISTS,
                format!(
                    "{} has a search index '{}' already; drop it, or change it with updateSearchIndex",
                    collection.ns(),
                    index.name
                ),
            ));
        }
        names.push(&index.name);
    }
    if names.len() > SEARCH_INDEXES_MAX {
        return Err(Error::new(
            ErrorCode::CANNOT_CREATE_INDEX,
            format!("a collection can have {SEARCH_INDEXES_MAX} search indexes"),
        ));
    }
    Ok(())
}

fn vector_index(
    collection: &Collection,
    which: SearchIndexSelector<'_>,
) -> Result<(VectorSpec, sheaf_storage::TableId)> {
    let mut indexes = collection.vector_indexes();
    let found = indexes.find(|index| which.means(index));
    let found = found.ok_or_else(|| which.not_found(collection.ns()))?;
    match &found.spec().vector {
        Some(vector) => Ok((vector.clone(), found.table())),
        None => Err(which.not_found(collection.ns())),
    }
}

/// The search indexes of a collection as `$listSearchIndexes` shows them, those being built last.
pub fn list_search_indexes(view: &ReadView, which: Option<SearchIndexSelector<'_>>) -> Vec<DocBuf> {
    let Some(collection) = &view.collection else {
        return Vec::new();
    };
    let meant = |index: &&Index| which.is_none_or(|which| which.means(index));
    let ready = collection.vector_indexes().filter(meant);
    let new = collection
        .builds()
        .iter()
        .filter(|build| build.replaces().is_none());
    let building = new.flat_map(|build| build.indexes());
    let building = building.filter(|index| index.is_vector()).filter(meant);
    ready
        .map(|index| describe(index, "READY"))
        .chain(building.map(|index| describe(index, "BUILDING")))
        .collect()
}

fn describe(index: &Index, status: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    let Some(vector) = &index.spec().vector else {
        return out.finish();
    };
    let queryable = status == "READY";
    out.append("id", vector.id.as_str());
    out.append("name", index.name());
    out.append("type", "vectorSearch");
    out.append("status", status);
    out.append("queryable", queryable);
    out.append("latestVersion", vector.version);
    out.begin_document("latestDefinitionVersion");
    out.append("version", vector.version);
    out.end();
    let definition: RawDoc<'_> = vector.definition.spec().as_raw();
    out.append("latestDefinition", definition);
    out.begin_array("statusDetail").end();
    out.finish()
}
