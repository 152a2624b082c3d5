//! Deletes measurements bucket by bucket; deletes whole buckets if the filter tests only the
//! series.
//!
//! ```text
//!   {sensor: "a"}                 every bucket of the series, deleted
//!   {sensor: "a", temp: null}     every bucket of the series that may hold a match: rewritten without
//!                                 the matches
//! ```

use std::sync::Arc;

use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, Result};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::{self, MatchExpression};
use sheaf_query::projection::Projection;
use sheaf_query::timeseries::predicate::all_of;
use sheaf_query::timeseries::reader::{Fields, TimeRange, count_of};
use sheaf_query::timeseries::{
    Bucket, BucketPredicate, BucketReader, TimeseriesOptions, Translated,
};

use crate::catalog::ReadView;
use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::index::modified::Modified;
use crate::modify::{
    DeleteReport, DeleteStatement, Matched, Matches, ReturnDocument, parse_context,
    parse_projection, project,
};
use crate::planning::QueryOptions;
use crate::statement::{Constants, StatementContext};
use crate::timeseries::Timeseries;
use crate::timeseries::indexes::hint_on_buckets;
use crate::write::MatchedRecord;
use crate::write::observer::StatementOutcome;
use crate::write::update::BatchWriter;

/// Errors: `InvalidOptions`. findAndModify can delete a measurement but not update one.
pub fn refuse_find_and_update(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::INVALID_OPTIONS,
        format!("Cannot perform a findAndModify update on a time-series collection: {ns}"),
    )
}

/// A statement's filter, as a query on buckets and a residual filter on measurements.
pub(super) struct BucketQuery {
    /// Selects the buckets.
    pub(super) query: Arc<CanonicalQuery>,
    /// The residual filter; `None` if all measurements of those buckets match.
    pub(super) rest: Option<MatchExpression>,
    predicate: BucketPredicate,
}

impl BucketQuery {
    /// Errors: those of parsing the filter.
    pub(super) fn new(
        view: &ReadView,
        options: &TimeseriesOptions,
        spec: &FindSpec<'_>,
        constants: Constants,
    ) -> Result<BucketQuery> {
        let context = parse_context(spec, constants, view)?;
        let filter = spec.filter.unwrap_or(RawDoc::EMPTY);
        let filter = matcher::parse(filter, &context)?.normalize();
        let Translated { buckets, rest } = match filter.is_trivially_true() {
            true => Translated {
                buckets: None,
                rest: Vec::new(),
            },
            false => options.series().translate(&filter),
        };
        let on_buckets = buckets.map(|filter| filter.serialize()).unwrap_or_default();
        let query = FindSpec {
            filter: Some(on_buckets.as_raw()),
            sort: None,
            projection: None,
            hint: spec.hint.clone().map(|hint| hint_on_buckets(hint, options)),
            ..spec.clone()
        };
        let rest = all_of(rest);
        Ok(BucketQuery {
            query: Arc::new(CanonicalQuery::with_context(query, &context)?),
            predicate: match &rest {
                Some(rest) => BucketPredicate::of(rest, options.meta_field.as_deref()),
                None => BucketPredicate::Unknown,
            },
            rest,
        })
    }
}

/// Executes a delete statement on a time-series collection.
pub(crate) fn delete(
    db: &Arc<Db>,
    op: &StatementContext,
    timeseries: &Timeseries,
    statement: &DeleteStatement<'_>,
    options: &QueryOptions,
    report: &mut DeleteReport,
) -> Result<()> {
    if statement.spec.sort.is_some() {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "Cannot perform a findAndModify with a sort on a time-series collection",
        ));
    }
    let view = db.view(op, timeseries.buckets.ns())?;
    let Some(collection) = &view.collection else {
        return Ok(());
    };
    let own = match collection.options().timeseries() {
        Some(own) => own.clone(),
        None => timeseries.options.clone(),
    };
    let constants = op.constants(view.cluster_time);
    let query = BucketQuery::new(&view, &own, &statement.spec, constants)?;
    let context = parse_context(&statement.spec, constants, &view)?;
    let projection = parse_projection(statement.projection, &context)?;
    let mut matches = Matches::start(&view, collection, op, &query.query, options)?;
    let mut deleter = Deleter::new(&own, &query, statement, projection.as_ref());
    let mut writer = BatchWriter::new(db, op, collection);
    let deleted = &mut report.result.deleted;
    let done = writer.write_all(&mut matches, statement.multi, &mut |writer, record| {
        let n = deleter.delete_from(writer, record)?;
        *deleted += n;
        Ok(n > 0)
    });
    report.result.stats.add(&writer.stats);
    let counts = matches.counts();
    report.counts.keys_examined += counts.keys_examined;
    report.counts.docs_examined += counts.docs_examined;
    report.plan = matches.plan("EXPRESS_DELETE");
    report.returned = deleter.returned.take();
    done
}

