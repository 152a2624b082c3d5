//! TTL of time-series collections: a bucket expires with its last measurement.

use std::sync::Arc;

use sheaf_bson::{DateTime, DocBuilder, ErrorCode, ObjectId, Result};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::timeseries::CONTROL;
use sheaf_query::timeseries::bucket::id_seconds;

use crate::collection::Collection;
use crate::database::Db;
use crate::modify::Matches;
use crate::op_context::OpContext;
use crate::planning::QueryOptions;
use crate::statement::StatementContext;
use crate::write::RecordSource;
use crate::write::delete::{DeleteResult, DocumentDelete};

/// Maximum number of buckets deleted per call, so that other collections get their turn.
const SHARE_BUCKETS: u64 = 5_000;

struct Share<'m> {
    matches: &'m mut Matches,
    left: u64,
}

impl RecordSource for Share<'_> {
    fn next(&mut self, op: &OpContext) -> Result<Option<crate::write::MatchedRecord>> {
        match self.left.checked_sub(1) {
            None => Ok(None),
            Some(left) => {
                self.left = left;
                self.matches.next(op)
            }
        }
    }
}

struct Expired<'q>(&'q CanonicalQuery);

impl DocumentDelete for Expired<'_> {
    fn still_matches(&mut self, doc: sheaf_bson::RawDoc<'_>) -> Result<bool> {
        self.0.filter.matches(doc)
    }
}

impl Db {
    /// Bucket collections with `expireAfterSeconds`.
    pub(crate) fn expiring_timeseries(&self) -> Vec<Arc<Collection>> {
        let catalog = self.catalog();
        let expires = |collection: &&Arc<Collection>| {
            let options = collection.options();
            options.timeseries().is_some() && options.expire_after_seconds().is_some()
        };
        catalog.collections().filter(expires).cloned().collect()
    }

    /// Deletes some of the buckets whose measurements have all expired at `now`. Returns how many
    /// were deleted, and whether more may remain.
    /// Errors: those of deletes.
    pub(crate) fn delete_expired_buckets(
        self: &Arc<Self>,
        op: &StatementContext,
        collection: &Arc<Collection>,
        now: DateTime,
    ) -> Result<(u64, bool)> {
        let view = self.read_view(collection.ns())?;
        let Some(current) = view
            .collection
            .as_ref()
            .filter(|c| c.uuid() == collection.uuid())
        else {
            return Ok((0, false));
        };
        let options = current.options();
        let (Some(timeseries), Some(seconds)) =
            (options.timeseries(), options.expire_after_seconds())
        else {
            return Ok((0, false));
        };
        let expiry = seconds.checked_mul(1000);
        let Some(latest) = expiry.and_then(|expiry| now.millis().checked_sub(expiry)) else {
            return Ok((0, false));
        };
        // A bucket starts before its last measurement, so the ids bound the scan.
        let mut id = [0xFF; 12];
        id[..4].copy_from_slice(&id_seconds(latest).to_be_bytes());
        let mut filter = DocBuilder::new();
        filter.begin_document("_id");
        filter.append("$lte", ObjectId(id));
        filter.end();
        filter.begin_document(format!("{CONTROL}.max.{}", timeseries.time_field));
        filter.append("$lte", DateTime(latest));
        filter.end();
        let filter = filter.finish();
        let query = Arc::new(CanonicalQuery::new(
            sheaf_bson::DateTime::now(),
            FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
        )?);
        let mut matches = Matches::start(&view, current, op, &query, &QueryOptions::default())?;
        let mut share = Share {
            matches: &mut matches,
            left: SHARE_BUCKETS,
        };
        let mut result = DeleteResult::default();
        let done = self.delete_records(
            op,
            current,
            &mut share,
            &mut Expired(&query),
            true,
            &mut result,
        );
        let more = share.left == 0;
        match done {
            Err(error) if error.code() == ErrorCode::QUERY_PLAN_KILLED => {
                Ok((result.deleted, false))
            }
            Err(error) => Err(error),
            Ok(()) => Ok((result.deleted, more)),
        }
    }
}
