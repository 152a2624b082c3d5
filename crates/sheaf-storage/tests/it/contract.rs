//! The trait's contract, case by case, for every engine.

use std::sync::Arc;

use sheaf_storage::*;

use crate::engines::engines;

const T: TableId = TableId(7);
const U: TableId = TableId(0xffff_ffff_ffff_fff0);

fn with_table(engine: &dyn StorageEngine, keys: &[&str]) {
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    for key in keys {
        batch.put(T, key.as_bytes(), format!("value of {key}").into_bytes());
    }
    engine.apply(batch, Durability::Buffered).unwrap();
}

fn keys(snapshot: &dyn Snapshot) -> String {
    let mut cursor = snapshot.cursor(T).unwrap();
    let mut keys = Vec::new();
    let mut found = cursor.seek_first().unwrap();
    while found {
        keys.push(String::from_utf8_lossy(cursor.key()).into_owned());
        found = cursor.next().unwrap();
    }
    keys.join(" ")
}

fn now(engine: &dyn StorageEngine) -> String {
    keys(&*engine.snapshot().unwrap())
}

#[test]
fn a_snapshot_does_not_see_later_batches() {
    for engine in engines() {
        with_table(&**engine, &["a", "c"]);
        let before = engine.snapshot().unwrap();
        let mut cursor = before.cursor(T).unwrap();
        assert!(cursor.seek_first().unwrap());
        let mut batch = WriteBatch::new();
        batch.put(T, b"b", "new");
        batch.delete(T, b"a");
        engine.apply(batch, Durability::Synced).unwrap();
        assert_eq!(keys(&*before), "a c");
        assert_eq!(before.len(T).unwrap(), 2);
        let after = engine.snapshot().unwrap();
        assert_eq!(keys(&*after), "b c");
        assert_eq!(after.get(T, b"b").unwrap().unwrap(), "new");
        assert_eq!(after.get(T, b"a").unwrap(), None);
        // A cursor keeps its snapshot alive.
        drop(before);
        assert_eq!(cursor.value(), b"value of a");
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), b"c");
        assert!(!cursor.next().unwrap());
    }
}

#[test]
fn a_cursor_moves_both_ways() {
    for engine in engines() {
        with_table(&**engine, &["", "b", "d", "dd", "f"]);
        let snapshot = engine.snapshot().unwrap();
        let mut cursor = snapshot.cursor(T).unwrap();
        assert!(!cursor.valid());
        assert!(!cursor.next().unwrap() && !cursor.prev().unwrap());
        assert_eq!((cursor.key(), cursor.value()), (&b""[..], &b""[..]));

        assert!(cursor.seek(b"c").unwrap());
        assert_eq!(cursor.key(), b"d");
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.key(), b"b");
        assert!(cursor.next().unwrap());
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), b"dd");
        assert_eq!(cursor.value_bytes(), "value of dd");

        assert!(cursor.seek_for_prev(b"e").unwrap());
        assert_eq!(cursor.key(), b"dd");
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), b"f");
        assert!(!cursor.next().unwrap());
        // Past the end the cursor stays there until the next seek.
        assert!(!cursor.prev().unwrap());
        assert!(!cursor.valid());

        assert!(cursor.seek_for_prev(b"").unwrap());
        assert_eq!(
            (cursor.key(), cursor.value()),
            (&b""[..], &b"value of "[..])
        );
        assert!(!cursor.prev().unwrap());
        assert!(!cursor.seek(b"g").unwrap());
        assert!(cursor.seek_last().unwrap());
        assert_eq!(cursor.key(), b"f");
        assert!(cursor.seek(b"dd").unwrap());
        assert_eq!(cursor.key(), b"dd");
        assert!(cursor.seek_for_prev(b"dd").unwrap());
        assert_eq!(cursor.key(), b"dd");
    }
}

