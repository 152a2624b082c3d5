//! TTL: deletes expired documents.
//!
//! ```text
//!   pass ──> every TTL index ──> index scan [earliest date, now - expireAfterSeconds]
//!     │                          clustered collection: the records themselves, by the date in _id
//!     └─ sub-passes: each index deletes up to its share, until no index has any left or time is up
//! ```
//!
//! An array expires by its earliest date, which is the first of its keys that a scan reaches. A
//! value other than a date has no key within the bounds, and a document that a partial index
//! excludes has no key at all: neither expires.
//!
//! Deletes use the normal write path: small units of work, with each document rechecked under its
//! lock. Other operations get their turn between two batches, and a wait for a locked document
//! holds no other lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sheaf_bson::{DateTime, ErrorCode, RawDoc, Result, Value, doc};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::planner;
use sheaf_query::planner::bounds::{Interval, OrderedIntervalList};
use sheaf_query::planner::index_entry::{IndexEntry, IndexKind};
use sheaf_query::planner::solution::{QuerySolution, SolutionNode};

use crate::collection::Collection;
use crate::database::Db;
use crate::exec::PlanExecutor;
use crate::index::Index;
use crate::modify::matched_record;
use crate::op_context::OpContext;
use crate::planning::{self, QueryOptions};
use crate::statement::StatementContext;
use crate::write::delete::{DeleteResult, DocumentDelete};
use crate::write::{MatchedRecord, RecordSource};

/// Maximum number of documents that one index deletes before the next gets its turn.
const SHARE_DOCUMENTS: u64 = 50_000;
/// Maximum time for one index before the next gets its turn.
const SHARE_TIME: Duration = Duration::from_secs(1);
/// Number of documents between two pauses.
const BATCH_DOCUMENTS: u64 = 500;
/// Pause between two batches.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum duration of a pass.
const PASS_TIME: Duration = Duration::from_secs(60);

/// Activity since the server started: `metrics.ttl`.
#[derive(Debug, Default)]
pub struct TtlCounters {
    /// Documents deleted.
    pub deleted_documents: AtomicU64,
    /// Keys and documents examined.
    pub examined: AtomicU64,
    /// Completed passes over all TTL indexes.
    pub passes: AtomicU64,
    /// Rounds in which each index deletes at most its share.
    pub sub_passes: AtomicU64,
}

impl Db {
    /// Deletes expired documents as of `now` in every collection. A failure on one index does not
    /// affect others; its error is passed to `failed` with the index's name.
    ///
    /// Errors: `Interrupted`.
    pub fn ttl_pass(
        self: &Arc<Self>,
        op: &StatementContext,
        now: DateTime,
        counters: &TtlCounters,
        failed: &mut dyn FnMut(&str, &sheaf_bson::Error),
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let mut some_left = false;
            for (collection, expiring) in self.ttl_indexes() {
                op.check_interrupt_now()?;
                match self.delete_share(op, &collection, &expiring, now, counters) {
                    Ok(left) => some_left |= left,
                    Err(error) => {
                        op.check_interrupt_now()?;
                        // Dropped concurrently: nothing to report.
                        if error.code() != ErrorCode::QUERY_PLAN_KILLED {
                            let index = &expiring.entry.name;
                            failed(&format!("{}.{index}", collection.ns()), &error);
                        }
                    }
                }
            }
            for collection in self.expiring_timeseries() {
                op.check_interrupt_now()?;
                match self.delete_expired_buckets(op, &collection, now) {
                    Ok((deleted, left)) => {
                        counters.deleted_documents.fetch_add(deleted, Relaxed);
                        some_left |= left;
                    }
                    Err(error) => {
                        op.check_interrupt_now()?;
                        failed(collection.ns().as_str(), &error);
                    }
                }
            }
            counters.sub_passes.fetch_add(1, Relaxed);
            if !some_left || began.elapsed() >= PASS_TIME {
                break;
            }
        }
        counters.passes.fetch_add(1, Relaxed);
        Ok(())
    }

    fn ttl_indexes(&self) -> Vec<(Arc<Collection>, Expiring)> {
        let catalog = self.catalog();
        let mut found = Vec::new();
        for collection in catalog.collections() {
            let of_clustered = Expiring::of_clustered(collection).into_iter();
            let of_indexes = collection
                .index_list()
                .iter()
                .filter_map(|index| Expiring::of_index(collection, index));
            let all = of_clustered.chain(of_indexes);
            found.extend(all.map(|expiring| (collection.clone(), expiring)));
        }
        found
    }

    /// Returns whether more documents remain.
    fn delete_share(
        self: &Arc<Self>,
        op: &StatementContext,
        collection: &Arc<Collection>,
        expiring: &Expiring,
        now: DateTime,
        counters: &TtlCounters,
    ) -> Result<bool> {
        let Some(latest) = expiring.latest(now) else {
            return Ok(false);
        };
        let began = Instant::now();
        let mut deleted = 0;
        loop {
            let view = self.read_view(collection.ns())?;
            let Some(current) = &view.collection else {
                return Ok(false);
            };
            // The collection was recreated, or the index dropped or changed: leave it to the next
            // pass.
            if current.uuid() != collection.uuid() || !expiring.is_still_of(current) {
                return Ok(false);
            }
            let field = expiring.entry.fields[0].path.dotted();
            let filter = doc! {field: {"$lte": latest}};
            let query = Arc::new(CanonicalQuery::new(
                sheaf_bson::DateTime::now(),
                FindSpec {
                    filter: Some(filter.as_raw()),
                    ..FindSpec::default()
                },
            )?);
            let options = QueryOptions::default();
            let solution = expiring.expired(latest);
            let mut batch = Batch {
                plan: planning::start_solution(&view, op, &query, &options, solution)?,
                left: BATCH_DOCUMENTS,
            };
            let mut expiry = Expiry {
                query: &query,
                index: expiring.index.as_ref(),
            };
            let mut result = DeleteResult::default();
            let done = self.delete_records(op, current, &mut batch, &mut expiry, true, &mut result);
            counters
                .deleted_documents
                .fetch_add(result.deleted, Relaxed);
            let read = batch.plan.counts();
            counters
                .examined
                .fetch_add(read.keys_examined.max(read.docs_examined), Relaxed);
            done?;
            deleted += result.deleted;
            if batch.left > 0 {
                return Ok(false);
            }
            if deleted >= SHARE_DOCUMENTS || began.elapsed() >= SHARE_TIME {
                return Ok(true);
            }
            drop(view);
            std::thread::sleep(PAUSE);
        }
    }
}

