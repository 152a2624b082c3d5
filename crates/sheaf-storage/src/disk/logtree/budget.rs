//! The memory budget of one engine, by kind.
//!
//! ```text
//!   limit  ├── generations ──┤── log, batches ──┤── mapped ──┤── page cache ──────────┤
//!          charges are never refused                                   ▲ shrinks as the others grow
//! ```
//!
//! Memtables charge what they allocate and release it when the last snapshot drops them. A charge
//! is never refused: a write that was accepted must be stored. Caches whose contents can be read
//! again (the page cache) register as [`Reclaim`] and are shrunk when the sum exceeds the limit.
//! The remaining excess ([`MemoryBudget::excess`]) slows writers down.
//!
//! Only memory that the engine itself holds is charged. Not charged: memory that callers hold (a
//! batch before it is applied, a value copied for them), the allocator's overhead, and small
//! allocations of constant size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

/// The purposes that memory is charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memtables, including those that only snapshots still hold.
    Generations,
    /// Pages and large values that were read, in the cache or held by a reader.
    Pages,
    /// The mapped part of the tree's file that is in use.
    Mapped,
    /// Buffers of the log, until they are written.
    Log,
    /// Large batches in flight: their encoding, and the pages that a checkpoint is about to write.
    Batches,
}

impl MemoryKind {
    /// Number of kinds.
    pub const COUNT: usize = 5;
}

/// While other charges wait, a charge reclaims at most this multiple of its own bytes.
const OTHERS_PART: u64 = 4;

/// Number of attempts to reclaim: pages that readers hold are not freed immediately, and other
/// threads may charge more meanwhile.
const TRIES: usize = 3;

/// Current and peak bytes of one kind, or of all.
#[derive(Default)]
struct Counter {
    used: AtomicU64,
    most: AtomicU64,
}

impl Counter {
    fn add(&self, bytes: u64) -> u64 {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // New maxima are rare; usually this costs only a load.
        if used > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(used, Ordering::Relaxed);
        }
        used
    }
}

/// A holder of memory that it can free at any time.
pub trait Reclaim: Send + Sync {
    /// Frees about `bytes`, by calling [`MemoryBudget::release`]; less if it holds less.
    fn reclaim(&self, bytes: u64);
}

/// Memory in use now, and the most since the engine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in use now.
    pub bytes: u64,
    /// Peak of `bytes` since the engine was opened.
    pub bytes_max: u64,
}

/// Accounts memory against a limit. Shared by all parts of an engine.
#[derive(Default)]
pub struct MemoryBudget {
    limit: u64,
    total: Counter,
    /// Bytes about to be charged, for which caches are being reclaimed.
    coming: AtomicU64,
    kinds: [Counter; MemoryKind::COUNT],
    givers: RwLock<Vec<Weak<dyn Reclaim>>>,
}

impl MemoryBudget {
    /// An unused budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget {
            limit,
            ..MemoryBudget::default()
        })
    }

    /// The limit in bytes; charges may exceed it, see [`MemoryBudget::excess`].
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes charged at present, of all kinds.
    pub fn used(&self) -> u64 {
        self.total.used.load(Ordering::Relaxed)
    }

    /// Bytes charged at present, of one kind.
    pub fn used_for(&self, kind: MemoryKind) -> u64 {
        self.kinds[kind as usize].used.load(Ordering::Relaxed)
    }

    /// Current and peak use of all kinds together.
    pub fn total(&self) -> MemoryUse {
        Self::read(&self.total)
    }

    /// Current and peak use of one kind.
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

    /// Charges `bytes`; caches shrink if that exceeds the limit.
    pub fn charge(&self, kind: MemoryKind, bytes: u64) {
        self.kinds[kind as usize].add(bytes);
        self.enter(bytes);
    }

    fn enter(&self, bytes: u64) {
        if self.used() + self.coming.load(Ordering::Relaxed) + bytes > self.limit {
            // Reclaim first, then charge, so that the sum stays below the limit. `coming` keeps
            // other threads from using the memory that a slow charge has reclaimed.
            self.coming.fetch_add(bytes, Ordering::Relaxed);
            self.reclaim(bytes);
            self.total.add(bytes);
            self.coming.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            self.total.add(bytes);
        }
    }

    /// Shrinks caches for the pending charges, of which `own` bytes are the caller's. It reclaims
    /// for itself and for part of the other charges.
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

    /// Like [`MemoryBudget::charge`], but rejects a charge with which the kind would exceed `most`.
    /// The first charge of a kind is always accepted. Returns whether the charge was accepted.
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

    /// Releases `bytes` that were charged before.
    pub fn release(&self, kind: MemoryKind, bytes: u64) {
        let of_kind = &self.kinds[kind as usize].used;
        let before = of_kind.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(
            before >= bytes,
            "{kind:?}: more is released than was charged"
        );
        let before = self.total.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more is released than was charged");
    }

    /// Registers a cache that shrinks when the limit is exceeded.
    pub fn register(&self, giver: Weak<dyn Reclaim>) {
        let mut givers = self.givers.write();
        givers.retain(|giver| giver.strong_count() > 0);
        givers.push(giver);
    }
}

/// A charge that is released on drop.
pub struct Charge {
    budget: Arc<MemoryBudget>,
    kind: MemoryKind,
    bytes: u64,
}

impl Charge {
    /// Charges `bytes`, like [`MemoryBudget::charge`].
    pub fn new(budget: &Arc<MemoryBudget>, kind: MemoryKind, bytes: u64) -> Charge {
        budget.charge(kind, bytes);
        Charge::taken(budget, kind, bytes)
    }

    /// Takes ownership of bytes that have been charged already.
    pub fn taken(budget: &Arc<MemoryBudget>, kind: MemoryKind, bytes: u64) -> Charge {
        Charge {
            budget: budget.clone(),
            kind,
            bytes,
        }
    }

    /// Bytes that are released on drop.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the charge to `bytes`.
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
    fn a_cache_shrinks_and_the_rest_is_excess() {
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
        assert_eq!(budget.total().bytes_max, 100, "the cache shrank before");
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
