//! A value in place, with its fixed-size parts decoded.

use crate::decimal128::Decimal128;
use crate::element_type::ElementType;
use crate::instant::{DateTime, Timestamp};
use crate::object_id::ObjectId;
use crate::raw::{RawArray, RawDoc};
use crate::value::{ArrayBuf, DocBuf, Value};

/// A BSON value that borrows its variable-length part. Cheap to copy.
///
/// `==` compares representations (type and bits), doubles by `==`. For equality across types see
/// [`crate::values_equal`].
#[derive(Clone, Copy, PartialEq)]
pub enum RawValue<'a> {
    /// A double.
    Double(f64),
    /// A string.
    String(&'a str),
    /// An embedded document.
    Document(RawDoc<'a>),
    /// An array.
    Array(RawArray<'a>),
    /// Bytes with their subtype. In the old subtype 2, `bytes` includes the inner length.
    Binary {
        /// The subtype byte: 0 generic, 4 UUID, and so on.
        subtype: u8,
        /// The payload.
        bytes: &'a [u8],
    },
    /// Undefined.
    Undefined,
    /// An object id.
    ObjectId(ObjectId),
    /// A boolean.
    Boolean(bool),
    /// A date.
    DateTime(DateTime),
    /// Null.
    Null,
    /// A regular expression.
    Regex {
        /// The pattern, without slashes.
        pattern: &'a str,
        /// The options, as stored.
        options: &'a str,
    },
    /// A DBPointer.
    DbPointer {
        /// `database.collection`.
        namespace: &'a str,
        /// The `_id` of the referenced document.
        id: ObjectId,
    },
    /// Code.
    JavaScript(&'a str),
    /// A symbol.
    Symbol(&'a str),
    /// Code with its scope.
    JavaScriptWithScope {
        /// The code.
        code: &'a str,
        /// The variables of the code.
        scope: RawDoc<'a>,
    },
    /// A 32-bit integer.
    Int32(i32),
    /// A timestamp.
    Timestamp(Timestamp),
    /// A 64-bit integer.
    Int64(i64),
    /// A decimal.
    Decimal128(Decimal128),
    /// Sorts below everything.
    MinKey,
    /// Sorts above everything.
    MaxKey,
}

#[inline]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// The text of a length-prefixed string without its terminating zero; "" if it is malformed.
#[inline]
fn text(bytes: &[u8]) -> &str {
    let end = bytes.len().saturating_sub(1);
    std::str::from_utf8(bytes.get(4..end).unwrap_or(&[])).unwrap_or("")
}

/// Decodes a value. `bytes` must have the length that walking the document determined for it.
#[inline]
pub(crate) fn decode(element_type: ElementType, bytes: &[u8]) -> RawValue<'_> {
    match element_type {
        ElementType::Double => RawValue::Double(f64::from_le_bytes(array(bytes))),
        ElementType::String => RawValue::String(text(bytes)),
        ElementType::Document => RawValue::Document(RawDoc::nested(bytes)),
        ElementType::Array => RawValue::Array(RawArray::from_doc(RawDoc::nested(bytes))),
        ElementType::Binary => RawValue::Binary {
            subtype: bytes.get(4).copied().unwrap_or(0),
            bytes: bytes.get(5..).unwrap_or(&[]),
        },
        ElementType::Undefined => RawValue::Undefined,
        ElementType::ObjectId => RawValue::ObjectId(ObjectId(array(bytes))),
        ElementType::Boolean => RawValue::Boolean(bytes.first().is_some_and(|&b| b != 0)),
        ElementType::DateTime => RawValue::DateTime(DateTime(i64::from_le_bytes(array(bytes)))),
        ElementType::Null => RawValue::Null,
        ElementType::Regex => {
            let split = memchr::memchr(0, bytes).unwrap_or(bytes.len());
            let (pattern, rest) = bytes.split_at(split);
            let options = rest.get(1..rest.len().saturating_sub(1)).unwrap_or(&[]);
            RawValue::Regex {
                pattern: std::str::from_utf8(pattern).unwrap_or(""),
                options: std::str::from_utf8(options).unwrap_or(""),
            }
        }
        ElementType::DbPointer => {
            let (namespace, id) = bytes.split_at(bytes.len().saturating_sub(12));
            RawValue::DbPointer {
                namespace: text(namespace),
                id: ObjectId(array(id)),
            }
        }
        ElementType::JavaScript => RawValue::JavaScript(text(bytes)),
        ElementType::Symbol => RawValue::Symbol(text(bytes)),
        ElementType::JavaScriptWithScope => code_with_scope(bytes),
        ElementType::Int32 => RawValue::Int32(i32::from_le_bytes(array(bytes))),
        ElementType::Timestamp => {
            RawValue::Timestamp(Timestamp::from_u64(u64::from_le_bytes(array(bytes))))
        }
        ElementType::Int64 => RawValue::Int64(i64::from_le_bytes(array(bytes))),
        ElementType::Decimal128 => RawValue::Decimal128(Decimal128(array(bytes))),
        ElementType::MinKey => RawValue::MinKey,
        ElementType::MaxKey => RawValue::MaxKey,
    }
}

/// `| total i32 | code string | scope document |`
fn code_with_scope(bytes: &[u8]) -> RawValue<'_> {
    let whole = || {
        let rest = bytes.get(4..)?;
        let code_len = usize::try_from(i32::from_le_bytes(*rest.first_chunk()?)).ok()?;
        let (code, scope) = rest.split_at_checked(code_len.checked_add(4)?)?;
        let (scope, _) = RawDoc::parse_prefix(scope).ok()?;
        Some(RawValue::JavaScriptWithScope {
            code: text(code),
            scope,
        })
    };
    whole().unwrap_or(RawValue::JavaScriptWithScope {
        code: "",
        scope: RawDoc::EMPTY,
    })
}

impl<'a> RawValue<'a> {
    /// An integer as an int if it fits, otherwise as a long: how MongoDB reports numbers.
    pub fn int_or_long(n: i64) -> RawValue<'static> {
        match i32::try_from(n) {
            Ok(n) => RawValue::Int32(n),
            Err(_) => RawValue::Int64(n),
        }
    }

    /// The type.
    #[inline]
    pub fn element_type(&self) -> ElementType {
        match self {
            RawValue::Double(_) => ElementType::Double,
            RawValue::String(_) => ElementType::String,
            RawValue::Document(_) => ElementType::Document,
            RawValue::Array(_) => ElementType::Array,
            RawValue::Binary { .. } => ElementType::Binary,
            RawValue::Undefined => ElementType::Undefined,
            RawValue::ObjectId(_) => ElementType::ObjectId,
            RawValue::Boolean(_) => ElementType::Boolean,
            RawValue::DateTime(_) => ElementType::DateTime,
            RawValue::Null => ElementType::Null,
            RawValue::Regex { .. } => ElementType::Regex,
            RawValue::DbPointer { .. } => ElementType::DbPointer,
            RawValue::JavaScript(_) => ElementType::JavaScript,
            RawValue::Symbol(_) => ElementType::Symbol,
            RawValue::JavaScriptWithScope { .. } => ElementType::JavaScriptWithScope,
            RawValue::Int32(_) => ElementType::Int32,
            RawValue::Timestamp(_) => ElementType::Timestamp,
            RawValue::Int64(_) => ElementType::Int64,
            RawValue::Decimal128(_) => ElementType::Decimal128,
            RawValue::MinKey => ElementType::MinKey,
            RawValue::MaxKey => ElementType::MaxKey,
        }
    }

    /// MongoDB's name of the type ("int", "objectId", ...).
    pub fn type_name(&self) -> &'static str {
        self.element_type().name()
    }

    /// Whether this is an int, long, double or decimal.
    #[inline]
    pub fn is_number(&self) -> bool {
        self.element_type().is_number()
    }

    /// The string, if it is one (a symbol is not).
    #[inline]
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            RawValue::String(s) => Some(s),
            _ => None,
        }
    }

    /// The embedded document, if it is one.
    #[inline]
    pub fn as_document(&self) -> Option<RawDoc<'a>> {
        match *self {
            RawValue::Document(d) => Some(d),
            _ => None,
        }
    }

    /// The array, if it is one.
    #[inline]
    pub fn as_array(&self) -> Option<RawArray<'a>> {
        match *self {
            RawValue::Array(a) => Some(a),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            RawValue::Boolean(b) => Some(b),
            _ => None,
        }
    }

    /// The number as an `i64` if it is exactly one: 3, 3.0, Decimal 3; `None` for 3.5, NaN, "3".
    pub fn as_i64_exact(&self) -> Option<i64> {
        match *self {
            RawValue::Int32(n) => Some(i64::from(n)),
            RawValue::Int64(n) => Some(n),
            RawValue::Double(x) => f64_to_i64_exact(x),
            RawValue::Decimal128(d) => d.to_i64_exact(),
            _ => None,
        }
    }

    /// The number as an option of a command reads it; `None` if it is not a number. Doubles are
    /// truncated, decimals rounded half to even; out of range it is the nearest end of the range,
    /// and NaN is 0.
    pub fn as_i64_saturating(&self) -> Option<i64> {
        match *self {
            RawValue::Double(x) => Some(x as i64),
            RawValue::Decimal128(d) => Some(d.to_i64_saturating()),
            _ => self.as_i64_exact(),
        }
    }

    /// The number as the nearest double; `None` if it is not a number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            RawValue::Int32(n) => Some(f64::from(n)),
            RawValue::Int64(n) => Some(n as f64),
            RawValue::Double(x) => Some(x),
            RawValue::Decimal128(d) => Some(d.to_f64()),
            _ => None,
        }
    }

    /// Truth value as MongoDB defines it for options and `$and`: false, 0, null and undefined are
    /// false.
    pub fn is_truthy(&self) -> bool {
        match *self {
            RawValue::Boolean(b) => b,
            RawValue::Int32(n) => n != 0,
            RawValue::Int64(n) => n != 0,
            RawValue::Double(x) => x != 0.0,
            RawValue::Decimal128(d) => !d.is_zero(),
            RawValue::Null | RawValue::Undefined => false,
            _ => true,
        }
    }

    /// An owned copy.
    pub fn to_value(self) -> Value {
        Value::from(self)
    }
}

