//! The memory that one engine may hold, counted by kind.
//!
//! ```text
//!   limit  ├── generations ──┤── log, batches ──┤── mapped ──┤── page cache ──────────┤
//!          charge: never refused                                       ▲ gives way as the others grow
//! ```
//!
//! Memtables charge what they take and release it when the last snapshot lets go of them; a charge is
//! never refused, for a write that was accepted must land somewhere. Whatever can be read again (the
//! page cache) registers as a [`Reclaim`] and is asked to give way when the sum passes the limit. What
//! is over the limit even then is [`MemoryBudget::excess`], which slows writers down.
//!
//! Counted is what the engine itself keeps. Not counted: what callers hold (a batch before it is applied, a value
//! that was copied for them), the allocator's own losses, and small things of constant size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::stats::MemoryUse;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memtables, those included that only snapshots still hold.
    Generations,
    /// Pages and large values that were read, in the cache or held by a reader.
    Pages,
    /// The part of the tree's file that is mapped and in use.
    Mapped,
    /// Buffers of the log, until they are written.
    Log,
    /// Large batches under way: their encoding, and what a checkpoint is about to write.
    Batches,
}

impl MemoryKind {
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// How many times its own bytes a charge has a cache give back at most, where others wait for more.
const OTHERS_PART: u64 = 4;

/// How often a cache is asked: what others hold of that which it gave is not free yet, and more may have come.
const TRIES: usize = 3;

/// Bytes of one kind, or of all.
#[derive(Default)]
struct Counter {
    used: AtomicU64,
    most: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: u64) -> u64 {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Seldom the greatest so far: then a read is all it costs.
        if used > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(used, Ordering::Relaxed);
        }
        used
    }
}

/// Something that holds memory which it can give back at any time.
pub trait Reclaim: Send + Sync {
    /// Gives back about `bytes`, by calling [`MemoryBudget::release`]; less when it holds less.
    fn reclaim(&self, bytes: u64);
}

/// Counts memory against a limit. Shared by all parts of an engine.
#[derive(Default)]
pub struct MemoryBudget {
    limit: u64,
    total: Counter,
    /// What is about to be counted, and has others go.
    coming: AtomicU64,
    kinds: [Counter; MemoryKind::COUNT],
    givers: RwLock<Vec<Weak<dyn Reclaim>>>,
}

impl MemoryBudget {
    /// A budget of `limit` bytes, nothing of it used.
    pub fn new(limit: u64) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget {
            limit,
            ..MemoryBudget::default()
        })
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.total.used.load(Ordering::Relaxed)
    }

    /// Bytes in use of one kind.
    pub fn used_for(&self, kind: MemoryKind) -> u64 {
        self.kinds[kind as usize].used.load(Ordering::Relaxed)
    }

    /// All kinds together, now and at most.
    pub fn total(&self) -> MemoryUse {
        Self::read(&self.total)
    }

    /// One kind, now and at most.
    pub fn of(&self, kind: MemoryKind) -> MemoryUse {
        Self::read(&self.kinds[kind as usize])
    }

    fn read(counter: &Counter) -> MemoryUse {
        MemoryUse {
            bytes: counter.used.load(Ordering::Relaxed),
            bytes_max: counter.most.load(Ordering::Relaxed),
        }
    }

    /// Bytes in use beyond the limit.
    pub fn excess(&self) -> u64 {
        self.used().saturating_sub(self.limit)
    }

    /// Counts `bytes` as taken; caches give way if that passes the limit.
    pub fn charge(&self, kind: MemoryKind, bytes: u64) {
        self.kinds[kind as usize].add(bytes);
        self.enter(bytes);
    }

    fn enter(&self, bytes: u64) {
        if self.used() + self.coming.load(Ordering::Relaxed) + bytes > self.limit {
            // First what can go, then what comes: the sum is to stay below the limit. Others do not take what one
            // that comes slowly has had go.
            self.coming.fetch_add(bytes, Ordering::Relaxed);
            self.reclaim(bytes);
            self.total.add(bytes);
            self.coming.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            self.total.add(bytes);
        }
    }

    /// Has caches give way to what comes, `own` of which is the caller's: it does its own part, and some of the others'.
    fn reclaim(&self, own: u64) {
        let givers = self.givers.read();
        for _ in 0..TRIES {
            for giver in givers.iter().filter_map(Weak::upgrade) {
                let coming = self.coming.load(Ordering::Relaxed);
                let excess = (self.used() + coming).saturating_sub(self.limit);
                if excess == 0 {
                    return;
                }
                giver.reclaim(excess.min(own.saturating_mul(OTHERS_PART)));
            }
        }
    }

    /// As [`MemoryBudget::charge`], unless there would be more than `most` of the kind; but the first is always
    /// taken, however large. Answers whether it was.
    pub fn charge_up_to(&self, kind: MemoryKind, bytes: u64, most: u64) -> bool {
        let counter = &self.kinds[kind as usize];
        let fits = |used: u64| (used == 0 || used + bytes <= most).then_some(used + bytes);
        let taken = counter
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        let Ok(before) = taken else {
            return false;
        };
        counter.most.fetch_max(before + bytes, Ordering::Relaxed);
        self.enter(bytes);
        true
    }

    /// Counts `bytes`, charged before, as given back.
    pub fn release(&self, kind: MemoryKind, bytes: u64) {
        self.kinds[kind as usize]
            .used
            .fetch_sub(bytes, Ordering::Relaxed);
        self.total.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Enters a cache that gives way when the limit is passed.
    pub fn register(&self, giver: Weak<dyn Reclaim>) {
        let mut givers = self.givers.write();
        givers.retain(|giver| giver.strong_count() > 0);
        givers.push(giver);
    }
}

