//! Documents read in place.
//!
//! A `RawDoc` borrows the bytes of a document and decodes an element on request. Bytes are
//! validated once, where they enter the process (socket, disk: see [`crate::validate`]). Reading
//! never fails and never panics. On malformed bytes an iteration ends early, text that is not UTF-8
//! reads as "", and a malformed nested frame reads as empty.
//!
//! ```text
//!  document   | len i32 | element ... | 00 |      len counts everything
//!  element    | type | key bytes | 00 | value |
//! ```
//!
//! Looking up a key compares bytes and skips values by their lengths. It neither validates nor
//! decodes the values it skips.

use crate::element_type::ElementType;
use crate::error::BsonError;
use crate::error_code::{Error, ErrorCode};
use crate::raw_value::{RawValue, decode};

/// A document in place. Cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawDoc<'a> {
    bytes: &'a [u8],
}

/// An array in place: the same bytes as a document, with keys ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawArray<'a> {
    doc: RawDoc<'a>,
}

const EMPTY_BYTES: &[u8] = &[5, 0, 0, 0, 0];

#[inline]
fn read_len(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    let len = i32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    usize::try_from(len).ok()
}

/// Whether the length prefix equals the number of bytes and the last byte is zero. Every document
/// read from the engine passes here.
#[inline]
fn is_frame(bytes: &[u8]) -> bool {
    let [a, b, c, d, .., 0] = *bytes else {
        return false;
    };
    usize::try_from(i32::from_le_bytes([a, b, c, d])) == Ok(bytes.len())
}

impl<'a> RawDoc<'a> {
    /// The document without elements.
    pub const EMPTY: RawDoc<'static> = RawDoc { bytes: EMPTY_BYTES };

    /// Checks only the outer frame: the length prefix equals `bytes.len()` and the last byte is
    /// zero.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<RawDoc<'a>, BsonError> {
        match is_frame(bytes) {
            true => Ok(RawDoc { bytes }),
            false => Err(RawDoc::frame_error(bytes)),
        }
    }

    /// Why `bytes` are not a document's frame.
    #[cold]
    fn frame_error(bytes: &[u8]) -> BsonError {
        RawDoc::parse_prefix(bytes).map_or_else(
            |error| error,
            |_| {
                BsonError::new(
                    "unexpected bytes after the end of the document",
                    doc_len(bytes),
                )
            },
        )
    }

    /// Like [`RawDoc::parse`], for a document at the start of `bytes`. Also returns the bytes that
    /// follow it.
    pub fn parse_prefix(bytes: &'a [u8]) -> Result<(RawDoc<'a>, &'a [u8]), BsonError> {
        let Some(len) = read_len(bytes, 0) else {
            return Err(BsonError::new(
                "not enough bytes for the length of a document",
                0,
            ));
        };
        if len < 5 {
            return Err(BsonError::new(
                format!("document length {len} is below the minimum of 5"),
                0,
            ));
        }
        if len > bytes.len() {
            let message = format!(
                "document length {len} exceeds the {} bytes available",
                bytes.len()
            );
            return Err(BsonError::new(message, 0));
        }
        if bytes[len - 1] != 0 {
            return Err(BsonError::new(
                "document does not end with a zero byte",
                len - 1,
            ));
        }
        let (own, rest) = bytes.split_at(len);
        Ok((RawDoc { bytes: own }, rest))
    }

    /// [`RawDoc::parse`] for bytes that the storage engine returned as a document. Errors:
    /// `DataCorruptionDetected` when they are not one; the caller adds where they are stored.
    #[inline]
    pub fn stored(bytes: &'a [u8]) -> Result<RawDoc<'a>, Error> {
        match is_frame(bytes) {
            true => Ok(RawDoc { bytes }),
            false => Err(not_a_document(RawDoc::frame_error(bytes))),
        }
    }

    /// The document in bytes whose frame was checked before. Debug builds check it again; bytes
    /// that are not a document read as described in the module head, without a panic.
    #[inline]
    pub fn from_bytes_unchecked(bytes: &'a [u8]) -> RawDoc<'a> {
        debug_assert!(RawDoc::parse(bytes).is_ok(), "not a document: {bytes:?}");
        RawDoc { bytes }
    }

    /// A nested frame; empty if it is too short for a document.
    #[inline]
    pub(crate) fn nested(bytes: &'a [u8]) -> RawDoc<'a> {
        if bytes.len() < 5 {
            RawDoc::EMPTY
        } else {
            RawDoc { bytes }
        }
    }

    /// The elements, in document order.
    #[inline]
    pub fn iter(self) -> RawIter<'a> {
        RawIter {
            rest: self.bytes.get(4..).unwrap_or(&[]),
        }
    }

    /// The first element with this key.
    #[inline]
    pub fn get_element(self, key: &str) -> Option<RawElement<'a>> {
        let wanted = key.as_bytes();
        self.iter().find(|e| e.key_bytes() == wanted)
    }

    /// The value of the first element with this key.
    #[inline]
    pub fn get(self, key: &str) -> Option<RawValue<'a>> {
        self.get_element(key).map(|e| e.value())
    }

    /// The first element.
    #[inline]
    pub fn first(self) -> Option<RawElement<'a>> {
        self.iter().next()
    }

    /// The whole document, including length prefix and terminating zero.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The size in bytes, including length prefix and terminating zero.
    #[inline]
    pub fn len_bytes(self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.first().is_none()
    }

    /// An owned copy.
    pub fn to_buf(self) -> crate::DocBuf {
        crate::DocBuf::from_vec_unchecked(self.bytes.to_vec())
    }
}

