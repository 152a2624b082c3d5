//! An engine that wraps another one, and panics if that one violates the trait's contract.
//!
//! ```text
//!   test ──> CheckedEngine ──> engine
//!                 │  after every move: order, the neighbours, the value by a separate look-up
//!                 │  after every batch: its keys exist, or (rejected) nothing has changed
//!                 └  while a snapshot lives: a repeated read returns the same answer
//! ```
//!
//! For tests only: every call results in several calls of the engine. Batches are applied one at a
//! time, so that the effects of each can be checked before the next; writers that bypass the
//! wrapper cause false alarms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::batch::{KeyWrite, Prior, WriteBatch};
use crate::engine::{
    CommitSeq, Cursor, Durability, EngineStats, Snapshot, StorageEngine, TableId, TableStats,
};
use crate::error::{Result, StorageError};

/// Number of keys of a batch that are looked up after it, number of answers of a snapshot that are
/// remembered, and number of entries up to which a table is walked.
const SAMPLES: usize = 32;
const WALKED_MAX: u64 = 500;

/// The wrapper; see the module's head.
pub struct CheckedEngine {
    inner: Arc<dyn StorageEngine>,
    /// The sequence of the last batch; held while one is applied.
    last: Mutex<CommitSeq>,
    active: Arc<AtomicUsize>,
}

impl CheckedEngine {
    /// Wraps `inner`, to which there must be no other writer.
    pub fn new(inner: Arc<dyn StorageEngine>) -> CheckedEngine {
        CheckedEngine {
            inner,
            last: Mutex::new(CommitSeq(0)),
            active: Arc::default(),
        }
    }

