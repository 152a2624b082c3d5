//! Optimistic validation of serializable units: the data that a unit has read must be unchanged
//! when it commits.
//!
//! ```text
//!   begin ─ snapshot ─ reads: points and ranges recorded ─ commit: ─┬─ written by others since? ─> WriteConflict
//!                                                                   └─ no: applied, its own writes recorded
//! ```
//!
//! Snapshot isolation lets two units read the same data and make writes that contradict each other
//! (write skew), or miss each other's inserts (phantoms). A serializable unit is rejected if a key
//! that it read, or that is in a range that it walked, was written by a unit that committed after
//! its snapshot: its writes are then based on outdated reads. Units that commit are therefore
//! equivalent to a serial execution in the order of their commits; read-only units are equivalent
//! to an execution at their snapshot.
//!
//! This is backward validation of the read set as in optimistic concurrency control (Kung and
//! Robinson, 1981), over snapshots. It rejects more units than the test for dangerous structures of
//! Cahill, Röhm and Fekete (2008) and of Ports and Grittner (2012), which requires two consecutive
//! read-write conflicts, and needs no locks that outlive a unit.
//!
//! Invariant: while a serializable unit is open, every unit records its writes before they become
//! visible. The gate ensures that: a committing unit holds it shared, and the begin of a
//! serializable unit takes it exclusively, so that no commit is in progress when the snapshot is
//! taken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::batch::{KeyRanges, TableFate, WriteBatch};
use crate::engine::{Cursor, Snapshot, TableId};
use crate::error::{Result, StorageError};

/// Maximum number of keys recorded for open serializable units. Beyond it the oldest commits are
/// dropped, and units that began before them are rejected.
const KEYS_MAX: usize = 1 << 20;

/// Maximum number of ranges in a unit's reads of one table; beyond it they are merged into one.
const RANGES_MAX: usize = 1 << 14;

/// Shared by all units of a storage.
#[derive(Default)]
pub(super) struct Validator {
    /// Held shared while a unit commits, exclusively while a serializable unit begins.
    gate: RwLock<()>,
    /// Serializable units that are open.
    open: AtomicU64,
    log: Mutex<CommitLog>,
    /// Number of units rejected because their reads were outdated.
    pub(super) refused: AtomicU64,
}

/// The writes committed while serializable units were open.
#[derive(Default)]
struct CommitLog {
    /// Number of the next commit.
    next: u64,
    /// Commits, oldest first: the number, and the writes.
    commits: VecDeque<(u64, Arc<WriteBatch>)>,
    keys: usize,
    /// Commits below this number have been dropped.
    forgotten: u64,
    /// The open serializable units: how many began at which number.
    begins: BTreeMap<u64, usize>,
}

impl CommitLog {
    fn note(&mut self, batch: &WriteBatch) {
        let keys: usize = batch
            .tables()
            .map(|(_, writes)| writes.keys().len() + 1)
            .sum();
        debug_assert!(
            self.commits
                .back()
                .is_none_or(|(last, _)| last + 1 == self.next),
            "commits are recorded without gaps"
        );
        self.commits.push_back((self.next, Arc::new(batch.clone())));
        self.next += 1;
        self.keys += keys;
        while self.keys > KEYS_MAX
            && let Some((number, oldest)) = self.commits.pop_front()
        {
            self.keys -= size(&oldest);
            self.forgotten = number + 1;
        }
    }

    /// Drops the commits that no open unit can conflict with.
    fn leave(&mut self, begin: u64) {
        debug_assert!(self.begins.contains_key(&begin), "a unit ends once");
        if let Some(count) = self.begins.get_mut(&begin) {
            *count -= 1;
            if *count == 0 {
                self.begins.remove(&begin);
            }
        }
        let oldest = self.begins.keys().next().copied().unwrap_or(u64::MAX);
        while let Some((number, _)) = self.commits.front()
            && *number < oldest
            && let Some((_, gone)) = self.commits.pop_front()
        {
            self.keys -= size(&gone);
        }
    }
}

fn size(batch: &WriteBatch) -> usize {
    batch
        .tables()
        .map(|(_, writes)| writes.keys().len() + 1)
        .sum()
}

/// The state of a serializable unit: its read set, and when it began.
pub(super) struct TrackedUnit {
    begin: u64,
    reads: Arc<Mutex<ReadSet>>,
}

