//! Index builds over existing documents: concurrent with writers, killed, failing, interrupted by a
//! crash.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use sheaf_bson::{DocBuf, ErrorCode, RawDoc, RawValue, Result, doc};
use sheaf_db::ddl::index_build::CreateIndexesResult;
use sheaf_db::ddl::indexes::IndexSelector;
use sheaf_db::index::definition::IndexSpec;
use sheaf_db::{DbEvent, Events, StatementContext};

use crate::support::{
    ENGINES, EngineKind, TestDb, code, index_spec, ns, on_every_engine, with_field,
};

fn documents(n: i32) -> Vec<DocBuf> {
    let tags = |n: i32| vec![n % 3, n % 5];
    (0..n)
        .map(|n| doc! {"_id": n, "a": n % 10, "tags": tags(n), "u": n})
        .collect()
}

/// A listener that pauses a build at its start until it is released.
struct Stopped {
    reached: Receiver<()>,
    go_on: Sender<()>,
}

fn stopping_events() -> (Events, Stopped) {
    let (reached_tx, reached) = channel();
    let (go_on, go_on_rx) = channel();
    let go_on_rx = Mutex::new(go_on_rx);
    let events = Events::to(move |event| {
        if matches!(event, DbEvent::IndexBuildStarted { .. }) {
            reached_tx.send(()).unwrap();
            // An error means that the test is over.
            let _ = go_on_rx.lock().recv();
        }
    });
    (events, Stopped { reached, go_on })
}

/// Runs `meanwhile` while a build of these indexes is paused between its start and its scan.
fn build_while(
    t: &TestDb,
    stopped: &Stopped,
    op: &StatementContext,
    specs: &[IndexSpec],
    meanwhile: impl FnOnce(),
) -> Result<CreateIndexesResult> {
    std::thread::scope(|scope| {
        let build = scope.spawn(|| t.db.create_indexes(op, &ns("c"), specs));
        stopped.reached.recv().unwrap();
        meanwhile();
        stopped.go_on.send(()).unwrap();
        build.join().unwrap()
    })
}

fn on_every_engine_stopping(test: impl Fn(TestDb, Stopped)) {
    for kind in ENGINES {
        let (events, stopped) = stopping_events();
        test(TestDb::new(kind, events), stopped);
    }
}

#[test]
fn several_indexes_in_one_pass() {
    on_every_engine(|mut t| {
        t.insert_all("c", &documents(500));
        let specs = [
            index_spec(doc! {"a": 1, "_id": -1}, doc! {}),
            index_spec(doc! {"tags": 1}, doc! {}),
            index_spec(doc! {"u": 1}, doc! {"unique": true}),
            index_spec(
                doc! {"a": 1},
                doc! {"partialFilterExpression": {"u": {"$lt": 10}}},
            ),
        ];
        let result = t.db.create_indexes(&t.op, &ns("c"), &specs).unwrap();
        assert_eq!((result.indexes_before, result.indexes_after), (1, 5));
        let check = |t: &TestDb| {
            t.assert_valid("c");
            let report = t.validate("c");
            let keys: Vec<_> = report.keys_per_index.into_iter().collect();
            // 33 or 34 of the 500 numbers leave the same remainders by 3 and by 5, for each of 0, 1
            // and 2.
            let names = ["_id_", "a_1", "a_1__id_-1", "tags_1", "u_1"];
            let counts = [500, 10, 500, 1000 - 102, 500];
            for (key, expected) in keys.iter().zip(names.iter().zip(counts)) {
                assert_eq!((key.0.as_str(), key.1), (*expected.0, expected.1));
            }
            let collection = t.collection("c");
            let tags = collection.index_by_name("tags_1").unwrap().entry().clone();
            assert_eq!(tags.multikey_paths, [vec![0]]);
        };
        check(&t);
        // The scratch table is gone.
        assert_eq!(t.engine().tables().unwrap().len(), 1 + 1 + 5);
        t.reopen();
        check(&t);
    });
}

#[test]
fn writes_during_a_build_are_in_the_index() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(300));
        let specs = [
            index_spec(doc! {"tags": 1, "a": -1}, doc! {}),
            index_spec(doc! {"u": 1}, doc! {"unique": true}),
            index_spec(
                doc! {"u": -1},
                doc! {"partialFilterExpression": {"a": {"$gte": 5}}, "name": "p"},
            ),
        ];
        let id = |doc: RawDoc<'_>| doc.get("_id").and_then(|v| v.as_i64_exact());
        build_while(&t, &stopped, &t.op, &specs, || {
            assert!(t.collection("c").index_by_name("u_1").is_none());
            t.insert_all("c", &[doc! {"_id": 1000, "a": [1, 2], "u": 1000}]);
            t.delete("c", |doc| id(doc) < Some(50), true);
            let retype = |doc: RawDoc<'_>| {
                let a = doc.get("a").and_then(|v| v.as_f64()).unwrap_or(0.0);
                with_field(doc, "a", RawValue::Double(a + 1.0))
            };
            t.update("c", |doc| id(doc) > Some(200), retype, true)
                .1
                .unwrap();
            // A duplicate that is removed before the build ends does not fail it.
            t.insert("c", doc! {"_id": 2000, "u": 100}).unwrap();
            t.delete("c", |doc| id(doc) == Some(2000), true);
            t.insert("c", doc! {"_id": 2001, "u": 7, "tags": [9, 9]})
                .unwrap();
        })
        .unwrap();
        assert_eq!(t.collection("c").index_list().len(), 4);
        t.assert_valid("c");
        let collection = t.collection("c");
        assert!(collection.builds().is_empty());
        let entry = collection.index_list()[1].entry().clone();
        assert_eq!(entry.multikey_paths, [vec![0], vec![0]]);
        assert_eq!(code(t.insert("c", doc! {"_id": 3000, "u": 7})), 11000);
    });
}

