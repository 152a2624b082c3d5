//! The logtree engine: durability, checkpoints concurrent with writers, limits, backup, repair.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sheaf_storage::folder::Folder;
use sheaf_storage::testing::fault::{Fault, FaultFolder, Remains};
use sheaf_storage::*;

use crate::engines::small_sheaf;
use crate::model::dump;

const T: TableId = TableId(7);
const U: TableId = TableId(8);
const NEVER: Duration = Duration::from_secs(3600);

fn with_tables(folder: &FaultFolder, flush_interval: Duration) -> Arc<LogTreeEngine> {
    let engine = small_sheaf(folder, flush_interval).unwrap();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    batch.create_table(U);
    engine.apply(batch, Durability::Synced).unwrap();
    Arc::new(engine)
}

fn put(engine: &dyn StorageEngine, key: &[u8], durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(T, key, vec![1; 100]);
    engine.apply(batch, durability).unwrap();
}

/// Whether the key would survive a crash of the machine now.
fn is_durable(folder: &FaultFolder, key: &[u8]) -> bool {
    let found = folder.after_crash(Remains::Nothing);
    let engine = small_sheaf(&found, NEVER).unwrap();
    let value = engine.snapshot().unwrap().get(T, key).unwrap();
    value.is_some()
}

#[test]
fn buffered_writes_are_durable_with_the_next_sync() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    put(&*engine, b"a", Durability::Buffered);
    assert!(!is_durable(&folder, b"a"));
    engine.sync().unwrap();
    assert!(is_durable(&folder, b"a"));
    put(&*engine, b"b", Durability::Buffered);
    assert!(!is_durable(&folder, b"b"));
    put(&*engine, b"c", Durability::Synced);
    assert!(is_durable(&folder, b"b") && is_durable(&folder, b"c"));
    put(&*engine, b"d", Durability::Buffered);
    engine.apply(WriteBatch::new(), Durability::Synced).unwrap();
    assert!(is_durable(&folder, b"d"));
    put(&*engine, b"e", Durability::Buffered);
    engine.checkpoint().unwrap();
    assert!(is_durable(&folder, b"e"));
    // Nothing to sync.
    let syncs = engine.stats().syncs;
    engine.sync().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().syncs, syncs);
}

#[test]
fn buffered_writes_are_flushed_in_the_background() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, Duration::from_millis(1));
    for key in [b"a", b"b", b"c"] {
        put(&*engine, key, Durability::Buffered);
        while !is_durable(&folder, key) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn acknowledged_writes_are_durable_among_many_writers() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    thread::scope(|scope| {
        for writer in 0..6_u8 {
            let (folder, engine) = (&folder, &engine);
            scope.spawn(move || {
                for n in 0..24_u8 {
                    let key = [writer, n];
                    // Some sync their own batch, some everything, some nothing.
                    match (writer + n) % 3 {
                        0 => put(&**engine, &key, Durability::Synced),
                        1 => {
                            put(&**engine, &key, Durability::Buffered);
                            engine.sync().unwrap();
                        }
                        _ => {
                            put(&**engine, &key, Durability::Buffered);
                            continue;
                        }
                    }
                    if n % 4 == 0 {
                        assert!(is_durable(folder, &key), "{key:?}");
                    }
                }
            });
        }
    });
    assert_eq!(engine.stats().commits, 6 * 24 + 1);
    engine.sync().unwrap();
    assert!((0..6).all(|writer| is_durable(&folder, &[writer, 23])));
}

