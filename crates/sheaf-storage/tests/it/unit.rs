//! Units of work: conflicts, waiting, own writes, savepoints, and the lock table's memory.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sheaf_storage::*;

use crate::engines::engines;

const T: TableId = TableId(7);
const U: TableId = TableId(8);
const FAIL: LockMode = LockMode::Fail;
const WAIT: LockMode = LockMode::Wait {
    limit: Duration::from_secs(20),
};

fn storage(entries: &[(&str, &str)]) -> Storage {
    let storage = Storage::new(Arc::new(MemoryEngine::new()));
    let mut unit = storage.begin().unwrap();
    unit.create_table(T);
    for (key, value) in entries {
        unit.put(T, key.as_bytes(), value.as_bytes().to_vec());
    }
    unit.commit(Durability::Synced).unwrap();
    storage
}

fn dump(view: &dyn Snapshot, table: TableId) -> String {
    let mut cursor = view.cursor(table).unwrap();
    let mut entries = Vec::new();
    let mut found = cursor.seek_first().unwrap();
    while found {
        entries.push(format!(
            "{}={}",
            String::from_utf8_lossy(cursor.key()),
            String::from_utf8_lossy(cursor.value())
        ));
        found = cursor.next().unwrap();
    }
    // Backward the cursor returns the same.
    let mut back = Vec::new();
    let mut found = cursor.seek_last().unwrap();
    while found {
        back.push(format!(
            "{}={}",
            String::from_utf8_lossy(cursor.key()),
            String::from_utf8_lossy(cursor.value())
        ));
        found = cursor.prev().unwrap();
    }
    back.reverse();
    assert_eq!(entries, back);
    assert_eq!(view.len(table).unwrap(), entries.len() as u64);
    entries.join(" ")
}

fn now(storage: &Storage) -> String {
    dump(&*storage.snapshot().unwrap(), T)
}

#[test]
fn a_cursor_suspended_on_an_own_write_continues_in_the_snapshot() {
    for engine in engines() {
        let storage = Storage::new(engine.clone());
        let mut unit = storage.begin().unwrap();
        unit.create_table(T);
        for key in ["a", "c"] {
            unit.put(T, key.as_bytes(), key.as_bytes().to_vec());
        }
        unit.commit(Durability::Synced).unwrap();
        let mut unit = storage.begin().unwrap();
        unit.put(T, b"b", b"own".to_vec());
        let mut cursor = unit.reader().cursor(T).unwrap();
        assert!(cursor.seek(b"b").unwrap());
        cursor.suspend();
        assert_eq!(cursor.key(), b"b");
        assert!(cursor.next().unwrap());
        assert_eq!((cursor.key(), cursor.value()), (&b"c"[..], &b"c"[..]));
        assert!(cursor.seek_for_prev(b"b").unwrap());
        cursor.suspend();
        assert!(cursor.prev().unwrap());
        assert_eq!((cursor.key(), cursor.value()), (&b"a"[..], &b"a"[..]));
    }
}

#[test]
fn the_first_writer_of_a_key_wins() {
    let storage = storage(&[("a", "1")]);
    let mut first = storage.begin().unwrap();
    let mut second = storage.begin().unwrap();
    first.lock(T, b"a", FAIL).unwrap();
    assert_eq!(second.lock(T, b"a", FAIL), Err(StorageError::WriteConflict));
    // Another key, and the same key of another table, have separate locks.
    second.lock(T, b"b", FAIL).unwrap();
    second.lock(U, b"a", FAIL).unwrap();
    first.put(T, b"a", "2");
    first.commit(Durability::Buffered).unwrap();
    // The holder has ended, but the second unit's snapshot is older than its commit.
    assert_eq!(second.lock(T, b"a", FAIL), Err(StorageError::WriteConflict));
    drop(second);
    let mut third = storage.begin().unwrap();
    third.lock(T, b"a", FAIL).unwrap();
    assert_eq!(third.get(T, b"a").unwrap().unwrap(), "2");
    assert_eq!(now(&storage), "a=2");
}

