//! Writes documents directly into one buffer. Lengths are patched in when a frame is closed.
//!
//! ```text
//!  open frames   [reply] [cursor] [firstBatch]
//!                 start   start    start         offsets of length prefixes
//!  buffer        ....i32.....i32......i32..elements
//! ```
//!
//! Closing a frame writes its terminating zero and patches its length. A builder may start after
//! bytes that are already in the buffer, so a reply is built directly after its message header,
//! without a copy.
//!
//! Keys, patterns and options are truncated at their first zero byte, because the format cannot
//! hold one there. A caller that takes keys from outside must reject zero bytes first.

use crate::raw::{RawDoc, RawElement};
use crate::raw_value::RawValue;
use crate::value::{ArrayBuf, DocBuf, Value};

/// Digits of the largest index of an array.
const INDEX_DIGITS_MAX: usize = 10;

/// Writes one document.
#[derive(Debug)]
pub struct DocBuilder {
    out: Vec<u8>,
    /// The open frames that enclose `current`, innermost last.
    outer: Vec<Frame>,
    current: Frame,
    /// Offset in `out` where this builder's document begins.
    start: usize,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    start: usize,
    /// The index key of the next pushed value.
    next: u32,
}

impl Default for DocBuilder {
    fn default() -> DocBuilder {
        DocBuilder::new()
    }
}

impl DocBuilder {
    /// A document in a new buffer.
    pub fn new() -> DocBuilder {
        DocBuilder::with_vec(Vec::new())
    }

    /// A document appended to `out`. The bytes already in `out` are kept.
    pub fn with_vec(mut out: Vec<u8>) -> DocBuilder {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        DocBuilder {
            out,
            outer: Vec::new(),
            current: Frame { start, next: 0 },
            start,
        }
    }

    /// A builder whose document starts with a copy of the elements of `doc`.
    pub fn from_doc(doc: RawDoc<'_>) -> DocBuilder {
        let mut builder = DocBuilder::with_vec(Vec::with_capacity(doc.len_bytes() + 64));
        builder.extend(doc);
        builder
    }

    #[inline]
    fn header(&mut self, type_byte: u8, key: &[u8]) {
        self.out.push(type_byte);
        self.cstring(key);
    }

    #[inline]
    fn cstring(&mut self, text: &[u8]) {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        self.out.extend_from_slice(&text[..end]);
        self.out.push(0);
    }

    fn index_key(&mut self, type_byte: u8) {
        let index = self.current.next;
        self.current.next = index.wrapping_add(1);
        // A copy of constant length, cut afterwards, is cheaper than three of varying lengths.
        let mut header = [0u8; 1 + INDEX_DIGITS_MAX + 1];
        let digits = index.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = index;
        for digit in header[1..=digits].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        header[0] = type_byte;
        let end = self.out.len() + digits + 2;
        self.out.extend_from_slice(&header);
        self.out.truncate(end);
    }

    fn string(&mut self, text: &str) {
        self.out
            .extend_from_slice(&((text.len() + 1) as i32).to_le_bytes());
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    fn body(&mut self, value: RawValue<'_>) {
        match value {
            RawValue::Double(x) => self.out.extend_from_slice(&x.to_le_bytes()),
            RawValue::String(s) | RawValue::JavaScript(s) | RawValue::Symbol(s) => self.string(s),
            RawValue::Document(d) => self.out.extend_from_slice(d.as_bytes()),
            RawValue::Array(a) => self.out.extend_from_slice(a.as_bytes()),
            RawValue::Binary { subtype, bytes } => {
                self.out
                    .extend_from_slice(&(bytes.len() as i32).to_le_bytes());
                self.out.push(subtype);
                self.out.extend_from_slice(bytes);
            }
            RawValue::ObjectId(id) => self.out.extend_from_slice(&id.0),
            RawValue::Boolean(b) => self.out.push(u8::from(b)),
            RawValue::DateTime(t) => self.out.extend_from_slice(&t.0.to_le_bytes()),
            RawValue::Regex { pattern, options } => {
                self.cstring(pattern.as_bytes());
                self.cstring(options.as_bytes());
            }
            RawValue::DbPointer { namespace, id } => {
                self.string(namespace);
                self.out.extend_from_slice(&id.0);
            }
            RawValue::JavaScriptWithScope { code, scope } => {
                let total = 4 + 4 + code.len() + 1 + scope.len_bytes();
                self.out.extend_from_slice(&(total as i32).to_le_bytes());
                self.string(code);
                self.out.extend_from_slice(scope.as_bytes());
            }
            RawValue::Int32(n) => self.out.extend_from_slice(&n.to_le_bytes()),
            RawValue::Timestamp(t) => self.out.extend_from_slice(&t.as_u64().to_le_bytes()),
            RawValue::Int64(n) => self.out.extend_from_slice(&n.to_le_bytes()),
            RawValue::Decimal128(d) => self.out.extend_from_slice(&d.0),
            RawValue::Undefined | RawValue::Null | RawValue::MinKey | RawValue::MaxKey => {}
        }
    }

    /// Appends a value under a key.
    #[inline]
    pub fn append<'v>(
        &mut self,
        key: impl AsRef<str>,
        value: impl Into<RawValue<'v>>,
    ) -> &mut DocBuilder {
        let value = value.into();
        self.header(value.element_type() as u8, key.as_ref().as_bytes());
        self.body(value);
        self
    }