/// Writers move an amount between two keys, so that the sum is constant; readers check new and old
/// snapshots, while generations fill and checkpoints run.
#[test]
fn snapshots_are_whole_while_generations_come_and_go() {
    const KEYS: u64 = 50;
    const EACH: u64 = 100;
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, Duration::from_millis(5));
    let key = |n: u64| (n % KEYS).to_be_bytes();
    let mut batch = WriteBatch::new();
    for n in 0..KEYS {
        batch.insert_new(T, &key(n), EACH.to_be_bytes().to_vec());
    }
    engine.apply(batch, Durability::Buffered).unwrap();
    let storage = Storage::new(engine.clone());
    let amount = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
    let check = |snapshot: &dyn Snapshot| {
        let mut cursor = snapshot.cursor(T).unwrap();
        let (mut sum, mut count) = (0, 0);
        let mut found = cursor.seek_first().unwrap();
        while found {
            sum += amount(cursor.value());
            count += 1;
            found = cursor.next().unwrap();
        }
        assert_eq!((sum, count), (KEYS * EACH, KEYS));
        assert_eq!(snapshot.len(T).unwrap(), KEYS);
    };
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..3_u64 {
            let (storage, stop, moves) = (&storage, &stop, &moves);
            scope.spawn(move || {
                let mut random = writer + 1;
                while !stop.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let (from, to) = (key(random >> 33), key((random >> 33) / KEYS));
                    let mut unit = storage.begin().unwrap();
                    if from == to
                        || unit.lock(T, &from, LockMode::Fail).is_err()
                        || unit.lock(T, &to, LockMode::Fail).is_err()
                    {
                        continue;
                    }
                    let a = amount(&unit.get(T, &from).unwrap().unwrap());
                    let b = amount(&unit.get(T, &to).unwrap().unwrap());
                    if a > 0 {
                        // Padded, so that generations fill.
                        let value = |n: u64| [&n.to_be_bytes()[..], &[7; 600]].concat();
                        unit.put(T, &from, value(a - 1));
                        unit.put(T, &to, value(b + 1));
                        unit.commit(Durability::Buffered).unwrap();
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let (engine, stop, moves) = (&engine, &stop, &moves);
        let reader = scope.spawn(move || {
            let old = engine.snapshot().unwrap();
            let mut held = Vec::new();
            while engine.detail().checkpoints < 6 || moves.load(Ordering::Relaxed) < 2000 {
                let snapshot = engine.snapshot().unwrap();
                check(&*snapshot);
                held.push(snapshot);
                if held.len() > 8 {
                    check(&*held.remove(0));
                }
            }
            check(&*old);
            stop.store(true, Ordering::Relaxed);
        });
        reader.join().unwrap();
    });
    drop(storage);
    engine.sync().unwrap();
    let found = folder.after_crash(Remains::Nothing);
    let reopened = small_sheaf(&found, NEVER).unwrap();
    check(&*reopened.snapshot().unwrap());
    assert_eq!(reopened.verify(&mut |_| {}), Ok(vec![]));
}

#[test]
fn writers_are_slowed_and_not_stopped_when_checkpoints_fall_behind() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, Duration::from_millis(5));
    // Many times the maximum checkpoint debt.
    for n in 0..6000_u32 {
        let mut batch = WriteBatch::new();
        batch.insert_new(T, &n.to_be_bytes(), vec![n as u8; 1500]);
        engine.apply(batch, Durability::Buffered).unwrap();
        let stats = engine.detail();
        assert!(stats.memtable_bytes < 4 << 20, "{stats:?}");
    }
    let stats = engine.detail();
    assert!(stats.checkpoints > 3, "{stats:?}");
    assert_eq!(engine.table_stats(T).unwrap().entries, 6000);
    engine.checkpoint().unwrap();
    let stats = engine.detail();
    assert_eq!((stats.versions, stats.checkpoint_debt_bytes), (0, 0));
    assert_eq!(stats.log_segments, 1);
}

#[test]
fn the_log_is_trimmed_and_its_files_are_reused() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    for round in 0..40_u8 {
        for n in 0..30_u8 {
            let mut batch = WriteBatch::new();
            batch.put(T, &[n], vec![round; 2000]);
            engine.apply(batch, Durability::Buffered).unwrap();
        }
        engine.checkpoint().unwrap();
        let names = folder.list().unwrap();
        assert!(names.len() < 12, "{names:?}");
    }
    assert_eq!(engine.table_stats(T).unwrap().entries, 30);
}

#[test]
fn a_restart_reads_only_what_the_tree_lacks() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    for n in 0..50_u8 {
        put(&*engine, &[n], Durability::Buffered);
    }
    engine.checkpoint().unwrap();
    for n in 50..60_u8 {
        put(&*engine, &[n], Durability::Synced);
    }
    let found = folder.after_crash(Remains::Nothing);
    let reopened = small_sheaf(&found, NEVER).unwrap();
    assert_eq!(reopened.recovery().batches, 10);
    assert_eq!(reopened.recovery().torn, None);
    assert_eq!(reopened.table_stats(T).unwrap().entries, 60);
    reopened.close().unwrap();
    let reopened = small_sheaf(&found, NEVER).unwrap();
    assert_eq!(reopened.recovery().batches, 0);
}