#[test]
fn a_rolled_back_holder_is_no_conflict() {
    let storage = storage(&[("a", "1")]);
    let mut first = storage.begin().unwrap();
    let mut second = storage.begin().unwrap();
    first.lock(T, b"a", FAIL).unwrap();
    first.put(T, b"a", "2");
    drop(first);
    second.lock(T, b"a", FAIL).unwrap();
    second.put(T, b"a", "3");
    second.commit(Durability::Buffered).unwrap();
    assert_eq!(now(&storage), "a=3");
}

#[test]
fn a_waiter_gets_a_conflict_and_can_refresh() {
    let storage = storage(&[("a", "1")]);
    let mut holder = storage.begin().unwrap();
    holder.lock(T, b"a", FAIL).unwrap();
    let (began, has_begun) = mpsc::channel();
    let waiter = {
        let storage = storage.clone();
        thread::spawn(move || {
            let mut unit = storage.begin().unwrap();
            began.send(()).unwrap();
            assert_eq!(unit.lock(T, b"a", WAIT), Err(StorageError::WriteConflict));
            // The lock is held, but the unit must not commit on the old snapshot.
            assert_eq!(unit.lock(T, b"a", WAIT), Err(StorageError::WriteConflict));
            unit.refresh().unwrap();
            unit.lock(T, b"a", WAIT).unwrap();
            assert_eq!(unit.get(T, b"a").unwrap().unwrap(), "2");
            unit.put(T, b"a", "3");
            unit.commit(Durability::Buffered).unwrap();
        })
    };
    has_begun.recv().unwrap();
    holder.put(T, b"a", "2");
    holder.commit(Durability::Buffered).unwrap();
    waiter.join().unwrap();
    assert_eq!(now(&storage), "a=3");
}

#[test]
fn a_stale_unit_does_not_commit() {
    let storage = storage(&[("a", "1")]);
    let mut holder = storage.begin().unwrap();
    holder.lock(T, b"a", FAIL).unwrap();
    let mut unit = storage.begin().unwrap();
    let waiting = storage.clone();
    let committer = thread::spawn(move || {
        while waiting.lock_stats().waits == 0 {
            thread::yield_now();
        }
        holder.put(T, b"a", "2");
        holder.commit(Durability::Buffered).unwrap();
    });
    assert_eq!(unit.lock(T, b"a", WAIT), Err(StorageError::WriteConflict));
    committer.join().unwrap();
    unit.put(T, b"a", "lost update");
    assert_eq!(
        unit.commit(Durability::Buffered),
        Err(StorageError::WriteConflict)
    );
    assert_eq!(now(&storage), "a=2");
}

#[test]
fn waiting_ends_at_the_limit() {
    let storage = storage(&[]);
    let mut holder = storage.begin().unwrap();
    holder.lock(T, b"a", FAIL).unwrap();
    let mut unit = storage.begin().unwrap();
    let limit = Duration::from_millis(5);
    assert!(matches!(
        unit.lock(T, b"a", LockMode::Wait { limit }),
        Err(StorageError::LockTimeout { waited_ms: 5.. })
    ));
    drop(holder);
    unit.lock(T, b"a", LockMode::Wait { limit }).unwrap();
    assert_eq!(storage.lock_stats().timeouts, 1);
}

#[test]
fn a_unit_with_locks_does_not_wait() {
    // Two units that wait for each other's keys would wait indefinitely.
    let storage = storage(&[]);
    let mut first = storage.begin().unwrap();
    let mut second = storage.begin().unwrap();
    first.lock(T, b"a", WAIT).unwrap();
    second.lock(T, b"b", WAIT).unwrap();
    assert_eq!(first.lock(T, b"b", WAIT), Err(StorageError::WriteConflict));
    assert_eq!(second.lock(T, b"a", WAIT), Err(StorageError::WriteConflict));
}

