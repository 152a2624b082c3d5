//! Owned documents, arrays and values.

use crate::builder::ArrayBuilder;
use crate::decimal128::Decimal128;
use crate::element_type::ElementType;
use crate::error::BsonError;
use crate::instant::{DateTime, Timestamp};
use crate::object_id::ObjectId;
use crate::raw::{RawArray, RawDoc, RawElement, RawIter};
use crate::raw_value::RawValue;

/// An owned document: its bytes. Empty by default; equal when the bytes are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DocBuf {
    bytes: Vec<u8>,
}

/// An owned array: its bytes. Empty by default; equal when the bytes are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ArrayBuf {
    bytes: Vec<u8>,
}

impl Default for DocBuf {
    fn default() -> DocBuf {
        DocBuf {
            bytes: RawDoc::EMPTY.as_bytes().to_vec(),
        }
    }
}

impl Default for ArrayBuf {
    fn default() -> ArrayBuf {
        ArrayBuf {
            bytes: RawDoc::EMPTY.as_bytes().to_vec(),
        }
    }
}

/// Returns the bytes if their outer frame is valid, otherwise an empty document, so that readers
/// need no checks.
fn framed(bytes: Vec<u8>) -> Vec<u8> {
    if RawDoc::parse(&bytes).is_ok() {
        bytes
    } else {
        RawDoc::EMPTY.as_bytes().to_vec()
    }
}

impl DocBuf {
    /// An empty document.
    pub fn new() -> DocBuf {
        DocBuf::default()
    }

    /// Takes bytes that were validated before. Bytes without a valid outer frame become the empty
    /// document.
    pub fn from_vec_unchecked(bytes: Vec<u8>) -> DocBuf {
        DocBuf {
            bytes: framed(bytes),
        }
    }

    /// Takes bytes after checking their outer frame.
    pub fn from_vec(bytes: Vec<u8>) -> Result<DocBuf, BsonError> {
        RawDoc::parse(&bytes)?;
        Ok(DocBuf { bytes })
    }

    /// A borrowed view of the document.
    #[inline]
    pub fn as_raw(&self) -> RawDoc<'_> {
        RawDoc::nested(&self.bytes)
    }

    /// The bytes, including length prefix and terminating zero.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes, including length prefix and terminating zero.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The size in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.as_raw().is_empty()
    }

    /// The elements, in document order.
    pub fn iter(&self) -> RawIter<'_> {
        self.as_raw().iter()
    }

    /// The value of the first element with this key.
    pub fn get(&self, key: &str) -> Option<RawValue<'_>> {
        self.as_raw().get(key)
    }

    /// The first element with this key.
    pub fn get_element(&self, key: &str) -> Option<RawElement<'_>> {
        self.as_raw().get_element(key)
    }
}

impl ArrayBuf {
    /// An empty array.
    pub fn new() -> ArrayBuf {
        ArrayBuf::default()
    }

    /// Takes bytes that were validated before, as [`DocBuf::from_vec_unchecked`] does.
    pub fn from_vec_unchecked(bytes: Vec<u8>) -> ArrayBuf {
        ArrayBuf {
            bytes: framed(bytes),
        }
    }

    /// The array of these values.
    pub fn from_values<'a, V: Into<RawValue<'a>>>(values: impl IntoIterator<Item = V>) -> ArrayBuf {
        let mut builder = ArrayBuilder::new();
        for value in values {
            builder.push(value);
        }
        builder.finish()
    }

    /// A borrowed view of the array.
    #[inline]
    pub fn as_raw(&self) -> RawArray<'_> {
        RawArray::from_doc(RawDoc::nested(&self.bytes))
    }

    /// The bytes, including length prefix and terminating zero.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes, including length prefix and terminating zero.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.as_raw().is_empty()
    }

    /// Number of values. Walks the array in O(n).
    pub fn count(&self) -> usize {
        self.as_raw().count()
    }
}

/// An owned BSON value; mirrors [`RawValue`].
///
/// `==` compares representations, doubles by `==`. For equality across types see
/// [`crate::values_equal`].
#[derive(Clone, PartialEq, Default)]
#[allow(missing_docs)] // each variant mirrors RawValue's variant of that name
pub enum Value {
    Double(f64),
    String(String),
    Document(DocBuf),
    Array(ArrayBuf),
    Binary {
        subtype: u8,
        bytes: Vec<u8>,
    },
    Undefined,
    ObjectId(ObjectId),
    Boolean(bool),
    DateTime(DateTime),
    #[default]
    Null,
    Regex {
        pattern: String,
        options: String,
    },
    DbPointer {
        namespace: String,
        id: ObjectId,
    },
    JavaScript(String),
    Symbol(String),
    JavaScriptWithScope {
        code: String,
        scope: DocBuf,
    },
    Int32(i32),
    Timestamp(Timestamp),
    Int64(i64),
    Decimal128(Decimal128),
    MinKey,
    MaxKey,
}