#[test]
fn more_log_than_memory_is_read_in_parts() {
    let folder = FaultFolder::default();
    let options = |cache_bytes, generation_bytes| LogTreeOptions {
        cache_bytes,
        generation_bytes: Some(generation_bytes),
        flush_interval: NEVER,
        segment_bytes: 256 << 10,
        ..LogTreeOptions::default()
    };
    let disk: Arc<dyn Folder> = Arc::new(folder.clone());
    let engine = LogTreeEngine::open_in(disk, options(64 << 20, 32 << 20)).unwrap();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    engine.apply(batch, Durability::Buffered).unwrap();
    for n in 0..3000_u32 {
        let mut batch = WriteBatch::new();
        batch.put(T, &(n % 1000).to_be_bytes(), vec![n as u8; 1000]);
        engine.apply(batch, Durability::Buffered).unwrap();
    }
    engine.sync().unwrap();
    let found = folder.after_crash(Remains::Nothing);
    let options = options(4 << 20, 128 << 10);
    let reopened = LogTreeEngine::open_in(Arc::new(found), options).unwrap();
    assert_eq!(reopened.recovery().batches, 3001);
    let stats = reopened.detail();
    assert!(stats.memtable_bytes < 2 << 20, "{stats:?}");
    assert!(stats.pages_written > 0, "{stats:?}");
    assert_eq!(
        dump(&*reopened.snapshot().unwrap(), [T]),
        dump(&*engine.snapshot().unwrap(), [T])
    );
}

#[test]
fn below_the_reserve_only_puts_are_refused() {
    let folder = FaultFolder::default();
    let options = LogTreeOptions {
        reserve_bytes: 1 << 30,
        ..LogTreeOptions::default()
    };
    let engine = LogTreeEngine::open_in(Arc::new(folder.clone()), options).unwrap();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    batch.create_table(U);
    batch.put(T, b"a", "1");
    batch.put(T, b"b", "2");
    engine.apply(batch, Durability::Synced).unwrap();
    engine.checkpoint().unwrap();
    folder.set_capacity(Some(1 << 29));
    let mut batch = WriteBatch::new();
    batch.put(T, b"c", "3");
    // The free space is checked at intervals.
    while engine.apply(batch.clone(), Durability::Synced).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    for durability in [Durability::Buffered, Durability::Synced] {
        let refused = engine.apply(batch.clone(), durability);
        assert!(
            matches!(refused, Err(StorageError::NoSpace { .. })),
            "{refused:?}"
        );
    }
    // Batches that free space are not refused, nor are reads and syncs.
    let mut batch = WriteBatch::new();
    batch.delete(T, b"a");
    batch.delete(T, b"c");
    engine.apply(batch.clone(), Durability::Synced).unwrap();
    // Nor are batches that also put keys, for records of the removals, but at most as many as they
    // remove.
    let mut recorded = batch.clone();
    recorded.put(U, b"recorded", "t");
    engine.apply(recorded.clone(), Durability::Synced).unwrap();
    recorded.put(U, b"more", "m");
    recorded.put(U, b"most", "m");
    let refused = engine.apply(recorded, Durability::Synced);
    assert!(
        matches!(refused, Err(StorageError::NoSpace { .. })),
        "{refused:?}"
    );
    let mut last = WriteBatch::new();
    last.delete(U, b"recorded");
    // Only down to a quarter, which is reserved for the engine.
    folder.set_capacity(Some(1 << 27));
    let mut recorded = last.clone();
    recorded.put(T, b"recorded", "t");
    let refused = engine.apply(recorded, Durability::Synced);
    assert!(
        matches!(refused, Err(StorageError::NoSpace { .. })),
        "{refused:?}"
    );
    engine.apply(last, Durability::Synced).unwrap();
    let load = engine.bulk_load(U, &mut [Ok((vec![1], vec![2]))].into_iter());
    assert!(
        matches!(load, Err(StorageError::NoSpace { .. })),
        "{load:?}"
    );
    let snapshot = engine.snapshot().unwrap();
    assert_eq!((snapshot.len(T), snapshot.len(U)), (Ok(1), Ok(0)));
    engine.checkpoint().unwrap();
    folder.set_capacity(None);
    let mut batch = WriteBatch::new();
    batch.put(T, b"c", "3");
    engine.apply(batch, Durability::Synced).unwrap();
    engine.close().unwrap();
}

#[test]
fn keys_and_values_over_the_limit_are_refused() {
    let engine = with_tables(&FaultFolder::default(), NEVER);
    for (key, value, limit) in [
        (vec![1], vec![0; (64 << 20) + 1], 64 << 20),
        (vec![0; (20 << 20) + 1], vec![], 20 << 20),
    ] {
        let bytes = key.len().max(value.len()) as u64;
        let mut batch = WriteBatch::new();
        batch.put(T, b"a", "1");
        batch.put(T, &key, value.clone());
        let refused = Err(StorageError::TooLarge { bytes, limit });
        assert_eq!(
            engine.apply(batch, Durability::Buffered),
            refused.clone().map(|()| CommitSeq(0))
        );
        let load = engine.bulk_load(U, &mut [Ok((key, value))].into_iter());
        assert_eq!(load, refused.map(|()| 0));
    }
    // A long key is accepted.
    let mut batch = WriteBatch::new();
    let long = vec![7; 5 << 20];
    batch.put(U, &long, "v");
    engine.apply(batch, Durability::Buffered).unwrap();
    let value = |engine: &LogTreeEngine| engine.snapshot().unwrap().get(U, &long).unwrap();
    assert_eq!(value(&engine), Some("v".into()));
    engine.checkpoint().unwrap();
    assert_eq!(value(&engine), Some("v".into()));
    // Many values that are long only in total are accepted.
    let mut batch = WriteBatch::new();
    batch.put(T, b"a", vec![1; 16 << 20]);
    batch.put(T, b"b", vec![2; 16 << 20]);
    batch.put(T, b"c", vec![3; 16 << 20]);
    engine.apply(batch, Durability::Synced).unwrap();
    assert_eq!(engine.table_stats(T).unwrap().value_bytes, 48 << 20);
    engine.checkpoint().unwrap();
    let value = engine.snapshot().unwrap().get(T, b"b").unwrap().unwrap();
    assert!(value == vec![2; 16 << 20]);
}

