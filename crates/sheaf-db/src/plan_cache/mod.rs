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
//! Bounded twice: a cache has so many entries, of which the one used longest ago
//! makes room, and what entries tell about their trial ([`Trial`]) is left out
//! once all caches of the process together hold too many bytes of it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheaf_bson::DocBuilder;

use crate::statistics::SampleSlot;

mod trial;

pub use trial::Trial;

/// Limits of every cache, and when an entry is given up.
#[derive(Debug, Clone, Copy)]
pub struct CachePolicy {
    /// `internalQueryCacheMaxEntriesPerCollection`.
    pub entries_max: usize,
    /// `internalQueryCacheMaxSizeBytesBeforeStripDebugInfo`, over all caches.
    pub trial_bytes_max: u64,
    /// `internalQueryCacheWorksGrowthCoefficient`: how the price of an inactive entry grows
    /// when a trial was dearer.
    pub works_growth: f64,
    /// `internalQueryCacheEvictionRatio`: a cached plan may need this many times its works
    /// before its shape is tried again.
    pub eviction_ratio: f64,
}

impl Default for CachePolicy {
    /// MongoDB's.
    fn default() -> Self {
        CachePolicy {
            entries_max: 5000,
            trial_bytes_max: 512 << 20,
            works_growth: 2.0,
            eviction_ratio: 10.0,
        }
    }
}

/// The cache of one collection.
#[derive(Debug, Default)]
pub struct PlanCache {
    inner: Mutex<Inner>,
    sample: SampleSlot,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<u64, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    shape: u32,
    plan: Arc<CachedPlan>,
    trial: Option<Arc<Trial>>,
    active: bool,
    used: u64,
}

/// A plan that won a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedPlan {
    /// Which of the planner's solutions, by [`sheaf_query::planner::signatures`].
    pub signature: String,
    /// Steps its trial took.
    pub works: u64,
}

impl PlanCache {
    /// The plan of a shape that has proven itself.
    pub fn active(&self, key: u64) -> Option<Arc<CachedPlan>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.entries.get_mut(&key).filter(|e| e.active)?;
        entry.used = now;
        Some(entry.plan.clone())
    }

    /// Records the winner of a trial. `shape` is the first half of explain's
    /// `planCacheShapeHash`; `trial` is asked only if there is room for it.
    pub fn record(
        &self,
        key: u64,
        shape: u32,
        mut plan: CachedPlan,
        policy: &CachePolicy,
        trial: impl FnOnce() -> Trial,
    ) {
        let trial = Trial::has_room(policy.trial_bytes_max).then(|| Arc::new(trial()));
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let used = inner.clock;
        if let Some(entry) = inner.entries.get_mut(&key) {
            let before = entry.plan.works;
            entry.used = used;
            entry.active = plan.works <= before;
            if !entry.active {
                // Dearer than remembered: allow it more before it counts as proven.
                plan.works = ((before as f64 * policy.works_growth) as u64).max(before + 1);
            }
            entry.plan = Arc::new(plan);
            entry.trial = trial;
            return;
        }
        while inner.entries.len() >= policy.entries_max.max(1)
            && let Some(oldest) = inner
                .entries
                .iter()
                .min_by_key(|(_, e)| e.used)
                .map(|(key, _)| *key)
        {
            inner.entries.remove(&oldest);
        }
        let entry = Entry {
            shape,
            plan: Arc::new(plan),
            trial,
            active: false,
            used,
        };
        inner.entries.insert(key, entry);
    }

    /// The plan turned out badly: the next query of the shape is tried anew.
    pub fn deactivate(&self, key: u64) {
        if let Some(entry) = self.inner.lock().entries.get_mut(&key) {
            entry.active = false;
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.sample.clear();
        self.inner.lock().entries.clear();
    }

    /// Forgets every plan of a shape, whatever its key.
    pub fn clear_shape(&self, shape: u32) {
        self.inner
            .lock()
            .entries
            .retain(|_, entry| entry.shape != shape);
    }

    /// What is known of the data.
    pub(crate) fn sample(&self) -> &SampleSlot {
        &self.sample
    }

    /// How many shapes are remembered.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The documents of `$planCacheStats`, in the order of their keys; each is
    /// finished by `finish`. `is_filtered` says whether a shape has an index filter.
    pub fn stats(
        &self,
        is_filtered: impl Fn(u32) -> bool,
        finish: impl Fn(&mut DocBuilder),
    ) -> Vec<sheaf_bson::DocBuf> {
        let mut entries: Vec<_> = {
            let inner = self.inner.lock();
            let copy = |(key, entry): (&u64, &Entry)| {
                let trial = entry.trial.clone();
                (*key, entry.shape, entry.plan.clone(), trial, entry.active)
            };
            inner.entries.iter().map(copy).collect()
        };
        entries.sort_by_key(|entry| entry.0);
        entries
            .into_iter()
            .map(|(key, shape, plan, trial, active)| {
                let mut out = DocBuilder::new();
                out.append("version", "1");
                out.append("queryHash", format!("{shape:08X}").as_str());
                out.append("planCacheShapeHash", format!("{shape:08X}").as_str());
                out.append("planCacheKey", format!("{:08X}", key as u32).as_str());
                out.append("isActive", active);
                out.append("works", plan.works as i64);
                out.append("worksType", "works");
                let solution = sheaf_query::shape::hash(plan.signature.as_bytes());
                if let Some(trial) = &trial {
                    trial.append(&mut out);
                }
                out.append("indexFilterSet", is_filtered(shape));
                out.append("solutionHash", solution as i64);
                let bytes = size_of::<Entry>() + plan.bytes() + trial.map_or(0, |t| t.bytes());
                out.append("estimatedSizeBytes", bytes as i64);
                finish(&mut out);
                out.finish()
            })
            .collect()
    }
}

