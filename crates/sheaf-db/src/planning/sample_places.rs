//! Places to sample in a collection, spread over its records.
//!
//! ```text
//!   first  3c 61 | 00 .. 00 |        the common prefix, then eight bytes that differ:
//!   last   3c 61 | ff .. 07 | ..     places are evenly spaced between them
//! ```
//!
//! Record numbers are spread evenly, or nearly; the `_id`s of a clustered collection are as clients
//! chose them. Sparse ranges are then sampled as often as dense ones: this is fine for fields that
//! do not correlate with `_id`, but unsuitable for estimates on `_id` itself.

use sheaf_bson::record_id::RecordKeyBytes;

/// Number of bytes that distinguish places.
const APART: usize = 8;

/// Evenly spaced places between a first and a last record.
#[derive(Debug)]
pub(crate) struct Places {
    prefix: RecordKeyBytes,
    first: u64,
    span: u128,
}

impl Places {
    /// Places between the keys of two records, the first not after the last.
    pub(crate) fn between(first: &[u8], last: &[u8]) -> Places {
        let common = match first.len() == APART && last.len() == APART {
            true => 0,
            false => first.iter().zip(last).take_while(|(a, b)| a == b).count(),
        };
        let (from, to) = (number_at(first, common), number_at(last, common));
        Places {
            prefix: RecordKeyBytes::from_slice(&first[..common]),
            first: from,
            span: u128::from(to.saturating_sub(from)) + 1,
        }
    }

    /// The place at fraction `part / of`, with `part < of`: the record there, or the next one, is
    /// sampled.
    pub(crate) fn at(&self, part: u128, of: u128) -> RecordKeyBytes {
        let offset = self.span * part / of;
        let mut key = self.prefix.clone();
        key.extend_from_slice(&(self.first + offset as u64).to_be_bytes());
        key
    }
}

fn number_at(key: &[u8], at: usize) -> u64 {
    let mut bytes = [0; APART];
    for (byte, own) in bytes.iter_mut().zip(&key[at..]) {
        *byte = *own;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::RecordId;

    #[test]
    fn numbers_are_sampled_exactly() {
        let places = Places::between(&RecordId::new(-5).to_key(), &RecordId::new(94).to_key());
        for part in [0, 1, 50, 99] {
            let key = places.at(part, 100);
            assert_eq!(
                RecordId::from_key(&key),
                Some(RecordId::new(part as i64 - 5))
            );
        }
        let one = Places::between(&RecordId::new(7).to_key(), &RecordId::new(7).to_key());
        assert_eq!(RecordId::from_key(&one.at(3, 4)), Some(RecordId::new(7)));
    }

    #[test]
    fn keys_are_sampled_in_order_within_bounds() {
        let (first, last) = (
            b"<a prefix of them all, 1".as_slice(),
            b"<a prefix of them all, 9 and on".as_slice(),
        );
        let places = Places::between(first, last);
        let mut before = RecordKeyBytes::new();
        for part in 0..256u128 {
            let key = places.at(part << 32, 256 << 32);
            assert!(
                key > before && &key[..] <= last && key[..first.len()] >= *first,
                "{part}"
            );
            before = key;
        }
        // Every fraction is a place, whatever the ends.
        let same = Places::between(first, first);
        assert!(same.at(1, 2).starts_with(first));
        let widest = Places::between(&[0; 9], &[0xFF; 30]);
        assert!(widest.at((1 << 40) - 1, 1 << 40) > widest.at(0, 1));
    }
}
