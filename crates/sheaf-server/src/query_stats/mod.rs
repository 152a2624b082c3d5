//! Statistics of queries by shape: what `$queryStats` shows.
//!
//! ```text
//!   find ──> rate limit: recorded? ── no ──> nothing more: one atomic load
//!                │ yes
//!                v
//!            Recording: the key, and the work so far ──> kept by the cursor, added to by getMores
//!                │ dropped: the query has ended
//!                v
//!            QueryStats: one entry for each key; the least recently used are evicted
//! ```
//!
//! A key is the shape of the command, the client and some options. It contains no constants.

mod entry;
mod key;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sheaf_bson::DocBuf;

pub use entry::Work;
use entry::{Entry, Totals};
pub use key::{Key, KeyParts, Transform};

/// The entries of all keys.
#[derive(Debug)]
pub struct QueryStats {
    entries: Mutex<Entries>,
    /// The second of the last recorded query since the start, and how many it had: the upper and
    /// lower half.
    second: AtomicU64,
    started: Instant,
}

impl Default for QueryStats {
    fn default() -> Self {
        QueryStats {
            entries: Mutex::default(),
            second: AtomicU64::new(0),
            started: Instant::now(),
        }
    }
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<[u8; 32], Entry>,
    /// Keys by time of last use, the least recent first.
    by_use: BTreeMap<u64, [u8; 32]>,
    uses: u64,
    bytes: usize,
}

impl QueryStats {
    /// Whether a query is recorded: at most `per_second` are in each second, none for 0, all for a
    /// negative number.
    pub fn admits(&self, per_second: i64) -> bool {
        if per_second <= 0 {
            return per_second < 0;
        }
        let now = self.started.elapsed().as_secs() << 32;
        let count = |old: u64| if old >= now { old + 1 } else { now + 1 };
        let limit = now + per_second.unsigned_abs().min(u64::from(u32::MAX));
        let update = |old: u64| (count(old) <= limit).then(|| count(old));
        let updated = self
            .second
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        updated.is_ok()
    }

    /// Begins to record a query. Entries take at most `bytes_max` together.
    pub fn recording(self: &Arc<Self>, key: Key, bytes_max: u64) -> Arc<Recording> {
        Arc::new(Recording {
            stats: self.clone(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            query: Mutex::new(Some((key, Totals::default()))),
        })
    }

    /// One document for each entry, the most recently used first.
    pub fn documents(&self, transform: Option<&Transform>) -> Vec<DocBuf> {
        // Copied, so that queries do not wait while documents are built.
        let entries: Vec<Entry> = {
            let entries = self.entries.lock();
            let keys = entries.by_use.values().rev();
            keys.filter_map(|key| entries.by_key.get(key).cloned())
                .collect()
        };
        entries
            .iter()
            .map(|entry| entry.document(transform))
            .collect()
    }

    fn add(&self, key: Key, totals: &Totals, bytes_max: usize) {
        let mut entries = self.entries.lock();
        let entries = &mut *entries;
        let hash = key.hash();
        entries.uses += 1;
        let used = entries.uses;
        entries.by_use.insert(used, hash);
        match entries.by_key.get_mut(&hash) {
            Some(entry) => {
                entries.by_use.remove(&entry.used);
                entry.used = used;
                entry.add(totals);
            }
            None => {
                let mut entry = Entry::new(key, used);
                entry.add(totals);
                entries.bytes += entry.bytes();
                entries.by_key.insert(hash, entry);
            }
        }
        while entries.bytes > bytes_max
            && let Some((_, oldest)) = entries.by_use.pop_first()
        {
            if let Some(evicted) = entries.by_key.remove(&oldest) {
                entries.bytes -= evicted.bytes();
            }
        }
    }
}

/// A query that is recorded when it has ended: when its command has, and its cursor is closed.
#[derive(Debug)]
pub struct Recording {
    stats: Arc<QueryStats>,
    bytes_max: usize,
    /// `None` if the query failed.
    query: Mutex<Option<(Key, Totals)>>,
}

impl Recording {
    /// Adds the work of the command, or of a getMore on its cursor.
    pub fn add(&self, work: &Work) {
        if let Some((_, totals)) = &mut *self.query.lock() {
            totals.add(work);
        }
    }

    /// The command failed: it is not recorded.
    pub fn fail(&self) {
        *self.query.lock() = None;
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some((key, totals)) = self.query.get_mut().take() {
            self.stats.add(key, &totals, self.bytes_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    fn record(stats: &Arc<QueryStats>, collection: &str, bytes_max: u64) {
        let key = Key::new(&KeyParts {
            command: doc! {"find": collection, "filter": {"a": 1}}.as_raw(),
            db: "d",
            client: None,
            collection_type: "collection",
        });
        let recording = stats.recording(key.unwrap(), bytes_max);
        recording.add(&Work {
            micros: 3,
            docs_returned: 2,
            ..Work::default()
        });
    }

    fn collections(stats: &QueryStats) -> Vec<String> {
        let documents = stats.documents(None);
        let name = |doc: &DocBuf| {
            let shape = doc.get("key")?.as_document()?.get("queryShape")?;
            let ns = shape.as_document()?.get("cmdNs")?.as_document()?;
            Some(ns.get("coll")?.as_str()?.to_owned())
        };
        documents.iter().filter_map(name).collect()
    }

    #[test]
    fn the_least_recently_used_entries_are_evicted() {
        let stats = Arc::new(QueryStats::default());
        for name in ["a", "b", "a", "c"] {
            record(&stats, name, u64::MAX);
        }
        assert_eq!(collections(&stats), ["c", "a", "b"]);
        let room_for_two = stats.entries.lock().bytes as u64 * 2 / 3;
        record(&stats, "d", room_for_two);
        assert_eq!(collections(&stats), ["d", "c"]);
        record(&stats, "e", 0);
        assert!(collections(&stats).is_empty());
        assert_eq!(stats.entries.lock().bytes, 0);
    }

    #[test]
    fn failed_queries_are_not_recorded() {
        let stats = Arc::new(QueryStats::default());
        let find = doc! {"find": "c"};
        let parts = KeyParts {
            command: find.as_raw(),
            db: "d",
            client: None,
            collection_type: "collection",
        };
        let recording = stats.recording(Key::new(&parts).unwrap(), u64::MAX);
        recording.fail();
        drop(recording);
        assert!(stats.documents(None).is_empty());
        let count = doc! {"count": "c"};
        let parts = KeyParts {
            command: count.as_raw(),
            ..parts
        };
        assert!(Key::new(&parts).is_none(), "a count has no shape");
    }

    #[test]
    fn queries_of_one_second_are_limited() {
        let stats = QueryStats::default();
        assert!(!stats.admits(0));
        assert!((0..1000).all(|_| stats.admits(-1)));
        // In the worst case the second ends in between.
        let admitted = (0..1000).filter(|_| stats.admits(5)).count();
        assert!((5..=10).contains(&admitted), "{admitted}");
    }
}
