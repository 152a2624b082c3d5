//! Damage in stored data is reported by every operation that reads it, and logged once.
//!
//! The tests write bytes directly to the engine's tables, bypassing the database.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RecordId, doc};
use sheaf_db::QueryOptions;
use sheaf_db::find;
use sheaf_db::modify::{self, DeleteReport, DeleteStatement};
use sheaf_db::record_key::record_key;
use sheaf_db::session_row::SessionRow;
use sheaf_db::tailable;
use sheaf_db::{CollectionOptions, DbEvent, Events, ResultSource};
use sheaf_query::canonical::{FindSpec, Hint};
use sheaf_storage::{Durability, TableId};

use crate::pipelines::{array, create_search_index, run_with};
use crate::support::{EngineKind, TestDb, ns};

/// A database with the documents `{_id: n, a: n}` for 1 to 3 in `c`, and the damage that it logged.
struct Damaged {
    t: TestDb,
    logged: Arc<Mutex<Vec<String>>>,
}

impl Damaged {
    fn new(options: DocBuf) -> Damaged {
        let logged = Arc::new(Mutex::new(Vec::new()));
        let log = logged.clone();
        let t = TestDb::new(
            EngineKind::Memory,
            Events::to(move |event| {
                if let DbEvent::DamageFound { ns, error } = event {
                    log.lock().push(format!("{ns}: {error}"));
                }
            }),
        );
        let options = CollectionOptions::parse(options.as_raw()).unwrap();
        t.db.create_collection(&t.op, &ns("c"), options).unwrap();
        for n in 1..=3 {
            t.insert("c", doc! {"_id": n, "a": n}).unwrap();
        }
        Damaged { t, logged }
    }

    /// As [`Damaged::new`], with an index on `a`.
    fn indexed() -> Damaged {
        let damaged = Damaged::new(doc! {});
        let made = damaged.t.create_index("c", doc! {"a": 1}, doc! {});
        made.unwrap();
        damaged
    }

    fn record(&self, n: usize) -> RecordId {
        self.t.records("c")[n].0.clone()
    }

    fn write(&self, table: TableId, key: &[u8], value: Option<Bytes>) {
        let mut unit = self.t.db.storage().begin().unwrap();
        match value {
            Some(value) => unit.put(table, key, value),
            None => unit.delete(table, key),
        }
        unit.commit(Durability::Buffered).unwrap();
    }

    /// Makes the second record an invalid document: its length field differs from its size.
    fn cut_record(&self) {
        let table = self.t.collection("c").table();
        let id = self.record(1);
        let bytes = Bytes::from_static(&[200, 0, 0, 0, 0]);
        self.write(table, &record_key(&id), Some(bytes));
    }

    /// Removes the second record; its index entries remain.
    fn lose_record(&self) {
        let table = self.t.collection("c").table();
        let id = self.record(1);
        self.write(table, &record_key(&id), None);
    }

    fn find(&self, spec: FindSpec<'_>) -> Result<usize, Error> {
        let view = self.t.db.read_view(&ns("c"))?;
        let query = Arc::new(find::canonicalize(&view, spec)?);
        let mut source = find::find(&view, &self.t.op, query, &QueryOptions::default())?;
        let mut found = 0;
        while source.next(&self.t.op)?.is_some() {
            found += 1;
        }
        Ok(found)
    }

    fn find_where(&self, filter: DocBuf) -> Result<usize, Error> {
        self.find(FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        })
    }

    fn count(&self, filter: DocBuf) -> Result<u64, Error> {
        let view = self.t.db.read_view(&ns("c"))?;
        let spec = FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        };
        let query = Arc::new(find::canonicalize(&view, spec)?);
        let options = QueryOptions::default();
        sheaf_db::count::count(&view, &self.t.op, query, &options).map(|counted| counted.count)
    }

    fn distinct(&self, path: &str) -> Result<String, Error> {
        let view = self.t.db.read_view(&ns("c"))?;
        let query = Arc::new(find::canonicalize(&view, FindSpec::default())?);
        let path = FieldPath::parse(path).unwrap();
        let options = QueryOptions::default();
        let found = sheaf_db::distinct::distinct(&view, &self.t.op, &path, query, &options)?;
        Ok(found.values.as_raw().iter().count().to_string())
    }

    fn aggregate(&self, stages: &str) -> Result<usize, Error> {
        let found = run_with(&self.t, "c", &array(stages), QueryOptions::default(), true);
        found.map(|docs| docs.len())
    }

    /// The error names the collection and has `words`; all of them are logged once.
    #[track_caller]
    fn assert_reported<T: std::fmt::Debug>(&self, result: Result<T, Error>, words: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::DATA_CORRUPTION_DETECTED, "{error}");
        let message = error.message();
        assert!(message.starts_with("test.c :: "), "{message}");
        assert!(message.contains(words), "{message} without '{words}'");
        let logged = self.logged.lock();
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].starts_with("test.c: test.c :: "), "{logged:?}");
    }
}

