//! Reads in the past: exactly the state as of a time, or an error.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sheaf_bson::{ErrorCode, RawDoc, RawValue, Timestamp, doc};
use sheaf_db::oplog::OpTime;
use sheaf_db::snapshot_history::SPACING;
use sheaf_db::{ReadView, StatementContext};

use crate::oplog::entries;
use crate::support::{TestDb, ns, on_every_engine};

fn ids(view: &ReadView) -> Vec<i32> {
    let Some(collection) = &view.collection else {
        return Vec::new();
    };
    let mut cursor = view.snapshot.cursor(collection.table()).unwrap();
    let mut found = Vec::new();
    let mut on = cursor.seek_first().unwrap();
    while on {
        match RawDoc::parse(cursor.value()).unwrap().get("_id") {
            Some(RawValue::Int32(id)) => found.push(id),
            other => panic!("{other:?}"),
        }
        on = cursor.next().unwrap();
    }
    found.sort();
    found
}

fn read_at(test: &TestDb, at: Option<Timestamp>) -> Result<Vec<i32>, ErrorCode> {
    let view = test.db.view_at(&test.op, &ns("c"), at);
    view.map(|(view, _)| ids(&view)).map_err(|e| e.code())
}

#[test]
fn operation_times_can_be_read() {
    on_every_engine(|test| {
        test.db.turn_oplog_on(&test.op).unwrap();
        test.insert("c", doc! {"_id": 0}).unwrap();
        let before = test.db.operation_time();
        test.insert("c", doc! {"_id": 1}).unwrap();
        // No client had read in the past yet.
        assert_eq!(
            read_at(&test, Some(before)),
            Err(ErrorCode::SNAPSHOT_TOO_OLD)
        );
        assert_eq!(test.db.snapshot_history().stats().too_old, 1);
        let mut times = Vec::new();
        for id in 2..8 {
            test.insert("c", doc! {"_id": id}).unwrap();
            times.push((test.db.operation_time(), id));
            std::thread::sleep(SPACING + Duration::from_millis(3));
        }
        test.db.drop_collection(&test.op, &ns("c")).unwrap();
        for (time, id) in times {
            assert_eq!(read_at(&test, Some(time)), Ok((0..=id).collect()));
        }
        assert_eq!(read_at(&test, None), Ok(Vec::new()));
        assert!(test.db.snapshot_history().stats().is_active);
        // After the window nothing is kept.
        test.db.snapshot_history().set_window_seconds(0);
        test.db.snapshot_history().expire();
        assert_eq!(test.db.snapshot_history().stats().kept, 0);
    });
}

#[test]
fn a_read_is_exact_or_refused() {
    on_every_engine(|test| {
        test.db.turn_oplog_on(&test.op).unwrap();
        test.insert("c", doc! {"_id": -1}).unwrap();
        read_at(&test, None).unwrap();
        let stop = AtomicBool::new(false);
        let mut times = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, stop) = (&test.db, &stop);
                scope.spawn(move || {
                    let op = StatementContext::new();
                    for n in 0..2000 {
                        let doc = doc! {"_id": thread * 10_000 + n};
                        db.insert(&op, &ns("c"), &[doc.as_raw()], true).unwrap();
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        // Leaves time for a commit's timestamp to be the newest for a while.
                        std::thread::sleep(Duration::from_micros(u64::from(n as u32 % 7) * 500));
                    }
                });
            }
            for _ in 0..150 {
                times.push(test.db.operation_time());
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // The oplog gives the expected state at each time.
        let inserted: Vec<(Timestamp, i32)> = entries(&test)
            .iter()
            .filter(|entry| entry.get("op") == Some(RawValue::String("i")))
            .map(|entry| match entry.get("o") {
                Some(RawValue::Document(o)) => match o.get("_id") {
                    Some(RawValue::Int32(id)) => (OpTime::of(entry.as_raw()).unwrap().ts, id),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        times.dedup();
        let mut exact = 0;
        for time in times {
            match read_at(&test, Some(time)) {
                Ok(found) => {
                    let upto = inserted.iter().filter(|(ts, _)| *ts <= time);
                    let mut expected: Vec<i32> = upto.map(|(_, id)| *id).collect();
                    expected.sort();
                    assert_eq!(found, expected, "at {time:?}");
                    exact += 1;
                }
                Err(code) => assert_eq!(code, ErrorCode::SNAPSHOT_TOO_OLD),
            }
        }
        assert!(exact > 0, "the last time at least can be read");
    });
}
