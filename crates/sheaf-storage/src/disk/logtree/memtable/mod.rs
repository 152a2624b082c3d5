//! A generation of the memtable: the newest writes, of all tables, every version of them.
//!
//! ```text
//!   Generation ── Bloom filter over (table, key), index of the newest versions
//!      ├─ table 0 ── skiplist of versions ─ sizes ─ fates (created, dropped, emptied) ─ ranges emptied
//!      ├─ table 7 ── ...
//!      └─ arena: all nodes of all lists
//! ```
//!
//! Writers insert side by side, each under its batch's sequence; readers see of each key the version that their
//! sequence allows, and never wait. A generation only grows. When it is full it is frozen: another one takes
//! the writes, and a checkpoint brings it into the tree. So a database is read through a stack:
//!
//! ```text
//!   active     sequences 900...      ┐
//!   frozen     sequences 500..900    ├─ the newest that has a key says what it is
//!   frozen     sequences 200..500    │
//!   tree       sequences    ..200    ┘
//! ```
//!
//! Invariants: sequences of a generation are all greater than those of the generations below it and of the tree.
//! What a batch does is inserted whole before its sequence becomes visible to anybody.

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

/// How many slots of the index a writer takes before it counts them.
const SLOTS_COUNTED: u64 = 64;

/// See the module's head.
pub(super) struct Generation {
    /// The tables, found by their number.
    buckets: [AtomicPtr<TableMem>; BUCKETS],
    /// Which keys have been written, and where their newest versions are.
    bloom: Bloom,
    index: KeyIndex,
    /// How many tables have been numbered.
    numbered: AtomicU32,
    arena: Arena,
    /// Whether any table has fates or ranges: then the filter alone does not tell that there is nothing.
    has_more: AtomicBool,
    versions: AtomicU64,
    /// Mixed into what decides a node's height, so that nobody can choose keys that make a list slow.
    seed: u64,
}

impl Generation {
    /// An empty one, whose filter is made for so many bytes. Its memory is charged to the budget until the last
    /// reader has gone.
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
        let beside = generation.bloom.bytes() + generation.index.bytes();
        generation
            .arena
            .count(beside + size_of::<Generation>() as u64);
        generation
    }

    /// Memory held, in bytes, large values included.
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

    /// Whether what is held of a table is held here. Asked by assertions.
    fn has(&self, mem: &TableMem) -> bool {
        self.table(mem.table)
            .is_some_and(|own| std::ptr::eq(own, mem))
    }

    /// What is held of a table; `None` when nothing was ever inserted.
    pub(super) fn table(&self, table: TableId) -> Option<&TableMem> {
        let mut at = self.bucket(table).load(Ordering::Acquire);
        // SAFETY: the directory holds tables that `table_or_new` made, whole, and that live as long as the generation.
        while let Some(mem) = unsafe { at.as_ref() } {
            if mem.table == table {
                return Some(mem);
            }
            at = mem.next.load(Ordering::Acquire);
        }
        None
    }

    /// The tables of which something is held, in no order.
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
        // The last number is shared by all tables that come too late for one of their own.
        let number = self.numbered.fetch_add(1, Ordering::Relaxed).min(LIST_MAX);
        // SAFETY: the room is of this generation's arena, which is dropped after the tables; they go nowhere else, and
        // only a `Writer` inserts.
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
                    // Somebody else was faster.
                    // SAFETY: made above, and known to nobody else.
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

    /// Whether the key with this [`hash`] may have been written; ranges and fates aside.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.bloom.may_contain(hash)
    }

    /// The version of the table's key, with this [`hash()`], that a snapshot at `visible` sees here; fates
    /// and ranges aside.
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
        // A few versions newer than the snapshot are stepped over.
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

    /// Whether a key that was not written may still have been removed: by a range, or with its table.
    pub(super) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::Acquire)
    }

    /// Takes room for the writes of a batch.
    pub(super) fn writer(&self, seq: u64) -> Writer<'_> {
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

/// What a written version met in the generation.
pub(super) enum Met<'g> {
    /// A newer version of the key: this one changes nothing for the newest state.
    Newer,
    /// An older version.
    Older(NodeRef<'g>),
    /// No version of the key.
    Nothing,
}

impl<'g> Writer<'g> {
    /// What is, from now on, held of the table.
    pub(super) fn table(&mut self, table: TableId) -> &'g TableMem {
        self.generation.table_or_new(table, &mut self.room)
    }

    /// The table, of this generation, and all that lies below is emptied; from now on it exists or not.
    pub(super) fn fate(&mut self, mem: &TableMem, exists: bool) {
        debug_assert!(self.generation.has(mem));
        self.generation.has_more.store(true, Ordering::Release);
        let seq = self.seq;
        mem.add_fate(Fate { seq, exists });
        self.generation.arena.count(size_of::<Fate>() as u64);
        // SAFETY: the room is of the arena that the table lives with: it is one of this generation's.
        unsafe { mem.sizes.begin(&mut self.room, seq) };
    }

    /// The keys in `[lo, hi)` are gone, which is not empty.
    pub(super) fn range(&mut self, mem: &TableMem, lo: &Bytes, hi: Option<&Bytes>) {
        self.generation.has_more.store(true, Ordering::Release);
        let grown = mem.add_range(self.seq, lo, hi);
        self.generation.arena.count(grown);
    }

    /// Writes keys of a table of this generation that come in ascending order, `None` for a key that is gone. `met` is
    /// told of each what was there in this generation.
    pub(super) fn keys<'k>(
        &mut self,
        mem: &'g TableMem,
        keys: impl Iterator<Item = (&'k [u8], Option<&'k Bytes>, Prior)> + Clone,
        mut met: impl FnMut(&'k [u8], Option<&'k Bytes>, Prior, Met<'g>),
    ) {
        let generation = self.generation;
        debug_assert!(generation.has(mem));
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
            // SAFETY: the index goes with the generation, as does the arena that the node is in.
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