#[test]
fn own_writes_are_read_through_the_reader() {
    let storage = storage(&[("a", "1"), ("c", "1"), ("e", "1"), ("g", "1")]);
    let mut unit = storage.begin().unwrap();
    assert_eq!(dump(&*unit.reader(), T), "a=1 c=1 e=1 g=1");
    unit.put(T, b"b", "2");
    unit.put(T, b"c", "2");
    unit.delete(T, b"g");
    let reader = unit.reader();
    assert_eq!(dump(&*reader, T), "a=1 b=2 c=2 e=1");
    unit.delete_range(T, b"b", Some(b"e"));
    unit.put(T, b"d", "3");
    assert_eq!(dump(&*unit.reader(), T), "a=1 d=3 e=1");
    assert_eq!(unit.get(T, b"b").unwrap(), None);
    assert_eq!(unit.get(T, b"d").unwrap().unwrap(), "3");
    // A reader shows the writes as of the time it was taken.
    assert_eq!(dump(&*reader, T), "a=1 b=2 c=2 e=1");
    assert_eq!(now(&storage), "a=1 c=1 e=1 g=1");
    unit.commit(Durability::Buffered).unwrap();
    assert_eq!(now(&storage), "a=1 d=3 e=1");
}

#[test]
fn tables_are_made_and_dropped_inside_a_unit() {
    let storage = storage(&[("a", "1")]);
    let mut unit = storage.begin().unwrap();
    unit.create_table(U);
    unit.put(U, b"x", "1");
    unit.put(TableId::CATALOG, b"u", "8");
    assert_eq!(dump(&*unit.reader(), U), "x=1");
    assert!(unit.reader().contains_table(U).unwrap());
    assert!(!storage.snapshot().unwrap().contains_table(U).unwrap());
    unit.drop_table(T);
    assert_eq!(unit.get(T, b"a"), Err(StorageError::NoSuchTable(T)));
    unit.create_table(T);
    assert_eq!(dump(&*unit.reader(), T), "");
    unit.commit(Durability::Buffered).unwrap();
    assert_eq!(now(&storage), "");
    assert_eq!(dump(&*storage.snapshot().unwrap(), U), "x=1");
    assert_eq!(storage.engine().tables().unwrap(), [TableId::CATALOG, T, U]);
}

#[test]
fn a_refused_batch_rolls_the_unit_back() {
    let storage = storage(&[("a", "1")]);
    let mut unit = storage.begin().unwrap();
    unit.lock(T, b"a", FAIL).unwrap();
    unit.put(T, b"a", "2");
    unit.put(U, b"x", "no such table");
    assert_eq!(
        unit.commit(Durability::Buffered),
        Err(StorageError::NoSuchTable(U))
    );
    assert_eq!(now(&storage), "a=1");
    let mut next = storage.begin().unwrap();
    next.lock(T, b"a", FAIL).unwrap();
}

#[test]
fn a_savepoint_rolls_back_later_writes() {
    let storage = storage(&[("a", "1"), ("b", "1")]);
    let mut unit = storage.begin().unwrap();
    unit.put(T, b"a", "2");
    let outer = unit.savepoint();
    unit.put(T, b"a", "3");
    unit.delete(T, b"b");
    let inner = unit.savepoint();
    unit.delete_range(T, b"", None);
    unit.create_table(U);
    unit.put(U, b"x", "1");
    unit.drop_table(T);
    unit.rollback_to(&inner);
    assert_eq!(dump(&*unit.reader(), T), "a=3");
    assert!(!unit.reader().contains_table(U).unwrap());
    unit.release(inner);
    unit.rollback_to(&outer);
    assert_eq!(dump(&*unit.reader(), T), "a=2 b=1");
    unit.put(T, b"c", "4");
    unit.release(outer);
    unit.commit(Durability::Buffered).unwrap();
    assert_eq!(now(&storage), "a=2 b=1 c=4");
}

#[test]
fn a_contradiction_is_rolled_back_with_its_savepoint() {
    let storage = storage(&[("a", "1")]);
    let mut unit = storage.begin().unwrap();
    let savepoint = unit.savepoint();
    unit.drop_table(T);
    unit.put(T, b"a", "into a dropped table");
    unit.rollback_to(&savepoint);
    unit.release(savepoint);
    unit.put(T, b"b", "2");
    unit.commit(Durability::Buffered).unwrap();
    assert_eq!(now(&storage), "a=1 b=2");
}

