//! One record of the log: a header, and an encoded batch.
//!
//! ```text
//!   0        4         8          16       24        32       36        40
//!   │ crc    │ crc of  │ identity │ seq    │ durable │ length │ zero    │ batch ... │ zeros to 8 │
//!   │ 4..40  │ batch   │ segment  │        │ then    │        │         │           │            │
//! ```
//!
//! The identity is that of the segment for which the record was written: what a recycled segment
//! still holds from its former use has another identity and is not a record. `durable` is a
//! sequence up to which everything was on disk when the record was made: a record that is missing
//! although a later one attests it has been damaged; without such a witness it was never
//! acknowledged. A header alone with the sequence 0, a mark, is such a witness after the last
//! record.
//!
//! Invariant: decoding accepts any bytes. Lengths are checked before memory is allocated for them.

use bytes::Bytes;

use super::delta::{self, Delta};

use crate::batch::{KeyWrite, Prior, TableFate, WriteBatch};
use crate::disk::logtree::budget::Charge;
use crate::engine::TableId;

/// The segment version from which on values may be deltas.
const DELTAS_SINCE: u32 = 2;
/// Length of a record's header, in bytes.
pub(super) const HEADER: usize = 40;
/// Records begin at multiples of this.
pub(super) const ALIGN: usize = 8;
/// From this many bytes of keys and values on, the buffer for the encoding is allocated at once.
const ROOM_MIN: u64 = 16 << 10;
/// Maximum length of an encoded batch, in bytes.
pub(in crate::disk::logtree) const BATCH_MAX: u64 = 1 << 31;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) batch_crc: u32,
    pub(super) identity: u64,
    pub(super) seq: u64,
    pub(super) durable: u64,
    pub(super) length: u32,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[4..8].copy_from_slice(&self.batch_crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.durable.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.length.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses a header; `None` if the bytes are not one, or one of another segment.
    pub(super) fn from_bytes(bytes: &[u8; HEADER], identity: u64) -> Option<Header> {
        // The cheapest check first: a scan calls this at every offset.
        if u64_at(bytes, 8) != identity
            || u32_at(bytes, 0) != crc32c::crc32c(&bytes[4..])
            || u32_at(bytes, 36) != 0
        {
            return None;
        }
        Some(Header {
            batch_crc: u32_at(bytes, 4),
            identity,
            seq: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            length: u32_at(bytes, 32),
        })
    }

    /// The mark written after the last record once everything up to `durable` is on disk.
    pub(super) fn mark(identity: u64, durable: u64) -> Header {
        Header {
            batch_crc: 0,
            identity,
            seq: 0,
            durable,
            length: 0,
        }
    }

    /// Whether it is a [`Header::mark`]: no batch has the sequence 0.
    pub(super) fn is_mark(&self) -> bool {
        self.seq == 0
    }

    /// Bytes from this record to the next.
    pub(super) fn stride(&self) -> u64 {
        stride(self.length as usize)
    }
}

