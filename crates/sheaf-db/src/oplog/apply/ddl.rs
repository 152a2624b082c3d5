//! Applies commands of an oplog: collections, indexes, views.
//!
//! When an entry is re-applied, a conflicting object belongs to a later point in the oplog than the
//! entry itself. It is moved aside, and a later entry restores it:
//!
//! ```text
//!   create c (A) ... drop c (A) ... create c (B)       applied; c is B
//!   create c (A): B becomes tmp<hex>.apply ... drop c (A) ... create c (B): B becomes c again
//! ```

use std::sync::Arc;

use sheaf_bson::{
    CollationChoice, DocBuf, DocBuilder, Error, ErrorCode, ObjectId, RawDoc, RawValue, Result,
};

use super::{ApplyRules, Operation, OperationKind};
use crate::catalog::namespace::Namespace;
use crate::catalog::options::{Capped, CollectionOptions};
use crate::catalog::uuid::Uuid;
use crate::catalog::views::ViewDefinition;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::coll_mod::CollMod;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::indexes::IndexSelector;
use crate::ddl::rename::RenameWith;
use crate::ddl::timeseries::BucketsChange;
use crate::index::IndexConstraints;
use crate::index::definition::{IndexSpec, SpecRelation};
use crate::statement::StatementContext;
use crate::system_names::BUCKETS_PREFIX;

/// Applies a command to the catalog.
pub(super) fn apply(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let o = operation.o;
    match operation.command()? {
        "create" => create(db, op, rules, operation),
        "drop" => drop_collection(db, op, operation),
        "dropDatabase" => drop_database(db, op, rules, operation.db()),
        "renameCollection" => rename(db, op, rules, operation),
        "createIndexes" => {
            let spec = without(o, &["createIndexes"]);
            create_indexes(db, op, rules, operation, &[spec.as_raw()])
        }
        "commitIndexBuild" => create_indexes(db, op, rules, operation, &specs_of(o)?),
        // The oplog holds nothing else of a build in progress.
        "startIndexBuild" | "abortIndexBuild" => Ok(()),
        "dropIndexes" | "deleteIndexes" | "dropIndex" | "deleteIndex" => {
            drop_index(db, op, operation)
        }
        "collMod" => coll_mod(db, op, rules, operation),
        "convertToCapped" => {
            let collection = named(db, operation)?;
            let size = o.get("size").unwrap_or(RawValue::Null);
            let limit = Capped::parse_size("convertToCapped", size)?;
            db.convert_to_capped(op, collection.ns(), limit)
        }
        other => Err(Error::bad_value(format!(
            "Unknown oplog entry command type: {other}"
        ))),
    }
}

/// The collection that the command's first field names.
fn namespace(operation: &Operation<'_>) -> Result<Namespace> {
    match operation.o.first().map(|first| first.value()) {
        Some(RawValue::String(name)) => Namespace::new(operation.db(), name),
        _ => Err(Error::bad_value(
            "a command of the oplog does not name its collection",
        )),
    }
}

fn named(db: &Db, operation: &Operation<'_>) -> Result<Arc<Collection>> {
    operation.collection(db, &namespace(operation)?)
}

fn create(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let ns = namespace(operation)?;
    let o = operation.o;
    if let (Some(RawValue::String(on)), pipeline) = (o.get("viewOn"), o.get("pipeline")) {
        return create_view(db, op, &ns, on, pipeline, o.get("collation"));
    }
    if ns.collection() == crate::system_names::VIEWS {
        // Views are catalog rows here.
        return Ok(());
    }
    let Some(uuid) = operation.uuid else {
        let fields = without(o, &["create"]);
        let options = CollectionOptions::parse(fields.as_raw())?;
        return db.create_collection(op, &ns, options).map(|_| ());
    };
    let options = CollectionOptions::from_row(o)?;
    let catalog = db.catalog();
    if let Some(existing) = catalog.collection_by_uuid(uuid).cloned() {
        if existing.ns() == &ns {
            return Ok(());
        }
        move_aside(db, op, rules, &ns)?;
        return rename_collection_to(db, op, &existing, &ns, None);
    }
    move_aside(db, op, rules, &ns)?;
    db.create_with_uuid(op, &ns, &options, uuid).map(|_| ())
}

fn create_view(
    db: &Db,
    op: &StatementContext,
    ns: &Namespace,
    on: &str,
    pipeline: Option<RawValue<'_>>,
    collation: Option<RawValue<'_>>,
) -> Result<()> {
    let empty = sheaf_bson::ArrayBuf::from_values::<RawValue<'_>>([]);
    let pipeline = match pipeline {
        Some(RawValue::Array(pipeline)) => pipeline,
        None => empty.as_raw(),
        Some(_) => return Err(Error::bad_value("'pipeline' of a view must be an array")),
    };
    let collation = match collation {
        Some(RawValue::Document(spec)) => CollationChoice::parse(spec)?,
        _ => CollationChoice::Unsaid,
    };
    db.create_view(op, ns, on, pipeline, &collation)
}

