//! The total order of all values.
//!
//! Values compare by the rank of their type first, then by value:
//!
//! ```text
//!  MinKey < undefined < null < numbers < strings, symbols < object < array
//!  < binData < objectId < bool < date < timestamp < regex < dbPointer
//!  < javascript < javascriptWithScope < MaxKey
//! ```
//!
//! - Numbers compare by value across int, long, double and Decimal128, without
//!   rounding. NaN is below every other number and equal to NaN; -0 equals 0.
//! - Documents compare element by element: rank, then field name, then value; a
//!   prefix sorts first. Arrays compare the same way, without names.
//! - Binary: length, subtype, bytes. Text: by bytes.
//! - With a collator, text compares by the collation, also inside documents and
//!   arrays; everything else is unchanged ([`compare_values_with`]).
//!
//! Invariant: memcmp of the KeyStrings of two values gives this order.
//!
//! Comparison works on raw bytes: an element is decoded only if the types are comparable, and text
//! is not checked for UTF-8.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::collation::Collator;
use crate::decimal128::Decimal128;
use crate::element_type::ElementType;
use crate::number::{Number, cmp_decimal, cmp_f64, cmp_i64_f64};
use crate::raw::{RawArray, RawDoc, RawElement, RawIter};
use crate::raw_value::RawValue;

/// Whether a comparison of documents includes field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldNames {
    /// Names count at every level: MongoDB's order of values.
    Consider,
    /// Only values count at the top level, as in sort keys and index keys. Names inside nested
    /// documents still count.
    Ignore,
}

/// Deeper than any valid document. Below this depth, values compare as raw bytes, so that
/// unvalidated input cannot exhaust the stack.
pub(crate) const DEPTH_MAX: u32 = 250;

/// How text compares: strings and symbols, at any depth.
trait TextOrder: Copy {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering;
}

#[derive(Clone, Copy)]
struct ByBytes;

impl TextOrder for ByBytes {
    #[inline]
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

impl TextOrder for &Collator {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        self.compare_bytes(a, b)
    }
}

/// Compares two values.
#[inline]
pub fn compare_values(a: RawValue<'_>, b: RawValue<'_>) -> Ordering {
    compare_at(a, b, 0, ByBytes)
}

/// Compares two values, text by a collation; with `None`, text by bytes.
#[inline]
pub fn compare_values_with(
    a: RawValue<'_>,
    b: RawValue<'_>,
    collator: Option<&Collator>,
) -> Ordering {
    match collator {
        None => compare_at(a, b, 0, ByBytes),
        Some(collator) => compare_at(a, b, 0, collator),
    }
}

/// Whether two values compare equal: 1, 1.0 and Decimal 1.00 do.
#[inline]
pub fn values_equal(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    compare_values(a, b) == Ordering::Equal
}

/// Whether two values compare equal by [`compare_values_with`].
#[inline]
pub fn values_equal_with(a: RawValue<'_>, b: RawValue<'_>, collator: Option<&Collator>) -> bool {
    compare_values_with(a, b, collator) == Ordering::Equal
}

/// Compares two documents.
pub fn compare_docs(a: RawDoc<'_>, b: RawDoc<'_>) -> Ordering {
    nested(a, b, true, 0, ByBytes)
}

/// Compares two documents, with or without the names of top-level fields.
pub fn compare_docs_with(a: RawDoc<'_>, b: RawDoc<'_>, names: FieldNames) -> Ordering {
    elements(
        a.iter(),
        b.iter(),
        names == FieldNames::Consider,
        0,
        ByBytes,
    )
}

/// Compares two arrays.
pub fn compare_arrays(a: RawArray<'_>, b: RawArray<'_>) -> Ordering {
    elements(a.elements(), b.elements(), false, 0, ByBytes)
}

