//! `$out` and `$merge`: write the results of a pipeline to a collection.
//!
//! ```text
//!   $out     results ─> tmp.agg_out.<uuid> with the target's indexes ─> renamed over the target
//!            with `timeseries`: time-series collections, both new and old
//!   $merge   results ─> one update or insert each, found by a unique index
//! ```
//!
//! The pipeline reads a snapshot, so it never reads its own writes.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuilder, DocBuf, DocBuilder, ObjectId, RawDoc, RawValue, doc};
use sheaf_query::canonical::FindSpec;
use sheaf_query::pipeline::PipelineSink;
use sheaf_query::pipeline::environment::ForeignName;
use sheaf_query::pipeline::stages::merge::{Merge, WhenMatched, WhenNotMatched};
use sheaf_query::timeseries::TimeseriesOptions;

use super::AggregateContext;
use crate::catalog::Namespace;
use crate::catalog::kind::NamespaceKind;
use crate::catalog::options::CollectionOptions;
use crate::catalog::views::not_on_view;
use crate::collection::Collection;
use crate::exec::Doc;
use crate::modify::{ReturnDocument, UpdateReport, UpdateStatement, update};
use crate::op_context::OpContext;
use crate::result_source::ResultSource;
use crate::statement::StatementContext;
use crate::system_names::{TEMPORARY_PREFIX, is_internal_database};

/// Maximum number of results written together.
const BATCH_DOCUMENTS_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Writes all results.
/// Errors: those of the pipeline and of the writes; a target that is a view or a system collection;
/// `OperationNotSupportedInTransaction`.
pub fn run(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    sink: &PipelineSink,
) -> Result<()> {
    if op.transaction().is_some() {
        return Err(Error::new(
            ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            format!("{} cannot be used in a transaction", sink.name()),
        ));
    }
    match sink {
        PipelineSink::Out(out) => {
            let named = writable(cx, &out.to, sink.name())?;
            // A time-series collection stays one, with the options that it has.
            let existing = cx.db().catalog().timeseries(&named);
            let existing = existing.as_ref().map(|existing| &*existing.options);
            let timeseries = out.timeseries.as_ref().or(existing);
            let target = match timeseries {
                None => target(cx, &out.to, sink.name())?,
                Some(_) => named,
            };
            check_not_capped(cx, &target)?;
            replace(cx, op, source, &target, timeseries)
        }
        PipelineSink::Merge(merge) => {
            let target = target(cx, &merge.into, sink.name())?;
            merge_all(cx, op, source, merge, &target)
        }
    }
}

/// The namespace, if pipelines may write to it.
/// Errors: 17385, 31321 for the server's own collections and databases.
fn writable(cx: &AggregateContext, name: &ForeignName, stage: &str) -> Result<Namespace> {
    let ns = Namespace::new(
        name.db.as_deref().unwrap_or(cx.database()),
        &name.collection,
    )?;
    if ns.is_system() {
        return Err(Error::new(
            ErrorCode(17385),
            format!("Can't {stage} to special collection: {ns}"),
        ));
    }
    if is_internal_database(ns.db()) {
        return Err(Error::new(
            ErrorCode(31321),
            format!("Can't {stage} to internal database: {}", ns.db()),
        ));
    }
    Ok(ns)
}

/// Errors: those of [`writable`], and for a view or a time-series collection.
fn target(cx: &AggregateContext, name: &ForeignName, stage: &str) -> Result<Namespace> {
    let ns = writable(cx, name, stage)?;
    match cx.db().catalog().kind(&ns) {
        NamespaceKind::Missing | NamespaceKind::Collection(_) => Ok(ns),
        NamespaceKind::View(_) => Err(not_on_view(&ns)),
        NamespaceKind::TimeSeries(..) => Err(Error::new(
            ErrorCode::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("{stage} cannot write to a time-series collection: {ns}"),
        )),
    }
}

