//! KeyString: bytes order as values do, and exact values can be restored.

use std::cmp::Ordering;

use expect_test::expect;
use proptest::collection::vec;
use proptest::prelude::*;
use sheaf_bson::keystring::{
    Directions, Discriminator, KeyReader, KeyStringBuilder, decode, decode_record_id, fields,
    prefix_end,
};
use sheaf_bson::{
    Decimal128, DocBuilder, RawValue, RecordId, Value, compare_values, doc, values_equal,
};

use sheaf_testkit::generate::{number, value};

fn encode(values: &[Value], directions: Directions) -> KeyStringBuilder {
    let mut builder = KeyStringBuilder::new(directions);
    for value in values {
        builder.append(value);
    }
    builder
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn compare_tuples(a: &[Value], b: &[Value], directions: Directions) -> Ordering {
    let by_field = a.iter().zip(b).enumerate().map(|(i, (x, y))| {
        let order = compare_values(x.as_raw(), y.as_raw());
        if directions.is_descending(i) {
            order.reverse()
        } else {
            order
        }
    });
    by_field.fold(Ordering::Equal, Ordering::then)
}

/// Whether the bits are equal; any two NaNs are.
fn same(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    match (a, b) {
        (RawValue::Double(x), RawValue::Double(y)) => {
            x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan())
        }
        (RawValue::Document(x), RawValue::Document(y)) => {
            x.iter().count() == y.iter().count()
                && x.iter()
                    .zip(y)
                    .all(|(x, y)| x.key() == y.key() && same(x.value(), y.value()))
        }
        (RawValue::Array(x), RawValue::Array(y)) => {
            x.count() == y.count() && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        (
            RawValue::JavaScriptWithScope { code: c, scope: x },
            RawValue::JavaScriptWithScope { code: d, scope: y },
        ) => c == d && same(RawValue::Document(x), RawValue::Document(y)),
        (a, b) => a == b,
    }
}

fn directions() -> impl Strategy<Value = Directions> {
    vec(prop_oneof![Just(1), Just(-1)], 3).prop_map(Directions::from_signs)
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn memcmp_is_comparison(a in value(), b in value(), d in directions()) {
        let (x, y) = (encode(std::slice::from_ref(&a), d), encode(std::slice::from_ref(&b), d));
        let order = compare_tuples(&[a], &[b], d);
        prop_assert_eq!(x.as_bytes().cmp(y.as_bytes()), order);
    }

    #[test]
    fn memcmp_is_comparison_of_numbers(a in number(), b in number()) {
        let d = Directions::ascending();
        let (x, y) = (encode(std::slice::from_ref(&a), d), encode(std::slice::from_ref(&b), d));
        prop_assert_eq!(x.as_bytes().cmp(y.as_bytes()), compare_values(a.as_raw(), b.as_raw()));
    }

    #[test]
    fn memcmp_is_comparison_of_tuples(a in vec(value(), 3), b in vec(value(), 3), same in 0usize..3, d in directions()) {
        let mut b = b;
        b[..same].clone_from_slice(&a[..same]);
        let (x, y) = (encode(&a, d), encode(&b, d));
        prop_assert_eq!(x.as_bytes().cmp(y.as_bytes()), compare_tuples(&a, &b, d));
    }

    #[test]
    fn exact_values_are_restored(values in vec(value(), 0..4), d in directions()) {
        let key = encode(&values, d);
        let back = decode(key.as_bytes(), key.type_bits().as_bytes(), d).unwrap();
        prop_assert_eq!(back.len(), values.len());
        for (a, b) in values.iter().zip(&back) {
            prop_assert!(same(a.as_raw(), b.as_raw()), "{a:?} came back as {b:?}");
        }
        // Field by field, and by length.
        let ends: Vec<usize> = (0..=values.len()).map(|n| prefix_end(key.as_bytes(), n, d).unwrap()).collect();
        prop_assert_eq!(ends.last(), Some(&key.as_bytes().len()));
        prop_assert_eq!(prefix_end(key.as_bytes(), values.len() + 1, d), None);
        let cut: Vec<&[u8]> = fields(key.as_bytes(), d).collect();
        let expected: Vec<&[u8]> = ends.windows(2).map(|w| &key.as_bytes()[w[0]..w[1]]).collect();
        prop_assert_eq!(cut, expected);
    }

    #[test]
    fn discriminators_enclose_their_prefix(
        prefix in vec(value(), 1..3), tail in value(), other in value(), id in 0i64.., d in directions()
    ) {
        let mut key = encode(&prefix, d);
        key.append(&tail).append_record_id(&RecordId::new(id));
        let mut before = encode(&prefix, d);
        before.append_discriminator(Discriminator::Before);
        let mut after = encode(&prefix, d);
        after.append_discriminator(Discriminator::After);
        prop_assert!(before.as_bytes() < key.as_bytes() && key.as_bytes() < after.as_bytes());
        // A key with another last value is on the same side of all three.
        let mut elsewhere = prefix.clone();
        *elsewhere.last_mut().unwrap() = other.clone();
        let mut far = encode(&elsewhere, d);
        far.append_record_id(&RecordId::new(id));
        match compare_tuples(&elsewhere, &prefix, d) {
            Ordering::Less => prop_assert!(far.as_bytes() < before.as_bytes()),
            Ordering::Equal => prop_assert!(before.as_bytes() < far.as_bytes() && far.as_bytes() < after.as_bytes()),
            Ordering::Greater => prop_assert!(far.as_bytes() > after.as_bytes()),
        }
    }

    #[test]
    fn record_ids_sort_and_round_trip(a in 0i64.., b in 0i64.., shift_a in 0u32..63, shift_b in 0u32..63) {
        let (a, b) = (a >> shift_a, b >> shift_b);
        let key = |id| {
            let mut builder = encode(&[Value::Null], Directions::ascending());
            builder.append_record_id(&RecordId::new(id));
            builder.finish().0
        };
        prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        prop_assert_eq!(decode_record_id(&key(a)), Some((RecordId::new(a), 1)));
    }

    #[test]
    fn foreign_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..40), bits in vec(any::<u8>(), 0..8), d in directions()) {
        let _ = decode(&bytes, &bits, d);
        let _ = decode_record_id(&bytes);
        prop_assert!(fields(&bytes, d).map(<[u8]>::len).sum::<usize>() <= bytes.len());
    }

    #[test]
    fn damaged_keys_do_no_harm(values in vec(value(), 1..3), at in any::<prop::sample::Index>(), byte in any::<u8>(), d in directions()) {
        let (mut bytes, bits) = encode(&values, d).finish();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(&bytes, bits.as_bytes(), d);
        let _ = decode(&bytes[..at], bits.as_bytes(), d);
    }
}