#[test]
fn a_batch_is_applied_in_order() {
    for engine in engines() {
        with_table(&**engine, &["a", "b", "c", "d", "e"]);
        let mut batch = WriteBatch::new();
        batch.put(T, b"bb", "deleted by the range");
        batch.delete_range(T, b"b", Some(b"d"));
        batch.put(T, b"c", "put after the range");
        batch.delete(T, b"e");
        batch.put(T, b"e", "put after the delete");
        batch.put(T, b"f", "deleted after the put");
        batch.delete(T, b"f");
        batch.delete_range(T, b"x", Some(b"a"));
        engine.apply(batch, Durability::Buffered).unwrap();
        let snapshot = engine.snapshot().unwrap();
        assert_eq!(keys(&*snapshot), "a c d e");
        assert_eq!(
            snapshot.get(T, b"c").unwrap().unwrap(),
            "put after the range"
        );
        assert_eq!(
            snapshot.get(T, b"e").unwrap().unwrap(),
            "put after the delete"
        );
        let stats = engine.table_stats(T).unwrap();
        assert_eq!((stats.entries, stats.key_bytes), (4, 4));
        let values = [
            "value of a",
            "put after the range",
            "value of d",
            "put after the delete",
        ];
        let value_bytes = values.iter().map(|value| value.len() as u64).sum::<u64>();
        assert_eq!(stats.value_bytes, value_bytes);

        let mut batch = WriteBatch::new();
        batch.delete_range(T, b"", None);
        engine.apply(batch, Durability::Buffered).unwrap();
        assert_eq!(now(&**engine), "");
        let stats = engine.table_stats(T).unwrap();
        assert_eq!(
            stats,
            TableStats {
                disk_bytes: 0,
                ..TableStats::default()
            }
        );
    }
}

#[test]
fn tables_are_created_and_dropped_with_their_batches() {
    for engine in engines() {
        let none = engine.snapshot().unwrap();
        assert_eq!(none.contains_table(T), Ok(false));
        assert_eq!(none.get(T, b"a"), Err(StorageError::NoSuchTable(T)));
        assert_eq!(none.len(T), Err(StorageError::NoSuchTable(T)));
        assert!(none.cursor(T).is_err());
        assert_eq!(none.len(TableId::CATALOG), Ok(0));
        with_table(&**engine, &["a"]);
        let first = engine.snapshot().unwrap();

        let mut batch = WriteBatch::new();
        batch.create_table(U);
        batch.put(U, b"u", "1");
        batch.drop_table(T);
        batch.create_table(T);
        batch.put(T, b"b", "2");
        engine.apply(batch, Durability::Buffered).unwrap();
        assert_eq!(engine.tables().unwrap(), [TableId::CATALOG, T, U]);
        assert_eq!(now(&**engine), "b");
        assert_eq!(keys(&*first), "a");
        assert_eq!(first.contains_table(U), Ok(false));

        let mut batch = WriteBatch::new();
        batch.drop_table(T);
        engine.apply(batch, Durability::Buffered).unwrap();
        assert_eq!(engine.tables().unwrap(), [TableId::CATALOG, U]);
        assert_eq!(engine.table_stats(T), Err(StorageError::NoSuchTable(T)));
        assert_eq!(keys(&*first), "a");
        assert_eq!(none.contains_table(T), Ok(false));
    }
}

#[test]
fn a_batch_that_contradicts_the_tables_changes_nothing() {
    type Build = fn(&mut WriteBatch);
    let cases: &[(Build, StorageError)] = &[
        (|b| b.put(U, b"x", "1"), StorageError::NoSuchTable(U)),
        (|b| b.delete(U, b"x"), StorageError::NoSuchTable(U)),
        (
            |b| b.delete_range(U, b"", None),
            StorageError::NoSuchTable(U),
        ),
        (|b| b.drop_table(U), StorageError::NoSuchTable(U)),
        (|b| b.create_table(T), StorageError::TableExists(T)),
        (
            |b| {
                b.create_table(U);
                b.create_table(U);
            },
            StorageError::TableExists(U),
        ),
        (
            |b| {
                b.drop_table(T);
                b.put(T, b"x", "1");
            },
            StorageError::NoSuchTable(T),
        ),
        (
            |b| {
                b.drop_table(T);
                b.drop_table(T);
            },
            StorageError::NoSuchTable(T),
        ),
        (
            |b| b.drop_table(TableId::CATALOG),
            StorageError::NoSuchTable(TableId::CATALOG),
        ),
        (
            |b| b.create_table(TableId::CATALOG),
            StorageError::TableExists(TableId::CATALOG),
        ),
    ];
    for engine in engines() {
        with_table(&**engine, &["a"]);
        for (build, error) in cases {
            let mut batch = WriteBatch::new();
            batch.put(T, b"b", "not to be seen");
            batch.put(TableId::CATALOG, b"c", "not to be seen");
            build(&mut batch);
            let answer = engine.apply(batch, Durability::Buffered);
            assert_eq!(answer, Err(error.clone()), "{}", engine.name());
            assert_eq!(now(&**engine), "a");
            let catalog = engine.snapshot().unwrap().len(TableId::CATALOG).unwrap();
            assert_eq!(catalog, 0);
        }
        assert_eq!(engine.tables().unwrap(), [TableId::CATALOG, T]);
    }
}

