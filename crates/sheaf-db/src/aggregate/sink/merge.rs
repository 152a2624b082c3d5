//! `$merge`: each result updates the document that has the same `on` fields, or is inserted.
//!
//! ```text
//!   replace        replacement, or insert            fail           insert; a duplicate key fails
//!   merge          {$set: result}, upsert            pipeline       update, or insert of the result
//!   keepExisting   {$setOnInsert: result}, upsert
//! ```
//!
//! As in MongoDB, `merge` and `keepExisting` are updates by operators: new fields are ordered by
//! name, and names of fields have the restrictions of update operators.
//!
//! Results are written in unordered batches: if a write fails, the remaining results of its batch
//! are still written, and none after that.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{Collator, DocBuf, DocBuilder, ObjectId, RawDoc, RawValue};
use sheaf_query::canonical::FindSpec;
use sheaf_query::pipeline::stages::merge::{Merge, WhenMatched, WhenNotMatched};

use super::{Batch, writable};
use crate::aggregate::AggregateContext;
use crate::catalog::Namespace;
use crate::catalog::kind::NamespaceKind;
use crate::catalog::views::not_on_view;
use crate::collection::Collection;
use crate::exec::Doc;
use crate::modify::{ReturnDocument, UpdateReport, UpdateStatement, update};
use crate::result_source::ResultSource;
use crate::statement::StatementContext;

/// Writes all results.
pub(super) fn run(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    merge: &Merge,
) -> Result<()> {
    let target = target(cx, merge)?;
    let on: Vec<&str> = match &merge.on {
        None => vec!["_id"],
        Some(on) => on.iter().map(|path| &**path).collect(),
    };
    let catalog = cx.db().catalog();
    let existing = catalog.collection(&target).map(|c| &**c);
    check_unique(existing, &on, cx.parse().collator().map(|c| &**c))?;
    // The writes of a $merge are statements of one command.
    let shared = op.clone().with_shared_constants();
    let merger = Merger {
        cx,
        op: &shared,
        merge,
        target: &target,
        on,
    };
    let mut batch = Batch::default();
    while let Some(doc) = source.next(op)? {
        op.check_interrupt()?;
        batch.bytes += doc.len();
        batch.docs.push(merger.identified(doc));
        if batch.is_full() {
            merger.write(&mut batch)?;
        }
    }
    merger.write(&mut batch)
}

/// The target. Errors: those of [`writable`], and for a view or a time-series collection.
fn target(cx: &AggregateContext, merge: &Merge) -> Result<Namespace> {
    let ns = writable(cx, &merge.into, "$merge", [31319, 31320])?;
    match cx.db().catalog().kind(&ns) {
        NamespaceKind::Missing | NamespaceKind::Collection(_) => Ok(ns),
        NamespaceKind::View(_) => Err(not_on_view(&ns)),
        NamespaceKind::TimeSeries(..) => Err(Error::new(
            ErrorCode::COMMAND_NOT_SUPPORTED_ON_VIEW,
            format!("$merge cannot write to a time-series collection: {ns}"),
        )),
    }
}

