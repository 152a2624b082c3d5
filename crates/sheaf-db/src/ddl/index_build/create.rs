//! createIndexes: determines which of the requested indexes are missing, and creates them.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{Error, ErrorCode, Result};
use sheaf_storage::TableId;

use crate::catalog::clustered::ClusteredIndex;
use crate::catalog::namespace::Namespace;
use crate::catalog::options::CollectionOptions;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::catalog::system_views::check_written_by_client;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::collection::index_build::IndexBuild;
use crate::counters::CollectionSize;
use crate::database::Db;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::index_build::load::PHASE_SCAN;
use crate::ddl::index_build::run;
use crate::index::definition::{INDEXES_MAX, IndexSpec, SpecRelation, cannot_create};
use crate::index::partial_filter::PartialFilter;
use crate::index::vector::lists::Lists;
use crate::index::{Index, IndexConstraints};
use crate::op_context::{OpContext, OperationProgress};
use crate::statement::StatementContext;
use crate::storage_error::IntoClientError;
use crate::timeseries;
use crate::write::unit::WriteUnitOfWork;

/// The `note` of a reply if all indexes exist.
pub const ALL_INDEXES_EXIST: &str = "all indexes already exist";

/// The result of createIndexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateIndexesResult {
    /// `numIndexesBefore`.
    pub indexes_before: usize,
    /// `numIndexesAfter`.
    pub indexes_after: usize,
    /// `createdCollectionAutomatically`.
    pub created_collection: bool,
    /// `note`.
    pub note: Option<&'static str>,
}

/// How the requested specs relate to a collection.
enum Plan {
    /// All of them exist.
    Nothing,
    /// Another operation is building one: plan again when that has ended.
    WaitFor(Arc<IndexBuild>),
    /// These are missing.
    Make(Vec<IndexSpec>),
}

/// Creates indexes in a transaction: only on a collection that it creates, while that is empty.
///
/// Errors: `OperationNotSupportedInTransaction` for any other, unless all indexes exist.
fn create_in(
    unit: &mut WriteUnitOfWork,
    op: &OpContext,
    ns: &Namespace,
    specs: &[IndexSpec],
) -> Result<CreateIndexesResult> {
    let open = unit.open(op, ns, Some(Duration::ZERO))?;
    let collection = match open {
        Some(slot) => unit.collection(slot).clone(),
        None => unit.create_collection(op, ns, &options_for(specs))?,
    };
    let indexes_before = collection.index_count();
    let result = |made: usize, note| CreateIndexesResult {
        indexes_before,
        indexes_after: indexes_before + made,
        created_collection: open.is_none(),
        note,
    };
    let missing = match plan(&collection, specs)? {
        Plan::Nothing => return Ok(result(0, Some(ALL_INDEXES_EXIST))),
        Plan::Make(missing) => missing,
        Plan::WaitFor(_) => return Err(existing(ns)),
    };
    let made = missing.len();
    match unit.create_indexes(ns, missing)? {
        true => Ok(result(made, None)),
        false => Err(existing(ns)),
    }
}

fn existing(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
        format!(
            "Cannot create new indexes on existing collection {ns} in a multi-document transaction."
        ),
    )
}

impl Db {
    /// Creates the missing indexes in one pass over the documents, and the collection if it is
    /// missing. Creates all of them or, on an error, none. Concurrent reads and writes continue.
    ///
    /// Errors: `IndexOptionsConflict`, `IndexKeySpecsConflict`, `CannotCreateIndex`,
    /// `DuplicateKey`, `CannotIndexParallelArrays`, `IndexBuildAborted` (dropped concurrently),
    /// `Interrupted`.
    pub fn create_indexes(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        specs: &[IndexSpec],
    ) -> Result<CreateIndexesResult> {
        self.create_indexes_with(op, ns, specs, IndexConstraints::Enforced)
    }

