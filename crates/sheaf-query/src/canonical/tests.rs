//! Tests of complete finds: the interaction of their parts, and their shapes.

use std::collections::HashSet;
use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{Value, doc};

use super::*;
use crate::planner::index_entry::{IndexEntry, IndexField, IndexKind};
use crate::script::{self, read};
use crate::shape;

/// Parses the find that a document describes, like the command.
fn find(spec: &DocBuf) -> Result<CanonicalQuery, Error> {
    let part = |name| spec.get(name).and_then(|value| value.as_document());
    let number = |name| spec.get(name).and_then(|value| value.as_i64_exact());
    CanonicalQuery::new(
        sheaf_bson::DateTime(0),
        FindSpec {
            filter: part("filter"),
            sort: part("sort"),
            inclusion: false,
            null_serves: false,
            follows: "",
            projection: part("projection"),
            skip: number("skip").unwrap_or(0) as u64,
            limit: number("limit").map(|n| n as u64),
            hint: match spec.get("hint") {
                Some(hint) => Hint::parse(hint)?,
                None => None,
            },
            min: part("min"),
            max: part("max"),
            return_key: false,
            show_record_id: spec.get("showRecordId").is_some(),
            let_vars: part("let"),
            collation: Default::default(),
        },
    )
}

fn refused(spec: DocBuf) -> i32 {
    match find(&spec) {
        Ok(query) => panic!("{spec:?} is accepted: {query:?}"),
        Err(e) => e.code().0,
    }
}

#[test]
fn parts() {
    let query = find(&doc! {
        "filter": {"b": {"$gt": 1}, "a": 2}, "sort": {"c": -1}, "projection": {"d": 1, "_id": 0},
        "limit": 10, "skip": 5,
    })
    .unwrap();
    assert_eq!(
        query.filter.serialize(),
        doc! {"$and": [{"a": {"$eq": 2}}, {"b": {"$gt": 1}}]}
    );
    assert_eq!(query.filter_spec, doc! {"b": {"$gt": 1}, "a": 2});
    assert_eq!(query.sort.as_ref().unwrap().serialize(), doc! {"c": -1});
    assert_eq!(query.sort_limit(), Some(15));
    let reads = query.required_fields().unwrap();
    assert_eq!(
        reads.paths.iter().map(String::as_str).collect::<Vec<_>>(),
        ["a", "b", "c", "d"]
    );
}

#[test]
fn defaults() {
    let query = find(&doc! {}).unwrap();
    assert!(query.filter.is_trivially_true());
    assert!(query.sort.is_none() && query.projection.is_none() && query.hint.is_none());
    assert_eq!(query.limit, None);
    assert!(query.required_fields().is_none());
    assert_eq!(find(&doc! {"limit": 0}).unwrap().limit, None);
    let empty = doc! {"sort": {}, "projection": {}, "hint": {}, "min": {}, "max": {}};
    let query = find(&empty).unwrap();
    assert!(query.sort.is_none() && query.projection.is_none() && query.hint.is_none());
    assert!(query.min.is_none() && query.max.is_none());
}

#[test]
fn natural_order_is_a_hint() {
    let hint = |spec: DocBuf| find(&spec).unwrap().hint;
    let query = find(&doc! {"sort": {"$natural": -1}}).unwrap();
    assert!(query.sort.is_none());
    assert_eq!(query.hint, Some(Hint::Natural(-1)));
    assert_eq!(hint(doc! {"hint": {"$natural": 1}}), Some(Hint::Natural(1)));
    assert_eq!(
        hint(doc! {"hint": {"$natural": 1}, "sort": {"$natural": 1}}),
        Some(Hint::Natural(1))
    );
    assert_eq!(
        refused(doc! {"hint": {"$natural": 1}, "sort": {"$natural": -1}}),
        2
    );
    assert_eq!(refused(doc! {"hint": "a_1", "sort": {"$natural": 1}}), 2);
    assert_eq!(refused(doc! {"hint": {"$natural": 2}}), 2);
    assert_eq!(refused(doc! {"hint": {"$natural": 1, "a": 1}}), 2);
    assert_eq!(refused(doc! {"hint": 5}), 9);
    assert_eq!(hint(doc! {"hint": "a_1"}), Some(Hint::Name("a_1".into())));
    assert_eq!(
        hint(doc! {"hint": {"a": 1}}),
        Some(Hint::KeyPattern(doc! {"a": 1}))
    );
}

#[test]
fn min_and_max() {
    let query = find(&doc! {"hint": {"a": 1}, "min": {"a": 1}, "max": {"a": 9}}).unwrap();
    assert_eq!(
        (query.min, query.max),
        (Some(doc! {"a": 1}), Some(doc! {"a": 9}))
    );
    assert_eq!(refused(doc! {"min": {"a": 1}}), 51173);
    assert_eq!(
        refused(doc! {"min": {"a": 1}, "hint": {"$natural": 1}}),
        291
    );
    assert_eq!(
        refused(doc! {"hint": "a_1", "min": {"a": 1}, "max": {"b": 9}}),
        51176
    );
}

