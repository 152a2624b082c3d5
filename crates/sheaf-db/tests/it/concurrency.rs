//! Concurrent writers: nothing is lost, no writer waits indefinitely, and indexes stay consistent.

use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_bson::{RawDoc, RawValue, doc};
use sheaf_db::write::update::{DocumentUpdate, UpdateResult};
use sheaf_db::{IndexSelector, OpContext, StatementContext};

use crate::support::{Change, TestDb, code, index_spec, ns, on_every_engine, source, with_field};

const THREADS: i32 = 4;

fn id_is(id: i32) -> impl Fn(RawDoc<'_>) -> bool {
    move |doc: RawDoc<'_>| doc.get("_id") == Some(RawValue::Int32(id))
}

fn number(doc: RawDoc<'_>, field: &str) -> i32 {
    doc.get(field).and_then(|v| v.as_i64_exact()).unwrap() as i32
}

/// Updates one document in a separate operation, and returns that operation's counters.
fn increment(t: &TestDb, id: i32) -> u64 {
    let op = StatementContext::new();
    let matches = id_is(id);
    let change = |doc: RawDoc<'_>| with_field(doc, "n", RawValue::Int32(number(doc, "n") + 1));
    let mut update = Change {
        matches: &matches,
        change: &change,
    };
    let update: &mut dyn DocumentUpdate = &mut update;
    let mut result = UpdateResult::default();
    let mut found = source(&t.db, &ns("c"), &matches);
    t.db.update_records(
        &op,
        &t.collection("c"),
        &mut found,
        update,
        false,
        &mut result,
    )
    .unwrap();
    assert_eq!(result.modified, 1);
    op.counters().counts().write_conflicts
}

#[test]
fn no_increment_of_a_hot_counter_is_lost() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"n": 1}, doc! {}).unwrap();
        t.insert("c", doc! {"_id": 1, "n": 0}).unwrap();
        const EACH: i32 = 50;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        increment(&t, 1);
                    }
                });
            }
        });
        assert_eq!(t.documents("c"), [doc! {"_id": 1, "n": THREADS * EACH}]);
        t.assert_valid("c");
    });
}

#[test]
fn of_concurrent_inserts_of_the_same_key_one_succeeds() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"u": 1}, doc! {"unique": true})
            .unwrap();
        const KEYS: i32 = 60;
        let inserted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (t, inserted) = (&t, &inserted);
                scope.spawn(move || {
                    for key in 0..KEYS {
                        let doc = doc! {"_id": thread * 1000 + key, "u": key};
                        let op = StatementContext::new();
                        match t.db.insert_one(&op, &ns("c"), doc.as_raw()) {
                            Ok(_) => inserted.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                assert_eq!(error.code().0, 11000, "{error}");
                                0
                            }
                        };
                    }
                });
            }
        });
        assert_eq!(inserted.into_inner(), KEYS as u64);
        t.assert_valid("c");
    });
}

/// Two units that lock the same records in opposite order: one must give way.
#[test]
fn updates_of_many_documents_in_opposite_order_both_end() {
    on_every_engine(|t| {
        let docs: Vec<_> = (0..100).map(|n| doc! {"_id": n, "n": 0}).collect();
        t.insert_all("c", &docs);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let t = &t;
                scope.spawn(move || {
                    let op = StatementContext::new();
                    let all = |_: RawDoc<'_>| true;
                    let change = |doc: RawDoc<'_>| {
                        with_field(doc, "n", RawValue::Int32(number(doc, "n") + 1))
                    };
                    let mut update = Change {
                        matches: &all,
                        change: &change,
                    };
                    let mut found = Vec::new();
                    let mut records = source(&t.db, &ns("c"), &all);
                    while let Some(record) =
                        sheaf_db::write::RecordSource::next(&mut records, &op).unwrap()
                    {
                        found.push(record);
                    }
                    if thread % 2 == 1 {
                        found.reverse();
                    }
                    let mut found = found.into_iter();
                    let mut in_order = move |_: &OpContext| Ok(found.next());
                    let mut result = UpdateResult::default();
                    t.db.update_records(
                        &op,
                        &t.collection("c"),
                        &mut in_order,
                        &mut update,
                        true,
                        &mut result,
                    )
                    .unwrap();
                    assert_eq!(result.modified, 100);
                });
            }
        });
        for doc in t.documents("c") {
            assert_eq!(number(doc.as_raw(), "n"), THREADS);
        }
        t.assert_valid("c");
    });
}

