//! Creates collections: by command, and on the first write.

use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode, Result};

use crate::catalog::namespace::Namespace;
use crate::catalog::new_collection::{
    check_name, check_not_taken, exists_otherwise, new_collection,
};
use crate::catalog::options::CollectionOptions;
use crate::catalog::snapshot::CatalogChange;
use crate::catalog::system_views;
use crate::catalog::uuid::Uuid;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::events::DbEvent;
use crate::op_context::OpContext;
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;

impl Db {
    /// Creates a collection with its index on `_id`. Does nothing if it exists with the same
    /// options.
    ///
    /// Errors: `NamespaceExists` (exists with other options), `InvalidNamespace`,
    /// `DatabaseDifferCase`.
    pub fn create_collection(
        &self,
        op: &StatementContext,
        ns: &Namespace,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        if ns.is_views() {
            return self.create_system_views(op, ns, &options);
        }
        if let Some(timeseries) = options.timeseries() {
            return self.create_timeseries(op, ns, &options, timeseries);
        }
        if let Some(existing) = self.catalog().timeseries(ns) {
            return Err(exists_otherwise(&existing.buckets));
        }
        if let Some(transaction) = op.transaction() {
            return transaction.with_unit(|unit| unit.create_missing(op, ns, &options));
        }
        let (collection, existed) = self.create_or_get(op, ns, &options, None)?;
        if existed && !collection.options().same(&options) {
            return Err(exists_otherwise(&collection));
        }
        Ok(collection)
    }

    /// Creates `system.views` before the first view. Errors: `InvalidOptions` for any option.
    fn create_system_views(
        &self,
        op: &StatementContext,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        if !options.same(&CollectionOptions::default()) || op.transaction().is_some() {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!("{ns} has no options and is not created in a transaction"),
            ));
        }
        let (collection, _) = self.create_or_get(op, ns, &system_views::options(), None)?;
        Ok(collection)
    }

    /// Returns the collection; creates it with default options if missing, as a write does.
    /// Errors: `InvalidNamespace`, `DatabaseDifferCase`.
    pub fn ensure_collection(
        &self,
        op: &StatementContext,
        ns: &Namespace,
    ) -> Result<Arc<Collection>> {
        system_views::check_written_by_client(ns)?;
        if let Some(collection) = self.catalog().collection(ns) {
            return Ok(collection.clone());
        }
        if let Some(transaction) = op.transaction() {
            let options = CollectionOptions::default();
            return transaction.with_unit(|unit| unit.create_collection(op, ns, &options));
        }
        let (collection, _) = self.create_or_get(op, ns, &CollectionOptions::default(), None)?;
        Ok(collection)
    }

    /// Like [`Db::ensure_collection`], but creates it with these options.
    pub(crate) fn ensure_collection_as(
        &self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
    ) -> Result<Arc<Collection>> {
        Ok(self.create_or_get(op, ns, options, None)?.0)
    }

    /// Creates a collection with a given UUID, for instance one from another server. Any name is
    /// allowed.
    /// Errors: `NamespaceExists`, `DatabaseDifferCase`.
    pub(crate) fn create_with_uuid(
        &self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
        uuid: Uuid,
    ) -> Result<Arc<Collection>> {
        let (collection, existed) = self.create_or_get(op, ns, options, Some(uuid))?;
        match existed {
            true => Err(exists_otherwise(&collection)),
            false => Ok(collection),
        }
    }

    fn create_or_get(
        &self,
        op: &OpContext,
        ns: &Namespace,
        options: &CollectionOptions,
        uuid: Option<Uuid>,
    ) -> Result<(Arc<Collection>, bool)> {
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let current = catalog.current();
        if let Some(collection) = current.collection(ns) {
            return Ok((collection.clone(), true));
        }
        match uuid {
            Some(_) => check_not_taken(&current, ns)?,
            None => check_name(&current, ns)?,
        }
        let mut unit = self.storage().begin().into_client_error()?;
        let collection = new_collection(catalog, &mut unit, ns, options, uuid)?;
        let uuid = collection.uuid;
        let change = CatalogChange {
            removed: Vec::new(),
            added: vec![collection],
            ..Default::default()
        };
        let logged = change
            .added
            .iter()
            .filter(|created| !created.ns().is_views());
        let ticket = self.observe_ddl(&mut unit, logged.map(DdlChange::CollectionCreated))?;
        ticket.committed(catalog.commit_then_publish(unit, &change)?);
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
