//! Renames collections.
//!
//! A collection's tables do not depend on its name, so a rename rewrites one row, even into another
//! database: nothing is copied, and UUID and identifiers stay the same.

use sheaf_bson::{Error, ErrorCode, Result};

use crate::catalog::kind::NamespaceKind;
use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::catalog::system_views;
use crate::catalog::views::{ViewDefinition, not_on_view};
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::drop::{BuildsMeet, drop_tables};
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;

/// What a rename changes in the same step.
#[derive(Default)]
pub(crate) struct RenameWith {
    /// View to remove.
    pub(crate) removed: Option<Namespace>,
    /// View to create or replace.
    pub(crate) put: Option<ViewDefinition>,
    /// Whether a temporary collection stays one.
    pub(crate) stays_temporary: bool,
}

impl Db {
    /// Renames a collection. With `drop_target`, an existing collection of that name is dropped in
    /// the same step.
    ///
    /// Errors: `NamespaceNotFound`, `NamespaceExists`, `IllegalOperation` (to itself, system
    /// collections), `InvalidNamespace`, `DatabaseDifferCase`,
    /// `BackgroundOperationInProgressForNamespace`.
    pub fn rename_collection(
        &self,
        op: &OpContext,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        self.rename_collection_as(op, from, to, drop_target, false)
    }

    /// As [`Db::rename_collection`]; with `stays_temporary`, a temporary collection stays one.
    pub fn rename_collection_as(
        &self,
        op: &OpContext,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
        stays_temporary: bool,
    ) -> Result<()> {
        if from == to {
            return Err(illegal("Can't rename a collection to itself"));
        }
        if from.is_system() || to.is_system() {
            return Err(illegal("renaming system collections is not allowed"));
        }
        to.check_creatable()?;
        let writer = self.catalog_writer();
        let _databases = writer.lock_databases(op, [from.db(), to.db()].into_iter())?;
        let catalog = writer.current();
        let source = match (catalog.kind(from), catalog.kind(to)) {
            (NamespaceKind::TimeSeries(..), _) => {
                return Err(Error::new(
                    ErrorCode::COMMAND_NOT_SUPPORTED_ON_VIEW,
                    format!("{from} is a time-series collection, which cannot be renamed"),
                ));
            }
            (NamespaceKind::View(_), _) => return Err(not_on_view(from)),
            (_, NamespaceKind::View(_) | NamespaceKind::TimeSeries(..)) => {
                return Err(Error::new(
                    ErrorCode::NAMESPACE_EXISTS,
                    format!("a view already exists with that name: {to}"),
                ));
            }
            (NamespaceKind::Missing, _) => {
                return Err(Error::new(
                    ErrorCode::NAMESPACE_NOT_FOUND,
                    format!("Source collection {from} does not exist"),
                ));
            }
            (NamespaceKind::Collection(source), _) => source,
        };
        if let Some(other) = catalog.database_of_other_case(to.db()) {
            return Err(Error::new(
                ErrorCode::DATABASE_DIFFER_CASE,
                format!(
                    "db already exists with different case already have: [{other}] trying to create \
                     [{}]",
                    to.db()
                ),
            ));
        }
        let target = catalog.collection(to);
        if target.is_some() && !drop_target {
            return Err(Error::new(
                ErrorCode::NAMESPACE_EXISTS,
                format!("target namespace exists: {to}; drop it, or rename with dropTarget: true"),
            ));
        }
        let (_source_intent, source) = self.exclusive_on(op, source, BuildsMeet::Refuse)?;
        let target = match target {
            Some(target) => Some(self.exclusive_on(op, target, BuildsMeet::Refuse)?),
            None => None,
        };
        let target = target.as_ref().map(|(_, target)| target);
        self.commit_rename(
            &source,
            to,
            target.map(|target| &**target),
            RenameWith {
                stays_temporary,
                ..Default::default()
            },
        )
    }

    /// Renames a collection and drops `target`, in one step. The caller holds intents on both.
    pub(crate) fn commit_rename(
        &self,
        source: &Collection,
        to: &Namespace,
        target: Option<&Collection>,
        views: RenameWith,
    ) -> Result<()> {
        let from = source.ns();
        let mut unit = self.storage().begin().into_client_error()?;
        if let Some(target) = target {
            drop_tables(&mut unit, target);
            rows::delete_collection(&mut unit, target.uuid());
        }
        let mut renamed = Collection::clone(source);
        renamed.ns = to.clone();
        if !views.stays_temporary {
            renamed.options = renamed.options.permanent();
        }
        rows::put_collection(&mut unit, &renamed);
        let catalog = self.catalog_writer();
        let mut change = CatalogChange {
            removed: vec![from.clone()],
            added: vec![renamed],
            ..Default::default()
        };
        if let Some(removed) = &views.removed {
            system_views::remove(catalog, &mut unit, &mut change, removed)?;
        }
        if let Some(put) = views.put {
            system_views::put(catalog, &mut unit, &mut change, put)?;
        }
        let dropped = target;
        let changes = [DdlChange::CollectionRenamed {
            source,
            to,
            dropped,
        }];
        let gone = views.removed.as_ref().map(DdlChange::ViewDropped);
        let put = change.views.iter().map(DdlChange::ViewCreated);
        let changes = changes.into_iter().chain(gone).chain(put);
        let ticket = self.observe_ddl(&mut unit, changes)?;
        let seq = catalog.publish_then_commit(unit, &change)?;
        ticket.committed(seq);
        Ok(())
    }
}

fn illegal(message: &str) -> Error {
    Error::new(ErrorCode::ILLEGAL_OPERATION, message)
}
