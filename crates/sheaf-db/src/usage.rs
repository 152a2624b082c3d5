//! Usage of a collection since the server opened or created it, for `$collStats` and `top`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sheaf_bson::DocBuilder;

/// Histogram buckets: powers of two of microseconds, up to about an hour.
const BUCKETS: usize = 32;

/// The class of an operation for latency statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyKind {
    /// Queries.
    Reads,
    /// Inserts, updates, deletes.
    Writes,
    /// Everything else.
    Commands,
}

/// The class of an operation for `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopKind {
    /// `find`.
    Queries,
    /// `getMore`.
    GetMore,
    /// Inserts.
    Insert,
    /// Updates.
    Update,
    /// Deletes.
    Remove,
    /// Everything else.
    Commands {
        /// Whether it changes the collection.
        writes: bool,
    },
}

/// Field names of `top`, in output order.
const TOP: [&str; 9] = [
    "total",
    "readLock",
    "writeLock",
    "queries",
    "getmore",
    "insert",
    "update",
    "remove",
    "commands",
];

/// Counters of one collection. Sums are exact; counters are not mutually consistent at any moment.
#[derive(Debug, Default)]
pub struct CollectionUsage {
    collection_scans: AtomicU64,
    latencies: [Latency; 3],
    /// Per entry of [`TOP`]: microseconds and operations.
    top: [(AtomicU64, AtomicU64); 9],
}

#[derive(Debug, Default)]
struct Latency {
    micros: AtomicU64,
    operations: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
}

impl CollectionUsage {
    /// Counts a plan that scans the collection.
    pub fn count_collection_scan(&self) {
        self.collection_scans.fetch_add(1, Relaxed);
    }

    /// Counts an operation.
    pub fn count_operation(&self, kind: LatencyKind, elapsed: Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let latency = &self.latencies[kind as usize];
        latency.micros.fetch_add(micros, Relaxed);
        latency.operations.fetch_add(1, Relaxed);
        let bucket = (u64::BITS - micros.leading_zeros()).saturating_sub(1) as usize;
        latency.histogram[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// Counts an operation for `top`.
    pub fn count_top(&self, kind: TopKind, elapsed: Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let (lock, own) = match kind {
            TopKind::Queries => (1, 3),
            TopKind::GetMore => (1, 4),
            TopKind::Insert => (2, 5),
            TopKind::Update => (2, 6),
            TopKind::Remove => (2, 7),
            TopKind::Commands { writes: false } => (1, 8),
            TopKind::Commands { writes: true } => (2, 8),
        };
        for at in [0, lock, own] {
            self.top[at].0.fetch_add(micros, Relaxed);
            self.top[at].1.fetch_add(1, Relaxed);
        }
    }

    /// Appends the collection's section of `top`.
    pub fn append_top(&self, out: &mut DocBuilder) {
        for (name, (micros, count)) in TOP.iter().zip(&self.top) {
            out.begin_document(name);
            out.append("time", micros.load(Relaxed) as i64);
            out.append("count", count.load(Relaxed) as i64);
            out.end();
        }
    }

    /// Appends `reads`, `writes`, `commands` and `transactions` of `latencyStats`.
    pub fn append_latencies(&self, histograms: bool, out: &mut DocBuilder) {
        let names = ["reads", "writes", "commands"];
        for (name, latency) in names.iter().zip(&self.latencies) {
            out.begin_document(name);
            if histograms {
                out.begin_array("histogram");
                for (bucket, count) in latency.histogram.iter().enumerate() {
                    let count = count.load(Relaxed);
                    if count > 0 {
                        out.push_begin_document();
                        out.append("micros", if bucket == 0 { 0 } else { 1i64 << bucket });
                        out.append("count", count as i64);
                        out.end();
                    }
                }
                out.end();
            }
            out.append("latency", latency.micros.load(Relaxed) as i64);
            out.append("ops", latency.operations.load(Relaxed) as i64);
            out.end();
        }
        // A transaction's operations count as reads and writes.
        out.begin_document("transactions");
        if histograms {
            out.begin_array("histogram");
            out.end();
        }
        out.append("latency", 0i64);
        out.append("ops", 0i64);
        out.end();
    }

    /// Appends `collectionScans` of `queryExecStats`.
    pub fn append_query_execution(&self, out: &mut DocBuilder) {
        let scans = self.collection_scans.load(Relaxed) as i64;
        out.begin_document("collectionScans");
        out.append("total", scans);
        out.append("nonTailable", scans);
        out.end();
    }
}
