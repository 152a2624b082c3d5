//! Creates, changes, drops and resolves views.

use std::sync::Arc;

use sheaf_bson::{
    ArrayBuf, CollationChoice, Collator, DateTime, Error, ErrorCode, RawArray, Result, Timestamp,
};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::stages::vector_search;
use sheaf_query::pipeline::{Pipeline, PipelineSource};

use crate::catalog::kind::NamespaceKind;
use crate::catalog::namespace::Namespace;
use crate::catalog::snapshot::{CatalogChange, CatalogSnapshot};
use crate::catalog::system_views;
use crate::catalog::views::{ResolvedView, ViewDefinition, other_collation};
use crate::change::DdlChange;
use crate::database::Db;
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;
use crate::system_names::VIEWS;

/// Maximum depth of views on views.
pub const VIEW_DEPTH_MAX: usize = 20;
/// Maximum total size of the pipelines in a chain of views, in bytes.
const VIEW_PIPELINE_BYTES_MAX: usize = 16 * 1024 * 1024;

fn parsed(pipeline: RawArray<'_>) -> Result<Pipeline> {
    let context = ParseContext {
        // The values are those of a statement that reads the view.
        variables: VariableScope::new(DateTime::now())
            .with_cluster_time(Some(Timestamp::default()))
            .with_deferred_errors(),
    };
    let parsed = Pipeline::parse(pipeline, &context)?;
    let search = match parsed.source {
        PipelineSource::VectorSearch { .. } => Some(vector_search::NAME),
        _ => None,
    };
    if let Some(refused) = parsed.sink.as_ref().map(|sink| sink.name()).or(search) {
        return Err(Error::new(
            ErrorCode::OPTION_NOT_SUPPORTED_ON_VIEW,
            format!("the aggregation stage {refused} in the pipeline of a view is not allowed"),
        ));
    }
    Ok(parsed)
}

/// Walks the views below `name`; fails if one leads back to `target`, or if they are too deep.
fn depth_of(
    catalog: &CatalogSnapshot,
    target: &Namespace,
    name: &str,
    depth: usize,
    visited: &mut Vec<String>,
) -> Result<()> {
    if name == target.collection() {
        return Err(Error::new(
            ErrorCode::GRAPH_CONTAINS_CYCLE,
            format!("View cycle detected: {target} would depend on itself"),
        ));
    }
    if depth > VIEW_DEPTH_MAX {
        return Err(too_deep());
    }
    // A view visited before was walked from here or from higher up: a second walk finds no new
    // cycle.
    if visited.iter().any(|known| known == name) {
        return Ok(());
    }
    let Ok(ns) = Namespace::new(target.db(), name) else {
        return Ok(());
    };
    let Some(view) = catalog.view(&ns) else {
        return Ok(());
    };
    visited.push(name.to_owned());
    depth_of(catalog, target, &view.on, depth + 1, visited)?;
    if let Ok(pipeline) = parsed(view.pipeline.as_raw()) {
        for other in pipeline.foreign_collections() {
            depth_of(catalog, target, &other, depth + 1, visited)?;
        }
    }
    Ok(())
}

fn too_deep() -> Error {
    Error::new(
        ErrorCode::VIEW_DEPTH_LIMIT_EXCEEDED,
        format!("View depth limit exceeded; maximum depth is {VIEW_DEPTH_MAX}"),
    )
}

fn check(
    catalog: &CatalogSnapshot,
    ns: &Namespace,
    on: &str,
    pipeline: RawArray<'_>,
    collator: Option<&Arc<Collator>>,
) -> Result<()> {
    let below = Namespace::new(ns.db(), on)?;
    let parsed = parsed(pipeline)?;
    let mut visited = Vec::new();
    depth_of(catalog, ns, on, 1, &mut visited)?;
    for other in parsed.foreign_collections() {
        depth_of(catalog, ns, &other, 1, &mut visited)?;
    }
    let others = parsed.foreign_collections();
    let others = others
        .iter()
        .filter_map(|o| Namespace::new(ns.db(), o).ok());
    for used in std::iter::once(below).chain(others) {
        if let Some(view) = catalog.view(&used)
            && view.collator.as_ref() != collator
        {
            return Err(other_collation(format!(
                "View {ns} has conflicting collation with view {used}"
            )));
        }
    }
    Ok(())
}

impl Db {
    /// Creates a view. Does nothing if it exists with the same definition.
    ///
    /// Errors: `NamespaceExists`, `InvalidNamespace`, those of the pipeline, `GraphContainsCycle`,
    /// `ViewDepthLimitExceeded`, `OptionNotSupportedOnView` for stages that write and for a view on
    /// a view with another collation.
    pub fn create_view(
        &self,
        op: &OpContext,
        ns: &Namespace,
        on: &str,
        pipeline: RawArray<'_>,
        collation: &CollationChoice,
    ) -> Result<()> {
        ns.check_creatable()?;
        system_views::check_written_by_client(ns)?;
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let current = catalog.current();
        let view = ViewDefinition {
            ns: ns.clone(),
            on: on.into(),
            pipeline: pipeline.to_buf(),
            collator: collation.collator().cloned(),
            usage: Arc::default(),
        };
        match current.kind(ns) {
            NamespaceKind::Missing => {}
            NamespaceKind::View(existing) if **existing == view => return Ok(()),
            _ => return Err(exists(ns)),
        }
        if let Some(other) = current.database_of_other_case(ns.db()) {
            return Err(Error::new(
                ErrorCode::DATABASE_DIFFER_CASE,
                format!(
                    "db already exists with different case already have: [{other}] trying to create [{}]",
                    ns.db()
                ),
            ));
        }
        check(&current, ns, on, pipeline, view.collator.as_ref())?;
        self.store_view(view)
    }

