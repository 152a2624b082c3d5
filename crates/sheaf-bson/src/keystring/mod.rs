//! KeyString: values as bytes whose memcmp order is the order of values.
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
//!   Decimal 1.00 are one key.
//! - An encoding is never a proper prefix of another of the same field, and
//!   its first byte is neither 00 nor FF. So a prefix of whole fields sorts
//!   just before all keys that have it, and with FF appended just after them.
//! - What the bytes forget (int or double, trailing zeros of a decimal, string
//!   or symbol) is kept in [`TypeBits`], stored beside the key and not
//!   compared. With them the exact value comes back, except the payload of a
//!   NaN.
//!
//! With a collator ([`KeyStringBuilder::append_with`]) strings are replaced by
//! their sort keys as text: the key is that of [`Collator::key_value`], and the
//! strings themselves do not come back.
//!
//! The format is written down byte by byte in `docs/format/keystring.md`.

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

/// The direction of every field of an index: bit i set means field i descends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directions(u64);

impl Directions {
    /// All fields ascend.
    pub const fn ascending() -> Directions {
        Directions(0)
    }

    /// From the values of a key pattern in order: negative descends. Fields
    /// past the 64th ascend; an index has at most 32.
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

/// Where a seek key lies among the keys that begin with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discriminator {
    /// Before all of them.
    Before,
    /// After all of them.
    After,
}

/// Builds one key after another in one buffer.
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

    /// Empties the buffer for the next key, whose directions are the same.
    pub fn reset(&mut self) {
        self.bytes.clear();
        self.type_bits.clear();
        self.fields = 0;
    }

    /// Appends the next field, in its direction.
    pub fn append<'v>(&mut self, value: impl Into<RawValue<'v>>) -> &mut KeyStringBuilder {
        let descending = self.directions.is_descending(self.fields);
        self.append_directed(value, descending)
    }

    /// Appends the next field, in its direction, its text by a collation.
    pub fn append_with<'v>(
        &mut self,
        value: impl Into<RawValue<'v>>,
        collator: Option<&Collator>,
    ) -> &mut KeyStringBuilder {
        let descending = self.directions.is_descending(self.fields);
        self.encode(value.into(), descending, collator)
    }

    /// Appends the next field in a direction given here.
    pub fn append_directed<'v>(
        &mut self,
        value: impl Into<RawValue<'v>>,
        descending: bool,
    ) -> &mut KeyStringBuilder {
        self.encode(value.into(), descending, None)
    }

    /// Appends the next field in a direction given here, its text by a collation.
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

    /// Appends the next field, encoded already in its direction. Its type bits
    /// are not known, so this is for seek keys.
    pub fn append_encoded(&mut self, field: &[u8]) -> &mut KeyStringBuilder {
        self.append_encoded_prefix(field, 1)
    }

    /// Appends `fields` fields that are encoded already, such as a prefix cut
    /// out of another key with the same directions.
    pub fn append_encoded_prefix(&mut self, bytes: &[u8], fields: usize) -> &mut KeyStringBuilder {
        self.bytes.extend_from_slice(bytes);
        self.fields += fields;
        self
    }

    /// Makes this a seek key: just before or just after every key that begins
    /// with the fields so far. Nothing is to be appended behind it.
    pub fn append_discriminator(&mut self, discriminator: Discriminator) -> &mut KeyStringBuilder {
        if discriminator == Discriminator::After {
            self.bytes.push(0xFF);
        }
        self
    }

    /// Ends an index entry: keys equal in all fields are told apart and sorted by record.
    pub fn append_record_id(&mut self, id: &RecordId) -> &mut KeyStringBuilder {
        record_id::encode(&mut self.bytes, id);
        self
    }

    /// The key so far.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the key forgets of its values' types.
    #[inline]
    pub fn type_bits(&self) -> &TypeBits {
        &self.type_bits
    }

    /// How many fields were appended.
    pub fn field_count(&self) -> usize {
        self.fields
    }

    /// Gives key and type bits away.
    pub fn finish(self) -> (Vec<u8>, TypeBits) {
        (self.bytes, self.type_bits)
    }
}

/// The first byte of an encoded value.
mod class {
    pub const MIN_KEY: u8 = 0x08;
    pub const UNDEFINED: u8 = 0x10;
    pub const NULL: u8 = 0x18;
    // 0x2F ..= 0x50 are the numbers around zero.
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
