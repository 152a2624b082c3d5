//! Specs that are accepted, rejected, or in conflict.

use sheaf_bson::{DocBuf, DocBuilder, RawValue, Result, doc};

use super::*;

fn parse(spec: &DocBuf) -> Result<IndexSpec> {
    IndexSpec::parse(spec.as_raw())
}

fn code(spec: DocBuf) -> i32 {
    match parse(&spec) {
        Ok(parsed) => panic!("{spec} was taken as {}", parsed.to_doc()),
        Err(error) => error.code().0,
    }
}

#[test]
fn one_form() {
    let spec = doc! {
        "key": {"a": 1.0, "b.c": -5}, "name": "x", "unique": 1, "sparse": false,
        "background": true, "expireAfterSeconds": null
    };
    assert_eq!(code(spec), 67);
    let spec = doc! {
        "unique": 1, "key": {"a": 1.0, "b.c": -5}, "sparse": false, "name": "x",
        "background": true, "hidden": true, "partialFilterExpression": {"a": {"$gt": 3}},
    };
    let parsed = parse(&spec).unwrap();
    let shown = "{ v: 2, key: { a: 1.0, b.c: -5 }, name: \"x\", background: true, unique: true, \
         hidden: true, partialFilterExpression: { a: { $gt: 3 } } }";
    assert_eq!(parsed.to_doc().to_string(), shown);
    assert_eq!(parse(&parsed.to_doc()).unwrap(), parsed);
}

#[test]
fn the_id_index_by_any_name() {
    let parsed = parse(&doc! {"key": {"_id": 1.0}, "name": "_id_1"}).unwrap();
    assert!(parsed.is_id_index() && parsed.enforces_unique());
    assert_eq!(
        parsed.relate(&IndexSpec::id_index()).unwrap(),
        SpecRelation::Identical
    );
    for option in [
        "unique",
        "sparse",
        "hidden",
        "background",
        "expireAfterSeconds",
    ] {
        assert_eq!(
            code(doc! {"key": {"_id": 1}, "name": "_id_", option: 1}),
            197,
            "{option}"
        );
    }
    assert_eq!(code(doc! {"key": {"_id": -1}, "name": "_id_-1"}), 2);
    assert_eq!(code(doc! {"key": {"a": 1}, "name": "_id_"}), 2);
    assert!(
        !parse(&doc! {"key": {"_id": 1, "a": 1}, "name": "x"})
            .unwrap()
            .is_id_index()
    );
}

#[test]
fn clustered() {
    let spec = doc! {"key": {"_id": 1}, "name": "x", "unique": true, "clustered": true};
    let parsed = parse(&spec).unwrap();
    assert!(parsed.clustered && parsed.is_id_index() && parsed.name == "x");
    assert_eq!(parse(&parsed.to_doc()).unwrap(), parsed);
    let plain = doc! {"key": {"_id": 1}, "name": "x", "clustered": false};
    assert!(!parse(&plain).unwrap().clustered);
    for refused in [
        doc! {"key": {"_id": 1}, "name": "x", "clustered": true},
        doc! {"key": {"_id": 1}, "name": "x", "clustered": true, "unique": false},
        doc! {"key": {"_id": 1}, "name": "x", "clustered": true, "unique": true, "sparse": true},
        doc! {"key": {"a": 1}, "name": "x", "clustered": true, "unique": true},
    ] {
        assert_eq!(code(refused.clone()), 197, "{refused}");
    }
}

#[test]
fn refused() {
    let key = |key: DocBuf| code(doc! {"key": key, "name": "n"});
    for (got, expected) in [
        (key(doc! {}), 67),
        (key(doc! {"a": 0}), 67),
        (key(doc! {"a": f64::NAN}), 67),
        (key(doc! {"a": true}), 67),
        (key(doc! {"a": "text"}), 67),
        (key(doc! {"a": "2dsphere"}), 67),
        (key(doc! {"a": "nonsense"}), 67),
        (key(doc! {"$**": "hashed"}), 67),
        (key(doc! {"$**": "text"}), 67),
        (key(doc! {"$**": 0}), 67),
        (key(doc! {"a.$**.b": 1}), 67),
        (key(doc! {".$**": 1}), 67),
        (key(doc! {"a.$**": 1, "b.$**": 1}), 67),
        (key(doc! {"a": 1, "$**": 1}), 67),
        (key(doc! {"a.b": 1, "a.$**": 1}), 67),
        (key(doc! {"a": "hashed", "b.$**": 1}), 67),
        (key(doc! {"a": "hashed", "b": "hashed"}), 31303),
        (
            code(doc! {"key": {"a": "hashed"}, "name": "n", "unique": true}),
            16764,
        ),
        (
            code(doc! {"key": {"$**": 1}, "name": "n", "unique": true}),
            67,
        ),
        (
            code(doc! {"key": {"$**": 1}, "name": "n", "sparse": true}),
            67,
        ),
        (
            code(doc! {"key": {"$**": 1}, "name": "n", "expireAfterSeconds": 1}),
            67,
        ),
        (
            code(doc! {"key": {"$**": 1}, "name": "n", "wildcardProjection": {}}),
            9,
        ),
        (
            code(doc! {"key": {"$**": 1}, "name": "n", "wildcardProjection": 1}),
            14,
        ),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "wildcardProjection": {"a": 1}}),
            2,
        ),
        (
            code(doc! {"key": {"a.$**": 1}, "name": "n", "wildcardProjection": {"a": 1}}),
            9,
        ),
        (
            code(doc! {"key": {"$**": 1}, "name": "n", "wildcardProjection": {"a": 1, "b": 0}}),
            31254,
        ),
        (
            code(doc! {"key": {"a": 1, "$**": 1}, "name": "n", "wildcardProjection": {"b": 0}}),
            67,
        ),
        (key(doc! {"": 1}), 67),
        (key(doc! {"a..b": 1}), 67),
        (key(doc! {".a": 1}), 67),
        (key(doc! {"a.": 1}), 67),
        (key(doc! {"$a": 1}), 67),
        (key(doc! {"a.$b": 1}), 67),
        (key(doc! {"a": 1, "b": 1, "a": -1}), 67),
        (code(doc! {"key": {"a": 1}}), 9),
        (code(doc! {"name": "n"}), 9),
        (code(doc! {"key": 1, "name": "n"}), 14),
        (code(doc! {"key": {"a": 1}, "name": 1}), 14),
        (code(doc! {"key": {"a": 1}, "name": ""}), 67),
        (code(doc! {"key": {"a": 1}, "name": "*"}), 2),
        (code(doc! {"key": {"a": 1}, "name": "n", "v": 0}), 67),
        (code(doc! {"key": {"a": 1}, "name": "n", "v": "2"}), 14),
        (code(doc! {"key": {"a": 1}, "name": "n", "safe": true}), 197),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "unique": "yes"}),
            14,
        ),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "collation": {"locale": "xx"}}),
            2,
        ),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "collation": {}}),
            2,
        ),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "collation": "en"}),
            14,
        ),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "partialFilterExpression": 1}),
            14,
        ),
        (
            code(
                doc! {"key": {"a": 1}, "name": "n", "sparse": true, "partialFilterExpression": {}},
            ),
            67,
        ),
        (
            code(doc! {"key": {"a": 1}, "name": "n", "expireAfterSeconds": -1}),
            67,
        ),
        (
            code(doc! {"key": {"a": 1, "b": 1}, "name": "n", "expireAfterSeconds": 1}),
            67,
        ),
    ] {
        assert_eq!(got, expected);
    }
    let mut wide = DocBuilder::new();
    for n in 0..33 {
        wide.append(format!("f{n}"), 1);
    }
    assert_eq!(key(wide.finish()), 67);
}

