//! The oplog: which entries commits write, when they become visible, how its size stays bounded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, doc};
use sheaf_db::oplog::OpTime;
use sheaf_db::oplog::entry::WriteOrigin;
use sheaf_db::session_row::SessionRow;
use sheaf_db::statement::SessionWrite;
use sheaf_db::system_names::OPLOG_NAMESPACE;
use sheaf_db::txn::{Isolation, Transaction};
use sheaf_db::{Namespace, StatementContext};

use crate::support::{TestDb, ns, on_every_engine, with_field};

pub fn entries(test: &TestDb) -> Vec<DocBuf> {
    let ns = Namespace::parse(OPLOG_NAMESPACE).unwrap();
    let view = test.db.read_view(&ns).unwrap();
    let collection = view.collection.expect("there is an oplog");
    let mut cursor = view.snapshot.cursor(collection.table()).unwrap();
    let mut found = Vec::new();
    let mut on = cursor.seek_first().unwrap();
    while on {
        found.push(RawDoc::parse(cursor.value()).unwrap().to_buf());
        on = cursor.next().unwrap();
    }
    found
}

/// Without times and UUIDs, which differ in every run.
fn shown(entry: &DocBuf) -> String {
    let mut out = DocBuilder::new();
    for element in entry.iter() {
        if !["ui", "ts", "wall", "t", "v", "prevOpTime"].contains(&element.key()) {
            out.append(element.key(), element.value());
        }
    }
    out.finish().to_string()
}

#[test]
fn entries_of_single_writes() {
    on_every_engine(|mut test| {
        test.insert("before", doc! {"_id": 0}).unwrap();
        test.db.turn_oplog_on(&test.op).unwrap();
        test.insert(
            "c",
            doc! {"_id": 1, "a": 1, "text": "rather long, so that a difference is shorter"},
        )
        .unwrap();
        test.update("c", |_| true, |d| with_field(d, "a", 2), true)
            .1
            .unwrap();
        // A write that changes nothing is not logged.
        test.update("c", |_| true, |d| d.to_buf(), true).1.unwrap();
        test.delete("c", |_| true, true);
        test.db.drop_collection(&test.op, &ns("c")).unwrap();
        let found = entries(&test);
        let texts: Vec<String> = found.iter().map(shown).collect();
        let expected = [
            r#"{ op: "n", ns: "", o: { msg: "initiating the oplog" } }"#,
            r#"{ op: "c", ns: "test.$cmd", o: { create: "c", idIndex: { v: 2, key: { _id: 1 }, name: "_id_" } } }"#,
            r#"{ op: "i", ns: "test.c", o: { _id: 1, a: 1, text: "rather long, so that a difference is shorter" }, o2: { _id: 1 } }"#,
            // A replacement is logged in full.
            r#"{ op: "u", ns: "test.c", o: { _id: 1, a: 2, text: "rather long, so that a difference is shorter" }, o2: { _id: 1 } }"#,
            r#"{ op: "d", ns: "test.c", o: { _id: 1 } }"#,
            r#"{ op: "c", ns: "test.$cmd", o: { drop: "c" }, o2: { numRecords: 0 } }"#,
        ];
        let expected: Vec<String> = expected.iter().map(|line| line.to_string()).collect();
        let plain = |texts: &[String]| -> Vec<String> {
            texts
                .iter()
                .map(|t| t.replace("NumberLong(0)", "0").replace("Long(\"0\")", "0"))
                .collect()
        };
        assert_eq!(plain(&texts), expected);
        let times: Vec<_> = found
            .iter()
            .map(|e| OpTime::of(e.as_raw()).unwrap().ts)
            .collect();
        assert!(times.is_sorted());
        assert_eq!(test.db.oplog().visible(), *times.last().unwrap());
        // After a restart the oplog exists and continues where it was.
        test.reopen();
        assert!(test.db.oplog().is_on());
        assert!(test.db.oplog().visible() >= *times.last().unwrap());
        test.insert("c", doc! {"_id": 1}).unwrap();
        let again = entries(&test);
        assert_eq!(again.len(), found.len() + 2);
        assert!(OpTime::of(again.last().unwrap().as_raw()).map(|at| at.ts) > times.last().copied());
    });
}