/// A rule by which documents of a collection expire.
#[derive(Debug, Clone)]
struct Expiring {
    /// The index on the date.
    entry: Arc<IndexEntry>,
    seconds: i64,
    /// `None` for the clustered index.
    index: Option<Index>,
}

impl Expiring {
    /// `None` also for an index without an order by which old documents are found.
    fn of_index(collection: &Collection, index: &Index) -> Option<Expiring> {
        if !matches!(index.entry().kind, IndexKind::Btree) {
            return None;
        }
        // A bucket expires when measurements at the end of its span have.
        let span = collection.options().timeseries();
        let span = span.map_or(0, |options| options.span_seconds);
        Some(Expiring {
            entry: index.entry().clone(),
            seconds: index.spec().expire_after_seconds?.saturating_add(span),
            index: Some(index.clone()),
        })
    }

    fn of_clustered(collection: &Arc<Collection>) -> Option<Expiring> {
        collection.clustered()?;
        // Buckets expire by the dates of their measurements.
        if collection.options().timeseries().is_some() {
            return None;
        }
        Some(Expiring {
            entry: collection.id_index().clone(),
            seconds: collection.options().expire_after_seconds()?,
            index: None,
        })
    }

    /// Whether the collection still has this rule.
    fn is_still_of(&self, collection: &Arc<Collection>) -> bool {
        match &self.index {
            Some(index) => collection
                .index_list()
                .iter()
                .any(|own| own.table() == index.table() && own.spec() == index.spec()),
            None => collection.options().expire_after_seconds() == Some(self.seconds),
        }
    }

    /// The latest expired date; `None` if it precedes all representable dates.
    fn latest(&self, now: DateTime) -> Option<DateTime> {
        let latest = now.millis().checked_sub(self.seconds.checked_mul(1000)?)?;
        Some(DateTime(latest))
    }

    fn expired(&self, latest: DateTime) -> QuerySolution {
        let dates = Interval::new(
            Value::DateTime(DateTime::MIN),
            true,
            Value::DateTime(latest),
            true,
        );
        // The index on the times of buckets has a second field.
        let others = self.entry.fields.iter().skip(1);
        let others = others.map(|_| OrderedIntervalList::all());
        let lists = std::iter::once(OrderedIntervalList::of(dates)).chain(others);
        let scan = planner::index_scan(&self.entry, lists);
        let root = match self.entry.clustered {
            true => SolutionNode::ClusteredScan(scan),
            false => SolutionNode::Fetch {
                filter: None,
                child: Box::new(SolutionNode::IndexScan(scan)),
            },
        };
        QuerySolution {
            root,
            has_blocking_stage: false,
        }
    }
}

/// The first few documents of a plan.
struct Batch {
    plan: PlanExecutor,
    left: u64,
}

impl RecordSource for Batch {
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(member) = self.plan.next(op)? else {
            return Ok(None);
        };
        self.left -= 1;
        matched_record(member).map(Some)
    }
}

struct Expiry<'a> {
    query: &'a CanonicalQuery,
    index: Option<&'a Index>,
}

impl DocumentDelete for Expiry<'_> {
    fn still_matches(&mut self, doc: RawDoc<'_>) -> Result<bool> {
        if !self.query.filter.matches(doc)? {
            return Ok(false);
        }
        self.index.map_or(Ok(true), |index| index.includes(doc))
    }
}