    /// Like [`Db::create_indexes`], under these constraints.
    pub(crate) fn create_indexes_with(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        specs: &[IndexSpec],
        constraints: IndexConstraints,
    ) -> Result<CreateIndexesResult> {
        check_by_themselves(specs)?;
        check_written_by_client(ns)?;
        if let Some(series) = self.catalog().timeseries(ns) {
            let specs: Result<Vec<_>> = specs
                .iter()
                .map(|spec| timeseries::indexes::on_buckets(spec, &series.options))
                .collect();
            return self.create_indexes_with(op, series.buckets.ns(), &specs?, constraints);
        }
        if let Some(transaction) = op.transaction() {
            return transaction.with_unit(|unit| create_in(unit, op, ns, specs));
        }
        let mut created_collection = false;
        loop {
            op.check_interrupt_now()?;
            if self.catalog().collection(ns).is_none() {
                self.ensure_collection_as(op, ns, &options_for(specs))?;
                created_collection = true;
            }
            let database = self.catalog_writer().lock_database(op, ns.db())?;
            let catalog = self.catalog();
            let Some(collection) = catalog.collection(ns) else {
                continue;
            };
            let indexes_before = collection.index_count();
            let result = |made: usize, note| CreateIndexesResult {
                indexes_before,
                indexes_after: indexes_before + made,
                created_collection,
                note,
            };
            let missing = match plan(collection, specs)? {
                Plan::Nothing => return Ok(result(0, Some(ALL_INDEXES_EXIST))),
                Plan::WaitFor(build) => {
                    drop(database);
                    build.wait_ended(op)?;
                    continue;
                }
                Plan::Make(missing) => missing,
            };
            let made = missing.len();
            let (intent, collection) = self.exclusive_on(op, collection, BuildsMeet::Allow)?;
            let missing = missing.into_iter().map(|spec| (spec, None)).collect();
            let begun = self.begin_indexes_with(&collection, missing, None, constraints)?;
            drop((intent, database));
            if let Some((collection, build)) = begun {
                run::run(self, op, &collection, &build)?;
            }
            return Ok(result(made, None));
        }
    }

    /// Creates tables and rows. On an empty collection the indexes are ready at once; otherwise
    /// returns the build to run. Vector indexes may come with lists. `replaces` is the index that
    /// the only new one replaces.
    pub(crate) fn begin_indexes(
        &self,
        collection: &Arc<Collection>,
        specs: Vec<(IndexSpec, Option<Arc<[Lists]>>)>,
        replaces: Option<TableId>,
    ) -> Result<Option<(Arc<Collection>, Arc<IndexBuild>)>> {
        self.begin_indexes_with(collection, specs, replaces, IndexConstraints::Enforced)
    }

    fn begin_indexes_with(
        &self,
        collection: &Arc<Collection>,
        specs: Vec<(IndexSpec, Option<Arc<[Lists]>>)>,
        replaces: Option<TableId>,
        constraints: IndexConstraints,
    ) -> Result<Option<(Arc<Collection>, Arc<IndexBuild>)>> {
        let catalog = self.catalog_writer();
        let mut unit = self.storage().begin().into_client_error()?;
        let mut made = Vec::new();
        for (spec, lists) in specs {
            let (table, ident) = catalog.allocate("index", &mut unit);
            unit.create_table(table);
            made.push(match lists {
                Some(lists) => Index::of_vectors(spec, ident, table, lists),
                None => Index::new(spec, ident, table, Vec::new())?,
            });
        }
        let tables: Vec<_> = made.iter().map(Index::table).collect();
        let size = CollectionSize::of(self.storage(), collection.table())?;
        let (changed, build) = if size.count == 0 && replaces.is_none() {
            for index in &made {
                for (key, value) in index.first_rows() {
                    unit.insert_new(index.table(), &key, value);
                }
            }
            let mut list = collection.index_list().to_vec();
            list.extend(made);
            (collection.with_indexes(list)?, None)
        } else {
            let (side_table, _) = catalog.allocate("internal", &mut unit);
            unit.create_table(side_table);
            let names: Vec<&str> = made.iter().map(Index::name).collect();
            let subject = format!("{} [{}]", collection.ns(), names.join(", "));
            let progress = OperationProgress::new(PHASE_SCAN, subject, size.count);
            let build = IndexBuild::new(made, side_table, replaces, progress);
            let build = Arc::new(build.with_constraints(constraints));
            let mut changed = Collection::clone(collection);
            changed.builds.push(build.clone());
            (changed, Some(build))
        };
        rows::put_collection(&mut unit, &changed);
        let ready = changed.index_list().iter();
        let ready = ready.filter(|index| tables.contains(&index.table()));
        let created = ready.map(|index| DdlChange::IndexCreated(&changed, index));
        let ticket = self.observe_ddl(&mut unit, created)?;
        let ns = changed.ns().clone();
        let change = CatalogChange {
            removed: Vec::new(),
            added: vec![changed],
            ..Default::default()
        };
        ticket.committed(catalog.commit_then_publish(unit, &change)?);
        // The exclusive intent is held, so this is the collection just published.
        let published = catalog.current().collection(&ns).cloned();
        Ok(published.zip(build))
    }
}

