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

/// One test: the machine's clock is one for the process.
#[test]
fn the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let data = || open_engine(EngineKind::Sheaf, folder.path());
    let engine = data();
    SECONDS.store(1000, Ordering::SeqCst);
    let db = open(&engine);
    let op = StatementContext::new();

    // Each commit is later than those before it; reading is no commit.
    let first = insert(&db, 1);
    let second = insert(&db, 2);
    assert!(at(1000, 0) < first && first < second && second.time == 1000);
    db.read_view(&ns("c")).unwrap();
    assert_eq!((db.operation_time(), db.cluster_time()), (second, second));
    // So is every change of the catalog.
    db.drop_collection(&op, &ns("c")).unwrap();
    assert!(db.operation_time() > second);

    // The machine's clock goes back, and the process dies: times go on from where they may have been.
    let last = insert(&db, 3);
    SECONDS.store(500, Ordering::SeqCst);
    assert!(insert(&db, 4) > last);
    let last = insert(&db, 5);
    let db = open(&engine);
    assert!(db.operation_time() >= last, "{:?}", db.operation_time());
    assert!(insert(&db, 6) > last);
    assert!(db.operation_time().time < 1100, "not far ahead either");

    // An orderly end leaves no gap.
    let last = insert(&db, 7);
    assert_eq!(db.cluster_time(), last);
    db.close().unwrap();
    drop((db, engine));
    let engine = data();
    let db = open(&engine);
    assert_eq!((db.operation_time(), db.cluster_time()), (last, last));

    // What a client has heard of elsewhere: not yet an operation's time, and never given to one.
    let heard = at(last.time + 100, 7);
    assert_eq!(
        db.hear_of(heard, 10).unwrap_err().code(),
        ErrorCode::CLUSTER_TIME_FAILS_RATE_LIMITER
    );
    db.hear_of(heard, 1000).unwrap();
    assert_eq!((db.operation_time(), db.cluster_time()), (last, heard));
    db.hear_of(last, 0).unwrap();
    assert_eq!(db.cluster_time(), heard);

    // Reading after it is waiting for nothing; beyond it there is nothing to wait for.
    let beyond = at(heard.time, 8);
    assert_eq!(
        db.wait_for_time(&op, beyond).unwrap_err().code(),
        ErrorCode::INVALID_OPTIONS
    );
    db.wait_for_time(&op, heard).unwrap();
    assert_eq!(db.operation_time(), heard);
    assert!(db.newest_is(heard));
    let next = insert(&db, 8);
    assert!(next > heard && !db.newest_is(heard));

    // With the oplog the entries have these times.
    db.turn_oplog_on(&op).unwrap();
    let on = db.operation_time();
    assert!(on > next);
    let logged = insert(&db, 9);
    assert!(logged > on);
    db.hear_of(at(logged.time + 5, 0), 1000).unwrap();
    db.wait_for_time(&op, at(logged.time + 5, 0)).unwrap();
    assert_eq!(db.operation_time(), at(logged.time + 5, 0));
    let db = open(&engine);
    assert!(db.operation_time() >= logged);
}
