//! Memory held by entries of all plan caches. The limit is per process, and so is the count.

use std::sync::atomic::{AtomicU64, Ordering};

static ALL: AtomicU64 = AtomicU64::new(0);

/// Some of these bytes; subtracted when dropped.
#[derive(Debug)]
pub(super) struct Held(u64);

impl Held {
    pub fn new(bytes: usize) -> Held {
        ALL.fetch_add(bytes as u64, Ordering::Relaxed);
        Held(bytes as u64)
    }

    pub fn bytes(&self) -> usize {
        self.0 as usize
    }

    /// Whether the total is at most `max`.
    pub fn all_within(max: u64) -> bool {
        ALL.load(Ordering::Relaxed) <= max
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let before = ALL.fetch_sub(self.0, Ordering::Relaxed);
        debug_assert!(before >= self.0, "more is released than was held");
    }
}
