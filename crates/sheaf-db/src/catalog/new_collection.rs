//! Creation of collections: permitted names, tables and rows.

use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode, Result};
use sheaf_storage::StorageTransaction;

use crate::catalog::Catalog;
use crate::catalog::namespace::Namespace;
use crate::catalog::options::CollectionOptions;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::uuid::Uuid;
use crate::catalog::views::not_on_view;
use crate::collection::{Collection, CollectionState, Indexes};
use crate::counters::RecordIdSource;
use crate::damage::DamageReports;
use crate::index::Index;
use crate::index::definition::IndexSpec;

/// The error for a collection that exists with different options.
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

/// Checks that a new collection may have this name.
/// Errors: `InvalidNamespace`, `DatabaseDifferCase`.
pub(crate) fn check_name(catalog: &CatalogSnapshot, ns: &Namespace) -> Result<()> {
    ns.check_creatable()?;
    check_not_taken(catalog, ns)
}

/// Checks that this name is free for a collection validated elsewhere.
/// Errors: `CommandNotSupportedOnView`, `DatabaseDifferCase`.
pub(crate) fn check_not_taken(catalog: &CatalogSnapshot, ns: &Namespace) -> Result<()> {
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

/// Creates a collection, with an index on `_id` unless it is clustered: adds its tables and row to
/// the unit. Assigns a new UUID if `uuid` is `None`.
pub(crate) fn new_collection(
    catalog: &Catalog,
    unit: &mut StorageTransaction,
    ns: &Namespace,
    options: &CollectionOptions,
    uuid: Option<Uuid>,
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
        uuid: uuid.unwrap_or_else(|| catalog.new_uuid()),
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
