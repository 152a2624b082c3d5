//! The keys of one document in one index, encoded, sorted, deduplicated.
//!
//! ```text
//!   {a: [3, 1, 3.0]}  in {a: 1}   ──>   bytes  | 1 | 3 |          keys in order, back to back
//!                                       keys   [(0..2), (2..4)]   with their type bits
//!                                       multikey paths [[0]]
//! ```
//!
//! 3 and 3.0 are one key; the type bits of the first occurrence are kept. Buffers are reused across
//! documents.

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::collation::{shown_key_value, text_of_sort_key};
use sheaf_bson::hash64::hash64;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{
    Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, RecordId, Result,
};
use sheaf_query::planner::index_entry::{IndexField, IndexKind, MultikeyPaths};
use smallvec::SmallVec;

use crate::index::Keys;

/// Maximum size of one document's keys in one index, in bytes. A long text next to a long array in
/// one compound index multiplies: without a limit 16 MiB of document would become terabytes.
const DOCUMENT_KEY_BYTES_MAX: usize = 128 << 20;

/// Encodes the values of a key, and decodes them.
#[derive(Debug, Clone)]
pub struct KeyEncoder {
    directions: Directions,
    names: Vec<String>,
    /// Encodes text as sort keys of this collation; `None` for plain text.
    collator: Option<Arc<Collator>>,
    /// The field whose text is never collated: the path field of a wildcard index.
    path_field: Option<usize>,
}

impl KeyEncoder {
    /// For an index with these fields.
    pub fn new(
        fields: &[IndexField],
        kind: &IndexKind,
        collator: Option<Arc<Collator>>,
    ) -> KeyEncoder {
        KeyEncoder {
            collator,
            path_field: match kind {
                IndexKind::Wildcard(wildcard) => Some(wildcard.path_field),
                _ => None,
            },
            directions: Directions::from_signs(fields.iter().map(|f| i32::from(f.direction))),
            names: fields.iter().map(|f| f.path.dotted().to_owned()).collect(),
        }
    }

    /// Directions of the fields.
    pub fn directions(&self) -> Directions {
        self.directions
    }

    /// Number of fields of a key.
    pub fn field_count(&self) -> usize {
        self.names.len()
    }

    /// Decodes a key (without record id) to a document keyed by the index's fields: `{ a: 1, "b.c":
    /// "x" }`.
    /// Errors: `DataCorruptionDetected` for bytes that are not a key of this index.
    pub fn decode(&self, key: &[u8], type_bits: &[u8]) -> Result<DocBuf> {
        let mut reader = sheaf_bson::keystring::KeyReader::new(key, type_bits, self.directions);
        let mut out = DocBuilder::new();
        for name in &self.names {
            match reader.read_into(&mut out, name) {
                Ok(true) => {}
                Ok(false) => return Err(damaged_key("it is too short")),
                Err(error) => return Err(damaged_key(&error.to_string())),
            }
        }
        Ok(out.finish())
    }

    /// Like [`KeyEncoder::decode`], with sort keys in readable form: `{ a: "0x2a01" }`.
    pub fn decode_shown(&self, key: &[u8], type_bits: &[u8]) -> Result<DocBuf> {
        let values = self.decode(key, type_bits)?;
        if self.collator.is_none() {
            return Ok(values);
        }
        let mut out = DocBuilder::new();
        for (field, element) in values.iter().enumerate() {
            match (self.collator_of(field), element.value()) {
                (Some(_), RawValue::String(text)) => {
                    out.append(element.key(), text_of_sort_key(text).as_str());
                }
                (Some(_), value) => {
                    out.append_bson(element.key(), &shown_key_value(value));
                }
                (None, value) => {
                    out.append(element.key(), value);
                }
            }
        }
        Ok(out.finish())
    }

    /// Collation of a field's text.
    fn collator_of(&self, field: usize) -> Option<&Collator> {
        self.collator
            .as_deref()
            .filter(|_| self.path_field != Some(field))
    }

