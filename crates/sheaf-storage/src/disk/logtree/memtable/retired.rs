//! Generations that take no more writes, held until their last reader drops them.
//!
//! Freeing a full generation takes milliseconds, which would delay the last reader. A generation
//! that is removed from the view is therefore added here, and a thread of the engine frees it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Generation;

/// See the module's head.
#[derive(Default)]
pub(in crate::disk::logtree) struct Retired {
    held: Mutex<Vec<Arc<Generation>>>,
    bytes: AtomicU64,
}

impl Retired {
    /// Takes a generation that no new view contains.
    pub(in crate::disk::logtree) fn add(&self, generation: Arc<Generation>) {
        let mut held = self.held.lock();
        debug_assert!(
            !held.iter().any(|other| Arc::ptr_eq(other, &generation)),
            "a generation is retired once"
        );
        held.push(generation);
        self.count(&held);
    }

    fn count(&self, held: &[Arc<Generation>]) {
        let bytes = held.iter().map(|generation| generation.bytes()).sum();
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Frees the generations that no reader holds. Returns their bytes.
    pub(in crate::disk::logtree) fn sweep(&self) -> u64 {
        let mut free = Vec::new();
        // A retired generation gains no new references, so a count of one is final.
        let mut held = self.held.lock();
        let mut at = 0;
        while at < held.len() {
            if Arc::strong_count(&held[at]) == 1 {
                free.push(held.swap_remove(at));
            } else {
                at += 1;
            }
        }
        self.count(&held);
        drop(held);
        free.iter().map(|generation| generation.bytes()).sum()
    }

    /// The retired generations; each lives as long as it is listed here.
    pub(in crate::disk::logtree) fn all(&self) -> HashSet<*const Generation> {
        self.held.lock().iter().map(Arc::as_ptr).collect()
    }

    /// Bytes of the generations that readers still hold, and of those not yet swept.
    pub(in crate::disk::logtree) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
