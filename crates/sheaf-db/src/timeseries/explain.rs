//! explain of deletes and updates on time-series collections: `TS_MODIFY` over the plan that finds
//! buckets.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc, RecordId, Result, doc};
use sheaf_query::timeseries::TimeseriesOptions;
use sheaf_query::timeseries::reader::count_of;

use super::modify::{BucketQuery, Deleter};
use crate::explain::query::{Explained, TopStage, with_top};
use crate::modify::explain::Target;
use crate::modify::{DeleteStatement, UpdateStatement};
use crate::timeseries::Timeseries;

/// explain of a delete statement. `target` names the bucket collection.
/// Errors: those of parsing and planning the statement.
pub fn explain_delete(
    target: &Target<'_>,
    series: &Timeseries,
    statement: &DeleteStatement<'_>,
    out: &mut DocBuilder,
) -> Result<()> {
    let constants = (DateTime::now(), target.view.cluster_time);
    let query = BucketQuery::new(target.view, &series.options, &statement.spec, constants)?;
    let mut stage = Modify {
        op: match statement.multi {
            true => "deleteMany",
            false => "deleteOne",
        },
        multi: statement.multi,
        deleter: Some(Deleter::new(&series.options, &query, statement, None)),
        query: &query,
        options: &series.options,
        unpacked: 0,
        measurements: 0,
    };
    explain(target, &query, &mut stage, out)
}

/// explain of an update statement. `target` names the bucket collection.
/// Errors: those of parsing and planning the statement.
pub fn explain_update(
    target: &Target<'_>,
    series: &Timeseries,
    statement: &UpdateStatement<'_>,
    out: &mut DocBuilder,
) -> Result<()> {
    let constants = (DateTime::now(), target.view.cluster_time);
    super::update::check(&series.options, statement)?;
    let query = BucketQuery::new(target.view, &series.options, &statement.spec, constants)?;
    super::update::check_query(&series.options, &query)?;
    let mut stage = Modify {
        op: "updateMany",
        multi: true,
        deleter: None,
        query: &query,
        options: &series.options,
        unpacked: 0,
        measurements: 0,
    };
    explain(target, &query, &mut stage, out)
}

fn explain(
    target: &Target<'_>,
    query: &BucketQuery,
    stage: &mut dyn TopStage,
    out: &mut DocBuilder,
) -> Result<()> {
    let explained = Explained {
        view: target.view,
        op: target.op,
        query: &query.query,
        options: target.options,
        namespace: target.namespace,
        verbosity: target.verbosity,
        is_pipeline: false,
    };
    with_top(&explained, Some(stage), out)
}

struct Modify<'m> {
    op: &'static str,
    multi: bool,
    /// `None` for an update: every measurement of a matching bucket counts.
    deleter: Option<Deleter<'m>>,
    query: &'m BucketQuery,
    options: &'m TimeseriesOptions,
    unpacked: i64,
    measurements: i64,
}

impl TopStage for Modify<'_> {
    fn result(&mut self, doc: Option<RawDoc<'_>>, _: Option<&RecordId>) -> Result<bool> {
        let Some(doc) = doc else {
            return Ok(true);
        };
        self.unpacked += 1;
        let count = match &self.deleter {
            Some(deleter) => deleter.left(doc)?.deleted,
            None => count_of(doc, &self.options.time_field)?,
        };
        self.measurements += count as i64;
        Ok(self.multi || count == 0)
    }

    fn name(&self) -> &'static str {
        "TS_MODIFY"
    }

    fn fields(&self) -> DocBuf {
        let would = match self.deleter {
            Some(_) => "nMeasurementsWouldDelete",
            None => "nMeasurementsWouldUpdate",
        };
        let residual = self.query.rest.as_ref().map(|rest| rest.serialize());
        doc! {
            "opType": self.op,
            "bucketFilter": &self.query.query.filter.serialize(),
            "residualFilter": &residual.unwrap_or_default(),
            "nBucketsUnpacked": self.unpacked,
            would: self.measurements,
        }
    }
}