    /// Encodes these values as a key, without record id.
    pub fn encode<'v>(&self, values: impl IntoIterator<Item = RawValue<'v>>) -> Vec<u8> {
        let mut builder = KeyStringBuilder::new(self.directions);
        self.append(&mut builder, values);
        builder.finish().0
    }

    fn append<'v>(
        &self,
        builder: &mut KeyStringBuilder,
        values: impl IntoIterator<Item = RawValue<'v>>,
    ) {
        for (field, value) in values.into_iter().enumerate() {
            let descending = self.directions.is_descending(field);
            builder.append_directed_with(value, descending, self.collator_of(field));
        }
    }
}

/// Appends a record id to keys, which yields the key of an entry in an index's table.
#[derive(Debug, Default)]
pub struct EntryKey(KeyStringBuilder);

impl EntryKey {
    /// The entry of `key` for this record; valid until the next call.
    pub fn of(&mut self, key: &[u8], id: &RecordId) -> &[u8] {
        self.0.reset();
        self.0.append_encoded(key);
        self.0.append_record_id(id);
        self.0.as_bytes()
    }
}

pub(crate) fn damaged_key(why: &str) -> Error {
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!(
            "an index holds an entry that is not a key ({why}); drop the index and create it again"
        ),
    )
}

/// The keys of one document; see the module.
#[derive(Debug, Default)]
pub struct KeySet {
    builder: KeyStringBuilder,
    bytes: Vec<u8>,
    keys: Vec<Place>,
    multikey: MultikeyPaths,
    /// For a wildcard index: the array paths, sorted and deduplicated.
    arrays: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    key_len: usize,
    type_bits_len: usize,
}

/// A key and the type information it loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    /// The KeyString of all fields, without record id.
    pub key: &'a [u8],
    /// The TypeBits.
    pub type_bits: &'a [u8],
}

impl KeySet {
    /// An empty set.
    pub fn new() -> KeySet {
        KeySet::default()
    }

