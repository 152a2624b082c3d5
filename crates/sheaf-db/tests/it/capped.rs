//! Capped collections: which documents are removed, in which order, and cursors that continue.

use std::sync::Barrier;
use std::time::Duration;

use sheaf_bson::{DocBuf, RawDoc, doc};
use sheaf_db::catalog::options::Capped;
use sheaf_db::ddl::coll_mod::CollMod;
use sheaf_db::tailable::{self, Tailable};
use sheaf_db::{CollectionOptions, Events, ResultSource, StatementContext};
use sheaf_query::canonical::FindSpec;

use crate::support::{EngineKind, TestDb, code, ns, on_every_engine, with_field};

/// Longer than any wait that succeeds.
const WAIT: Duration = Duration::from_secs(60);

fn create(t: &TestDb, name: &str, options: DocBuf) {
    let options = CollectionOptions::parse(options.as_raw()).unwrap();
    t.db.create_collection(&t.op, &ns(name), options).unwrap();
}

fn ids(t: &TestDb, name: &str) -> Vec<i64> {
    let id = |doc: &DocBuf| doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap();
    t.documents(name).iter().map(id).collect()
}

fn numbered(range: std::ops::Range<i32>) -> Vec<DocBuf> {
    range.map(|n| doc! {"_id": n}).collect()
}

#[test]
fn the_oldest_documents_are_removed() {
    on_every_engine(|t| {
        create(&t, "c", doc! {"capped": true, "size": 100_000, "max": 3});
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        for n in 0..5 {
            t.insert("c", doc! {"_id": n, "a": n}).unwrap();
        }
        assert_eq!(ids(&t, "c"), [2, 3, 4]);
        // More documents at once than the collection can hold.
        t.insert_all("c", &numbered(10..30));
        assert_eq!(ids(&t, "c"), [27, 28, 29]);
        t.assert_valid("c");
        // By bytes: documents of 1000 bytes and a little.
        create(&t, "b", doc! {"capped": true, "size": 4096});
        let text = "x".repeat(1000);
        for n in 0..10 {
            t.insert("b", doc! {"_id": n, "text": text.as_str()})
                .unwrap();
        }
        assert_eq!(ids(&t, "b"), [7, 8, 9]);
        t.assert_valid("b");
        let large = "x".repeat(5000);
        t.insert("b", doc! {"_id": 10, "text": large}).unwrap();
        assert_eq!(ids(&t, "b"), [10]);
        t.insert("b", doc! {"_id": 11}).unwrap();
        assert_eq!(ids(&t, "b"), [11]);
        t.assert_valid("b");
    });
}

#[test]
fn a_refused_insert_removes_nothing() {
    on_every_engine(|t| {
        create(&t, "c", doc! {"capped": true, "size": 4096, "max": 3});
        t.insert_all("c", &numbered(0..3));
        assert_eq!(code(t.insert("c", doc! {"_id": 1})), 11000);
        assert_eq!(ids(&t, "c"), [0, 1, 2]);
        // The document that would be removed still exists, so its `_id` is a duplicate.
        assert_eq!(code(t.insert("c", doc! {"_id": 0})), 11000);
        // In an unordered batch the remaining documents are inserted.
        let docs = [doc! {"_id": 3}, doc! {"_id": 2}, doc! {"_id": 4}];
        let raw: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        let result = t.db.insert(&t.op, &ns("c"), &raw, false).unwrap();
        assert_eq!((result.inserted, result.errors.len()), (2, 1));
        assert_eq!(ids(&t, "c"), [2, 3, 4]);
        t.assert_valid("c");
    });
}

#[test]
fn documents_are_deleted_and_change_their_size() {
    on_every_engine(|t| {
        create(&t, "c", doc! {"capped": true, "size": 4096, "max": 3});
        t.insert_all("c", &numbered(0..3));
        let is = |n: i64| {
            move |doc: RawDoc<'_>| doc.get("_id").and_then(|id| id.as_i64_exact()) == Some(n)
        };
        t.delete("c", is(1), false);
        t.insert("c", doc! {"_id": 3}).unwrap();
        assert_eq!(ids(&t, "c"), [0, 2, 3]);
        t.update("c", is(2), |doc| with_field(doc, "text", "longer"), false)
            .1
            .unwrap();
        t.insert("c", doc! {"_id": 4}).unwrap();
        assert_eq!(ids(&t, "c"), [2, 3, 4]);
        t.assert_valid("c");
    });
}

#[test]
fn limits_change() {
    let mut t = TestDb::new(EngineKind::Redb, Events::default());
    create(&t, "c", doc! {"capped": true, "size": 100_000, "max": 5});
    t.insert_all("c", &numbered(0..5));
    let change = |t: &TestDb, request: DocBuf| {
        let request = CollMod::parse(request.as_raw())?;
        t.db.coll_mod(&t.op, &ns("c"), &request)
    };
    change(&t, doc! {"cappedMax": 2}).unwrap();
    assert_eq!(ids(&t, "c"), [0, 1, 2, 3, 4], "the next insert makes room");
    t.insert("c", doc! {"_id": 5}).unwrap();
    assert_eq!(ids(&t, "c"), [4, 5]);
    change(&t, doc! {"cappedMax": 0, "cappedSize": 5000}).unwrap();
    let kept = t.collection("c").options().capped().unwrap();
    assert_eq!((kept.bytes, kept.documents), (5120, None));
    t.reopen();
    assert_eq!(t.collection("c").options().capped(), Some(kept));
    t.insert("c", doc! {"_id": 6}).unwrap();
    assert_eq!(ids(&t, "c"), [4, 5, 6]);
    t.insert("plain", doc! {"_id": 1}).unwrap();
    let request = doc! {"cappedMax": 2};
    let request = CollMod::parse(request.as_raw()).unwrap();
    assert_eq!(code(t.db.coll_mod(&t.op, &ns("plain"), &request)), 72);
}