#[test]
fn the_lock_table_removes_unneeded_entries() {
    let storage = storage(&[]);
    let commit = |key: u32| {
        let mut unit = storage.begin().unwrap();
        unit.lock(T, &key.to_be_bytes(), FAIL).unwrap();
        unit.put(T, &key.to_be_bytes(), "x");
        unit.commit(Durability::Buffered).unwrap();
    };
    (0..100).for_each(commit);
    assert_eq!(storage.lock_stats().known_keys, 0);
    let old = storage.begin().unwrap();
    (0..100).for_each(commit);
    assert_eq!(storage.lock_stats().known_keys, 100);
    let young = storage.begin().unwrap();
    drop(old);
    (100..1000).for_each(commit);
    // Keys that the younger unit may need are kept; those that only the older one could need are
    // removed.
    let known = storage.lock_stats().known_keys;
    assert!((900..1000).contains(&known), "{known}");
    drop(young);
    assert_eq!(storage.lock_stats().known_keys, 0);
    assert_eq!(storage.lock_stats().open_units, 0);
}

#[test]
fn no_concurrent_increment_is_lost() {
    const THREADS: u64 = 8;
    const EACH: u64 = 200;
    let storage = storage(&[("n", "0")]);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let storage = storage.clone();
            thread::spawn(move || {
                for _ in 0..EACH {
                    let mut unit = storage.begin().unwrap();
                    loop {
                        // Some retry the whole unit, some wait and refresh.
                        let mode = if thread % 2 == 0 { FAIL } else { WAIT };
                        match unit.lock(T, b"n", mode) {
                            Ok(()) => break,
                            Err(StorageError::WriteConflict) if thread % 4 == 1 => {
                                unit.refresh().unwrap();
                            }
                            Err(StorageError::WriteConflict) => {
                                drop(unit);
                                thread::yield_now();
                                unit = storage.begin().unwrap();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let n = unit.get(T, b"n").unwrap().unwrap();
                    let n: u64 = std::str::from_utf8(&n).unwrap().parse().unwrap();
                    unit.put(T, b"n", (n + 1).to_string().into_bytes());
                    unit.commit(Durability::Buffered).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(now(&storage), format!("n={}", THREADS * EACH));
    assert_eq!(storage.lock_stats().known_keys, 0);
}

#[test]
fn transfers_keep_the_total() {
    const THREADS: u64 = 4;
    const EACH: u64 = 60;
    const ACCOUNTS: u64 = 5;
    for engine in engines() {
        let storage = Storage::new(engine.clone());
        let mut unit = storage.begin().unwrap();
        unit.create_table(T);
        for account in 0..ACCOUNTS {
            unit.put(T, &[account as u8], 100_u64.to_be_bytes().to_vec());
        }
        unit.commit(Durability::Buffered).unwrap();
        let balance = |view: &dyn Snapshot, account: u64| {
            let value = view.get(T, &[account as u8]).unwrap().unwrap();
            u64::from_be_bytes((*value).try_into().unwrap())
        };
        let total = |view: &dyn Snapshot| (0..ACCOUNTS).map(|a| balance(view, a)).sum::<u64>();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let storage = &storage;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let from = (thread + n) % ACCOUNTS;
                        let to = (from + 1 + n % (ACCOUNTS - 1)) % ACCOUNTS;
                        loop {
                            let mut unit = storage.begin().unwrap();
                            let view = unit.reader();
                            assert_eq!(total(&*view), 100 * ACCOUNTS);
                            // Read first, then locked, as in a transaction.
                            let amount = balance(&*view, from).min(7);
                            thread::yield_now();
                            let first = unit.lock(T, &[from as u8], FAIL);
                            if first
                                .and_then(|()| unit.lock(T, &[to as u8], FAIL))
                                .is_err()
                            {
                                drop(unit);
                                thread::yield_now();
                                continue;
                            }
                            for (account, balance) in [
                                (from, balance(&*view, from) - amount),
                                (to, balance(&*view, to) + amount),
                            ] {
                                unit.put(T, &[account as u8], balance.to_be_bytes().to_vec());
                            }
                            assert_eq!(total(&*unit.reader()), 100 * ACCOUNTS);
                            let durability = if n % 16 == 0 {
                                Durability::Synced
                            } else {
                                Durability::Buffered
                            };
                            unit.commit(durability).unwrap();
                            break;
                        }
                    }
                });
            }
        });
        assert_eq!(total(&*storage.snapshot().unwrap()), 100 * ACCOUNTS);
        let stats = storage.lock_stats();
        assert_eq!((stats.open_units, stats.known_keys), (0, 0));
        assert_eq!(engine.stats().commits, THREADS * EACH + 1);
    }
}