pub(super) struct Deleter<'d> {
    options: &'d TimeseriesOptions,
    query: &'d BucketQuery,
    only_one: bool,
    returns: bool,
    projection: Option<&'d Projection>,
    returned: Option<DocBuf>,
}

/// A bucket after a delete.
pub(super) struct Left {
    /// Number of measurements deleted.
    pub(super) deleted: u64,
    /// `None` if no measurements remain.
    bucket: Option<Bucket>,
    first: Option<DocBuf>,
}

impl<'d> Deleter<'d> {
    pub(super) fn new(
        options: &'d TimeseriesOptions,
        query: &'d BucketQuery,
        statement: &DeleteStatement<'_>,
        projection: Option<&'d Projection>,
    ) -> Deleter<'d> {
        Deleter {
            options,
            query,
            only_one: !statement.multi,
            returns: statement.return_document != ReturnDocument::None,
            projection,
            returned: None,
        }
    }

    /// Deletes the matches of a bucket. Returns their number.
    fn delete_from(&mut self, writer: &mut BatchWriter<'_>, record: &MatchedRecord) -> Result<u64> {
        // Buckets that certainly hold no match are not locked.
        if self.query.rest.is_some() && self.left(RawDoc::stored(&record.document)?)?.deleted == 0 {
            return Ok(0);
        }
        let (deleted, first) = writer.attempt(|unit, op, slot| {
            unit.lock_record(op, slot, &record.id)?;
            let Some(bytes) = unit.document(slot, &record.id)? else {
                return Ok((0, None));
            };
            let doc = RawDoc::stored(&bytes)?;
            if bytes != record.document && !self.query.query.filter.matches(doc)? {
                return Ok((0, None));
            }
            let left = self.left(doc)?;
            if left.deleted == 0 {
                return Ok((0, None));
            }
            let first = match (&left.first, self.returns) {
                (Some(first), true) => Some(self.project(first.as_raw())?),
                _ => None,
            };
            match &left.bucket {
                None => unit.delete(op, slot, &record.id, doc)?,
                Some(bucket) => {
                    let new = bucket.to_doc().into_vec().into();
                    let may_change = |path: &sheaf_bson::FieldPath| {
                        !matches!(path.part(0), Some("_id" | "meta"))
                    };
                    let modified = Modified::Paths(&may_change);
                    let base = Some(&bytes);
                    unit.update(op, slot, &record.id, doc, base, &new, modified)?;
                }
            }
            let returned = first.as_ref();
            let modified = false;
            unit.record_outcome(op, StatementOutcome::Wrote { modified, returned });
            Ok((left.deleted, first))
        })?;
        if first.is_some() {
            self.returned = first;
        }
        Ok(deleted)
    }

    /// Projects the measurement to return.
    fn project(&self, measurement: RawDoc<'_>) -> Result<DocBuf> {
        let matched = self.query.rest.as_ref().map(|filter| Matched {
            filter,
            doc: measurement,
        });
        project(self.projection, measurement, None, matched)
    }

    /// The bucket without its matches, or without the first of them.
    pub(super) fn left(&self, doc: RawDoc<'_>) -> Result<Left> {
        if self.query.rest.is_none() && !self.only_one {
            return Ok(Left {
                deleted: count_of(doc, &self.options.time_field)?,
                bucket: None,
                first: None,
            });
        }
        let mut left = Left {
            deleted: 0,
            bucket: None,
            first: None,
        };
        if !self.query.predicate.may_match(doc) {
            return Ok(left);
        }
        let meta = self.options.meta_field.as_deref();
        let mut reader = BucketReader::new(
            &self.options.time_field,
            meta,
            Fields::All,
            TimeRange::default(),
        );
        reader.open(doc)?;
        let mut kept = Bucket::open(doc, self.options)?.emptied();
        while let Some((time, measurement)) = reader.next()? {
            let matches = !(self.only_one && left.deleted > 0)
                && match &self.query.rest {
                    Some(rest) => rest.matches(measurement.as_raw())?,
                    None => true,
                };
            if matches {
                left.deleted += 1;
                left.first.get_or_insert(measurement);
            } else {
                kept.push(measurement.as_raw(), time, self.options);
            }
        }
        left.bucket = (kept.count() > 0).then_some(kept);
        Ok(left)
    }
}