#[test]
fn a_transaction_is_one_entry() {
    on_every_engine(|test| {
        test.insert("c", doc! {"_id": 0}).unwrap();
        test.db.turn_oplog_on(&test.op).unwrap();
        let lsid = doc! {"id": 5};
        let row = SessionRow::load(&test.db, &test.op, lsid.as_raw()).unwrap();
        row.advance(7);
        let before = entries(&test).len();
        let transaction =
            Transaction::begin(&test.db, Duration::from_millis(5), Isolation::Snapshot).unwrap();
        for id in 1..=2 {
            let op = StatementContext::new().in_transaction(transaction.clone());
            let doc = doc! {"_id": id};
            let result = test
                .db
                .insert(&op, &ns("c"), &[doc.as_raw()], true)
                .unwrap();
            assert!(result.errors.is_empty());
        }
        assert_eq!(entries(&test).len(), before);
        let origin = WriteOrigin {
            lsid,
            txn_number: 7,
        };
        let op = StatementContext::new().as_session_write(SessionWrite { origin, row });
        transaction.commit(&op).unwrap();
        let found = entries(&test);
        assert_eq!(found.len(), before + 1);
        let entry = found.last().unwrap();
        assert_eq!(entry.get("txnNumber"), Some(RawValue::Int64(7)));
        assert_eq!(entry.get("ns"), Some(RawValue::String("admin.$cmd")));
        let Some(RawValue::Document(o)) = entry.get("o") else {
            panic!("{entry}");
        };
        let Some(RawValue::Array(ops)) = o.get("applyOps") else {
            panic!("{entry}");
        };
        assert_eq!(ops.iter().count(), 2);
        // An aborted transaction writes no entry.
        let transaction =
            Transaction::begin(&test.db, Duration::from_millis(5), Isolation::Snapshot).unwrap();
        let op = StatementContext::new().in_transaction(transaction.clone());
        let doc = doc! {"_id": 9};
        test.db
            .insert(&op, &ns("c"), &[doc.as_raw()], true)
            .unwrap();
        transaction.abort();
        assert_eq!(entries(&test).len(), found.len());
    });
}

#[test]
fn what_is_visible_has_no_holes() {
    on_every_engine(|test| {
        test.insert("c", doc! {"_id": -1}).unwrap();
        test.db.turn_oplog_on(&test.op).unwrap();
        let stop = AtomicBool::new(false);
        let first = test.db.oplog().visible();
        let mut last = first;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, stop) = (&test.db, &stop);
                scope.spawn(move || {
                    let op = StatementContext::new();
                    for n in 0..300 {
                        let doc = doc! {"_id": thread * 1000 + n};
                        let result = db.insert(&op, &ns("c"), &[doc.as_raw()], true).unwrap();
                        assert!(result.errors.is_empty());
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            // A reader that repeatedly reads up to the visible time sees every entry once.
            let op = StatementContext::new();
            let mut seen = 0;
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) || seen < 1200 {
                test.db
                    .oplog()
                    .wait_after(&op, last, Duration::from_millis(2))
                    .unwrap();
                let until = test.db.oplog().visible();
                let new: Vec<_> = entries(&test)
                    .iter()
                    .filter_map(|entry| OpTime::of(entry.as_raw()))
                    .map(|at| at.ts)
                    .filter(|time| *time > last && *time <= until)
                    .collect();
                seen += new.len();
                last = until;
                assert!(seen <= 1200);
                rounds += 1;
                assert!(rounds < 3000, "{seen} seen");
            }
            assert_eq!(seen, 1200);
            assert!(last.as_u64() - first.as_u64() >= 1200);
        });
    });
}

#[test]
fn the_oldest_entries_are_removed() {
    on_every_engine(|test| {
        test.db.oplog().set_bytes_max(20_000);
        test.insert("c", doc! {"_id": 0}).unwrap();
        test.db.turn_oplog_on(&test.op).unwrap();
        for id in 1..400 {
            test.insert("c", doc! {"_id": id, "text": "x".repeat(100)})
                .unwrap();
        }
        let before = entries(&test);
        assert!(test.db.trim_oplog(&test.op).unwrap() > 0);
        let after = entries(&test);
        assert!(after.len() < before.len());
        assert_eq!(before[before.len() - after.len()..], after[..]);
        let bytes: usize = after.iter().map(|e| e.as_raw().len_bytes()).sum();
        assert!(bytes <= 20_000 && bytes > 15_000, "{bytes}");
        assert_eq!(test.db.trim_oplog(&test.op).unwrap(), 0);
    });
}

#[test]
fn clients_cannot_write_it() {
    on_every_engine(|test| {
        test.db.turn_oplog_on(&test.op).unwrap();
        let ns = Namespace::parse(OPLOG_NAMESPACE).unwrap();
        let doc = doc! {"_id": 1};
        let refused = test
            .db
            .insert(&test.op, &ns, &[doc.as_raw()], true)
            .unwrap_err();
        assert_eq!(refused.code(), sheaf_bson::ErrorCode::INVALID_NAMESPACE);
    });
}
