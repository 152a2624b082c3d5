//! Decodes keys field by field, without trusting the bytes.
//!
//! [`field_end`], [`prefix_end`] and [`fields`] only find where fields end: a scan needs this to
//! compare a field's bytes with encoded bounds, and to build the prefix of its next seek.
//! [`KeyReader`] decodes the values, optionally directly into a document.

use std::borrow::Cow;

use super::type_bits::TypeBitsReader;
use super::{Directions, class, number};
use crate::builder::DocBuilder;
use crate::compare::DEPTH_MAX;
use crate::error::BsonError;
use crate::instant::{DateTime, Timestamp};
use crate::object_id::ObjectId;
use crate::raw::{RawArray, RawDoc};
use crate::raw_value::RawValue;
use crate::value::Value;

/// All values of a key without record id.
///
/// Errors: bytes that are not a key, or type bits that do not match it.
pub fn decode(
    key: &[u8],
    type_bits: &[u8],
    directions: Directions,
) -> Result<Vec<Value>, BsonError> {
    KeyReader::new(key, type_bits, directions).collect()
}

/// The end offset of the field that begins at `start`; `None` if the field is not complete.
#[inline]
pub fn field_end(key: &[u8], start: usize, descending: bool) -> Option<usize> {
    let len = skip_field(key.get(start..)?, descending).ok()?;
    Some(start + len)
}

/// The length in bytes of the first `n` fields; `None` if the key has fewer or is malformed.
pub fn prefix_end(key: &[u8], n: usize, directions: Directions) -> Option<usize> {
    (0..n).try_fold(0, |at, i| field_end(key, at, directions.is_descending(i)))
}

/// The fields of a key without record id, each as its bytes. Ends early at malformed bytes.
pub fn fields(key: &[u8], directions: Directions) -> impl Iterator<Item = &[u8]> {
    let mut rest = key;
    let mut i = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = skip_field(rest, directions.is_descending(i)).ok()?;
        i += 1;
        let (field, tail) = rest.split_at_checked(len)?;
        rest = tail;
        Some(field)
    })
}

/// Decodes the values of a key without record id, one at a time.
#[derive(Clone)]
pub struct KeyReader<'a> {
    key: &'a [u8],
    at: usize,
    bits: TypeBitsReader<'a>,
    directions: Directions,
    field: usize,
    /// Scratch space in which the iterator builds a value.
    buffer: Vec<u8>,
}

impl<'a> KeyReader<'a> {
    /// A reader at the first field.
    pub fn new(key: &'a [u8], type_bits: &'a [u8], directions: Directions) -> KeyReader<'a> {
        KeyReader {
            key,
            at: 0,
            bits: TypeBitsReader::new(type_bits),
            directions,
            field: 0,
            buffer: Vec::new(),
        }
    }

    /// Offset of the next field.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether all fields were read.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.key.len()
    }

    /// Appends the next field's value to a document under `name`. Returns false at the end of the
    /// key. After an error the document is unusable.
    pub fn read_into(&mut self, builder: &mut DocBuilder, name: &str) -> Result<bool, BsonError> {
        if self.is_at_end() {
            return Ok(false);
        }
        let flip = if self.directions.is_descending(self.field) {
            0xFF
        } else {
            0
        };
        let mut cursor = Cursor {
            bytes: self.key,
            at: self.at,
            flip,
        };
        Decoder {
            cursor: &mut cursor,
            bits: &mut self.bits,
            scratch: Vec::new(),
        }
        .value(builder, Name::Field(name), 0)?;
        self.at = cursor.at;
        self.field += 1;
        Ok(true)
    }
}

impl Iterator for KeyReader<'_> {
    type Item = Result<Value, BsonError>;

    /// The next field's value. After an error the iterator ends.
    fn next(&mut self) -> Option<Result<Value, BsonError>> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut holder = DocBuilder::with_vec(buffer);
        match self.read_into(&mut holder, "") {
            Ok(true) => {
                self.buffer = holder.finish_into();
                let first = RawDoc::parse(&self.buffer).ok()?.first()?;
                Some(Ok(first.value().to_value()))
            }
            Ok(false) => None,
            Err(error) => {
                self.at = self.key.len();
                Some(Err(error))
            }
        }
    }
}