    /// Number of cursors that are on an entry and not suspended.
    pub fn active_cursors(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// The present state of what a batch is about to touch: the values of some keys, and which
    /// tables exist.
    fn touched(&self, batch: &WriteBatch) -> Result<Touched> {
        let snapshot = self.inner.snapshot()?;
        let mut tables = BTreeMap::new();
        let mut keys = BTreeMap::new();
        for (table, writes) in batch.tables() {
            let exists = snapshot.contains_table(table)?;
            tables.insert(table, exists);
            if exists {
                for (key, change) in writes.keys().iter().take(SAMPLES) {
                    let value = snapshot.get(table, key)?;
                    if writes.keeps(key) {
                        check_prior(table, key, change.prior, value.as_deref());
                        let base = change.base.as_ref();
                        assert!(
                            base.is_none_or(|base| value.as_ref() == Some(base)),
                            "a false base of key {key:?} of table {table}"
                        );
                    }
                    keys.insert((table, key.clone()), value);
                }
            }
        }
        Ok(Touched { tables, keys })
    }

    fn check_applied(&self, batch: &WriteBatch) -> Result<()> {
        let snapshot = self.inner.snapshot()?;
        for (table, writes) in batch.tables() {
            let expected = writes.fate().exists_after();
            let exists = snapshot.contains_table(table)?;
            assert_eq!(exists, expected, "table {table} after its batch");
            if !exists {
                continue;
            }
            for (key, change) in writes.keys().iter().take(SAMPLES) {
                let expected = match &change.write {
                    KeyWrite::Put(value) => Some(value.clone()),
                    KeyWrite::Delete => None,
                };
                let found = snapshot.get(table, key)?;
                assert_eq!(
                    found, expected,
                    "key {key:?} of table {table} after its batch"
                );
            }
            for (lo, hi) in writes.ranges().iter().take(SAMPLES) {
                let mut cursor = snapshot.cursor(table)?;
                let mut found = cursor.seek(lo)?;
                for _ in 0..SAMPLES {
                    if !found || hi.is_some_and(|hi| cursor.key() >= &hi[..]) {
                        break;
                    }
                    let change = writes.keys().get(cursor.key());
                    let put = change.is_some_and(|c| matches!(c.write, KeyWrite::Put(_)));
                    assert!(put, "key {:?} outlived its range", cursor.key());
                    found = cursor.next()?;
                }
            }
            self.check_size(&*snapshot, table)?;
        }
        Ok(())
    }

    fn check_size(&self, snapshot: &dyn Snapshot, table: TableId) -> Result<()> {
        let stats = self.inner.table_stats(table)?;
        assert_eq!(
            stats.entries,
            snapshot.len(table)?,
            "entries of table {table}"
        );
        if stats.entries > WALKED_MAX {
            return Ok(());
        }
        let mut walked = TableStats {
            disk_bytes: stats.disk_bytes,
            ..TableStats::default()
        };
        let mut cursor = snapshot.cursor(table)?;
        let mut found = cursor.seek_first()?;
        while found {
            walked.entries += 1;
            walked.key_bytes += cursor.key().len() as u64;
            walked.value_bytes += cursor.value().len() as u64;
            found = cursor.next()?;
        }
        assert_eq!(stats, walked, "size of table {table}");
        Ok(())
    }
}

/// Checks a writer's hint about a key.
fn check_prior(table: TableId, key: &[u8], prior: Prior, value: Option<&[u8]>) {
    let true_hint = match prior {
        Prior::Unknown => true,
        Prior::Absent => value.is_none(),
        Prior::Present { value_len } => value.map(<[u8]>::len) == Some(value_len as usize),
    };
    let found = value.map(<[u8]>::len);
    assert!(
        true_hint,
        "the hint {prior:?} for key {key:?} of table {table}, which has {found:?} bytes"
    );
}

#[derive(Debug, PartialEq, Eq)]
struct Touched {
    tables: BTreeMap<TableId, bool>,
    keys: BTreeMap<(TableId, Bytes), Option<Bytes>>,
}

impl StorageEngine for CheckedEngine {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(CheckedSnapshot {
            inner: self.inner.snapshot()?,
            answers: Mutex::default(),
            active: self.active.clone(),
        }))
    }

    fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        self.apply_counted(batch, durability).map(|(seq, _)| seq)
    }

    fn bytes_to_log(&self, batch: &WriteBatch) -> u64 {
        self.inner.bytes_to_log(batch)
    }

    fn apply_counted(&self, batch: WriteBatch, durability: Durability) -> Result<(CommitSeq, u64)> {
        let mut last = self.last.lock();
        let before = self.touched(&batch)?;
        let empty = batch.is_empty();
        match self.inner.apply_counted(batch.clone(), durability) {
            Ok((seq, logged)) => {
                if empty {
                    assert!(seq >= *last, "{seq:?} of an empty batch after {last:?}");
                } else {
                    assert!(seq > *last, "{seq:?} after {last:?}");
                }
                *last = seq;
                self.check_applied(&batch)?;
                assert!(!empty || logged == 0, "{logged} bytes logged for nothing");
                Ok((seq, logged))
            }
            Err(error) => {
                // After any error, no part of the batch may be visible.
                if let Ok(after) = self.touched(&batch) {
                    assert_eq!(before, after, "a refused batch: {error}");
                }
                Err(error)
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        let mut last = self.last.lock();
        let loaded = self.inner.bulk_load(table, entries);
        *last = self.inner.apply(WriteBatch::new(), Durability::Buffered)?;
        let snapshot = self.inner.snapshot()?;
        match &loaded {
            Ok(count) => assert_eq!(snapshot.len(table)?, *count, "entries after a bulk load"),
            Err(StorageError::NoSuchTable(_) | StorageError::TableNotEmpty(_)) => return loaded,
            Err(error) => assert_eq!(snapshot.len(table)?, 0, "a failed bulk load: {error}"),
        }
        self.check_size(&*snapshot, table)?;
        loaded
    }

    fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint()
    }

    fn compact(&self) -> Result<u64> {
        self.inner.compact()
    }

    fn checkpoints_itself(&self) -> bool {
        self.inner.checkpoints_itself()
    }

    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }

    fn report(&self, out: &mut dyn FnMut(&str, u64)) {
        self.inner.report(out);
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.inner.table_stats(table)
    }

    fn tables(&self) -> Result<Vec<TableId>> {
        let tables = self.inner.tables()?;
        assert!(tables.is_sorted(), "tables in order: {tables:?}");
        assert_eq!(tables.first(), Some(&TableId::CATALOG));
        Ok(tables)
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

/// Answers of a snapshot, by table and key.
type Answers = BTreeMap<(TableId, Vec<u8>), Option<Bytes>>;

struct CheckedSnapshot {
    inner: Arc<dyn Snapshot>,
    answers: Mutex<Answers>,
    active: Arc<AtomicUsize>,
}

impl Snapshot for CheckedSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.inner.get(table, key)?;
        let mut answers = self.answers.lock();
        if answers.len() < SAMPLES {
            // A copy, so that the engine's memory is not compared with itself.
            let copy = value.as_deref().map(Bytes::copy_from_slice);
            answers.entry((table, key.to_vec())).or_insert(copy);
        }
        if let Some(before) = answers.get(&(table, key.to_vec())) {
            assert_eq!(*before, value, "key {key:?} of table {table} has changed");
        }
        Ok(value)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        let inner = self.inner.cursor(table)?;
        assert!(!inner.valid(), "a new cursor has no position");
        Ok(Box::new(CheckedCursor {
            other: self.inner.cursor(table)?,
            inner,
            snapshot: self.inner.clone(),
            table,
            active: self.active.clone(),
            is_active: false,
            suspended: false,
        }))
    }

    fn len(&self, table: TableId) -> Result<u64> {
        self.inner.len(table)
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        self.inner.contains_table(table)
    }
}

impl Drop for CheckedSnapshot {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for ((table, key), before) in self.answers.get_mut() {
            // An engine that was closed or has failed may return an error.
            if let Ok(now) = self.inner.get(*table, key) {
                assert_eq!(*before, now, "key {key:?} of table {table} has changed");
            }
        }
    }
}