#[test]
fn a_waiting_writer_can_be_killed() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1, "n": 0}).unwrap();
        let patience = sheaf_db::write::unit::Patience::Waits;
        let (mut unit, slot) =
            t.db.begin_write(&t.op, &ns("c"), patience)
                .unwrap()
                .unwrap();
        let id = t.records("c")[0].0.clone();
        unit.lock_record(&t.op, slot, &id).unwrap();
        let waiting = StatementContext::new();
        let limited = StatementContext::from(
            OpContext::new().with_max_time(std::time::Duration::from_millis(20)),
        );
        let lock = |op: &StatementContext| {
            let (mut unit, slot) = t.db.begin_write(op, &ns("c"), patience)?.unwrap();
            unit.lock_record(op, slot, &id)
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock(&waiting));
            assert_eq!(code(lock(&limited)), 50);
            assert!(!waiter.is_finished());
            waiting.kill(sheaf_bson::ErrorCode::INTERRUPTED);
            assert_eq!(code(waiter.join().unwrap()), 11601);
        });
        // A transaction does not wait for locks.
        let hasty = sheaf_db::write::unit::Patience::FailsAtOnce;
        let (mut second, slot) = t.db.begin_write(&t.op, &ns("c"), hasty).unwrap().unwrap();
        assert_eq!(code(second.lock_record(&t.op, slot, &id)), 112);
    });
}

/// An insert of a unique key that another unit is removing waits, and succeeds when that unit
/// commits.
#[test]
fn a_key_being_removed_is_waited_for() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        let patience = sheaf_db::write::unit::Patience::Waits;
        let (mut unit, slot) =
            t.db.begin_write(&t.op, &ns("c"), patience)
                .unwrap()
                .unwrap();
        let (id, doc) = t.records("c").remove(0);
        unit.lock_record(&t.op, slot, &id).unwrap();
        unit.delete(&t.op, slot, &id, doc.as_raw()).unwrap();
        std::thread::scope(|scope| {
            let inserting = StatementContext::new();
            let (t, second) = (&t, doc! {"_id": 1, "second": true});
            let waiter = scope.spawn(move || {
                t.db.insert_one(&inserting, &ns("c"), second.as_raw())
                    .unwrap();
            });
            // The waiting insert's unit is open at the same time as this one.
            while t.db.storage().lock_stats().waits == 0 {
                assert!(!waiter.is_finished());
                std::thread::yield_now();
            }
            unit.commit(&t.op).unwrap();
            waiter.join().unwrap();
        });
        assert_eq!(t.documents("c"), [doc! {"_id": 1, "second": true}]);
        t.assert_valid("c");
    });
}

#[test]
fn collections_and_indexes_come_and_go_under_writers() {
    on_every_engine(|t| {
        const ROUNDS: i32 = 12;
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|thread| {
                    let (t, done) = (&t, &done);
                    scope.spawn(move || {
                        let mut n = 0;
                        while done.load(Ordering::Relaxed) == 0 {
                            let op = StatementContext::new();
                            let doc = doc! {"_id": thread * 1_000_000 + n, "a": [n, n + 1]};
                            t.db.insert_one(&op, &ns("c"), doc.as_raw()).unwrap();
                            n += 1;
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                while done.load(Ordering::Relaxed) == 0 {
                    // A view can read every table that its collection names.
                    let view = t.db.read_view(&ns("c")).unwrap();
                    if let Some(collection) = &view.collection {
                        view.record_count().unwrap();
                        for index in collection.index_list() {
                            view.snapshot.len(index.table()).unwrap();
                        }
                        let op = StatementContext::new();
                        let report = sheaf_db::validate::validate(&op, &view).unwrap();
                        assert!(report.is_valid(), "{report:#?}");
                    }
                }
            });
            let spec = index_spec(doc! {"a": 1}, doc! {});
            for round in 0..ROUNDS {
                let op = StatementContext::new();
                t.db.create_indexes(&op, &ns("c"), std::slice::from_ref(&spec))
                    .unwrap();
                match round % 3 {
                    0 => {
                        let all = IndexSelector::All;
                        t.db.drop_indexes(&op, &ns("c"), &all).unwrap();
                    }
                    1 => {
                        t.db.drop_collection(&op, &ns("c")).unwrap();
                    }
                    _ => {
                        t.db.rename_collection(&op, &ns("c"), &ns("d"), true)
                            .unwrap();
                    }
                }
            }
            done.store(1, Ordering::Relaxed);
            for writer in writers {
                writer.join().unwrap();
            }
            reader.join().unwrap();
        });
        t.assert_valid("c");
        t.assert_valid("d");
    });
}