#[test]
fn a_collection_scan_reports_a_record_that_is_no_document() {
    let damaged = Damaged::new(doc! {});
    damaged.cut_record();
    let words = "record 2 :: caused by :: a stored document is damaged";
    damaged.assert_reported(damaged.find(FindSpec::default()), words);
    // It is neither read as a document without the field nor as one that does not match.
    let absent = doc! {"a": {"$exists": false}};
    damaged.assert_reported(damaged.find_where(absent), words);
    damaged.assert_reported(damaged.find_where(doc! {"a": 77}), words);
    damaged.assert_reported(damaged.count(doc! {"a": 77}), words);
    damaged.assert_reported(damaged.distinct("a"), words);
    damaged.assert_reported(damaged.aggregate("[{$group: {_id: '$a'}}]"), words);
    damaged.assert_reported(damaged.aggregate("[{$sort: {a: -1}}]"), words);
    // Queries that do not read it succeed.
    assert_eq!(damaged.find_where(doc! {"_id": 1}).unwrap(), 1);
}

#[test]
fn a_key_that_is_no_record_id_is_reported() {
    let damaged = Damaged::new(doc! {});
    let table = damaged.t.collection("c").table();
    let bytes = doc! {"_id": 9}.into_vec();
    damaged.write(table, b"abc", Some(bytes.into()));
    let words = "the key 616263 of a record is not a record id";
    damaged.assert_reported(damaged.find(FindSpec::default()), words);
}

#[test]
fn a_clustered_scan_reports_a_record_that_is_no_document() {
    let clustered = doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}};
    let damaged = Damaged::new(clustered);
    damaged.cut_record();
    let words = "a stored document is damaged";
    damaged.assert_reported(damaged.find(FindSpec::default()), words);
    let range = || doc! {"_id": {"$gte": 2}};
    damaged.assert_reported(damaged.find_where(range()), words);
    damaged.assert_reported(damaged.count(range()), words);
    damaged.assert_reported(damaged.find_where(doc! {"_id": 2}), words);
    assert_eq!(damaged.find_where(doc! {"_id": {"$gt": 2}}).unwrap(), 1);
    // A clustered collection has no keys: a missing record is a document that does not exist.
    let damaged = Damaged::new(doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}});
    damaged.lose_record();
    assert_eq!(damaged.find_where(doc! {"_id": 2}).unwrap(), 0);
    assert!(damaged.logged.lock().is_empty());
}

#[test]
fn fetch_reports_a_damaged_and_a_missing_record() {
    let damaged = Damaged::indexed();
    damaged.cut_record();
    let words = "record 2 :: caused by :: a stored document is damaged";
    let range = || doc! {"a": {"$gte": 2}};
    damaged.assert_reported(damaged.find_where(range()), words);
    damaged.assert_reported(damaged.aggregate("[{$match: {a: {$gt: 0}}}]"), words);
    // A count reads only the keys, which are intact.
    assert_eq!(damaged.count(range()).unwrap(), 2);

    let damaged = Damaged::indexed();
    damaged.lose_record();
    let words = "IXSCAN { a: 1 } has an entry for record 2, which does not exist";
    damaged.assert_reported(damaged.find_where(range()), words);
    let fetched = doc! {"a": {"$gte": 2}, "b": {"$exists": false}};
    damaged.assert_reported(damaged.count(fetched), words);
}

