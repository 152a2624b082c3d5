//! What a path reaches in a document with arrays.

use std::ops::ControlFlow;

use sheaf_bson::path::{LeafArrayBehavior, for_each_value, get_path, is_path_prefix};
use sheaf_bson::{DocBuf, FieldPath, RawValue, doc};

/// What the visitor sees: `value@array_index`, separated by `|`.
fn reach(doc: &DocBuf, path: &str, leaf: LeafArrayBehavior) -> String {
    let path = FieldPath::parse_lenient(path).unwrap();
    let mut seen = Vec::new();
    let _ = for_each_value(doc.as_raw(), &path, leaf, |item| {
        let value = item.value().map_or("missing".to_owned(), |v| v.to_string());
        let at = item.array_index.map_or(String::new(), |i| format!("@{i}"));
        seen.push(value + &at);
        ControlFlow::<()>::Continue(())
    });
    seen.join(" | ")
}

#[test]
fn paths_through_arrays() {
    let cases = [
        (doc! {"a": 5}, "a", "5"),
        (doc! {}, "a", "missing"),
        (doc! {"a": [1, [2]]}, "a", "1@0 | [ 2 ]@1 | [ 1, [ 2 ] ]"),
        (doc! {"a": []}, "a", "[]"),
        (doc! {"a": {"b": 1}}, "a.b", "1"),
        (doc! {"a": 5}, "a.b", "missing"),
        (doc! {"a": null}, "a.b", "missing"),
        (doc! {"a": {}}, "a.b", "missing"),
        (doc! {}, "a.b", "missing"),
        (
            doc! {"a": [{"b": 1}, {"c": 2}, 3]},
            "a.b",
            "1@0 | missing@1",
        ),
        (
            doc! {"a": [{"b": [1, 2]}, {"b": []}]},
            "a.b",
            "1@0 | 2@0 | [ 1, 2 ]@0 | []@1",
        ),
        (doc! {"a": [{"b": 5}]}, "a.b.c", "missing@0"),
        (doc! {"a": [[{"b": 1}]]}, "a.b", ""),
        (doc! {"a": []}, "a.b", ""),
        (doc! {"a": [1, "x"]}, "a.b", ""),
        (doc! {"a": [7, 8]}, "a.0", "7"),
        (doc! {"a": [7, 8]}, "a.1", "8"),
        (doc! {"a": [7, 8]}, "a.2", ""),
        (doc! {"a": [7, 8]}, "a.01", ""),
        (doc! {"a": [[7, 8]]}, "a.0", "[ 7, 8 ]"),
        (doc! {"a": [[7, 8]]}, "a.0.1", "8"),
        (doc! {"a": {"0": 7}}, "a.0", "7"),
        (doc! {"a": [{"0": 7}, 8]}, "a.0", r#"7@0 | { 0: 7 }"#),
        (doc! {"a": [8, {"x": 7}]}, "a.0", "8 | missing@1"),
        (doc! {"a": [[{"b": 1}]]}, "a.0.b", "1@0"),
        (doc! {"a": [{"b": 1}]}, "a.0.b", "missing@0 | 1"),
        (doc! {"a": [5]}, "a.0.b", ""),
        (
            doc! {"a": [{"b": [{"c": 1}]}, {"b": [{"c": 2}, {"c": 3}]}]},
            "a.b.c",
            "1@0 | 2@1 | 3@1",
        ),
        (doc! {"": 1}, "", "1"),
        (doc! {"a": {"": 2}}, "a.", "2"),
    ];
    for (doc, path, expected) in cases {
        let got = reach(&doc, path, LeafArrayBehavior::Traverse);
        assert_eq!(got, expected, "{path} in {doc}");
    }
    let doc = doc! {"a": [{"b": [1, 2]}, {"b": 3}]};
    assert_eq!(
        reach(&doc, "a.b", LeafArrayBehavior::NoTraverse),
        "[ 1, 2 ]@0 | 3@1"
    );
}

#[test]
fn the_visitor_can_stop() {
    let path = FieldPath::parse("a").unwrap();
    let doc = doc! {"a": [1, 2, 3]};
    let found = for_each_value(
        doc.as_raw(),
        &path,
        LeafArrayBehavior::Traverse,
        |item| match item.value() {
            Some(RawValue::Int32(2)) => ControlFlow::Break(item.array_index),
            Some(RawValue::Int32(3)) => panic!("went on after the break"),
            _ => ControlFlow::Continue(()),
        },
    );
    assert_eq!(found, ControlFlow::Break(Some(1)));
}

#[test]
fn plain_descent_ignores_arrays() {
    let doc = doc! {"a": {"b": {"c": 1}}, "l": [{"b": 1}]};
    let get = |p: &str| get_path(doc.as_raw(), &FieldPath::parse(p).unwrap());
    assert_eq!(get("a.b.c"), Some(RawValue::Int32(1)));
    assert_eq!(get("a.b.d"), None);
    assert_eq!(get("l.b"), None);
    assert_eq!(get("l.0"), None);
}

#[test]
fn paths_are_parsed_with_limits() {
    let path = FieldPath::parse("a.10.b").unwrap();
    assert_eq!(path.parts().collect::<Vec<_>>(), ["a", "10", "b"]);
    assert_eq!(
        (path.part_index(0), path.part_index(1), path.part_index(3)),
        (None, Some(10), None)
    );
    assert!(path.has_numeric_part());
    assert!(!FieldPath::parse("0.a").unwrap().has_numeric_part());
    assert_eq!(
        (path.prefix(0), path.prefix(2), path.prefix(9)),
        ("", "a.10", "a.10.b")
    );
    for bad in ["", ".", "a.", ".a", "a..b", "a\0"] {
        assert!(FieldPath::parse(bad).is_err(), "{bad:?}");
    }
    assert!(FieldPath::parse(&vec!["a"; 200].join(".")).is_ok());
    assert!(FieldPath::parse(&vec!["a"; 201].join(".")).is_err());
    assert!(
        FieldPath::parse("a.99999999999999999999")
            .unwrap()
            .part_index(1)
            .is_none()
    );
    assert!(is_path_prefix("a.b", "a.b.c") && is_path_prefix("a.b", "a.b"));
    assert!(!is_path_prefix("a.b", "a.bc") && !is_path_prefix("a.b.c", "a.b"));
}