#[test]
fn sequences_increase_except_for_empty_batches() {
    for engine in engines() {
        with_table(&**engine, &[]);
        let mut last = CommitSeq(0);
        for key in 0..5_u8 {
            let mut batch = WriteBatch::new();
            batch.put(T, &[key], vec![key]);
            let seq = engine.apply(batch, Durability::Buffered).unwrap();
            assert!(seq > last);
            last = seq;
        }
        let seq = engine.apply(WriteBatch::new(), Durability::Synced).unwrap();
        assert_eq!(seq, last);
    }
}

#[test]
fn bulk_load_fills_an_empty_table_in_order() {
    for engine in engines() {
        with_table(&**engine, &[]);
        let entry = |n: u32| (n.to_be_bytes().to_vec(), vec![b'v'; (n % 700) as usize]);
        let count = engine
            .bulk_load(T, &mut (0..50_000).map(|n| Ok(entry(n))))
            .unwrap();
        assert_eq!(count, 50_000);
        let snapshot = engine.snapshot().unwrap();
        assert_eq!(snapshot.len(T).unwrap(), 50_000);
        let mut cursor = snapshot.cursor(T).unwrap();
        let mut found = cursor.seek_first().unwrap();
        for n in 0..50_000 {
            let (key, value) = entry(n);
            assert!(found);
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            found = cursor.next().unwrap();
        }
        assert!(!found);
        let stats = engine.table_stats(T).unwrap();
        assert_eq!((stats.entries, stats.key_bytes), (50_000, 200_000));
        let again = engine.bulk_load(T, &mut std::iter::empty());
        assert_eq!(again, Err(StorageError::TableNotEmpty(T)));
        let missing = engine.bulk_load(U, &mut std::iter::empty());
        assert_eq!(missing, Err(StorageError::NoSuchTable(U)));
    }
}

#[test]
fn a_bulk_load_that_fails_leaves_the_table_empty() {
    for engine in engines() {
        with_table(&**engine, &[]);
        let entry = |n: u32| Ok((n.to_be_bytes().to_vec(), vec![0; 1000]));
        let mut disordered = (0..30_000).chain([17]).map(entry);
        assert_eq!(
            engine.bulk_load(T, &mut disordered),
            Err(StorageError::OutOfOrder { position: 30_000 })
        );
        assert_eq!(now(&**engine), "");
        let mut twice = [5, 5].into_iter().map(entry);
        assert_eq!(
            engine.bulk_load(T, &mut twice),
            Err(StorageError::OutOfOrder { position: 1 })
        );
        let mut broken = (0..30_000)
            .map(entry)
            .chain([Err(StorageError::WriteConflict)]);
        assert_eq!(
            engine.bulk_load(T, &mut broken),
            Err(StorageError::WriteConflict)
        );
        assert_eq!(now(&**engine), "");
        assert_eq!(engine.bulk_load(T, &mut (0..10).map(entry)), Ok(10));
        assert_eq!(engine.snapshot().unwrap().len(T), Ok(10));
    }
}

