//! `system.views`: the views of a database as documents, which clients can read.
//!
//! ```text
//!   a view is stored or dropped ─ one unit ─┬─ its row in the catalog, which the server works by
//!                                           └─ its document {_id: "db.v", viewOn, pipeline, ..}
//! ```
//!
//! The collection is created with the first view of its database and stays when the last one is
//! dropped, as in MongoDB. Its records are stored in the order of `_id`, without a separate index;
//! listings show an ordinary collection.
//!
//! Invariant: the documents and the rows of a database are the same views. Clients do not write to
//! the collection.

use sheaf_bson::record_id::RecordKeyBytes;
use sheaf_bson::{Error, ErrorCode, RawValue, Result};
use sheaf_storage::{StorageTransaction, TableId};

use crate::catalog::Catalog;
use crate::catalog::clustered::{ClusteredIndex, record_id_of_id};
use crate::catalog::namespace::Namespace;
use crate::catalog::new_collection::new_collection;
use crate::catalog::options::CollectionOptions;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::catalog::views::ViewDefinition;
use crate::index::definition::ID_INDEX_NAME;
use crate::record_key::record_key;
use crate::system_names::VIEWS;

/// The options with which `system.views` is stored.
pub(crate) fn options() -> CollectionOptions {
    CollectionOptions::default().with_clustered(Some(ClusteredIndex::named(ID_INDEX_NAME)))
}

/// Errors: `InvalidNamespace` for a client's write to `system.views`.
pub(crate) fn check_written_by_client(ns: &Namespace) -> Result<()> {
    match ns.is_views() {
        true => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("cannot write to {ns}; change views with create, collMod and drop"),
        )),
        false => Ok(()),
    }
}

/// Stores a view: its row and its document, with the collection if it is missing.
pub(crate) fn put(
    catalog: &Catalog,
    unit: &mut StorageTransaction,
    change: &mut CatalogChange,
    view: ViewDefinition,
) -> Result<()> {
    let table = table(catalog, unit, change, view.ns.db())?;
    rows::put_view(unit, &view);
    unit.put(table, &key(&view.ns), view.to_doc().into_vec());
    change.views.push(view);
    Ok(())
}

/// Removes a view: its row and its document.
pub(crate) fn remove(
    catalog: &Catalog,
    unit: &mut StorageTransaction,
    change: &mut CatalogChange,
    ns: &Namespace,
) -> Result<()> {
    rows::delete_view(unit, ns);
    if let Some(collection) = catalog.current().collection(&of_database(ns.db())?) {
        unit.delete(collection.table(), &key(ns));
    }
    change.removed.push(ns.clone());
    Ok(())
}

/// The table of the collection, which is created if it is missing.
fn table(
    catalog: &Catalog,
    unit: &mut StorageTransaction,
    change: &mut CatalogChange,
    db: &str,
) -> Result<TableId> {
    let ns = of_database(db)?;
    let current = catalog.current();
    let created = change.added.iter().find(|added| *added.ns() == ns);
    let existing = current.collection(&ns).map(|collection| &**collection);
    if let Some(collection) = created.or(existing) {
        return Ok(collection.table());
    }
    let collection = new_collection(catalog, unit, &ns, &options(), None)?;
    let table = collection.table();
    change.added.push(collection);
    Ok(table)
}

fn of_database(db: &str) -> Result<Namespace> {
    Namespace::new(db, VIEWS)
}

fn key(view: &Namespace) -> RecordKeyBytes {
    record_key(&record_id_of_id(RawValue::String(view.as_str()), None))
}
