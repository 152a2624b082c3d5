//! Caches the plan that won a trial, by query shape.
//!
//! ```text
//!   new shape ──trial──> inactive(works)
//!   inactive  ──trial again, not more expensive──> active     (more expensive: works grow, stays inactive)
//!   active    ──used without a trial, up to 10 x works──> kept
//!                                    └─ more ──> trial again, replaced
//! ```
//!
//! One cache per collection; a changed set of indexes starts with a new, empty cache. There are
//! four limits:
//!
//! - Entries larger than [`ENTRY_BYTES_MAX`] are not cached. That takes a filter of thousands of
//!   predicates, where planning is not the main cost.
//! - A cache has a maximum number of entries and evicts the least recently used.
//! - A cache that grows also evicts when all caches of the process together reach their byte limit
//!   (long filters have long keys).
//! - Trial details ([`MultiPlanning`]) are omitted once they reach a separate byte limit across all
//!   caches.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sheaf_bson::DocBuilder;
use sheaf_query::planner::recipe::Recipe;

use super::sample::SampleSlot;

mod bytes;
mod multi_planning;

use bytes::Held;
pub use multi_planning::MultiPlanning;

/// Maximum size of one entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Limits of every cache, and the policy for replanning.
#[derive(Debug, Clone, Copy)]
pub struct CachePolicy {
    /// `internalQueryCacheMaxEntriesPerCollection`.
    pub entries_max: usize,
    /// `planCacheSize`, over all caches, excluding trial details.
    pub bytes_max: u64,
    /// `internalQueryCacheMaxSizeBytesBeforeStripDebugInfo`, over all caches.
    pub trial_bytes_max: u64,
    /// `internalQueryCacheWorksGrowthCoefficient`: growth of an inactive entry's works after a more
    /// expensive trial.
    pub works_growth: f64,
    /// `internalQueryCacheEvictionRatio`: multiple of its works that a cached plan may use before
    /// its shape is replanned.
    pub eviction_ratio: f64,
}

impl CachePolicy {
    /// MongoDB's defaults, except that `bytes_max` is a fraction of memory in MongoDB.
    pub const DEFAULT: CachePolicy = CachePolicy {
        entries_max: 5000,
        bytes_max: 512 << 20,
        trial_bytes_max: 512 << 20,
        works_growth: 2.0,
        eviction_ratio: 10.0,
    };
}

impl Default for CachePolicy {
    fn default() -> Self {
        CachePolicy::DEFAULT
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
    /// By [`CacheKey::place`].
    entries: HashMap<u64, Entry>,
    /// Plans of rooted `$or`s, composed of the plans of their branches, which are entries.
    composed: HashMap<u64, (Arc<CachedPlan>, Held)>,
    clock: u64,
}

/// The lookup key of a query.
#[derive(Debug, Clone)]
pub struct CacheKey {
    /// [`sheaf_query::shape::plan_cache_text`] and everything else that plans depend on.
    pub text: String,
    /// Hash of the text.
    place: u64,
}

impl CacheKey {
    /// Hashes the text.
    pub fn new(text: String) -> Self {
        // Eight bytes at a time: the hash is never exposed.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut place = text.len() as u64;
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        for word in words {
            place = (place ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR);
            place ^= place >> 29;
        }
        for byte in rest {
            place = (place ^ u64::from(*byte)).wrapping_mul(FACTOR);
        }
        place ^= place >> 32;
        CacheKey { text, place }
    }
}

#[derive(Debug)]
struct Entry {
    /// explain's `planCacheKey` in the low 32 bits, extended to 64.
    key: u64,
    shape: u32,
    plan: Arc<CachedPlan>,
    trial: Option<Arc<MultiPlanning>>,
    active: bool,
    used: u64,
    held: Held,
}

/// A plan that won a trial.
#[derive(Debug, Clone)]
pub struct CachedPlan {
    /// Identifies one of the planner's solutions; see [`sheaf_query::planner::signatures`].
    pub signature: String,
    /// Works of its trial. For a rooted `$or`, the sum over all branches, or 0 if a branch was not
    /// tried.
    pub works: u64,
    /// How to build it without planning, and the key text of the queries it applies to; `None` if
    /// only planning can build it.
    pub recipe: Option<(Recipe, String)>,
    /// Its order depends on key prefixes that must be read from the index.
    pub asks_statistics: bool,
}

impl CachedPlan {
    /// The recipe, if it applies to this query.
    pub fn recipe_for(&self, key: &CacheKey) -> Option<&Recipe> {
        let (recipe, text) = self.recipe.as_ref()?;
        (*text == key.text).then_some(recipe)
    }
}

impl PlanCache {
    /// The plan of an active entry.
    pub fn active(&self, key: &CacheKey) -> Option<Arc<CachedPlan>> {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let now = inner.clock;
        let entry = inner.entries.get_mut(&key.place).filter(|e| e.active)?;
        entry.used = now;
        Some(entry.plan.clone())
    }

    /// The composed plan of a rooted `$or`.
    pub fn composed(&self, key: &CacheKey) -> Option<Arc<CachedPlan>> {
        let inner = self.inner.lock();
        inner.composed.get(&key.place).map(|(plan, _)| plan.clone())
    }