/// Compares two elements: rank, then name with [`FieldNames::Consider`], then value.
pub fn compare_elements(a: RawElement<'_>, b: RawElement<'_>, names: FieldNames) -> Ordering {
    element(a, b, names == FieldNames::Consider, 0, ByBytes)
}

fn elements<T: TextOrder>(
    mut a: RawIter<'_>,
    mut b: RawIter<'_>,
    names: bool,
    depth: u32,
    text: T,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => {
                let order = element(x, y, names, depth, text);
                if order != Ordering::Equal {
                    return order;
                }
            }
        }
    }
}

fn element<T: TextOrder>(
    a: RawElement<'_>,
    b: RawElement<'_>,
    names: bool,
    depth: u32,
    text: T,
) -> Ordering {
    let (ta, tb) = (a.element_type(), b.element_type());
    if ta != tb {
        let order = ta.canonical_rank().cmp(&tb.canonical_rank());
        if order != Ordering::Equal {
            return order;
        }
    }
    if names {
        let order = a.key_bytes().cmp(b.key_bytes());
        if order != Ordering::Equal {
            return order;
        }
    }
    if matches!(ta, ElementType::String | ElementType::Symbol) {
        return text.compare(text_bytes(&a), text_bytes(&b));
    }
    compare_at(a.value(), b.value(), depth, text)
}

/// The bytes of a string or symbol, not checked for UTF-8.
fn text_bytes<'a>(element: &RawElement<'a>) -> &'a [u8] {
    let bytes = element.raw_value_bytes();
    bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or(&[])
}

fn compare_at<T: TextOrder>(a: RawValue<'_>, b: RawValue<'_>, depth: u32, text: T) -> Ordering {
    use RawValue::*;
    match (a, b) {
        (Int32(x), Int32(y)) => x.cmp(&y),
        (Int64(x), Int64(y)) => x.cmp(&y),
        (Int32(x), Int64(y)) => i64::from(x).cmp(&y),
        (Int64(x), Int32(y)) => x.cmp(&i64::from(y)),
        (Double(x), Double(y)) => cmp_f64(x, y),
        (Int32(x), Double(y)) => cmp_f64(f64::from(x), y),
        (Double(x), Int32(y)) => cmp_f64(x, f64::from(y)),
        (Int64(x), Double(y)) => cmp_i64_f64(x, y),
        (Double(x), Int64(y)) => cmp_i64_f64(y, x).reverse(),
        (Decimal128(x), Decimal128(y)) => cmp_decimal(x, y),
        (Decimal128(x), y) if y.is_number() => compare_decimal(x, y),
        (x, Decimal128(y)) if x.is_number() => compare_decimal(y, x).reverse(),
        (String(x) | Symbol(x), String(y) | Symbol(y)) => text.compare(x.as_bytes(), y.as_bytes()),
        (Document(x), Document(y)) => nested(x, y, true, depth, text),
        (Array(x), Array(y)) => nested(x.as_doc(), y.as_doc(), false, depth, text),
        (
            Binary {
                subtype: sx,
                bytes: bx,
            },
            Binary {
                subtype: sy,
                bytes: by,
            },
        ) => bx
            .len()
            .cmp(&by.len())
            .then(sx.cmp(&sy))
            .then_with(|| bx.cmp(by)),
        (ObjectId(x), ObjectId(y)) => x.cmp(&y),
        (Boolean(x), Boolean(y)) => x.cmp(&y),
        (DateTime(x), DateTime(y)) => x.cmp(&y),
        (Timestamp(x), Timestamp(y)) => x.cmp(&y),
        (
            Regex {
                pattern: px,
                options: ox,
            },
            Regex {
                pattern: py,
                options: oy,
            },
        ) => px.cmp(py).then_with(|| ox.cmp(oy)),
        (
            DbPointer {
                namespace: nx,
                id: ix,
            },
            DbPointer {
                namespace: ny,
                id: iy,
            },
        ) => nx
            .len()
            .cmp(&ny.len())
            .then_with(|| nx.cmp(ny))
            .then_with(|| ix.cmp(&iy)),
        (JavaScript(x), JavaScript(y)) => x.cmp(y),
        (
            JavaScriptWithScope {
                code: cx,
                scope: sx,
            },
            JavaScriptWithScope {
                code: cy,
                scope: sy,
            },
        ) => cx
            .cmp(cy)
            .then_with(|| nested(sx, sy, true, depth, ByBytes)),
        (x, y) => x
            .element_type()
            .canonical_rank()
            .cmp(&y.element_type().canonical_rank()),
    }
}

