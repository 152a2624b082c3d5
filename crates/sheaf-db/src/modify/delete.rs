//! Executes a delete statement.

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, RawDoc, RecordId};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::projection::Projection;

use super::{
    Matched, Matches, ReturnDocument, parse_context, parse_projection, parse_query, project,
};
use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::exec::WorkCounts;
use crate::planning::{PlanDigest, QueryOptions};
use crate::statement::StatementContext;
use crate::write::delete::{DeleteResult, DocumentDelete};

/// A delete statement.
#[derive(Clone)]
pub struct DeleteStatement<'a> {
    /// Filter, sort, hint and `let`.
    pub spec: FindSpec<'a>,
    /// All matches, not only the first.
    pub multi: bool,
    /// [`ReturnDocument::Before`] for findAndModify.
    pub return_document: ReturnDocument,
    /// `fields` of findAndModify.
    pub projection: Option<RawDoc<'a>>,
}

/// The result of a statement, valid after an error too.
#[derive(Debug, Default)]
pub struct DeleteReport {
    /// Number of deleted documents and keys.
    pub result: DeleteResult,
    /// Work done to find the documents.
    pub counts: WorkCounts,
    /// The plan that found the documents.
    pub plan: PlanDigest,
    /// The document that findAndModify returns.
    pub returned: Option<DocBuf>,
}

/// Executes one statement. `report` is filled in even if an error is returned.
pub fn delete(
    db: &Arc<Db>,
    op: &StatementContext,
    ns: &Namespace,
    statement: &DeleteStatement<'_>,
    options: &QueryOptions,
    report: &mut DeleteReport,
) -> Result<(), Error> {
    if let Some(timeseries) = db.catalog().timeseries(ns) {
        return crate::timeseries::delete(db, op, &timeseries, statement, options, report);
    }
    while !delete_as_is(db, op, ns, statement, options, report)? {}
    Ok(())
}

/// Executes the statement on the collection as it is now. Returns false, without having done
/// anything, if the collection was recreated concurrently with another collation.
fn delete_as_is(
    db: &Arc<Db>,
    op: &StatementContext,
    ns: &Namespace,
    statement: &DeleteStatement<'_>,
    options: &QueryOptions,
    report: &mut DeleteReport,
) -> Result<bool, Error> {
    let first_view = db.view(op, ns)?;
    let constants = op.constants(first_view.cluster_time);
    let context = parse_context(&statement.spec, constants, &first_view)?;
    let projection = parse_projection(statement.projection, &context)?;
    let query = parse_query(&statement.spec, statement.multi, &context)?;
    let mut taker = Taker {
        query: &query,
        return_document: statement.return_document,
        projection: projection.as_ref(),
        returned: None,
    };
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
        let Some(collection) = &view.collection else {
            report.plan = PlanDigest::nothing();
            return Ok(true);
        };
        let mut matches = Matches::start(&view, collection, op, &query, options)?;
        let done = db.delete_records(
            op,
            collection,
            &mut matches,
            &mut taker,
            statement.multi,
            &mut report.result,
        );
        let counts = matches.counts();
        report.counts.keys_examined += counts.keys_examined;
        report.counts.docs_examined += counts.docs_examined;
        report.plan = matches.plan("EXPRESS_DELETE");
        done?;
        report.returned = taker.returned.take();
        // Another writer took the matching document: there may be another match.
        if statement.multi || report.result.deleted > 0 || !matches.found {
            return Ok(true);
        }
    }
}

struct Taker<'s> {
    query: &'s CanonicalQuery,
    return_document: ReturnDocument,
    projection: Option<&'s Projection>,
    returned: Option<DocBuf>,
}

impl DocumentDelete for Taker<'_> {
    fn returned(&self) -> Option<&DocBuf> {
        self.returned.as_ref()
    }

    fn still_matches(&mut self, doc: RawDoc<'_>) -> Result<bool, Error> {
        self.query.filter.matches(doc)
    }

    fn prepare_returned(&mut self, id: &RecordId, doc: RawDoc<'_>) -> Result<(), Error> {
        if self.return_document != ReturnDocument::None {
            let matched = Matched {
                filter: &self.query.filter,
                doc,
            };
            self.returned = Some(project(self.projection, doc, Some(id), Some(matched))?);
        }
        Ok(())
    }
}
