//! Inserts: many documents per unit of work, each stored or rejected individually.
//!
//! ```text
//!   docs  d0 d1 d2 d3 | d4 ...          a unit ends when it is full, or when a document conflicts with
//!         └── one unit ─┘               another writer: what it has is committed, and the document is
//!                                       the first of the next unit, where it can wait
//! ```

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::{Error, RawDoc, RecordId, Result, Timestamp};
use sheaf_query::timeseries::TimeseriesOptions;
use sheaf_query::timeseries::restore::restored;

use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::statement::StatementContext;
use crate::storage_error::is_write_conflict;
use crate::write::document_rules::prepare_for_insert;
use crate::write::observer::StatementOutcome;
use crate::write::retry::Backoff;
use crate::write::unit::{Patience, Slot, WriteStats, WriteUnitOfWork};
use crate::write::{UNIT_BYTES_MAX, UNIT_DOCUMENTS_MAX, ends_operation};

/// The result of an insert.
#[derive(Debug, Default)]
pub struct InsertResult {
    /// Number of documents stored.
    pub inserted: u64,
    /// Errors of rejected documents, in order.
    pub errors: Vec<WriteError>,
    /// Index keys written.
    pub stats: WriteStats,
}

/// The error of one document among several.
#[derive(Debug, Clone)]
pub struct WriteError {
    /// Position among the given documents.
    pub index: usize,
    /// Why.
    pub error: Error,
}

impl Db {
    /// Stores the documents in order, and creates the collection if missing. Records the error of a
    /// rejected document; with `ordered`, stops there.
    ///
    /// Errors: those that end the whole operation ([`ends_operation`]), and those of creating the
    /// collection. Documents committed before stay.
    pub fn insert(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        docs: &[RawDoc<'_>],
        ordered: bool,
    ) -> Result<InsertResult> {
        let buckets = self.buckets_written(ns)?;
        if let Some(timeseries) = self.catalog().timeseries(ns) {
            return self.insert_measurements(op, ns, &timeseries, docs, ordered);
        }
        let mut result = InsertResult::default();
        let mut backoff = Backoff::default();
        let mut at = 0;
        let mut stopped = false;
        while at < docs.len() && !stopped {
            op.check_interrupt_now()?;
            let Some((mut unit, slot)) = self.begin_write(op, ns, Patience::Waits)? else {
                self.ensure_collection(op, ns)?;
                continue;
            };
            let first = at;
            while at < docs.len()
                && at - first < UNIT_DOCUMENTS_MAX
                && unit.bytes() < UNIT_BYTES_MAX
            {
                let inserted = match &buckets {
                    None => self.insert_into(&mut unit, op, slot, docs[at]),
                    Some(options) => restored(docs[at], options).and_then(|bucket| {
                        self.insert_into(&mut unit, op, slot, bucket.to_doc().as_raw())
                    }),
                };
                match inserted {
                    Ok(_) => unit.record_outcome(op, StatementOutcome::Inserted(at)),
                    Err(error) if is_write_conflict(&error) => match op.transaction() {
                        Some(_) => return Err(error),
                        None => break,
                    },
                    Err(error) if ends_operation(&error) => return Err(error),
                    Err(error) => {
                        result.errors.push(WriteError { index: at, error });
                        stopped = ordered;
                    }
                }
                at += 1;
                if stopped {
                    break;
                }
            }
            let stats = unit.commit(op)?;
            result.inserted += stats.docs_inserted;
            result.stats.add(&stats);
            match at > first {
                true => backoff.reset(),
                false => backoff.wait(op)?,
            }
        }
        Ok(result)
    }

    /// The options of the time-series collection whose buckets `ns` holds. A tool that restores a
    /// dump writes them.
    /// Errors: `InvalidNamespace` if there is no such collection.
    pub(crate) fn buckets_written(&self, ns: &Namespace) -> Result<Option<Arc<TimeseriesOptions>>> {
        if !ns.is_buckets() {
            return Ok(None);
        }
        let catalog = self.catalog();
        let buckets = catalog.collection(ns).map(|buckets| buckets.options());
        match buckets.and_then(|options| options.timeseries()) {
            Some(options) => Ok(Some(options.clone())),
            None => Err(crate::timeseries::not_written_directly(ns)),
        }
    }

    /// Stores one document, and creates the collection if missing: the last step of an upsert.
    /// Errors: those of a document in [`Db::insert`].
    pub fn insert_one(
        self: &Arc<Self>,
        op: &StatementContext,
        ns: &Namespace,
        doc: RawDoc<'_>,
    ) -> Result<WriteStats> {
        let mut result = self.insert(op, ns, &[doc], true)?;
        match result.errors.pop() {
            Some(refused) => Err(refused.error),
            None => Ok(result.stats),
        }
    }

    /// The value of an empty timestamp in a document that is stored.
    fn timestamp_for_empty(&self, op: &StatementContext) -> Timestamp {
        match op.keeps_empty_timestamps() {
            true => Timestamp::default(),
            false => self.next_timestamp(),
        }
    }

    /// Prepares and stores one document in a unit.
    fn insert_into(
        &self,
        unit: &mut WriteUnitOfWork,
        op: &StatementContext,
        slot: Slot,
        doc: RawDoc<'_>,
    ) -> Result<RecordId> {
        let bytes = prepare_for_insert(doc, &mut || self.timestamp_for_empty(op))?;
        unit.insert(op, slot, Bytes::from(bytes.into_owned()))
    }
}
