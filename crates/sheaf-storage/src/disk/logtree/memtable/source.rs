//! A walk over one generation's versions of a table's keys as of one sequence, in either direction.
//!
//! ```text
//!   list       a@9  a@4  a@2 │ b@12 │ c@7(gone)  c@1 │ d@3
//!   seen at 8       a@4                c@7(gone)       d@3
//! ```
//!
//! The walk is positioned on the visible version of a key, including deletions, which may hide a
//! version further down the stack. A hot key may have thousands of versions, so after a few steps
//! over versions of one key the walk searches instead.

use super::node::{NodeRef, head_of};
use super::ranges::Cover;
use super::runs::Run;
use super::table::TableMem;

/// Maximum number of versions of one key that are stepped over before searching.
const STEPS_MAX: usize = 4;

/// See the module's head.
pub(in crate::disk::logtree) struct Source<'g> {
    mem: &'g TableMem,
    /// The sequence at which the table was last emptied, which hides older versions; 0 if it was
    /// not.
    floor: u64,
    visible: u64,
    has_ranges: bool,
    /// The version on which the walk is positioned.
    pub(in crate::disk::logtree) at: Option<NodeRef<'g>>,
}

impl<'g> Source<'g> {
    /// A source that is not yet positioned. `None` if the generation has neither keys nor ranges of
    /// the table.
    pub(in crate::disk::logtree) fn new(
        mem: &'g TableMem,
        floor: u64,
        visible: u64,
    ) -> Option<Source<'g>> {
        let has_ranges = mem.has_ranges();
        // A version that is inserted later is newer than `visible`.
        (has_ranges || mem.list.first().is_some()).then_some(Source {
            mem,
            floor,
            visible,
            has_ranges,
            at: None,
        })
    }

    /// The newest visible range over `key`.
    #[inline]
    pub(in crate::disk::logtree) fn cover(&self, key: &[u8]) -> Option<Cover> {
        if !self.has_ranges {
            return None;
        }
        self.mem.cover(key, self.floor, self.visible)
    }

    /// A run around `key` in which no key is visible, here and below.
    #[inline]
    pub(in crate::disk::logtree) fn run_over(&self, key: &[u8]) -> Option<Run> {
        self.mem.run_over(key, self.visible)
    }

    /// Records that no key is visible from `first` to `last`, here and below. This generation must
    /// hold a version of at least one of these keys.
    pub(in crate::disk::logtree) fn record_run(&self, first: &[u8], last: &[u8]) {
        self.mem.record_run(first, last, self.visible);
    }

    pub(in crate::disk::logtree) fn seek_first(&mut self) {
        self.at = self.seen_from(self.mem.list.first());
    }

    pub(in crate::disk::logtree) fn seek_last(&mut self) {
        self.at = self.seen_back_from(self.mem.list.last());
    }

    /// Moves to the first key at or after `key`.
    pub(in crate::disk::logtree) fn seek(&mut self, key: &[u8]) {
        let from = self.mem.list.at_or_after(key, self.visible);
        self.at = self.seen_from(from);
    }

    /// Moves to the last key at or before `key`.
    pub(in crate::disk::logtree) fn seek_for_prev(&mut self, key: &[u8]) {
        self.at = self.seen_back_from(self.mem.list.before(key, 0));
    }

    /// Moves to the first key after `key`.
    pub(in crate::disk::logtree) fn seek_after(&mut self, key: &[u8]) {
        self.at = self.seen_from(self.mem.list.at_or_after(key, 0));
    }

    /// Moves to the last key before `key`.
    pub(in crate::disk::logtree) fn seek_before(&mut self, key: &[u8]) {
        self.at = self.seen_back_from(self.mem.list.before(key, u64::MAX));
    }

    /// Moves to the next key.
    #[inline]
    pub(in crate::disk::logtree) fn next(&mut self) {
        if let Some(at) = self.at {
            self.at = self.seen_from(self.after_key(at));
        }
    }

    /// Moves to the previous key.
    #[inline]
    pub(in crate::disk::logtree) fn prev(&mut self) {
        if let Some(at) = self.at {
            self.at = self.seen_back_from(self.before_key(at));
        }
    }

    /// The newest version of the next key.
    #[inline]
    fn after_key(&self, at: NodeRef<'g>) -> Option<NodeRef<'g>> {
        let mut next = at.next()?;
        let mut steps = 0;
        while next.same_key(at) {
            steps += 1;
            if steps > STEPS_MAX {
                return self.mem.list.at_or_after(at.key(), 0);
            }
            next = next.next()?;
        }
        Some(next)
    }

    /// The oldest version of the previous key.
    #[inline]
    fn before_key(&self, at: NodeRef<'g>) -> Option<NodeRef<'g>> {
        let list = &self.mem.list;
        let mut before = list.prev(at)?;
        let mut steps = 0;
        while before.same_key(at) {
            steps += 1;
            if steps > STEPS_MAX {
                return list.before(at.key(), u64::MAX);
            }
            before = list.prev(before)?;
        }
        Some(before)
    }

    /// The visible version of the key of `from`, or of the next key that has one. `from` must not
    /// be older than it.
    #[inline]
    fn seen_from(&self, mut from: Option<NodeRef<'g>>) -> Option<NodeRef<'g>> {
        let mut steps = 0;
        loop {
            let at = from?;
            if at.seq() <= self.visible {
                if at.seq() >= self.floor {
                    return Some(at);
                }
                from = self.after_key(at);
                steps = 0;
                continue;
            }
            from = at.next();
            steps += 1;
            if steps > STEPS_MAX && from.is_some_and(|next| next.same_key(at)) {
                from = self.mem.list.at_or_after(at.key(), self.visible);
                steps = 0;
            }
        }
    }

    /// The visible version of the key of `from`, or of the nearest key before that has one. `from`
    /// must be the oldest version of its key.
    #[inline]
    fn seen_back_from(&self, mut from: Option<NodeRef<'g>>) -> Option<NodeRef<'g>> {
        let list = &self.mem.list;
        loop {
            let oldest = from?;
            if oldest.seq() > self.visible {
                from = self.before_key(oldest);
                continue;
            }
            let mut seen = oldest;
            let mut steps = 0;
            while let Some(newer) = list.prev(seen) {
                if newer.seq() > self.visible || !newer.same_key(seen) {
                    break;
                }
                seen = newer;
                steps += 1;
                if steps > STEPS_MAX {
                    // Finds `seen` at the latest, as it is a version of this key.
                    seen = list.at_or_after(seen.key(), self.visible).unwrap_or(seen);
                    break;
                }
            }
            if seen.seq() >= self.floor {
                return Some(seen);
            }
            from = self.before_key(seen);
        }
    }

    /// Compares the current key with another, heads first.
    #[inline]
    pub(in crate::disk::logtree) fn compare(at: NodeRef<'_>, key: &[u8]) -> std::cmp::Ordering {
        at.compare_key(head_of(key), key)
    }
}
