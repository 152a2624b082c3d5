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

use md5::{Digest, Md5};

use crate::builder::DocBuilder;
use crate::compare::DEPTH_MAX;
use crate::raw::RawDoc;
use crate::raw_value::RawValue;

/// The hash of a value; a missing one hashes as null.
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
