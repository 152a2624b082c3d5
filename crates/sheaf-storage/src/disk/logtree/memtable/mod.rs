//! A generation of the memtable: the newest writes, of all tables, every version of them.
//!
//! ```text
//!   Generation ── Bloom filter over (table, key), index of the newest versions
//!      ├─ table 0 ── skiplist of versions ─ sizes ─ fates (created, dropped, emptied) ─ ranges emptied
//!      ├─ table 7 ── ...
//!      └─ arena: all nodes of all lists
//! ```
//!
//! Writers insert concurrently, each under its batch's sequence. A reader sees the newest version
//! of each key that is not newer than its sequence, and never waits. A generation only grows. When
//! it is full it is frozen: a new one takes the writes, and a checkpoint merges the frozen one into
//! the tree. A read therefore goes through a stack:
//!
//! ```text
//!   active     sequences 900...      ┐
//!   frozen     sequences 500..900    ├─ the newest layer that has a key
//!   frozen     sequences 200..500    │  decides its value
//!   tree       sequences    ..200    ┘
//! ```
//!
//! Invariants: the sequences in a generation are all greater than those of the generations below it
//! and of the tree. All writes of a batch are inserted before its sequence becomes visible.

mod arena;
mod bloom;
mod changes;
#[cfg(all(test, explore))]
mod explore;
mod key_index;
mod node;
mod ranges;
mod retired;
mod runs;
mod sizes;
mod skiplist;
mod source;
mod table;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;

use self::arena::{Arena, Room};
use self::bloom::Bloom;
use self::key_index::{KeyIndex, Known};
use self::node::LIST_MAX;
use super::budget::MemoryBudget;
use crate::batch::Prior;
use crate::engine::TableId;

pub(super) use self::arena::thread_number;
pub(super) use self::bloom::hash;
pub(super) use self::changes::{TableOutcome, changes};
pub(super) use self::node::NodeRef;
pub(super) use self::ranges::Cover;
pub(super) use self::retired::Retired;
pub(super) use self::runs::Run;
pub(super) use self::sizes::Delta;
pub(super) use self::source::Source;
pub(super) use self::table::{Fate, TableMem};

const BUCKETS: usize = 256;

/// Number of index slots that a writer takes before it adds them to the shared counter.
const SLOTS_COUNTED: u64 = 64;

/// See the module's head.
pub(super) struct Generation {
    /// The tables, hashed by id.
    buckets: [AtomicPtr<TableMem>; BUCKETS],
    /// Filter over the keys that have been written.
    bloom: Bloom,
    index: KeyIndex,
    /// Number of tables that have been given a number.
    numbered: AtomicU32,
    arena: Arena,
    /// Whether any table has fates or ranges. If so, a key that the filter excludes may still be
    /// deleted here.
    has_more: AtomicBool,
    versions: AtomicU64,
    /// Mixed into the hash that decides a node's height, so that a client cannot choose keys that
    /// degrade a list.
    seed: u64,
}

impl Generation {
    /// An empty generation, with a filter and an index sized for `expected_bytes`. Its memory is
    /// charged to the budget until the last reader drops it.
    pub(super) fn new(expected_bytes: u64, budget: Arc<MemoryBudget>) -> Generation {
        let generation = Generation {
            buckets: [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS],
            bloom: Bloom::new(expected_bytes),
            index: KeyIndex::new(expected_bytes),
            numbered: AtomicU32::new(0),
            arena: Arena::new(budget),
            has_more: AtomicBool::new(false),
            versions: AtomicU64::new(0),
            seed: RandomState::new().hash_one(0),
        };
        let overhead = generation.bloom.bytes() + generation.index.bytes();
        generation
            .arena
            .count(overhead + size_of::<Generation>() as u64);
        generation
    }

    /// Memory held, in bytes, including large values.
    pub(super) fn bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// Versions of keys inserted.
    pub(super) fn versions(&self) -> u64 {
        self.versions.load(Ordering::Relaxed)
    }

    /// Whether nothing has been inserted.
    pub(super) fn is_empty(&self) -> bool {
        self.buckets
            .iter()
            .all(|bucket| bucket.load(Ordering::Acquire).is_null())
    }

