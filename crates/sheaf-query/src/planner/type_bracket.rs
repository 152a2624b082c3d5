//! Type brackets: the range of each type in BSON order.
//!
//! A comparison only considers values in the bracket of its operand, so a range that is open in the
//! filter ends at the end of the bracket:
//!
//! ```text
//!   {a: {$gt: 5}}     (5, inf.0]        {a: {$lt: 5}}     [-inf.0, 5)
//!   {a: {$gt: "x"}}   ("x", {})         {a: {$lt: "x"}}   ["", "x")
//! ```
//!
//! A bracket without a greatest value (strings, documents, ...) ends just before the least value of
//! the next bracket.

use sheaf_bson::{DateTime, DocBuf, ElementType, ObjectId, Timestamp, Value};

use super::bounds::Interval;

const OBJECT_ID_MIN: ObjectId = ObjectId([0; 12]);
const OBJECT_ID_MAX: ObjectId = ObjectId([0xFF; 12]);

fn binary_min() -> Value {
    Value::Binary {
        subtype: 0,
        bytes: Vec::new(),
    }
}

fn regex_min() -> Value {
    Value::Regex {
        pattern: String::new(),
        options: String::new(),
    }
}

fn db_pointer_min() -> Value {
    Value::DbPointer {
        namespace: String::new(),
        id: OBJECT_ID_MIN,
    }
}

fn code_with_scope_min() -> Value {
    Value::JavaScriptWithScope {
        code: String::new(),
        scope: DocBuf::new(),
    }
}

/// All values that are comparable with values of type `element_type`, as an ascending interval. The
/// bracket of numbers excludes NaN, which is in no range and only equal to itself;
/// [`numbers_and_nan`] includes it.
pub(super) fn bracket_of(element_type: ElementType) -> Interval {
    use ElementType as T;
    let (start, end, end_inclusive) = match element_type {
        T::MinKey => (Value::MinKey, Value::MinKey, true),
        T::MaxKey => (Value::MaxKey, Value::MaxKey, true),
        T::Undefined => (Value::Undefined, Value::Undefined, true),
        T::Null => (Value::Null, Value::Null, true),
        T::Double | T::Int32 | T::Int64 | T::Decimal128 => (
            Value::Double(f64::NEG_INFINITY),
            Value::Double(f64::INFINITY),
            true,
        ),
        T::String | T::Symbol => (
            Value::String(String::new()),
            Value::Document(DocBuf::new()),
            false,
        ),
        T::Document => (
            Value::Document(DocBuf::new()),
            Value::Array(Default::default()),
            false,
        ),
        T::Array => (Value::Array(Default::default()), binary_min(), false),
        T::Binary => (binary_min(), Value::ObjectId(OBJECT_ID_MIN), false),
        T::ObjectId => (
            Value::ObjectId(OBJECT_ID_MIN),
            Value::ObjectId(OBJECT_ID_MAX),
            true,
        ),
        T::Boolean => (Value::Boolean(false), Value::Boolean(true), true),
        T::DateTime => (
            Value::DateTime(DateTime::MIN),
            Value::DateTime(DateTime::MAX),
            true,
        ),
        T::Timestamp => (
            Value::Timestamp(Timestamp::new(0, 0)),
            Value::Timestamp(Timestamp::new(u32::MAX, u32::MAX)),
            true,
        ),
        T::Regex => (regex_min(), db_pointer_min(), false),
        T::DbPointer => (db_pointer_min(), Value::JavaScript(String::new()), false),
        T::JavaScript => (
            Value::JavaScript(String::new()),
            code_with_scope_min(),
            false,
        ),
        T::JavaScriptWithScope => (code_with_scope_min(), Value::MaxKey, false),
    };
    Interval::new(start, true, end, end_inclusive)
}

/// Every number, NaN (the least) included.
pub(super) fn numbers_and_nan() -> Interval {
    Interval::new(
        Value::Double(f64::NAN),
        true,
        Value::Double(f64::INFINITY),
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    use sheaf_bson::compare_values;

    /// Brackets follow one another in the order of types and do not overlap.
    #[test]
    fn brackets_are_disjoint_and_ordered() {
        let mut types = ElementType::ALL.to_vec();
        types.sort_by_key(|t| t.canonical_rank());
        types.dedup_by_key(|t| t.canonical_rank());
        for pair in types.windows(2) {
            let (a, b) = (bracket_of(pair[0]), bracket_of(pair[1]));
            assert!(!a.is_empty() && !b.is_empty(), "{a} {b}");
            let order = compare_values(a.end.as_raw(), b.start.as_raw());
            assert!(
                order == Ordering::Less || order == Ordering::Equal && !a.end_inclusive,
                "{a} {b}"
            );
            assert_eq!(
                a.start.element_type().canonical_rank(),
                pair[0].canonical_rank()
            );
        }
        assert!(numbers_and_nan().contains(Value::Double(f64::NAN).as_raw()));
        assert!(!bracket_of(ElementType::Int32).contains(Value::Double(f64::NAN).as_raw()));
    }
}
