//! Forced index intersections return what the filter returns, each document once.

use std::sync::Arc;

use sheaf_bson::{DocBuf, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::find::find;
use sheaf_db::{Events, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::planner::PlannerOptions;

use crate::support::{EngineKind, TestDb, ns};

fn ids(t: &TestDb, filter: &DocBuf, options: &QueryOptions) -> (Vec<i32>, String) {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
    let view = t.db.read_view(&ns("c")).unwrap();
    let mut source = find(&view, &t.op, query, options).unwrap();
    let plan = source.plan().summary().unwrap();
    let mut ids = Vec::new();
    while let Some(doc) = source.next(&t.op).unwrap() {
        match doc.as_raw().get("_id") {
            Some(RawValue::Int32(id)) => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    ids.sort_unstable();
    (ids, plan)
}

#[test]
fn by_order_and_by_hash() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    for id in 0..2000 {
        let (a, b) = (id * 7 % 13, id * 11 % 17);
        let list = sheaf_bson::ArrayBuf::from_values([id % 5, id % 3]);
        t.insert("c", doc! {"_id": id, "a": a, "b": b, "list": &list})
            .unwrap();
    }
    for key in ["a", "b", "list"] {
        t.create_index("c", doc! {key: 1}, doc! {}).unwrap();
    }
    let forced = QueryOptions {
        planner: PlannerOptions {
            hash_intersection: true,
            force_intersection: true,
            ..PlannerOptions::DEFAULT
        },
        ..QueryOptions::default()
    };
    for (filter, scans) in [
        (doc! {"a": 3, "b": 4}, 2),
        (doc! {"a": {"$gte": 3, "$lt": 6}, "b": {"$gt": 9}}, 2),
        (doc! {"a": {"$lt": 6}, "list": {"$in": [1, 2]}}, 2),
        (doc! {"a": 3, "b": 400}, 2),
    ] {
        let published = QueryOptions {
            planner_extensions: false,
            ..QueryOptions::default()
        };
        let (expected, one) = ids(&t, &filter, &published);
        let (got, both) = ids(&t, &filter, &forced);
        assert_eq!(got, expected, "{filter}");
        assert_eq!(one.matches("IXSCAN").count(), 1, "{one}");
        assert_eq!(both.matches("IXSCAN").count(), scans, "{both}");
    }
}
