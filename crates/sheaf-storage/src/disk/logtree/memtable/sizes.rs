//! The change in a table's entry count that a generation makes, as of any sequence.
//!
//! Each batch that changes the count adds a record to a linked list, most recently pushed first:
//!
//! ```text
//!   head ──> 9: +1, total 4 ──> 7: -1, total 3 ──> 8: +2, total 4 ──> 5: +2, total 2
//!            newest 9           newest 8           newest 8           newest 5
//! ```
//!
//! A snapshot that sees everything reads the head. An older one subtracts the records that it does
//! not see, and stops at the first record below which nothing is newer than the snapshot. `newest`
//! is needed because batches do not push in the order of their sequences.
//!
//! When the table is emptied, dropped or created, the total restarts from zero.

use super::arena::Room;
use crate::disk::logtree::sync::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

struct Record {
    below: *mut Record,
    seq: u64,
    /// The newest sequence of this record and all records below.
    newest: u64,
    entries: i64,
    /// Sum of this record and all records below that are not older than the last restart.
    total: i64,
}

/// See the module's head. Must not outlive the arena of the rooms that it is given.
#[derive(Default)]
pub(super) struct Sizes {
    head: AtomicPtr<Record>,
    /// Sequence of the last restart.
    begun: AtomicU64,
    key_bytes: AtomicI64,
    value_bytes: AtomicI64,
}

/// The change that a batch, or a generation, makes to a table's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::disk::logtree) struct Delta {
    pub(in crate::disk::logtree) entries: i64,
    pub(in crate::disk::logtree) key_bytes: i64,
    pub(in crate::disk::logtree) value_bytes: i64,
}

impl Delta {
    /// Adds the change of one key from a value of length `before` to one of length `after`; `None`
    /// is no entry.
    pub(in crate::disk::logtree) fn add(
        &mut self,
        key: &[u8],
        before: Option<usize>,
        after: Option<usize>,
    ) {
        let there = |len: Option<usize>| i64::from(len.is_some());
        self.entries += there(after) - there(before);
        self.key_bytes += key.len() as i64 * (there(after) - there(before));
        self.value_bytes += after.unwrap_or(0) as i64 - before.unwrap_or(0) as i64;
    }
}

impl Sizes {
    /// Adds the change made by a batch.
    ///
    /// # Safety
    /// `room` is of the arena that the sizes live with.
    pub(super) unsafe fn add(&self, room: &mut Room<'_>, seq: u64, delta: Delta) {
        if delta.key_bytes != 0 {
            self.key_bytes.fetch_add(delta.key_bytes, Ordering::Relaxed);
        }
        if delta.value_bytes != 0 {
            self.value_bytes
                .fetch_add(delta.value_bytes, Ordering::Relaxed);
        }
        if delta.entries != 0 {
            self.push(room, seq, delta.entries);
        }
    }

    /// Restarts from zero: changes older than `seq` no longer count.
    ///
    /// # Safety
    /// As for [`Sizes::add`].
    pub(super) unsafe fn begin(&self, room: &mut Room<'_>, seq: u64) {
        self.begun.fetch_max(seq, Ordering::AcqRel);
        self.key_bytes.store(0, Ordering::Relaxed);
        self.value_bytes.store(0, Ordering::Relaxed);
        self.push(room, seq, 0);
    }

    fn push(&self, room: &mut Room<'_>, seq: u64, entries: i64) {
        let record = room.piece(size_of::<Record>()).cast::<Record>();
        loop {
            let below = self.head.load(Ordering::Acquire);
            // SAFETY: `push` wrote the complete record before it became the head, in the arena that
            // the sizes live with, as its callers guarantee.
            let (newest, total) = match unsafe { below.as_ref() } {
                Some(below) => (below.newest, below.total),
                None => (0, 0),
            };
            // The record of a restart is pushed after `begun` is raised: if it is seen too late
            // here, the exchange fails.
            let begun = self.begun.load(Ordering::Acquire);
            let total = if seq < begun {
                total
            } else if newest < begun {
                entries
            } else if seq == begun && entries == 0 {
                // Newer batches were pushed before the restart.
                self.walk(below, begun, u64::MAX)
            } else {
                total + entries
            };
            // SAFETY: the piece has this size and alignment, and no other thread accesses it until
            // the exchange succeeds.
            unsafe {
                record.write(Record {
                    below,
                    seq,
                    newest: newest.max(seq),
                    entries,
                    total,
                });
            }
            let pushed = self.head.compare_exchange(
                below,
                record.as_ptr(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if pushed.is_ok() {
                return;
            }
        }
    }

    /// The sum over the records from `at` down with sequences from `floor` to `visible`.
    fn walk(&self, mut at: *mut Record, floor: u64, visible: u64) -> i64 {
        let mut sum = 0;
        // SAFETY: as in `push`.
        while let Some(record) = unsafe { at.as_ref() } {
            if (floor..=visible).contains(&record.seq) {
                sum += record.entries;
            }
            at = record.below;
        }
        sum
    }

    /// The entries added by batches with sequences from `floor` to `visible`. `floor` is the last
    /// restart that is not newer than `visible`, or 0.
    pub(super) fn entries(&self, floor: u64, visible: u64) -> i64 {
        let mut sum = 0;
        let mut at = self.head.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        // SAFETY: as in `push`.
        while let Some(record) = unsafe { at.as_ref() } {
            if record.newest <= visible && begun <= floor {
                // If there was no restart after the floor, the total is the sum of exactly the
                // records that are not older than the floor.
                let total = if record.newest < floor {
                    0
                } else {
                    record.total
                };
                return sum + total;
            }
            if (floor..=visible).contains(&record.seq) {
                sum += record.entries;
            }
            at = record.below;
        }
        sum
    }

    /// The sums of key and value lengths added since the last restart.
    pub(super) fn bytes(&self) -> (i64, i64) {
        let key_bytes = self.key_bytes.load(Ordering::Relaxed);
        (key_bytes, self.value_bytes.load(Ordering::Relaxed))
    }
}

const _: () = assert!(align_of::<Record>() <= super::arena::ALIGN);
