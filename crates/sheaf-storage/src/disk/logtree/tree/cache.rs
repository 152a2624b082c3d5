//! The page cache, within a budget: for files that are not mapped, and for compressed pages.
//!
//! ```text
//!   first read ──> small queue ──used again──> main queue ──not used since──> out
//!                      └── not used ──> out, remembered ──read again──> main queue
//! ```
//!
//! Eviction is S3-FIFO: a page that is read once passes through a short queue and does not displace
//! pages that are read often, so a scan does not evict the working set; a hit only increments a
//! counter. Pages are sharded by their offset, so that readers rarely contend.
//!
//! A page is charged to the budget while anything holds it, evicted or not.
//!
//! The memory of pages comes from [`PageMemory`], which returns that of evicted pages to the
//! system.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::page::Shape;
use super::page_memory::{PageBuf, PageMemory};
use super::pointer::GRANULE;
use crate::disk::logtree::budget::{Charge, MemoryBudget, MemoryKind, Reclaim};

const SHARDS: usize = 64;
/// Approximate overhead of a page.
const OVERHEAD: u64 = 128;
/// Maximum number of evicted pages that a shard remembers.
const GHOSTS_MAX: usize = 4096;

/// A page, or a large value, in memory.
pub(super) struct CachedPage {
    pub bytes: PageBuf,
    pub shape: Shape,
    pub birth: u32,
    pub crc: u32,
    uses: AtomicU8,
    charge: Charge,
}

/// Charges a page of `bytes` bytes that is about to be read, and evicts others for it first.
pub(super) fn charge(budget: &Arc<MemoryBudget>, bytes: usize) -> Charge {
    let bytes = bytes.next_multiple_of(GRANULE as usize);
    Charge::new(budget, MemoryKind::Pages, bytes as u64 + OVERHEAD)
}

impl CachedPage {
    /// `charge` was taken before the page was read.
    pub(super) fn new(
        bytes: PageBuf,
        shape: Shape,
        birth: u32,
        crc: u32,
        mut charge: Charge,
    ) -> Arc<CachedPage> {
        charge.set(bytes.capacity() as u64 + OVERHEAD);
        Arc::new(CachedPage {
            bytes,
            shape,
            birth,
            crc,
            uses: AtomicU8::new(0),
            charge,
        })
    }

    fn cost(&self) -> u64 {
        self.charge.bytes()
    }
}

/// Hashes granule numbers by one multiplication.
#[derive(Default)]
pub(super) struct GranuleHasher(u64);

impl Hasher for GranuleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, number: u64) {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

type ByGranule<T> = HashMap<u64, T, BuildHasherDefault<GranuleHasher>>;

#[derive(Default)]
struct Shard {
    pages: ByGranule<Arc<CachedPage>>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    small_bytes: u64,
    bytes: u64,
    ghosts: ByGranule<()>,
    ghost_order: VecDeque<u64>,
}

impl Shard {
    /// Evicts one page, or moves one to the main queue; `false` if there are no pages.
    fn evict(&mut self, out: &mut Vec<Arc<CachedPage>>) -> bool {
        let small_first = self.small_bytes * 10 > self.bytes;
        let from_small = !self.small.is_empty() && (small_first || self.main.is_empty());
        let queue = if from_small {
            &mut self.small
        } else {
            &mut self.main
        };
        let Some(granule) = queue.pop_front() else {
            return false;
        };
        let Some(page) = self.pages.get(&granule) else {
            return true;
        };
        let cost = page.cost();
        let uses = page.uses.load(Ordering::Relaxed);
        if from_small {
            self.small_bytes = self.small_bytes.saturating_sub(cost);
        }
        if uses > 0 {
            page.uses
                .store(if from_small { 0 } else { uses - 1 }, Ordering::Relaxed);
            self.main.push_back(granule);
            return true;
        }
        if from_small {
            self.ghosts.insert(granule, ());
            self.ghost_order.push_back(granule);
            if self.ghost_order.len() > GHOSTS_MAX
                && let Some(oldest) = self.ghost_order.pop_front()
            {
                self.ghosts.remove(&oldest);
            }
        }
        debug_assert!(self.bytes >= cost && self.pages.contains_key(&granule));
        self.bytes -= cost;
        out.extend(self.pages.remove(&granule));
        true
    }
}

/// The cache of one file.
pub(super) struct PageCache {
    shards: Vec<RwLock<Shard>>,
    budget: Arc<MemoryBudget>,
    pub(super) memory: Arc<PageMemory>,
    bytes: AtomicU64,
    evicted: AtomicU64,
    /// The shard that evicts next.
    hand: AtomicUsize,
}

impl PageCache {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Arc<PageCache> {
        let cache = Arc::new(PageCache {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            budget: budget.clone(),
            memory: Arc::default(),
            bytes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
        });
        let giver: std::sync::Weak<dyn Reclaim> = Arc::downgrade(&cache) as _;
        budget.register(giver);
        cache
    }