#[test]
fn a_lookup_by_id_reports_a_damaged_and_a_missing_record() {
    let damaged = Damaged::new(doc! {});
    damaged.cut_record();
    let words = "record 2 :: caused by :: a stored document is damaged";
    damaged.assert_reported(damaged.find_where(doc! {"_id": 2}), words);
    let joined = "[{$match: {_id: 1}}, {$set: {two: 2}}, \
        {$lookup: {from: 'c', localField: 'two', foreignField: '_id', as: 'x'}}]";
    damaged.assert_reported(damaged.aggregate(joined), words);

    let damaged = Damaged::new(doc! {});
    damaged.lose_record();
    let words = "EXPRESS_IXSCAN { _id: 1 } has an entry for record 2, which does not exist";
    damaged.assert_reported(damaged.find_where(doc! {"_id": 2}), words);
    damaged.assert_reported(damaged.aggregate(joined), words);
    assert_eq!(damaged.find_where(doc! {"_id": 4}).unwrap(), 0);
}

#[test]
fn an_index_entry_that_is_no_key_is_reported() {
    let damaged = Damaged::indexed();
    let index = damaged.t.collection("c");
    let table = index.index_by_name("a_1").unwrap().table();
    damaged.write(table, &[0x29], Some(Bytes::new()));
    let words = "an entry of index 'a_1' is not a key";
    let scan = FindSpec {
        hint: Some(Hint::Name("a_1".into())),
        ..FindSpec::default()
    };
    damaged.assert_reported(damaged.find(scan), words);
}

/// Whether damage is reported must not depend on which candidate wins the trial.
#[test]
fn a_candidate_that_meets_damage_ends_the_trial() {
    let damaged = Damaged::indexed();
    let made = damaged.t.create_index("c", doc! {"b": 1}, doc! {});
    made.unwrap();
    damaged
        .t
        .insert("c", doc! {"_id": 4, "a": 9, "b": 9})
        .unwrap();
    damaged.lose_record();
    // The index on b yields one key, that on a yields all.
    let both = doc! {"a": {"$gte": 0}, "b": 9};
    let spec = FindSpec {
        filter: Some(both.as_raw()),
        ..FindSpec::default()
    };
    let view = damaged.t.db.read_view(&ns("c")).unwrap();
    let query = Arc::new(find::canonicalize(&view, spec).unwrap());
    let options = QueryOptions {
        planner_extensions: false,
        ..QueryOptions::default()
    };
    let started = sheaf_db::planning::start(&view, &damaged.t.op, &query, &options).map(|_| ());
    damaged.assert_reported(started, "has an entry for record 2, which does not exist");
}

/// A covered projection reads the document where the key has null.
#[test]
fn a_covered_projection_reports_a_missing_record() {
    let damaged = Damaged::new(doc! {});
    damaged
        .t
        .create_index("c", doc! {"a": 1, "b": 1}, doc! {})
        .unwrap();
    damaged.lose_record();
    let (filter, projection) = (doc! {"a": {"$gte": 1}}, doc! {"_id": 0, "a": 1, "b": 1});
    let covered = FindSpec {
        filter: Some(filter.as_raw()),
        projection: Some(projection.as_raw()),
        ..FindSpec::default()
    };
    let words = "IXSCAN { a: 1, b: 1 } has an entry for record 2, which does not exist";
    damaged.assert_reported(damaged.find(covered), words);
}

#[test]
fn a_tailable_cursor_reports_a_record_that_is_no_document() {
    let damaged = Damaged::new(doc! {"capped": true, "size": 100_000});
    damaged.cut_record();
    let (t, op) = (&damaged.t, &damaged.t.op);
    let mut tail = tailable::find(&t.db, op, &ns("c"), FindSpec::default(), false)
        .unwrap()
        .unwrap();
    assert!(tail.next(op).unwrap().is_some());
    let words = "record 2 :: caused by :: a stored document is damaged";
    damaged.assert_reported(tail.next(op).map(|_| ()), words);
}

