//! Random values, often nearly equal: numbers near the limits of types, digits and floats, short
//! texts of few letters, some with zero bytes, and equal values of different types.

use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{ArrayBuf, DateTime, Decimal128, DocBuf, DocBuilder, ObjectId, Timestamp, Value};

/// Integers near the limits of types, digits and floats.
fn integer() -> impl Strategy<Value = i64> {
    let edges = (0u32..64, -2i64..=2, any::<bool>()).prop_map(|(bit, delta, negative)| {
        let n = (1i64.wrapping_shl(bit)).wrapping_add(delta);
        if negative { n.wrapping_neg() } else { n }
    });
    prop_oneof![-20i64..20, edges, any::<i64>()]
}

/// Doubles: special ones, neighbours of integers, any bits.
pub fn double() -> impl Strategy<Value = f64> {
    let special = select(vec![
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        5e-324,
        0.1,
        0.5,
        1.5,
        1e15,
        1e22,
        1e23,
        1e100,
    ]);
    let near_integer = (integer(), -2i64..=2)
        .prop_map(|(n, step)| f64::from_bits((n as f64).to_bits().wrapping_add(step as u64)));
    prop_oneof![special, near_integer, any::<u64>().prop_map(f64::from_bits)]
}

/// Decimals: small ones with trailing zeros, neighbours of integers and doubles, any.
pub fn decimal() -> impl Strategy<Value = Decimal128> {
    let special = select(vec![
        Decimal128::NAN,
        Decimal128::INFINITY,
        Decimal128::NEG_INFINITY,
        Decimal128::ZERO,
    ]);
    let small = (any::<bool>(), 0u128..2000, -6i32..6)
        .prop_map(|(negative, c, e)| Decimal128::from_parts(negative, c, e).unwrap());
    let any = (any::<bool>(), 0u128..10u128.pow(34), -6176i32..=6111)
        .prop_map(|(negative, c, e)| Decimal128::from_parts(negative, c, e).unwrap());
    let near_integer = (integer(), 0u32..15, -1i128..=1).prop_map(|(n, zeros, delta)| {
        let scaled = i128::from(n) * 10i128.pow(zeros) + delta;
        Decimal128::from_parts(scaled < 0, scaled.unsigned_abs(), -(zeros as i32))
            .unwrap_or(Decimal128::ZERO)
    });
    // The double's value to 34 digits, or one unit next to it.
    let near_double = (double(), -1i64..=1).prop_map(|(x, delta)| {
        let text = format!("{:.33e}", x.abs());
        let parts = || {
            let (digits, exponent) = text.split_once('e')?;
            let c: u128 = digits.replace('.', "").parse().ok()?;
            let c = c.checked_add_signed(i128::from(delta))?;
            Decimal128::from_parts(x < 0.0, c, exponent.parse::<i32>().ok()? - 33)
        };
        parts().unwrap_or(Decimal128::ZERO)
    });
    prop_oneof![special, small, any, near_integer, near_double]
}

/// Numbers of the four types.
pub fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        integer().prop_map(|n| Value::Int32(n as i32)),
        integer().prop_map(Value::Int64),
        double().prop_map(Value::Double),
        decimal().prop_map(Value::Decimal128),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "", "a", "ab", "b", "\0", "\0\0", "\u{1}", "a\0", "a\u{1}", "a\0b", "é"
        ])
        .prop_map(str::to_owned),
        "[a-c\u{0}-\u{2}é]{0,4}",
    ]
}

fn cstring() -> impl Strategy<Value = String> {
    "[a-c\u{1}é]{0,3}"
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(select(vec![0u8, 1, 2, 0x80, 0xFE, 0xFF]), 0..5),
        proptest::collection::vec(any::<u8>(), 250..260),
    ]
}

fn binary() -> impl Strategy<Value = Value> {
    (select(vec![0u8, 2, 4, 0x80]), bytes()).prop_map(|(subtype, mut bytes)| {
        if subtype == 2 {
            // Subtype 2 (old binary) repeats its length inside.
            bytes.splice(0..0, (bytes.len() as i32).to_le_bytes());
        }
        Value::Binary { subtype, bytes }
    })
}

fn object_id() -> impl Strategy<Value = ObjectId> {
    select(vec![0u8, 1, 0xFF]).prop_map(|b| {
        let mut id = [b; 12];
        id[3] = 7;
        ObjectId(id)
    })
}

fn scalar() -> impl Strategy<Value = Value> {
    let millis = select(vec![i64::MIN, -1, 0, 1, i64::MAX]);
    prop_oneof![
        8 => number(),
        4 => text().prop_map(Value::String),
        1 => text().prop_map(Value::Symbol),
        1 => select(vec![Value::MinKey, Value::MaxKey, Value::Null, Value::Undefined]),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => binary(),
        1 => object_id().prop_map(Value::ObjectId),
        1 => millis.prop_map(|ms| Value::DateTime(DateTime(ms))),
        1 => any::<(u32, u32)>().prop_map(|(t, i)| Value::Timestamp(Timestamp::new(t, i))),
        1 => (cstring(), cstring())
            .prop_map(|(pattern, options)| Value::Regex { pattern, options }),
        1 => (text(), object_id()).prop_map(|(namespace, id)| Value::DbPointer { namespace, id }),
        1 => text().prop_map(Value::JavaScript),
    ]
}

fn document_of(fields: Vec<(String, Value)>) -> DocBuf {
    let mut builder = DocBuilder::new();
    for (key, value) in &fields {
        builder.append_value(key, value);
    }
    builder.finish()
}

/// Any value, nested a few levels.
pub fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        let fields = proptest::collection::vec((cstring(), inner.clone()), 0..3).boxed();
        let values = proptest::collection::vec(inner, 0..3);
        prop_oneof![
            fields.clone().prop_map(|f| Value::Document(document_of(f))),
            values.prop_map(|v| Value::Array(ArrayBuf::from_values(&v))),
            (text(), fields).prop_map(|(code, f)| Value::JavaScriptWithScope {
                code,
                scope: document_of(f)
            }),
        ]
    })
}

/// A document with a few fields, whose names may repeat.
pub fn document() -> impl Strategy<Value = DocBuf> {
    proptest::collection::vec((cstring(), value()), 0..5).prop_map(document_of)
}