#[test]
fn reads_during_close_return() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    for n in 0..200_u8 {
        put(&*engine, &[n], Durability::Buffered);
    }
    let snapshot = engine.snapshot().unwrap();
    let mut cursor = snapshot.cursor(T).unwrap();
    assert!(cursor.seek_first().unwrap());
    let kept = cursor.value_bytes();
    engine.close().unwrap();
    assert_eq!(cursor.key(), [0]);
    for n in 1..200 {
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), [n]);
    }
    assert_eq!(snapshot.get(T, &[100]), Ok(Some(kept)));
    // No other process writes to the files while a reader of the old ones is left.
    let early = small_sheaf(&folder, NEVER).map(drop);
    assert!(
        matches!(early, Err(StorageError::InUse { .. })),
        "{early:?}"
    );
    drop((snapshot, cursor));
    let again = small_sheaf(&folder, NEVER).unwrap();
    assert_eq!(again.table_stats(T).unwrap().entries, 200);
}

#[test]
fn the_folder_is_opened_exclusively() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    let again = small_sheaf(&folder, NEVER).map(drop);
    assert!(
        matches!(again, Err(StorageError::InUse { .. })),
        "{again:?}"
    );
    engine.close().unwrap();
    small_sheaf(&folder, NEVER).unwrap();
}

#[test]
fn bulk_loads_concurrent_with_writers() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    let entries = (0..20_000_u32).map(|n| {
        if n % 5000 == 0 {
            put(&*engine, &n.to_be_bytes(), Durability::Buffered);
        }
        Ok((n.to_be_bytes().to_vec(), vec![n as u8; (n % 90) as usize]))
    });
    assert_eq!(engine.bulk_load(U, &mut entries.into_iter()), Ok(20_000));
    let found = folder.after_crash(Remains::Nothing);
    let reopened = small_sheaf(&found, NEVER).unwrap();
    assert_eq!(reopened.table_stats(U).unwrap().entries, 20_000);
    assert_eq!(reopened.table_stats(T).unwrap().entries, 4);
    assert_eq!(
        dump(&*reopened.snapshot().unwrap(), [T, U]),
        dump(&*engine.snapshot().unwrap(), [T, U])
    );
}

