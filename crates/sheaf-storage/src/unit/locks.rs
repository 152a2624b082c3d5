//! The lock table: the first writer of a key wins.
//!
//! A lock is on a table and any bytes that its callers agree on: the key of a record, the key of an
//! entry in a unique index, the name of a collection.
//!
//! ```text
//!   unit A  begin 7 ── lock k ── apply ── publish k: 8 ── release k
//!   unit B  begin 7 ───────── lock k: held ──────────────── lock k: 8 > 7, conflict
//!   unit C                                                  begin 8 ── lock k: fine
//! ```
//!
//! For every key the table holds its holder, and the sequence of the last unit that committed under
//! it. A unit reads the newest published sequence *before* it takes its snapshot, and a committer
//! publishes *after* its batch has become visible and before it releases its locks. If a key's
//! sequence is not newer than the unit's begin, the snapshot therefore contains that committer's
//! writes. Conversely, a conflict may be reported although the snapshot contains the write: a false
//! conflict costs a retry, a missed one would lose an update.
//!
//! A key's sequence is needed only by units that began before it was published: it is kept while
//! one of those is open and removed after.
//!
//! Invariant: a unit waits only while it holds nothing, so no cycle of waiting units can arise.

use std::collections::hash_map::{HashMap, RandomState};
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::engine::TableId;
use crate::error::{Result, StorageError};

const SHARDS: usize = 64;

/// How to treat a key that another unit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Return `WriteConflict` immediately.
    Fail,
    /// Wait for the holder to finish, but no longer than the limit. Only a unit that holds no lock
    /// waits; any other unit fails immediately, because it could be part of a cycle.
    Wait {
        /// Maximum duration.
        limit: Duration,
    },
}

/// Identifies a unit; unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitId(u64);

/// The result of an attempt to lock.
pub(super) enum Locked {
    /// The unit holds the key now, and its snapshot is current for it.
    Taken,
    /// The unit held it before.
    Already,
    /// The unit waited and now holds the key, but the former holder has committed a write that the
    /// unit's snapshot does not see.
    Stale,
}

/// The name of a lock: the table's number, then the key.
pub(super) fn lock_name(table: TableId, key: &[u8]) -> Bytes {
    let mut name = Vec::with_capacity(8 + key.len());
    name.extend_from_slice(&table.0.to_be_bytes());
    name.extend_from_slice(key);
    Bytes::from(name)
}

pub(super) struct LockTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    units: Mutex<Units>,
    /// Entries that are kept only for their sequence, in all shards.
    retained: AtomicUsize,
    /// Units that are waiting for a lock.
    waiting: AtomicUsize,
    pub(super) conflicts: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) timeouts: AtomicU64,
}

#[derive(Default)]
struct Units {
    /// The newest sequence published.
    published: u64,
    last_unit: u64,
    /// Begin sequences of the open units, and how many units have each.
    begins: BTreeMap<u64, usize>,
}

impl Units {
    fn enter(&mut self) -> u64 {
        *self.begins.entry(self.published).or_default() += 1;
        self.published
    }

    fn leave(&mut self, begin: u64) {
        debug_assert!(self.begins.contains_key(&begin), "a unit ends once");
        if let Some(count) = self.begins.get_mut(&begin) {
            *count -= 1;
            if *count == 0 {
                self.begins.remove(&begin);
            }
        }
    }

    /// The sequence up to which no open or future unit needs the published sequences.
    fn forgettable(&self) -> u64 {
        self.begins.keys().next().copied().unwrap_or(self.published)
    }
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Bytes, Entry>,
    /// Entries kept for their sequence, ordered by it (an entry published again is listed again).
    retained: VecDeque<(u64, Bytes)>,
}

#[derive(Default)]
struct Entry {
    holder: Option<UnitId>,
    /// Sequence of the last unit that committed under this lock; 0 if no unit needs it.
    published: u64,
    /// Waiting units in order of arrival; empty while there is no holder.
    waiters: VecDeque<(UnitId, Arc<Condvar>)>,
}

impl LockTable {
    pub(super) fn new() -> LockTable {
        LockTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            units: Mutex::default(),
            retained: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            conflicts: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }

    /// Registers a unit and returns its name and its begin sequence. Take the unit's snapshot after
    /// this.
    pub(super) fn begin(&self) -> (UnitId, u64) {
        let mut units = self.units.lock();
        units.last_unit += 1;
        (UnitId(units.last_unit), units.enter())
    }

    /// Replaces the unit's begin sequence `begin` by a new one. Take its new snapshot after this.
    pub(super) fn begin_again(&self, begin: u64) -> u64 {
        let mut units = self.units.lock();
        units.leave(begin);
        units.enter()
    }

