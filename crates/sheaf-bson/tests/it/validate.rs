//! What validation rejects, and where it reports the fault.

use sheaf_bson::{DocBuilder, RawValue, ValidateOptions, Value, doc, validate};

fn check(bytes: &[u8]) -> Result<(), String> {
    validate(bytes, &ValidateOptions { depth_max: 100 }).map_err(|e| e.to_string())
}

fn nested(levels: usize) -> Vec<u8> {
    let mut b = DocBuilder::new();
    for _ in 0..levels {
        b.begin_document("a");
    }
    b.finish_into()
}

#[test]
fn well_formed_documents_pass() {
    let doc = doc! {
        "double": 1.5, "string": "ü", "document": {"a": [1, {"b": null}]},
        "binary": RawValue::Binary { subtype: 2, bytes: &[1, 0, 0, 0, 9] },
        "regex": RawValue::Regex { pattern: "a", options: "i" },
        "code": RawValue::JavaScriptWithScope { code: "f", scope: doc! {"x": 1}.as_raw() },
        "pointer": Value::DbPointer { namespace: "d.c".into(), id: Default::default() },
        "bool": true, "min": Value::MinKey, "max": Value::MaxKey, "undefined": Value::Undefined,
    };
    assert_eq!(check(doc.as_bytes()), Ok(()));
    assert_eq!(check(&nested(100)), Ok(()));
}

#[test]
fn faults_are_reported_with_their_position() {
    let patched = |doc: sheaf_bson::DocBuf, at: usize, byte: u8| {
        let mut bytes = doc.into_vec();
        bytes[at] = byte;
        bytes
    };
    let cases: [(Vec<u8>, &str); 16] = [
        (
            vec![],
            "not enough bytes for the length of a document at offset 0",
        ),
        (
            vec![4, 0, 0, 0, 0],
            "document length 4 is below the minimum of 5 at offset 0",
        ),
        (
            vec![6, 0, 0, 0, 0],
            "document length 6 exceeds the 5 bytes available at offset 0",
        ),
        (
            vec![5, 0, 0, 0, 1],
            "document does not end with a zero byte at offset 4",
        ),
        (
            vec![5, 0, 0, 0, 0, 0],
            "unexpected bytes after the end of the document at offset 5",
        ),
        (
            vec![6, 0, 0, 0, 0, 0],
            "document ends before its declared length at offset 4",
        ),
        (
            patched(doc! {"a": true}, 7, 2),
            "boolean value 2 is neither 0 nor 1 at offset 7 in element with field name 'a'",
        ),
        (
            patched(doc! {"a": 1}, 4, 0x20),
            "unrecognized BSON type 32 at offset 4",
        ),
        (
            patched(doc! {"a": 1}, 4, 0x01),
            "value exceeds its document at offset 7 in element with field name 'a'",
        ),
        (
            patched(doc! {"a": 1}, 5, 0xFF),
            "field name is not valid UTF-8 at offset 5",
        ),
        (
            patched(doc! {"a": {"b": ["x"]}}, 25, 0xFF),
            "string is not valid UTF-8 at offset 25 in element with field name 'a.b.0'",
        ),
        (
            patched(doc! {"s": "x"}, 7, 9),
            "string length 9 exceeds its document at offset 7 in element with field name 's'",
        ),
        (
            patched(doc! {"s": "x"}, 7, 0),
            "string length 0 is below the minimum of 1 at offset 7 in element with field name 's'",
        ),
        (
            patched(doc! {"s": "x"}, 12, 1),
            "string does not end with a zero byte at offset 12 in element with field name 's'",
        ),
        (
            doc! {"b": RawValue::Binary { subtype: 2, bytes: &[2, 0, 0, 0, 9] }}.into_vec(),
            "inner length of binary subtype 2 does not match at offset 12 in element with field name 'b'",
        ),
        (
            nested(101),
            "nesting exceeds the limit of 100 levels at offset 707",
        ),
    ];
    for (bytes, expected) in cases {
        let error = check(&bytes).expect_err(expected);
        assert!(
            error.starts_with(expected),
            "{error}\n  expected {expected}"
        );
    }
}

#[test]
fn a_scope_must_fill_its_length() {
    let whole = doc! {"c": RawValue::JavaScriptWithScope { code: "f", scope: doc! {}.as_raw() }};
    for delta in [-1i32, 1] {
        let mut bytes = whole.as_bytes().to_vec();
        bytes[7] = (i32::from(bytes[7]) + delta) as u8;
        assert!(check(&bytes).unwrap_err().contains("length"), "{delta}");
    }
}

#[test]
fn deep_nesting_costs_nothing() {
    let bytes = nested(200_000);
    assert!(check(&bytes).is_err());
    // Reading it unvalidated does not exhaust the stack.
    let doc = sheaf_bson::RawDoc::parse(&bytes).unwrap();
    assert_eq!(
        sheaf_bson::compare_docs(doc, doc),
        std::cmp::Ordering::Equal
    );
    assert!(doc.to_string().len() < 10_000);
    assert!(sheaf_bson::json::to_relaxed(doc).len() < 10_000);
}
