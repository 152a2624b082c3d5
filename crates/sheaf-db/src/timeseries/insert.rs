//! Inserts measurements in bulk, with one write per affected bucket.
//!
//! ```text
//!   measurements ─ checked ─ grouped by series ─┬─ series a: bucket found ─ locked ─ pushed ─ written ─┐
//!                                               └─ series b: ...                                       ├─ commit
//!                          found: open in memory, else by a query, else a new one                      ┘
//! ```
//!
//! A bucket that another writer holds ends the unit: the unit commits what it has, and the series
//! comes first in the next unit, where it can wait. Writers of the same series therefore take
//! turns, and no measurement is lost. All writers process series in the same order, so that two
//! writers do not deadlock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{
    DateTime, DocBuilder, Error, ErrorCode, ObjectId, RawDoc, RawElement, RawValue, RecordId,
    Result, Value,
};
use sheaf_query::canonical::FindSpec;
use sheaf_query::timeseries::{
    BUCKET_COUNT_MAX, Bucket, CONTROL, DATA, META, TimeseriesOptions, normalized_meta,
};

use crate::catalog::ReadView;
use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::find;
use crate::index::modified::Modified;
use crate::modify::Matches;
use crate::planning::QueryOptions;
use crate::statement::StatementContext;
use crate::storage_error::is_write_conflict;
use crate::timeseries::catalogue::{OpenBucket, SeriesKey};
use crate::timeseries::{Timeseries, stats};
use crate::write::document_rules::prepare_for_insert;
use crate::write::insert::{InsertResult, WriteError};
use crate::write::observer::StatementOutcome;
use crate::write::retry::Backoff;
use crate::write::unit::{Patience, Slot, WriteUnitOfWork};
use crate::write::{MatchedRecord, RecordSource, UNIT_BYTES_MAX, ends_operation};

/// Maximum number of measurements grouped at once.
const CHUNK: usize = 10_000;
/// Maximum number of buckets found by a query that are tried before creating a new one.
const CANDIDATES_MAX: u64 = 3;

/// A measurement that can be stored.
struct Measurement<'a> {
    /// Position among the documents of the statement.
    place: usize,
    bytes: Cow<'a, [u8]>,
    time: DateTime,
}

impl Measurement<'_> {
    fn as_raw(&self) -> Result<RawDoc<'_>> {
        RawDoc::parse(&self.bytes).map_err(|e| Error::bad_value(e.to_string()))
    }
}

/// The measurements of one series, ordered by time.
struct Group<'a> {
    key: Arc<[u8]>,
    meta: Option<Value>,
    measurements: Vec<Measurement<'a>>,
}

impl Db {
    /// Stores measurements. Records the errors of individual measurements; with `ordered`, stops at
    /// the first.
    ///
    /// Errors: those that end the whole operation, and `OperationNotSupportedInTransaction`.
    /// Measurements committed earlier stay.
    pub(crate) fn insert_measurements(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        timeseries: &Timeseries,
        docs: &[RawDoc<'_>],
        ordered: bool,
    ) -> Result<InsertResult> {
        if op.transaction().is_some() {
            return Err(Error::new(
                ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                format!(
                    "Cannot insert into a time-series collection in a multi-document transaction: {ns}"
                ),
            ));
        }
        let mut result = InsertResult::default();
        let mut at = 0;
        while at < docs.len() {
            let end = docs.len().min(at + CHUNK);
            let errors_before = result.errors.len();
            let groups = self.grouped(
                &timeseries.options,
                docs,
                at..end,
                ordered,
                &mut result.errors,
            );
            self.insert_groups(op, timeseries, groups, ordered, &mut result)?;
            if ordered && result.errors.len() > errors_before {
                break;
            }
            at = end;
        }
        result.errors.sort_by_key(|error| error.index);
        if ordered {
            result.errors.truncate(1);
        }
        Ok(result)
    }

    /// Groups the measurements by series; if ordered, up to the first error.
    fn grouped<'a>(
        &self,
        options: &TimeseriesOptions,
        docs: &[RawDoc<'a>],
        places: std::ops::Range<usize>,
        ordered: bool,
        errors: &mut Vec<WriteError>,
    ) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut by_key: HashMap<Arc<[u8]>, usize> = HashMap::new();
        let mut buffer = Vec::new();
        for place in places {
            let time = options.time_of(docs[place]);
            let prepared = time.and_then(|time| {
                let bytes = prepare_for_insert(docs[place], &mut || self.next_timestamp())?;
                Ok(Measurement { place, bytes, time })
            });
            let measurement = match prepared {
                Ok(measurement) => measurement,
                Err(error) => {
                    errors.push(WriteError {
                        index: place,
                        error,
                    });
                    match ordered {
                        true => break,
                        false => continue,
                    }
                }
            };
            let meta_field = options.meta_field.as_deref();
            let meta = meta_field.and_then(|field| docs[place].get_element(field));
            write_key(meta, &mut buffer);
            let group = match by_key.get(buffer.as_slice()) {
                Some(group) => *group,
                None => {
                    let key: Arc<[u8]> = Arc::from(buffer.as_slice());
                    by_key.insert(key.clone(), groups.len());
                    groups.push(Group {
                        key,
                        meta: meta.map(|meta| normalized_meta(meta.value())),
                        measurements: Vec::new(),
                    });
                    groups.len() - 1
                }
            };
            groups[group].measurements.push(measurement);
        }
        for group in &mut groups {
            group.measurements.sort_by_key(|m| m.time.millis());
        }
        groups.sort_by(|a, b| a.key.cmp(&b.key));
        groups
    }

