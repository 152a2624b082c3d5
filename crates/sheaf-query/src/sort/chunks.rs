//! Sorts in memory without long uninterruptible steps.
//!
//! Entries are sorted in chunks of a few thousand, each when it is full, which takes a
//! millisecond or two. The chunks are merged lazily, as entries are requested. An operation can be
//! interrupted between any two entries, and the first result does not wait for one large sort.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Number of entries in a chunk.
const CHUNK: usize = 4096;

/// Collects entries to sort. The sort is not stable: the order of equal entries is unspecified.
#[derive(Debug)]
pub struct Chunks<E> {
    open: Vec<E>,
    sorted: Vec<Vec<E>>,
}

impl<E> Default for Chunks<E> {
    fn default() -> Self {
        Chunks {
            open: Vec::new(),
            sorted: Vec::new(),
        }
    }
}

impl<E: Ord> Chunks<E> {
    /// Adds an entry; sorts the chunk if it is full.
    pub fn push(&mut self, entry: E) {
        self.open.push(entry);
        if self.open.len() >= CHUNK {
            self.end_chunk();
        }
    }

    fn end_chunk(&mut self) {
        if !self.open.is_empty() {
            self.open.sort_unstable();
            self.sorted.push(std::mem::take(&mut self.open));
        }
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sorted.is_empty()
    }

    /// Takes all entries, in order, and leaves this empty.
    pub fn take(&mut self) -> Merge<E> {
        self.end_chunk();
        let sorted = std::mem::take(&mut self.sorted);
        let mut chunks: Vec<_> = sorted.into_iter().map(Vec::into_iter).collect();
        let heads = chunks.iter_mut().enumerate();
        let heads = heads.filter_map(|(at, chunk)| Some(Reverse((chunk.next()?, at))));
        Merge {
            heads: heads.collect(),
            chunks,
        }
    }
}

/// Sorted chunks, merged lazily.
#[derive(Debug)]
pub struct Merge<E> {
    chunks: Vec<std::vec::IntoIter<E>>,
    /// The least remaining entry of each chunk that is not exhausted, and the number of the chunk.
    heads: BinaryHeap<Reverse<(E, usize)>>,
}

impl<E: Ord> Merge<E> {
    /// Whether no entry is left.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}

impl<E: Ord> Iterator for Merge<E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        let mut head = self.heads.peek_mut()?;
        let at = head.0.1;
        match self.chunks[at].next() {
            Some(next) => Some(std::mem::replace(&mut head.0.0, next)),
            None => {
                let Reverse((last, _)) = PeekMut::pop(head);
                Some(last)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All entries are returned in order, for any number of chunks.
    #[test]
    fn everything_in_order() {
        for count in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let mut chunks = Chunks::default();
            // 7919 is a prime, so this visits each residue once.
            (0..count).for_each(|n| chunks.push(n * 7919 % count));
            assert_eq!(chunks.is_empty(), count == 0);
            let all: Vec<usize> = chunks.take().collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>(), "{count} entries");
            assert!(chunks.is_empty());
        }
    }
}
