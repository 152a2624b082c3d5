//! Creates, changes and drops time-series collections.

use std::sync::Arc;

use sheaf_bson::fields::unknown_field;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, doc};
use sheaf_query::pipeline::stages::unpack_bucket;
use sheaf_query::timeseries::options::Bucketing;
use sheaf_query::timeseries::{META, TimeseriesOptions};

use crate::catalog::clustered::ClusteredIndex;
use crate::catalog::kind::NamespaceKind;
use crate::catalog::namespace::Namespace;
use crate::catalog::new_collection::{check_name, exists_otherwise, new_collection};
use crate::catalog::options::CollectionOptions;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::catalog::system_views;
use crate::catalog::views::ViewDefinition;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::clustered::changed_expiry;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::indexes::ns_not_found;
use crate::ddl::rename::RenameWith;
use crate::events::DbEvent;
use crate::index::Index;
use crate::index::definition::{ID_INDEX_NAME, IndexSpec};
use crate::op_context::OpContext;
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;

/// A parsed collMod request for a time-series collection.
#[derive(Debug, Clone, Default)]
pub struct BucketsChange {
    bucketing: Bucketing,
    /// `Some(None)`: disables expiry.
    expire_after_seconds: Option<Option<i64>>,
}

impl BucketsChange {
    /// Parses the fields of the command, other than its name and the fields common to all commands.
    /// Errors: `InvalidOptions`, `TypeMismatch`, `BadValue`, `IDLUnknownField`.
    pub fn parse(fields: RawDoc<'_>) -> Result<BucketsChange> {
        let mut change = BucketsChange::default();
        for element in fields {
            match (element.key(), element.value()) {
                ("timeseries", RawValue::Document(spec)) => {
                    for option in spec {
                        if !change.bucketing.take(&option)? {
                            return Err(unknown_field(format_args!(
                                "collMod.timeseries.{}",
                                option.key()
                            )));
                        }
                    }
                }
                ("expireAfterSeconds", value) => {
                    change.expire_after_seconds = Some(changed_expiry(value)?);
                }
                // As in MongoDB without effect: the buckets are not capped.
                ("cappedSize" | "cappedMax", value) if value.is_number() => {}
                (other, _) => {
                    return Err(Error::new(
                        ErrorCode::INVALID_OPTIONS,
                        format!("option not supported on a time-series collection: {other}"),
                    ));
                }
            }
        }
        Ok(change)
    }
}

/// The view through which measurements are read.
fn view_of(ns: &Namespace, options: &TimeseriesOptions) -> Result<ViewDefinition> {
    let stage = doc! {unpack_bucket::NAME: &options.unpack_spec()};
    Ok(ViewDefinition::new(
        ns.clone(),
        ns.buckets()?.collection(),
        sheaf_bson::ArrayBuf::from_values([RawValue::Document(stage.as_raw())]),
    ))
}

/// The initial index of a bucket collection with a meta field: `{meta: 1, time: 1}`.
fn index_of_series(options: &TimeseriesOptions) -> Result<Option<IndexSpec>> {
    let Some(meta) = &options.meta_field else {
        return Ok(None);
    };
    let time = &options.time_field;
    let mut key = DocBuilder::new();
    key.append(META, 1);
    key.append(format!("control.min.{time}"), 1);
    key.append(format!("control.max.{time}"), 1);
    let mut spec = DocBuilder::new();
    spec.append("v", 2);
    spec.append_bson("key", &key.finish());
    spec.append("name", format!("{meta}_1_{time}_1").as_str());
    IndexSpec::parse(spec.finish().as_raw()).map(Some)
}

