//! Encodes values, always ascending. The caller complements the bytes of descending fields.

use super::class;
use super::number;
use super::type_bits::TypeBits;
use crate::collation::Collator;
use crate::compare::DEPTH_MAX;
use crate::element_type::ElementType;
use crate::raw::{RawArray, RawDoc};
use crate::raw_value::RawValue;

/// How a string is written.
pub(super) trait TextForm: Copy {
    /// Appends the string and its terminator.
    fn write(self, out: &mut Vec<u8>, text: &str);
}

/// Writes the string's own bytes.
#[derive(Clone, Copy)]
pub(super) struct AsItIs;

impl TextForm for AsItIs {
    #[inline]
    fn write(self, out: &mut Vec<u8>, string: &str) {
        text(out, string.as_bytes());
    }
}

/// Writes the string's sort key.
impl TextForm for &Collator {
    fn write(self, out: &mut Vec<u8>, string: &str) {
        text(out, self.key_text(string).as_bytes());
    }
}

/// Appends one value: the class byte, then a self-delimiting encoding of the value.
pub(super) fn value<T: TextForm>(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    value: RawValue<'_>,
    depth: u32,
    form: T,
) {
    match value {
        RawValue::MinKey => out.push(class::MIN_KEY),
        RawValue::Undefined => out.push(class::UNDEFINED),
        RawValue::Null => out.push(class::NULL),
        RawValue::Int32(n) => number::encode_int(out, bits, n),
        RawValue::Int64(n) => number::encode_long(out, bits, n),
        RawValue::Double(x) => number::encode_double(out, bits, x),
        RawValue::Decimal128(d) => number::encode_decimal(out, bits, d),
        RawValue::String(s) => {
            bits.push(0, 1);
            out.push(class::STRING);
            form.write(out, s);
        }
        RawValue::Symbol(s) => {
            bits.push(1, 1);
            out.push(class::STRING);
            form.write(out, s);
        }
        RawValue::Document(d) => {
            out.push(class::DOCUMENT);
            document(out, bits, d, depth, form);
        }
        RawValue::Array(a) => {
            out.push(class::ARRAY);
            array(out, bits, a, depth, form);
        }
        RawValue::Binary { subtype, bytes } => {
            out.push(class::BINARY);
            length(out, bytes.len());
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        RawValue::ObjectId(id) => {
            out.push(class::OBJECT_ID);
            out.extend_from_slice(&id.0);
        }
        RawValue::Boolean(b) => out.push(if b { class::TRUE } else { class::FALSE }),
        RawValue::DateTime(t) => {
            out.push(class::DATE_TIME);
            out.extend_from_slice(&((t.0 as u64) ^ (1 << 63)).to_be_bytes());
        }
        RawValue::Timestamp(t) => {
            out.push(class::TIMESTAMP);
            out.extend_from_slice(&t.as_u64().to_be_bytes());
        }
        RawValue::Regex { pattern, options } => {
            out.push(class::REGEX);
            text(out, pattern.as_bytes());
            text(out, options.as_bytes());
        }
        RawValue::DbPointer { namespace, id } => {
            out.push(class::DB_POINTER);
            length(out, namespace.len());
            out.extend_from_slice(namespace.as_bytes());
            out.extend_from_slice(&id.0);
        }
        RawValue::JavaScript(code) => {
            out.push(class::JAVASCRIPT);
            text(out, code.as_bytes());
        }
        RawValue::JavaScriptWithScope { code, scope } => {
            out.push(class::JAVASCRIPT_WITH_SCOPE);
            text(out, code.as_bytes());
            document(out, bits, scope, depth, AsItIs);
        }
        RawValue::MaxKey => out.push(class::MAX_KEY),
    }
}

/// Appends bytes terminated by 00. 00 and 01 inside become 01 01 and 01 02, which preserves the
/// order and makes no text a prefix of another.
fn text(out: &mut Vec<u8>, mut bytes: &[u8]) {
    while let Some(at) = memchr::memchr2(0, 1, bytes) {
        out.extend_from_slice(&bytes[..at]);
        out.extend_from_slice(&[1, bytes[at] + 1]);
        bytes = &bytes[at + 1..];
    }
    out.extend_from_slice(bytes);
    out.push(0);
}

/// One byte for a length below 255; otherwise 255 and four bytes, big-endian.
fn length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 0xFF => out.push(short),
        _ => {
            out.push(0xFF);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

/// `| rank | name 00 | value | ... | 00 |`
fn document<T: TextForm>(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    doc: RawDoc<'_>,
    depth: u32,
    form: T,
) {
    if depth >= DEPTH_MAX {
        // At this depth [`crate::compare_values`] compares bytes, too.
        return text(out, doc.as_bytes());
    }
    for element in doc {
        out.push(rank(element.element_type()));
        text(out, element.key_bytes());
        value(out, bits, element.value(), depth + 1, form);
    }
    out.push(0);
}

/// `| value | ... | 00 |`
fn array<T: TextForm>(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    array: RawArray<'_>,
    depth: u32,
    form: T,
) {
    if depth >= DEPTH_MAX {
        return text(out, array.as_bytes());
    }
    for element in array {
        value(out, bits, element, depth + 1, form);
    }
    out.push(0);
}

/// One byte for all types that compare by value, because in a document the name comes between it
/// and the value.
pub(super) fn rank(element_type: ElementType) -> u8 {
    match element_type {
        ElementType::MinKey => class::MIN_KEY,
        ElementType::Undefined => class::UNDEFINED,
        ElementType::Null => class::NULL,
        ElementType::Double | ElementType::Int32 | ElementType::Int64 | ElementType::Decimal128 => {
            class::ZERO
        }
        ElementType::String | ElementType::Symbol => class::STRING,
        ElementType::Document => class::DOCUMENT,
        ElementType::Array => class::ARRAY,
        ElementType::Binary => class::BINARY,
        ElementType::ObjectId => class::OBJECT_ID,
        ElementType::Boolean => class::FALSE,
        ElementType::DateTime => class::DATE_TIME,
        ElementType::Timestamp => class::TIMESTAMP,
        ElementType::Regex => class::REGEX,
        ElementType::DbPointer => class::DB_POINTER,
        ElementType::JavaScript => class::JAVASCRIPT,
        ElementType::JavaScriptWithScope => class::JAVASCRIPT_WITH_SCOPE,
        ElementType::MaxKey => class::MAX_KEY,
    }
}