#[test]
fn the_first_hint_describes_the_state_before_the_unit() {
    let storage = storage(&[("blind", "0")]);
    let mut unit = storage.begin().unwrap();
    unit.insert_new(T, b"new", "12");
    unit.delete_with(T, b"new", Prior::Present { value_len: 2 });
    unit.put(T, b"new", "1");
    unit.put(T, b"blind", "1");
    unit.delete_with(T, b"blind", Prior::Present { value_len: 1 });
    let savepoint = unit.savepoint();
    unit.delete_with(T, b"new", Prior::Present { value_len: 1 });
    unit.insert_new(T, b"other", "1");
    unit.rollback_to(&savepoint);
    unit.release(savepoint);
    unit.delete(T, b"other");
    let keys = unit.writes().table(T).unwrap().keys();
    let changes: Vec<_> = keys
        .iter()
        .map(|(key, change)| (&key[..], change.write.clone(), change.prior))
        .collect();
    assert_eq!(
        changes,
        [
            (&b"blind"[..], KeyWrite::Delete, Prior::Unknown),
            (&b"new"[..], KeyWrite::Put("1".into()), Prior::Absent),
            (&b"other"[..], KeyWrite::Delete, Prior::Unknown),
        ]
    );
}

#[test]
fn the_first_base_describes_the_state_before_the_unit() {
    let value = |byte: u8| bytes::Bytes::from(vec![byte; 100]);
    let storage = storage(&[]);
    let mut unit = storage.begin().unwrap();
    unit.insert_new(T, b"k", value(0));
    unit.put(T, b"blind", value(0));
    unit.commit(Durability::Buffered).unwrap();
    let mut unit = storage.begin().unwrap();
    unit.put_over(T, b"k", value(1), &value(0));
    unit.put_over(T, b"k", value(2), &value(1));
    unit.put(T, b"blind", value(1));
    let savepoint = unit.savepoint();
    unit.put_over(T, b"k", value(3), &value(2));
    unit.delete_with(T, b"k", Prior::value(&value(3)));
    unit.put_over(T, b"blind", value(2), &value(1));
    unit.insert_new(T, b"new", value(1));
    unit.put_over(T, b"new", value(2), &value(1));
    unit.rollback_to(&savepoint);
    unit.release(savepoint);
    unit.put_over(T, b"k", value(4), &value(2));
    unit.insert_new(T, b"new", value(1));
    unit.put_over(T, b"new", value(2), &value(1));
    let keys = unit.writes().table(T).unwrap().keys();
    let bases: Vec<_> = keys.iter().map(|(k, c)| (&k[..], c.base.clone())).collect();
    let expected = [
        (&b"blind"[..], None),
        (b"k", Some(value(0))),
        (b"new", None),
    ];
    assert_eq!(bases, expected);
    assert_eq!(keys[&b"k"[..]].write, KeyWrite::Put(value(4)));
}

#[test]
fn a_false_hint_is_detected() {
    let engine = Arc::new(testing::checked::CheckedEngine::new(Arc::new(
        MemoryEngine::new(),
    )));
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    // A batch knows the tables that it creates: hints are ignored there.
    batch.delete_with(T, b"a", Prior::Present { value_len: 9 });
    batch.insert_new(T, b"b", "12");
    engine.apply(batch, Durability::Buffered).unwrap();
    let mut batch = WriteBatch::new();
    batch.put_with(T, b"b", "1234", Prior::value(b"12"));
    engine.apply(batch, Durability::Buffered).unwrap();
    for prior in [Prior::Absent, Prior::Present { value_len: 2 }] {
        let mut batch = WriteBatch::new();
        batch.put_with(T, b"b", "1", prior);
        let engine = engine.clone();
        let apply = move || engine.apply(batch, Durability::Buffered);
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(apply));
        assert!(refused.is_err(), "{prior:?}");
    }
}