impl CachedPlan {
    fn bytes(&self) -> usize {
        size_of::<CachedPlan>() + self.signature.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cache: &PlanCache, key: u64, works: u64) {
        let plan = CachedPlan {
            signature: "p".into(),
            works,
        };
        let policy = CachePolicy::default();
        cache.record(key, key as u32 / 2, plan, &policy, Trial::default);
    }

    #[test]
    fn a_plan_is_used_after_its_second_trial() {
        let cache = PlanCache::default();
        assert_eq!(cache.active(1), None);
        record(&cache, 1, 30);
        assert_eq!(cache.active(1), None);
        record(&cache, 1, 20);
        let plan = CachedPlan {
            signature: "p".into(),
            works: 20,
        };
        assert_eq!(cache.active(1), Some(Arc::new(plan)));
        cache.deactivate(1);
        assert_eq!(cache.active(1), None);
    }

    #[test]
    fn a_dearer_trial_does_not_prove_the_plan() {
        let cache = PlanCache::default();
        record(&cache, 1, 10);
        record(&cache, 1, 35);
        assert_eq!(cache.active(1), None);
        record(&cache, 1, 20);
        assert!(cache.active(1).is_some());
    }

    #[test]
    fn bounded_by_forgetting_the_longest_unused() {
        let cache = PlanCache::default();
        let entries_max = CachePolicy::default().entries_max;
        for key in 0..entries_max as u64 {
            record(&cache, key, 1);
            record(&cache, key, 1);
        }
        assert!(cache.active(0).is_some());
        record(&cache, u64::MAX, 1);
        assert_eq!(cache.len(), entries_max);
        assert!(cache.active(0).is_some(), "used just now");
        assert!(cache.active(1).is_none(), "made room");
    }

    #[test]
    fn a_shape_is_forgotten_with_all_its_keys() {
        let cache = PlanCache::default();
        for key in [2, 3, 4] {
            record(&cache, key, 1);
        }
        cache.clear_shape(1);
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn without_room_an_entry_does_not_tell_of_its_trial() {
        let cache = PlanCache::default();
        let policy = CachePolicy {
            trial_bytes_max: 0,
            ..CachePolicy::default()
        };
        let plan = CachedPlan {
            signature: "p".into(),
            works: 7,
        };
        cache.record(1, 1, plan, &policy, Trial::default);
        let stats = cache.stats(|_| {});
        assert_eq!(stats.len(), 1);
        assert!(stats[0].get("works").is_some());
        assert!(stats[0].get("createdFromQuery").is_none());
    }
}
