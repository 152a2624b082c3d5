//! Tracks which pages of the mapped file have been checked.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::logtree::tree::pointer::Run;

/// 64 bits to a word; allocated when the first of them is set.
type Words = OnceLock<Box<[AtomicU64]>>;

/// One bit for each granule: whether the page that begins there has been checked since it was
/// written.
pub(super) struct CheckedBits {
    chunks: Box<[Words]>,
}

impl CheckedBits {
    /// Granules of a chunk: 128 kilobytes of bits for four gigabytes of file.
    const CHUNK: u64 = 1 << 20;

    /// The word and the bit. Beyond sixteen terabytes nothing is recorded.
    #[inline]
    fn at(&self, granule: u64) -> Option<(&Words, usize, u64)> {
        let chunk = self.chunks.get((granule / Self::CHUNK) as usize)?;
        let within = granule % Self::CHUNK;
        Some((chunk, (within / 64) as usize, 1 << (within % 64)))
    }

    #[inline]
    pub(super) fn get(&self, granule: u64) -> bool {
        match self.at(granule) {
            Some((chunk, word, bit)) => chunk
                .get()
                .is_some_and(|words| words[word].load(Ordering::Relaxed) & bit != 0),
            None => false,
        }
    }

    pub(super) fn set(&self, granule: u64) {
        if let Some((chunk, word, bit)) = self.at(granule) {
            let words =
                chunk.get_or_init(|| (0..Self::CHUNK / 64).map(|_| AtomicU64::new(0)).collect());
            words[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(super) fn clear(&self, run: Run) {
        for granule in run.start..run.end() {
            if let Some((chunk, word, bit)) = self.at(granule)
                && let Some(words) = chunk.get()
            {
                words[word].fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }
}

impl Default for CheckedBits {
    fn default() -> CheckedBits {
        CheckedBits {
            chunks: (0..4096).map(|_| OnceLock::new()).collect(),
        }
    }
}