    /// Drops the composed plan of a rooted `$or` that performed badly; the next query composes it
    /// again.
    pub fn remove_composed(&self, key: &CacheKey) {
        self.inner.lock().composed.remove(&key.place);
    }

    /// Caches the plan of a rooted `$or` composed of active plans.
    pub fn compose(&self, key: &CacheKey, plan: CachedPlan, policy: &CachePolicy) {
        if plan.bytes() > ENTRY_BYTES_MAX {
            return;
        }
        let mut inner = self.inner.lock();
        let held = Held::new(plan.bytes());
        if inner.composed.len() >= policy.entries_max || !Held::all_within(policy.bytes_max) {
            inner.composed.clear();
        }
        if Held::all_within(policy.bytes_max) {
            inner.composed.insert(key.place, (Arc::new(plan), held));
        }
    }

    /// Records the winner of a trial. `shape` is the first half of explain's `planCacheShapeHash`;
    /// `trial` is called only if there is room for the details.
    pub fn record(
        &self,
        key: &CacheKey,
        shape: u32,
        mut plan: CachedPlan,
        policy: &CachePolicy,
        trial: impl FnOnce() -> MultiPlanning,
    ) {
        if plan.bytes() > ENTRY_BYTES_MAX {
            return;
        }
        let trial = MultiPlanning::has_room(policy.trial_bytes_max).then(|| Arc::new(trial()));
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let used = inner.clock;
        if let Some(entry) = inner.entries.get_mut(&key.place) {
            let before = entry.plan.works;
            entry.used = used;
            entry.active = plan.works <= before;
            if !entry.active {
                // More expensive than recorded: raise the works before it can become active.
                plan.works = ((before as f64 * policy.works_growth) as u64).max(before + 1);
            }
            debug_assert_eq!(entry.active, plan.works <= before, "proven if no dearer");
            entry.key = sheaf_query::shape::hash(key.text.as_bytes());
            entry.shape = shape;
            entry.held = Held::new(size_of::<Entry>() + plan.bytes());
            entry.plan = Arc::new(plan);
            entry.trial = trial;
            // Plans composed of the former plan are stale.
            inner.composed.clear();
            return;
        }
        let held = Held::new(size_of::<Entry>() + plan.bytes());
        while (inner.entries.len() >= policy.entries_max.max(1)
            || !Held::all_within(policy.bytes_max))
            && let Some(oldest) = inner
                .entries
                .iter()
                .min_by_key(|(_, e)| e.used)
                .map(|(key, _)| *key)
        {
            inner.entries.remove(&oldest);
        }
        if !Held::all_within(policy.bytes_max) {
            return;
        }
        let entry = Entry {
            key: sheaf_query::shape::hash(key.text.as_bytes()),
            shape,
            plan: Arc::new(plan),
            trial,
            active: false,
            used,
            held,
        };
        inner.entries.insert(key.place, entry);
        debug_assert!(inner.entries.len() <= policy.entries_max.max(1));
    }

    /// Deactivates a plan that performed badly: the next query of the shape is tried again.
    pub fn deactivate(&self, key: &CacheKey) {
        if let Some(entry) = self.inner.lock().entries.get_mut(&key.place) {
            entry.active = false;
        }
    }

    /// Removes all entries and the sample.
    pub fn clear(&self) {
        self.sample.clear();
        let mut inner = self.inner.lock();
        inner.entries.clear();
        inner.composed.clear();
    }

    /// Removes all plans of a shape, whatever their keys.
    pub fn clear_shape(&self, shape: u32) {
        let mut inner = self.inner.lock();
        inner.entries.retain(|_, entry| entry.shape != shape);
        inner.composed.clear();
    }

