//! Keys of records in a collection's table.

use sheaf_bson::RecordId;
use sheaf_bson::record_id::RecordKeyBytes;

/// The key of a record. Keys are in byte order as their record ids are in numerical order.
#[inline]
pub fn record_key(id: &RecordId) -> RecordKeyBytes {
    id.to_key()
}

/// The inverse of [`record_key`]; `None` if the key is not a record id.
#[inline]
pub fn record_id_of(key: &[u8]) -> Option<RecordId> {
    RecordId::from_key(key)
}