#[cold]
fn not_a_document(why: BsonError) -> Error {
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!("a stored document is damaged: {why}; run validate on the collection"),
    )
}

fn doc_len(bytes: &[u8]) -> usize {
    read_len(bytes, 0).unwrap_or(0)
}

impl<'a> IntoIterator for RawDoc<'a> {
    type Item = RawElement<'a>;
    type IntoIter = RawIter<'a>;
    #[inline]
    fn into_iter(self) -> RawIter<'a> {
        self.iter()
    }
}

impl<'a> RawArray<'a> {
    /// The array without elements.
    pub const EMPTY: RawArray<'static> = RawArray { doc: RawDoc::EMPTY };

    /// The array with the bytes of this document. Keys are ignored.
    #[inline]
    pub fn from_doc(doc: RawDoc<'a>) -> RawArray<'a> {
        RawArray { doc }
    }

    /// Checks only the outer frame, as [`RawDoc::parse`] does.
    pub fn parse(bytes: &'a [u8]) -> Result<RawArray<'a>, BsonError> {
        RawDoc::parse(bytes).map(RawArray::from_doc)
    }

    /// The same bytes as a document with keys "0", "1"...
    #[inline]
    pub fn as_doc(self) -> RawDoc<'a> {
        self.doc
    }

    /// The values, in array order.
    #[inline]
    pub fn iter(self) -> RawArrayIter<'a> {
        RawArrayIter {
            elements: self.doc.iter(),
        }
    }

    /// The elements with their stored keys.
    #[inline]
    pub fn elements(self) -> RawIter<'a> {
        self.doc.iter()
    }

    /// The value at this position. Walks the array in O(n); keys are ignored.
    #[inline]
    pub fn get(self, index: usize) -> Option<RawValue<'a>> {
        self.doc.iter().nth(index).map(|e| e.value())
    }

    /// Number of values. Walks the array in O(n).
    #[inline]
    pub fn count(self) -> usize {
        self.doc.iter().count()
    }

    /// Whether there is no value.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.doc.is_empty()
    }

    /// The whole array, including length prefix and terminating zero.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.doc.bytes
    }

    /// The size in bytes, including length prefix and terminating zero.
    #[inline]
    pub fn len_bytes(self) -> usize {
        self.doc.bytes.len()
    }

    /// An owned copy.
    pub fn to_buf(self) -> crate::ArrayBuf {
        crate::ArrayBuf::from_vec_unchecked(self.doc.bytes.to_vec())
    }
}

impl<'a> IntoIterator for RawArray<'a> {
    type Item = RawValue<'a>;
    type IntoIter = RawArrayIter<'a>;
    #[inline]
    fn into_iter(self) -> RawArrayIter<'a> {
        self.iter()
    }
}

/// The elements of a document. Ends early on malformed bytes.
#[derive(Clone, Copy)]
pub struct RawIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for RawIter<'a> {
    type Item = RawElement<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawElement<'a>> {
        let Some((element, rest)) = RawElement::split(self.rest) else {
            self.rest = &[];
            return None;
        };
        self.rest = rest;
        Some(element)
    }
}

/// The values of an array. Ends early on malformed bytes.
#[derive(Clone, Copy)]
pub struct RawArrayIter<'a> {
    elements: RawIter<'a>,
}

impl<'a> Iterator for RawArrayIter<'a> {
    type Item = RawValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawValue<'a>> {
        self.elements.next().map(|e| e.value())
    }
}

/// One element in place: type, key and undecoded value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawElement<'a> {
    /// Type byte, key, zero, value.
    bytes: &'a [u8],
    key_len: u32,
    /// Always a valid type byte.
    type_byte: u8,
}

