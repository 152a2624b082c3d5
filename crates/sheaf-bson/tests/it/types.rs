//! Names and numbers of types, object ids, and reading malformed bytes.

use std::collections::HashSet;

use sheaf_bson::json::parse_doc;
use sheaf_bson::{ElementType, ObjectId, RawArray, RawDoc, RawValue, Timestamp, doc};

#[test]
fn types_have_names_and_numbers() {
    for element_type in ElementType::ALL {
        let byte = element_type as u8;
        assert_eq!(ElementType::from_u8(byte), Some(element_type));
        assert_eq!(
            ElementType::from_name(element_type.name()),
            Some(element_type)
        );
        assert_eq!(
            ElementType::from_alias(element_type.name()),
            Some(&[element_type][..])
        );
        let code = i64::from(element_type.type_code());
        assert_eq!(ElementType::from_type_code(code), Some(element_type));
    }
    assert_eq!(ElementType::from_alias("number").map(<[_]>::len), Some(4));
    assert_eq!(ElementType::MinKey.type_code(), -1);
    assert_eq!(ElementType::from_type_code(255), Some(ElementType::MinKey));
    for code in [0, 20, 128, -2, 256 + 1] {
        assert_eq!(ElementType::from_type_code(code), None);
    }
    assert_eq!(ElementType::from_alias("integer"), None);
    let known = (0..=255)
        .filter(|&b| ElementType::from_u8(b).is_some())
        .count();
    assert_eq!(known, ElementType::ALL.len());
}

#[test]
fn object_ids_are_unique_and_readable() {
    let ids: Vec<ObjectId> = (0..1000).map(|_| ObjectId::new()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 1000);
    assert!(ids.iter().all(|id| id.0[4..9] == ids[0].0[4..9]));
    let id = ObjectId::with_seconds(0x0102_0304);
    assert_eq!(id.seconds(), 0x0102_0304);
    assert_eq!(ObjectId::parse_hex(&id.to_hex()), Some(id));
    assert_eq!(ObjectId::parse_hex(&id.to_hex().to_uppercase()), Some(id));
    for bad in [
        "",
        "0102",
        "zz0102030405060708090a0b",
        "0102030405060708090a0b0c0d",
    ] {
        assert_eq!(ObjectId::parse_hex(bad), None);
    }
    let time = Timestamp::new(u32::MAX, 7);
    assert_eq!(Timestamp::from_u64(time.as_u64()), time);
}

#[test]
fn reading_ends_early_on_malformed_bytes() {
    let good = doc! {"a": 1, "s": "text", "d": {"x": 1}, "z": 2};
    // The string's length points past the document.
    let mut bytes = good.as_bytes().to_vec();
    bytes[14] = 200;
    let doc = RawDoc::parse(&bytes).unwrap();
    assert_eq!(doc.iter().map(|e| e.key()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(
        (doc.get("a"), doc.get("z")),
        (Some(RawValue::Int32(1)), None)
    );
    // Text that is not UTF-8 reads as empty, and what follows is still readable.
    let mut bytes = good.as_bytes().to_vec();
    bytes[18] = 0xFF;
    let doc = RawDoc::parse(&bytes).unwrap();
    assert_eq!(doc.get("s"), Some(RawValue::String("")));
    assert_eq!(doc.get("z"), Some(RawValue::Int32(2)));
}

#[test]
fn keys_of_every_length_end_where_they_end() {
    for len in 0..40 {
        let key = "k".repeat(len);
        let doc = doc! {"first": 1, key.as_str(): true, "last": 2};
        let element = doc.iter().nth(1).unwrap();
        assert_eq!(element.key(), key);
        assert_eq!(
            doc.get("last"),
            Some(RawValue::Int32(2)),
            "after a key of {len} bytes"
        );
        let only = doc! {key.as_str(): null};
        assert_eq!(only.iter().count(), 1, "a key of {len} bytes");
    }
}

#[test]
fn frames_are_checked() {
    assert!(RawDoc::parse(&[5, 0, 0, 0, 0]).unwrap().is_empty());
    assert_eq!(RawDoc::EMPTY.len_bytes(), 5);
    assert!(RawArray::EMPTY.is_empty());
    let (doc, rest) = RawDoc::parse_prefix(&[5, 0, 0, 0, 0, 9]).unwrap();
    assert!(doc.is_empty());
    assert_eq!(rest, [9]);
    for bad in [
        &[][..],
        &[5, 0, 0],
        &[4, 0, 0, 0],
        &[0xFF; 5],
        &[5, 0, 0, 0, 1],
    ] {
        assert!(RawDoc::parse(bad).is_err());
    }
}

#[test]
fn numbers_saturate_as_integers() {
    let rows = [
        ("{n: 1.9}", Some(1)),
        ("{n: -0.5}", Some(0)),
        (r#"{n: {$numberDecimal: "1.5"}}"#, Some(2)),
        (r#"{n: {$numberDecimal: "0.5"}}"#, Some(0)),
        (
            r#"{n: {$numberDecimal: "0.5000000000000000000000000000000001"}}"#,
            Some(1),
        ),
        (r#"{n: {$numberDecimal: "-2.5"}}"#, Some(-2)),
        (r#"{n: {$numberDecimal: "NaN"}}"#, Some(0)),
        (r#"{n: {$numberDouble: "NaN"}}"#, Some(0)),
        (r#"{n: {$numberDouble: "-Infinity"}}"#, Some(i64::MIN)),
        (r#"{n: {$numberDecimal: "1E400"}}"#, Some(i64::MAX)),
        (r#"{n: "1"}"#, None),
    ];
    for (text, wanted) in rows {
        let doc = parse_doc(text).unwrap();
        let value = doc.get("n").unwrap();
        assert_eq!(value.as_i64_saturating(), wanted, "{text}");
    }
}
