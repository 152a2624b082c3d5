//! The hash function of hashed indexes: the first eight bytes, as a little-endian integer, of the
//! MD5 of a canonical form of the value.
//!
//! ```text
//!   canonical form:  00 00 00 00 | rank of the type, 4 bytes | the value
//!   numbers          truncated to a 64-bit integer: 5, 5.0 and 5.9 are equal
//!   documents        (rank, name, value) of every field; arrays likewise
//!   everything else  its bytes in BSON
//! ```
//!
//! MongoDB documents that numbers are truncated to integers and that the hash has 64 bits. This
//! form yields its published hash of 1 (and so of all integers). We do not claim that other types
//! hash to MongoDB's numbers.
//!
//! Invariant: values that compare equal have equal hashes.

use md5::{Digest, Md5};

use crate::builder::DocBuilder;
use crate::compare::DEPTH_MAX;
use crate::raw::RawDoc;
use crate::raw_value::RawValue;

/// The hash of a value. A missing value hashes as null.
pub fn hash64(value: RawValue<'_>) -> i64 {
    let mut form = vec![0; 4];
    append(value, &mut form, 0);
    let digest = Md5::digest(&form);
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
        // The cast truncates, saturates, and maps NaN to 0.
        RawValue::Double(x) => out.extend_from_slice(&(x as i64).to_le_bytes()),
        RawValue::Decimal128(d) => {
            let n = d.to_i64_exact().unwrap_or_else(|| d.to_f64() as i64);
            out.extend_from_slice(&n.to_le_bytes());
        }
        RawValue::Document(doc) => append_fields(doc, true, out, depth),
        RawValue::Array(array) => append_fields(array.as_doc(), false, out, depth),
        // A symbol equals a string with the same text.
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
    // Below this depth equality compares bytes, so hashing nothing more is correct for any value.
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
    // Marks the end, so that [[1], 2] differs from [[1, 2]].
    out.extend_from_slice(&0i32.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decimal128, Value, doc};

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