/// Frees the name, moving an existing collection aside and removing an existing view.
/// Errors: `NamespaceExists` unless the rules are idempotent.
fn move_aside(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    ns: &Namespace,
) -> Result<()> {
    let catalog = db.catalog();
    let (collection, view) = (catalog.collection(ns).cloned(), catalog.view(ns));
    if (collection.is_some() || view.is_some()) && !rules.is_idempotent {
        return Err(Error::new(
            ErrorCode::NAMESPACE_EXISTS,
            format!("{ns} already exists, as another collection or as a view"),
        ));
    }
    if view.is_some() {
        db.remove_view(op, ns)?;
    }
    let Some(collection) = collection else {
        return Ok(());
    };
    let name = format!("tmp{}.apply", ObjectId::new().to_hex());
    rename_collection_to(db, op, &collection, &Namespace::new(ns.db(), &name)?, None)
}

fn rename_collection_to(
    db: &Arc<Db>,
    op: &StatementContext,
    source: &Arc<Collection>,
    to: &Namespace,
    target: Option<&Arc<Collection>>,
) -> Result<()> {
    let writer = db.catalog_writer();
    let names = [source.ns().db(), to.db()];
    let _databases = writer.lock_databases(op, names.into_iter())?;
    let (_intent, source) = db.exclusive_on(op, source, BuildsMeet::End)?;
    let target = match target {
        Some(target) => Some(db.exclusive_on(op, target, BuildsMeet::End)?),
        None => None,
    };
    let target = target.as_ref().map(|(_, target)| &**target);
    db.commit_rename(&source, to, target, RenameWith::default())
}

fn drop_collection(db: &Arc<Db>, op: &StatementContext, operation: &Operation<'_>) -> Result<()> {
    let ns = namespace(operation)?;
    if ns.collection() == crate::system_names::VIEWS {
        let catalog = db.catalog();
        let views = catalog.database(ns.db()).into_iter();
        let views: Vec<_> = views.flat_map(|db| db.views().cloned()).collect();
        return views
            .iter()
            .try_for_each(|view| db.remove_view(op, view.ns()));
    }
    if operation.uuid.is_none() {
        return db.drop_collection(op, &ns).map(|_| ());
    }
    let collection = operation.collection(db, &ns)?;
    let _database = db
        .catalog_writer()
        .lock_database(op, collection.ns().db())?;
    db.drop_collections(op, &[collection], None, &[])
}

/// Collections are dropped by separate, earlier entries.
fn drop_database(db: &Arc<Db>, op: &StatementContext, rules: ApplyRules, name: &str) -> Result<()> {
    if rules.is_checked {
        return db.drop_database(op, name).map(|_| ());
    }
    // What remains was created by later entries, perhaps from another database, and may stay.
    let catalog = db.catalog();
    let views = catalog.database(name).into_iter();
    let views: Vec<_> = views.flat_map(|db| db.views().cloned()).collect();
    views
        .iter()
        .try_for_each(|view| db.remove_view(op, view.ns()))?;
    let _database = db.catalog_writer().lock_database(op, name)?;
    let ns = Namespace::new(name, crate::system_names::VIEWS)?;
    match db.catalog().collection(&ns) {
        Some(collection) => db.drop_collections(op, &[collection.clone()], None, &[]),
        None => Ok(()),
    }
}

fn rename(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let text = |field: &str| match operation.o.get(field) {
        Some(RawValue::String(name)) => Namespace::parse(name),
        _ => Err(Error::bad_value(format!(
            "renameCollection of the oplog needs '{field}'"
        ))),
    };
    let (from, to) = (text("renameCollection")?, text("to")?);
    let dropped = operation.o.get("dropTarget");
    if rules.is_checked && operation.uuid.is_none() {
        let drops =
            dropped.is_some_and(|drops| Uuid::from_raw(drops).is_some() || drops.is_truthy());
        return db.rename_collection(op, &from, &to, drops);
    }
    let dropped = dropped.and_then(Uuid::from_raw);
    let catalog = db.catalog();
    let target = dropped.and_then(|uuid| catalog.collection_by_uuid(uuid));
    let source = match operation.collection(db, &from) {
        Ok(source) => source,
        Err(error) => {
            // The source was dropped later, and the target it replaced must not reappear.
            if let (true, Some(target)) = (rules.is_idempotent, target) {
                let _database = db.catalog_writer().lock_database(op, target.ns().db())?;
                db.drop_collections(op, std::slice::from_ref(target), None, &[])?;
            }
            return Err(error);
        }
    };
    let target = target.filter(|target| target.uuid() != source.uuid());
    if source.ns() == &to {
        return match target {
            Some(target) => {
                let _database = db.catalog_writer().lock_database(op, target.ns().db())?;
                db.drop_collections(op, std::slice::from_ref(target), None, &[])
            }
            None => Ok(()),
        };
    }
    match target {
        Some(target) if target.ns() == &to => {
            rename_collection_to(db, op, &source, &to, Some(target))
        }
        target => {
            move_aside(db, op, rules, &to)?;
            rename_collection_to(db, op, &source, &to, target)
        }
    }
}

