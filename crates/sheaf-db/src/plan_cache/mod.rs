//! Which plan won a trial, remembered by query shape.
//!
//! ```text
//!   new shape ──trial──> inactive(works)
//!   inactive  ──trial again, no dearer──> active     (dearer: works grow, stays inactive)
//!   active    ──used without a trial, up to 10 x works──> kept
//!                                    └─ more ──> trial again, replaced
//! ```
//!
//! One cache a collection; a new set of indexes begins with a new, empty one.
//! Bounded: the entry used longest ago makes room.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Entries of one collection's cache.
const ENTRIES_MAX: usize = 5000;
/// A cached plan may need this many times its works before it is tried again.
pub const REPLAN_FACTOR: u64 = 10;

/// The cache of one collection.
#[derive(Debug, Default)]
pub struct PlanCache {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<u64, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    signature: String,
    works: u64,
    active: bool,
    used: u64,
}

/// What to do about a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedPlan {
    /// Which of the planner's solutions, by [`sheaf_query::planner::signatures`].
    pub signature: String,
    /// Steps its trial took.
    pub works: u64,
}

impl PlanCache {
    /// The plan of a shape that has proven itself.
    pub fn active(&self, key: u64) -> Option<CachedPlan> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.entries.get_mut(&key).filter(|e| e.active)?;
        entry.used = now;
        Some(CachedPlan {
            signature: entry.signature.clone(),
            works: entry.works,
        })
    }

    /// Records the winner of a trial.
    pub fn record(&self, key: u64, signature: String, works: u64) {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let used = inner.clock;
        if let Some(entry) = inner.entries.get_mut(&key) {
            entry.used = used;
            if works <= entry.works {
                entry.active = true;
                entry.signature = signature;
                entry.works = works;
            } else {
                // Dearer than remembered: allow it more before it counts as proven.
                entry.active = false;
                entry.signature = signature;
                entry.works = entry.works.saturating_mul(2).max(1);
            }
            return;
        }
        if inner.entries.len() >= ENTRIES_MAX
            && let Some(oldest) = inner
                .entries
                .iter()
                .min_by_key(|(_, e)| e.used)
                .map(|(key, _)| *key)
        {
            inner.entries.remove(&oldest);
        }
        inner.entries.insert(
            key,
            Entry {
                signature,
                works,
                active: false,
                used,
            },
        );
    }

    /// The plan turned out badly: the next query of the shape is tried anew.
    pub fn deactivate(&self, key: u64) {
        if let Some(entry) = self.inner.lock().entries.get_mut(&key) {
            entry.active = false;
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.inner.lock().entries.clear();
    }

    /// How many shapes are remembered.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_used_after_its_second_trial() {
        let cache = PlanCache::default();
        assert_eq!(cache.active(1), None);
        cache.record(1, "p".into(), 30);
        assert_eq!(cache.active(1), None);
        cache.record(1, "p".into(), 20);
        let plan = CachedPlan {
            signature: "p".into(),
            works: 20,
        };
        assert_eq!(cache.active(1), Some(plan));
        cache.deactivate(1);
        assert_eq!(cache.active(1), None);
    }

    #[test]
    fn a_dearer_trial_does_not_prove_the_plan() {
        let cache = PlanCache::default();
        cache.record(1, "p".into(), 10);
        cache.record(1, "p".into(), 35);
        assert_eq!(cache.active(1), None);
        cache.record(1, "p".into(), 20);
        assert!(cache.active(1).is_some());
    }

    #[test]
    fn bounded_by_forgetting_the_longest_unused() {
        let cache = PlanCache::default();
        for key in 0..ENTRIES_MAX as u64 {
            cache.record(key, "p".into(), 1);
            cache.record(key, "p".into(), 1);
        }
        assert!(cache.active(0).is_some());
        cache.record(u64::MAX, "p".into(), 1);
        assert_eq!(cache.len(), ENTRIES_MAX);
        assert!(cache.active(0).is_some(), "used just now");
        assert!(cache.active(1).is_none(), "made room");
    }
}
