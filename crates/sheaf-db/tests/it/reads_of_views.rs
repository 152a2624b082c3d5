//! The database runs find, count, distinct and aggregate on a view as on a collection, without the
//! server.

use sheaf_bson::path::FieldPath;
use sheaf_bson::{CollationChoice, DocBuf, RawValue, doc};
use sheaf_db::aggregate::request::PipelineRequest;
use sheaf_db::{Events, QueryOptions, ResultSource};
use sheaf_query::canonical::FindSpec;

use crate::pipelines::array;
use crate::support::{EngineKind, TestDb, code, ns};

/// Documents `{_id: n, a: -n, g: n % 3}` for 0 to 9 in `c`; on it the view `even`, on that the view
/// `few`.
fn views() -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    for n in 0..10 {
        t.insert("c", doc! {"_id": n, "a": (-n), "g": (n % 3)})
            .unwrap();
    }
    for (name, on, stages) in [
        ("even", "c", "[{$match: {_id: {$in: [0, 2, 4, 6, 8]}}}]"),
        ("few", "even", "[{$set: {b: '$_id'}}, {$limit: 4}]"),
    ] {
        let (stages, simple) = (array(stages), CollationChoice::Unsaid);
        let made =
            t.db.create_view(&t.op, &ns(name), on, stages.as_raw(), &simple);
        made.unwrap();
    }
    t
}

fn drained(t: &TestDb, source: &mut dyn ResultSource) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(doc) = source.next(&t.op).unwrap() {
        found.push(doc.as_raw().to_string());
    }
    found
}

#[test]
fn a_view_is_read_as_a_collection_is() {
    let t = views();
    let options = QueryOptions::default();
    let (filter, sort) = (doc! {"g": {"$lt": 2}}, doc! {"a": 1});
    let projection = doc! {"b": 1, "g": 1};
    let spec = || FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    let sorted = FindSpec {
        sort: Some(sort.as_raw()),
        projection: Some(projection.as_raw()),
        limit: Some(2),
        ..spec()
    };
    let mut found = t.db.find(&t.op, &ns("few"), sorted, &options).unwrap();
    let wanted = ["{ _id: 6, g: 0, b: 6 }", "{ _id: 4, g: 1, b: 4 }"];
    assert_eq!(drained(&t, &mut *found), wanted);

    let count = |name: &str| {
        t.db.count(&t.op, &ns(name), spec(), &options)
            .unwrap()
            .count
    };
    assert_eq!((count("c"), count("even"), count("few")), (7, 3, 3));
    let path = FieldPath::parse("g").unwrap();
    let distinct = |name: &str| {
        let found = t.db.distinct(&t.op, &ns(name), &path, spec(), &options);
        RawValue::Array(found.unwrap().values.as_raw()).to_string()
    };
    assert_eq!(distinct("c"), "[ 0, 1 ]");
    assert_eq!(distinct("few"), "[ 0, 1 ]");

    let stages = array("[{$group: {_id: null, n: {$sum: '$b'}}}]");
    let request = |collation: DocBuf| PipelineRequest {
        stages: stages.as_raw(),
        let_vars: None,
        collation: CollationChoice::parse(collation.as_raw()).unwrap(),
        options: options.clone(),
    };
    let simple = request(doc! {"locale": "simple"});
    let mut sum = t.db.aggregate(&t.op, &ns("few"), &simple, None).unwrap();
    assert_eq!(drained(&t, &mut sum), ["{ _id: null, n: 12 }"]);
    // A view's own collation cannot be overridden.
    let french = request(doc! {"locale": "fr"});
    let refused = t.db.aggregate(&t.op, &ns("few"), &french, None);
    assert_eq!(code(refused.map(|_| ())), 167);
}

#[test]
fn what_needs_records_is_refused_on_a_view() {
    let t = views();
    let spec = FindSpec {
        show_record_id: true,
        ..FindSpec::default()
    };
    let found =
        t.db.find(&t.op, &ns("even"), spec, &QueryOptions::default());
    assert_eq!(code(found.map(|_| ())), 168);
}

/// A name that is neither a collection nor a view has no documents.
#[test]
fn a_name_without_a_collection_is_empty() {
    let t = views();
    let options = QueryOptions::default();
    let mut found =
        t.db.find(&t.op, &ns("none"), FindSpec::default(), &options)
            .unwrap();
    assert!(drained(&t, &mut *found).is_empty());
    let counted =
        t.db.count(&t.op, &ns("none"), FindSpec::default(), &options);
    assert_eq!(counted.unwrap().count, 0);
}
