//! A generation's part of one table.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::RwLock;

use super::arena::Room;
use super::ranges::{Cover, Ranges};
use super::runs::{Run, Runs};
use super::sizes::Sizes;
use super::skiplist::SkipList;
use crate::engine::TableId;

/// See the module's head.
pub(in crate::disk::logtree) struct TableMem {
    pub(super) table: TableId,
    /// The next table in the same bucket of the generation's directory.
    pub(super) next: AtomicPtr<TableMem>,
    pub(super) list: SkipList,
    /// The list's number within the generation.
    pub(super) number: u32,
    pub(super) sizes: Sizes,
    /// Whether there are fates, or ranges. Set after the entry is added and before its sequence
    /// becomes visible, so a reader that may see an entry sees the flag.
    has_fates: AtomicBool,
    has_ranges: AtomicBool,
    /// The fates of the table, ascending by sequence.
    fates: RwLock<Vec<Fate>>,
    ranges: RwLock<Ranges>,
    runs: Runs,
}

/// At `seq` the table was emptied, together with everything below; since then it exists, or does
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::disk::logtree) struct Fate {
    pub(in crate::disk::logtree) seq: u64,
    pub(in crate::disk::logtree) exists: bool,
}

impl TableMem {
    /// # Safety
    /// Used no longer than the room's arena lives.
    pub(super) unsafe fn new(table: TableId, number: u32, room: &mut Room<'_>) -> TableMem {
        TableMem {
            table,
            next: AtomicPtr::default(),
            // SAFETY: guaranteed by the caller.
            list: unsafe { SkipList::new(room, number) },
            number,
            sizes: Sizes::default(),
            has_fates: AtomicBool::new(false),
            has_ranges: AtomicBool::new(false),
            fates: RwLock::default(),
            ranges: RwLock::default(),
            runs: Runs::default(),
        }
    }

    pub(super) fn add_fate(&self, fate: Fate) {
        let mut fates = self.fates.write();
        let place = fates.partition_point(|other| other.seq < fate.seq);
        fates.insert(place, fate);
        self.has_fates.store(true, Ordering::Release);
    }

    pub(super) fn add_range(&self, seq: u64, lo: &bytes::Bytes, hi: Option<&bytes::Bytes>) -> u64 {
        let grown = self.ranges.write().add(seq, lo, hi);
        self.has_ranges.store(true, Ordering::Release);
        grown
    }

    pub(in crate::disk::logtree) fn id(&self) -> TableId {
        self.table
    }

    /// The last fate that is not newer than `visible`.
    pub(in crate::disk::logtree) fn fate(&self, visible: u64) -> Option<Fate> {
        if !self.has_fates.load(Ordering::Acquire) {
            return None;
        }
        let fates = self.fates.read();
        let seen = fates.partition_point(|fate| fate.seq <= visible);
        fates[..seen].last().copied()
    }

    pub(in crate::disk::logtree) fn has_ranges(&self) -> bool {
        self.has_ranges.load(Ordering::Acquire)
    }

    /// The newest range over `key` with a sequence from `floor` to `visible`.
    pub(in crate::disk::logtree) fn cover(
        &self,
        key: &[u8],
        floor: u64,
        visible: u64,
    ) -> Option<Cover> {
        if !self.has_ranges() {
            return None;
        }
        self.ranges.read().cover(key, floor, visible)
    }

    /// A recorded run around `key` in which a snapshot at `visible` sees no key, here and below.
    #[inline]
    pub(super) fn run_over(&self, key: &[u8], visible: u64) -> Option<Run> {
        self.runs.over(key, visible)
    }

    /// Records that a snapshot at `visible` saw no key from `first` to `last`; see [`Runs::note`].
    pub(super) fn record_run(&self, first: &[u8], last: &[u8], visible: u64) {
        self.runs.note(&self.list, first, last, visible);
    }

    /// Cuts the recorded runs at the keys that a batch has put.
    pub(super) fn cut_runs<'k>(&self, puts: impl Iterator<Item = &'k [u8]>) {
        self.runs.cut(puts);
    }

    /// Adds the ranges with sequences from `floor` to `visible` to `all`.
    pub(super) fn collect_ranges(
        &self,
        floor: u64,
        visible: u64,
        all: &mut crate::batch::KeyRanges,
    ) {
        if self.has_ranges() {
            for (lo, hi) in self.ranges.read().covered(floor, visible) {
                all.add(lo.clone(), hi.cloned());
            }
        }
    }

    /// Entries that the generation adds as of `visible`, since the fate `floor` (0: since it was
    /// created).
    pub(in crate::disk::logtree) fn entries(&self, floor: u64, visible: u64) -> i64 {
        self.sizes.entries(floor, visible)
    }

    /// Sums of the lengths of keys and values that the generation adds, as of now.
    pub(in crate::disk::logtree) fn size_bytes(&self) -> (i64, i64) {
        self.sizes.bytes()
    }
}