#[test]
fn writers_are_not_stopped_by_a_build_of_many_documents() {
    on_every_engine(|t| {
        t.insert_all("c", &documents(3000));
        let spec = [index_spec(doc! {"a": 1, "tags": 1}, doc! {})];
        std::thread::scope(|scope| {
            let build = scope.spawn(|| {
                t.db.create_indexes(&StatementContext::new(), &ns("c"), &spec)
            });
            let mut n = 10_000;
            while !build.is_finished() || n < 10_100 {
                t.insert("c", doc! {"_id": n, "a": n, "tags": [n, 1]})
                    .unwrap();
                n += 1;
            }
            build.join().unwrap().unwrap();
        });
        t.assert_valid("c");
    });
}

#[test]
fn spilled_to_disk() {
    // On one engine: the sort does not depend on the engine, and 50 MB take time.
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let long = |n: i32| format!("{:->1$}", n, 60_000);
    let docs: Vec<DocBuf> = (0..900)
        .map(|n| doc! {"_id": n, "s": long(n * 7919 % 900)})
        .collect();
    t.insert_all("c", &docs);
    // 54 MB of keys and 50 MB of memory.
    assert!(t.db.set_index_build_memory_mb(49).is_err());
    t.db.set_index_build_memory_mb(50).unwrap();
    t.create_index("c", doc! {"s": 1}, doc! {"unique": true})
        .unwrap();
    let report = t.validate("c");
    assert!(report.is_valid());
    assert_eq!(report.keys_per_index["s_1"], 900);
    let left = std::fs::read_dir(t.db.temp_dir()).unwrap().count();
    assert_eq!(left, 0);
}

/// What must hold after a failed build.
fn assert_no_trace(t: &TestDb) {
    let collection = t.collection("c");
    assert_eq!(collection.index_list().len(), 1);
    assert!(collection.builds().is_empty());
    assert_eq!(t.engine().tables().unwrap().len(), 3);
    t.insert("c", doc! {"_id": "after", "u": 1}).unwrap();
    t.assert_valid("c");
}

#[test]
fn duplicates_fail_a_unique_build() {
    on_every_engine(|t| {
        t.insert_all("c", &documents(300));
        let error = t
            .create_index("c", doc! {"a": 1}, doc! {"unique": true})
            .unwrap_err();
        assert_eq!(error.code().0, 11000);
        let ending = "E11000 duplicate key error collection: test.c index: a_1 dup key: { a: 0 }";
        assert!(error.message().ends_with(ending), "{error}");
        let extra = doc! {"keyPattern": {"a": 1}, "keyValue": {"a": 0}};
        assert_eq!(error.extra(), Some(&extra));
        assert_no_trace(&t);
    });
}

#[test]
fn a_duplicate_written_during_a_build_fails_it() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(50));
        let specs = [index_spec(doc! {"u": 1}, doc! {"unique": true})];
        let result = build_while(&t, &stopped, &t.op, &specs, || {
            t.insert("c", doc! {"_id": 100, "u": 7}).unwrap();
        });
        assert_eq!(code(result), 11000);
        assert_no_trace(&t);
    });
}

#[test]
fn a_document_that_cannot_be_indexed_fails_the_build() {
    on_every_engine(|t| {
        t.insert_all("c", &documents(10));
        t.insert("c", doc! {"_id": 100, "a": [1], "tags": [1]})
            .unwrap();
        assert_eq!(
            code(t.create_index("c", doc! {"a": 1, "tags": 1}, doc! {})),
            171
        );
        assert_no_trace(&t);
    });
}

#[test]
fn a_document_that_the_new_index_refuses_is_refused_during_the_build() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(10));
        let specs = [index_spec(doc! {"a": 1, "tags": 1}, doc! {})];
        build_while(&t, &stopped, &t.op, &specs, || {
            let refused = doc! {"_id": 100, "a": [1], "tags": [1]};
            assert_eq!(code(t.insert("c", refused)), 171);
        })
        .unwrap();
        t.assert_valid("c");
    });
}

