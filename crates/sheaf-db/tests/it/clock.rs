//! The cluster time: it never decreases, and commits and clients advance it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sheaf_bson::{ErrorCode, Timestamp, doc};
use sheaf_db::{Db, DbOptions, StatementContext};
use sheaf_storage::testing::checked::CheckedEngine;

use crate::support::{EngineKind, ns, open_engine};

static SECONDS: AtomicU32 = AtomicU32::new(0);

fn open(engine: &Arc<CheckedEngine>) -> Arc<Db> {
    let options = DbOptions {
        clock: || SECONDS.load(Ordering::SeqCst),
        ..DbOptions::default()
    };
    Db::open(engine.clone(), options).unwrap()
}

fn insert(db: &Arc<Db>, id: i32) -> Timestamp {
    let document = doc! {"_id": id};
    db.insert_one(&StatementContext::new(), &ns("c"), document.as_raw())
        .unwrap();
    db.operation_time()
}

fn at(time: u32, increment: u32) -> Timestamp {
    Timestamp { time, increment }
}

/// One test: the machine's clock is process-wide.
#[test]
fn the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let data = || open_engine(EngineKind::Sheaf, folder.path());
    let engine = data();
    SECONDS.store(1000, Ordering::SeqCst);
    let db = open(&engine);
    let op = StatementContext::new();

    // Each commit is later than those before it; a read does not advance the clock.
    let first = insert(&db, 1);
    let second = insert(&db, 2);
    assert!(at(1000, 0) < first && first < second && second.time == 1000);
    db.read_view(&ns("c")).unwrap();
    assert_eq!((db.operation_time(), db.cluster_time()), (second, second));
    // So is every change of the catalog.
    db.drop_collection(&op, &ns("c")).unwrap();
    assert!(db.operation_time() > second);

    // The machine's clock goes back and the process dies: times continue after the last one that
    // may have been used.
    let last = insert(&db, 3);
    SECONDS.store(500, Ordering::SeqCst);
    assert!(insert(&db, 4) > last);
    let last = insert(&db, 5);
    let db = open(&engine);
    assert!(db.operation_time() >= last, "{:?}", db.operation_time());
    assert!(insert(&db, 6) > last);
    assert!(db.operation_time().time < 1100, "not far ahead either");

    // A clean shutdown leaves no gap.
    let last = insert(&db, 7);
    assert_eq!(db.cluster_time(), last);
    db.close().unwrap();
    drop((db, engine));
    let engine = data();
    let db = open(&engine);
    assert_eq!((db.operation_time(), db.cluster_time()), (last, last));

    // A cluster time received from a client is not an operation time, and no commit receives it.
    let received = at(last.time + 100, 7);
    assert_eq!(
        db.advance_cluster_time(received, 10).unwrap_err().code(),
        ErrorCode::CLUSTER_TIME_FAILS_RATE_LIMITER
    );
    db.advance_cluster_time(received, 1000).unwrap();
    assert_eq!((db.operation_time(), db.cluster_time()), (last, received));
    db.advance_cluster_time(last, 0).unwrap();
    assert_eq!(db.cluster_time(), received);

    // A read after the received time does not wait; a read after a later time is refused.
    let beyond = at(received.time, 8);
    assert_eq!(
        db.wait_for_time(&op, beyond).unwrap_err().code(),
        ErrorCode::INVALID_OPTIONS
    );
    db.wait_for_time(&op, received).unwrap();
    assert_eq!(db.operation_time(), received);
    assert!(db.newest_is(received));
    let next = insert(&db, 8);
    assert!(next > received && !db.newest_is(received));

    // With the oplog on, the entries have these times.
    // Expressions read the cluster time only with an oplog.
    assert_eq!(db.read_view(&ns("c")).unwrap().cluster_time, None);
    db.turn_oplog_on(&op).unwrap();
    let inserted = insert(&db, 1000);
    assert_eq!(db.read_view(&ns("c")).unwrap().cluster_time, Some(inserted));
    let on = db.operation_time();
    assert!(on > next);
    let logged = insert(&db, 9);
    assert!(logged > on);
    db.advance_cluster_time(at(logged.time + 5, 0), 1000)
        .unwrap();
    db.wait_for_time(&op, at(logged.time + 5, 0)).unwrap();
    assert_eq!(db.operation_time(), at(logged.time + 5, 0));
    let db = open(&engine);
    assert!(db.operation_time() >= logged);
    crashes_do_not_add_up();
}

/// However often the process dies, the time stays within seconds of the machine's clock.
fn crashes_do_not_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_engine(EngineKind::Sheaf, folder.path());
    SECONDS.store(5000, Ordering::SeqCst);
    let mut last = Timestamp::default();
    for id in 0..30 {
        let db = open(&engine);
        let time = insert(&db, id);
        assert!(time > last);
        last = time;
    }
    assert!(last.time <= 5030, "{last:?}");
}