    fn insert_groups(
        self: &Arc<Self>,
        op: &StatementContext,
        timeseries: &Timeseries,
        groups: Vec<Group<'_>>,
        ordered: bool,
        result: &mut InsertResult,
    ) -> Result<()> {
        let mut backoff = Backoff::default();
        let mut at = 0;
        let mut stopped = false;
        while at < groups.len() && !stopped {
            op.check_interrupt_now()?;
            let buckets = &timeseries.buckets;
            let begun = self.begin_write(op, buckets.ns(), Patience::Waits)?;
            let begun = begun.filter(|(unit, slot)| {
                let now = unit.collection(*slot);
                now.uuid() == buckets.uuid() && now.options().timeseries().is_some()
            });
            let Some((mut unit, slot)) = begun else {
                return Err(Error::new(
                    ErrorCode::QUERY_PLAN_KILLED,
                    format!("collection dropped: {}", buckets.ns()),
                ));
            };
            // The bucket span may have increased since.
            let options = match unit.collection(slot).options().timeseries() {
                Some(options) => options.clone(),
                None => timeseries.options.clone(),
            };
            let mut writer = GroupWriter {
                db: self,
                op,
                slot,
                options: &options,
                uuid: buckets.uuid(),
                outcome: Outcome::default(),
            };
            let first = at;
            let mut stored = 0;
            while at < groups.len() && unit.bytes() < UNIT_BYTES_MAX {
                let savepoint = unit.savepoint();
                let before = writer.outcome.mark();
                match writer.write(&mut unit, &groups[at]) {
                    Ok(()) => {
                        unit.release(savepoint);
                        stored += groups[at].measurements.len() as u64;
                    }
                    Err(error) => {
                        unit.rollback_to(savepoint);
                        writer.outcome.back_to(before);
                        if is_write_conflict(&error) {
                            break;
                        }
                        if ends_operation(&error) {
                            return Err(error);
                        }
                        for measurement in &groups[at].measurements {
                            result.errors.push(WriteError {
                                index: measurement.place,
                                error: error.clone(),
                            });
                        }
                        stopped = ordered;
                    }
                }
                at += 1;
                if stopped {
                    break;
                }
            }
            let outcome = writer.outcome;
            let stats = unit.commit(op)?;
            result.inserted += stored;
            result.stats.add(&stats);
            outcome.publish(self, buckets, stored);
            match at > first {
                true => backoff.reset(),
                false => backoff.wait(op)?,
            }
        }
        Ok(())
    }
}

/// Encodes the key that identifies a series.
fn write_key(meta: Option<RawElement<'_>>, key: &mut Vec<u8>) {
    key.clear();
    let Some(meta) = meta else { return };
    key.push(meta.element_type() as u8);
    match meta.value() {
        RawValue::Document(_) | RawValue::Array(_) => {
            let mut out = DocBuilder::new();
            out.append_value(META, &normalized_meta(meta.value()));
            if let Some(element) = out.finish().as_raw().first() {
                key.extend_from_slice(element.raw_value_bytes());
            }
        }
        _ => key.extend_from_slice(meta.raw_value_bytes()),
    }
}

