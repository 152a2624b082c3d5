//! A set of byte strings, numbered in insertion order.
//!
//! Groups, joins and sets are looked up by KeyString, up to a hundred megabytes of them. Their
//! bytes are stored contiguously in a few chunks, so that growing and freeing a table do not touch
//! each key: an operation that ends does not have to free a million small allocations.
//!
//! ```text
//!   slots    [ 0 | 2 | 0 | 1 | ... ]      by hash: number + 1, or 0
//!   entries  [ hash, where ] [ hash, where ] ...
//!   chunks   [ key key key ... ] [ key ... ] ...
//! ```
//!
//! Invariant: every key is stored once, and its number does not change.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::interrupt;

/// Maximum number of keys for linear search, without slots.
const FEW: usize = 8;
/// Size of the first chunk; each further chunk has twice the size of the previous one, up to
/// [`CHUNK_BYTES_MAX`].
const CHUNK_BYTES_MIN: usize = 64;
const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Byte strings by number, and numbers by byte string.
#[derive(Debug, Clone, Default)]
pub struct KeyTable {
    hasher: RandomState,
    slots: Vec<u32>,
    entries: Vec<Entry>,
    chunks: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    chunk: u32,
    at: u32,
    len: u32,
}

impl KeyTable {
    /// An empty table, which does not allocate before the first key.
    pub fn new() -> KeyTable {
        KeyTable::default()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of a key; `None` if it is not in the table.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        self.find_hashed(key, self.hasher.hash_one(key)).ok()
    }

    /// Inserts a key if it is new. Returns its number, and whether it is new. Numbers ascend from
    /// 0.
    #[inline]
    pub fn insert(&mut self, key: &[u8]) -> (usize, bool) {
        let hash = self.hasher.hash_one(key);
        match self.find_hashed(key, hash) {
            Ok(at) => (at, false),
            Err(slot) => (self.add(key, hash, slot), true),
        }
    }

    /// The key with this number; empty if there is none.
    #[inline]
    pub fn key(&self, number: usize) -> &[u8] {
        match self.entries.get(number) {
            Some(entry) => self.bytes_of(entry),
            None => &[],
        }
    }

    /// All keys, in order of their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| self.bytes_of(entry))
    }

    #[inline]
    fn bytes_of(&self, entry: &Entry) -> &[u8] {
        let chunk = self.chunks.get(entry.chunk as usize);
        let at = entry.at as usize;
        chunk
            .and_then(|chunk| chunk.get(at..at + entry.len as usize))
            .unwrap_or(&[])
    }

    /// The number of the key; `Err` is the slot where it must be inserted.
    #[inline]
    fn find_hashed(&self, key: &[u8], hash: u64) -> Result<usize, usize> {
        let is = |entry: &Entry| {
            interrupt::count(1);
            entry.hash == hash && self.bytes_of(entry) == key
        };
        if self.slots.is_empty() {
            return self.entries.iter().position(is).ok_or(0);
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot].checked_sub(1) {
                None => return Err(slot),
                Some(number) if is(&self.entries[number as usize]) => return Ok(number as usize),
                Some(_) => slot = (slot + 1) & mask,
            }
        }
    }

    fn add(&mut self, key: &[u8], hash: u64, slot: usize) -> usize {
        let number = self.entries.len();
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= key.len();
        if !self.chunks.last().is_some_and(fits) {
            let before = self.chunks.last().map_or(0, Vec::capacity);
            let bytes = (before * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            self.chunks.push(Vec::with_capacity(bytes.max(key.len())));
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        self.entries.push(Entry {
            hash,
            chunk: last as u32,
            at: chunk.len() as u32,
            len: key.len() as u32,
        });
        chunk.extend_from_slice(key);
        if !self.slots.is_empty() {
            self.slots[slot] = number as u32 + 1;
        }
        // At least half of the slots are free, so that probe sequences are short.
        if self.entries.len() > FEW && self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    /// Moves all entries to a larger slot table, of which an eighth to a quarter is then used. Does
    /// not read keys.
    fn grow(&mut self) {
        let size = (self.entries.len() * 4).next_power_of_two();
        let mut slots = vec![0; size];
        for (number, entry) in self.entries.iter().enumerate() {
            let mut slot = entry.hash as usize & (size - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            slots[slot] = number as u32 + 1;
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a map, for keys of many lengths, including one larger than a chunk.
    #[test]
    fn numbers_are_kept() {
        let mut table = KeyTable::new();
        assert!(table.is_empty());
        assert_eq!(table.find(b""), None);
        let key = |n: usize| {
            let mut key = vec![n as u8; n % 40];
            key.extend_from_slice(&(n / 3).to_be_bytes());
            key
        };
        let mut expected: Vec<Vec<u8>> = Vec::new();
        let mut numbers = std::collections::HashMap::new();
        for n in (0..20_000).chain(0..100) {
            let key = match n {
                700 => vec![7; CHUNK_BYTES_MAX + 1],
                1_500 => Vec::new(),
                _ => key(n),
            };
            let is_new = !numbers.contains_key(&key);
            let number = *numbers.entry(key.clone()).or_insert(expected.len());
            if is_new {
                expected.push(key.clone());
                assert_eq!(table.find(&key), None);
            }
            assert_eq!(table.insert(&key), (number, is_new));
        }
        assert_eq!(table.len(), expected.len());
        for (number, key) in expected.iter().enumerate() {
            assert_eq!(table.find(key), Some(number));
            assert_eq!(table.key(number), key);
        }
        assert!(table.keys().eq(expected.iter().map(|key| &key[..])));
        assert_eq!(table.key(expected.len()), b"");
    }
}