#[test]
fn kinds() {
    for spec in [
        doc! {"key": {"$**": 1}, "name": "n"},
        doc! {"key": {"$**": -1}, "name": "n", "wildcardProjection": {"a": 1, "_id": 0}},
        doc! {"key": {"a.b.$**": 1}, "name": "n", "partialFilterExpression": {"a": 1}},
        doc! {"key": {"a": 1, "$**": 1}, "name": "n", "wildcardProjection": {"a": 0}},
        doc! {"key": {"a": 1, "b.$**": 1, "c": -1}, "name": "n"},
        doc! {"key": {"a": "hashed"}, "name": "n", "sparse": true},
        doc! {"key": {"a": 1, "b.c": "hashed", "d": 1}, "name": "n"},
    ] {
        let parsed = parse(&spec).unwrap();
        assert_eq!(parse(&parsed.to_doc()).unwrap(), parsed, "{spec}");
    }
}

#[test]
fn relations() {
    let spec = |key: DocBuf, name: &str, options: DocBuf| {
        let mut spec = DocBuilder::from_doc(options.as_raw());
        spec.append("key", RawValue::Document(key.as_raw()));
        spec.append("name", name);
        parse(&spec.finish()).unwrap()
    };
    let existing = spec(doc! {"a": 1}, "a_1", doc! {});
    let relate = |new: IndexSpec| match new.relate(&existing) {
        Ok(relation) => format!("{relation:?}"),
        Err(error) => error.code().0.to_string(),
    };
    for (new, expected) in [
        (spec(doc! {"a": 1.0}, "a_1", doc! {}), "Identical"),
        (spec(doc! {"a": 1}, "a_1", doc! {"v": 1}), "Identical"),
        (
            spec(doc! {"a": 1}, "a_1", doc! {"background": true}),
            "Identical",
        ),
        (
            spec(doc! {"a": 1}, "a_1", doc! {"expireAfterSeconds": 5}),
            "85",
        ),
        (spec(doc! {"a": 1}, "a_1", doc! {"hidden": true}), "85"),
        (spec(doc! {"a": 1}, "a_1", doc! {"unique": true}), "86"),
        (spec(doc! {"a": -1}, "a_1", doc! {}), "86"),
        (spec(doc! {"a": 2}, "a_1", doc! {}), "86"),
        (spec(doc! {"a": 1}, "other", doc! {}), "85"),
        (spec(doc! {"a": 1}, "other", doc! {"hidden": true}), "85"),
        (
            spec(doc! {"a": 1}, "other", doc! {"sparse": true}),
            "Unrelated",
        ),
        (
            spec(doc! {"a": 1}, "other", doc! {"unique": true}),
            "Unrelated",
        ),
        (
            spec(
                doc! {"a": 1},
                "other",
                doc! {"partialFilterExpression": {"b": 1}},
            ),
            "Unrelated",
        ),
        (spec(doc! {"b": 1}, "b_1", doc! {}), "Unrelated"),
        (spec(doc! {"a": "hashed"}, "other", doc! {}), "Unrelated"),
        (spec(doc! {"$**": 1}, "a_1", doc! {}), "86"),
    ] {
        assert_eq!(relate(new.clone()), expected, "{}", new.to_doc());
    }
}

#[test]
fn default_names() {
    for (key, name) in [
        (doc! {"a": 1}, "a_1"),
        (doc! {"a": 1.0, "b.c": -1}, "a_1_b.c_-1"),
        (doc! {"a": "text", "b": 2.5}, "a_text_b_2.5"),
    ] {
        assert_eq!(default_index_name(key.as_raw()), name);
    }
}