/// Bytes that are counted until this is dropped.
pub struct Charge {
    budget: Arc<MemoryBudget>,
    kind: MemoryKind,
    bytes: u64,
}

impl Charge {
    /// Counts `bytes`.
    pub fn new(budget: &Arc<MemoryBudget>, kind: MemoryKind, bytes: u64) -> Charge {
        budget.charge(kind, bytes);
        Charge::taken(budget, kind, bytes)
    }

    /// Takes over what has been counted already.
    pub fn taken(budget: &Arc<MemoryBudget>, kind: MemoryKind, bytes: u64) -> Charge {
        Charge {
            budget: budget.clone(),
            kind,
            bytes,
        }
    }

    /// What is counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts `bytes` in place of what it was.
    pub fn set(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.budget.charge(self.kind, bytes - self.bytes);
        } else {
            self.budget.release(self.kind, self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hoard {
        budget: Arc<MemoryBudget>,
        held: AtomicU64,
    }

    impl Reclaim for Hoard {
        fn reclaim(&self, bytes: u64) {
            let given = bytes.min(self.held.load(Ordering::Relaxed));
            self.held.fetch_sub(given, Ordering::Relaxed);
            self.budget.release(MemoryKind::Pages, given);
        }
    }

    #[test]
    fn a_cache_gives_way_and_what_is_left_over_is_excess() {
        let budget = MemoryBudget::new(100);
        let hoard = Arc::new(Hoard {
            budget: budget.clone(),
            held: AtomicU64::new(60),
        });
        budget.charge(MemoryKind::Pages, 60);
        let giver: Weak<dyn Reclaim> = Arc::downgrade(&hoard) as _;
        budget.register(giver);
        budget.charge(MemoryKind::Generations, 70);
        assert_eq!(
            (budget.used(), hoard.held.load(Ordering::Relaxed)),
            (100, 30)
        );
        assert_eq!(budget.total().bytes_max, 100, "the cache gave way before");
        budget.charge(MemoryKind::Generations, 50);
        assert_eq!((budget.used(), budget.excess()), (120, 20));
        budget.release(MemoryKind::Generations, 120);
        assert_eq!((budget.used(), budget.excess()), (0, 0));
        let most = |kind| budget.of(kind).bytes_max;
        assert_eq!(
            (most(MemoryKind::Pages), most(MemoryKind::Generations)),
            (60, 120)
        );
    }

    #[test]
    fn only_the_first_is_taken_beyond_the_most() {
        let budget = MemoryBudget::new(100);
        let kind = MemoryKind::Batches;
        assert!(budget.charge_up_to(kind, 50, 40));
        assert!(!budget.charge_up_to(kind, 1, 40));
        let mut charge = Charge::taken(&budget, kind, 50);
        charge.set(30);
        assert!(budget.charge_up_to(kind, 10, 40));
        assert!(!budget.charge_up_to(kind, 1, 40));
        drop(charge);
        assert_eq!((budget.used(), budget.used_for(kind)), (10, 10));
    }
}