    /// Appends an owned value under a key.
    pub fn append_value(&mut self, key: impl AsRef<str>, value: &Value) -> &mut DocBuilder {
        self.append(key, value.as_raw())
    }

    /// Appends any [`AppendBson`] value. The `doc!` macro uses this.
    pub fn append_bson<T: AppendBson + ?Sized>(
        &mut self,
        key: impl AsRef<str>,
        value: &T,
    ) -> &mut DocBuilder {
        value.append_to(key.as_ref(), self);
        self
    }

    /// Copies an element, key included.
    #[inline]
    pub fn append_raw_element(&mut self, element: RawElement<'_>) -> &mut DocBuilder {
        self.out.extend_from_slice(element.as_bytes());
        self
    }

    /// Copies whole elements, given as the raw bytes they have in their document.
    #[inline]
    pub fn append_element_bytes(&mut self, bytes: &[u8]) -> &mut DocBuilder {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Copies an element's value under another key.
    pub fn append_renamed(
        &mut self,
        key: impl AsRef<str>,
        element: RawElement<'_>,
    ) -> &mut DocBuilder {
        self.header(element.element_type() as u8, key.as_ref().as_bytes());
        self.out.extend_from_slice(element.raw_value_bytes());
        self
    }

    /// Copies all elements of a document.
    pub fn extend(&mut self, doc: RawDoc<'_>) -> &mut DocBuilder {
        let bytes = doc.as_bytes();
        self.out
            .extend_from_slice(bytes.get(4..bytes.len() - 1).unwrap_or(&[]));
        self
    }

    /// Appends a document given by its bytes, which must be a correctly framed document.
    pub fn append_document_bytes(&mut self, key: impl AsRef<str>, bytes: &[u8]) -> &mut DocBuilder {
        self.header(crate::ElementType::Document as u8, key.as_ref().as_bytes());
        self.out.extend_from_slice(bytes);
        self
    }

    /// Opens an embedded document. Later appends go into it until [`DocBuilder::end`].
    pub fn begin_document(&mut self, key: impl AsRef<str>) -> &mut DocBuilder {
        self.header(crate::ElementType::Document as u8, key.as_ref().as_bytes());
        self.open()
    }

    /// Opens an array. Later pushes go into it until [`DocBuilder::end`].
    pub fn begin_array(&mut self, key: impl AsRef<str>) -> &mut DocBuilder {
        self.header(crate::ElementType::Array as u8, key.as_ref().as_bytes());
        self.open()
    }

    /// Opens a document as the next value of the open array.
    pub fn push_begin_document(&mut self) -> &mut DocBuilder {
        self.index_key(crate::ElementType::Document as u8);
        self.open()
    }

    /// Opens an array as the next value of the open array.
    pub fn push_begin_array(&mut self) -> &mut DocBuilder {
        self.index_key(crate::ElementType::Array as u8);
        self.open()
    }

    fn open(&mut self) -> &mut DocBuilder {
        self.outer.push(self.current);
        self.current = Frame {
            start: self.out.len(),
            next: 0,
        };
        self.out.extend_from_slice(&[0; 4]);
        self
    }

    fn close(&mut self) {
        self.out.push(0);
        let len = (self.out.len() - self.current.start) as i32;
        self.out[self.current.start..self.current.start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Closes the innermost open document or array. `finish` closes the outermost document, so an
    /// `end` without a matching `begin` does nothing (and fails a debug assertion).
    pub fn end(&mut self) -> &mut DocBuilder {
        debug_assert!(!self.outer.is_empty(), "end() without a begin");
        if let Some(outer) = self.outer.pop() {
            self.close();
            self.current = outer;
        }
        self
    }

    /// Appends a value under the next index key ("0", "1", ...) of the open frame.
    #[inline]
    pub fn push<'v>(&mut self, value: impl Into<RawValue<'v>>) -> &mut DocBuilder {
        let value = value.into();
        self.index_key(value.element_type() as u8);
        self.body(value);
        self
    }

    /// Appends an owned value under the next index key.
    pub fn push_value(&mut self, value: &Value) -> &mut DocBuilder {
        self.push(value.as_raw())
    }

    /// Appends any [`AppendBson`] value under the next index key.
    pub fn push_bson<T: AppendBson + ?Sized>(&mut self, value: &T) -> &mut DocBuilder {
        let key = self.current.next.to_string();
        self.current.next = self.current.next.wrapping_add(1);
        value.append_to(&key, self);
        self
    }

    /// Copies an element's value under the next index key.
    pub fn push_element(&mut self, element: RawElement<'_>) -> &mut DocBuilder {
        self.index_key(element.element_type() as u8);
        self.out.extend_from_slice(element.raw_value_bytes());
        self
    }

    /// Appends a document, given by its bytes, under the next index key.
    #[inline]
    pub fn push_document_bytes(&mut self, bytes: &[u8]) -> &mut DocBuilder {
        self.index_key(crate::ElementType::Document as u8);
        self.out.extend_from_slice(bytes);
        self
    }

    /// Number of values pushed into the open frame.
    pub fn pushed(&self) -> u32 {
        self.current.next
    }

    /// Length of this document so far in bytes, without the terminating zeros of the open frames.
    #[inline]
    pub fn current_len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Reserves capacity for at least `additional` more bytes.
    pub fn reserve(&mut self, additional: usize) {
        self.out.reserve(additional);
    }

    /// Closes every open frame and returns the document, without the bytes that preceded it in the
    /// buffer.
    pub fn finish(self) -> DocBuf {
        let start = self.start;
        let mut bytes = self.finish_into();
        if start > 0 {
            bytes.drain(..start);
        }
        DocBuf::from_vec_unchecked(bytes)
    }

    /// Closes every open frame and returns the whole buffer, including the bytes that preceded the
    /// document.
    pub fn finish_into(mut self) -> Vec<u8> {
        while let Some(outer) = self.outer.pop() {
            self.close();
            self.current = outer;
        }
        self.close();
        self.out
    }
}

/// Writes one array.
#[derive(Debug, Default)]
pub struct ArrayBuilder {
    inner: DocBuilder,
}

impl ArrayBuilder {
    /// An array in a new buffer.
    pub fn new() -> ArrayBuilder {
        ArrayBuilder::default()
    }

    /// Appends a value.
    pub fn push<'v>(&mut self, value: impl Into<RawValue<'v>>) -> &mut ArrayBuilder {
        self.inner.push(value);
        self
    }

    /// Appends an owned value.
    pub fn push_value(&mut self, value: &Value) -> &mut ArrayBuilder {
        self.inner.push_value(value);
        self
    }

    /// Copies an element's value.
    pub fn push_element(&mut self, element: RawElement<'_>) -> &mut ArrayBuilder {
        self.inner.push_element(element);
        self
    }

    /// Appends a document given by its bytes.
    pub fn push_document_bytes(&mut self, bytes: &[u8]) -> &mut ArrayBuilder {
        self.inner.push_document_bytes(bytes);
        self
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.inner.pushed() as usize
    }

    /// Whether there is no value yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length so far in bytes, without the terminating zero.
    pub fn current_len(&self) -> usize {
        self.inner.current_len()
    }

    /// Closes the array and returns it.
    pub fn finish(self) -> ArrayBuf {
        ArrayBuf::from_vec_unchecked(self.inner.finish_into())
    }
}

/// A type whose values can be appended to a document by reference.
pub trait AppendBson {
    /// Appends `self` under `key`.
    fn append_to(&self, key: &str, builder: &mut DocBuilder);
}

macro_rules! append_copy {
    ($($t:ty),*) => {
        $(impl AppendBson for $t {
            fn append_to(&self, key: &str, builder: &mut DocBuilder) {
                builder.append(key, *self);
            }
        })*
    };
}

append_copy!(
    f64,
    i32,
    i64,
    bool,
    crate::ObjectId,
    crate::DateTime,
    crate::Timestamp,
    crate::Decimal128,
    RawDoc<'_>,
    crate::RawArray<'_>,
    RawValue<'_>
);

macro_rules! append_ref {
    ($($t:ty),*) => {
        $(impl AppendBson for $t {
            fn append_to(&self, key: &str, builder: &mut DocBuilder) {
                builder.append(key, self);
            }
        })*
    };
}

append_ref!(str, String, DocBuf, ArrayBuf, Value);

impl<T: AppendBson + ?Sized> AppendBson for &T {
    fn append_to(&self, key: &str, builder: &mut DocBuilder) {
        (**self).append_to(key, builder);
    }
}

impl<T: AppendBson> AppendBson for Option<T> {
    fn append_to(&self, key: &str, builder: &mut DocBuilder) {
        match self {
            Some(value) => value.append_to(key, builder),
            None => {
                builder.append(key, RawValue::Null);
            }
        }
    }
}

impl<T: AppendBson> AppendBson for [T] {
    fn append_to(&self, key: &str, builder: &mut DocBuilder) {
        builder.begin_array(key);
        for (index, value) in self.iter().enumerate() {
            value.append_to(&index.to_string(), builder);
        }
        builder.end();
    }
}

impl<T: AppendBson> AppendBson for Vec<T> {
    fn append_to(&self, key: &str, builder: &mut DocBuilder) {
        self.as_slice().append_to(key, builder);
    }
}

impl<T: AppendBson, const N: usize> AppendBson for [T; N] {
    fn append_to(&self, key: &str, builder: &mut DocBuilder) {
        self.as_slice().append_to(key, builder);
    }
}
