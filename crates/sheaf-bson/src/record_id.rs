//! RecordId: the name of a record in its collection.

use std::fmt;

/// A record's place in its collection's order of insertion: 1, 2, 3...
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub i64);

impl RecordId {
    /// Below every record.
    pub const MIN: RecordId = RecordId(i64::MIN);
    /// Above every record.
    pub const MAX: RecordId = RecordId(i64::MAX);

    /// Eight bytes whose order is the order of the ids.
    pub const fn to_key(self) -> [u8; 8] {
        ((self.0 as u64) ^ (1 << 63)).to_be_bytes()
    }

    /// The inverse of [`RecordId::to_key`].
    pub const fn from_key(key: [u8; 8]) -> RecordId {
        RecordId((u64::from_be_bytes(key) ^ (1 << 63)) as i64)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