/// Held by a commit until its writes are visible.
pub(super) struct CommitGuard<'g> {
    _gate: parking_lot::RwLockReadGuard<'g, ()>,
    _log: Option<MutexGuard<'g, CommitLog>>,
}

impl Validator {
    /// Begins a serializable unit: calls `take` for its snapshot while no commit is in progress.
    pub(super) fn begin(
        &self,
        take: impl FnOnce() -> Result<Arc<dyn Snapshot>>,
    ) -> Result<(TrackedUnit, Arc<dyn Snapshot>)> {
        let _alone = self.gate.write();
        let snapshot = take()?;
        let mut log = self.log.lock();
        let begin = log.next;
        *log.begins.entry(begin).or_default() += 1;
        self.open.fetch_add(1, Ordering::AcqRel);
        let reads = Arc::new(Mutex::new(ReadSet::default()));
        let tracked = TrackedSnapshot {
            inner: snapshot,
            reads: reads.clone(),
        };
        Ok((TrackedUnit { begin, reads }, Arc::new(tracked)))
    }

    /// Called before a unit's writes become visible. The caller drops the guard once they are.
    ///
    /// Errors: `WriteConflict` if the unit is serializable and its reads are outdated.
    pub(super) fn commit(
        &self,
        unit: Option<&TrackedUnit>,
        batch: &WriteBatch,
    ) -> Result<CommitGuard<'_>> {
        let gate = self.gate.read();
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok(CommitGuard {
                _gate: gate,
                _log: None,
            });
        }
        let mut log = self.log.lock();
        let Some(unit) = unit else {
            log.note(batch);
            return Ok(CommitGuard {
                _gate: gate,
                _log: None,
            });
        };
        let reads = unit.reads.lock();
        let stale = log.forgotten > unit.begin
            || log
                .commits
                .iter()
                .rev()
                .take_while(|(number, _)| *number >= unit.begin)
                .any(|(_, written)| reads.intersects(written));
        if stale {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(StorageError::WriteConflict);
        }
        log.note(batch);
        // Held until the writes are visible: no other serializable unit may be validated in
        // between.
        Ok(CommitGuard {
            _gate: gate,
            _log: Some(log),
        })
    }

    /// Removes a serializable unit that has ended.
    pub(super) fn end(&self, unit: &TrackedUnit) {
        self.log.lock().leave(unit.begin);
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The keys that a unit has read, as ranges, table by table.
#[derive(Default)]
struct ReadSet {
    tables: HashMap<TableId, KeyRanges>,
    /// The ranges that cursors are walking.
    walks: Vec<Option<Walk>>,
}

/// The range that a cursor has walked since it was last positioned.
struct Walk {
    table: TableId,
    lo: Vec<u8>,
    /// Inclusive; `None`: the end of the table.
    hi: Option<Vec<u8>>,
}

impl Walk {
    fn extend(&mut self, key: Option<&[u8]>, forward: bool) {
        match (key, forward) {
            (Some(key), true) => {
                if let Some(hi) = &mut self.hi
                    && hi.as_slice() < key
                {
                    hi.clear();
                    hi.extend_from_slice(key);
                }
            }
            (Some(key), false) => {
                if self.lo.as_slice() > key {
                    self.lo.clear();
                    self.lo.extend_from_slice(key);
                }
            }
            (None, true) => self.hi = None,
            (None, false) => self.lo.clear(),
        }
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.lo.as_slice() <= key && self.hi.as_deref().is_none_or(|hi| key <= hi)
    }
}

/// The smallest key greater than `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

impl ReadSet {
    fn add(&mut self, table: TableId, lo: Bytes, hi: Option<Bytes>) {
        let ranges = self.tables.entry(table).or_default();
        ranges.add(lo, hi);
        if ranges.iter().count() > RANGES_MAX {
            let lo = ranges.iter().next().map(|(lo, _)| lo.clone());
            let hi = ranges.iter().last().and_then(|(_, hi)| hi.cloned());
            if let Some(lo) = lo {
                ranges.add(lo, hi);
            }
        }
    }

    fn finish(&mut self, walk: Walk) {
        let hi = walk.hi.map(|hi| successor(&hi));
        self.add(walk.table, Bytes::from(walk.lo), hi);
    }

    /// Whether the batch writes anything that was read.
    fn intersects(&self, batch: &WriteBatch) -> bool {
        batch.tables().any(|(table, writes)| {
            let walks = || {
                self.walks
                    .iter()
                    .flatten()
                    .filter(move |walk| walk.table == table)
            };
            let ranges = self.tables.get(&table);
            if ranges.is_none() && walks().next().is_none() {
                return false;
            }
            // Dropped tables and deleted ranges are rare, and always count as a conflict.
            if writes.fate() != TableFate::Kept || !writes.ranges().is_empty() {
                return true;
            }
            writes.keys().keys().any(|key| {
                ranges.is_some_and(|ranges| ranges.covering(key).is_some())
                    || walks().any(|walk| walk.covers(key))
            })
        })
    }
}

/// A snapshot that records the keys that are read from it.
struct TrackedSnapshot {
    inner: Arc<dyn Snapshot>,
    reads: Arc<Mutex<ReadSet>>,
}

impl Snapshot for TrackedSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let lo = Bytes::copy_from_slice(key);
        self.reads.lock().add(table, lo, Some(successor(key)));
        self.inner.get(table, key)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        let inner = self.inner.cursor(table)?;
        let mut reads = self.reads.lock();
        let slot = reads.walks.iter().position(Option::is_none);
        let slot = slot.unwrap_or_else(|| {
            reads.walks.push(None);
            reads.walks.len() - 1
        });
        // An empty range until the cursor is positioned.
        reads.walks[slot] = Some(Walk {
            table,
            lo: vec![0xff; 1],
            hi: Some(Vec::new()),
        });
        Ok(Box::new(TrackedCursor {
            inner,
            reads: self.reads.clone(),
            table,
            slot,
            positioned: false,
        }))
    }

    /// The number of entries does not count as a read: it serves planning.
    fn len(&self, table: TableId) -> Result<u64> {
        self.inner.len(table)
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        self.inner.contains_table(table)
    }
}

