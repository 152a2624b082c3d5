//! TTL: documents whose date is long past are deleted.
//!
//! ```text
//!   pass ──> every TTL index ──> index scan [earliest date, now - expireAfterSeconds]
//!     └─ sub-passes: each index deletes up to a share, until none has any left or time is up
//! ```
//!
//! An array counts by its earliest date, which is the first of its keys that a
//! scan meets. What is no date has no key within the bounds, and what a partial
//! index leaves out has no key at all: neither expires.
//!
//! Deletes go the way of all deletes: in small units of work, each document looked at
//! again under its lock. Between two batches others have their turn, and a document
//! that somebody holds is waited for without holding any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sheaf_bson::{DateTime, ErrorCode, RawDoc, Result, Value, doc};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::planner;
use sheaf_query::planner::bounds::{Interval, OrderedIntervalList};
use sheaf_query::planner::solution::{QuerySolution, SolutionNode};

use crate::catalog::Collection;
use crate::database::Db;
use crate::exec::{Doc, PlanExecutor};
use crate::find::{self, QueryOptions};
use crate::index::Index;
use crate::op_context::OpContext;
use crate::write::delete::{DeleteResult, DocumentDelete};
use crate::write::{MatchedRecord, RecordSource};

/// Documents that one index deletes before the next one has its turn.
const SHARE_DOCUMENTS: u64 = 50_000;
/// How long one index deletes before the next one has its turn.
const SHARE_TIME: Duration = Duration::from_secs(1);
/// Documents between two pauses.
const BATCH_DOCUMENTS: u64 = 500;
/// How long others have between two batches.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a pass goes on.
const PASS_TIME: Duration = Duration::from_secs(60);

/// What the deleter has done since the start: `metrics.ttl`.
#[derive(Debug, Default)]
pub struct TtlCounters {
    /// Documents deleted.
    pub deleted_documents: AtomicU64,
    /// Rounds over all TTL indexes, with all they had.
    pub passes: AtomicU64,
    /// Rounds in which each index deleted its share at most.
    pub sub_passes: AtomicU64,
}

impl Db {
    /// Deletes what has expired at `now`, in every collection. An index whose documents cannot be
    /// deleted does not keep others from theirs; its error is handed to `failed` with its name.
    ///
    /// Errors: `Interrupted`.
    pub fn ttl_pass(
        self: &Arc<Self>,
        op: &OpContext,
        now: DateTime,
        counters: &TtlCounters,
        failed: &mut dyn FnMut(&str, &sheaf_bson::Error),
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let mut some_left = false;
            for (collection, index) in self.ttl_indexes() {
                op.check_interrupt_now()?;
                match self.delete_share(op, &collection, &index, now, counters) {
                    Ok(left) => some_left |= left,
                    Err(error) => {
                        op.check_interrupt_now()?;
                        // Dropped meanwhile: nothing to tell.
                        if error.code() != ErrorCode::QUERY_PLAN_KILLED {
                            failed(&format!("{}.{}", collection.ns(), index.name()), &error);
                        }
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

    fn ttl_indexes(&self) -> Vec<(Arc<Collection>, Index)> {
        let catalog = self.catalog();
        let mut found = Vec::new();
        for collection in catalog.collections() {
            for index in collection.index_list() {
                if index.spec().expire_after_seconds.is_some() {
                    found.push((collection.clone(), index.clone()));
                }
            }
        }
        found
    }

    /// Whether there is more than was deleted.
    fn delete_share(
        self: &Arc<Self>,
        op: &OpContext,
        collection: &Arc<Collection>,
        index: &Index,
        now: DateTime,
        counters: &TtlCounters,
    ) -> Result<bool> {
        let Some(latest) = latest_expired(index, now) else {
            return Ok(false);
        };
        let began = Instant::now();
        let mut deleted = 0;
        loop {
            let view = self.read_view(collection.ns())?;
            let Some(current) = &view.collection else {
                return Ok(false);
            };
            // Another of the same name, or an index that is gone or was changed: next time.
            let same = |own: &&Index| own.table() == index.table() && own.spec() == index.spec();
            if current.uuid() != collection.uuid()
                || !current.index_list().iter().any(|own| same(&own))
            {
                return Ok(false);
            }
            let field = index.entry().fields[0].path.dotted();
            let filter = doc! {field: {"$lte": latest}};
            let query = Arc::new(CanonicalQuery::new(FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            })?);
            let options = QueryOptions::default();
            let solution = expired(index, latest);
            let mut batch = Batch {
                plan: find::start_solution(&view, op, &query, &options, solution)?,
                left: BATCH_DOCUMENTS,
            };
            let mut expiry = Expiry {
                query: &query,
                index,
            };
            let mut result = DeleteResult::default();
            let done = self.delete_records(op, current, &mut batch, &mut expiry, true, &mut result);
            counters
                .deleted_documents
                .fetch_add(result.deleted, Relaxed);
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

/// The latest date that has expired; `None` when that lies before all dates.
fn latest_expired(index: &Index, now: DateTime) -> Option<DateTime> {
    let seconds = index.spec().expire_after_seconds?;
    let latest = now.millis().checked_sub(seconds.checked_mul(1000)?)?;
    Some(DateTime(latest))
}

fn expired(index: &Index, latest: DateTime) -> QuerySolution {
    let dates = Interval::new(
        Value::DateTime(DateTime::MIN),
        true,
        Value::DateTime(latest),
        true,
    );
    let list = OrderedIntervalList::of(dates);
    let scan = planner::index_scan(index.entry(), [list]);
    QuerySolution {
        root: SolutionNode::Fetch {
            filter: None,
            child: Box::new(SolutionNode::IndexScan(scan)),
        },
        has_blocking_stage: false,
    }
}

/// The first few documents of a plan.
struct Batch {
    plan: PlanExecutor,
    left: u64,
}

impl RecordSource for Batch {
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>> {
        while self.left > 0 {
            let Some(member) = self.plan.next(op)? else {
                return Ok(None);
            };
            if let (Some(id), Some(Doc::Shared(document))) = (member.record_id, member.doc) {
                self.left -= 1;
                return Ok(Some(MatchedRecord { id, document }));
            }
        }
        Ok(None)
    }
}

struct Expiry<'a> {
    query: &'a CanonicalQuery,
    index: &'a Index,
}

impl DocumentDelete for Expiry<'_> {
    fn still_matches(&mut self, doc: RawDoc<'_>) -> Result<bool> {
        Ok(self.query.filter.matches(doc)? && self.index.includes(doc)?)
    }
}
