//! The memory that one engine may hold: page cache, memtables, and what old snapshots keep of them.
//!
//! ```text
//!   limit  ├── memtables ──┤── page cache ──────────┤
//!          charge: never refused          ▲ gives way as memtables grow
//! ```
//!
//! Memtables charge what they take and release it when the last snapshot lets go of them; a charge is
//! never refused, for a write that was accepted must land somewhere. Whatever can be read again (the
//! page cache) registers as a [`Reclaim`] and is asked to give way when the sum passes the limit. What
//! is over the limit even then is [`MemoryBudget::excess`], which slows writers down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

/// Something that holds memory which it can give back at any time.
pub trait Reclaim: Send + Sync {
    /// Gives back about `bytes`, by calling [`MemoryBudget::release`]; less when it holds less.
    fn reclaim(&self, bytes: u64);
}

/// Counts memory against a limit. Shared by all parts of an engine.
#[derive(Default)]
pub struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
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
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes in use beyond the limit.
    pub fn excess(&self) -> u64 {
        self.used().saturating_sub(self.limit)
    }

    /// Counts `bytes` as taken; caches give way if that passes the limit.
    pub fn charge(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.limit {
            let givers = self.givers.read();
            for giver in givers.iter().filter_map(Weak::upgrade) {
                let excess = self.excess();
                if excess == 0 {
                    break;
                }
                giver.reclaim(excess);
            }
        }
    }

    /// Counts `bytes`, charged before, as given back.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Enters a cache that gives way when the limit is passed.
    pub fn register(&self, giver: Weak<dyn Reclaim>) {
        let mut givers = self.givers.write();
        givers.retain(|giver| giver.strong_count() > 0);
        givers.push(giver);
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
            self.budget.release(given);
        }
    }

    #[test]
    fn a_cache_gives_way_and_what_is_left_over_is_excess() {
        let budget = MemoryBudget::new(100);
        let hoard = Arc::new(Hoard {
            budget: budget.clone(),
            held: AtomicU64::new(60),
        });
        budget.charge(60);
        let giver: Weak<dyn Reclaim> = Arc::downgrade(&hoard) as _;
        budget.register(giver);
        budget.charge(70);
        assert_eq!(
            (budget.used(), hoard.held.load(Ordering::Relaxed)),
            (100, 30)
        );
        budget.charge(50);
        assert_eq!((budget.used(), budget.excess()), (120, 20));
        budget.release(120);
        assert_eq!((budget.used(), budget.excess()), (0, 0));
    }
}