    fn shard(&self, granule: u64) -> &RwLock<Shard> {
        let mut hasher = GranuleHasher::default();
        hasher.write_u64(granule);
        &self.shards[(hasher.finish() >> 20) as usize % SHARDS]
    }

    /// The page at `granule`, if `birth` and `crc` match.
    #[inline]
    pub(super) fn get(&self, granule: u64, birth: u32, crc: u32) -> Option<Arc<CachedPage>> {
        let shard = self.shard(granule).read();
        let page = shard.pages.get(&granule)?;
        if page.birth != birth || page.crc != crc {
            return None;
        }
        // A relaxed load and store: a lost increment is acceptable.
        let uses = page.uses.load(Ordering::Relaxed);
        if uses < 3 {
            page.uses.store(uses + 1, Ordering::Relaxed);
        }
        Some(page.clone())
    }

    /// Inserts a page, replacing an earlier one at the same offset. A page of an eighth of the
    /// budget or more is not cached.
    pub(super) fn insert(&self, granule: u64, page: &Arc<CachedPage>) {
        let cost = page.cost();
        if cost > self.budget.limit() / 8 {
            return;
        }
        let before = {
            let mut shard = self.shard(granule).write();
            let shard = &mut *shard;
            let before = shard.pages.insert(granule, page.clone());
            if let Some(before) = &before {
                // The queue's entry now refers to the new page.
                shard.bytes -= before.cost();
            } else if shard.ghosts.remove(&granule).is_some() {
                shard.main.push_back(granule);
            } else {
                shard.small.push_back(granule);
                shard.small_bytes += cost;
            }
            shard.bytes += cost;
            before
        };
        self.bytes.fetch_add(cost, Ordering::Relaxed);
        if let Some(before) = before {
            self.bytes.fetch_sub(before.cost(), Ordering::Relaxed);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

impl Reclaim for PageCache {
    fn reclaim(&self, bytes: u64) {
        let (mut given, mut empty) = (0, 0);
        let mut out = Vec::new();
        while given < bytes && empty < SHARDS {
            let hand = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let found = {
                let mut shard = self.shards[hand].write();
                // A used page is requeued at most three times, so a few steps evict a page.
                let before = out.len();
                (0..8).all(|_| out.len() > before || shard.evict(&mut out)) || out.len() > before
            };
            empty = if found { 0 } else { empty + 1 };
            for page in out.drain(..) {
                given += page.cost();
                self.bytes.fetch_sub(page.cost(), Ordering::Relaxed);
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_pages_in_use_outlive_a_scan() {
        let budget = MemoryBudget::new(1 << 20);
        let cache = PageCache::new(&budget);
        let read = |granule: u64| match cache.get(granule, 1, 1) {
            Some(_) => true,
            None => {
                let charge = charge(&budget, 4096);
                let bytes = cache.memory.take(4000);
                let page = CachedPage::new(bytes, Shape::default(), 1, 1, charge);
                cache.insert(granule, &page);
                false
            }
        };
        for round in 0..4 {
            (0..50).for_each(|hot| assert_eq!(read(hot), round > 0));
        }
        for cold in 1000..5000 {
            read(cold);
            if cold % 20 == 0 {
                (0..50).for_each(|hot| {
                    read(hot);
                });
            }
            assert!(budget.used() <= (1 << 20) + 8192);
        }
        let kept = (0..50)
            .filter(|hot| cache.get(*hot, 1, 1).is_some())
            .count();
        assert!(kept >= 45, "{kept} of 50 hot pages kept");
        assert!(cache.evicted() > 3000);
        assert!(
            cache.get(0, 2, 1).is_none(),
            "another page at the same place"
        );
        drop(cache);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_page_that_is_held_stays_charged() {
        let budget = MemoryBudget::new(100_000);
        let cache = PageCache::new(&budget);
        let charge = charge(&budget, 10_000);
        let bytes = cache.memory.take(10_000);
        let page = CachedPage::new(bytes, Shape::default(), 1, 1, charge);
        cache.insert(7, &page);
        cache.reclaim(u64::MAX);
        assert_eq!((cache.bytes(), budget.used()), (0, 3 * 4096 + OVERHEAD));
        drop(page);
        assert_eq!(budget.used(), 0);
        // The next page of this size reuses the memory.
        assert_eq!(cache.memory.kept(3).0, 1);
        assert_eq!(cache.memory.take(9_000).capacity(), 3 * 4096);
    }
}