    fn bucket(&self, table: TableId) -> &AtomicPtr<TableMem> {
        let hash = table.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &self.buckets[hash as usize % BUCKETS]
    }

    /// Whether `mem` belongs to this generation; for assertions.
    fn has(&self, mem: &TableMem) -> bool {
        self.table(mem.table)
            .is_some_and(|own| std::ptr::eq(own, mem))
    }

    /// The generation's part of a table; `None` if nothing was ever inserted into it.
    pub(super) fn table(&self, table: TableId) -> Option<&TableMem> {
        let mut at = self.bucket(table).load(Ordering::Acquire);
        // SAFETY: the directory holds tables that `table_or_new` made, whole, and that live as long
        // as the generation.
        while let Some(mem) = unsafe { at.as_ref() } {
            if mem.table == table {
                return Some(mem);
            }
            at = mem.next.load(Ordering::Acquire);
        }
        None
    }

    /// The tables that have entries in this generation, in no particular order.
    pub(super) fn tables(&self) -> impl Iterator<Item = &TableMem> {
        self.buckets.iter().flat_map(|bucket| {
            let mut at = bucket.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                // SAFETY: as in `table`.
                let mem = unsafe { at.as_ref() }?;
                at = mem.next.load(Ordering::Acquire);
                Some(mem)
            })
        })
    }

    fn table_or_new(&self, table: TableId, room: &mut Room<'_>) -> &TableMem {
        if let Some(mem) = self.table(table) {
            return mem;
        }
        // All tables beyond the limit share the last number.
        let number = self.numbered.fetch_add(1, Ordering::Relaxed).min(LIST_MAX);
        // SAFETY: the room belongs to this generation's arena, which is dropped after the tables.
        // The tables never leave the generation, and only a `Writer` inserts.
        let mem = Box::new(unsafe { TableMem::new(table, number, room) });
        self.arena.count(size_of::<TableMem>() as u64);
        let mem = Box::into_raw(mem);
        let bucket = self.bucket(table);
        loop {
            let first = bucket.load(Ordering::Acquire);
            let mut at = first;
            // SAFETY: as in `table`.
            while let Some(other) = unsafe { at.as_ref() } {
                if other.table == table {
                    // Another thread was faster.
                    // SAFETY: made above, and not shared yet.
                    drop(unsafe { Box::from_raw(mem) });
                    return other;
                }
                at = other.next.load(Ordering::Acquire);
            }
            // SAFETY: made above, and shared below only.
            unsafe { &*mem }.next.store(first, Ordering::Relaxed);
            let added = bucket.compare_exchange(first, mem, Ordering::AcqRel, Ordering::Relaxed);
            if added.is_ok() {
                // SAFETY: from now on it lives as long as the generation.
                return unsafe { &*mem };
            }
        }
    }

    /// Whether the key with this [`hash`] may have been written. Does not consider ranges and
    /// fates.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.bloom.may_contain(hash)
    }

    /// The version of the table's key, with this [`hash()`], that a snapshot at `visible` sees in
    /// this generation. Does not consider fates and ranges.
    pub(super) fn version<'g>(
        &'g self,
        mem: &'g TableMem,
        hash: u64,
        key: &[u8],
        visible: u64,
    ) -> Option<NodeRef<'g>> {
        let mut known = if mem.number < LIST_MAX {
            self.index.get(hash, mem.number, key)
        } else {
            Known::Unknown
        };
        // Step over a few versions that are newer than the snapshot.
        for _ in 0..4 {
            match known {
                Known::Absent => return None,
                Known::At(newest) if newest.seq() <= visible => return Some(newest),
                Known::At(newer) => match newer.next().filter(|older| older.same_key(newer)) {
                    Some(older) => known = Known::At(older),
                    None => return None,
                },
                Known::Unknown => break,
            }
        }
        mem.list.get(key, visible)
    }

    /// Whether a key that was not written may still have been deleted: by a range, or together with
    /// its table.
    pub(super) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Acquire)
    }

    /// Allocates from one shard of the arena for the writes of one batch.
    pub(super) fn writer(&self, seq: u64) -> Writer<'_> {
        debug_assert!(seq > 0, "sequence 0 is the empty database");
        Writer {
            generation: self,
            room: self.arena.room(),
            seq,
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let mut at = *bucket.get_mut();
            while !at.is_null() {
                // SAFETY: made by `table_or_new`, and dropped here only.
                let mut mem = unsafe { Box::from_raw(at) };
                at = *mem.next.get_mut();
            }
        }
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("versions", &self.versions())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Inserts the writes of one batch.
pub(super) struct Writer<'g> {
    generation: &'g Generation,
    room: Room<'g>,
    seq: u64,
}