/// Effects of a unit's writes on the catalogue and the counters, applied once it commits.
#[derive(Default)]
struct Outcome {
    changes: Vec<(SeriesKey, OpenBucket, bool)>,
    inserts: u64,
    updates: u64,
    reopened: u64,
}

impl Outcome {
    fn mark(&self) -> (usize, u64, u64, u64) {
        (
            self.changes.len(),
            self.inserts,
            self.updates,
            self.reopened,
        )
    }

    fn back_to(&mut self, mark: (usize, u64, u64, u64)) {
        self.changes.truncate(mark.0);
        (self.inserts, self.updates, self.reopened) = (mark.1, mark.2, mark.3);
    }

    fn publish(self, db: &Db, buckets: &crate::collection::Collection, measurements: u64) {
        let catalogue = db.bucket_catalogue();
        for (key, bucket, has_room) in self.changes {
            match has_room {
                true => catalogue.open(&key, bucket),
                false => catalogue.close(&key, &bucket.record),
            }
        }
        let counters = &buckets.state.buckets;
        stats::add(&counters.bucket_inserts, self.inserts);
        stats::add(&counters.bucket_updates, self.updates);
        stats::add(&counters.buckets_reopened, self.reopened);
        stats::add(&counters.commits, self.inserts + self.updates);
        stats::add(&counters.measurements_committed, measurements);
    }
}

/// Writes the measurements of series into a unit.
struct GroupWriter<'w> {
    db: &'w Arc<Db>,
    op: &'w StatementContext,
    slot: Slot,
    options: &'w TimeseriesOptions,
    uuid: crate::catalog::uuid::Uuid,
    outcome: Outcome,
}

/// A bucket being filled.
struct Filling {
    bucket: Bucket,
    /// The stored form; `None` for a new bucket.
    stored: Option<(RecordId, Bytes)>,
}

