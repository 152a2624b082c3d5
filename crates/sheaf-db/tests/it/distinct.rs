//! Distinct through an index returns what it returns from the documents.

use std::sync::Arc;

use sheaf_bson::collation::CollationChoice;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawValue, doc};
use sheaf_db::Events;
use sheaf_db::QueryOptions;
use sheaf_db::ResultSource;
use sheaf_db::distinct::distinct;
use sheaf_db::find::find;
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};

use crate::support::{EngineKind, TestDb, ns};

/// The values, in their order, and the plan.
fn values(t: &TestDb, path: &str, filter: DocBuf) -> (String, String) {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
    let view = t.db.read_view(&ns("c")).unwrap();
    let path = FieldPath::parse(path).unwrap();
    let found = distinct(&view, &t.op, &path, query, &QueryOptions::default()).unwrap();
    let text = RawValue::Array(found.values.as_raw()).to_string();
    (text, found.plan.summary().unwrap())
}

#[test]
fn a_null_key_is_a_value_only_if_a_document_holds_null() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
    let mut id = 0;
    let mut insert = |doc: DocBuf| {
        id += 1;
        let mut with_id = sheaf_bson::DocBuilder::new();
        with_id.append("_id", id).extend(doc.as_raw());
        t.insert("c", with_id.finish()).unwrap();
    };
    let scan = || "DISTINCT_SCAN { a: 1 }".to_owned();
    let all = || values(&t, "a", doc! {});
    insert(doc! {"a": 1});
    insert(doc! {"b": 1});
    assert_eq!(all(), ("[ 1 ]".to_owned(), scan()));
    // The key of an empty array is undefined.
    insert(doc! {"a": []});
    assert_eq!(all(), ("[ 1 ]".to_owned(), scan()));
    insert(doc! {"a": [2, null]});
    assert_eq!(all(), ("[ null, 1, 2 ]".to_owned(), scan()));
    // Only documents that match count.
    let matching = || values(&t, "a", doc! {"a": {"$lte": null}});
    insert(doc! {"a": null, "c": 5});
    assert_eq!(matching().0, "[ null, 2 ]");
    assert_eq!(values(&t, "a", doc! {"a": {"$gt": 1}}).0, "[ null, 2 ]");
}

/// MongoDB 8.2 returns the values in BSON order, whichever plan reads them.
#[test]
fn values_come_in_bson_order_by_every_plan() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    for doc in [
        doc! {"_id": 1, "a": true},
        doc! {"_id": 2, "a": ["b", 7]},
        doc! {"_id": 3, "a": 10.5},
        doc! {"_id": 4, "a": {"x": 1}},
        doc! {"_id": 5, "a": "B"},
        doc! {"_id": 6, "a": null},
        doc! {"_id": 7, "a": -3},
    ] {
        t.insert("c", doc).unwrap();
    }
    let wanted = "[ null, -3, 7, 10.5, \"B\", \"b\", { x: 1 }, true ]";
    let of = |hint: Option<Hint>| {
        let spec = FindSpec {
            hint,
            ..FindSpec::default()
        };
        let view = t.db.read_view(&ns("c")).unwrap();
        let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
        let path = FieldPath::parse("a").unwrap();
        let found = distinct(&view, &t.op, &path, query, &QueryOptions::default()).unwrap();
        let text = RawValue::Array(found.values.as_raw()).to_string();
        (text, found.plan.summary().unwrap())
    };
    assert_eq!(of(None), (wanted.into(), "COLLSCAN".into()));
    let backward = of(Some(Hint::Natural(-1)));
    assert_eq!(backward, (wanted.into(), "COLLSCAN".into()));
    t.create_index("c", doc! {"a": -1}, doc! {}).unwrap();
    let descending = of(None);
    assert_eq!(descending.0, wanted);
    assert_eq!(descending.1, "DISTINCT_SCAN { a: -1 }");
    let by_id = of(Some(Hint::Name("_id_".into())));
    assert_eq!(by_id.0, wanted);
}

/// The collation's sort keys order text; of equal values the first one read is returned.
#[test]
fn a_collation_orders_the_values() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    for (id, text) in ["b", "C", "A", "B", "a"].into_iter().enumerate() {
        t.insert("c", doc! {"_id": id as i32, "s": text}).unwrap();
    }
    let of = |collation: DocBuf| {
        let spec = FindSpec {
            collation: CollationChoice::parse(collation.as_raw()).unwrap(),
            ..FindSpec::default()
        };
        let view = t.db.read_view(&ns("c")).unwrap();
        let query = Arc::new(sheaf_db::find::canonicalize(&view, spec).unwrap());
        let path = FieldPath::parse("s").unwrap();
        let found = distinct(&view, &t.op, &path, query, &QueryOptions::default()).unwrap();
        RawValue::Array(found.values.as_raw()).to_string()
    };
    assert_eq!(of(doc! {}), r#"[ "A", "B", "C", "a", "b" ]"#);
    let insensitive = doc! {"locale": "en", "strength": 2};
    assert_eq!(of(insensitive), r#"[ "A", "b", "C" ]"#);
}

/// Distinct also returns the fields of a document of the maximum size.
#[test]
fn a_value_as_large_as_a_document_may_be_fits() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let overhead = doc! {"_id": 1, "": ""}.len_bytes();
    let text = "x".repeat((16 << 20) - overhead);
    t.insert("c", doc! {"_id": 1, "": text.as_str()}).unwrap();
    let of = || {
        let view = t.db.read_view(&ns("c")).unwrap();
        let query =
            Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), FindSpec::default()).unwrap());
        let path = FieldPath::parse_lenient("").unwrap();
        distinct(&view, &t.op, &path, query, &QueryOptions::default())
    };
    let found = of().unwrap();
    let values: Vec<_> = found.values.as_raw().iter().collect();
    assert!(values == [RawValue::String(&text)]);
    t.insert("c", doc! {"_id": 2, "": "y".repeat(100).as_str()})
        .unwrap();
    let refused = of().map(|found| found.values.as_raw().iter().count());
    assert_eq!(refused.unwrap_err().code().0, 17217);
}

/// A covered projection distinguishes a missing field from null; it reads the document only where
/// the key is null.
#[test]
fn a_covered_projection_keeps_missing_fields_missing() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    t.create_index("c", doc! {"a": 1, "b": 1}, doc! {}).unwrap();
    for doc in [
        doc! {"_id": 1, "a": 1, "b": 2},
        doc! {"_id": 2, "a": 2},
        doc! {"_id": 3, "a": 3, "b": null},
    ] {
        t.insert("c", doc).unwrap();
    }
    let filter = doc! {"a": {"$gte": 1}};
    let projection = doc! {"_id": 0, "a": 1, "b": 1};
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        projection: Some(projection.as_raw()),
        ..FindSpec::default()
    };
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
    let view = t.db.read_view(&ns("c")).unwrap();
    let mut found = find(&view, &t.op, query, &QueryOptions::default()).unwrap();
    let mut docs = Vec::new();
    while let Some(doc) = found.next(&t.op).unwrap() {
        docs.push(doc.as_raw().to_string());
    }
    assert_eq!(docs, ["{ a: 1, b: 2 }", "{ a: 2 }", "{ a: 3, b: null }"]);
    assert_eq!(
        found.counts().docs_examined,
        2,
        "only where the key has null"
    );
}