/// A cursor that records the ranges that it walks over, including gaps.
struct TrackedCursor {
    inner: Box<dyn Cursor>,
    reads: Arc<Mutex<ReadSet>>,
    table: TableId,
    slot: usize,
    positioned: bool,
}

impl TrackedCursor {
    /// Begins a new walk, from the bounds of the seek to the current position.
    fn placed(&mut self, lo: &[u8], hi: Option<&[u8]>, found: bool, forward: bool) {
        let key = found.then(|| self.inner.key());
        let mut walk = Walk {
            table: self.table,
            lo: lo.to_vec(),
            hi: hi.map(<[u8]>::to_vec),
        };
        walk.extend(key, forward);
        let mut reads = self.reads.lock();
        let before = reads.walks[self.slot].replace(walk);
        if self.positioned
            && let Some(before) = before
        {
            reads.finish(before);
        }
        self.positioned = true;
    }

    fn moved(&mut self, found: bool, forward: bool) {
        let key = found.then(|| self.inner.key());
        if let Some(walk) = &mut self.reads.lock().walks[self.slot] {
            walk.extend(key, forward);
        }
    }
}

impl Drop for TrackedCursor {
    fn drop(&mut self) {
        let mut reads = self.reads.lock();
        if let Some(walk) = reads.walks[self.slot].take()
            && self.positioned
        {
            reads.finish(walk);
        }
    }
}

impl Cursor for TrackedCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.inner.seek(key)?;
        self.placed(key, Some(key), found, true);
        Ok(found)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        let found = self.inner.seek_for_prev(key)?;
        self.placed(key, Some(key), found, false);
        Ok(found)
    }

    fn seek_first(&mut self) -> Result<bool> {
        let found = self.inner.seek_first()?;
        self.placed(&[], Some(&[]), found, true);
        Ok(found)
    }

    fn seek_last(&mut self) -> Result<bool> {
        let found = self.inner.seek_last()?;
        let from = match found {
            true => self.inner.key().to_vec(),
            false => Vec::new(),
        };
        self.placed(&from, None, found, false);
        Ok(found)
    }

    fn next(&mut self) -> Result<bool> {
        let was = self.inner.valid();
        let found = self.inner.next()?;
        if was {
            self.moved(found, true);
        }
        Ok(found)
    }

    fn prev(&mut self) -> Result<bool> {
        let was = self.inner.valid();
        let found = self.inner.prev()?;
        if was {
            self.moved(found, false);
        }
        Ok(found)
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn value_bytes(&self) -> Bytes {
        self.inner.value_bytes()
    }

    fn valid(&self) -> bool {
        self.inner.valid()
    }

    fn suspend(&mut self) {
        self.inner.suspend();
    }
}