/// Errors: 17152 if the collection that `$out` replaces is capped.
fn check_not_capped(cx: &AggregateContext, target: &Namespace) -> Result<()> {
    let catalog = cx.db().catalog();
    match catalog.collection(target) {
        Some(there) if there.options().capped().is_some() => Err(Error::new(
            ErrorCode(17152),
            format!("namespace '{target}' is capped so it can't be used for $out"),
        )),
        _ => Ok(()),
    }
}

/// Results collected for one write.
#[derive(Default)]
struct Batch {
    docs: Vec<Doc>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.docs.len() >= BATCH_DOCUMENTS_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    fn write(
        &mut self,
        cx: &AggregateContext,
        op: &StatementContext,
        ns: &Namespace,
    ) -> Result<()> {
        if self.docs.is_empty() {
            return Ok(());
        }
        let docs: Vec<RawDoc<'_>> = self.docs.iter().map(Doc::as_raw).collect();
        let mut result = cx.db().insert(op, ns, &docs, true)?;
        if let Some(refused) = result.errors.pop() {
            return Err(refused.error);
        }
        self.docs.clear();
        self.bytes = 0;
        Ok(())
    }
}

fn replace(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    target: &Namespace,
    timeseries: Option<&TimeseriesOptions>,
) -> Result<()> {
    let name = format!("{TEMPORARY_PREFIX}{}", ObjectId::new().to_hex());
    let temporary = Namespace::new(target.db(), &name)?;
    let made = match timeseries {
        None => make(cx, op, &temporary, target),
        Some(options) => make_timeseries(cx, op, &temporary, target, options),
    };
    let filled = made
        .and_then(|()| fill(cx, op, source, &temporary))
        .and_then(|()| match timeseries {
            None => {
                let there = cx.db().catalog().collection(target).is_some();
                cx.db().rename_collection(op, &temporary, target, there)
            }
            Some(_) => cx.db().replace_timeseries(op, &temporary, target),
        });
    if filled.is_err() {
        // A failed operation must not leave its temporary collection.
        let _ = cx.db().drop_collection(&OpContext::new(), &temporary);
    }
    filled
}

/// Creates the temporary collection, with the options and indexes of the one it replaces.
fn make(
    cx: &AggregateContext,
    op: &StatementContext,
    temporary: &Namespace,
    target: &Namespace,
) -> Result<()> {
    let db = cx.db();
    let existing = db.catalog().collection(target).cloned();
    let options = existing.as_ref().map(|c| c.options().clone());
    db.create_collection(op, temporary, options.unwrap_or_default())?;
    match &existing {
        Some(existing) => copy_indexes(cx, op, existing, temporary),
        None => Ok(()),
    }
}

/// Creates the temporary time-series collection.
/// Errors: `InvalidOptions` if the target is not a time-series collection, or has different
/// options.
fn make_timeseries(
    cx: &AggregateContext,
    op: &StatementContext,
    temporary: &Namespace,
    target: &Namespace,
    options: &TimeseriesOptions,
) -> Result<()> {
    let db = cx.db();
    let catalog = db.catalog();
    let invalid = |why: &str| {
        Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!("{target} {why}"),
        ))
    };
    let existing = match catalog.kind(target) {
        NamespaceKind::TimeSeries(existing, _) => existing,
        NamespaceKind::View(_) => return Err(not_on_view(target)),
        NamespaceKind::Collection(_) => {
            return invalid(
                "is not a time-series collection; leave 'timeseries' of $out out, or \
                 drop the collection",
            );
        }
        NamespaceKind::Missing => {
            let fields = doc! {"timeseries": &options.to_doc()};
            let options = CollectionOptions::parse(fields.as_raw())?;
            return db.create_collection(op, temporary, options).map(|_| ());
        }
    };
    if *existing.options != *options {
        return invalid(
            "has different time-series options; change 'timeseries' of $out to match \
             them",
        );
    }
    let buckets = &existing.buckets;
    db.create_collection(op, temporary, buckets.options().clone())?;
    copy_indexes(cx, op, buckets, &temporary.buckets()?)
}