fn nested<T: TextOrder>(
    a: RawDoc<'_>,
    b: RawDoc<'_>,
    names: bool,
    depth: u32,
    text: T,
) -> Ordering {
    // Equal bytes are equal values at any depth.
    if a.as_bytes() == b.as_bytes() {
        return Ordering::Equal;
    }
    if depth >= DEPTH_MAX {
        return a.as_bytes().cmp(b.as_bytes());
    }
    elements(a.iter(), b.iter(), names, depth + 1, text)
}

fn compare_decimal(a: Decimal128, b: RawValue<'_>) -> Ordering {
    Number::from(a).cmp(&number(b))
}

/// The numeric value; NaN if the value is not a number.
pub(crate) fn number(value: RawValue<'_>) -> Number {
    match value {
        RawValue::Int32(n) => Number::from(i64::from(n)),
        RawValue::Int64(n) => Number::from(n),
        RawValue::Double(x) => Number::from(x),
        RawValue::Decimal128(d) => Number::from(d),
        _ => Number::NaN,
    }
}

/// Feeds a value to a hasher so that values which compare equal have the same hash.
pub fn hash_value<H: Hasher>(value: RawValue<'_>, state: &mut H) {
    hash_at(value, state, 0);
}

fn hash_at<H: Hasher>(value: RawValue<'_>, state: &mut H, depth: u32) {
    state.write_i8(value.element_type().canonical_rank());
    match value {
        RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => {
            match number(value) {
                Number::NaN => state.write_u8(0),
                Number::Infinite(negative) => state.write_u8(1 + u8::from(negative)),
                Number::Zero => state.write_u8(3),
                Number::Finite(f) => {
                    // A remainder need not be hashed: equal numbers have equal mantissas.
                    state.write_u8(4 + u8::from(f.negative));
                    state.write_i32(f.exponent);
                    state.write_u64(f.mantissa);
                }
            }
        }
        RawValue::String(s) | RawValue::Symbol(s) | RawValue::JavaScript(s) => s.hash(state),
        RawValue::Document(d) => hash_elements(d, true, state, depth),
        RawValue::Array(a) => hash_elements(a.as_doc(), false, state, depth),
        RawValue::Binary { subtype, bytes } => (subtype, bytes).hash(state),
        RawValue::ObjectId(id) => id.hash(state),
        RawValue::Boolean(b) => b.hash(state),
        RawValue::DateTime(t) => t.hash(state),
        RawValue::Timestamp(t) => t.hash(state),
        RawValue::Regex { pattern, options } => (pattern, options).hash(state),
        RawValue::DbPointer { namespace, id } => (namespace, id).hash(state),
        RawValue::JavaScriptWithScope { code, scope } => {
            code.hash(state);
            hash_elements(scope, true, state, depth);
        }
        RawValue::Undefined | RawValue::Null | RawValue::MinKey | RawValue::MaxKey => {}
    }
}

fn hash_elements<H: Hasher>(doc: RawDoc<'_>, names: bool, state: &mut H, depth: u32) {
    // Below this depth equality compares bytes, so hashing nothing more is correct for any value.
    if depth < DEPTH_MAX {
        for element in doc {
            if names {
                element.key_bytes().hash(state);
            }
            hash_at(element.value(), state, depth + 1);
        }
    }
    state.write_u8(0xFF);
}