#[test]
fn bytes_of_examples() {
    let decimal = |s: &str| Value::Decimal128(s.parse().unwrap());
    let cases = [
        Value::MinKey,
        Value::Null,
        Value::from(f64::NAN),
        Value::from(f64::NEG_INFINITY),
        Value::from(i64::MIN),
        Value::from(-1000),
        Value::from(-1),
        Value::from(-0.0),
        Value::from(0),
        Value::from(5e-324),
        Value::from(0.1),
        Value::from(0.5),
        Value::from(1),
        Value::from(1.0),
        decimal("1.00"),
        Value::from(1.5),
        decimal("19.99"),
        Value::from(19.99),
        Value::from(127),
        Value::from(128),
        Value::from(1000),
        Value::from(1_000_000),
        Value::from(i64::MAX),
        Value::from(1e300),
        decimal("1E+6000"),
        Value::from(f64::INFINITY),
        Value::from(""),
        Value::from("ab"),
        Value::from("a\0b\u{1}"),
        Value::from(doc! {"a": 1, "b": [true, null]}),
        Value::Binary {
            subtype: 4,
            bytes: vec![1, 2],
        },
        Value::from(false),
        Value::from(sheaf_bson::DateTime(1)),
        Value::Regex {
            pattern: "a".into(),
            options: "i".into(),
        },
        Value::MaxKey,
    ];
    let mut out = String::new();
    for value in &cases {
        let key = encode(std::slice::from_ref(value), Directions::ascending());
        let bits = key.type_bits().as_bytes();
        let bits = if bits.is_empty() {
            String::new()
        } else {
            format!("  bits {}", hex(bits))
        };
        out += &format!("{value:?}\n    {}{bits}\n", hex(key.as_bytes()));
    }
    expect![[r#"
        MinKey
            08
        null
            18
        nan.0
            2f  bits 02
        -inf.0
            30  bits 02
        NumberLong(-9223372036854775808)
            32 fd  bits 01
        -1000
            3a f0 2f
        -1
            3b fd
        -0.0
            40  bits 06
        0
            40
        5e-324
            41 3f 67 20  bits 02
        0.1
            44 19 cd 67 33 99 cd 67 34  bits 02
        0.5
            44 80  bits 02
        1
            45 02
        1.0
            45 02  bits 02
        NumberDecimal("1.00")
            45 02  bits 7b 60
        1.5
            45 03 80  bits 02
        NumberDecimal("19.99")
            45 27 fd b9 29 7b 71 51 f5 e1 a1 40 01 27 c6  bits 7b 60
        19.99
            45 27 fd b9 29 7b 71 51 f4  bits 02
        127
            45 fe
        128
            46 02
        1000
            46 0f d0
        1000000
            47 7b 09 80
        NumberLong(9223372036854775807)
            4d ff ff ff ff ff ff ff ff fe  bits 01
        1e+300
            4f 40 8f 0b f9 87 c9 41 01 eb 9c  bits 02
        NumberDecimal("1E+6000")
            4f 4b 20 0b ef 53 4f 15 ad 47 37 d9 11 57 70 14  bits 43 be
        inf.0
            50  bits 02
        ""
            58 00
        "ab"
            58 61 62 00
        "a\u0000b\u0001"
            58 61 01 01 62 01 02 00
        { a: 1, b: [ true, null ] }
            60 40 61 00 45 02 68 62 00 68 81 18 00 00
        BinData(4, 0102)
            70 02 04 01 02
        false
            80
        new Date(1)
            88 80 00 00 00 00 00 00 01
        /a/i
            98 61 00 69 00
        MaxKey
            f0
    "#]]
    .assert_eq(&out);
}

#[test]
fn small_values_have_short_keys() {
    let len = |v: Value| encode(&[v], Directions::ascending()).as_bytes().len();
    assert_eq!(len(Value::from(127)), 2);
    assert_eq!(len(Value::from(-16383)), 3);
    assert!(len(Value::from(i32::MAX)) <= 6);
    assert!(len(Value::from(std::f64::consts::PI)) <= 10);
    assert_eq!(len(Value::from("abc")), 5);
    assert!(
        encode(&[1.into(), "a".into()], Directions::ascending())
            .type_bits()
            .as_bytes()
            .is_empty()
    );
    let mut id = KeyStringBuilder::default();
    id.append_record_id(&RecordId::new(1_000_000));
    assert_eq!(id.as_bytes().len(), 4);
}

#[test]
fn reads_into_a_document() {
    let directions = Directions::from_signs([1, -1, 1]);
    let values = [
        Value::from(5i64),
        Value::from(doc! {"x": [1.5]}),
        Value::from("s"),
    ];
    let key = encode(&values, directions);
    let mut reader = KeyReader::new(key.as_bytes(), key.type_bits().as_bytes(), directions);
    let mut out = DocBuilder::new();
    for name in ["a", "b", "c"] {
        assert!(reader.read_into(&mut out, name).unwrap());
    }
    assert!(!reader.read_into(&mut out, "d").unwrap());
    assert_eq!(out.finish(), doc! {"a": 5i64, "b": {"x": [1.5]}, "c": "s"});
}

#[test]
fn a_builder_is_reused() {
    let mut builder = KeyStringBuilder::new(Directions::from_signs([-1]));
    builder.append(1.5).append_record_id(&RecordId::new(1));
    let first = (builder.as_bytes().to_vec(), builder.type_bits().clone());
    builder.reset();
    assert!(builder.as_bytes().is_empty() && builder.type_bits().as_bytes().is_empty());
    builder.append(1.5).append_record_id(&RecordId::new(1));
    assert_eq!(
        (builder.as_bytes().to_vec(), builder.type_bits().clone()),
        first
    );
}

#[test]
fn deep_documents_do_not_exhaust_the_stack() {
    let mut builder = DocBuilder::new();
    for _ in 0..50_000 {
        builder.begin_document("a");
    }
    let deep = Value::Document(builder.finish());
    let key = encode(std::slice::from_ref(&deep), Directions::ascending());
    let back = decode(
        key.as_bytes(),
        key.type_bits().as_bytes(),
        Directions::ascending(),
    )
    .unwrap();
    assert!(values_equal(back[0].as_raw(), deep.as_raw()));
    // Bytes that open documents without end and never close them.
    let bomb = vec![0x68; 100_000];
    assert!(decode(&bomb, &[], Directions::ascending()).is_err());
    assert_eq!(prefix_end(&bomb, 1, Directions::ascending()), None);
}

#[test]
fn decimals_keep_their_zeros() {
    for text in [
        "1",
        "1.0",
        "100",
        "1E+2",
        "0.10",
        "-0.00",
        "0E+6111",
        "9.999999999999999999999999999999999E+6144",
        "1E-6176",
        "0.5",
        "0.50",
        "18446744073709551616",
        "1E+27",
        "134217728E-20",
    ] {
        let decimal: Decimal128 = text.parse().unwrap();
        let value = Value::Decimal128(decimal);
        let key = encode(std::slice::from_ref(&value), Directions::ascending());
        let back = decode(
            key.as_bytes(),
            key.type_bits().as_bytes(),
            Directions::ascending(),
        )
        .unwrap();
        assert_eq!(back, [value], "{text}");
    }
}