/// Bytes that a record with a batch of this length takes.
pub(super) fn stride(length: usize) -> u64 {
    (HEADER + length).next_multiple_of(ALIGN) as u64
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// An encoded batch, with space for the header; made before the log is locked.
pub(in crate::disk::logtree) struct Encoded {
    /// Header (zeros until the log assigns it), batch, zeros up to the alignment.
    pub(super) bytes: Vec<u8>,
    pub(super) length: u32,
    pub(super) batch_crc: u32,
    /// Number of its values that are deltas.
    pub(in crate::disk::logtree) deltas: u64,
    /// The charge for a large batch, until it is written.
    pub(in crate::disk::logtree) charge: Option<Charge>,
}

/// The prior hint of a key whose value is a delta.
const DELTA: u64 = 3;

impl Encoded {
    /// Encodes into `bytes`, reusing its allocation; previous contents are discarded. Returns
    /// `None` if the batch is longer than [`BATCH_MAX`].
    pub(in crate::disk::logtree) fn new(batch: &WriteBatch, mut bytes: Vec<u8>) -> Option<Encoded> {
        bytes.clear();
        if batch.bytes() > ROOM_MIN {
            // One allocation: growing the buffer would take up to three times the memory.
            let room = batch.bytes().saturating_add(24 * batch.operations());
            bytes.reserve_exact(HEADER + 64 + room.min(BATCH_MAX) as usize);
        }
        bytes.resize(HEADER, 0);
        let mut deltas = 0;
        for (table, writes) in batch.tables() {
            varint(&mut bytes, table.0);
            bytes.push(fate_number(writes.fate()));
            varint(&mut bytes, writes.ranges().iter().count() as u64);
            for (lo, hi) in writes.ranges().iter() {
                bytes.push(u8::from(hi.is_some()));
                slice(&mut bytes, lo);
                if let Some(hi) = hi {
                    slice(&mut bytes, hi);
                }
            }
            varint(&mut bytes, writes.keys().len() as u64);
            for (key, change) in writes.keys() {
                if let (KeyWrite::Put(value), Some(base)) = (&change.write, &change.base)
                    && writes.keeps(key)
                {
                    let start = bytes.len();
                    varint(&mut bytes, (key.len() as u64) << 3 | DELTA << 1 | 1);
                    bytes.extend_from_slice(key);
                    if delta::encode(base, value, &mut bytes) {
                        deltas += 1;
                        continue;
                    }
                    bytes.truncate(start);
                }
                let put = u64::from(matches!(change.write, KeyWrite::Put(_)));
                let (prior, value_len) = match change.prior {
                    Prior::Unknown => (0, None),
                    Prior::Absent => (1, None),
                    Prior::Present { value_len } => (2, Some(value_len)),
                };
                varint(&mut bytes, (key.len() as u64) << 3 | prior << 1 | put);
                if let Some(value_len) = value_len {
                    varint(&mut bytes, u64::from(value_len));
                }
                bytes.extend_from_slice(key);
                if let KeyWrite::Put(value) = &change.write {
                    if (bytes.len() + value.len()) as u64 > BATCH_MAX {
                        return None;
                    }
                    slice(&mut bytes, value);
                }
            }
        }
        let length = bytes.len() - HEADER;
        if length as u64 > BATCH_MAX {
            return None;
        }
        let batch_crc = crc32c::crc32c(&bytes[HEADER..]);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        Some(Encoded {
            bytes,
            length: length as u32,
            batch_crc,
            deltas,
            charge: None,
        })
    }

    /// Bytes that the record takes in the log.
    pub(in crate::disk::logtree) fn stride(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the memory, for the next batch.
    pub(in crate::disk::logtree) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}

/// A decoded batch without those of its values that are deltas.
#[derive(Debug, Default)]
pub(in crate::disk::logtree) struct Decoded<'a> {
    pub(in crate::disk::logtree) batch: WriteBatch,
    /// The deltas to apply and to put; none of their keys is in the batch.
    pub(in crate::disk::logtree) deltas: Vec<KeyDelta<'a>>,
}

/// The new value of a key, as a delta.
#[derive(Clone, Copy, Debug)]
pub(in crate::disk::logtree) struct KeyDelta<'a> {
    pub(in crate::disk::logtree) table: TableId,
    pub(in crate::disk::logtree) key: &'a [u8],
    pub(in crate::disk::logtree) delta: Delta<'a>,
}

/// Decodes a batch from a segment of this version, or describes what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8], version: u32) -> Result<Decoded<'_>, &'static str> {
    let mut input = Input(bytes);
    let mut decoded = Decoded::default();
    let batch = &mut decoded.batch;
    while !input.0.is_empty() {
        let table = TableId(input.varint()?);
        match input.byte()? {
            0 => {}
            1 => batch.create_table(table),
            2 => batch.drop_table(table),
            3 => {
                batch.drop_table(table);
                batch.create_table(table);
            }
            4 => {
                batch.create_table(table);
                batch.drop_table(table);
            }
            _ => return Err("an unknown fate of a table"),
        }
        for _ in 0..input.varint()? {
            let bounded = input.byte()?;
            let lo = input.slice()?;
            let hi = match bounded {
                0 => None,
                1 => Some(input.slice()?),
                _ => return Err("an unknown kind of range"),
            };
            batch.delete_range(table, lo, hi);
        }
        for _ in 0..input.varint()? {
            let word = input.varint()?;
            let prior = match word >> 1 & 3 {
                0 => Prior::Unknown,
                1 => Prior::Absent,
                2 => Prior::Present {
                    value_len: u32::try_from(input.varint()?).map_err(|_| "a length too great")?,
                },
                _ if version >= DELTAS_SINCE && word & 1 == 1 => {
                    let key = input.take(word >> 3)?;
                    let delta = Delta::decode(&mut input)?;
                    decoded.deltas.push(KeyDelta { table, key, delta });
                    continue;
                }
                _ => return Err("an unknown kind of hint"),
            };
            let key = input.take(word >> 3)?;
            match word & 1 {
                1 => {
                    let value = Bytes::copy_from_slice(input.slice()?);
                    batch.put_with(table, key, value, prior);
                }
                _ => batch.delete_with(table, key, prior),
            }
        }
    }
    Ok(decoded)
}