    /// Removes all keys; keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.multikey.clear();
        self.arrays.clear();
    }

    /// Approximate memory held, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        // The builder holds one key, and `bytes` at least that one.
        2 * self.bytes.capacity() + self.keys.capacity() * size_of::<Place>()
    }

    /// Fills the empty set with the document's keys.
    pub(crate) fn generate(
        &mut self,
        how: &Keys,
        encoder: &KeyEncoder,
        doc: RawDoc<'_>,
    ) -> Result<()> {
        debug_assert!(self.keys.is_empty() && self.bytes.is_empty(), "not cleared");
        if let Keys::Vector(vectors) = how {
            return vectors.for_each_entry(doc, &mut |key, value| {
                self.keys.push(Place {
                    start: self.bytes.len(),
                    key_len: key.len(),
                    type_bits_len: value.len(),
                });
                self.bytes.extend_from_slice(key);
                self.bytes.extend_from_slice(value);
                Ok(())
            });
        }
        let KeySet {
            builder,
            bytes,
            keys,
            multikey,
            arrays,
        } = self;
        let mut add = |values: &[RawValue<'_>]| {
            builder.reset();
            encoder.append(builder, values.iter().copied());
            let (key, type_bits) = (builder.as_bytes(), builder.type_bits().as_bytes());
            if bytes.len() + key.len() > DOCUMENT_KEY_BYTES_MAX {
                return Err(Error::new(
                    ErrorCode::CANNOT_BUILD_INDEX_KEYS,
                    format!(
                        "the document would have more than {DOCUMENT_KEY_BYTES_MAX} bytes of index \
                         keys; shorten its arrays or its indexed values"
                    ),
                ));
            }
            keys.push(Place {
                start: bytes.len(),
                key_len: key.len(),
                type_bits_len: type_bits.len(),
            });
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(type_bits);
            Ok(())
        };
        match how {
            Keys::Plain(generator) => generator.for_each_key(doc, multikey, &mut add)?,
            Keys::Hashed(generator, field) => {
                generator.for_each_key(doc, multikey, &mut |values| {
                    let mut values: SmallVec<[RawValue<'_>; 4]> = values.into();
                    let hash = match &encoder.collator {
                        Some(collator) => hash64(collator.key_value(values[*field]).as_raw()),
                        None => hash64(values[*field]),
                    };
                    values[*field] = RawValue::Int64(hash);
                    add(&values)
                })?;
                if !multikey[*field].is_empty() {
                    return Err(array_in_hashed(generator.paths()[*field].dotted()));
                }
            }
            Keys::Wildcard(wildcard) => {
                let mut array = |path: &str| arrays.push(path.to_owned());
                wildcard.for_each_key(doc, &mut array, &mut add)?;
                arrays.sort_unstable();
                arrays.dedup();
            }
            Keys::Vector(_) => {}
        }
        if self.keys.len() > 1 {
            let bytes = &self.bytes;
            // Stable: of equal keys the first is kept.
            self.keys.sort_by(|a, b| a.key(bytes).cmp(b.key(bytes)));
            self.keys.dedup_by(|b, a| a.key(bytes) == b.key(bytes));
        }
        debug_assert!(self.is_sorted());
        debug_assert!(multikey_is_sorted(&self.multikey));
        debug_assert!(self.arrays.is_sorted_by(|a, b| a < b));
        Ok(())
    }

    /// Whether the keys are strictly ascending.
    fn is_sorted(&self) -> bool {
        self.iter().is_sorted_by(|a, b| a.key < b.key)
    }

    /// The keys, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Key<'_>> {
        self.keys.iter().map(|place| place.of(&self.bytes))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the index has no entries for the document.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Which parts of which fields are arrays in the document. Empty if it has no keys.
    pub fn multikey_paths(&self) -> &MultikeyPaths {
        const NONE: &MultikeyPaths = &Vec::new();
        if self.keys.is_empty() {
            NONE
        } else {
            &self.multikey
        }
    }

    /// The array paths of the document, sorted; only for a wildcard index. Empty if it has no keys.
    pub fn array_paths(&self) -> &[String] {
        if self.keys.is_empty() {
            &[]
        } else {
            &self.arrays
        }
    }

    /// Merges the old and new keys of a document and calls `each` for the differences: keys that
    /// were removed, keys that were added, and keys whose types changed.
    pub fn differences<'a>(
        old: &'a KeySet,
        new: &'a KeySet,
        mut each: impl FnMut(Difference<'a>) -> Result<()>,
    ) -> Result<()> {
        debug_assert!(
            old.is_sorted() && new.is_sorted(),
            "key sets are merged in their order"
        );
        let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (olds.peek(), news.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.key.cmp(b.key),
            };
            let removed = order.is_le().then(|| olds.next()).flatten();
            let added = order.is_ge().then(|| news.next()).flatten();
            match (removed, added) {
                (Some(old), None) => each(Difference::Removed(old))?,
                (None, Some(new)) => each(Difference::Added(new))?,
                (Some(old), Some(new)) if old.type_bits != new.type_bits => {
                    each(Difference::Retyped(new))?;
                }
                _ => {}
            }
        }
    }
}

/// Whether the array positions of each field are strictly ascending.
fn multikey_is_sorted(paths: &MultikeyPaths) -> bool {
    paths.iter().all(|parts| parts.is_sorted_by(|a, b| a < b))
}

fn array_in_hashed(path: &str) -> Error {
    Error::new(
        ErrorCode(16766),
        format!(
            "hashed indexes do not currently support array values. Found array at path: {path}"
        ),
    )
}

/// A difference between the keys of a document before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference<'a> {
    /// Only in the old document.
    Removed(Key<'a>),
    /// Only in the new document.
    Added(Key<'a>),
    /// In both, with different types (1 and 1.0): the entry's value changes.
    Retyped(Key<'a>),
}

impl Place {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.start + self.key_len]
    }

    fn of(self, bytes: &[u8]) -> Key<'_> {
        let key_end = self.start + self.key_len;
        Key {
            key: &bytes[self.start..key_end],
            type_bits: &bytes[key_end..key_end + self.type_bits_len],
        }
    }
}