#[test]
fn killed() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(100));
        let op = StatementContext::new();
        let specs = [index_spec(doc! {"a": 1}, doc! {})];
        let result = build_while(&t, &stopped, &op, &specs, || {
            op.kill(ErrorCode::INTERRUPTED);
        });
        assert_eq!(code(result), 11601);
        assert_no_trace(&t);
    });
}

#[test]
fn dropped_while_being_built() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(100));
        let specs = [index_spec(doc! {"a": 1}, doc! {})];
        let t = &t;
        let result = std::thread::scope(|scope| {
            let build = scope.spawn(|| t.db.create_indexes(&t.op, &ns("c"), &specs));
            stopped.reached.recv().unwrap();
            let dropping = scope.spawn(|| {
                let by_name = IndexSelector::Names(vec!["a_1"]);
                t.db.drop_indexes(&StatementContext::new(), &ns("c"), &by_name)
            });
            let build_in_catalog = t.collection("c").builds()[0].clone();
            while build_in_catalog.check_aborted().is_ok() {
                std::thread::yield_now();
            }
            stopped.go_on.send(()).unwrap();
            assert_eq!(dropping.join().unwrap().unwrap(), 1);
            build.join().unwrap()
        });
        assert_eq!(code(result), 276);
        assert_no_trace(t);
    });
}

#[test]
fn the_collection_dropped_while_being_indexed() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(100));
        let specs = [index_spec(doc! {"a": 1}, doc! {})];
        let t = &t;
        let result = std::thread::scope(|scope| {
            let build = scope.spawn(|| t.db.create_indexes(&t.op, &ns("c"), &specs));
            stopped.reached.recv().unwrap();
            // Renaming and collMod do not abort a build: they are rejected because of it.
            let renamed = t.db.rename_collection(&t.op, &ns("c"), &ns("d"), false);
            assert_eq!(code(renamed), 12587);
            let dropping = scope.spawn(|| t.db.drop_collection(&StatementContext::new(), &ns("c")));
            let build_in_catalog = t.collection("c").builds()[0].clone();
            while build_in_catalog.check_aborted().is_ok() {
                std::thread::yield_now();
            }
            stopped.go_on.send(()).unwrap();
            assert!(dropping.join().unwrap().unwrap().is_some());
            build.join().unwrap()
        });
        assert_eq!(code(result), 276);
        assert!(t.db.catalog().collection(&ns("c")).is_none());
        assert_eq!(t.engine().tables().unwrap().len(), 1);
    });
}

#[test]
fn the_same_index_requested_twice_is_built_once() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(100));
        let specs = [index_spec(doc! {"a": 1}, doc! {})];
        let t = &t;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| t.db.create_indexes(&t.op, &ns("c"), &specs));
            stopped.reached.recv().unwrap();
            let second = scope.spawn(|| {
                t.db.create_indexes(&StatementContext::new(), &ns("c"), &specs)
            });
            stopped.go_on.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap().indexes_after, 2);
            assert_eq!(second.join().unwrap().unwrap().indexes_after, 2);
        });
        assert_eq!(t.collection("c").index_list().len(), 2);
        t.assert_valid("c");
    });
}

#[test]
fn a_crash_during_a_build() {
    on_every_engine_stopping(|mut t, stopped| {
        t.insert_all("c", &documents(100));
        let old = t.db.clone();
        let building = std::thread::spawn(move || {
            let specs = [index_spec(doc! {"a": 1}, doc! {})];
            let _ = old.create_indexes(&StatementContext::new(), &ns("c"), &specs);
        });
        stopped.reached.recv().unwrap();
        t.insert("c", doc! {"_id": 100, "a": 1}).unwrap();
        // Records, _id, the index and the build's scratch table, and the catalog.
        assert_eq!(t.engine().tables().unwrap().len(), 5);
        let events: Arc<Mutex<Vec<DbEvent>>> = Arc::default();
        let seen = events.clone();
        t.reopen_after_crash(Events::to(move |event| seen.lock().push(event.clone())));
        let unknown = |event: &&DbEvent| matches!(event, DbEvent::UnknownTableDropped { .. });
        let cut_short = DbEvent::UnfinishedIndexesDropped { ns: ns("c") };
        assert_eq!(events.lock().iter().filter(unknown).count(), 2);
        assert!(events.lock().contains(&cut_short));
        assert_no_trace(&t);
        assert_eq!(t.db.record_count(&ns("c")).unwrap(), 102);
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        t.assert_valid("c");
        // Let the build's thread of the crashed database end.
        drop(stopped);
        building.join().unwrap();
    });
}

#[test]
fn progress_can_be_watched() {
    on_every_engine_stopping(|t, stopped| {
        t.insert_all("c", &documents(100));
        let specs = [index_spec(doc! {"a": 1}, doc! {})];
        build_while(&t, &stopped, &t.op, &specs, || {
            let progress = t.collection("c").builds()[0].progress().clone();
            assert_eq!(progress.phase(), "Index Build: scanning collection");
            assert_eq!(progress.subject(), "test.c [a_1]");
            assert_eq!(progress.done_of_total(), (0, 100));
        })
        .unwrap();
        assert!(t.op.progress().is_none());
    });
}
