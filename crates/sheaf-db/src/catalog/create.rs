//! Creating collections: by command, and by the first write.

use std::sync::Arc;

use sheaf_bson::{DocBuilder, Error, ErrorCode, Result};

use crate::catalog::Catalog;
use crate::catalog::collection::{Collection, CollectionState, Indexes};
use crate::catalog::namespace::Namespace;
use crate::catalog::options::CollectionOptions;
use crate::catalog::rows;
use crate::catalog::snapshot::{CatalogChange, CatalogSnapshot};
use crate::catalog::views::not_on_view;
use crate::counters::RecordIdSource;
use crate::damage::DamageReports;
use crate::database::Db;
use crate::events::DbEvent;
use crate::index::Index;
use crate::index::spec::IndexSpec;
use crate::op_context::OpContext;
use crate::oplog::LoggedOp;
use crate::statement::StatementContext;
use crate::storage_error::Coded;
use sheaf_storage::WriteUnitOfWork;

impl Db {
    /// Creates a collection with its index on `_id`. One that is there with the same options is left as it is.
    ///
    /// Errors: `NamespaceExists` (there with other options), `InvalidNamespace`, `DatabaseDifferCase`.
    pub fn create_collection(
        &self,
        op: &StatementContext,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        if let Some(timeseries) = options.timeseries() {
            return self.create_timeseries(op, ns, &options, timeseries);
        }
        if let Some(existing) = self.catalog().timeseries(ns) {
            return Err(exists_otherwise(&existing.buckets));
        }
        if let Some(transaction) = op.transaction() {
            return transaction.with_unit(|unit| unit.create_collection(op, ns, &options));
        }
        let (collection, existed) = self.create_or_get(op, ns, &options)?;
        if existed && !collection.options().same(&options) {
            return Err(exists_otherwise(&collection));
        }
        Ok(collection)
    }

    /// The collection, created with default options if it is not there: what a write does.
    /// Errors: `InvalidNamespace`, `DatabaseDifferCase`.
    pub fn ensure_collection(
        &self,
        op: &StatementContext,
        ns: &Namespace,
    ) -> Result<Arc<Collection>> {
        if let Some(collection) = self.catalog().collection(ns) {
            return Ok(collection.clone());
        }
        if let Some(transaction) = op.transaction() {
            let options = CollectionOptions::default();
            return transaction.with_unit(|unit| unit.create_collection(op, ns, &options));
        }
        let (collection, _) = self.create_or_get(op, ns, &CollectionOptions::default())?;
        Ok(collection)
    }

    /// As [`Db::ensure_collection`], created with these options if it is not there.
    pub(crate) fn ensure_collection_as(
        &self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        Ok(self.create_or_get(op, ns, options)?.0)
    }

    fn create_or_get(
        &self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<(Arc<Collection>, bool)> {
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let current = catalog.current();
        if let Some(collection) = current.collection(ns) {
            return Ok((collection.clone(), true));
        }
        check_name(&current, ns)?;
        let mut unit = self.storage().begin().coded()?;
        let collection = new_collection(catalog, &mut unit, ns, options)?;
        let uuid = collection.uuid;
        let change = CatalogChange {
            removed: Vec::new(),
            added: vec![collection],
            ..Default::default()
        };
        let collection = &change.added[0];
        let logged = created_entry(collection);
        let _entry = self.log_command(&mut unit, logged)?;
        catalog.commit_then_publish(unit, &change)?;
        self.events().send(DbEvent::CollectionCreated {
            ns: ns.clone(),
            uuid,
        });
        match catalog.current().collection(ns) {
            Some(collection) => Ok((collection.clone(), false)),
            None => Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("{ns} is not in the catalog after its creation"),
            )),
        }
    }
}

/// What the oplog says of a new collection.
pub(crate) fn created_entry(collection: &Collection) -> LoggedOp {
    let mut o = DocBuilder::new();
    o.append("create", collection.ns().collection());
    o.extend(collection.options().to_doc().as_raw());
    if let (None, Some(id_index)) = (collection.clustered(), collection.index_list().first()) {
        o.append_bson("idIndex", &id_index.spec().to_doc());
    }
    LoggedOp::command(
        collection.ns().db(),
        Some(collection.uuid()),
        o.finish(),
        None,
    )
}

/// The error for a collection that is there with other options.
pub(crate) fn exists_otherwise(collection: &Collection) -> Error {
    Error::new(
        ErrorCode::NAMESPACE_EXISTS,
        format!(
            "Collection already exists. NS: {}, with other options: {}",
            collection.ns(),
            collection.options().to_doc()
        ),
    )
}

/// Whether a collection may come to have this name.
/// Errors: `InvalidNamespace`, `DatabaseDifferCase`.
pub(crate) fn check_name(catalog: &CatalogSnapshot, ns: &Namespace) -> Result<()> {
    ns.check_creatable()?;
    if catalog.view(ns).is_some() {
        return Err(not_on_view(ns));
    }
    match catalog.database_of_other_case(ns.db()) {
        Some(other) => Err(Error::new(
            ErrorCode::DATABASE_DIFFER_CASE,
            format!(
                "db already exists with different case already have: [{other}] trying to create [{}]",
                ns.db()
            ),
        )),
        None => Ok(()),
    }
}

/// A collection with its index on `_id`, if it is not clustered: its tables and its row are put into the unit.
pub(crate) fn new_collection(
    catalog: &Catalog,
    unit: &mut WriteUnitOfWork,
    ns: &Namespace,
    options: &CollectionOptions,
) -> Result<Collection> {
    options.check_namespace(ns)?;
    let (table, ident) = catalog.allocate("collection", unit);
    unit.create_table(table);
    let mut indexes = Vec::new();
    if options.clustered().is_none() {
        let (id_table, id_ident) = catalog.allocate("index", unit);
        let mut id_spec = IndexSpec::id_index();
        id_spec.resolve_collation(options.collator());
        unit.create_table(id_table);
        indexes.push(Index::new(id_spec, id_ident, id_table, Vec::new())?);
    }
    let collection = Collection {
        ns: ns.clone(),
        uuid: catalog.new_uuid(),
        ident,
        table,
        options: options.clone(),
        indexes: Indexes::new(indexes, table, options)?,
        builds: Vec::new(),
        generation: 0,
        plan_cache: Arc::default(),
        state: Arc::new(CollectionState {
            record_ids: RecordIdSource::of_new_table(),
            damage: DamageReports::to(catalog.events()),
            ..CollectionState::default()
        }),
    };
    rows::put_collection(unit, &collection);
    Ok(collection)
}
