//! A Bloom filter over keys: answers "certainly not" or "perhaps", so that a look-up skips the
//! generations that do not have its key.
//!
//! ```text
//!   hash ──┬─ high bits ──> one block of 512 bits (a cache line)
//!          └─ 6 x 9 bits ─> six bits in it
//! ```
//!
//! Invariant: a bit once set stays set. Sized for a full generation; one that outgrows its size
//! gives more false positives.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK_WORDS: usize = 8;
const BLOCK_BYTES: usize = 64;
const PROBES: u32 = 6;

/// Assumed bytes of an entry in a full generation, overhead included. Each entry is given 16 bits.
const BYTES_PER_ENTRY: u64 = 128;

/// See the module's head.
pub(super) struct Bloom {
    words: NonNull<AtomicU64>,
    /// Number of blocks, which is a power of two, minus one.
    mask: u64,
}

// SAFETY: owned memory of atomics, freed once.
unsafe impl Send for Bloom {}
// SAFETY: as above.
unsafe impl Sync for Bloom {}

impl Bloom {
    /// An empty filter for a generation of `expected_bytes`.
    pub(super) fn new(expected_bytes: u64) -> Bloom {
        let bits = (expected_bytes / BYTES_PER_ENTRY).saturating_mul(16);
        let blocks = (bits / 512).clamp(1, 1 << 20).next_power_of_two();
        let layout = Bloom::layout(blocks);
        // SAFETY: the size is not 0. Zeroed memory is valid for `AtomicU64`; the system maps its
        // pages on first access.
        let words = unsafe { alloc_zeroed(layout) };
        let Some(words) = NonNull::new(words) else {
            handle_alloc_error(layout);
        };
        Bloom {
            words: words.cast(),
            mask: blocks - 1,
        }
    }

    fn layout(blocks: u64) -> Layout {
        match Layout::from_size_align(blocks as usize * BLOCK_BYTES, BLOCK_BYTES) {
            Ok(layout) => layout,
            Err(_) => unreachable!("at most 2^20 blocks"),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.mask + 1) * BLOCK_BYTES as u64
    }

    fn block(&self, hash: u64) -> &[AtomicU64] {
        let at = ((hash >> 40) & self.mask) as usize * BLOCK_WORDS;
        // SAFETY: there are `mask + 1` blocks of `BLOCK_WORDS` words, zeroed, and `at` is the first
        // word of one.
        unsafe { NonNull::slice_from_raw_parts(self.words.add(at), BLOCK_WORDS).as_ref() }
    }

    /// The word and the bit in it, for each probe.
    fn probes(hash: u64) -> impl Iterator<Item = (usize, u64)> {
        // Use bits that did not select the block, as far as possible.
        let bits = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..PROBES).map(move |probe| {
            let at = bits >> (10 + 9 * probe);
            ((at >> 6 & 7) as usize, 1 << (at & 63))
        })
    }

    pub(super) fn insert(&self, hash: u64) {
        let block = self.block(hash);
        for (word, bit) in Bloom::probes(hash) {
            // The bit is usually not set yet. The check avoids contention on the cache line of a
            // hot key.
            if block[word].load(Ordering::Relaxed) & bit == 0 {
                block[word].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let block = self.block(hash);
        Bloom::probes(hash).all(|(word, bit)| block[word].load(Ordering::Relaxed) & bit != 0)
    }
}

impl Drop for Bloom {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.words.as_ptr().cast(), Bloom::layout(self.mask + 1)) };
    }
}

/// A number for a table's key, evenly spread.
pub(in crate::disk::logtree) fn hash(table: u64, key: &[u8]) -> u64 {
    const A: u64 = 0x2d35_8dcc_aa6c_78a5;
    const B: u64 = 0x8bb8_4b93_962e_acc9;
    let mut hash = fold(table ^ A, B);
    let (eights, rest) = key.as_chunks::<8>();
    for eight in eights {
        hash = fold(hash ^ u64::from_le_bytes(*eight), A);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash ^ u64::from_le_bytes(last), B ^ (key.len() as u64) << 1)
}

/// The exclusive or of both halves of the product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(all(test, not(explore)))]
mod tests {
    use super::*;

    #[test]
    fn inserted_keys_are_found_with_few_false_positives() {
        let entries: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let bloom = Bloom::new(entries * BYTES_PER_ENTRY);
        for n in 0..entries {
            bloom.insert(hash(7, &n.to_be_bytes()));
        }
        assert!((0..entries).all(|n| bloom.may_contain(hash(7, &n.to_be_bytes()))));
        let mistaken = |table: u64| {
            let keys = entries..2 * entries;
            keys.filter(|n| bloom.may_contain(hash(table, &n.to_be_bytes())))
                .count() as u64
        };
        // Sixteen bits a key, six probes: about one in a thousand, blocks being uneven.
        assert!(mistaken(7) < entries / 50, "{}", mistaken(7));
        assert!(mistaken(8) < entries / 50, "{}", mistaken(8));
    }
}
