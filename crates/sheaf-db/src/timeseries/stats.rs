//! Counters of a bucket collection since the server started: `collStats.timeseries`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sheaf_bson::{DocBuilder, Result};

use crate::collection::Collection;
use crate::counters::CollectionSize;
use crate::database::Db;

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Appends the `timeseries` section of `collStats` for a collection of buckets.
/// Errors: those of the storage engine.
pub fn append(db: &Db, buckets: &Collection, out: &mut DocBuilder) -> Result<()> {
    let size = CollectionSize::of(db.storage(), buckets.table())?;
    let counters = &buckets.state.buckets;
    let of = |counter: &AtomicU64| counter.load(Relaxed) as i64;
    out.begin_document("timeseries");
    out.append("bucketsNs", buckets.ns().as_str());
    out.append("bucketCount", size.count as i64);
    out.append("avgBucketSize", size.document_bytes_mean() as i64);
    out.append("numBucketInserts", of(&counters.bucket_inserts));
    out.append("numBucketUpdates", of(&counters.bucket_updates));
    out.append("numBucketsReopened", of(&counters.buckets_reopened));
    out.append("numCommits", of(&counters.commits));
    let measurements = of(&counters.measurements_committed);
    out.append("numMeasurementsCommitted", measurements);
    let mean = measurements.checked_div(of(&counters.commits)).unwrap_or(0);
    out.append("avgNumMeasurementsPerCommit", mean);
    out.end();
    Ok(())
}