struct CheckedCursor {
    inner: Box<dyn Cursor>,
    /// Another cursor over the same snapshot, to look at neighbours.
    other: Box<dyn Cursor>,
    snapshot: Arc<dyn Snapshot>,
    table: TableId,
    /// Number of active cursors, and whether this is one of them.
    active: Arc<AtomicUsize>,
    is_active: bool,
    /// Whether the cursor has not been moved since it was suspended.
    suspended: bool,
}

impl Drop for CheckedCursor {
    fn drop(&mut self) {
        self.set_active(false);
    }
}

impl CheckedCursor {
    fn set_active(&mut self, is_active: bool) {
        match (self.is_active, is_active) {
            (false, true) => self.active.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.active.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        self.is_active = is_active;
    }

    /// Checks the present entry by itself.
    fn check_entry(&mut self, found: bool) -> Result<bool> {
        assert_eq!(found, self.inner.valid(), "the result of a move");
        self.suspended = false;
        self.set_active(found);
        if found {
            let (key, value) = (self.inner.key(), self.inner.value());
            let by_key = self.snapshot.get(self.table, key)?;
            assert_eq!(by_key.as_deref(), Some(value), "the value under {key:?}");
            assert_eq!(self.inner.value_bytes(), value);
        } else {
            assert!(self.inner.key().is_empty() && self.inner.value().is_empty());
        }
        Ok(found)
    }

    /// Checks that there is nothing between the entry and `from`, which precedes it in the
    /// direction of the move and, if `beyond`, is itself excluded.
    fn check_gap(&mut self, from: Option<&[u8]>, beyond: bool, forward: bool) -> Result<()> {
        let other = &mut self.other;
        let found = match (self.inner.valid(), forward) {
            (true, _) => {
                let key = self.inner.key();
                let found = if forward {
                    other.seek_for_prev(key)?
                } else {
                    other.seek(key)?
                };
                assert!(
                    found && other.key() == key,
                    "the entry found by another cursor"
                );
                if forward {
                    other.prev()?
                } else {
                    other.next()?
                }
            }
            (false, true) => other.seek_last()?,
            (false, false) => other.seek_first()?,
        };
        if !found {
            return Ok(());
        }
        let neighbour = other.key();
        let Some(from) = from else {
            panic!("{neighbour:?} was skipped");
        };
        let passed = match (forward, beyond) {
            (true, true) => neighbour > from,
            (true, false) => neighbour >= from,
            (false, true) => neighbour < from,
            (false, false) => neighbour <= from,
        };
        assert!(!passed, "{neighbour:?} was skipped, coming from {from:?}");
        Ok(())
    }

    fn step(&mut self, forward: bool) -> Result<bool> {
        let from = self.inner.valid().then(|| self.inner.key().to_vec());
        let found = if forward {
            self.inner.next()?
        } else {
            self.inner.prev()?
        };
        self.check_entry(found)?;
        let Some(from) = from else {
            assert!(!found, "a cursor without a position has moved");
            return Ok(false);
        };
        if found {
            let rising = self.inner.key() > &from[..];
            assert_eq!(rising, forward, "{:?} after {from:?}", self.inner.key());
        }
        self.check_gap(Some(&from), true, forward)?;
        Ok(found)
    }
}

impl Cursor for CheckedCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.inner.seek(key)?;
        self.check_entry(found)?;
        assert!(!found || self.inner.key() >= key);
        self.check_gap(Some(key), false, true)?;
        Ok(found)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.inner.seek_for_prev(key)?;
        self.check_entry(found)?;
        assert!(!found || self.inner.key() <= key);
        self.check_gap(Some(key), false, false)?;
        Ok(found)
    }

    fn seek_first(&mut self) -> Result<bool> {
        let found = self.inner.seek_first()?;
        self.check_entry(found)?;
        self.check_gap(None, false, true)?;
        Ok(found)
    }

    fn seek_last(&mut self) -> Result<bool> {
        let found = self.inner.seek_last()?;
        self.check_entry(found)?;
        self.check_gap(None, false, false)?;
        Ok(found)
    }

    fn next(&mut self) -> Result<bool> {
        self.step(true)
    }

    fn prev(&mut self) -> Result<bool> {
        self.step(false)
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn value(&self) -> &[u8] {
        assert!(!self.suspended, "a suspended cursor has no value");
        self.inner.value()
    }

    fn value_bytes(&self) -> Bytes {
        assert!(!self.suspended, "a suspended cursor has no value");
        self.inner.value_bytes()
    }

    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn suspend(&mut self) {
        let key = self.inner.valid().then(|| self.inner.key().to_vec());
        self.inner.suspend();
        self.other.suspend();
        self.suspended = true;
        self.set_active(false);
        let suspended_at = self.inner.valid().then(|| self.inner.key());
        assert_eq!(
            suspended_at,
            key.as_deref(),
            "a suspended cursor keeps its position"
        );
    }
}
