//! Drops collections and databases.

use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode, Result};
use sheaf_storage::StorageTransaction;

use crate::catalog::kind::NamespaceKind;
use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::{CatalogChange, CatalogSnapshot};
use crate::catalog::system_views;
use crate::catalog::views::ViewDefinition;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::collection::intent::ExclusiveIntent;
use crate::database::Db;
use crate::events::DbEvent;
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;

/// The result of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// `nIndexesWas`; `None` for a view.
    pub indexes_was: Option<usize>,
}

impl Db {
    /// Drops a collection with its indexes and aborts its index builds. `None` if it does not
    /// exist.
    ///
    /// Readers that have started continue; later writers find no collection.
    /// Errors: `InvalidNamespace` for system collections.
    pub fn drop_collection(&self, op: &OpContext, ns: &Namespace) -> Result<Option<Dropped>> {
        if ns.is_system() {
            ns.check_creatable()?;
        }
        let _database = self.catalog_writer().lock_database(op, ns.db())?;
        let catalog = self.catalog();
        let indexes_was = match catalog.kind(ns) {
            NamespaceKind::Missing => return Ok(None),
            NamespaceKind::TimeSeries(timeseries, view) => {
                let indexes = timeseries.buckets.index_list().len();
                let view = std::slice::from_ref(view);
                self.drop_collections(op, &[timeseries.buckets], None, view)?;
                Some(indexes)
            }
            NamespaceKind::View(view) => {
                self.drop_views(std::slice::from_ref(view))?;
                None
            }
            NamespaceKind::Collection(collection) => {
                let indexes = collection.index_count();
                let views = match ns.is_views() {
                    true => droppable_views(&catalog, ns)?,
                    false => Vec::new(),
                };
                self.drop_collections(op, std::slice::from_ref(collection), None, &views)?;
                Some(indexes)
            }
        };
        Ok(Some(Dropped { indexes_was }))
    }

    /// Drops all collections of a database at once. Returns false if it does not exist.
    pub fn drop_database(&self, op: &OpContext, name: &str) -> Result<bool> {
        let _database = self.catalog_writer().lock_database(op, name)?;
        let catalog = self.catalog();
        let Some(database) = catalog.database(name) else {
            return Ok(false);
        };
        let views: Vec<_> = database.views().cloned().collect();
        let collections: Vec<_> = database.collections().cloned().collect();
        self.drop_collections(op, &collections, Some(name), &views)?;
        Ok(true)
    }

    /// Drops collections and views in one step. The caller holds the database's lock.
    pub(crate) fn drop_collections(
        &self,
        op: &OpContext,
        collections: &[Arc<Collection>],
        database: Option<&str>,
        views: &[Arc<ViewDefinition>],
    ) -> Result<()> {
        let catalog = self.catalog_writer();
        let mut intents = Vec::new();
        let mut change = CatalogChange::default();
        let mut unit = self.storage().begin().into_client_error()?;
        for view in views {
            system_views::remove(catalog, &mut unit, &mut change, view.ns())?;
        }
        for collection in collections {
            let (intent, collection) = self.exclusive_on(op, collection, BuildsMeet::End)?;
            intents.push(intent);
            drop_tables(&mut unit, &collection);
            rows::delete_collection(&mut unit, collection.uuid());
            change.removed.push(collection.ns().clone());
        }
        // The documents of views are not in the oplog; the views are.
        let dropped = collections.iter().filter(|c| !c.ns().is_views());
        let dropped = dropped.map(|collection| DdlChange::CollectionDropped(collection));
        // The views of a dropped database are not reported individually.
        let views = views.iter().filter(|_| database.is_none());
        let views = views.map(|view| DdlChange::ViewDropped(view.ns()));
        let database = database.map(DdlChange::DatabaseDropped);
        let ticket = self.observe_ddl(&mut unit, dropped.chain(views).chain(database))?;
        ticket.committed(catalog.publish_then_commit(unit, &change)?);
        drop(intents);
        for collection in collections {
            self.events().send(DbEvent::CollectionDropped {
                ns: collection.ns().clone(),
                uuid: collection.uuid(),
            });
        }
        Ok(())
    }

    /// Takes the exclusive intent on a collection and returns the collection as it is under the
    /// intent. Depending on `builds`, aborts index builds in progress or fails because of them.
    ///
    /// The caller holds the database's lock, so that the collection can be neither dropped nor
    /// renamed concurrently.
    /// Errors: `BackgroundOperationInProgressForNamespace`, `Interrupted`.
    pub(crate) fn exclusive_on(
        &self,
        op: &OpContext,
        collection: &Arc<Collection>,
        builds: BuildsMeet,
    ) -> Result<(ExclusiveIntent, Arc<Collection>)> {
        loop {
            let intent = collection.state.intents.exclusive(op)?;
            let catalog = self.catalog();
            let Some(now) = catalog.collection(collection.ns()) else {
                return Err(Error::new(
                    ErrorCode::NAMESPACE_NOT_FOUND,
                    format!("{} was dropped", collection.ns()),
                ));
            };
            let Some(build) = now.builds().first().cloned() else {
                return Ok((intent, now.clone()));
            };
            match builds {
                BuildsMeet::Allow => return Ok((intent, now.clone())),
                BuildsMeet::Refuse => {
                    return Err(Error::new(
                        ErrorCode::BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE,
                        format!(
                            "cannot perform operation: an index build is currently running for \
                             collection {}; wait for it or drop its indexes",
                            now.ns()
                        ),
                    ));
                }
                BuildsMeet::End => {
                    // The builder itself needs the intent to clean up.
                    drop(intent);
                    build.abort(Error::new(
                        ErrorCode::INDEX_BUILD_ABORTED,
                        format!("index build ended: {} is being dropped", now.ns()),
                    ));
                    build.wait_ended(op)?;
                }
            }
        }
    }
}

/// The views that are dropped with `system.views`.
/// Errors: `IllegalOperation` if a time-series collection is among them.
fn droppable_views(catalog: &CatalogSnapshot, ns: &Namespace) -> Result<Vec<Arc<ViewDefinition>>> {
    let views = catalog.database(ns.db()).into_iter();
    let views: Vec<_> = views.flat_map(|db| db.views().cloned()).collect();
    match views
        .iter()
        .find(|view| catalog.timeseries(view.ns()).is_some())
    {
        None => Ok(views),
        Some(series) => Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            format!(
                "cannot drop {ns} while there are time-series collections; drop {} first",
                series.ns()
            ),
        )),
    }
}

/// How a change of a collection's shape treats index builds in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildsMeet {
    /// Abort them.
    End,
    /// Fail.
    Refuse,
    /// Let them continue.
    Allow,
}

/// Drops the collection's table and those of its indexes.
pub(crate) fn drop_tables(unit: &mut StorageTransaction, collection: &Collection) {
    for index in collection.index_list() {
        unit.drop_table(index.table());
    }
    unit.drop_table(collection.table());
}
