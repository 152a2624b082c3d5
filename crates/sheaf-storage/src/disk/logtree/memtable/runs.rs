//! Runs of deleted keys that a reader has walked over, recorded so that the next reader can skip
//! them.
//!
//! ```text
//!   list    a gone   b gone   c gone   d gone   e       recorded: nothing in [a, d\0) as of 17
//!   a snapshot at 20 that reaches a continues at d\0
//! ```
//!
//! Deleted keys stay in the list until the next checkpoint. A reader of a queue, from which the
//! first entry is taken again and again, would otherwise walk over all deleted entries every time.
//!
//! A run states: for snapshots from `since` on, no key in `[lo, hi)` is visible in this generation
//! or in any below. Below, nothing changes any more, since a sequence of this generation was
//! visible when the run was recorded. In this generation a put may arrive: it cuts the run before
//! it becomes visible. The two synchronise under the lock:
//!
//! ```text
//!   reader   announces the run ─ checks for newer puts ─ confirms it, unless it has been cut
//!   writer   links its node    ─ checks for runs       ─ cuts them
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::skiplist::SkipList;
use crate::disk::logtree::sync::{AtomicBool, Ordering, RwLock, fence};

/// The interval `[lo, hi)` in which no key is visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::disk::logtree) struct Run {
    pub(in crate::disk::logtree) lo: Bytes,
    pub(in crate::disk::logtree) hi: Bytes,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Runs {
    /// Whether there are runs, or may soon be.
    any: AtomicBool,
    noted: RwLock<Noted>,
}

#[derive(Default)]
struct Noted {
    /// By lower end: the upper end, and the sequence from which on the run holds. They do not
    /// overlap.
    runs: BTreeMap<Bytes, (Bytes, u64)>,
    /// Announced and not yet confirmed.
    announced: Vec<(u64, Run)>,
    last_announced: u64,
}

impl Noted {
    fn over(&self, key: &[u8]) -> Option<(&Bytes, &Bytes, u64)> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (lo, (hi, since)) = self.runs.range::<[u8], _>(upto).next_back()?;
        (key < &hi[..]).then_some((lo, hi, *since))
    }

    fn touches(&self, key: &[u8]) -> bool {
        self.over(key).is_some() || self.announced.iter().any(|(_, run)| run.contains(key))
    }

    fn cut(&mut self, key: &[u8]) {
        self.announced.retain(|(_, run)| !run.contains(key));
        let Some((lo, hi, since)) = self.over(key) else {
            return;
        };
        let (lo, hi) = (lo.clone(), hi.clone());
        self.runs.remove(&lo);
        let after = after(key);
        if after < hi {
            self.runs.insert(after, (hi, since));
        }
        if &lo[..] < key {
            self.runs.insert(lo, (Bytes::copy_from_slice(key), since));
        }
    }

    /// Adds a run, joined with those that it overlaps or touches.
    fn add(&mut self, run: Run, since: u64) {
        let Run { mut lo, mut hi } = run;
        let mut since = since;
        while let Some((other_lo, (other_hi, other_since))) = self
            .runs
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(&hi[..])))
            .next_back()
            && *other_hi >= lo
        {
            since = since.max(*other_since);
            hi = hi.max(other_hi.clone());
            let other_lo = other_lo.clone();
            self.runs.remove(&other_lo);
            lo = lo.min(other_lo);
        }
        debug_assert!(lo < hi, "a run is not empty");
        self.runs.insert(lo, (hi, since));
    }
}

impl Run {
    fn contains(&self, key: &[u8]) -> bool {
        &self.lo[..] <= key && key < &self.hi[..]
    }
}

/// The smallest key greater than `key`.
fn after(key: &[u8]) -> Bytes {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after.into()
}

impl Runs {
    /// The run that contains `key` and that a snapshot at `visible` may use.
    #[inline]
    pub(super) fn over(&self, key: &[u8], visible: u64) -> Option<Run> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let noted = self.noted.read();
        let (lo, hi, since) = noted.over(key)?;
        (since <= visible).then(|| Run {
            lo: lo.clone(),
            hi: hi.clone(),
        })
    }

    /// Records that a snapshot at `visible` saw no key from `first` to `last`, both inclusive, here
    /// and below, and that it saw at least one version of this generation.
    pub(super) fn note(&self, list: &SkipList, first: &[u8], last: &[u8], visible: u64) {
        let run = Run {
            lo: Bytes::copy_from_slice(first),
            hi: after(last),
        };
        self.any.store(true, Ordering::SeqCst);
        let number = {
            let mut noted = self.noted.write();
            noted.last_announced += 1;
            let number = noted.last_announced;
            noted.announced.push((number, run.clone()));
            number
        };
        // A writer that links a put from now on sees the announced run; a put linked before is seen
        // here.
        fence(Ordering::SeqCst);
        let confirmed = self.has_no_put(list, &run, visible);
        let mut noted = self.noted.write();
        let announced = noted.announced.len();
        noted.announced.retain(|(other, _)| *other != number);
        if confirmed && noted.announced.len() < announced {
            noted.add(run, visible);
        }
    }

    /// Whether no version in the run that is newer than `visible` is a put.
    fn has_no_put(&self, list: &SkipList, run: &Run, visible: u64) -> bool {
        let mut at = list.at_or_after(&run.lo, u64::MAX);
        while let Some(node) = at.filter(|node| node.key() < &run.hi[..]) {
            if node.seq() > visible && !node.is_deleted() {
                return false;
            }
            at = node.next();
            // Recorded runs need not be checked again: later puts have cut them.
            if let Some(next) = at
                && let Some(known) = self.over(next.key(), visible)
            {
                at = list.at_or_after(&known.hi, u64::MAX);
            }
        }
        true
    }

    /// Cuts the runs that contain keys put by a batch; called after they are linked and before they
    /// are visible.
    pub(super) fn cut<'k>(&self, puts: impl Iterator<Item = &'k [u8]>) {
        fence(Ordering::SeqCst);
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        for key in puts {
            if self.noted.read().touches(key) {
                self.noted.write().cut(key);
            }
        }
    }
}

#[cfg(all(test, not(explore)))]
mod tests {
    use super::*;

    fn run(lo: &str, hi: &str) -> Run {
        Run {
            lo: Bytes::copy_from_slice(lo.as_bytes()),
            hi: Bytes::copy_from_slice(hi.as_bytes()),
        }
    }

    fn all(noted: &Noted) -> Vec<(String, u64)> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).replace('\0', "0");
        let runs = noted.runs.iter();
        runs.map(|(lo, (hi, since))| (format!("{}-{}", text(lo), text(hi)), *since))
            .collect()
    }

    #[test]
    fn runs_join_and_are_cut() {
        let mut noted = Noted::default();
        noted.add(run("b", "d"), 3);
        noted.add(run("f", "h"), 4);
        noted.add(run("j", "k"), 1);
        assert_eq!(noted.runs.len(), 3);
        noted.add(run("d", "g"), 2);
        assert_eq!(all(&noted), [("b-h".into(), 4), ("j-k".into(), 1)]);
        noted.cut(b"h");
        noted.cut(b"a");
        noted.cut(b"e");
        noted.cut(b"b");
        assert_eq!(
            all(&noted),
            [("b0-e".into(), 4), ("e0-h".into(), 4), ("j-k".into(), 1)]
        );
        noted.cut(b"j");
        assert_eq!(all(&noted)[2], ("j0-k".into(), 1));
    }
}