    /// Whether any unit is waiting for a lock.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(super) fn open_units(&self) -> u64 {
        self.units.lock().begins.values().sum::<usize>() as u64
    }

    /// Number of keys that the table knows, for tests of its garbage collection.
    pub(super) fn known_keys(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().entries.len())
            .sum()
    }

    /// Takes the lock for a unit that began at `begin`.
    /// Errors: `WriteConflict` (the lock is not held then), `LockTimeout`.
    pub(super) fn lock(
        &self,
        unit: UnitId,
        begin: u64,
        name: &Bytes,
        mode: LockMode,
    ) -> Result<Locked> {
        let mut state = self.shard(name).lock();
        // If the entry is new, the lock is taken below, so a refused lock leaves no entry.
        let entry = state.entries.entry(name.clone()).or_default();
        debug_assert!(
            entry.holder.is_some() || entry.waiters.is_empty(),
            "a lock is handed to a waiter when it is released"
        );
        let limit = match (entry.holder, mode) {
            (Some(holder), _) if holder == unit => return Ok(Locked::Already),
            (None, _) if entry.published <= begin => {
                entry.holder = Some(unit);
                return Ok(Locked::Taken);
            }
            (Some(_), LockMode::Wait { limit }) => limit,
            _ => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                return Err(StorageError::WriteConflict);
            }
        };
        let handed_over = Arc::new(Condvar::new());
        entry.waiters.push_back((unit, handed_over.clone()));
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        let until = since.checked_add(limit);
        loop {
            // A limit beyond the range of `Instant` means no limit.
            let timed_out = match until {
                Some(until) => handed_over.wait_until(&mut state, until).timed_out(),
                None => {
                    handed_over.wait(&mut state);
                    false
                }
            };
            let entry = state.entries.entry(name.clone()).or_default();
            if entry.holder == Some(unit) {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                if entry.published <= begin {
                    return Ok(Locked::Taken);
                }
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                return Ok(Locked::Stale);
            }
            if timed_out {
                entry.waiters.retain(|(waiter, _)| *waiter != unit);
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                return Err(StorageError::LockTimeout {
                    waited_ms: since.elapsed().as_millis() as u64,
                });
            }
        }
    }

    /// Ends a unit that wrote nothing, or nothing that became visible.
    pub(super) fn abandon(&self, begin: u64, held: &[Bytes]) {
        let (forgettable, idle) = {
            let mut units = self.units.lock();
            units.leave(begin);
            (units.forgettable(), units.begins.is_empty())
        };
        for name in held {
            self.release(name, None, forgettable);
        }
        if idle {
            self.sweep(forgettable);
        }
    }

    /// Publishes a commit: its writes are visible already, its locks still held. Returns the
    /// sequence to release them with.
    pub(super) fn publish(&self, begin: u64) -> Published {
        let mut units = self.units.lock();
        units.published += 1;
        units.leave(begin);
        Published {
            seq: units.published,
            forgettable: units.forgettable(),
            idle: units.begins.is_empty(),
        }
    }

    /// Releases the locks of a unit that has published.
    pub(super) fn release_published(&self, published: &Published, held: &[Bytes]) {
        // If no older unit is open the sequence is not needed: units that begin from now on see the
        // writes.
        let keep = (published.forgettable < published.seq).then_some(published.seq);
        for name in held {
            self.release(name, keep, published.forgettable);
        }
        if published.idle {
            self.sweep(published.forgettable);
        }
    }

    fn release(&self, name: &Bytes, published: Option<u64>, forgettable: u64) {
        let mut state = self.shard(name).lock();
        let Some(entry) = state.entries.get_mut(name) else {
            debug_assert!(false, "a lock that is held has an entry");
            return;
        };
        debug_assert!(
            entry.holder.is_some(),
            "a lock that is released has a holder"
        );
        debug_assert!(
            published.is_none_or(|seq| seq > entry.published),
            "sequences ascend"
        );
        // Pass the lock to the unit that has waited longest; the others keep waiting.
        let next = entry.waiters.pop_front();
        entry.holder = next.as_ref().map(|(unit, _)| *unit);
        if let Some(seq) = published {
            entry.published = seq;
            state.retained.push_back((seq, name.clone()));
            self.retained.fetch_add(1, Ordering::Relaxed);
        } else if next.is_none() && entry.published <= forgettable {
            state.entries.remove(name);
        }
        self.forget(&mut state, forgettable);
        if let Some((_, handed_over)) = next {
            handed_over.notify_one();
        }
    }

    /// Removes the entries whose sequence no open unit needs.
    fn forget(&self, state: &mut MutexGuard<'_, Shard>, forgettable: u64) {
        while let Some((seq, _)) = state.retained.front()
            && *seq <= forgettable
            && let Some((seq, name)) = state.retained.pop_front()
        {
            self.retained.fetch_sub(1, Ordering::Relaxed);
            if let Some(entry) = state.entries.get(&name)
                && entry.published == seq
                && entry.holder.is_none()
            {
                state.entries.remove(&name);
            }
        }
    }

    /// When the last open unit ends, clears all shards, also those that are not used again.
    fn sweep(&self, forgettable: u64) {
        if self.retained.load(Ordering::Relaxed) > 0 {
            for shard in &self.shards {
                self.forget(&mut shard.lock(), forgettable);
            }
        }
    }

    fn shard(&self, name: &Bytes) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(name);
        &self.shards[hash as usize % SHARDS]
    }
}

/// The result of [`LockTable::publish`].
pub(super) struct Published {
    pub(super) seq: u64,
    forgettable: u64,
    idle: bool,
}