#[test]
fn variables_and_the_clock() {
    let query = find(&doc! {
        "filter": {"$expr": {"$eq": ["$a", "$$x"]}}, "let": {"x": {"$add": [1, 2]}},
        "projection": {"y": "$$x"},
    })
    .unwrap();
    assert_eq!(query.filter.matches(doc! {"a": 3}.as_raw()), Ok(true));
    assert_eq!(query.filter.matches(doc! {"a": 4}.as_raw()), Ok(false));
    assert!(find(&doc! {"filter": {"$expr": {"$eq": ["$a", "$$x"]}}}).is_err());
    let query = find(&doc! {"filter": {"$expr": {"$gt": ["$$NOW", "$a"]}}}).unwrap();
    // The current time is an argument of `new`.
    let at = |millis| doc! {"a": sheaf_bson::DateTime(millis)};
    assert_eq!(query.filter.matches(at(-1).as_raw()), Ok(true));
    assert_eq!(query.filter.matches(at(0).as_raw()), Ok(false));
}

#[test]
fn record_id_with_a_projection() {
    let query = find(&doc! {"projection": {"a": 1}, "showRecordId": 1}).unwrap();
    assert!(query.show_record_id);
    assert!(query.projection.unwrap().needs_record_id());
}

#[test]
fn shapes() {
    let mut texts = HashSet::new();
    let mut hashes = HashSet::new();
    script::run("canonical/shapes.txt", |block| {
        let mut of_block = HashSet::new();
        for row in &block.answer {
            let query = find(&read(row.trim())).unwrap_or_else(|e| panic!("{row}: {e}"));
            of_block.insert((shape::encode(&query), shape::shape_hash(&query)));
        }
        assert_eq!(of_block.len(), 1, "{:?}: {of_block:?}", block.answer);
        for (text, hash) in of_block {
            assert_eq!(hash.len(), 8);
            assert!(texts.insert(text.clone()), "{text} is in two blocks");
            assert!(hashes.insert(hash));
        }
        None
    });
}

/// The hash is stable: it is written to logs and compared across versions.
#[test]
fn the_hash_stays_what_it_is() {
    let query = find(&doc! {"filter": {"e": 42, "r": {"$gt": 10}}, "sort": {"s": 1}}).unwrap();
    assert_eq!(shape::encode(&query), "an[eq(1:e),gt(1:r),]~sa(1:s)");
    assert_eq!(shape::shape_hash(&query), "4B9AA7C8");
}

fn index(path: &str, sparse: bool, hidden: bool) -> Arc<IndexEntry> {
    Arc::new(IndexEntry {
        name: format!("{path}_1"),
        ident: 1,
        key_pattern: doc! {path: 1},
        fields: vec![IndexField {
            path: Arc::new(FieldPath::parse(path).unwrap()),
            direction: 1,
        }],
        kind: IndexKind::Btree,
        clustered: false,
        multikey: false,
        multikey_paths: vec![Vec::new()],
        unique: false,
        sparse,
        partial_filter: None,
        partial_filter_spec: None,
        collator: None,
        hidden,
        version: 2,
    })
}

/// The key depends on constants that decide whether an index can be used.
#[test]
fn plan_cache_keys() {
    let key = |filter: DocBuf, indexes: &[Arc<IndexEntry>]| {
        let query = find(&doc! {"filter": filter}).unwrap();
        shape::plan_cache_key(&query, indexes)
    };
    let plain = [index("a", false, false)];
    let sparse = [index("a", true, false)];
    let (five, six, null) = (doc! {"a": 5}, doc! {"a": 6}, doc! {"a": Value::Null});
    assert_eq!(key(five.clone(), &plain), key(null.clone(), &plain));
    assert_eq!(key(five.clone(), &sparse), key(six, &sparse));
    assert_ne!(key(five.clone(), &sparse), key(null, &sparse));
    assert_ne!(
        key(five.clone(), &sparse),
        key(doc! {"a": {"$in": [1, Value::Null]}}, &sparse)
    );
    assert_ne!(key(five.clone(), &plain), key(five.clone(), &[]));
    assert_eq!(key(five.clone(), &[index("a", true, true)]), key(five, &[]));

    let partial = |filter: DocBuf| {
        let parsed = matcher::parse(filter.as_raw(), &ParseContext::default()).unwrap();
        let mut entry = (*index("a", false, false)).clone();
        entry.partial_filter = Some(Arc::new(parsed.normalize()));
        [Arc::new(entry)]
    };
    let above = partial(doc! {"b": {"$gt": 5}});
    let asks = |b: i32| key(doc! {"a": 1, "b": {"$gt": b}}, &above);
    assert_eq!(asks(7), asks(8));
    assert_eq!(asks(1), asks(2));
    assert_ne!(asks(7), asks(1));
    let either = |b: i32| key(doc! {"$or": [{"a": 1, "b": {"$gt": b}}, {"c": 1}]}, &above);
    assert_ne!(either(7), either(1));
}