#[test]
fn a_vector_search_reports_a_damaged_and_a_missing_record() {
    let definition = doc! {"fields": [
        {"type": "vector", "path": "v", "numDimensions": 2, "similarity": "euclidean"},
    ]};
    let search =
        "[{$vectorSearch: {index: 'x', path: 'v', queryVector: [1, 1], exact: true, limit: 5}}]";
    let with_vectors = || {
        let damaged = Damaged::new(doc! {});
        damaged
            .t
            .insert("c", doc! {"_id": 4, "v": [1.0, 2.0]})
            .unwrap();
        create_search_index(&damaged.t, "c", "x", &definition).unwrap();
        assert_eq!(damaged.aggregate(search).unwrap(), 1);
        damaged
    };
    let of_vector = |damaged: &Damaged| {
        let table = damaged.t.collection("c").table();
        (table, record_key(&damaged.record(3)))
    };
    let damaged = with_vectors();
    let (table, key) = of_vector(&damaged);
    damaged.write(table, &key, Some(Bytes::from_static(b"no document")));
    damaged.assert_reported(damaged.aggregate(search), "a stored document is damaged");

    let damaged = with_vectors();
    let (table, key) = of_vector(&damaged);
    damaged.write(table, &key, None);
    let words = "x has an entry for record 4, which does not exist";
    damaged.assert_reported(damaged.aggregate(search), words);
}

#[test]
fn a_write_reports_a_record_that_is_no_document() {
    let damaged = Damaged::new(doc! {});
    damaged.cut_record();
    let filter = doc! {"a": {"$ne": 1}};
    let statement = DeleteStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        },
        multi: true,
        return_document: Default::default(),
        projection: None,
    };
    let mut report = DeleteReport::default();
    let (t, options) = (&damaged.t, QueryOptions::default());
    let deleted = modify::delete(&t.db, &t.op, &ns("c"), &statement, &options, &mut report);
    damaged.assert_reported(deleted.map(|_| ()), "a stored document is damaged");
}

/// A damaged session row is an error: treated as missing, the write would run twice.
#[test]
fn a_session_row_that_cannot_be_read_is_reported() {
    let logged = Arc::new(Mutex::new(0));
    let count = logged.clone();
    let t = TestDb::new(
        EngineKind::Memory,
        Events::to(move |event| {
            *count.lock() += usize::from(matches!(event, DbEvent::DamageFound { .. }));
        }),
    );
    let lsid = doc! {"id": 7};
    let load = || SessionRow::load(&t.db, &t.op, lsid.as_raw());
    assert_eq!(load().unwrap().number(), -1);
    let rows = sheaf_db::Namespace::parse("config.transactions").unwrap();
    let whole = || {
        let mut row = DocBuilder::new();
        row.append_bson("_id", &lsid);
        row.append("txnNum", 3_i64);
        row.append_bson("inserts", &array("[{first: 0, last: 2}]"));
        row.append_bson("outcomes", &array("[{stmtId: 4, did: {n: 1}}]"));
        row.finish()
    };
    t.db.insert_one(&t.op, &rows, whole().as_raw()).unwrap();
    let row = load().unwrap();
    assert_eq!((row.number(), row.outcome(2).is_some()), (3, true));
    assert!(row.outcome(4).is_some() && row.outcome(3).is_none());

    let table = t.db.catalog().collection(&rows).unwrap().table();
    let put = |bytes: Vec<u8>| {
        let mut unit = t.db.storage().begin().unwrap();
        unit.put(table, &record_key(&RecordId::new(1)), bytes);
        unit.commit(Durability::Buffered).unwrap();
    };
    for (field, value) in [
        ("txnNum", doc! {"": "3"}),
        ("state", doc! {"": 1}),
        ("inserts", doc! {"": [{"first": 0}]}),
        ("inserts", doc! {"": 5}),
        ("outcomes", doc! {"": [{"stmtId": 4, "did": 1}]}),
        ("outcomes", doc! {"": [3]}),
    ] {
        let mut row = DocBuilder::new();
        for element in whole().as_raw().iter().filter(|e| e.key() != field) {
            row.append_raw_element(element);
        }
        row.append(field, value.get("").unwrap());
        put(row.finish().into_vec());
        let error = load().map(|_| ()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DATA_CORRUPTION_DETECTED, "{field}");
        let wanted = format!(
            "the row of session {} cannot be read: field '{field}'",
            "{ id: 7 }"
        );
        assert!(error.message().contains(&wanted), "{error}");
        assert!(
            error.message().starts_with("config.transactions :: "),
            "{error}"
        );
    }
    put(b"nothing".to_vec());
    let error = load().map(|_| ()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DATA_CORRUPTION_DETECTED);
    assert_eq!(*logged.lock(), 1);
}
