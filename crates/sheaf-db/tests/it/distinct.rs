//! Distinct over an index gives what it gives over the documents.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawValue, doc};
use sheaf_db::Events;
use sheaf_db::ResultSource;
use sheaf_db::distinct::distinct;
use sheaf_db::find::{QueryOptions, find};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};

use crate::support::{EngineKind, TestDb, ns};

/// The values, in their order, and the plan.
fn values(t: &TestDb, path: &str, filter: DocBuf) -> (String, String) {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let query = Arc::new(CanonicalQuery::new(spec).unwrap());
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
    assert_eq!(matching().0, "[ 2, null ]");
    assert_eq!(values(&t, "a", doc! {"a": {"$gt": 1}}).0, "[ 2, null ]");
}

/// A covered projection tells a missing field from null, reading the document only there.
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
    let query = Arc::new(CanonicalQuery::new(spec).unwrap());
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