/// The specs of `commitIndexBuild`.
fn specs_of(o: RawDoc<'_>) -> Result<Vec<RawDoc<'_>>> {
    let Some(RawValue::Array(specs)) = o.get("indexes") else {
        return Err(Error::bad_value(
            "commitIndexBuild of the oplog needs 'indexes'",
        ));
    };
    specs
        .iter()
        .map(|spec| {
            spec.as_document()
                .ok_or_else(|| Error::bad_value("an index's spec must be a document"))
        })
        .collect()
}

fn create_indexes(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
    specs: &[RawDoc<'_>],
) -> Result<()> {
    let collection = named(db, operation)?;
    let parsed = specs.iter().map(|spec| {
        // If the entry names no collation the index has none, whatever the collection's.
        let mut spec = IndexSpec::parse_ignoring_unknown(*spec)?;
        spec.resolve_collation(None);
        Ok(spec)
    });
    let parsed: Vec<IndexSpec> = parsed.collect::<Result<_>>()?;
    if rules.is_checked {
        return db.create_indexes(op, collection.ns(), &parsed).map(|_| ());
    }
    for spec in &parsed {
        if rules.is_idempotent {
            drop_conflicting(db, op, &collection, spec)?;
        }
    }
    db.create_indexes_with(op, collection.ns(), &parsed, IndexConstraints::Relaxed)
        .map(|_| ())
}

/// Drops indexes that conflict with the new one.
fn drop_conflicting(
    db: &Arc<Db>,
    op: &StatementContext,
    collection: &Arc<Collection>,
    spec: &IndexSpec,
) -> Result<()> {
    let catalog = db.catalog();
    let Some(now) = catalog.collection(collection.ns()) else {
        return Ok(());
    };
    for index in now.index_list().iter().filter(|index| !index.is_vector()) {
        let conflicts = match spec.relate(index.spec()) {
            Ok(SpecRelation::Identical) => index.spec().to_doc() != spec.to_doc(),
            Ok(_) => false,
            Err(_) => true,
        };
        if conflicts && !index.spec().is_id_index() {
            let selector = IndexSelector::Names(vec![index.name()]);
            db.drop_indexes(op, now.ns(), &selector)?;
        }
    }
    Ok(())
}

fn drop_index(db: &Arc<Db>, op: &StatementContext, operation: &Operation<'_>) -> Result<()> {
    let collection = named(db, operation)?;
    let selector = match operation.o.get("index") {
        Some(RawValue::String("*")) => IndexSelector::All,
        Some(RawValue::String(name)) => IndexSelector::Names(vec![name]),
        Some(RawValue::Document(key)) => IndexSelector::KeyPattern(key),
        _ => return Err(Error::bad_value("dropIndexes of the oplog needs 'index'")),
    };
    db.drop_indexes(op, collection.ns(), &selector).map(|_| ())
}

fn coll_mod(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let collection = named(db, operation)?;
    let fields = without(operation.o, &["collMod"]);
    let done = match collection.ns().collection().strip_prefix(BUCKETS_PREFIX) {
        Some(name) => {
            let change = BucketsChange::parse(fields.as_raw())?;
            let ns = Namespace::new(collection.ns().db(), name)?;
            db.modify_timeseries(op, &ns, &change)
        }
        None => {
            let mut change = CollMod::parse(fields.as_raw())?;
            if !rules.is_checked {
                change.relax_index_constraints();
            }
            db.coll_mod(op, collection.ns(), &change).map(|_| ())
        }
    };
    match done {
        // Later entries have already increased the span of buckets, which cannot decrease.
        Err(error) if rules.is_idempotent && error.code() == ErrorCode::INVALID_OPTIONS => Ok(()),
        done => done,
    }
}

/// Applies a write to `system.views`, which holds the definitions of views.
pub(super) fn apply_view(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operation: &Operation<'_>,
) -> Result<()> {
    let named = match operation.kind {
        OperationKind::Update => operation.o2.unwrap_or(operation.o),
        _ => operation.o,
    };
    let Some(RawValue::String(name)) = named.get("_id") else {
        return Err(Error::bad_value(
            "a view's definition needs its name as _id",
        ));
    };
    let ns = Namespace::parse(name)?;
    if ns.db() != operation.db() {
        return Err(Error::bad_value(format!(
            "a view of the database {} cannot be called {ns}",
            operation.db()
        )));
    }
    if operation.kind == OperationKind::Delete {
        return db.remove_view(op, &ns);
    }
    let view = ViewDefinition::from_doc(operation.o)?;
    if rules.is_checked {
        db.check_view(&view)?;
    }
    if db.catalog().collection(&ns).is_some() {
        move_aside(db, op, rules, &ns)?;
    }
    db.put_view(op, view)
}

/// A copy of the document without some fields.
fn without(doc: RawDoc<'_>, fields: &[&str]) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in doc {
        if !fields.contains(&element.key()) {
            out.append_raw_element(element);
        }
    }
    out.finish()
}