/// Reads the bytes of a key, undoing the complement of a descending field.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    flip: u8,
}

impl<'a> Cursor<'a> {
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn fail<T>(&self, message: &str) -> Result<T, BsonError> {
        Err(BsonError::new(message, self.at))
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, BsonError> {
        match self.bytes.get(self.at) {
            Some(&byte) => {
                self.at += 1;
                Ok(byte ^ self.flip)
            }
            None => self.fail("key ends inside a value"),
        }
    }

    /// The next `n` bytes as stored, without undoing the complement.
    #[inline]
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], BsonError> {
        match self.bytes.get(self.at..self.at.saturating_add(n)) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => self.fail("key ends inside a value"),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BsonError> {
        let flip = self.flip;
        let bytes = self.take(N)?;
        let mut array = [0; N];
        array
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = from ^ flip);
        Ok(array)
    }

    fn length(&mut self) -> Result<usize, BsonError> {
        match self.byte()? {
            0xFF => Ok(u32::from_be_bytes(self.array()?) as usize),
            short => Ok(usize::from(short)),
        }
    }

    /// Reads a text: returns its stored bytes and skips the terminator.
    fn text(&mut self) -> Result<&'a [u8], BsonError> {
        match memchr::memchr(self.flip, &self.bytes[self.at..]) {
            None => self.fail("unterminated text in the key"),
            Some(len) => {
                let text = &self.bytes[self.at..self.at + len];
                self.at += len + 1;
                Ok(text)
            }
        }
    }

    /// Reads a text and unescapes it. Borrows the stored bytes if they need no change.
    fn unescaped_text(&mut self) -> Result<Cow<'a, [u8]>, BsonError> {
        let flip = self.flip;
        let start = self.at;
        let stored = self.text()?;
        if flip == 0 && memchr::memchr(1, stored).is_none() {
            return Ok(Cow::Borrowed(stored));
        }
        let mut out = Vec::with_capacity(stored.len());
        let mut bytes = stored.iter().map(|b| b ^ flip);
        while let Some(byte) = bytes.next() {
            out.push(match byte {
                1 => match bytes.next() {
                    Some(escaped @ (1 | 2)) => escaped - 1,
                    _ => return Err(BsonError::new("malformed text in the key", start)),
                },
                other => other,
            });
        }
        Ok(Cow::Owned(out))
    }
}

/// The length in bytes of the field at the start of `bytes`.
fn skip_field(bytes: &[u8], descending: bool) -> Result<usize, BsonError> {
    let mut cursor = Cursor {
        bytes,
        at: 0,
        flip: if descending { 0xFF } else { 0 },
    };
    let class = cursor.byte()?;
    skip_value(&mut cursor, class, 0)?;
    Ok(cursor.at)
}

fn skip_value(cursor: &mut Cursor<'_>, class: u8, depth: u32) -> Result<(), BsonError> {
    match class {
        class::MIN_KEY
        | class::UNDEFINED
        | class::NULL
        | class::FALSE
        | class::TRUE
        | class::MAX_KEY => Ok(()),
        _ if number::is_number(class) => number::skip(cursor, class),
        class::STRING | class::JAVASCRIPT => cursor.text().map(drop),
        class::DATE_TIME | class::TIMESTAMP => cursor.take(8).map(drop),
        class::OBJECT_ID => cursor.take(12).map(drop),
        class::BINARY => {
            let length = cursor.length()?;
            cursor.take(length.saturating_add(1)).map(drop)
        }
        class::REGEX => {
            cursor.text()?;
            cursor.text().map(drop)
        }
        class::DB_POINTER => {
            let length = cursor.length()?;
            cursor.take(length.saturating_add(12)).map(drop)
        }
        class::ARRAY => {
            if depth >= DEPTH_MAX {
                return cursor.text().map(drop);
            }
            loop {
                match cursor.byte()? {
                    0 => return Ok(()),
                    class => skip_value(cursor, class, depth + 1)?,
                }
            }
        }
        class::DOCUMENT => skip_document(cursor, depth),
        class::JAVASCRIPT_WITH_SCOPE => {
            cursor.text()?;
            skip_document(cursor, depth)
        }
        _ => cursor.fail("unknown type in the key"),
    }
}

