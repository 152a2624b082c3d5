//! KeyString: values encoded as bytes whose memcmp order is the order of values.
//!
//! ```text
//!  index {a: 1, b: -1}, document {a: 5, b: "x"}, record 7
//!
//!    45 0a        a7 87 ff          00 38
//!    | 5          | "x" complemented | record id
//!    '-- class, digits                '-- length in first and last byte
//!
//!  seek to the first key after a = 5:   45 0a ff
//! ```
//!
//! Invariants:
//!
//! - For tuples of values x and y, memcmp of their encodings equals comparing
//!   value by value with [`crate::compare_values`], reversed where the field
//!   descends. Values that compare equal have equal bytes, so 1, 1.0 and
//!   Decimal 1.00 have the same key.
//! - An encoding is never a proper prefix of another of the same field, and
//!   its first byte is neither 00 nor FF. A prefix of whole fields therefore
//!   sorts just before all keys that start with it, and with FF appended just
//!   after them.
//! - What the bytes do not distinguish (int or double, trailing zeros of a
//!   decimal, string or symbol) is kept in [`TypeBits`], which are stored
//!   alongside the key and not compared. Key and type bits together restore the
//!   exact value, except the payload of a NaN.
//!
//! With a collator ([`KeyStringBuilder::append_with`]), strings are replaced by their sort keys as
//! text: the key is the one of [`Collator::key_value`], and the original strings cannot be
//! restored.
//!
//! `docs/format/keystring.md` specifies the format byte by byte.

mod encode;
mod number;
mod reader;
mod record_id;
mod type_bits;

use crate::collation::Collator;
use crate::raw_value::RawValue;
pub use crate::record_id::RecordId;

pub use reader::{KeyReader, decode, field_end, fields, prefix_end};
pub use record_id::decode_record_id;
pub use type_bits::TypeBits;

/// The direction of each field of an index: bit i is set if field i descends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directions(u64);

impl Directions {
    /// All fields ascend.
    pub const fn ascending() -> Directions {
        Directions(0)
    }

    /// Takes the values of a key pattern in order; a negative value descends. Fields past the 64th
    /// ascend; an index has at most 32.
    pub fn from_signs(signs: impl IntoIterator<Item = i32>) -> Directions {
        let bits = signs.into_iter().take(64).enumerate();
        Directions(bits.fold(0, |bits, (i, sign)| bits | (u64::from(sign < 0) << i)))
    }

    /// The directions of the fields from `first` on, renumbered from 0.
    pub fn starting_at(self, first: usize) -> Directions {
        Directions(if first < 64 { self.0 >> first } else { 0 })
    }

    /// Whether field `i` descends.
    #[inline]
    pub fn is_descending(self, i: usize) -> bool {
        i < 64 && (self.0 >> i) & 1 == 1
    }
}

/// The position of a seek key relative to the keys that start with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discriminator {
    /// Before all of them.
    Before,
    /// After all of them.
    After,
}

/// Builds keys one after another in one buffer.
#[derive(Clone, Debug, Default)]
pub struct KeyStringBuilder {
    bytes: Vec<u8>,
    type_bits: TypeBits,
    directions: Directions,
    fields: usize,
}

impl KeyStringBuilder {
    /// A builder for keys with these directions.
    pub fn new(directions: Directions) -> KeyStringBuilder {
        KeyStringBuilder {
            directions,
            ..KeyStringBuilder::default()
        }
    }

    /// Clears the buffer for the next key, which has the same directions.
    pub fn reset(&mut self) {
        self.bytes.clear();
        self.type_bits.clear();
        self.fields = 0;
    }

