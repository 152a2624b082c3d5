//! Documents that have expired are deleted, and no others.

use std::sync::atomic::Ordering::Relaxed;

use sheaf_bson::{DateTime, DocBuf, RawValue, doc};
use sheaf_db::CollMod;
use sheaf_db::ttl::TtlCounters;

use crate::support::{TestDb, ns, on_every_engine};

const HOUR: i64 = 3_600_000;

fn at(hours: i64) -> DateTime {
    DateTime(hours * HOUR)
}

/// A TTL pass at that hour; returns how many documents it deleted.
fn pass(t: &TestDb, hours: i64) -> u64 {
    let counters = TtlCounters::default();
    let mut failed = |index: &str, error: &sheaf_bson::Error| panic!("{index}: {error}");
    t.db.ttl_pass(&t.op, at(hours), &counters, &mut failed)
        .unwrap();
    assert_eq!(counters.passes.load(Relaxed), 1);
    assert!(counters.sub_passes.load(Relaxed) >= 1);
    t.assert_valid("c");
    counters.deleted_documents.load(Relaxed)
}

fn ids(t: &TestDb) -> Vec<i64> {
    let id = |doc: &DocBuf| doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap();
    t.documents("c").iter().map(id).collect()
}

#[test]
fn by_the_date_and_the_seconds() {
    on_every_engine(|t| {
        t.insert_all(
            "c",
            &[
                doc! {"_id": 1, "at": at(1)},
                doc! {"_id": 2, "at": at(5)},
                doc! {"_id": 3},
                doc! {"_id": 4, "at": null},
                doc! {"_id": 5, "at": "1970-01-01"},
                doc! {"_id": 6, "at": 0},
                // The earliest date counts, whatever else the array holds.
                doc! {"_id": 7, "at": [at(9), "x", at(2)]},
                doc! {"_id": 8, "at": [at(8), at(9)]},
                doc! {"_id": 9, "at": []},
                doc! {"_id": 10, "at": DateTime::MIN},
            ],
        );
        t.create_index("c", doc! {"at": 1}, doc! {"expireAfterSeconds": 3600})
            .unwrap();
        assert_eq!(pass(&t, 1), 1);
        assert_eq!(ids(&t), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(pass(&t, 2), 1);
        assert_eq!(pass(&t, 2), 0);
        assert_eq!(pass(&t, 3), 1);
        assert_eq!(ids(&t), [2, 3, 4, 5, 6, 8, 9]);
        assert_eq!(pass(&t, 1000), 2);
        assert_eq!(ids(&t), [3, 4, 5, 6, 9]);
    });
}

#[test]
fn partial_descending_and_nested() {
    on_every_engine(|t| {
        let event =
            |id: i32, hour: i64, done: bool| doc! {"_id": id, "e": {"at": at(hour)}, "done": done};
        t.insert_all(
            "c",
            &[event(1, 1, true), event(2, 1, false), event(3, 9, true)],
        );
        t.create_index(
            "c",
            doc! {"e.at": -1},
            doc! {"expireAfterSeconds": 0, "partialFilterExpression": {"done": true}},
        )
        .unwrap();
        assert_eq!(pass(&t, 5), 1);
        assert_eq!(ids(&t), [2, 3]);
    });
}

#[test]
fn hidden_indexes_too_and_a_change_of_the_seconds() {
    on_every_engine(|t| {
        t.insert_all(
            "c",
            &[doc! {"_id": 1, "at": at(1)}, doc! {"_id": 2, "at": at(2)}],
        );
        t.create_index("c", doc! {"at": 1}, doc! {"hidden": true})
            .unwrap();
        assert_eq!(pass(&t, 100), 0);
        let change = |seconds: i64| {
            let request = doc! {"index": {"name": "at_1", "expireAfterSeconds": seconds}};
            let request = CollMod::parse(request.as_raw()).unwrap();
            t.db.coll_mod(&t.op, &ns("c"), &request).unwrap();
        };
        change(1_000_000);
        assert_eq!(pass(&t, 100), 0);
        change(98 * 3600);
        assert_eq!(pass(&t, 100), 2);
    });
}

#[test]
fn more_than_a_batch_of_several_collections() {
    on_every_engine(|t| {
        let docs: Vec<DocBuf> = (0..2500)
            .map(|n| doc! {"_id": n, "at": at(i64::from(n % 2) * 100)})
            .collect();
        t.insert_all("c", &docs);
        t.insert_all("d", &docs[..10]);
        for name in ["c", "d"] {
            t.create_index(name, doc! {"at": 1}, doc! {"expireAfterSeconds": 0})
                .unwrap();
        }
        assert_eq!(pass(&t, 50), 1250 + 5);
        t.assert_valid("d");
        let left = t.documents("c");
        assert!(
            left.iter()
                .all(|doc| doc.get("at") == Some(RawValue::DateTime(at(100))))
        );
    });
}
