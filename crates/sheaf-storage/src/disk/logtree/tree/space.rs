//! Space management: which granules of the file are free, in use, or waiting until no roots see
//! them.
//!
//! ```text
//!   allocate            attach (commit)            release (commit)          no roots see it
//!   free ──────> owned ────────────────> live ───────────────────> waiting ────────────────> free
//!        <────── by a writer or builder      visible to roots of        seen by roots in
//!          abandoned                         birth and later            [birth, death)
//! ```
//!
//! Every commit has a version. Roots refer to runs that were born at or before their version and
//! were not released by then. A waiting run becomes free as soon as no pinned version is between
//! its birth and its death: an old snapshot pins what it uses, but not runs that were both written
//! and released after it.
//!
//! Invariant: the free, waiting, owned and live runs together are the granules from
//! [`FIRST_GRANULE`] to `end`, each exactly once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::pointer::{FIRST_GRANULE, Run};

/// Runs of at least this length form one class.
const BIG: usize = 64;
/// Number of granules that a writer allocates at a time if possible, so that its pages are
/// adjacent.
pub(super) const CHUNK: u64 = 256;
/// Maximum number of free runs with which debug builds check each commit for overlaps.
const RUNS_CHECKED_MAX: usize = 256;

/// Free runs, neither overlapping nor touching, indexed by start and by length.
#[derive(Clone, Default)]
pub(super) struct FreeRuns {
    by_start: BTreeMap<u64, u64>,
    /// Starts of the runs of each length below `BIG`; index 0 is for `BIG` and more.
    classes: Vec<BTreeSet<u64>>,
    granules: u64,
}

impl FreeRuns {
    fn class(len: u64) -> usize {
        if len < BIG as u64 { len as usize } else { 0 }
    }

    fn link(&mut self, start: u64, len: u64) {
        debug_assert!(len > 0, "an empty run");
        self.classes.resize_with(BIG, BTreeSet::new);
        self.by_start.insert(start, len);
        self.classes[Self::class(len)].insert(start);
        self.granules += len;
    }

    fn unlink(&mut self, start: u64, len: u64) {
        let removed = self.by_start.remove(&start);
        debug_assert_eq!(
            removed,
            Some(len),
            "a run is indexed twice, by start and by length"
        );
        self.classes[Self::class(len)].remove(&start);
        self.granules -= len;
    }

    /// Adds a run, joined with its neighbours. Returns `false`, and adds nothing, if part of it is
    /// already free.
    #[must_use]
    pub(super) fn add(&mut self, run: Run) -> bool {
        if run.len == 0 {
            return true;
        }
        let (mut start, mut end) = (run.start, run.end());
        if let Some((next, next_len)) = self.by_start.range(run.start..).next() {
            let (next, next_len) = (*next, *next_len);
            if next < end {
                return false;
            }
            if next == end {
                self.unlink(next, next_len);
                end = next + next_len;
            }
        }
        if let Some((before, before_len)) = self.by_start.range(..run.start).next_back() {
            let (before, before_len) = (*before, *before_len);
            if before + before_len > run.start {
                return false;
            }
            if before + before_len == run.start {
                self.unlink(before, before_len);
                start = before;
            }
        }
        self.link(start, end - start);
        true
    }

    fn take_from(&mut self, start: u64, want: u64) -> Run {
        let len = self.by_start[&start];
        self.unlink(start, len);
        let taken = want.min(len);
        if len > taken {
            self.link(start + taken, len - taken);
        }
        Run { start, len: taken }
    }

    /// Takes between `need` and `want` granules in one run; `None` if there is no such run.
    fn take(&mut self, need: u64, want: u64) -> Option<Run> {
        if self.classes.is_empty() {
            return None;
        }
        // Prefer the lowest long run: pages written together are then adjacent, and the end of the
        // file becomes empty.
        let fits = |start: &&u64| self.by_start[*start] >= need;
        if let Some(start) = self.classes[0].iter().find(fits).copied() {
            return Some(self.take_from(start, want));
        }
        // Otherwise take the longest of the short runs: there are fewer writes, and the remainder
        // is joined with adjacent runs that are freed later.
        let lengths = (need.min(BIG as u64) as usize..BIG).rev();
        let start = lengths
            .filter_map(|len| self.classes[len].first().copied())
            .next()?;
        Some(self.take_from(start, want))
    }

