//! Text forms: printing and parsing.

use proptest::prelude::*;
use sheaf_bson::{DateTime, DocBuilder, RawValue, Timestamp, Value, doc, json};

use sheaf_testkit::generate::{document, value};

#[test]
fn shell_style() {
    let cases = [
        (Value::from(doc! {}), "{}"),
        (
            Value::from(doc! {"a": 1, "b.c": "x"}),
            r#"{ a: 1, b.c: "x" }"#,
        ),
        (
            Value::from(vec![1.0, 1.5, -0.0, 1e20, 1e-7, 1234567.0]),
            "[ 1.0, 1.5, -0.0, 1e+20, 1e-7, 1234567.0 ]",
        ),
        (Value::from(f64::INFINITY), "inf.0"),
        (Value::from(f64::NEG_INFINITY), "-inf.0"),
        (Value::from(f64::NAN), "nan.0"),
        (Value::from(5i64), "5"),
        (Value::from("say \"hi\"\n\\"), r#""say \"hi\"\n\\""#),
        (Value::from(DateTime(-5)), "new Date(-5)"),
        (Value::from(Timestamp::new(7, 1)), "Timestamp(7, 1)"),
        (
            Value::from(sheaf_bson::ObjectId([0xAB; 12])),
            "ObjectId('abababababababababababab')",
        ),
        (
            Value::Regex {
                pattern: "^a/b".into(),
                options: "i".into(),
            },
            "/^a/b/i",
        ),
        (
            Value::Binary {
                subtype: 0,
                bytes: vec![1, 0xAB],
            },
            "BinData(0, 01AB)",
        ),
        (
            Value::Binary {
                subtype: 4,
                bytes: (0..16).collect(),
            },
            r#"UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")"#,
        ),
        (Value::MinKey, "MinKey"),
        (Value::MaxKey, "MaxKey"),
        (Value::Undefined, "undefined"),
        (Value::Decimal128("1.50".parse().unwrap()), "1.50"),
    ];
    for (value, expected) in cases {
        assert_eq!(json::shell(&value), expected);
        assert_eq!(value.to_string(), expected);
    }
    assert_eq!(format!("{:?}", Value::from(5i64)), "NumberLong(5)");
    assert_eq!(format!("{:?}", doc! {"a b": 1}), r#"{ "a b": 1 }"#);
}

#[test]
fn many_ways_to_write_a_value() {
    let cases = [
        (
            "{a: 1, 'b.c': [1.5, NumberLong(5),], \"d\": \"x\",}",
            r#"{ a: 1, b.c: [ 1.5, NumberLong(5) ], d: "x" }"#,
        ),
        (
            "{$and: [{a.b: {$gt: 5}}]}",
            "{ $and: [ { a.b: { $gt: 5 } } ] }",
        ),
        ("2147483648", "NumberLong(2147483648)"),
        ("9223372036854775808", "9.223372036854776e+18"),
        ("-5", "-5"),
        ("1e3", "1000.0"),
        (".5", "0.5"),
        ("-Infinity", "-inf.0"),
        ("NumberInt('7')", "7"),
        ("NumberLong(\"7\")", "NumberLong(7)"),
        ("Double(1)", "1.0"),
        ("NumberDecimal('1.0')", r#"NumberDecimal("1.0")"#),
        ("ISODate('1970-01-01T00:00:01Z')", "new Date(1000)"),
        ("new Date(5)", "new Date(5)"),
        (
            "ObjectId(\"0102030405060708090a0b0c\")",
            "ObjectId('0102030405060708090a0b0c')",
        ),
        ("Timestamp({t: 1, i: 2})", "Timestamp(1, 2)"),
        ("BinData(0, 'AQID')", "BinData(0, 010203)"),
        ("HexData(5, '0aff')", "BinData(5, 0AFF)"),
        ("/a\\/b\\d/im", r#"RegExp("a/b\\d", "im")"#),
        ("MinKey()", "MinKey"),
        (
            "{a: MaxKey, b: undefined, c: null, d: true}",
            "{ a: MaxKey, b: undefined, c: null, d: true }",
        ),
        (r#""\u00e9\ud83d\ude00\x41\/""#, "\"é😀A/\""),
        (
            "{\"$oid\": \"0102030405060708090a0b0c\"}",
            "ObjectId('0102030405060708090a0b0c')",
        ),
    ];
    for (text, expected) in cases {
        let value = json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(json::typed(&value), expected, "{text}");
    }
}

#[test]
fn invalid_text_is_refused_with_its_position() {
    let cases = [
        ("", "expected a value at offset 0"),
        ("{a 1}", "expected ':' at offset 3"),
        ("{a: 1", "expected ',' or '}' at offset 5"),
        ("[1 2]", "expected ',' or ']' at offset 3"),
        ("{a: 1} x", "unexpected text after the value at offset 7"),
        ("'abc", "unterminated string at offset 0"),
        ("foo", "unexpected \"foo\" at offset 0"),
        (
            "ObjectId('x')",
            "invalid arguments of ObjectId(...) at offset 0",
        ),
        ("1.2.3", "'1.2.3' is not a number at offset 0"),
        (
            "{'a\\u0000': 1}",
            "a field name cannot contain a zero byte at offset 1",
        ),
        ("\"\\ud800\"", "unpaired surrogate at offset 7"),
        ("/abc", "unterminated regular expression at offset 0"),
        (
            "BinData(2, 0102030405)",
            "invalid arguments of BinData(...) at offset 0",
        ),
        (
            "BinData(0, 0)",
            "expected pairs of hexadecimal digits at offset 11",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(json::parse(text).unwrap_err().to_string(), expected);
    }
    assert!(json::parse(&"[".repeat(1_000_000)).is_err());
    assert!(json::parse(&"{a:".repeat(1_000_000)).is_err());
    assert!(json::parse_doc("[1]").is_err());
    assert_eq!(json::parse_prefix("{a: 1}  sort").unwrap().1, 8);
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn typed_text_reads_back(doc in document()) {
        // Text loses only the payload of a NaN.
        let text = json::typed(&doc);
        let back = json::parse_doc(&text).unwrap();
        prop_assert_eq!(json::typed(&back), text);
        prop_assert!(sheaf_bson::compare_docs(back.as_raw(), doc.as_raw()).is_eq());
    }

    #[test]
    fn canonical_text_reads_back(value in value()) {
        let text = json::to_canonical(&value);
        let back = json::parse(&text).unwrap();
        prop_assert_eq!(json::to_canonical(&back), text);
    }

    #[test]
    fn any_text_is_harmless(text in "[-{}\\[\\]()/\"'\\\\a-zA-Z0-9.,:$ ]{0,40}") {
        let _ = json::parse(&text);
    }
}

#[test]
fn printing_unvalidated_bytes_is_bounded() {
    let mut builder = DocBuilder::new();
    for _ in 0..1000 {
        builder.begin_array("a");
    }
    let doc = builder.finish();
    assert!(json::typed(&doc).contains("..."));
    assert_eq!(RawValue::from(&doc).to_string(), json::shell(&doc));
}
