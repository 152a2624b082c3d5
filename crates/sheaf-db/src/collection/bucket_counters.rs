//! Activity on a bucket collection since the server started.

use std::sync::atomic::AtomicU64;

/// Counters of one collection of buckets.
#[derive(Debug, Default)]
pub struct BucketCounters {
    pub(crate) bucket_inserts: AtomicU64,
    pub(crate) bucket_updates: AtomicU64,
    pub(crate) buckets_reopened: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) measurements_committed: AtomicU64,
}
