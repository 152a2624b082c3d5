//! Open buckets: where the next measurement of a series probably belongs.
//!
//! The entries are hints only. A writer locks and checks a bucket before it writes; stale entries
//! are dropped here, and a query finds buckets that have no entry. So nothing needs to be
//! persisted, and a restart or the eviction of series affects only speed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheaf_bson::RecordId;
use smallvec::SmallVec;

use crate::catalog::uuid::Uuid;

/// Maximum number of series in each of the two generations.
const SERIES_MAX: usize = 16_384;
/// Maximum size of their keys in one generation, in bytes.
const SERIES_BYTES_MAX: usize = 8 << 20;
/// Maximum number of open buckets per series: late measurements go to a bucket before the newest.
const BUCKETS_MAX: usize = 4;

/// A bucket that had room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBucket {
    /// Record of the bucket.
    pub record: RecordId,
    /// Start time, in milliseconds since 1970.
    pub start: i64,
}

/// Open buckets of one series, newest first.
pub type OpenBuckets = SmallVec<[OpenBucket; 2]>;

/// Identifies a series: the bucket collection and the bytes of the meta value.
pub type SeriesKey = (Uuid, Arc<[u8]>);

/// Open buckets of all collections. Series without recent writes are evicted.
#[derive(Debug, Default)]
pub struct BucketCatalogue {
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<SeriesKey, OpenBuckets>,
    young_bytes: usize,
    old: HashMap<SeriesKey, OpenBuckets>,
}

impl Generations {
    /// The series, moved to the young generation if necessary.
    fn series(&mut self, key: &SeriesKey) -> &mut OpenBuckets {
        if !self.young.contains_key(key) {
            if self.young.len() >= SERIES_MAX || self.young_bytes >= SERIES_BYTES_MAX {
                self.old = std::mem::take(&mut self.young);
                self.young_bytes = 0;
            }
            let known = self.old.remove(key).unwrap_or_default();
            self.young_bytes += key.1.len();
            self.young.insert(key.clone(), known);
        }
        self.young.entry(key.clone()).or_default()
    }
}

impl BucketCatalogue {
    /// The open buckets of a series, newest first.
    pub fn get(&self, key: &SeriesKey) -> OpenBuckets {
        let generations = self.generations.lock();
        let found = generations.young.get(key);
        found
            .or_else(|| generations.old.get(key))
            .cloned()
            .unwrap_or_default()
    }

    /// Records that the bucket has room.
    pub fn open(&self, key: &SeriesKey, bucket: OpenBucket) {
        let mut generations = self.generations.lock();
        let buckets = generations.series(key);
        buckets.retain(|known| known.record != bucket.record);
        buckets.insert(0, bucket);
        buckets.truncate(BUCKETS_MAX);
        debug_assert!(
            (1..buckets.len())
                .all(|at| buckets[..at].iter().all(|b| b.record != buckets[at].record)),
            "a bucket is there once"
        );
    }

    /// Records that the bucket is full or gone.
    pub fn close(&self, key: &SeriesKey, record: &RecordId) {
        let mut generations = self.generations.lock();
        generations
            .series(key)
            .retain(|known| known.record != *record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> SeriesKey {
        (Uuid([0; 16]), Arc::from(n.to_be_bytes().as_slice()))
    }

    fn bucket(n: i64) -> OpenBucket {
        OpenBucket {
            record: RecordId::new(n),
            start: n,
        }
    }

    #[test]
    fn the_newest_few_of_a_series() {
        let catalogue = BucketCatalogue::default();
        for n in 1..=6 {
            catalogue.open(&key(0), bucket(n));
        }
        catalogue.open(&key(0), bucket(4));
        catalogue.close(&key(0), &RecordId::new(6));
        let starts: Vec<_> = catalogue.get(&key(0)).iter().map(|b| b.start).collect();
        assert_eq!(starts, [4, 5, 3]);
    }

    #[test]
    fn bounded_by_evicting_unused_entries() {
        let catalogue = BucketCatalogue::default();
        for n in 0..SERIES_MAX * 3 {
            catalogue.open(&key(n), bucket(1));
            // A series in constant use stays.
            catalogue.open(&key(0), bucket(1));
        }
        let generations = catalogue.generations.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * SERIES_MAX);
        drop(generations);
        assert!(catalogue.get(&key(1)).is_empty());
        assert!(!catalogue.get(&key(0)).is_empty());
    }
}