/// Options for a missing collection: clustered if one of the specs is.
fn options_for(specs: &[IndexSpec]) -> CollectionOptions {
    let clustered = specs.iter().find(|spec| spec.clustered);
    let clustered = clustered.map(|spec| ClusteredIndex::named(&*spec.name));
    CollectionOptions::default().with_clustered(clustered)
}

fn plan(collection: &Collection, specs: &[IndexSpec]) -> Result<Plan> {
    let mut missing = Vec::new();
    let mut wait = None;
    for spec in specs {
        let mut spec = spec.clone();
        if spec.is_id_index() {
            spec.check_id_collation(collection.collator())?;
        }
        spec.resolve_collation(collection.collator());
        let mut known = false;
        match collection.clustered() {
            // Whatever its name, the records' order is the index on _id.
            Some(_) if spec.is_id_index() => known = true,
            Some(clustered) => {
                spec.relate(&clustered.to_spec())?;
            }
            None if spec.clustered => {
                return Err(Error::new(
                    ErrorCode(6243700),
                    format!(
                        "{} is not clustered; only 'create' with clusteredIndex makes a clustered collection",
                        collection.ns()
                    ),
                ));
            }
            None => {}
        }
        for index in collection.index_list() {
            known |= spec.relate(index.spec())? == SpecRelation::Identical;
        }
        let ordinary = collection.builds().iter();
        for build in ordinary.filter(|build| build.replaces().is_none()) {
            for index in build.indexes() {
                if spec.relate(index.spec())? == SpecRelation::Identical {
                    wait = Some(build.clone());
                }
            }
        }
        let asked_before = |other: &IndexSpec| other.name == spec.name;
        if !known && !missing.iter().any(asked_before) {
            missing.push(spec);
        }
    }
    if let Some(build) = wait {
        return Ok(Plan::WaitFor(build));
    }
    let Some(first) = missing.first() else {
        return Ok(Plan::Nothing);
    };
    let being_built = collection.builds().iter().map(|b| b.indexes().len());
    let there = collection.index_count() + being_built.sum::<usize>();
    if there + missing.len() > INDEXES_MAX {
        return Err(cannot_create(format!(
            "add index fails, too many indexes for {} key:{}; a collection can have {INDEXES_MAX}",
            collection.ns(),
            first.key
        )));
    }
    Ok(Plan::Make(missing))
}

/// Checks that every spec is valid by itself, and that no two of them conflict; duplicates are
/// allowed.
fn check_by_themselves(specs: &[IndexSpec]) -> Result<()> {
    if specs.is_empty() {
        return Err(Error::new(
            ErrorCode::BAD_VALUE,
            "Must specify at least one index to create",
        ));
    }
    for (at, spec) in specs.iter().enumerate() {
        if let Some(filter) = &spec.partial_filter {
            PartialFilter::parse(filter.as_raw(), spec.collator().cloned())?;
        }
        for earlier in &specs[..at] {
            spec.relate(earlier)?;
        }
    }
    Ok(())
}