    /// Takes the lowest run that ends at or before `limit`.
    fn take_below(&mut self, need: u64, limit: u64) -> Option<Run> {
        let (start, _) = self
            .by_start
            .range(..limit)
            .take(1024)
            .find(|(start, len)| **len >= need && *start + need <= limit)?;
        Some(self.take_from(*start, need))
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Run> {
        self.by_start.iter().map(|(start, len)| Run {
            start: *start,
            len: *len,
        })
    }

    pub(super) fn granules(&self) -> u64 {
        self.granules
    }

    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Removes the run that ends at `end`, if there is one, and returns the new end.
    pub(super) fn trim(&mut self, end: u64) -> u64 {
        match self.by_start.last_key_value() {
            Some((start, len)) if start + len == end => {
                let (start, len) = (*start, *len);
                self.unlink(start, len);
                start
            }
            _ => end,
        }
    }

    /// Whether any granule of the run is free.
    pub(super) fn overlaps(&self, run: Run) -> bool {
        let before = self.by_start.range(..run.end()).next_back();
        before.is_some_and(|(start, len)| start + len > run.start)
    }

    /// The format of the list in the file: gap and length of each run, as variable-length numbers.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 * self.by_start.len());
        let mut at = 0;
        for run in self.iter() {
            write_number(&mut bytes, run.start - at);
            write_number(&mut bytes, run.len);
            at = run.end();
        }
        bytes
    }

    /// Parses a list; `None` if it is invalid, leaves `[FIRST_GRANULE, end)`, or reaches `end`.
    pub(super) fn decode(mut bytes: &[u8], end: u64) -> Option<FreeRuns> {
        let mut runs = FreeRuns::default();
        let mut at = 0_u64;
        while !bytes.is_empty() {
            let start = at.checked_add(read_number(&mut bytes)?)?;
            let len = read_number(&mut bytes)?;
            at = start.checked_add(len)?;
            // Runs that touch would have been joined.
            let first = runs.by_start.is_empty();
            let touches = !first
                && runs.overlaps(Run {
                    start: start.checked_sub(1)?,
                    len: 1,
                });
            if start < FIRST_GRANULE || len == 0 || at >= end || touches {
                return None;
            }
            runs.link(start, len);
        }
        Some(runs)
    }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for index in 0..9 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Identifies a writer of pages that no roots see yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner(u64);

/// A run that some roots may still see.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    run: Run,
    birth: u32,
    death: u32,
}

/// The space of one file.
pub(super) struct Space {
    end: u64,
    free: FreeRuns,
    waiting: Vec<Waiting>,
    waiting_granules: u64,
    owned: HashMap<Owner, FreeRuns>,
    owners: u64,
    /// Versions of the live roots, with the number of roots of each.
    pins: BTreeMap<u32, u64>,
}

impl Space {
    pub(super) fn new(end: u64, free: FreeRuns) -> Space {
        Space {
            end,
            free,
            waiting: Vec::new(),
            waiting_granules: 0,
            owned: HashMap::new(),
            owners: 0,
            pins: BTreeMap::new(),
        }
    }

    pub(super) fn pin(&mut self, version: u32) {
        *self.pins.entry(version).or_default() += 1;
    }

