//! The record id after an index key. It orders by memcmp and can be read from the end, because the
//! length of the key before it is not recorded.
//!
//! ```text
//!  n = 0..7 further bytes
//!  | n:3 top:5 |  n bytes  | low:5 n:3 |      10 + 8n bits of the id, big-endian
//! ```
//!
//! The smallest n that holds the id is used; more bytes mean a larger first byte. Ids below 0 are
//! written as 0, which is below every record.
//!
//! ```text
//!  | key | F0 | its length, 7 bytes big-endian | 07 |         an id of bytes
//! ```
//!
//! No number has F0 in that position: it would have to be too large.

use crate::record_id::RecordId;

/// Marks an id of bytes, in the position of the first byte of a number with seven further bytes,
/// which is at most E3.
const KEY_MARK: u8 = 0xF0;

pub(super) fn encode(out: &mut Vec<u8>, id: &RecordId) {
    let id = match id {
        RecordId::Number(number) => (*number).max(0) as u64,
        RecordId::Key(key) => {
            out.extend_from_slice(key);
            out.push(KEY_MARK);
            out.extend_from_slice(&(key.len() as u64).to_be_bytes()[1..]);
            out.push(7);
            return;
        }
    };
    let bits = 64 - id.leading_zeros();
    let n = bits.saturating_sub(10).div_ceil(8);
    // The data bits are those of `id`, with the lowest 5 in the last byte.
    let top = id.checked_shr(5 + 8 * n).unwrap_or(0) as u8;
    out.push((n as u8) << 5 | top);
    out.extend((0..n).rev().map(|i| (id >> (5 + 8 * i)) as u8));
    out.push((id as u8) << 3 | n as u8);
}

/// Splits an index entry's key into the record id at its end and the length of the key before it.
/// `None` if the end is not a record id.
pub fn decode_record_id(key: &[u8]) -> Option<(RecordId, usize)> {
    let (&last, front) = key.split_last()?;
    let n = usize::from(last & 7);
    let start = front.len().checked_sub(n + 1)?;
    let (&first, middle) = front[start..].split_first()?;
    if first == KEY_MARK && last == 7 {
        let len = middle.iter().try_fold(0usize, |len, &byte| {
            Some(len.checked_mul(256)? + usize::from(byte))
        })?;
        let key_start = start.checked_sub(len)?;
        return Some((RecordId::Key(front[key_start..start].into()), key_start));
    }
    if usize::from(first >> 5) != n {
        return None;
    }
    let id = middle.iter().fold(u64::from(first & 0x1F), |id, &byte| {
        id << 8 | u64::from(byte)
    });
    let overflow = id.leading_zeros() < 5 + 1;
    let id = id << 5 | u64::from(last >> 3);
    (!overflow).then_some((RecordId::Number(id as i64), start))
}