#[test]
fn a_backup_of_a_running_engine_can_be_opened() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    let stop = AtomicBool::new(false);
    let copy = FaultFolder::default();
    thread::scope(|scope| {
        let (engine, stop) = (&engine, &stop);
        scope.spawn(move || {
            for n in 0_u32.. {
                let mut batch = WriteBatch::new();
                batch.put(T, &n.to_be_bytes(), vec![n as u8; 300]);
                batch.put(U, &n.to_be_bytes(), "");
                engine.apply(batch, Durability::Buffered).unwrap();
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        while engine.table_stats(T).unwrap().entries < 500 {
            thread::yield_now();
        }
        let bytes = engine
            .backup_in(Arc::new(copy.clone()), &mut || true)
            .unwrap();
        assert!(bytes > 100_000, "{bytes}");
        stop.store(true, Ordering::Relaxed);
    });
    let found = copy.after_crash(Remains::Nothing);
    let opened = small_sheaf(&found, NEVER).unwrap();
    let entries = opened.table_stats(T).unwrap().entries;
    assert!(entries >= 500);
    assert_eq!(opened.table_stats(U).unwrap().entries, entries);
    assert_eq!(opened.verify(&mut |_| {}), Ok(vec![]));
    put(&opened, b"and it goes on", Durability::Synced);
    // A folder that is not empty is left unchanged.
    let again = engine.backup_in(Arc::new(found), &mut || true);
    assert!(matches!(again, Err(StorageError::Io { .. })), "{again:?}");
}

/// After any failure or interruption of a backup, the folder is empty, contains a complete backup,
/// or cannot be opened.
#[test]
fn an_incomplete_backup_is_never_opened() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    for n in 0_u32..400 {
        put(&*engine, &n.to_be_bytes(), Durability::Buffered);
    }
    let expected = dump(&*engine.snapshot().unwrap(), [T, U]);
    let events = {
        let copy = FaultFolder::default();
        engine
            .backup_in(Arc::new(copy.clone()), &mut || true)
            .unwrap();
        copy.events()
    };
    assert!(events > 12, "{events}");
    let mut unfinished = 0;
    for at in 0..events {
        let kind = ErrorKind::Other;
        for fault in [
            Fault::Crash { at },
            Fault::Error { at, kind },
            Fault::ShortWrite { at, kind },
            Fault::ErrorsFrom { at, kind },
        ] {
            let copy = FaultFolder::default();
            copy.set_fault(Some(fault));
            let made = engine.backup_in(Arc::new(copy.clone()), &mut || true);
            if matches!(fault, Fault::Error { .. }) && made.is_err() {
                assert_eq!(copy.list().unwrap(), [""; 0], "{fault:?}");
            }
            for remains in [Remains::Nothing, Remains::All, Remains::Some { seed: at }] {
                let found = copy.after_crash(remains);
                if found.list().unwrap().is_empty() {
                    assert!(made.is_err());
                    continue;
                }
                match small_sheaf(&found, NEVER) {
                    Ok(opened) => {
                        assert_eq!(dump(&*opened.snapshot().unwrap(), [T, U]), expected);
                    }
                    Err(error) => {
                        assert!(made.is_err(), "{fault:?}, {remains:?}: {error}");
                        let is_reported = matches!(error, StorageError::Unfinished { .. });
                        assert!(is_reported, "{fault:?}, {remains:?}: {error}");
                        let folder: Arc<dyn Folder> = Arc::new(found);
                        let verified = verify_files(&folder, &mut |_| {});
                        assert_eq!(verified, Err(error));
                        unfinished += 1;
                    }
                }
            }
        }
    }
    assert!(unfinished > 20, "{unfinished}");
    // A cancelled backup leaves nothing, and does not affect the engine.
    let copy = FaultFolder::default();
    let ended = engine.backup_in(Arc::new(copy.clone()), &mut || false);
    assert_eq!(ended, Err(StorageError::Closed));
    assert_eq!(copy.list().unwrap(), [""; 0]);
    put(&*engine, b"and it goes on", Durability::Synced);
}

/// The backup of a read-only engine includes what the engine accepted after its last checkpoint.
#[test]
fn a_read_only_engine_is_backed_up_completely() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    put(&*engine, b"in the tree", Durability::Synced);
    engine.checkpoint().unwrap();
    put(&*engine, b"in the log", Durability::Synced);
    let kind = ErrorKind::Other;
    let at = folder.events() + 1;
    folder.set_fault(Some(Fault::Error { at, kind }));
    let mut batch = WriteBatch::new();
    batch.put(T, b"in doubt", "x");
    let failed = engine.apply(batch, Durability::Synced);
    assert!(matches!(failed, Err(StorageError::Io { .. })), "{failed:?}");
    assert!(engine.stats().refuses_writes.is_some());
    let copy = FaultFolder::default();
    engine
        .backup_in(Arc::new(copy.clone()), &mut || true)
        .unwrap();
    let opened = small_sheaf(&copy.after_crash(Remains::Nothing), NEVER).unwrap();
    assert_eq!(
        dump(&*opened.snapshot().unwrap(), [T, U]),
        dump(&*engine.snapshot().unwrap(), [T, U])
    );
    put(&opened, b"and it goes on", Durability::Synced);
}

pub fn contents(folder: &FaultFolder) -> BTreeMap<String, Vec<u8>> {
    let names = folder.list().unwrap();
    names
        .into_iter()
        .map(|name| (name.clone(), folder.content(&name).unwrap()))
        .collect()
}

fn filled() -> (FaultFolder, BTreeMap<Vec<u8>, Vec<u8>>) {
    let folder = FaultFolder::default();
    let options = LogTreeOptions {
        cache_bytes: 64 << 20,
        flush_interval: NEVER,
        segment_bytes: 32 << 10,
        reserve_bytes: 0,
        ..LogTreeOptions::default()
    };
    // No automatic checkpoint, so that the log has several segments.
    let engine = LogTreeEngine::open_in(Arc::new(folder.clone()), options).unwrap();
    let mut batch = WriteBatch::new();
    for table in [T, U] {
        batch.create_table(table);
    }
    engine.apply(batch, Durability::Synced).unwrap();
    let mut rows = BTreeMap::new();
    for n in 0..2000_u32 {
        let mut batch = WriteBatch::new();
        let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; (n % 700) as usize]);
        batch.insert_new(T, &key, value.clone());
        engine.apply(batch, Durability::Buffered).unwrap();
        rows.insert(key, value);
        if n == 1500 {
            engine.checkpoint().unwrap();
        }
    }
    engine.sync().unwrap();
    (folder.after_crash(Remains::Nothing), rows)
}