fn copy_indexes(
    cx: &AggregateContext,
    op: &StatementContext,
    from: &Collection,
    to: &Namespace,
) -> Result<()> {
    let others = from.index_list().iter();
    let others = others.filter(|index| !index.spec().is_id_index());
    let specs: Vec<_> = others.map(|index| index.spec().clone()).collect();
    match specs.is_empty() {
        true => Ok(()),
        false => cx.db().create_indexes(op, to, &specs).map(|_| ()),
    }
}

fn fill(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    temporary: &Namespace,
) -> Result<()> {
    let mut batch = Batch::default();
    while let Some(doc) = source.next(op)? {
        batch.bytes += doc.len();
        batch.docs.push(doc);
        if batch.is_full() {
            batch.write(cx, op, temporary)?;
        }
    }
    batch.write(cx, op, temporary)
}

fn merge_all(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    merge: &Merge,
    target: &Namespace,
) -> Result<()> {
    let on: Vec<&str> = match &merge.on {
        None => vec!["_id"],
        Some(on) => on.iter().map(|path| &**path).collect(),
    };
    let catalog = cx.db().catalog();
    check_unique(catalog.collection(target).map(|c| &**c), &on)?;
    let mut merger = Merger {
        cx,
        op,
        merge,
        target,
        on,
        pending: Batch::default(),
    };
    while let Some(doc) = source.next(op)? {
        op.check_interrupt()?;
        merger.write(doc)?;
    }
    merger.pending.write(cx, op, target)
}

/// Errors: 51183 if there is no unique index on exactly these fields.
fn check_unique(collection: Option<&Collection>, on: &[&str]) -> Result<()> {
    let unique = match collection {
        None => on == ["_id"],
        Some(collection) => collection.indexes().iter().enumerate().any(|(at, index)| {
            (at == 0 || index.unique)
                && index.partial_filter.is_none()
                && index.fields.len() == on.len()
                && index.fields.iter().all(|f| on.contains(&f.path.dotted()))
        }),
    };
    if unique {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode(51183),
        format!(
            "Cannot find index to verify that join fields will be unique: $merge needs a unique index that is not partial on {{{}}}",
            on.join(", ")
        ),
    ))
}

struct Merger<'a> {
    cx: &'a AggregateContext,
    op: &'a StatementContext,
    merge: &'a Merge,
    target: &'a Namespace,
    on: Vec<&'a str>,
    /// Results inserted unconditionally.
    pending: Batch,
}