/// Errors: 51183 if there is no unique index on exactly these fields with this collation.
fn check_unique(
    collection: Option<&Collection>,
    on: &[&str],
    collator: Option<&Collator>,
) -> Result<()> {
    let unique = match collection {
        None => on == ["_id"],
        Some(collection) => collection.indexes().iter().enumerate().any(|(at, index)| {
            (at == 0 || index.unique)
                && index.partial_filter.is_none()
                && index.collator.as_deref() == collator
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
            "Cannot find index to verify that join fields will be unique: $merge needs a unique index that is not partial on {{{}}}, with the collation of the aggregation",
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
}

/// What updates the document that a result matches.
struct Change<'a> {
    update: RawValue<'a>,
    variables: Option<RawDoc<'a>>,
    /// The update itself inserts if there is no such document.
    upsert: bool,
}

impl Merger<'_> {
    /// The result, with an `_id` if results are identified by it.
    fn identified(&self, doc: Doc) -> Doc {
        match (doc.as_raw().get("_id"), self.on.contains(&"_id")) {
            (None, true) => with_new_id(doc.as_raw()),
            _ => doc,
        }
    }

    /// Writes a batch. Errors: the first of its writes, after all others.
    fn write(&self, batch: &mut Batch) -> Result<()> {
        let mut failed = None;
        for doc in std::mem::take(batch).docs {
            self.op.check_interrupt()?;
            match self.write_one(doc.as_raw()) {
                Ok(()) => {}
                Err(error) if is_of_document(&error) => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn write_one(&self, doc: RawDoc<'_>) -> Result<()> {
        let merge = self.merge;
        // Checks the `on` fields of the result, which every mode requires.
        let query = self.query(doc)?;
        let inserts = merge.when_not_matched == WhenNotMatched::Insert;
        let change = |update, variables, upsert| Change {
            update,
            variables,
            upsert,
        };
        match &merge.when_matched {
            WhenMatched::Fail => self.insert(doc).map_err(|error| match error.code() {
                ErrorCode::DUPLICATE_KEY => error.with_context(
                    "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields",
                ),
                _ => error,
            }),
            WhenMatched::Replace => {
                self.update(&query, &change(RawValue::Document(doc), None, false), doc)
            }
            WhenMatched::KeepExisting => {
                let update = by_operator("$setOnInsert", doc);
                let update = RawValue::Document(update.as_raw());
                self.update(&query, &change(update, None, inserts), doc)
            }
            WhenMatched::Merge => {
                let update = by_operator("$set", doc);
                let update = RawValue::Document(update.as_raw());
                self.update(&query, &change(update, None, inserts), doc)
            }
            WhenMatched::Pipeline(stages) => {
                let variables = merge.variables(doc)?;
                let stages = RawValue::Array(stages.as_raw());
                let change = change(stages, Some(variables.as_raw()), false);
                self.update(&query, &change, doc)
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
                    // An array before the last part of the path counts as missing.
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
    fn update(&self, query: &DocBuf, change: &Change<'_>, new: RawDoc<'_>) -> Result<()> {
        let mut refused = None;
        // Twice: another writer may insert the document between the lookup and the insert.
        for _ in 0..2 {
            let error = match self.update_once(query, change, new) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error.code() {
                ErrorCode::DUPLICATE_KEY => refused = Some(error),
                ErrorCode::IMMUTABLE_FIELD => {
                    return Err(error.with_context(
                        "$merge failed to update the matching document, did you attempt to modify the _id?",
                    ));
                }
                _ => return Err(error),
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn update_once(&self, query: &DocBuf, change: &Change<'_>, new: RawDoc<'_>) -> Result<()> {
        let statement = UpdateStatement {
            spec: FindSpec {
                filter: Some(query.as_raw()),
                let_vars: change.variables,
                ..Default::default()
            },
            update: change.update,
            constants: None,
            upsert_supplied: None,
            array_filters: None,
            upsert: change.upsert,
            multi: false,
            return_document: ReturnDocument::None,
            projection: None,
        };
        let db: &Arc<_> = self.cx.db();
        let mut report = UpdateReport::default();
        let options = self.cx.options();
        update(db, self.op, self.target, &statement, options, &mut report)?;
        if report.result.matched > 0 || report.upserted.is_some() {
            return Ok(());
        }
        match self.merge.when_not_matched {
            WhenNotMatched::Discard => Ok(()),
            WhenNotMatched::Fail => Err(Error::new(
                ErrorCode::MERGE_STAGE_NO_MATCHING_DOCUMENT,
                "$merge could not find a matching document in the target collection for at least one document in the source collection",
            )),
            WhenNotMatched::Insert => self.insert(new),
        }
    }

    fn insert(&self, new: RawDoc<'_>) -> Result<()> {
        let db: &Arc<_> = self.cx.db();
        db.insert_one(self.op, self.target, new).map(|_| ())
    }
}

/// Whether an error concerns one result, so that the others of its batch are still written.
fn is_of_document(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::DUPLICATE_KEY
            | ErrorCode::DOCUMENT_VALIDATION_FAILURE
            | ErrorCode::IMMUTABLE_FIELD
            | ErrorCode::MERGE_STAGE_NO_MATCHING_DOCUMENT
    )
}

/// `{operator: doc}`.
fn by_operator(operator: &str, doc: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(operator, doc);
    out.finish()
}

fn with_new_id(doc: RawDoc<'_>) -> Doc {
    let mut out = DocBuilder::new();
    out.append("_id", ObjectId::new());
    out.extend(doc);
    Doc::Owned(out.finish_into())
}