fn skip_document(cursor: &mut Cursor<'_>, depth: u32) -> Result<(), BsonError> {
    if depth >= DEPTH_MAX {
        return cursor.text().map(drop);
    }
    while cursor.byte()? != 0 {
        cursor.text()?;
        let class = cursor.byte()?;
        skip_value(cursor, class, depth + 1)?;
    }
    Ok(())
}

/// The key under which a decoded value is appended.
#[derive(Clone, Copy)]
enum Name<'n> {
    Field(&'n str),
    NextIndex,
}

impl Name<'_> {
    fn put(self, builder: &mut DocBuilder, value: RawValue<'_>) {
        match self {
            Name::Field(name) => builder.append(name, value),
            Name::NextIndex => builder.push(value),
        };
    }
}

struct Decoder<'c, 'k, 'b, 't> {
    cursor: &'c mut Cursor<'k>,
    bits: &'b mut TypeBitsReader<'t>,
    scratch: Vec<u8>,
}

impl<'k> Decoder<'_, 'k, '_, '_> {
    /// Recursive, so all non-recursive work is in other functions to keep this stack frame small.
    fn value(
        &mut self,
        builder: &mut DocBuilder,
        name: Name<'_>,
        depth: u32,
    ) -> Result<(), BsonError> {
        let class = self.cursor.byte()?;
        match class {
            class::DOCUMENT | class::ARRAY if depth >= DEPTH_MAX => self.deep(builder, name, class),
            class::DOCUMENT => {
                match name {
                    Name::Field(name) => builder.begin_document(name),
                    Name::NextIndex => builder.push_begin_document(),
                };
                self.document(builder, depth)?;
                builder.end();
                Ok(())
            }
            class::ARRAY => {
                match name {
                    Name::Field(name) => builder.begin_array(name),
                    Name::NextIndex => builder.push_begin_array(),
                };
                while !self.at_end_mark()? {
                    self.value(builder, Name::NextIndex, depth + 1)?;
                }
                builder.end();
                Ok(())
            }
            class::JAVASCRIPT_WITH_SCOPE => {
                let code = self.text()?;
                let mut scope = DocBuilder::new();
                self.document(&mut scope, depth)?;
                let scope = scope.finish();
                let code = self.utf8(&code)?;
                let value = RawValue::JavaScriptWithScope {
                    code,
                    scope: scope.as_raw(),
                };
                name.put(builder, value);
                Ok(())
            }
            _ => self.leaf(builder, name, class),
        }
    }

    /// Decodes a value that contains no other values.
    #[inline(never)]
    fn leaf(
        &mut self,
        builder: &mut DocBuilder,
        name: Name<'_>,
        class: u8,
    ) -> Result<(), BsonError> {
        match class {
            class::MIN_KEY => name.put(builder, RawValue::MinKey),
            class::UNDEFINED => name.put(builder, RawValue::Undefined),
            class::NULL => name.put(builder, RawValue::Null),
            class::FALSE => name.put(builder, RawValue::Boolean(false)),
            class::TRUE => name.put(builder, RawValue::Boolean(true)),
            class::MAX_KEY => name.put(builder, RawValue::MaxKey),
            _ if number::is_number(class) => {
                name.put(builder, number::decode(self.cursor, self.bits, class)?);
            }
            class::STRING => {
                let symbol = self.bits.take(1) == 1;
                let text = self.text()?;
                let text = self.utf8(&text)?;
                let value = if symbol {
                    RawValue::Symbol(text)
                } else {
                    RawValue::String(text)
                };
                name.put(builder, value);
            }
            class::JAVASCRIPT => {
                let text = self.text()?;
                name.put(builder, RawValue::JavaScript(self.utf8(&text)?));
            }
            class::DATE_TIME => {
                let bits = u64::from_be_bytes(self.cursor.array()?) ^ (1 << 63);
                name.put(builder, RawValue::DateTime(DateTime(bits as i64)));
            }
            class::TIMESTAMP => {
                let bits = u64::from_be_bytes(self.cursor.array()?);
                name.put(builder, RawValue::Timestamp(Timestamp::from_u64(bits)));
            }
            class::OBJECT_ID => {
                let id = ObjectId(self.cursor.array()?);
                name.put(builder, RawValue::ObjectId(id));
            }
            class::BINARY => {
                let length = self.cursor.length()?;
                let subtype = self.cursor.byte()?;
                self.counted(length)?;
                name.put(
                    builder,
                    RawValue::Binary {
                        subtype,
                        bytes: &self.scratch,
                    },
                );
            }
            class::REGEX => {
                let pattern = self.text()?;
                let options = self.text()?;
                if pattern.contains(&0) || options.contains(&0) {
                    return self.cursor.fail("zero byte in a pattern in the key");
                }
                let (pattern, options) = (self.utf8(&pattern)?, self.utf8(&options)?);
                name.put(builder, RawValue::Regex { pattern, options });
            }
            class::DB_POINTER => {
                let length = self.cursor.length()?;
                self.counted(length)?;
                let id = ObjectId(self.cursor.array()?);
                let namespace = self.utf8(&self.scratch)?;
                name.put(builder, RawValue::DbPointer { namespace, id });
            }
            _ => return self.cursor.fail("unknown type in the key"),
        }
        Ok(())
    }

    /// Decodes a document or array that was nested so deep that it was written as its bytes.
    #[inline(never)]
    fn deep(
        &mut self,
        builder: &mut DocBuilder,
        name: Name<'_>,
        class: u8,
    ) -> Result<(), BsonError> {
        let bytes = self.text()?;
        let doc = RawDoc::parse(&bytes).unwrap_or(RawDoc::EMPTY);
        let value = if class == class::ARRAY {
            RawValue::Array(RawArray::from_doc(doc))
        } else {
            RawValue::Document(doc)
        };
        name.put(builder, value);
        Ok(())
    }

    /// Decodes elements up to the end mark, into the open document.
    fn document(&mut self, builder: &mut DocBuilder, depth: u32) -> Result<(), BsonError> {
        if depth >= DEPTH_MAX {
            let bytes = self.text()?;
            builder.extend(RawDoc::parse(&bytes).unwrap_or(RawDoc::EMPTY));
            return Ok(());
        }
        while !self.at_end_mark()? {
            self.cursor.byte()?;
            let key = self.text()?;
            if key.contains(&0) {
                return self.cursor.fail("zero byte in a field name in the key");
            }
            self.value(builder, Name::Field(self.utf8(&key)?), depth + 1)?;
        }
        Ok(())
    }

    fn text(&mut self) -> Result<Cow<'k, [u8]>, BsonError> {
        self.cursor.unescaped_text()
    }

    /// Reads `length` bytes into the scratch buffer.
    fn counted(&mut self, length: usize) -> Result<(), BsonError> {
        let flip = self.cursor.flip;
        let stored = self.cursor.take(length)?;
        self.scratch.clear();
        self.scratch.extend(stored.iter().map(|b| b ^ flip));
        Ok(())
    }

    fn utf8<'s>(&self, bytes: &'s [u8]) -> Result<&'s str, BsonError> {
        std::str::from_utf8(bytes).or_else(|_| self.cursor.fail("text in the key is not UTF-8"))
    }

    /// Whether the next byte is 00; if so, consumes it.
    fn at_end_mark(&mut self) -> Result<bool, BsonError> {
        let end = self.cursor.byte()? == 0;
        if !end {
            self.cursor.at -= 1;
        }
        Ok(end)
    }
}
