//! Distinct over an index gives what it gives over the documents.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawValue, doc};
use sheaf_db::Events;
use sheaf_db::distinct::distinct;
use sheaf_db::find::QueryOptions;
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
    assert_eq!(all(), ("[ 1, 2, null ]".to_owned(), scan()));
    // Only documents that match count.
    let matching = || values(&t, "a", doc! {"a": {"$lte": null}});
    insert(doc! {"a": null, "c": 5});
    assert_eq!(matching().0, "[ 2, null ]");
    assert_eq!(values(&t, "a", doc! {"a": {"$gt": 1}}).0, "[ 2, null ]");
}