    /// Changes the definition of a view; `None` leaves a part unchanged.
    /// Errors: `NamespaceNotFound` if the view does not exist, and those of [`Db::create_view`].
    pub fn modify_view(
        &self,
        op: &OpContext,
        ns: &Namespace,
        on: Option<&str>,
        pipeline: Option<RawArray<'_>>,
    ) -> Result<()> {
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let current = catalog.current();
        let view = match current.kind(ns) {
            NamespaceKind::View(view) => view,
            NamespaceKind::TimeSeries(..) => {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    format!("{ns} is a time-series collection: its definition cannot be changed"),
                ));
            }
            NamespaceKind::Missing | NamespaceKind::Collection(_) => {
                return Err(Error::new(
                    ErrorCode::NAMESPACE_NOT_FOUND,
                    format!("view {ns} does not exist"),
                ));
            }
        };
        let mut view = ViewDefinition::clone(view);
        if let Some(on) = on {
            view.on = on.into();
        }
        if let Some(pipeline) = pipeline {
            view.pipeline = pipeline.to_buf();
        }
        let collator = view.collator.as_ref();
        check(&current, ns, &view.on, view.pipeline.as_raw(), collator)?;
        self.store_view(view)
    }

    /// Checks a definition that comes from elsewhere, such as the oplog.
    /// Errors: those of [`Db::create_view`].
    pub(crate) fn check_view(&self, view: &ViewDefinition) -> Result<()> {
        let collator = view.collator.as_ref();
        let pipeline = view.pipeline.as_raw();
        check(&self.catalog(), &view.ns, &view.on, pipeline, collator)
    }

    /// Defines a view without validating it.
    /// Errors: `Interrupted`, those of the storage engine.
    pub(crate) fn put_view(&self, op: &OpContext, view: ViewDefinition) -> Result<()> {
        let _database = self.catalog_writer().lock_database(op, view.ns.db())?;
        self.store_view(view)
    }

    /// Drops the view with this name, if it exists.
    /// Errors: `Interrupted`, those of the storage engine.
    pub(crate) fn remove_view(&self, op: &OpContext, ns: &Namespace) -> Result<()> {
        let _database = self.catalog_writer().lock_database(op, ns.db())?;
        let catalog = self.catalog();
        self.drop_views(catalog.view(ns).cloned().as_slice())
    }

    /// Stores a view. The caller holds the database's lock.
    fn store_view(&self, view: ViewDefinition) -> Result<()> {
        let mut unit = self.storage().begin().into_client_error()?;
        let is_new = self.catalog().view(&view.ns).is_none();
        let mut change = CatalogChange::default();
        system_views::put(self.catalog_writer(), &mut unit, &mut change, view)?;
        let logged = change.views.iter().map(|view| match is_new {
            true => DdlChange::ViewCreated(view),
            false => DdlChange::ViewModified(view),
        });
        let ticket = self.observe_ddl(&mut unit, logged)?;
        let seq = self.catalog_writer().commit_then_publish(unit, &change)?;
        ticket.committed(seq);
        Ok(())
    }

    /// Creates `system.views` in databases whose views a version without this collection created.
    pub(crate) fn complete_system_views(&self) -> Result<()> {
        let catalog = self.catalog();
        let mut change = CatalogChange::default();
        let mut unit = self.storage().begin().into_client_error()?;
        for (_, database) in catalog.databases() {
            if database.collection(VIEWS).is_some() {
                continue;
            }
            for view in database.views() {
                let view = ViewDefinition::clone(view);
                system_views::put(self.catalog_writer(), &mut unit, &mut change, view)?;
            }
        }
        if !change.added.is_empty() {
            self.catalog_writer().commit_then_publish(unit, &change)?;
        }
        Ok(())
    }

    /// Drops views. The caller holds the database's lock.
    pub(crate) fn drop_views(&self, views: &[Arc<ViewDefinition>]) -> Result<()> {
        if views.is_empty() {
            return Ok(());
        }
        let mut unit = self.storage().begin().into_client_error()?;
        let mut change = CatalogChange::default();
        for view in views {
            system_views::remove(self.catalog_writer(), &mut unit, &mut change, &view.ns)?;
        }
        let dropped = views.iter().map(|view| DdlChange::ViewDropped(&view.ns));
        let ticket = self.observe_ddl(&mut unit, dropped)?;
        let seq = self.catalog_writer().publish_then_commit(unit, &change)?;
        ticket.committed(seq);
        Ok(())
    }

    /// Resolves a view to its underlying collection and pipelines; `None` if the name is not a
    /// view.
    /// Errors: `ViewDepthLimitExceeded`.
    pub fn resolve_view(&self, ns: &Namespace) -> Result<Option<ResolvedView>> {
        let catalog = self.catalog();
        let Some(mut view) = catalog.view(ns) else {
            return Ok(None);
        };
        let collator = view.collator.clone();
        let mut pipelines = vec![&view.pipeline];
        let on = loop {
            let on = Namespace::new(ns.db(), &view.on)?;
            match catalog.view(&on) {
                None => break on,
                Some(next) => view = next,
            }
            pipelines.push(&view.pipeline);
            let bytes: usize = pipelines.iter().map(|p| p.as_bytes().len()).sum();
            if pipelines.len() > VIEW_DEPTH_MAX || bytes > VIEW_PIPELINE_BYTES_MAX {
                return Err(too_deep());
            }
        };
        let stages = pipelines.iter().rev().flat_map(|p| p.as_raw().iter());
        Ok(Some(ResolvedView {
            on,
            pipeline: ArrayBuf::from_values(stages),
            collator,
        }))
    }
}

fn exists(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::NAMESPACE_EXISTS,
        format!("{ns} already exists, as a collection or as a view with another definition"),
    )
}
