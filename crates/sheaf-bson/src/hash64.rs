//! The hash of hashed indexes: the first eight bytes, as a little-endian
//! integer, of the MD5 of a canonical form of the value.
//!
//! ```text
//!   canonical form:  00 00 00 00 | rank of the type, 4 bytes | the value
//!   numbers          cut to a 64-bit integer: 5, 5.0 and 5.9 are one
//!   documents        (rank, name, value) of every field; arrays alike
//!   everything else  its bytes in BSON
//! ```
//!
//! MongoDB documents that numbers are cut to integers and that the hash is of
//! 64 bits; the form here gives its published hash of 1 (and so of all
//! integers). That other types hash to the same numbers is not claimed.
//!
//! Invariant: values that are equal in the order of values have equal hashes.

use crate::builder::DocBuilder;
use crate::compare::DEPTH_MAX;
use crate::raw::RawDoc;
use crate::raw_value::RawValue;

/// The hash of a value; a missing one hashes as null.
pub fn hash64(value: RawValue<'_>) -> i64 {
    let mut form = vec![0; 4];
    append(value, &mut form, 0);
    let digest = md5(&form);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_le_bytes(first)
}

fn append(value: RawValue<'_>, out: &mut Vec<u8>, depth: u32) {
    let rank = value.element_type().canonical_rank();
    out.extend_from_slice(&i32::from(rank).to_le_bytes());
    match value {
        RawValue::Int32(n) => out.extend_from_slice(&i64::from(n).to_le_bytes()),
        RawValue::Int64(n) => out.extend_from_slice(&n.to_le_bytes()),
        // The cast cuts off, saturates, and takes NaN for 0.
        RawValue::Double(x) => out.extend_from_slice(&(x as i64).to_le_bytes()),
        RawValue::Decimal128(d) => {
            let n = d.to_i64_exact().unwrap_or_else(|| d.to_f64() as i64);
            out.extend_from_slice(&n.to_le_bytes());
        }
        RawValue::Document(doc) => append_fields(doc, true, out, depth),
        RawValue::Array(array) => append_fields(array.as_doc(), false, out, depth),
        // Equal to a string of the same text.
        RawValue::Symbol(text) => append_bytes(RawValue::String(text), out),
        other => append_bytes(other, out),
    }
}

fn append_bytes(value: RawValue<'_>, out: &mut Vec<u8>) {
    let mut doc = DocBuilder::new();
    doc.append("", value);
    let doc = doc.finish();
    if let Some(element) = doc.iter().next() {
        out.extend_from_slice(element.raw_value_bytes());
    }
}

fn append_fields(doc: RawDoc<'_>, names: bool, out: &mut Vec<u8>, depth: u32) {
    // Below this depth equality looks at bytes, and a constant is a hash of anything.
    if depth >= DEPTH_MAX {
        return;
    }
    for element in doc {
        if names {
            out.extend_from_slice(element.key_bytes());
            out.push(0);
        }
        append(element.value(), out, depth + 1);
    }
    // Where it ends, so that [[1], 2] is not [[1, 2]].
    out.extend_from_slice(&0i32.to_le_bytes());
}

/// How far each step of a round rotates.
const ROTATIONS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// MD5 (RFC 1321). Spreads keys; guards nothing.
fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in message.chunks_exact(64) {
        let mut words = [0u32; 16];
        for (word, four) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64usize {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            // The RFC's table: the sine of the step, in fractions of 2^32.
            let sine = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a
                .wrapping_add(mixed)
                .wrapping_add(sine)
                .wrapping_add(words[word]);
            a = d;
            d = c;
            c = b;
            b = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
        }
        for (whole, part) in state.iter_mut().zip([a, b, c, d]) {
            *whole = whole.wrapping_add(part);
        }
    }
    let mut out = [0; 16];
    for (four, word) in out.chunks_exact_mut(4).zip(state) {
        four.copy_from_slice(&word.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decimal128, Value, doc};

    #[test]
    fn md5_of_the_rfc() {
        let hex = |bytes: &[u8]| -> String { md5(bytes).map(|b| format!("{b:02x}")).concat() };
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(text.as_bytes()), digest);
        }
    }

    #[test]
    fn numbers_are_cut() {
        let hash = |value: Value| hash64(value.as_raw());
        assert_eq!(hash(Value::Int32(1)), 5_902_408_780_260_971_510);
        let five = hash(Value::Int32(5));
        for same in [
            Value::Int64(5),
            Value::Double(5.0),
            Value::Double(5.9),
            Value::Decimal128("5.9".parse::<Decimal128>().unwrap()),
        ] {
            assert_eq!(hash(same), five);
        }
        assert_eq!(hash(Value::Double(f64::NAN)), hash(Value::Int32(0)));
        assert_eq!(hash(Value::Double(1e300)), hash(Value::Int64(i64::MAX)));
    }

    #[test]
    fn equal_values_hash_alike_and_others_do_not() {
        let hash = |doc: crate::DocBuf| hash64(RawValue::Document(doc.as_raw()));
        assert_eq!(
            hash(doc! {"a": 1, "b": [1, 2]}),
            hash(doc! {"a": 1.0, "b": [1i64, 2.0]})
        );
        let others = [
            doc! {"a": 1, "b": [1, 2]},
            doc! {"b": [1, 2], "a": 1},
            doc! {"a": 1, "b": [1], "c": 2},
            doc! {"a": 1, "b": [[1], 2]},
            doc! {"a": 1, "b": [[1, 2]]},
            doc! {"a": "1", "b": [1, 2]},
            doc! {},
        ];
        let mut hashes: Vec<i64> = others.into_iter().map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 7);
    }
}