fn fate_number(fate: TableFate) -> u8 {
    match fate {
        TableFate::Kept => 0,
        TableFate::Created => 1,
        TableFate::Dropped => 2,
        TableFate::Replaced => 3,
        TableFate::Transient => 4,
    }
}

pub(super) fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn slice(out: &mut Vec<u8>, bytes: &[u8]) {
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(u32_at(self.take(4)?, 0))
    }

    pub(super) fn varint(&mut self) -> Result<u64, &'static str> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err("a number that does not end")
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it ends too soon")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn slice(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.varint()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_batch_round_trips() {
        let mut batch = WriteBatch::new();
        batch.put(TableId::CATALOG, b"", "");
        batch.put(TableId(7), b"key", vec![7; 70_000]);
        batch.delete(TableId(7), b"gone");
        batch.insert_new(TableId(7), b"new", "1");
        batch.put_with(TableId(7), b"old", "2", Prior::Present { value_len: 300 });
        batch.delete_with(TableId(7), b"older", Prior::Present { value_len: 0 });
        batch.delete_range(TableId(7), b"a", Some(b"b"));
        batch.delete_range(TableId(7), b"x", None);
        batch.create_table(TableId(8));
        batch.put(TableId(8), b"k", "v");
        batch.drop_table(TableId(9));
        batch.drop_table(TableId(u64::MAX));
        batch.create_table(TableId(u64::MAX));
        batch.create_table(TableId(10));
        batch.drop_table(TableId(10));
        let encoded = Encoded::new(&batch, vec![1, 2, 3]).unwrap();
        assert_eq!(encoded.bytes.len() % ALIGN, 0);
        let length = encoded.length as usize;
        assert_eq!(encoded.stride(), stride(length));
        let back = decode(&encoded.bytes[HEADER..HEADER + length], 1).unwrap();
        assert!(back.batch.tables().eq(batch.tables()));
        assert!(back.deltas.is_empty());
    }

    #[test]
    fn a_value_is_a_delta_where_its_base_is_known_and_like_it() {
        let base = Bytes::from((0..=255).collect::<Vec<u8>>());
        let mut like = base.to_vec();
        like[100] = 0;
        let table = TableId(7);
        let mut batch = WriteBatch::new();
        batch.put_over(table, b"like", like.clone(), &base);
        batch.put_over(table, b"unlike", vec![1; 256], &base);
        batch.put(table, b"unknown", like.clone());
        // Only the first write of a key has the value before the batch.
        batch.put(table, b"late", vec![1; 256]);
        batch.put_over(table, b"late", like.clone(), &base);
        batch.put_over(table, b"twice", vec![2; 256], &base);
        batch.put_over(table, b"twice", like.clone(), &Bytes::from(vec![2; 256]));
        // A key in a deleted range, or in a table that is recreated, has no base.
        batch.delete_range(table, b"x", Some(b"y"));
        batch.put_over(table, b"x1", like.clone(), &base);
        batch.create_table(TableId(8));
        batch.put_over(TableId(8), b"like", like.clone(), &base);
        let encoded = Encoded::new(&batch, Vec::new()).unwrap();
        assert_eq!(encoded.deltas, 2);
        let bytes = &encoded.bytes[HEADER..HEADER + encoded.length as usize];
        assert_eq!(decode(bytes, 1).unwrap_err(), "an unknown kind of hint");
        let back = decode(bytes, 2).unwrap();
        let deltas: Vec<_> = back.deltas.iter().map(|d| (d.table, d.key)).collect();
        assert_eq!(deltas, [(table, &b"like"[..]), (table, b"twice")]);
        for found in &back.deltas {
            assert_eq!(found.delta.apply(&base).as_ref(), Some(&like));
        }
        let keys = back.batch.table(table).unwrap().keys();
        assert_eq!(
            keys.keys().collect::<Vec<_>>(),
            ["late", "unknown", "unlike", "x1"]
        );
    }

    #[test]
    fn a_header_is_of_its_segment_and_whole() {
        let header = Header {
            batch_crc: 1,
            identity: 2,
            seq: 3,
            durable: 2,
            length: 5,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::from_bytes(&bytes, 2), Some(header));
        assert_eq!(Header::from_bytes(&bytes, 3), None);
        assert_eq!(Header::from_bytes(&[0; HEADER], 0), None);
        for bit in 0..HEADER * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::from_bytes(&damaged, 2), None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, 1);
            let _ = decode(&bytes, 2);
        }
    }
}