impl Db {
    /// Creates a time-series collection. Does nothing if it exists with the same options.
    ///
    /// Errors: `NamespaceExists`, `InvalidNamespace`, `DatabaseDifferCase`, and inside a
    /// transaction `OperationNotSupportedInTransaction`.
    pub(crate) fn create_timeseries(
        &self,
        op: &StatementContext,
        ns: &Namespace,
        collection_options: &CollectionOptions,
        options: &Arc<TimeseriesOptions>,
    ) -> Result<Arc<Collection>> {
        if op.transaction().is_some() {
            return Err(Error::new(
                ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                "Cannot create a time-series collection in a multi-document transaction.",
            ));
        }
        let buckets = ns.buckets()?;
        // Bucket ids begin with the time, so buckets of one time are stored together.
        let clustered = Some(ClusteredIndex::named(ID_INDEX_NAME));
        let collection_options = &collection_options.clone().with_clustered(clustered);
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let current = catalog.current();
        let kind = current.kind(ns);
        if let NamespaceKind::TimeSeries(existing, _) = kind {
            return match existing.buckets.options().same(collection_options) {
                true => Ok(existing.buckets),
                false => Err(exists_otherwise(&existing.buckets)),
            };
        }
        if kind.exists() || current.collection(&buckets).is_some() {
            return Err(Error::new(
                ErrorCode::NAMESPACE_EXISTS,
                format!("{ns} already exists, as a collection or as a view"),
            ));
        }
        check_name(&current, ns)?;
        buckets.check_length()?;
        let mut unit = self.storage().begin().into_client_error()?;
        let mut collection =
            new_collection(catalog, &mut unit, &buckets, collection_options, None)?;
        if let Some(mut spec) = index_of_series(options)? {
            spec.resolve_collation(collection_options.collator());
            let (table, ident) = catalog.allocate("index", &mut unit);
            unit.create_table(table);
            let mut list = collection.index_list().to_vec();
            list.push(Index::new(spec, ident, table, Vec::new())?);
            collection = collection.with_indexes(list)?;
            rows::put_collection(&mut unit, &collection);
        }
        let mut view = view_of(ns, options)?;
        view.collator = collection_options.collator().cloned();
        let uuid = collection.uuid();
        let mut change = CatalogChange {
            added: vec![collection],
            ..Default::default()
        };
        system_views::put(catalog, &mut unit, &mut change, view)?;
        let (collection, view) = (&change.added[0], &change.views[0]);
        let indexes = collection.index_list().iter();
        let changes = std::iter::once(DdlChange::CollectionCreated(collection))
            .chain(indexes.map(|index| DdlChange::IndexCreated(collection, index)))
            .chain([DdlChange::ViewCreated(view)]);
        let ticket = self.observe_ddl(&mut unit, changes)?;
        ticket.committed(catalog.commit_then_publish(unit, &change)?);
        self.events().send(DbEvent::CollectionCreated {
            ns: buckets.clone(),
            uuid,
        });
        match catalog.current().collection(&buckets) {
            Some(collection) => Ok(collection.clone()),
            None => Err(ns_not_found(&buckets)),
        }
    }

    /// Renames a time-series collection, and drops an existing one with the target name in the same
    /// step. The final step of `$out`.
    ///
    /// Errors: `NamespaceExists` (the name belongs to something else), `InvalidNamespace`,
    /// `BackgroundOperationInProgressForNamespace`.
    pub(crate) fn replace_timeseries(
        &self,
        op: &OpContext,
        from: &Namespace,
        to: &Namespace,
    ) -> Result<()> {
        let catalog = self.catalog_writer();
        let _databases = catalog.lock_databases(op, [from.db(), to.db()].into_iter())?;
        let current = catalog.current();
        let Some(source) = current.timeseries(from) else {
            return Err(ns_not_found(from));
        };
        let buckets = to.buckets()?;
        let kind = current.kind(to);
        let is_taken = kind.exists() || current.collection(&buckets).is_some();
        let target = match kind {
            NamespaceKind::TimeSeries(target, _) => Some(target),
            _ => None,
        };
        if target.is_none() {
            if is_taken {
                return Err(Error::new(
                    ErrorCode::NAMESPACE_EXISTS,
                    format!("{to} already exists, as a collection or as a view"),
                ));
            }
            check_name(&current, to)?;
            buckets.check_length()?;
        }
        let (_intent, renamed) = self.exclusive_on(op, &source.buckets, BuildsMeet::Refuse)?;
        let dropped = match &target {
            Some(target) => Some(self.exclusive_on(op, &target.buckets, BuildsMeet::Refuse)?),
            None => None,
        };
        let dropped = dropped.as_ref().map(|(_, collection)| &**collection);
        let mut view = view_of(to, &source.options)?;
        view.collator = renamed.options().collator().cloned();
        let views = RenameWith {
            removed: Some(from.clone()),
            put: Some(view),
            stays_temporary: false,
        };
        self.commit_rename(&renamed, &buckets, dropped, views)
    }