impl GroupWriter<'_> {
    fn write(&mut self, unit: &mut WriteUnitOfWork, group: &Group<'_>) -> Result<()> {
        let key: SeriesKey = (self.uuid, group.key.clone());
        let mut filling: Option<Filling> = None;
        for measurement in &group.measurements {
            let doc = measurement.as_raw()?;
            let bytes = measurement.bytes.len();
            let takes =
                |filling: &Filling| filling.bucket.takes(self.options, measurement.time, bytes);
            if !filling.as_ref().is_some_and(takes) {
                if let Some(full) = filling.take() {
                    self.flush(unit, &key, full)?;
                }
                filling = Some(match self.find(unit, &key, group, measurement)? {
                    Some(found) => found,
                    None => Filling {
                        bucket: Bucket::new(
                            self.options,
                            group.meta.clone(),
                            measurement.time,
                            ObjectId::new(),
                        ),
                        stored: None,
                    },
                });
            }
            if let Some(filling) = &mut filling {
                filling.bucket.push(doc, measurement.time, self.options);
            }
        }
        if let Some(last) = filling {
            self.flush(unit, &key, last)?;
        }
        for measurement in &group.measurements {
            unit.record_outcome(self.op, StatementOutcome::Inserted(measurement.place));
        }
        Ok(())
    }

    fn flush(
        &mut self,
        unit: &mut WriteUnitOfWork,
        key: &SeriesKey,
        filling: Filling,
    ) -> Result<()> {
        let Filling { bucket, stored } = filling;
        let doc = bucket.to_doc();
        let record = match stored {
            Some((record, old)) => {
                let may_change = |path: &FieldPath| matches!(path.part(0), Some(CONTROL | DATA));
                let modified = Modified::Paths(&may_change);
                unit.update(
                    self.op,
                    self.slot,
                    &record,
                    RawDoc::stored(&old)?,
                    Some(&old),
                    &doc.into_vec().into(),
                    modified,
                )?;
                self.outcome.updates += 1;
                record
            }
            None => {
                self.outcome.inserts += 1;
                unit.insert(self.op, self.slot, doc.into_vec().into())?
            }
        };
        let open = OpenBucket {
            record,
            start: bucket.start().millis(),
        };
        self.outcome
            .changes
            .push((key.clone(), open, bucket.has_room()));
        Ok(())
    }

    /// Finds and locks a bucket that accepts the measurement.
    fn find(
        &mut self,
        unit: &mut WriteUnitOfWork,
        key: &SeriesKey,
        group: &Group<'_>,
        measurement: &Measurement<'_>,
    ) -> Result<Option<Filling>> {
        let time = measurement.time.millis();
        let span = self.options.span_millis();
        let in_span = |start: i64| start <= time && time < start.saturating_add(span);
        // The unit's own writes are newer than the catalogue.
        let own: Vec<OpenBucket> = self
            .outcome
            .changes
            .iter()
            .rev()
            .filter(|(own, bucket, has_room)| own == key && *has_room && in_span(bucket.start))
            .map(|(_, bucket, _)| bucket.clone())
            .collect();
        for bucket in own {
            if let Some(found) = self.try_bucket(unit, &bucket.record, group, measurement)? {
                return Ok(Some(found));
            }
        }
        let known = self.db.bucket_catalogue().get(key);
        let mut had_hints = false;
        for bucket in known.iter().filter(|bucket| in_span(bucket.start)) {
            had_hints = true;
            if let Some(found) = self.try_bucket(unit, &bucket.record, group, measurement)? {
                return Ok(Some(found));
            }
            self.db.bucket_catalogue().close(key, &bucket.record);
        }
        // A full bucket is followed by a new one.
        if had_hints
            || self
                .outcome
                .changes
                .iter()
                .any(|(own, bucket, _)| own == key && in_span(bucket.start))
        {
            return Ok(None);
        }
        let view = unit.read_view(self.slot);
        for record in self.candidates(&view, group, measurement.time)? {
            if let Some(found) = self.try_bucket(unit, &record.id, group, measurement)? {
                self.outcome.reopened += 1;
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn try_bucket(
        &self,
        unit: &mut WriteUnitOfWork,
        record: &RecordId,
        group: &Group<'_>,
        measurement: &Measurement<'_>,
    ) -> Result<Option<Filling>> {
        unit.lock_record(self.op, self.slot, record)?;
        let Some(bytes) = unit.document(self.slot, record)? else {
            return Ok(None);
        };
        let bucket = Bucket::open(RawDoc::stored(&bytes)?, self.options)?;
        let fits = bucket.takes(self.options, measurement.time, measurement.bytes.len())
            && same_meta(bucket.meta(), group.meta.as_ref());
        Ok(fits.then(|| Filling {
            bucket,
            stored: Some((record.clone(), bytes)),
        }))
    }

    /// Finds buckets of the series with room whose span includes `time`.
    fn candidates(
        &self,
        view: &ReadView,
        group: &Group<'_>,
        time: DateTime,
    ) -> Result<Vec<MatchedRecord>> {
        let earliest = time.millis().saturating_sub(self.options.span_millis());
        let start = format!("{CONTROL}.min.{}", self.options.time_field);
        let mut filter = DocBuilder::new();
        match &group.meta {
            Some(meta) => {
                filter.begin_document(META);
                filter.append_value("$eq", meta);
                filter.end();
            }
            None => {
                filter.append(META, RawValue::Null);
            }
        }
        filter.begin_document(&start);
        filter.append("$gt", DateTime(earliest));
        filter.append("$lte", time);
        filter.end();
        if self.options.meta_field.is_none() {
            let id = |millis: i64, fill: u8| {
                let mut id = [fill; 12];
                let seconds = sheaf_query::timeseries::bucket::id_seconds(millis);
                id[..4].copy_from_slice(&seconds.to_be_bytes());
                ObjectId(id)
            };
            filter.begin_document("_id");
            filter.append("$gte", id(earliest, 0));
            filter.append("$lte", id(time.millis(), 0xFF));
            filter.end();
        }
        filter.begin_document(format!("{CONTROL}.count"));
        filter.append("$lt", BUCKET_COUNT_MAX as i32);
        filter.end();
        let filter = filter.finish();
        let query = find::canonicalize(
            view,
            FindSpec {
                filter: Some(filter.as_raw()),
                limit: Some(CANDIDATES_MAX),
                ..Default::default()
            },
        )?;
        let query = Arc::new(query);
        let Some(collection) = &view.collection else {
            return Ok(Vec::new());
        };
        let options = QueryOptions::default();
        let mut records = Matches::start(view, collection, self.op, &query, &options)?;
        let mut found = Vec::new();
        while let Some(record) = records.next(self.op)? {
            found.push(record);
        }
        Ok(found)
    }
}

fn same_meta(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.as_raw() == b.as_raw(),
        _ => false,
    }
}
