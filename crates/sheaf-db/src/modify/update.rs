//! Executes an update statement.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DocBuf, DocBuilder, ObjectId, RawArray, RawDoc, RawValue, Value};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::MatchDetails;
use sheaf_query::projection::Projection;
use sheaf_query::timeseries::TimeseriesOptions;
use sheaf_query::timeseries::restore::restored;
use sheaf_query::update::{ApplyContext, Outcome, UpdateDriver, UpdateKind};

use super::{
    Matched, Matches, ReturnDocument, parse_context, parse_projection, parse_query, project,
};
use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::exec::WorkCounts;
use crate::planning::{PlanDigest, QueryOptions};
use crate::statement::StatementContext;
use crate::write::observer::set_upserting;
use crate::write::update::{Applied, DocumentUpdate, ModifiedBy, UpdateResult, UpdatedRecord};

/// Number of retries of an upsert whose document another writer inserted first.
const UPSERT_ATTEMPTS: u32 = 8;

/// An update statement.
#[derive(Clone)]
pub struct UpdateStatement<'a> {
    /// Filter, sort, hint and `let`.
    pub spec: FindSpec<'a>,
    /// A replacement, operators or a pipeline.
    pub update: RawValue<'a>,
    /// Variables of a pipeline, as values rather than expressions.
    pub constants: Option<RawDoc<'a>>,
    /// Filters for `$[identifier]`.
    pub array_filters: Option<RawArray<'a>>,
    /// Inserts a document if nothing matches.
    pub upsert: bool,
    /// The document that an upsert inserts, instead of one built from filter and update.
    pub upsert_supplied: Option<RawDoc<'a>>,
    /// All matches, not only the first.
    pub multi: bool,
    /// The document that findAndModify returns.
    pub return_document: ReturnDocument,
    /// `fields` of findAndModify.
    pub projection: Option<RawDoc<'a>>,
}

/// The result of a statement, valid after an error too.
#[derive(Debug, Default)]
pub struct UpdateReport {
    /// Numbers of matched and modified documents, and of keys written.
    pub result: UpdateResult,
    /// `_id` of the document that an upsert inserted.
    pub upserted: Option<Value>,
    /// Work done to find the documents.
    pub counts: WorkCounts,
    /// The plan that found the documents.
    pub plan: PlanDigest,
    /// The document that findAndModify returns.
    pub returned: Option<DocBuf>,
}

/// Executes one statement. `report` is filled in even if an error is returned.
pub fn update(
    db: &Arc<Db>,
    op: &StatementContext,
    ns: &Namespace,
    statement: &UpdateStatement<'_>,
    options: &QueryOptions,
    report: &mut UpdateReport,
) -> Result<(), Error> {
    if let Some(timeseries) = db.catalog().timeseries(ns) {
        if statement.return_document != ReturnDocument::None {
            return Err(crate::timeseries::refuse_find_and_update(ns));
        }
        return crate::timeseries::update(db, op, &timeseries, statement, options, report);
    }
    let buckets = db.buckets_written(ns)?;
    let buckets = buckets.as_deref();
    while !update_as_is(db, op, ns, statement, options, report, buckets)? {}
    Ok(())
}