impl Value {
    /// A borrowed view of the value.
    #[inline]
    pub fn as_raw(&self) -> RawValue<'_> {
        match self {
            Value::Double(x) => RawValue::Double(*x),
            Value::String(s) => RawValue::String(s),
            Value::Document(d) => RawValue::Document(d.as_raw()),
            Value::Array(a) => RawValue::Array(a.as_raw()),
            Value::Binary { subtype, bytes } => RawValue::Binary {
                subtype: *subtype,
                bytes,
            },
            Value::Undefined => RawValue::Undefined,
            Value::ObjectId(id) => RawValue::ObjectId(*id),
            Value::Boolean(b) => RawValue::Boolean(*b),
            Value::DateTime(t) => RawValue::DateTime(*t),
            Value::Null => RawValue::Null,
            Value::Regex { pattern, options } => RawValue::Regex { pattern, options },
            Value::DbPointer { namespace, id } => RawValue::DbPointer { namespace, id: *id },
            Value::JavaScript(code) => RawValue::JavaScript(code),
            Value::Symbol(s) => RawValue::Symbol(s),
            Value::JavaScriptWithScope { code, scope } => RawValue::JavaScriptWithScope {
                code,
                scope: scope.as_raw(),
            },
            Value::Int32(n) => RawValue::Int32(*n),
            Value::Timestamp(t) => RawValue::Timestamp(*t),
            Value::Int64(n) => RawValue::Int64(*n),
            Value::Decimal128(d) => RawValue::Decimal128(*d),
            Value::MinKey => RawValue::MinKey,
            Value::MaxKey => RawValue::MaxKey,
        }
    }

    /// The type.
    pub fn element_type(&self) -> ElementType {
        self.as_raw().element_type()
    }

    /// MongoDB's name of the type ("int", "objectId", ...).
    pub fn type_name(&self) -> &'static str {
        self.element_type().name()
    }
}

impl From<RawValue<'_>> for Value {
    fn from(raw: RawValue<'_>) -> Value {
        match raw {
            RawValue::Double(x) => Value::Double(x),
            RawValue::String(s) => Value::String(s.to_owned()),
            RawValue::Document(d) => Value::Document(d.to_buf()),
            RawValue::Array(a) => Value::Array(a.to_buf()),
            RawValue::Binary { subtype, bytes } => Value::Binary {
                subtype,
                bytes: bytes.to_vec(),
            },
            RawValue::Undefined => Value::Undefined,
            RawValue::ObjectId(id) => Value::ObjectId(id),
            RawValue::Boolean(b) => Value::Boolean(b),
            RawValue::DateTime(t) => Value::DateTime(t),
            RawValue::Null => Value::Null,
            RawValue::Regex { pattern, options } => Value::Regex {
                pattern: pattern.to_owned(),
                options: options.to_owned(),
            },
            RawValue::DbPointer { namespace, id } => Value::DbPointer {
                namespace: namespace.to_owned(),
                id,
            },
            RawValue::JavaScript(code) => Value::JavaScript(code.to_owned()),
            RawValue::Symbol(s) => Value::Symbol(s.to_owned()),
            RawValue::JavaScriptWithScope { code, scope } => Value::JavaScriptWithScope {
                code: code.to_owned(),
                scope: scope.to_buf(),
            },
            RawValue::Int32(n) => Value::Int32(n),
            RawValue::Timestamp(t) => Value::Timestamp(t),
            RawValue::Int64(n) => Value::Int64(n),
            RawValue::Decimal128(d) => Value::Decimal128(d),
            RawValue::MinKey => Value::MinKey,
            RawValue::MaxKey => Value::MaxKey,
        }
    }
}

macro_rules! from {
    ($($from:ty => $make:expr;)*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Value {
                #[allow(clippy::redundant_closure_call)]
                ($make)(value)
            }
        })*
    };
}

from! {
    f64 => Value::Double;
    i32 => Value::Int32;
    i64 => Value::Int64;
    bool => Value::Boolean;
    &str => |s: &str| Value::String(s.to_owned());
    String => Value::String;
    ObjectId => Value::ObjectId;
    DateTime => Value::DateTime;
    Timestamp => Value::Timestamp;
    Decimal128 => Value::Decimal128;
    DocBuf => Value::Document;
    ArrayBuf => Value::Array;
    RawDoc<'_> => |d: RawDoc<'_>| Value::Document(d.to_buf());
    RawArray<'_> => |a: RawArray<'_>| Value::Array(a.to_buf());
}

impl<T: Into<Value>> From<Option<T>> for Value {
    /// `None` is null.
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Value {
        let values: Vec<Value> = values.into_iter().map(Into::into).collect();
        Value::Array(ArrayBuf::from_values(&values))
    }
}

impl<'a> FromIterator<&'a Value> for ArrayBuf {
    fn from_iter<I: IntoIterator<Item = &'a Value>>(values: I) -> ArrayBuf {
        ArrayBuf::from_values(values)
    }
}