#[test]
fn damage_is_reported_and_the_rest_is_salvaged() {
    let (folder, rows) = filled();
    let whole: Arc<dyn Folder> = Arc::new(folder.clone());
    assert_eq!(verify_files(&whole, &mut |_| {}), Ok(vec![]));
    let files = contents(&folder);
    let length = files["tree"].len();
    let mut damages = 0;
    for at in (8192..length).step_by(length / 9) {
        let mut damaged = files.clone();
        damaged.get_mut("tree").unwrap()[at] ^= 0x10;
        let damaged = FaultFolder::new(damaged);
        let disk: Arc<dyn Folder> = Arc::new(damaged.clone());
        let findings = verify_files(&disk, &mut |_| {}).unwrap();
        let Some(finding) = findings.first() else {
            // No reader uses free space.
            continue;
        };
        assert!(finding.file.contains("tree"), "{finding:?}");
        damages += 1;
        let new = FaultFolder::default();
        let options = LogTreeOptions::default();
        let saved = repair(&disk, Arc::new(new.clone()), options).unwrap();
        assert!(!saved.lost.is_empty(), "{saved:?}");
        let engine = small_sheaf(&new, NEVER).unwrap();
        let found = dump(&*engine.snapshot().unwrap(), [T]);
        let found = &found.0[&T];
        // All of the log and most pages of the tree are saved.
        assert!(found.len() > rows.len() * 3 / 4, "{}", found.len());
        for (key, value) in found {
            assert_eq!(rows.get(key), Some(value));
        }
        assert_eq!(engine.verify(&mut |_| {}), Ok(vec![]));
    }
    assert!(damages > 2, "{damages}");
}

#[test]
fn a_damaged_log_is_refused_with_its_position() {
    let (folder, rows) = filled();
    let files = contents(&folder);
    let segments: Vec<&String> = files
        .keys()
        .filter(|name| name.starts_with("log.0"))
        .collect();
    assert!(segments.len() > 2);
    let mut damaged = files.clone();
    let middle = segments[segments.len() / 2];
    damaged.get_mut(middle).unwrap()[9000] ^= 1;
    let damaged = FaultFolder::new(damaged);
    let Err(StorageError::Corrupt { file, detail }) = small_sheaf(&damaged, NEVER).map(drop) else {
        panic!("opened");
    };
    assert!(file.contains(&**middle), "{file}");
    assert!(detail.contains("offset"), "{detail}");
    let disk: Arc<dyn Folder> = Arc::new(damaged);
    let findings = verify_files(&disk, &mut |_| {}).unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].file, file);
    let new = FaultFolder::default();
    let saved = repair(&disk, Arc::new(new.clone()), LogTreeOptions::default()).unwrap();
    assert_eq!(saved.lost, findings);
    let engine = small_sheaf(&new, NEVER).unwrap();
    let found = dump(&*engine.snapshot().unwrap(), [T]);
    assert!(found.0[&T].len() > 1500 && found.0[&T].len() < rows.len());
}

#[test]
fn missing_files_are_reported() {
    let (folder, _) = filled();
    let files = contents(&folder);
    let without = |gone: &dyn Fn(&str) -> bool| {
        let mut files = files.clone();
        files.retain(|name, _| !gone(name));
        small_sheaf(&FaultFolder::new(files), NEVER).map(drop)
    };
    assert_eq!(without(&|_| false), Ok(()));
    let tree = without(&|name| name == "tree");
    assert!(
        matches!(tree, Err(StorageError::Corrupt { .. })),
        "{tree:?}"
    );
    let log = without(&|name| name.starts_with("log."));
    assert!(matches!(log, Err(StorageError::Corrupt { .. })), "{log:?}");
}

/// A value that changes in one place with every version.
fn version(n: u32) -> Vec<u8> {
    let mut value: Vec<u8> = (0..2000_u32).map(|at| (at * at >> 3) as u8).collect();
    value[1000..1004].copy_from_slice(&n.to_be_bytes());
    value
}

/// Applies the versions after `from` up to `to` of a key, each over the one before.
fn change(engine: &LogTreeEngine, key: &[u8], from: u32, to: u32) -> u64 {
    let mut logged = 0;
    for n in from + 1..=to {
        let mut batch = WriteBatch::new();
        batch.put_over(T, key, version(n), &version(n - 1).into());
        logged += engine.apply_counted(batch, Durability::Buffered).unwrap().1;
    }
    logged
}