    /// Appends the next field in its direction.
    pub fn append<'v>(&mut self, value: impl Into<RawValue<'v>>) -> &mut KeyStringBuilder {
        let descending = self.directions.is_descending(self.fields);
        self.append_directed(value, descending)
    }

    /// Appends the next field in its direction, with text encoded by a collation.
    pub fn append_with<'v>(
        &mut self,
        value: impl Into<RawValue<'v>>,
        collator: Option<&Collator>,
    ) -> &mut KeyStringBuilder {
        let descending = self.directions.is_descending(self.fields);
        self.encode(value.into(), descending, collator)
    }

    /// Appends the next field in the given direction.
    pub fn append_directed<'v>(
        &mut self,
        value: impl Into<RawValue<'v>>,
        descending: bool,
    ) -> &mut KeyStringBuilder {
        self.encode(value.into(), descending, None)
    }

    /// Appends the next field in the given direction, with text encoded by a collation.
    pub fn append_directed_with<'v>(
        &mut self,
        value: impl Into<RawValue<'v>>,
        descending: bool,
        collator: Option<&Collator>,
    ) -> &mut KeyStringBuilder {
        self.encode(value.into(), descending, collator)
    }

    fn encode(
        &mut self,
        value: RawValue<'_>,
        descending: bool,
        collator: Option<&Collator>,
    ) -> &mut KeyStringBuilder {
        let start = self.bytes.len();
        let (bytes, bits) = (&mut self.bytes, &mut self.type_bits);
        match collator {
            None => encode::value(bytes, bits, value, 0, encode::AsItIs),
            Some(collator) => encode::value(bytes, bits, value, 0, collator),
        }
        if descending {
            self.bytes[start..].iter_mut().for_each(|b| *b = !*b);
        }
        self.fields += 1;
        self
    }

    /// Appends the next field, already encoded in its direction. Its type bits are unknown, so use
    /// this only for seek keys.
    pub fn append_encoded(&mut self, field: &[u8]) -> &mut KeyStringBuilder {
        self.append_encoded_prefix(field, 1)
    }

    /// Appends `fields` fields that are already encoded, such as a prefix taken from another key
    /// with the same directions.
    pub fn append_encoded_prefix(&mut self, bytes: &[u8], fields: usize) -> &mut KeyStringBuilder {
        self.bytes.extend_from_slice(bytes);
        self.fields += fields;
        self
    }

    /// Turns this into a seek key, just before or just after every key that starts with the fields
    /// so far. Append nothing after it.
    pub fn append_discriminator(&mut self, discriminator: Discriminator) -> &mut KeyStringBuilder {
        if discriminator == Discriminator::After {
            self.bytes.push(0xFF);
        }
        self
    }

    /// Appends the record id that ends an index entry. It distinguishes and orders entries whose
    /// fields are all equal.
    pub fn append_record_id(&mut self, id: &RecordId) -> &mut KeyStringBuilder {
        record_id::encode(&mut self.bytes, id);
        self
    }

    /// The key so far.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the key itself does not record about the types of its values.
    #[inline]
    pub fn type_bits(&self) -> &TypeBits {
        &self.type_bits
    }

    /// Number of fields appended.
    pub fn field_count(&self) -> usize {
        self.fields
    }

    /// Returns the key and its type bits.
    pub fn finish(self) -> (Vec<u8>, TypeBits) {
        (self.bytes, self.type_bits)
    }
}

/// The first byte of an encoded value.
mod class {
    pub const MIN_KEY: u8 = 0x08;
    pub const UNDEFINED: u8 = 0x10;
    pub const NULL: u8 = 0x18;
    // 0x2F ..= 0x50 are numbers, on both sides of zero.
    pub const NAN: u8 = ZERO - 17;
    pub const ZERO: u8 = 0x40;
    pub const INFINITY: u8 = ZERO + 16;
    pub const STRING: u8 = 0x58;
    pub const DOCUMENT: u8 = 0x60;
    pub const ARRAY: u8 = 0x68;
    pub const BINARY: u8 = 0x70;
    pub const OBJECT_ID: u8 = 0x78;
    pub const FALSE: u8 = 0x80;
    pub const TRUE: u8 = 0x81;
    pub const DATE_TIME: u8 = 0x88;
    pub const TIMESTAMP: u8 = 0x90;
    pub const REGEX: u8 = 0x98;
    pub const DB_POINTER: u8 = 0xA0;
    pub const JAVASCRIPT: u8 = 0xA8;
    pub const JAVASCRIPT_WITH_SCOPE: u8 = 0xB0;
    pub const MAX_KEY: u8 = 0xF0;
}