    /// Executes a collMod of a time-series collection.
    ///
    /// Errors: `NamespaceNotFound`, `InvalidOptions` for a smaller bucket span,
    /// `BackgroundOperationInProgressForNamespace`.
    pub fn modify_timeseries(
        &self,
        op: &OpContext,
        ns: &Namespace,
        request: &BucketsChange,
    ) -> Result<()> {
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let Some(timeseries) = catalog.current().timeseries(ns) else {
            return Err(ns_not_found(ns));
        };
        let (_intent, collection) =
            self.exclusive_on(op, &timeseries.buckets, BuildsMeet::Refuse)?;
        let mut options = collection.options().clone();
        let mut views = Vec::new();
        if let Some(changed) = timeseries.options.with_bucketing(&request.bucketing)? {
            let mut view = view_of(ns, &changed)?;
            view.collator = options.collator().cloned();
            views.push(view);
            options = options.with_timeseries(changed);
        }
        if let Some(new) = request.expire_after_seconds {
            options = options.with_expiry(new);
        }
        if options.same(collection.options()) {
            return Ok(());
        }
        let mut changed = Collection::clone(&collection);
        changed.options = options;
        let mut unit = self.storage().begin().into_client_error()?;
        rows::put_collection(&mut unit, &changed);
        let mut change = CatalogChange::default();
        for view in views {
            system_views::put(catalog, &mut unit, &mut change, view)?;
        }
        let append = |o: &mut DocBuilder| append_changes(&changed, request, o);
        let modified = DdlChange::OptionsModified {
            collection: &changed,
            changes: &append,
            before: &collection,
        };
        let of_views = change.views.iter().map(DdlChange::ViewModified);
        let ticket = self.observe_ddl(&mut unit, std::iter::once(modified).chain(of_views))?;
        change.added.push(changed);
        ticket.committed(catalog.commit_then_publish(unit, &change)?);
        Ok(())
    }
}

/// Appends `timeseries` and `expireAfterSeconds`, if the request changed them.
fn append_changes(changed: &Collection, request: &BucketsChange, o: &mut DocBuilder) {
    if let Some(options) = changed.options().timeseries()
        && request.bucketing != Bucketing::default()
    {
        let options = options.to_doc();
        let granularity: &[&str] = match options.get("granularity") {
            Some(_) => &["granularity"],
            None => &["bucketMaxSpanSeconds", "bucketRoundingSeconds"],
        };
        o.begin_document("timeseries");
        for name in granularity {
            if let Some(value) = options.get(name) {
                o.append(name, value);
            }
        }
        o.end();
    }
    match request.expire_after_seconds {
        Some(Some(seconds)) => o.append("expireAfterSeconds", RawValue::int_or_long(seconds)),
        Some(None) => o.append("expireAfterSeconds", "off"),
        None => o,
    };
}

/// `{name, type: "timeseries", options, info}`, for `listCollections`.
pub fn to_list_doc(ns: &Namespace, buckets: &Collection) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("name", ns.collection());
    out.append("type", "timeseries");
    let options = buckets.options().clone().with_clustered(None);
    out.append_bson("options", &options.to_doc());
    out.begin_document("info");
    out.append("readOnly", false);
    out.end();
    out.finish()
}