#[test]
fn deltas_are_logged_and_replayed_over_any_checkpoint() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    let put = |key: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.insert_new(T, key, version(0));
        engine.apply_counted(batch, Durability::Buffered).unwrap().1
    };
    assert!(put(b"hot") > 2000);
    put(b"cold");
    let before = engine.detail();
    // Header 40, table 3, key and delta 3 + 1 + 4 + 8 + 12, rounded up to a multiple of 8.
    assert_eq!(change(&engine, b"hot", 0, 100), 100 * 72);
    let after = engine.detail();
    assert_eq!(after.log_deltas - before.log_deltas, 100);
    for (checkpoint, from, until) in [(true, 100, 150), (false, 150, 151), (true, 151, 300)] {
        if checkpoint {
            engine.checkpoint().unwrap();
        }
        change(&engine, b"hot", from, until);
        engine.sync().unwrap();
        let found = folder.after_crash(Remains::Nothing);
        let again = small_sheaf(&found, NEVER).unwrap();
        let snapshot = again.snapshot().unwrap();
        assert_eq!(snapshot.get(T, b"hot").unwrap().unwrap(), version(until));
        assert_eq!(snapshot.get(T, b"cold").unwrap().unwrap(), version(0));
        let stats = again.table_stats(T).unwrap();
        assert_eq!((stats.entries, stats.value_bytes), (2, 4000));
    }
}

#[test]
fn predicted_and_actual_log_bytes_agree() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    assert_eq!(engine.bytes_to_log(&WriteBatch::new()), 0);
    let mut batch = WriteBatch::new();
    for n in 0..50_u32 {
        batch.put(T, &n.to_be_bytes(), version(n));
    }
    for batch in [batch.clone(), batch] {
        let (would, before) = (engine.bytes_to_log(&batch), engine.detail().log_bytes);
        let (_, logged) = engine.apply_counted(batch, Durability::Synced).unwrap();
        assert_eq!(would, logged);
        assert_eq!(engine.detail().log_bytes - before, logged);
    }
}

#[test]
fn a_delta_without_its_base_is_reported_as_lost() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    let mut batch = WriteBatch::new();
    for key in [b"a", b"b"] {
        batch.insert_new(T, key, version(0));
    }
    engine.apply(batch, Durability::Synced).unwrap();
    engine.checkpoint().unwrap();
    change(&engine, b"a", 0, 3);
    engine.sync().unwrap();
    let whole = contents(&folder.after_crash(Remains::Nothing));
    // The tree of another history: the same tables, and another value under the key.
    let other = {
        let folder = FaultFolder::default();
        let engine = with_tables(&folder, NEVER);
        let mut batch = WriteBatch::new();
        for key in [b"a", b"b"] {
            batch.insert_new(T, key, version(77));
        }
        engine.apply(batch, Durability::Synced).unwrap();
        engine.checkpoint().unwrap();
        contents(&folder.after_crash(Remains::Nothing))
    };
    let mut mixed = whole.clone();
    mixed.insert("tree".into(), other["tree"].clone());
    let mixed = FaultFolder::new(mixed);
    let Err(StorageError::Corrupt { file, detail }) = small_sheaf(&mixed, NEVER).map(drop) else {
        panic!("opened");
    };
    assert!(file.contains("log.0"), "{file}");
    assert!(
        detail.contains("delta for key 61 of table 7") && detail.contains("at offset"),
        "{detail}"
    );
    let disk: Arc<dyn Folder> = Arc::new(mixed);
    let findings = verify_files(&disk, &mut |_| {}).unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!((&findings[0].file, &findings[0].detail), (&file, &detail));
    let new = FaultFolder::default();
    let saved = repair(&disk, Arc::new(new.clone()), LogTreeOptions::default()).unwrap();
    // Every version that could not be computed, with its position.
    assert_eq!(saved.lost.len(), 3, "{:?}", saved.lost);
    assert!(saved.stale);
    for lost in &saved.lost {
        assert_eq!((lost.table, &lost.file), (Some(T), &file));
        assert!(lost.offset.is_some() && lost.detail.contains("key 61"));
    }
    let engine = small_sheaf(&new, NEVER).unwrap();
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.get(T, b"a").unwrap().unwrap(), version(77));
    assert_eq!(snapshot.get(T, b"b").unwrap().unwrap(), version(77));
}

