//! RecordId: the identity of a record in its collection.
//!
//! ```text
//!   Number(7)   80 00 00 00 00 00 00 07                  in order of insertion
//!   Key(..)     KeyString of the _id, 9 bytes or more    clustered collections: in order of _id
//! ```
//!
//! All records of a collection have the same kind of id. Keys shorter than nine bytes are padded
//! with zeros. No KeyString is a prefix of another, so padding preserves their order, and the
//! length distinguishes the two kinds.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::raw_value::RawValue;

/// The key of a record in its record store.
pub type RecordKeyBytes = SmallVec<[u8; 16]>;

/// Minimum length of a [`RecordId::Key`] in bytes.
const KEY_BYTES_MIN: usize = 9;

/// Identifies a record; ids order as the records are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordId {
    /// Assigned in insertion order.
    Number(i64),
    /// The KeyString of the cluster key (`_id`), at least nine bytes.
    Key(Arc<[u8]>),
}

impl RecordId {
    /// Below every assigned number.
    pub const MIN: RecordId = RecordId::Number(i64::MIN);
    /// Above every assigned number.
    pub const MAX: RecordId = RecordId::Number(i64::MAX);

    /// The id with this number.
    pub const fn new(number: i64) -> RecordId {
        RecordId::Number(number)
    }

    /// The id of a clustered record: the KeyString of its `_id`, padded to nine bytes.
    pub fn of_key_string(key: &[u8]) -> RecordId {
        let mut bytes: RecordKeyBytes = SmallVec::from_slice(key);
        if bytes.len() < KEY_BYTES_MIN {
            bytes.resize(KEY_BYTES_MIN, 0);
        }
        RecordId::Key(bytes.as_slice().into())
    }

    /// The number; `None` for a clustered record.
    pub fn number(&self) -> Option<i64> {
        match self {
            RecordId::Number(number) => Some(*number),
            RecordId::Key(_) => None,
        }
    }

    /// The value of `$recordId`: a number, or bytes.
    pub fn as_raw(&self) -> RawValue<'_> {
        match self {
            RecordId::Number(number) => RawValue::Int64(*number),
            RecordId::Key(bytes) => RawValue::Binary { subtype: 0, bytes },
        }
    }

    /// The key in the record store. Keys order by memcmp as the ids do.
    pub fn to_key(&self) -> RecordKeyBytes {
        match self {
            RecordId::Number(number) => {
                SmallVec::from_slice(&((*number as u64) ^ (1 << 63)).to_be_bytes())
            }
            RecordId::Key(bytes) => SmallVec::from_slice(bytes),
        }
    }

    /// The inverse of [`RecordId::to_key`]; `None` for fewer than eight bytes.
    #[inline]
    pub fn from_key(key: &[u8]) -> Option<RecordId> {
        match <[u8; 8]>::try_from(key) {
            Ok(number) => Some(RecordId::Number(
                (u64::from_be_bytes(number) ^ (1 << 63)) as i64,
            )),
            Err(_) if key.len() >= KEY_BYTES_MIN => Some(RecordId::Key(key.into())),
            Err(_) => None,
        }
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordId::Number(number) => write!(f, "{number}"),
            RecordId::Key(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keystring::{Directions, KeyStringBuilder};
    use crate::{Value, doc};

    #[test]
    fn keys_sort_like_ids_and_round_trip() {
        let of = |value: &Value| {
            let mut key = KeyStringBuilder::new(Directions::ascending());
            key.append(value.as_raw());
            RecordId::of_key_string(key.as_bytes())
        };
        let values = [
            Value::MinKey,
            Value::Null,
            Value::Int32(-5),
            Value::Int32(0),
            Value::Double(0.5),
            Value::Int64(1 << 40),
            Value::String(String::new()),
            Value::String("a".into()),
            Value::String("a long text that is no number".into()),
            Value::Document(doc! {}),
            Value::Document(doc! {"a": 1}),
            Value::Boolean(true),
            Value::MaxKey,
        ];
        let ids: Vec<RecordId> = values.iter().map(of).collect();
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1], "{} {}", pair[0], pair[1]);
            assert!(pair[0].to_key() < pair[1].to_key());
        }
        let numbers = [i64::MIN, -1, 0, 1, 255, 256, i64::MAX].map(RecordId::new);
        for id in ids.iter().chain(&numbers) {
            assert_eq!(RecordId::from_key(&id.to_key()).as_ref(), Some(id));
        }
        assert!(numbers.is_sorted_by_key(|id| id.to_key()));
        assert_eq!(RecordId::from_key(b"1234567"), None);
    }
}