    /// Undoes a [`Space::pin`]. The next [`Space::collect`] frees the runs that this released.
    pub(super) fn unpin(&mut self, version: u32) {
        debug_assert!(
            self.pins.contains_key(&version),
            "version {version} is not pinned"
        );
        if let Some(count) = self.pins.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&version);
            }
        }
    }

    pub(super) fn owner(&mut self) -> Owner {
        self.owners += 1;
        let owner = Owner(self.owners);
        self.owned.insert(owner, FreeRuns::default());
        owner
    }

    /// Takes between `need` and `want` granules for `owner`, from the free ones or after the end.
    pub(super) fn allocate(&mut self, owner: Owner, need: u64, want: u64) -> Run {
        let run = self.free.take(need, want).unwrap_or_else(|| {
            // Free space at the end is extended, not left as a gap.
            let start = self.free.trim(self.end);
            self.end = start + want;
            Run { start, len: want }
        });
        debug_assert!((need..=want).contains(&run.len) && run.end() <= self.end);
        self.own(owner, run);
        run
    }

    /// Takes `need` granules before `limit`; `None` if there is no such run.
    pub(super) fn allocate_below(&mut self, owner: Owner, need: u64, limit: u64) -> Option<Run> {
        let run = self.free.take_below(need, limit)?;
        debug_assert!(run.len == need && run.end() <= limit);
        self.own(owner, run);
        Some(run)
    }

    fn own(&mut self, owner: Owner, run: Run) {
        let added = self.owned.entry(owner).or_default().add(run);
        debug_assert!(added, "granules are allocated once");
    }

    /// Returns a run that `owner` took and did not use.
    pub(super) fn return_unused(&mut self, owner: Owner, run: Run) {
        if run.len == 0 {
            return;
        }
        let owned = self.owned.entry(owner).or_default();
        let whole = owned.by_start.range(..=run.start).next_back();
        let Some((start, len)) = whole.map(|(start, len)| (*start, *len)) else {
            return;
        };
        debug_assert!(
            run.end() <= start + len,
            "only an owner's granules are returned"
        );
        owned.unlink(start, len);
        for rest in [
            Run {
                start,
                len: run.start - start,
            },
            Run {
                start: run.end(),
                len: start + len - run.end(),
            },
        ] {
            if rest.len > 0 {
                owned.link(rest.start, rest.len);
            }
        }
        self.free(run);
    }

    fn free(&mut self, run: Run) {
        let added = self.free.add(run);
        debug_assert!(added, "granules are freed once: {run:?}");
        self.end = self.free.trim(self.end);
    }

    /// Frees everything that `owner` took: no roots have seen it.
    pub(super) fn abandon(&mut self, owner: Owner) {
        for run in self.owned.remove(&owner).unwrap_or_default().iter() {
            self.free(run);
        }
    }

    /// Transfers the runs of `from` to `to`.
    pub(super) fn hand_over(&mut self, from: Owner, to: Owner) {
        for run in self.owned.remove(&from).unwrap_or_default().iter() {
            self.own(to, run);
        }
    }

    /// The runs that are free when the file is reopened with `owner`'s commit as the newest: those
    /// that are free, wait, belong to other owners, or are released by the commit. `None` if these
    /// overlap, which only damage can cause.
    pub(super) fn free_after(&self, owner: Owner, dead: &[(u32, Run)]) -> Option<FreeRuns> {
        let mut free = self.free.clone();
        let others = self.owned.iter().filter(|(other, _)| **other != owner);
        let sound = self.waiting.iter().all(|waiting| free.add(waiting.run))
            && others
                .flat_map(|(_, runs)| runs.iter())
                .all(|run| free.add(run))
            && dead.iter().all(|(_, run)| free.add(*run));
        sound.then_some(free)
    }

    /// Makes `owner`'s runs live from `version` on, and adds `dead` to the waiting runs.
    pub(super) fn attach(&mut self, owner: Owner, dead: &[(u32, Run)], version: u32) {
        let attached = self.owned.remove(&owner);
        debug_assert!(attached.is_some(), "an owner's pages become live once");
        for (birth, run) in dead {
            self.waiting_granules += run.len;
            self.waiting.push(Waiting {
                run: *run,
                birth: *birth,
                death: version,
            });
        }
        self.collect();
        debug_assert!(
            self.free.len() > RUNS_CHECKED_MAX || self.not_live().is_some(),
            "free, waiting and owned granules are disjoint"
        );
    }

    /// Frees the waiting runs that no pinned roots refer to.
    pub(super) fn collect(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let mut freed = 0;
        let mut kept = Vec::with_capacity(waiting.len());
        for waiting in waiting {
            let seen = waiting.birth < waiting.death
                && self
                    .pins
                    .range(waiting.birth..waiting.death)
                    .next()
                    .is_some();
            if seen {
                kept.push(waiting);
            } else {
                freed += waiting.run.len;
                let added = self.free.add(waiting.run);
                debug_assert!(added, "granules are freed once: {:?}", waiting.run);
            }
        }
        self.waiting = kept;
        self.waiting_granules -= freed;
        debug_assert_eq!(
            self.waiting_granules,
            self.waiting
                .iter()
                .map(|waiting| waiting.run.len)
                .sum::<u64>()
        );
        self.end = self.free.trim(self.end);
    }

    /// The granule after the last one that is in use.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn free_granules(&self) -> u64 {
        self.free.granules()
    }

    pub(super) fn waiting_granules(&self) -> u64 {
        self.waiting_granules
    }

    /// Everything that is not live: free, waiting and owned. For checks.
    pub(super) fn not_live(&self) -> Option<FreeRuns> {
        let mut runs = self.free.clone();
        let owned = self.owned.values().flat_map(FreeRuns::iter);
        let mut rest = self.waiting.iter().map(|waiting| waiting.run).chain(owned);
        rest.all(|run| runs.add(run)).then_some(runs)
    }

    /// Whether a writer may allocate any granule of the run.
    pub(super) fn is_free(&self, run: Run) -> bool {
        self.free.overlaps(run)
    }

    /// The lowest granule such that at most `budget` granules from there to the end are in use, and
    /// fit into the free space before it.
    pub(super) fn tail_that_fits(&self, budget: u64) -> u64 {
        // A quarter of the free space is reserved for fragmentation.
        let room = |free: u64| budget.min(free / 4 * 3);
        let (mut cut, mut used, mut free) = (self.end, 0, self.free.granules());
        for run in self.free.iter().rev() {
            let between = cut - run.end();
            let allowed = room(free);
            if used + between > allowed {
                return cut - allowed.saturating_sub(used);
            }
            used += between;
            cut = run.end();
            free -= run.len;
            if used > room(free) {
                return cut;
            }
            cut = run.start;
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_join_and_refuse_what_is_free() {
        let mut runs = FreeRuns::default();
        let run = |start, len| Run { start, len };
        assert!(runs.add(run(10, 5)) && runs.add(run(20, 5)) && runs.add(run(15, 5)));
        assert_eq!(runs.iter().collect::<Vec<_>>(), [run(10, 15)]);
        assert!(!runs.add(run(24, 2)) && !runs.add(run(9, 2)) && !runs.add(run(12, 1)));
        assert_eq!(FreeRuns::decode(&runs.encode(), 26).unwrap().granules(), 15);
        assert!(FreeRuns::decode(&runs.encode(), 25).is_none());
    }

    #[test]
    fn space_used_only_after_a_pinned_version_is_freed() {
        let mut space = Space::new(2, FreeRuns::default());
        space.pin(1);
        let owner = space.owner();
        let a = space.allocate(owner, 4, 4);
        space.attach(owner, &[], 1);
        // Version 2 replaces half of it, version 3 that half again; version 1 is seen throughout.
        let owner = space.owner();
        let b = space.allocate(owner, 2, 2);
        let half = Run {
            start: a.start,
            len: 2,
        };
        space.attach(owner, &[(1, half)], 2);
        let owner = space.owner();
        space.allocate(owner, 2, 2);
        space.attach(owner, &[(2, b)], 3);
        assert_eq!((space.free_granules(), space.waiting_granules()), (2, 2));
        space.unpin(1);
        space.collect();
        assert_eq!((space.free_granules(), space.waiting_granules()), (4, 0));
    }

    proptest! {
        #[test]
        fn no_granule_is_lost_or_handed_out_twice(
            steps in prop::collection::vec((0_u8..6, 1_u64..90, any::<prop::sample::Index>()), 1..80),
        ) {
            let mut space = Space::new(2, FreeRuns::default());
            let mut live: Vec<(u32, Run)> = Vec::new();
            let mut version = 0;
            let mut pinned = Vec::new();
            for (what, amount, which) in steps {
                let owner = space.owner();
                let mut taken = Vec::new();
                for need in [amount, 1, amount / 2 + 1] {
                    let run = space.allocate(owner, need, need + amount / 3);
                    prop_assert!(run.len >= need);
                    space.return_unused(owner, Run { start: run.start + need, len: run.len - need });
                    taken.push(Run { start: run.start, len: need });
                }
                if what == 0 {
                    space.abandon(owner);
                } else {
                    version += 1;
                    let mut dead = Vec::new();
                    if what > 1 && !live.is_empty() {
                        dead.push(live.swap_remove(which.index(live.len())));
                    }
                    let after = space.free_after(owner, &dead).unwrap();
                    space.attach(owner, &dead, version);
                    live.extend(taken.iter().map(|run| (version, *run)));
                    let used: u64 = live.iter().map(|(_, run)| run.len).sum();
                    let end = live.iter().map(|(_, run)| run.end()).max().unwrap();
                    let before_end = after.iter().filter(|run| run.start < end).map(|run| run.len);
                    prop_assert_eq!(used + before_end.sum::<u64>() + 2, end);
                }
                match what {
                    3 => {
                        space.pin(version);
                        pinned.push(version);
                    }
                    4 if !pinned.is_empty() => {
                        space.unpin(pinned.swap_remove(which.index(pinned.len())));
                        space.collect();
                    }
                    _ => {}
                }
                let used: u64 = live.iter().map(|(_, run)| run.len).sum();
                let sum = space.free_granules() + space.waiting_granules() + used + 2;
                prop_assert_eq!(sum, space.end());
                for (_, run) in &live {
                    prop_assert!(!space.is_free(*run));
                }
            }
        }
    }
}