#[test]
fn converted_and_cloned() {
    on_every_engine(|t| {
        t.insert_all("c", &numbered(0..1000));
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let limit = Capped::of_bytes(4096);
        t.db.clone_as_capped(&t.op, &ns("c"), &ns("copy"), limit)
            .unwrap();
        t.db.convert_to_capped(&t.op, &ns("c"), limit).unwrap();
        // {_id: n} takes 14 bytes.
        let kept = 4096 / 14;
        for name in ["c", "copy"] {
            assert_eq!(
                ids(&t, name),
                (1000 - kept..1000).collect::<Vec<i64>>(),
                "{name}"
            );
            assert_eq!(t.collection(name).options().capped(), Some(limit));
            assert_eq!(t.collection(name).index_list().len(), 1);
            t.assert_valid(name);
        }
        assert_eq!(
            code(t.db.clone_as_capped(&t.op, &ns("c"), &ns("copy"), limit)),
            48
        );
        assert_eq!(code(t.db.convert_to_capped(&t.op, &ns("none"), limit)), 26);
        t.insert("c", doc! {"_id": 1000}).unwrap();
        assert_eq!(ids(&t, "c").last(), Some(&1000));
    });
}

fn tail(t: &TestDb, name: &str, filter: DocBuf) -> Option<Tailable> {
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        ..FindSpec::default()
    };
    tailable::find(&t.db, &t.op, &ns(name), spec, true).unwrap()
}

fn batch(op: &StatementContext, source: &mut dyn ResultSource) -> sheaf_bson::Result<Vec<i64>> {
    let mut found = Vec::new();
    while let Some(doc) = source.next(op)? {
        found.extend(doc.as_raw().get("_id").and_then(|id| id.as_i64_exact()));
    }
    source.batch_ended();
    Ok(found)
}

#[test]
fn a_tailable_cursor_continues() {
    on_every_engine(|t| {
        create(&t, "c", doc! {"capped": true, "size": 4096, "max": 4});
        t.insert_all("c", &numbered(0..2));
        let mut all = tail(&t, "c", doc! {}).unwrap();
        let mut some = tail(&t, "c", doc! {"_id": {"$gte": 2}}).unwrap();
        assert_eq!(batch(&t.op, &mut all).unwrap(), [0, 1]);
        assert!(batch(&t.op, &mut some).unwrap().is_empty());
        assert!(
            !some.is_exhausted(),
            "it is positioned on a record, although the record does not match"
        );
        assert!(!all.await_more(&t.op, Duration::ZERO).unwrap());
        t.insert("c", doc! {"_id": 2}).unwrap();
        assert!(all.await_more(&t.op, WAIT).unwrap());
        assert_eq!(batch(&t.op, &mut all).unwrap(), [2]);
        assert_eq!(batch(&t.op, &mut some).unwrap(), [2]);
        assert!(batch(&t.op, &mut all).unwrap().is_empty());
        // The cursor's last record is removed.
        t.insert_all("c", &numbered(3..9));
        assert_eq!(code(batch(&t.op, &mut all)), 136);
        // No record to be positioned on.
        create(&t, "empty", doc! {"capped": true, "size": 4096});
        let mut dead = tail(&t, "empty", doc! {}).unwrap();
        assert!(batch(&t.op, &mut dead).unwrap().is_empty());
        assert!(dead.is_exhausted());
        assert!(tail(&t, "none", doc! {}).is_none());
        // The collection is dropped.
        let mut orphan = tail(&t, "c", doc! {}).unwrap();
        assert_eq!(batch(&t.op, &mut orphan).unwrap(), [5, 6, 7, 8]);
        t.db.drop_collection(&t.op, &ns("c")).unwrap();
        assert_eq!(code(orphan.await_more(&t.op, WAIT)), 175);
        t.insert("plain", doc! {"_id": 1}).unwrap();
        let spec = FindSpec::default();
        assert!(tailable::find(&t.db, &t.op, &ns("plain"), spec, true).is_err());
    });
}

/// Concurrent writers and a tailing reader, which sees every document of every writer once, in each
/// writer's order.
#[test]
fn no_reader_misses_a_record() {
    const WRITERS: i32 = 3;
    const EACH: i32 = 40;
    on_every_engine(|t| {
        create(&t, "c", doc! {"capped": true, "size": 1 << 20});
        t.insert("c", doc! {"_id": -1}).unwrap();
        let start = Barrier::new(WRITERS as usize + 1);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (t, start) = (&t, &start);
                scope.spawn(move || {
                    start.wait();
                    let op = StatementContext::new();
                    for n in 0..EACH {
                        let doc = doc! {"_id": writer * 1000 + n};
                        t.db.insert_one(&op, &ns("c"), doc.as_raw()).unwrap();
                    }
                });
            }
            start.wait();
            let mut source = tail(&t, "c", doc! {}).unwrap();
            let mut next = [0i64; WRITERS as usize];
            let mut seen = 0;
            while seen < i64::from(WRITERS * EACH) + 1 {
                let found = batch(&t.op, &mut source).unwrap();
                seen += found.len() as i64;
                for id in found.into_iter().filter(|id| *id >= 0) {
                    let writer = (id / 1000) as usize;
                    assert_eq!(id % 1000, next[writer], "writer {writer}");
                    next[writer] += 1;
                }
                if seen <= i64::from(WRITERS * EACH) {
                    source.await_more(&t.op, WAIT).unwrap();
                }
            }
        });
        t.assert_valid("c");
    });
}