/// The integer a double is exactly equal to; `None` if there is none in `i64`.
pub(crate) fn f64_to_i64_exact(x: f64) -> Option<i64> {
    // 2^63 is a double but not an i64. Every integral double in this range converts exactly.
    let within = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&x);
    (within && x.trunc() == x).then_some(x as i64)
}

macro_rules! from {
    ($($from:ty => $make:expr;)*) => {
        $(impl<'a> From<$from> for RawValue<'a> {
            #[inline]
            fn from(value: $from) -> RawValue<'a> {
                #[allow(clippy::redundant_closure_call)]
                ($make)(value)
            }
        })*
    };
}

from! {
    f64 => RawValue::Double;
    i32 => RawValue::Int32;
    i64 => RawValue::Int64;
    bool => RawValue::Boolean;
    &'a str => RawValue::String;
    &'a String => |s: &'a String| RawValue::String(s);
    ObjectId => RawValue::ObjectId;
    DateTime => RawValue::DateTime;
    Timestamp => RawValue::Timestamp;
    Decimal128 => RawValue::Decimal128;
    RawDoc<'a> => RawValue::Document;
    RawArray<'a> => RawValue::Array;
    &'a DocBuf => |d: &'a DocBuf| RawValue::Document(d.as_raw());
    &'a ArrayBuf => |a: &'a ArrayBuf| RawValue::Array(a.as_raw());
    &'a Value => |v: &'a Value| v.as_raw();
}

impl<'a, T: Into<RawValue<'a>>> From<Option<T>> for RawValue<'a> {
    /// `None` is null.
    fn from(value: Option<T>) -> RawValue<'a> {
        value.map_or(RawValue::Null, Into::into)
    }
}