/// What a new version found in the generation.
pub(super) enum Met<'g> {
    /// A newer version of the key: the new one does not change the newest state.
    Newer,
    /// An older version.
    Older(NodeRef<'g>),
    /// No version of the key.
    Nothing,
}

impl<'g> Writer<'g> {
    /// The generation's part of a table, created if it is missing.
    pub(super) fn table(&mut self, table: TableId) -> &'g TableMem {
        self.generation.table_or_new(table, &mut self.room)
    }

    /// Empties the table, in this generation and below; from this sequence on it exists, or does
    /// not.
    pub(super) fn fate(&mut self, mem: &TableMem, exists: bool) {
        debug_assert!(self.generation.has(mem));
        self.generation.has_more.store(true, Ordering::Release);
        let seq = self.seq;
        mem.add_fate(Fate { seq, exists });
        self.generation.arena.count(size_of::<Fate>() as u64);
        // SAFETY: the room is of the arena that the table lives with: it is one of this
        // generation's.
        unsafe { mem.sizes.begin(&mut self.room, seq) };
    }

    /// Deletes the keys in `[lo, hi)`, which must not be empty.
    pub(super) fn range(&mut self, mem: &TableMem, lo: &Bytes, hi: Option<&Bytes>) {
        debug_assert!(self.generation.has(mem));
        debug_assert!(hi.is_none_or(|hi| lo < hi), "an empty range");
        self.generation.has_more.store(true, Ordering::Release);
        let grown = mem.add_range(self.seq, lo, hi);
        self.generation.arena.count(grown);
    }

    /// Writes keys of a table of this generation, in ascending order; `None` deletes the key. Calls
    /// `met` for each key with what the generation held for it.
    pub(super) fn keys<'k>(
        &mut self,
        mem: &'g TableMem,
        keys: impl Iterator<Item = (&'k [u8], Option<&'k Bytes>, Prior)> + Clone,
        mut met: impl FnMut(&'k [u8], Option<&'k Bytes>, Prior, Met<'g>),
    ) {
        let generation = self.generation;
        debug_assert!(generation.has(mem));
        debug_assert!(
            keys.clone().is_sorted_by(|a, b| a.0 < b.0),
            "a batch's keys ascend, each once"
        );
        let mut splice = mem.list.splice();
        let (mut count, mut slots) = (0, 0);
        for (key, value, prior) in keys.clone() {
            let hash = hash(mem.table.0, key);
            generation.bloom.insert(hash);
            let levels = (hash ^ generation.seed ^ self.seq.rotate_left(32))
                .wrapping_mul(0xd6e8_feb8_6659_fd93);
            let inserted = mem.list.insert(
                &mut self.room,
                &mut splice,
                key,
                self.seq,
                value,
                levels >> 32,
            );
            count += 1;
            // SAFETY: the index and the node's arena are dropped together with the generation.
            let enter = || unsafe { generation.index.enter(hash, mem.number, inserted.node) };
            if mem.number < LIST_MAX && enter() {
                slots += 1;
                if slots == SLOTS_COUNTED {
                    generation.index.count(slots);
                    slots = 0;
                }
            }
            let was = if inserted.has_newer {
                Met::Newer
            } else {
                inserted.older.map_or(Met::Nothing, Met::Older)
            };
            met(key, value, prior, was);
        }
        mem.cut_runs(keys.filter_map(|(key, value, _)| value.map(|_| key)));
        generation.versions.fetch_add(count, Ordering::Relaxed);
        generation.index.count(slots);
    }

    /// Adds to the size of a table of this generation.
    pub(super) fn resize(&mut self, mem: &TableMem, delta: Delta) {
        debug_assert!(self.generation.has(mem));
        // SAFETY: as in `fate`.
        unsafe { mem.sizes.add(&mut self.room, self.seq, delta) };
    }
}