/// Executes the statement on the collection as it is now. Returns false, without having done
/// anything, if the collection was recreated concurrently with another collation.
fn update_as_is(
    db: &Arc<Db>,
    op: &StatementContext,
    ns: &Namespace,
    statement: &UpdateStatement<'_>,
    options: &QueryOptions,
    report: &mut UpdateReport,
    buckets: Option<&TimeseriesOptions>,
) -> Result<bool, Error> {
    let first_view = db.view(op, ns)?;
    let constants = op.constants(first_view.cluster_time);
    let context = parse_context(&statement.spec, constants, &first_view)?;
    let mut variables = context.variables.clone();
    for constant in statement
        .constants
        .iter()
        .flat_map(|constants| constants.iter())
    {
        variables.declare(constant.key())?;
        variables.bind(constant.key(), constant.value().to_value());
    }
    let driver = UpdateDriver::parse(statement.update, statement.array_filters, &variables)?;
    if statement.multi && driver.kind() == UpdateKind::Replacement {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "multi update is not supported for replacement-style update",
        ));
    }
    let projection = parse_projection(statement.projection, &context)?;
    let query = parse_query(&statement.spec, statement.multi, &context)?;
    let mut applier = Applier {
        query: &query,
        driver: &driver,
        context: ApplyContext {
            now: constants.0,
            timestamp: db.next_timestamp(),
            keeps_empty_timestamps: op.keeps_empty_timestamps(),
            ..Default::default()
        },
        return_document: statement.return_document,
        projection: projection.as_ref(),
        returned: None,
        buckets,
    };
    let mut upsert_attempts = 0;
    let mut first_view = Some(first_view);
    loop {
        op.check_interrupt_now()?;
        let view = match first_view.take() {
            Some(view) => view,
            None => db.view(op, ns)?,
        };
        if view.collator(&statement.spec.collation) != query.collator {
            return Ok(false);
        }
        let mut lost_its_match = false;
        if let Some(collection) = &view.collection {
            let mut matches = Matches::start(&view, collection, op, &query, options)?;
            let done = db.update_records(
                op,
                collection,
                &mut matches,
                &mut applier,
                statement.multi,
                &mut report.result,
            );
            let counts = matches.counts();
            report.counts.keys_examined += counts.keys_examined;
            report.counts.docs_examined += counts.docs_examined;
            report.plan = matches.plan("EXPRESS_UPDATE");
            done?;
            lost_its_match = matches.found && report.result.matched == 0;
        } else {
            report.plan = PlanDigest::nothing();
        }
        report.returned = applier.returned.take();
        if report.result.matched > 0 {
            return Ok(true);
        }
        if lost_its_match && !statement.multi {
            continue;
        }
        if !statement.upsert {
            return Ok(true);
        }
        let doc = match statement.upsert_supplied {
            Some(supplied) => with_id(supplied),
            None => driver.upsert_document(&query.filter, &applier.context, ObjectId::new)?,
        };
        let upserted = doc.get("_id").map(RawValue::to_value);
        let returned = match statement.return_document {
            ReturnDocument::After => Some(project(projection.as_ref(), doc.as_raw(), None, None)?),
            _ => None,
        };
        set_upserting(op, upserted.as_ref().map(|id| (id, returned.as_ref())));
        let inserted = db.insert_one(op, ns, doc.as_raw());
        set_upserting(op, None);
        match inserted {
            Ok(stats) => {
                report.result.stats.add(&stats);
                report.upserted = upserted;
                if returned.is_some() {
                    report.returned = returned;
                }
                return Ok(true);
            }
            // Another writer inserted a matching document: retry, to find it.
            Err(error)
                if error.code() == ErrorCode::DUPLICATE_KEY
                    && upsert_attempts < UPSERT_ATTEMPTS =>
            {
                upsert_attempts += 1;
                if upsert_attempts > 1 && !query.filter.matches(doc.as_raw())? {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// A changed bucket: its measurements decide what its `control` says, as for an inserted one.
fn bucket(old: RawDoc<'_>, new: RawDoc<'_>, options: &TimeseriesOptions) -> Result<Applied, Error> {
    let bucket = restored(new, options)?.to_doc();
    if bucket.as_bytes() == old.as_bytes() {
        return Ok(Applied::Unchanged);
    }
    Ok(Applied::Changed {
        document: bucket.into_vec().into(),
        modified: ModifiedBy::Everything,
    })
}

/// Prepends an `_id` if the document has none.
fn with_id(doc: RawDoc<'_>) -> DocBuf {
    if doc.get("_id").is_some() {
        return doc.to_buf();
    }
    let mut out = DocBuilder::new();
    out.append("_id", ObjectId::new());
    out.extend(doc);
    out.finish()
}

/// Applies the statement to documents.
struct Applier<'s> {
    query: &'s CanonicalQuery,
    driver: &'s UpdateDriver<'s>,
    context: ApplyContext,
    return_document: ReturnDocument,
    projection: Option<&'s Projection>,
    returned: Option<DocBuf>,
    /// Set if the documents are buckets, which a tool writes directly.
    buckets: Option<&'s TimeseriesOptions>,
}

impl DocumentUpdate for Applier<'_> {
    fn returned(&self) -> Option<&DocBuf> {
        self.returned.as_ref()
    }

    fn apply(&mut self, doc: RawDoc<'_>, recheck: bool) -> Result<Applied, Error> {
        if self.driver.needs_matched_array_index() {
            let mut details = MatchDetails::default();
            if !self.query.filter.matches_with_details(doc, &mut details)? {
                return Ok(Applied::NoMatch);
            }
            self.context.matched_array_index = details.array_index.map(|at| at as usize);
        } else if recheck && !self.query.filter.matches(doc)? {
            return Ok(Applied::NoMatch);
        }
        Ok(
            match (self.driver.apply(doc, &self.context)?, self.buckets) {
                (Outcome::NoChange, _) => Applied::Unchanged,
                (Outcome::Changed { doc: new, .. }, Some(options)) => {
                    bucket(doc, new.as_raw(), options)?
                }
                (Outcome::Changed { doc, modified }, None) => Applied::Changed {
                    document: doc.into_vec().into(),
                    modified: match self.driver.kind() {
                        UpdateKind::Replacement => ModifiedBy::Everything,
                        UpdateKind::Operators => ModifiedBy::Operators(modified),
                        UpdateKind::Pipeline => ModifiedBy::Pipeline(modified),
                    },
                },
            },
        )
    }

    fn prepare_returned(&mut self, record: &UpdatedRecord<'_>) -> Result<(), Error> {
        let doc = match self.return_document {
            ReturnDocument::None => return Ok(()),
            ReturnDocument::Before => record.old,
            ReturnDocument::After => record.new,
        };
        let matched = Matched {
            filter: &self.query.filter,
            doc: record.old,
        };
        self.returned = Some(project(
            self.projection,
            doc,
            Some(record.id),
            Some(matched),
        )?);
        Ok(())
    }
}