impl<'a> RawElement<'a> {
    /// The element at the start of `bytes`, which may be longer; `None` if the element is
    /// incomplete.
    #[inline]
    pub fn parse_prefix(bytes: &'a [u8]) -> Option<RawElement<'a>> {
        RawElement::split(bytes).map(|(element, _)| element)
    }

    /// The element at the start of `bytes`, and the bytes that follow it.
    #[inline]
    fn split(bytes: &'a [u8]) -> Option<(RawElement<'a>, &'a [u8])> {
        let (&type_byte, after) = bytes.split_first()?;
        let key_len = find_zero(after)?;
        let value = &after[key_len + 1..];
        let value_len = match LEN[usize::from(type_byte)] {
            len @ 0..=16 => usize::from(len),
            STRING => read_len(value, 0)?.checked_add(4).filter(|&n| n >= 5)?,
            DOCUMENT => read_len(value, 0).filter(|&n| n >= 5)?,
            _ => rare_len(type_byte, value)?,
        };
        let (bytes, rest) = bytes.split_at_checked(2 + key_len + value_len)?;
        Some((
            RawElement {
                bytes,
                key_len: key_len as u32,
                type_byte,
            },
            rest,
        ))
    }

    /// The type.
    #[inline]
    pub fn element_type(&self) -> ElementType {
        ElementType::from_known_u8(self.type_byte)
    }

    /// The key; "" when it is not UTF-8.
    #[inline]
    pub fn key(&self) -> &'a str {
        std::str::from_utf8(self.key_bytes()).unwrap_or("")
    }

    /// The bytes of the key, without the terminating zero.
    #[inline]
    pub fn key_bytes(&self) -> &'a [u8] {
        &self.bytes[1..1 + self.key_len as usize]
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> RawValue<'a> {
        decode(self.element_type(), self.raw_value_bytes())
    }

    /// The undecoded bytes of the value.
    #[inline]
    pub fn raw_value_bytes(&self) -> &'a [u8] {
        &self.bytes[2 + self.key_len as usize..]
    }

    /// The bytes of the whole element: type byte, key, zero and value.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// In [`LEN`]: a length prefix that does not count itself.
const STRING: u8 = 0xF0;
/// In [`LEN`]: a length prefix that counts itself.
const DOCUMENT: u8 = 0xF1;
/// In [`LEN`]: any other layout, or not a type.
const RARE: u8 = 0xFF;

/// The size of a value by type byte. Walking a document looks it up for every element.
static LEN: [u8; 256] = {
    let mut table = [RARE; 256];
    let mut i = 0;
    while i < ElementType::ALL.len() {
        let element_type = ElementType::ALL[i];
        table[element_type as usize] = match (element_type.fixed_len(), element_type) {
            (Some(len), _) => len,
            (_, ElementType::String | ElementType::JavaScript | ElementType::Symbol) => STRING,
            (_, ElementType::Document | ElementType::Array) => DOCUMENT,
            _ => RARE,
        };
        i += 1;
    }
    table
};

/// The size of a value whose type is [`RARE`] in [`LEN`]; `None` if its lengths are inconsistent or
/// the type does not exist.
#[cold]
fn rare_len(type_byte: u8, bytes: &[u8]) -> Option<usize> {
    match ElementType::from_u8(type_byte)? {
        ElementType::JavaScriptWithScope => read_len(bytes, 0).filter(|&n| n >= 14),
        ElementType::Binary => read_len(bytes, 0)?.checked_add(5),
        ElementType::DbPointer => read_len(bytes, 0)?.checked_add(16).filter(|&n| n >= 17),
        ElementType::Regex => {
            let pattern = memchr::memchr(0, bytes)?;
            let options = memchr::memchr(0, &bytes[pattern + 1..])?;
            Some(pattern + options + 2)
        }
        _ => None,
    }
}

/// The position of the first zero byte. Keys are short: two eight-byte steps find most ends in less
/// time than a call to memchr takes.
#[inline]
pub(crate) fn find_zero(bytes: &[u8]) -> Option<usize> {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        let zeros = zero_bytes(u64::from_le_bytes(*chunk));
        if zeros != 0 {
            return Some(zeros.trailing_zeros() as usize / 8);
        }
        if let Some(chunk) = bytes[8..].first_chunk::<8>() {
            let zeros = zero_bytes(u64::from_le_bytes(*chunk));
            if zeros != 0 {
                return Some(8 + zeros.trailing_zeros() as usize / 8);
            }
        }
    }
    find_far_zero(bytes)
}

#[cold]
fn find_far_zero(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(0, bytes)
}

/// The lowest bit set in the result marks the first zero byte of the word; higher bits may be
/// wrong.
#[inline]
pub(crate) fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}
