//! Update operators against indexes. The changes that an update reports decide which indexes are
//! maintained, so whatever the operators do, every index must equal one rebuilt from the documents.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value, array, doc};
use sheaf_db::Events;
use sheaf_db::QueryOptions;
use sheaf_db::modify::{ReturnDocument, UpdateReport, UpdateStatement, update};
use sheaf_query::canonical::FindSpec;

use crate::random::{INDEXES, document, index, scalar, value};
use crate::support::{EngineKind, TestDb, ns};

const PATHS: [&str; 16] = [
    "a", "b", "c", "d", "a.x", "a.x.y", "a.z", "a.0", "a.0.x", "a.1", "a.2.x", "a.$[].x", "a.x.0",
    "a.x.1.y", "c.x", "a.5",
];

pub fn operator() -> impl Strategy<Value = DocBuf> {
    let path = || proptest::sample::select(PATHS.to_vec());
    let one = |name: &'static str, path: &'static str, value: &Value| {
        let mut out = DocBuilder::new();
        out.begin_document(name);
        out.append_value(path, value);
        out.end();
        out.finish()
    };
    prop_oneof![
        6 => (path(), value()).prop_map(move |(path, value)| one("$set", path, &value)),
        3 => path().prop_map(move |path| one("$unset", path, &Value::from(""))),
        2 => path().prop_map(move |path| one("$inc", path, &Value::from(1))),
        1 => path().prop_map(move |path| one("$mul", path, &Value::from(2.0))),
        1 => (path(), scalar()).prop_map(move |(path, value)| one("$max", path, &value)),
        3 => (path(), value()).prop_map(move |(path, value)| one("$push", path, &value)),
        2 => (path(), proptest::collection::vec(scalar(), 0..3), 0..3i32).prop_map(
            |(path, each, at)| {
                doc! {"$push": {path: {"$each": each, "$position": at, "$slice": 4}}}
            }
        ),
        2 => (path(), scalar()).prop_map(move |(path, value)| one("$addToSet", path, &value)),
        2 => (path(), scalar()).prop_map(move |(path, value)| one("$pull", path, &value)),
        2 => (path(), any::<bool>()).prop_map(move |(path, first)| {
            one("$pop", path, &Value::from(if first { -1 } else { 1 }))
        }),
        2 => (path(), path()).prop_map(move |(from, to)| one("$rename", from, &Value::from(to))),
        1 => (path(), value(), path()).prop_map(|(set, value, unset)| {
            doc! {"$set": {set: value}, "$unset": {unset: ""}}
        }),
        1 => document(),
    ]
}

#[test]
fn indexes_follow_every_operator() {
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    });
    let changed = std::cell::Cell::new(0);
    let documents = proptest::collection::vec(document(), 1..10);
    let updates = proptest::collection::vec((operator(), any::<bool>()), 1..25);
    runner
        .run(&(documents, updates), |(documents, updates)| {
            let t = TestDb::new(EngineKind::Memory, Events::default());
            for number in 0..INDEXES {
                let (key, options) = index(number);
                t.create_index("c", key, options).unwrap();
            }
            for (id, fields) in documents.iter().enumerate() {
                let mut doc = DocBuilder::new();
                doc.append("_id", id as i32);
                doc.extend(fields.as_raw());
                // A document that some index refuses is not stored.
                let _ = t.insert("c", doc.finish());
            }
            let pipeline = array![{"$set": {"b": "$a", "a.x": "$c"}}];
            for (number, (operators, multi)) in updates.iter().enumerate() {
                let filter = doc! {"_id": {"$gte": (number % 4) as i32}};
                let is_operator = operators
                    .as_raw()
                    .first()
                    .is_some_and(|first| first.key().starts_with('$'));
                let statement = UpdateStatement {
                    spec: FindSpec {
                        filter: Some(filter.as_raw()),
                        ..FindSpec::default()
                    },
                    update: if number % 9 == 8 {
                        RawValue::Array(pipeline.as_raw())
                    } else {
                        RawValue::Document(operators.as_raw())
                    },
                    constants: None,
                    upsert_supplied: None,
                    array_filters: None,
                    upsert: false,
                    multi: *multi && is_operator,
                    return_document: ReturnDocument::None,
                    projection: None,
                };
                let mut report = UpdateReport::default();
                let options = QueryOptions::default();
                // Many paths do not fit the document, and indexes refuse some results.
                let _ = update(&t.db, &t.op, &ns("c"), &statement, &options, &mut report);
                changed.set(changed.get() + report.result.modified);
                let valid = t.validate("c");
                prop_assert!(valid.is_valid(), "{}: {:#?}", operators, valid);
            }
            Ok(())
        })
        .unwrap();
    assert!(changed.get() > 500, "{}", changed.get());
}