    /// The sample of the data.
    pub(crate) fn sample(&self) -> &SampleSlot {
        &self.sample
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether a lookup could find anything.
    pub fn has_plans(&self) -> bool {
        let inner = self.inner.lock();
        !inner.entries.is_empty() || !inner.composed.is_empty()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The documents of `$planCacheStats`, ordered by key; `finish` appends the final fields to
    /// each. `is_filtered` returns whether a shape has an index filter.
    pub fn stats(
        &self,
        is_filtered: impl Fn(u32) -> bool,
        finish: impl Fn(&mut DocBuilder),
    ) -> Vec<sheaf_bson::DocBuf> {
        let mut entries: Vec<_> = {
            let inner = self.inner.lock();
            let copy = |entry: &Entry| {
                let trial = entry.trial.clone();
                (
                    entry.key,
                    entry.shape,
                    entry.plan.clone(),
                    trial,
                    entry.active,
                    entry.held.bytes(),
                )
            };
            inner.entries.values().map(copy).collect()
        };
        entries.sort_by_key(|entry| entry.0);
        entries
            .into_iter()
            .map(|(key, shape, plan, trial, active, held)| {
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
                let bytes = held + trial.map_or(0, |t| t.bytes());
                out.append("estimatedSizeBytes", bytes as i64);
                finish(&mut out);
                out.finish()
            })
            .collect()
    }
}

impl CachedPlan {
    fn bytes(&self) -> usize {
        let recipe = self
            .recipe
            .as_ref()
            .map_or(0, |(recipe, text)| recipe.bytes() + text.len());
        size_of::<CachedPlan>() + self.signature.len() + recipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> CacheKey {
        CacheKey::new(n.to_string())
    }

    fn plan(works: u64) -> CachedPlan {
        CachedPlan {
            signature: "p".into(),
            works,
            recipe: None,
            asks_statistics: false,
        }
    }

    fn record(cache: &PlanCache, n: u64, works: u64) {
        let policy = CachePolicy::default();
        cache.record(
            &key(n),
            n as u32 / 2,
            plan(works),
            &policy,
            MultiPlanning::default,
        );
    }

    #[test]
    fn a_plan_is_used_after_its_second_trial() {
        let cache = PlanCache::default();
        assert!(cache.active(&key(1)).is_none());
        record(&cache, 1, 30);
        assert!(cache.active(&key(1)).is_none());
        record(&cache, 1, 20);
        assert_eq!(cache.active(&key(1)).unwrap().works, 20);
        cache.deactivate(&key(1));
        assert!(cache.active(&key(1)).is_none());
    }

    #[test]
    fn a_more_expensive_trial_does_not_prove_the_plan() {
        let cache = PlanCache::default();
        record(&cache, 1, 10);
        record(&cache, 1, 35);
        assert!(cache.active(&key(1)).is_none());
        record(&cache, 1, 20);
        assert!(cache.active(&key(1)).is_some());
    }

    #[test]
    fn bounded_by_evicting_the_least_recently_used() {
        let cache = PlanCache::default();
        let entries_max = CachePolicy::default().entries_max;
        for n in 0..entries_max as u64 {
            record(&cache, n, 1);
            record(&cache, n, 1);
        }
        assert!(cache.active(&key(0)).is_some());
        record(&cache, u64::MAX, 1);
        assert_eq!(cache.len(), entries_max);
        assert!(cache.active(&key(0)).is_some(), "used just now");
        assert!(cache.active(&key(1)).is_none(), "made room");
    }

    #[test]
    fn without_room_older_entries_are_removed() {
        let cache = PlanCache::default();
        let policy = CachePolicy {
            bytes_max: 0,
            ..CachePolicy::default()
        };
        record(&cache, 1, 5);
        record(&cache, 2, 5);
        cache.record(&key(3), 3, plan(7), &policy, MultiPlanning::default);
        assert_eq!(cache.len(), 0);
        cache.compose(&key(4), plan(0), &policy);
        assert!(cache.composed(&key(4)).is_none());
    }

    #[test]
    fn a_long_filter_counts_by_its_bytes() {
        let cache = PlanCache::default();
        let long = |n: u64| {
            let text = format!("{n}{}", "x".repeat(10_000));
            let plan = CachedPlan {
                signature: text.clone(),
                ..plan(5)
            };
            cache.record(
                &CacheKey::new(text),
                0,
                plan,
                &CachePolicy::default(),
                MultiPlanning::default,
            );
        };
        (0..10).for_each(long);
        let sizes: i64 = cache
            .stats(|_| false, |_| {})
            .iter()
            .filter_map(|entry| entry.get("estimatedSizeBytes")?.as_i64_exact())
            .sum();
        assert!(sizes >= 100_000, "{sizes}");
    }

    #[test]
    fn very_long_filters_are_not_cached() {
        let cache = PlanCache::default();
        let text = "x".repeat(ENTRY_BYTES_MAX);
        let plan = CachedPlan {
            signature: text.clone(),
            ..plan(5)
        };
        let asked = || -> MultiPlanning { panic!("details are not kept") };
        let (key, policy) = (CacheKey::new(text), CachePolicy::default());
        cache.record(&key, 0, plan.clone(), &policy, asked);
        cache.compose(&key, plan, &policy);
        assert!(!cache.has_plans());
    }

    #[test]
    fn a_shape_is_removed_with_all_its_keys() {
        let cache = PlanCache::default();
        for n in [2, 3, 4] {
            record(&cache, n, 1);
        }
        cache.clear_shape(1);
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn without_room_an_entry_has_no_trial_details() {
        let cache = PlanCache::default();
        let policy = CachePolicy {
            trial_bytes_max: 0,
            ..CachePolicy::default()
        };
        cache.record(&key(1), 1, plan(7), &policy, MultiPlanning::default);
        let stats = cache.stats(|_| false, |_| {});
        assert_eq!(stats.len(), 1);
        assert!(stats[0].get("works").is_some());
        assert!(stats[0].get("createdFromQuery").is_none());
    }

    #[test]
    fn a_composed_plan_is_removed_with_its_parts() {
        let cache = PlanCache::default();
        record(&cache, 1, 5);
        cache.compose(&key(9), plan(0), &CachePolicy::default());
        assert!(cache.composed(&key(9)).is_some());
        record(&cache, 1, 4);
        assert!(cache.composed(&key(9)).is_none());
    }
}