#[test]
fn a_compaction_shrinks_the_file_and_keeps_the_data() {
    let folder = FaultFolder::default();
    let engine = with_tables(&folder, NEVER);
    let put = |table: TableId, keys: std::ops::Range<u32>| {
        let mut batch = WriteBatch::new();
        for n in keys {
            batch.put(table, &n.to_be_bytes(), vec![n as u8; 500]);
        }
        engine.apply(batch, Durability::Buffered).unwrap();
        engine.checkpoint().unwrap();
    };
    // The last pages stay, and many before them are freed.
    put(T, 0..4000);
    put(U, 0..400);
    let old = engine.snapshot().unwrap();
    let mut batch = WriteBatch::new();
    for n in (0..3900_u32).filter(|n| n % 64 != 0) {
        batch.delete(T, &n.to_be_bytes());
    }
    engine.apply(batch, Durability::Buffered).unwrap();
    let length = || folder.content("tree").unwrap().len() as u64;
    let rows = dump(&*engine.snapshot().unwrap(), [T, U]);
    let before = dump(&*old, [T, U]);
    // A snapshot keeps its pages in place.
    engine.compact().unwrap();
    assert_eq!(dump(&*old, [T, U]), before);
    assert_eq!(dump(&*engine.snapshot().unwrap(), [T, U]), rows);
    drop(old);
    let long = length();
    let freed = engine.compact().unwrap();
    assert_eq!(length(), long - freed);
    // 161 entries of T, 400 of U, and the tree's overhead.
    assert!(length() < 700_000, "{long} - {freed}");
    assert_eq!(dump(&*engine.snapshot().unwrap(), [T, U]), rows);
    assert_eq!(engine.verify(&mut |_| {}), Ok(vec![]));
    assert_eq!(engine.compact(), Ok(0));
    drop(engine);
    let again = small_sheaf(&folder, NEVER).unwrap();
    assert_eq!(dump(&*again.snapshot().unwrap(), [T, U]), rows);
}

#[test]
fn a_missing_log_is_reported_before_the_first_checkpoint_too() {
    let folder = FaultFolder::default();
    let engine =
        LogTreeEngine::open_in(Arc::new(folder.clone()), LogTreeOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    batch.put(T, b"a", "1");
    engine.apply(batch, Durability::Synced).unwrap();
    let files: Vec<(String, Vec<u8>)> = folder
        .list()
        .unwrap()
        .into_iter()
        .map(|name| (name.clone(), folder.content(&name).unwrap()))
        .collect();
    let is_log = |name: &str| name.starts_with("log.0");
    assert_eq!(files.iter().filter(|(name, _)| is_log(name)).count(), 1);
    let whole = FaultFolder::new(files.clone());
    let reopened = LogTreeEngine::open_in(Arc::new(whole), LogTreeOptions::default()).unwrap();
    assert_eq!(reopened.snapshot().unwrap().len(T), Ok(1));
    let gone = files.iter().filter(|(name, _)| !is_log(name)).cloned();
    let emptied = files.iter().map(|(name, content)| match is_log(name) {
        true => (name.clone(), Vec::new()),
        false => (name.clone(), content.clone()),
    });
    for damaged in [gone.collect::<Vec<_>>(), emptied.collect()] {
        let damaged: Arc<dyn Folder> = Arc::new(FaultFolder::new(damaged));
        let found = verify_files(&damaged, &mut |_| {}).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].file.contains("log."), "{found:?}");
        let opened = LogTreeEngine::open_in(damaged, LogTreeOptions::default());
        assert!(
            matches!(opened, Err(StorageError::Corrupt { .. })),
            "{:?}",
            opened.err()
        );
    }
}

#[test]
fn below_the_reserve_free_space_is_released() {
    const MB: u64 = 1 << 20;
    let folder = FaultFolder::default();
    let options = LogTreeOptions {
        reserve_bytes: 8 * MB,
        segment_bytes: MB,
        generation_bytes: Some(MB),
        ..LogTreeOptions::default()
    };
    let engine = LogTreeEngine::open_in(Arc::new(folder.clone()), options).unwrap();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    engine.apply(batch, Durability::Synced).unwrap();
    folder.set_capacity(Some(40 * MB));
    let mut written = 0u32;
    loop {
        let mut batch = WriteBatch::new();
        batch.put(T, &written.to_be_bytes(), vec![written as u8; 20_000]);
        match engine.apply(batch, Durability::Synced) {
            Ok(_) => written += 1,
            Err(StorageError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(written < 10_000);
    }
    for key in 0..written - 10 {
        let mut batch = WriteBatch::new();
        batch.delete(T, &key.to_be_bytes());
        engine.apply(batch, Durability::Synced).unwrap();
    }
    // The put succeeds once the engine has released free space of the file.
    engine.checkpoint().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(T, b"again", vec![1; 1_000_000]);
    let begin = std::time::Instant::now();
    while engine.apply(batch.clone(), Durability::Synced).is_err() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{:?}",
            engine.stats()
        );
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(engine.snapshot().unwrap().len(T), Ok(11));
}
