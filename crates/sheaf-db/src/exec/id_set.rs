//! Sets of record ids, for de-duplication.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use sheaf_bson::RecordId;

/// Record ids already seen. Record ids are ours and dense, so one
/// multiplication spreads them well enough; no client chooses them.
#[derive(Debug, Default)]
pub struct RecordIdSet(HashSet<i64, BuildHasherDefault<IdHasher>>);

impl RecordIdSet {
    /// True when it was not there.
    #[inline]
    pub fn insert(&mut self, id: RecordId) -> bool {
        self.0.insert(id.0)
    }

    /// True when it is there.
    #[inline]
    pub fn contains(&self, id: RecordId) -> bool {
        self.0.contains(&id.0)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