#[test]
fn large_values_outlive_the_snapshot() {
    for engine in engines() {
        with_table(&**engine, &[]);
        let large = |n: usize| vec![n as u8; n];
        let sizes = [0_usize, 1, 8191, 8192, 8193, 70_000, 1 << 20, 16 << 20];
        for n in sizes {
            let mut batch = WriteBatch::new();
            batch.put(T, &n.to_be_bytes(), large(n));
            engine.apply(batch, Durability::Buffered).unwrap();
        }
        let snapshot = engine.snapshot().unwrap();
        let mut cursor = snapshot.cursor(T).unwrap();
        let mut kept = Vec::new();
        for n in sizes {
            assert!(cursor.seek(&n.to_be_bytes()).unwrap());
            assert!(cursor.value() == large(n));
            kept.push(cursor.value_bytes());
            kept.push(snapshot.get(T, &n.to_be_bytes()).unwrap().unwrap());
        }
        drop(cursor);
        drop(snapshot);
        // Returned values do not change when their pages are reused.
        for round in 0..3_u8 {
            let mut batch = WriteBatch::new();
            for n in sizes {
                batch.put(T, &n.to_be_bytes(), vec![round; n]);
            }
            engine.apply(batch, Durability::Synced).unwrap();
        }
        for (value, n) in kept.iter().zip(sizes.iter().flat_map(|n| [*n, *n])) {
            assert!(*value == large(n), "{} {n}", engine.name());
        }
    }
}

#[test]
fn open_snapshots_are_counted() {
    for engine in engines() {
        with_table(&**engine, &["a"]);
        assert_eq!(engine.stats().open_snapshots, 0);
        assert_eq!(engine.stats().oldest_snapshot_age, None);
        let first = engine.snapshot().unwrap();
        let second = engine.snapshot().unwrap();
        assert_eq!(engine.stats().open_snapshots, 2);
        let cursor = second.cursor(T).unwrap();
        drop(second);
        assert_eq!(engine.stats().open_snapshots, 2);
        assert!(engine.stats().oldest_snapshot_age.is_some());
        drop(cursor);
        drop(first);
        assert_eq!(engine.stats().open_snapshots, 0);
        let stats = engine.stats();
        assert_eq!((stats.commits, stats.operations), (1, 2));
        assert_eq!(stats.bytes_logged, "avalue of a".len() as u64);
    }
}

#[test]
fn a_closed_engine_returns_an_error() {
    for engine in engines() {
        with_table(&**engine, &["a"]);
        engine.close().unwrap();
        engine.close().unwrap();
        let mut batch = WriteBatch::new();
        batch.put(T, b"b", "2");
        for durability in [Durability::Buffered, Durability::Synced] {
            let answer = engine.apply(batch.clone(), durability);
            assert_eq!(answer, Err(StorageError::Closed));
        }
        assert!(matches!(engine.snapshot(), Err(StorageError::Closed)));
        assert_eq!(engine.sync(), Err(StorageError::Closed));
        assert_eq!(engine.checkpoint(), Err(StorageError::Closed));
        assert_eq!(engine.tables(), Err(StorageError::Closed));
        assert_eq!(engine.table_stats(T), Err(StorageError::Closed));
        let load = engine.bulk_load(T, &mut std::iter::empty());
        assert_eq!(load, Err(StorageError::Closed));
    }
}

#[test]
fn many_threads_write_and_read_at_once() {
    const THREADS: u32 = 4;
    const EACH: u32 = 100;
    for engine in engines() {
        with_table(&**engine, &[]);
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let engine = Arc::clone(&engine);
                std::thread::spawn(move || {
                    for n in 0..EACH {
                        let mut batch = WriteBatch::new();
                        // Two distant keys: a snapshot has both or neither.
                        let key = (thread * EACH + n).to_be_bytes();
                        batch.put(T, &[b"a", &key[..]].concat(), "x");
                        batch.put(T, &[b"z", &key[..]].concat(), "x");
                        let durability = if n % 10 == 0 {
                            Durability::Synced
                        } else {
                            Durability::Buffered
                        };
                        engine.apply(batch, durability).unwrap();
                        let snapshot = engine.snapshot().unwrap();
                        let len = snapshot.len(T).unwrap();
                        assert!(len % 2 == 0 && len >= u64::from(2 * (n + 1)));
                        assert!(
                            snapshot
                                .get(T, &[b"z", &key[..]].concat())
                                .unwrap()
                                .is_some()
                        );
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let stats = engine.table_stats(T).unwrap();
        assert_eq!(stats.entries, u64::from(2 * THREADS * EACH));
        assert_eq!(engine.stats().commits, u64::from(THREADS * EACH) + 1);
    }
}