impl Merger<'_> {
    fn write(&mut self, doc: Doc) -> Result<()> {
        let merge = self.merge;
        // A result without `_id` is either inserted, or updates a document that has one.
        let doc = match (doc.as_raw().get("_id"), self.on.contains(&"_id")) {
            (None, true) => with_new_id(doc.as_raw()),
            _ => doc,
        };
        let query = self.query(doc.as_raw())?;
        match &merge.when_matched {
            WhenMatched::Fail => {
                self.pending.bytes += doc.len();
                self.pending.docs.push(doc);
                if self.pending.is_full() {
                    self.pending.write(self.cx, self.op, self.target)?;
                }
                Ok(())
            }
            WhenMatched::Replace => {
                let update = RawValue::Document(doc.as_raw());
                self.update(&query, update, None, doc.as_raw())
            }
            WhenMatched::KeepExisting => self.update_or_insert(
                &query,
                RawValue::Array(ArrayBuilder::new().finish().as_raw()),
                None,
                doc.as_raw(),
            ),
            WhenMatched::Merge => {
                let stages = merge_stages();
                let vars = merge.variables(doc.as_raw())?;
                self.update(&query, stages.as_raw(), Some(vars.as_raw()), doc.as_raw())
            }
            WhenMatched::Pipeline(stages) => {
                let vars = merge.variables(doc.as_raw())?;
                let stages = RawValue::Array(stages.as_raw());
                self.update(&query, stages, Some(vars.as_raw()), doc.as_raw())
            }
        }
    }

    /// The filter for the document with the same values in the `on` fields.
    fn query(&self, doc: RawDoc<'_>) -> Result<DocBuf> {
        let mut out = DocBuilder::new();
        for path in &self.on {
            let mut value = Some(RawValue::Document(doc));
            for part in path.split('.') {
                value = match value {
                    Some(RawValue::Document(doc)) => doc.get(part),
                    Some(array @ RawValue::Array(_)) => Some(array),
                    _ => None,
                };
            }
            match value {
                None | Some(RawValue::Null | RawValue::Undefined) => {
                    return Err(Error::new(
                        ErrorCode(51132),
                        format!(
                            "$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"
                        ),
                    ));
                }
                Some(RawValue::Array(_)) => {
                    return Err(Error::new(
                        ErrorCode(51185),
                        format!("$merge write error: 'on' field '{path}' cannot be an array"),
                    ));
                }
                Some(value) => {
                    out.begin_document(path);
                    out.append("$eq", value);
                    out.end();
                }
            }
        }
        Ok(out.finish())
    }

    /// Updates the matching document, or acts on `whenNotMatched` if there is none.
    fn update(
        &self,
        query: &DocBuf,
        update: RawValue<'_>,
        vars: Option<RawDoc<'_>>,
        new: RawDoc<'_>,
    ) -> Result<()> {
        self.update_or_insert(query, update, vars, new)
            .map_err(|error| match error.code() {
                ErrorCode::IMMUTABLE_FIELD => error.with_context(
                    "$merge failed to update the matching document, did you attempt to modify the _id?",
                ),
                _ => error,
            })
    }

    fn update_or_insert(
        &self,
        query: &DocBuf,
        update_spec: RawValue<'_>,
        vars: Option<RawDoc<'_>>,
        new: RawDoc<'_>,
    ) -> Result<()> {
        let statement = UpdateStatement {
            spec: FindSpec {
                filter: Some(query.as_raw()),
                let_vars: vars,
                ..Default::default()
            },
            update: update_spec,
            constants: None,
            upsert_supplied: None,
            array_filters: None,
            upsert: false,
            multi: false,
            return_document: ReturnDocument::None,
            projection: None,
        };
        let db: &Arc<_> = self.cx.db();
        let mut refused = None;
        // Twice: another writer may insert the document between our lookup and our insert.
        for _ in 0..2 {
            let mut report = UpdateReport::default();
            let options = self.cx.options();
            update(db, self.op, self.target, &statement, options, &mut report)?;
            if report.result.matched > 0 {
                return Ok(());
            }
            match self.merge.when_not_matched {
                WhenNotMatched::Discard => return Ok(()),
                WhenNotMatched::Fail => {
                    return Err(Error::new(
                        ErrorCode::MERGE_STAGE_NO_MATCHING_DOCUMENT,
                        "$merge could not find a matching document in the target collection for at least one document in the source collection",
                    ));
                }
                WhenNotMatched::Insert => {}
            }
            match db.insert_one(self.op, self.target, new) {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == ErrorCode::DUPLICATE_KEY => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn with_new_id(doc: RawDoc<'_>) -> Doc {
    let mut out = DocBuilder::new();
    out.append("_id", ObjectId::new());
    out.extend(doc);
    Doc::Owned(out.finish_into())
}

/// `[{$replaceWith: {$mergeObjects: ["$$ROOT", "$$new"]}}]`.
fn merge_stages() -> sheaf_bson::Value {
    let stage = doc! {"$replaceWith": {"$mergeObjects": ["$$ROOT", "$$new"]}};
    let mut stages = ArrayBuilder::new();
    stages.push_document_bytes(stage.as_bytes());
    sheaf_bson::Value::Array(stages.finish())
}
