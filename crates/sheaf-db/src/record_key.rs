//! The keys under which a collection's table has its records.

use sheaf_bson::RecordId;
use sheaf_bson::record_id::RecordKeyBytes;

/// The key of a record: keys in byte order are records in order of insertion.
#[inline]
pub fn record_key(id: &RecordId) -> RecordKeyBytes {
    id.to_key()
}

/// The inverse of [`record_key`]; `None` for what no record is stored under.
#[inline]
pub fn record_id_of(key: &[u8]) -> Option<RecordId> {
    RecordId::from_key(key)
}
