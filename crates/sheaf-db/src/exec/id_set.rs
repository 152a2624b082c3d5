//! Sets of record ids, for de-duplication.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use sheaf_bson::RecordId;

/// Record ids already seen. The numbers are assigned by the server and dense, so one multiplication
/// spreads them well enough; no client can choose them.
#[derive(Debug, Default)]
pub struct RecordIdSet {
    numbers: HashSet<i64, BuildHasherDefault<IdHasher>>,
    /// Ids of clustered collections. Clients may choose these, so they use the standard library's
    /// seeded hasher.
    keys: HashSet<Arc<[u8]>>,
}

impl RecordIdSet {
    /// Returns true if `id` was not in the set.
    #[inline]
    pub fn insert(&mut self, id: &RecordId) -> bool {
        match id {
            RecordId::Number(number) => self.numbers.insert(*number),
            RecordId::Key(key) => self.keys.insert(key.clone()),
        }
    }

    /// Whether `id` is in the set.
    #[inline]
    pub fn contains(&self, id: &RecordId) -> bool {
        match id {
            RecordId::Number(number) => self.numbers.contains(number),
            RecordId::Key(key) => self.keys.contains(key),
        }
    }

    /// Number of ids in the set.
    pub fn len(&self) -> usize {
        self.numbers.len() + self.keys.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0.rotate_left(8) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_i64(&mut self, id: i64) {
        let mixed = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
