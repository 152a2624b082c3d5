//! Building documents and reading them back.

use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawDoc, RawValue, Value, array, doc};

#[test]
fn doc_macro_nests() {
    let name = String::from("late");
    let list = vec![1i32, 2];
    let inner = doc! {"x": 1};
    let doc = doc! {
        "a": 1,
        "b": {"c": [1, 2.5, null, [], {}, {"d": "e"}], "n": null},
        name.as_str(): &name,
        "list": list,
        "inner": inner,
        "sum": 1i64 + 1,
        "none": Option::<i32>::None,
    };
    assert_eq!(
        doc.to_string(),
        r#"{ a: 1, b: { c: [ 1, 2.5, null, [], {}, { d: "e" } ], n: null }, late: "late", list: [ 1, 2 ], inner: { x: 1 }, sum: 2, none: null }"#
    );
    assert!(doc! {}.is_empty());
    assert_eq!(doc! {}, DocBuf::new());
    assert_eq!(array![].as_raw().count(), 0);
    assert_eq!(
        array![1, "x", {"a": null}].to_string(),
        r#"[ 1, "x", { a: null } ]"#
    );
}

#[test]
fn bytes_match_the_format() {
    let doc = doc! {"hello": "world"};
    assert_eq!(doc.as_bytes(), b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
    assert_eq!(array![true].as_bytes(), b"\x09\0\0\0\x080\0\x01\0");
}

#[test]
fn builds_after_existing_bytes() {
    let mut b = DocBuilder::with_vec(b"header".to_vec());
    b.begin_document("cursor").begin_array("firstBatch");
    for n in 0..12 {
        b.push_document_bytes(doc! {"_id": n}.as_bytes());
    }
    b.end().append("id", 0i64).end().append("ok", 1.0);
    let out = b.finish_into();
    let doc = RawDoc::parse(out.strip_prefix(b"header").unwrap()).unwrap();
    let batch = doc
        .get("cursor")
        .unwrap()
        .as_document()
        .unwrap()
        .get("firstBatch")
        .unwrap();
    let batch = batch.as_array().unwrap();
    assert_eq!(batch.count(), 12);
    assert_eq!(batch.elements().last().unwrap().key(), "11");
    assert_eq!(
        batch.get(11).unwrap().as_document().unwrap().get("_id"),
        Some(RawValue::Int32(11))
    );
    assert_eq!(doc.get("ok"), Some(RawValue::Double(1.0)));
}

#[test]
fn values_convert_both_ways() {
    let value = Value::from(vec![Value::from(1), Value::from("x"), Value::Null]);
    assert_eq!(value, Value::Array(array![1, "x", null]));
    assert_eq!(Value::from(value.as_raw()), value);
    assert_eq!(ArrayBuf::from_values([1, 2]), array![1, 2]);
}

#[test]
fn keys_are_cut_at_a_zero_byte() {
    let mut b = DocBuilder::new();
    b.append("a\0b", 1).append("c", 2);
    assert_eq!(b.finish(), doc! {"a": 1, "c": 2});
}

#[test]
fn indexes_of_any_length() {
    let mut out = DocBuilder::new();
    out.begin_array("a");
    for n in 0..1001 {
        out.push(n);
    }
    out.end();
    let doc = out.finish();
    let array = doc.get("a").and_then(|value| value.as_array()).unwrap();
    let keys: Vec<String> = RawDoc::parse(array.as_bytes())
        .unwrap()
        .iter()
        .map(|element| element.key().to_owned())
        .collect();
    let wanted: Vec<String> = (0..1001).map(|n: i32| n.to_string()).collect();
    assert_eq!(keys, wanted);
}
