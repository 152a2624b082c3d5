//! Keys against filters: whatever index a find uses, the result is that of the filter alone.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value};
use sheaf_db::QueryOptions;
use sheaf_db::exec::Doc;
use sheaf_db::find::find;
use sheaf_db::{Events, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::matcher::{ParseContext, parse};

use crate::random::{INDEXES, document, index, name, scalar};
use crate::support::{EngineKind, TestDb, ns};

const PATHS: [&str; 9] = ["a", "b", "c", "d", "a.x", "a.x.y", "a.z", "a.0", "a.0.x"];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => scalar(),
        1 => proptest::collection::vec(scalar(), 0..3).prop_map(Value::from),
    ]
}

/// `{path: {$operator: value}}`
fn predicate() -> impl Strategy<Value = DocBuf> {
    let compare = prop_oneof![
        Just("$eq"),
        Just("$gt"),
        Just("$gte"),
        Just("$lt"),
        Just("$lte"),
        Just("$ne")
    ];
    let operator = prop_oneof![
        6 => (compare, value()).prop_map(|(name, value)| (name, value)),
        2 => proptest::collection::vec(value(), 1..3).prop_map(|list| ("$in", Value::from(list))),
        1 => any::<bool>().prop_map(|exists| ("$exists", Value::from(exists))),
        1 => Just(("$type", Value::from("number"))),
    ];
    let path = proptest::sample::select(PATHS.to_vec());
    (path, operator).prop_map(|(path, (name, value))| {
        let mut out = DocBuilder::new();
        out.begin_document(path);
        out.append_value(name, &value);
        out.end();
        out.finish()
    })
}

fn filter() -> impl Strategy<Value = DocBuf> {
    let joined = (
        prop_oneof![Just("$and"), Just("$or")],
        proptest::collection::vec(predicate(), 2..4),
    );
    let joined = joined.prop_map(|(name, parts)| {
        let mut out = DocBuilder::new();
        out.begin_array(name);
        for part in &parts {
            out.push(RawValue::Document(part.as_raw()));
        }
        out.end();
        out.finish()
    });
    prop_oneof![2 => predicate(), 1 => joined]
}

/// The `_id`s that a find returns, sorted; `None` if no plan uses the index.
fn found(t: &TestDb, filter: &DocBuf, hint: Option<Hint>) -> Option<Vec<i64>> {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        hint,
        ..FindSpec::default()
    };
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec).unwrap());
    let view = t.db.read_view(&ns("c")).unwrap();
    let options = QueryOptions::default();
    let mut running = match find(&view, &t.op, query, &options) {
        Ok(running) => running,
        Err(error) if error.code().0 == 291 => return None,
        Err(error) => panic!("{filter}: {error}"),
    };
    let mut ids = Vec::new();
    while let Some(doc) = running.next(&t.op).unwrap() {
        ids.push(id_of(&doc));
    }
    ids.sort();
    Some(ids)
}

fn id_of(doc: &Doc) -> i64 {
    doc.as_raw()
        .get("_id")
        .and_then(|v| v.as_i64_exact())
        .unwrap()
}

#[test]
fn a_find_by_any_index_returns_what_the_filter_matches() {
    let mut runner = TestRunner::new(Config {
        cases: 120,
        failure_persistence: None,
        ..Config::default()
    });
    // How many finds an index answered: if all were refused, the property would be vacuous.
    let answered = std::cell::Cell::new(0);
    let documents = proptest::collection::vec(document(), 1..12);
    let filters = proptest::collection::vec(filter(), 1..12);
    runner
        .run(&(documents, filters), |(documents, filters)| {
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
            t.assert_valid("c");
            let stored = t.documents("c");
            for filter in &filters {
                let matcher = parse(filter.as_raw(), &ParseContext::default()).unwrap();
                let expected: Vec<i64> = stored
                    .iter()
                    .filter(|doc| matcher.matches(doc.as_raw()).unwrap())
                    .map(|doc| doc.get("_id").and_then(|v| v.as_i64_exact()).unwrap())
                    .collect();
                let scanned = found(&t, filter, Some(Hint::Natural(1)));
                prop_assert_eq!(scanned.as_ref(), Some(&expected), "{}", filter);
                // Sparse and partial indexes among the candidates.
                let planned = found(&t, filter, None);
                prop_assert_eq!(planned.as_ref(), Some(&expected), "{}", filter);
                for number in 0..INDEXES {
                    // A hint of a sparse or partial index omits documents that the index omits.
                    if !index(number).1.is_empty() {
                        continue;
                    }
                    let by_index = found(&t, filter, Some(Hint::Name(name(number))));
                    answered.set(answered.get() + u32::from(by_index.is_some()));
                    prop_assert!(
                        by_index.is_none() || by_index.as_ref() == Some(&expected),
                        "{} by {} gives {:?}, not {:?}, of {:?}",
                        filter,
                        name(number),
                        by_index,
                        expected,
                        stored
                    );
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(answered.get() > 1000, "{}", answered.get());
}
