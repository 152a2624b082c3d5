//! redb over a simulated disk: durability, the reserve of free space, limits.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sheaf_storage::testing::fault::{FaultDisk, Remains};
use sheaf_storage::*;

use crate::engines::folder;

const T: TableId = TableId(7);
const NEVER: Duration = Duration::from_secs(3600);

fn options(flush_interval: Duration) -> RedbOptions {
    RedbOptions {
        cache_bytes: 1 << 20,
        flush_interval,
        ..RedbOptions::default()
    }
}

fn open(disk: &FaultDisk, flush_interval: Duration) -> Arc<RedbEngine> {
    Arc::new(RedbEngine::open_with_backend(disk.backend(), options(flush_interval)).unwrap())
}

fn with_table(disk: &FaultDisk, flush_interval: Duration) -> Arc<RedbEngine> {
    let engine = open(disk, flush_interval);
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    engine.apply(batch, Durability::Synced).unwrap();
    engine
}

/// Whether the key would survive a crash of the machine now.
fn is_durable(disk: &FaultDisk, key: &[u8]) -> bool {
    let disk = FaultDisk::new(disk.after_crash(Remains::Nothing));
    let engine = open(&disk, NEVER);
    let found = engine.snapshot().unwrap().get(T, key).unwrap();
    found.is_some()
}

fn put(engine: &dyn StorageEngine, key: &[u8], durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(T, key, vec![1; 100]);
    engine.apply(batch, durability).unwrap();
}

#[test]
fn buffered_writes_are_durable_with_the_next_sync() {
    let disk = FaultDisk::default();
    let engine = with_table(&disk, NEVER);
    put(&*engine, b"a", Durability::Buffered);
    assert!(!is_durable(&disk, b"a"));
    engine.sync().unwrap();
    assert!(is_durable(&disk, b"a"));
    put(&*engine, b"b", Durability::Buffered);
    assert!(!is_durable(&disk, b"b"));
    put(&*engine, b"c", Durability::Synced);
    assert!(is_durable(&disk, b"b") && is_durable(&disk, b"c"));
    put(&*engine, b"d", Durability::Buffered);
    engine.apply(WriteBatch::new(), Durability::Synced).unwrap();
    assert!(is_durable(&disk, b"d"));
    // Nothing to sync.
    let syncs = engine.stats().syncs;
    engine.sync().unwrap();
    assert_eq!(engine.stats().syncs, syncs);
}

#[test]
fn buffered_writes_are_flushed_in_the_background() {
    let disk = FaultDisk::default();
    let engine = with_table(&disk, Duration::from_millis(1));
    for key in [b"a", b"b"] {
        put(&*engine, key, Durability::Buffered);
        while !is_durable(&disk, key) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn acknowledged_writes_are_durable_among_many_writers() {
    let disk = FaultDisk::default();
    let engine = with_table(&disk, NEVER);
    let writers: Vec<_> = (0..6_u8)
        .map(|writer| {
            let (disk, engine) = (disk.clone(), engine.clone());
            thread::spawn(move || {
                for n in 0..24_u8 {
                    let key = [writer, n];
                    // Some sync their own batch, some everything, some nothing.
                    match (writer + n) % 3 {
                        0 => put(&*engine, &key, Durability::Synced),
                        1 => {
                            put(&*engine, &key, Durability::Buffered);
                            engine.sync().unwrap();
                        }
                        _ => {
                            put(&*engine, &key, Durability::Buffered);
                            continue;
                        }
                    }
                    if n % 4 == 0 {
                        assert!(is_durable(&disk, &key), "{key:?}");
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(engine.stats().commits, 6 * 24 + 1);
    engine.sync().unwrap();
    assert!((0..6).all(|writer| is_durable(&disk, &[writer, 23])));
}

#[test]
fn a_unit_with_waiters_is_durable_when_acknowledged() {
    let disk = FaultDisk::default();
    let engine = with_table(&disk, NEVER);
    let storage = Storage::new(engine);
    let limit = Duration::from_secs(20);
    let mut holder = storage.begin().unwrap();
    holder.lock(T, b"hot", LockMode::Fail).unwrap();
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let (disk, storage) = (disk.clone(), storage.clone());
            thread::spawn(move || {
                let mut unit = storage.begin().unwrap();
                while unit.lock(T, b"hot", LockMode::Wait { limit }).is_err() {
                    unit.refresh().unwrap();
                }
                let count = unit.get(T, b"hot").unwrap().unwrap().len();
                let own = [b"count", &[count as u8][..]].concat();
                unit.put(T, b"hot", vec![0; count + 1]);
                unit.put(T, &own, "");
                unit.commit(Durability::Synced).unwrap();
                assert!(is_durable(&disk, &own));
            })
        })
        .collect();
    while storage.lock_stats().waits < 4 {
        thread::yield_now();
    }
    holder.put(T, b"hot", vec![0; 1]);
    holder.put(T, b"first", "");
    holder.commit(Durability::Synced).unwrap();
    assert!(is_durable(&disk, b"first"));
    for waiter in waiters {
        waiter.join().unwrap();
    }
    let hot = storage.snapshot().unwrap().get(T, b"hot").unwrap().unwrap();
    assert_eq!(hot.len(), 5);
}

#[test]
fn an_empty_synced_unit_makes_its_reads_durable() {
    let disk = FaultDisk::default();
    let engine = with_table(&disk, NEVER);
    put(&*engine, b"a", Durability::Buffered);
    let storage = Storage::new(engine);
    let unit = storage.begin().unwrap();
    assert!(unit.get(T, b"a").unwrap().is_some());
    assert!(!is_durable(&disk, b"a"));
    assert_eq!(unit.commit(Durability::Synced), Ok(CommitSeq(0)));
    assert!(is_durable(&disk, b"a"));
}

#[test]
fn below_the_reserve_only_puts_are_refused() {
    let (_folder, path) = folder();
    {
        let engine = RedbEngine::open(&path, options(NEVER)).unwrap();
        let mut batch = WriteBatch::new();
        batch.create_table(T);
        batch.put(T, b"a", "1");
        batch.put(T, b"b", "2");
        engine.apply(batch, Durability::Synced).unwrap();
    }
    let engine = RedbEngine::open(
        &path,
        RedbOptions {
            reserve_bytes: u64::MAX,
            ..options(NEVER)
        },
    )
    .unwrap();
    let mut batch = WriteBatch::new();
    batch.put(T, b"c", "3");
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
    batch.create_table(TableId(8));
    engine.apply(batch, Durability::Synced).unwrap();
    let load = engine.bulk_load(TableId(8), &mut [Ok((vec![1], vec![2]))].into_iter());
    assert!(
        matches!(load, Err(StorageError::NoSpace { .. })),
        "{load:?}"
    );
    let snapshot = engine.snapshot().unwrap();
    assert_eq!((snapshot.len(T), snapshot.len(TableId(8))), (Ok(1), Ok(0)));
    engine.checkpoint().unwrap();
    engine.close().unwrap();
}

#[test]
fn keys_and_values_over_the_limit_are_refused() {
    let engine = with_table(&FaultDisk::default(), NEVER);
    let bytes = (1_usize << 30) + 1;
    // Never accessed, so it takes only address space.
    let long = vec![0; bytes];
    let mut batch = WriteBatch::new();
    batch.put(T, b"a", "1");
    batch.put(T, b"b", long);
    let limit = 1 << 30;
    assert_eq!(
        engine.apply(batch, Durability::Buffered),
        Err(StorageError::TooLarge {
            bytes: bytes as u64,
            limit
        })
    );
    // Many values that are long only in total are accepted.
    let mut batch = WriteBatch::new();
    batch.put(T, b"a", vec![0; 10 << 20]);
    batch.put(T, b"b", vec![0; 10 << 20]);
    engine.apply(batch, Durability::Buffered).unwrap();
    assert_eq!(engine.table_stats(T).unwrap().value_bytes, 20 << 20);
}

#[test]
fn reads_during_close_return() {
    let disk = FaultDisk::default();
    let engine = with_table(&disk, NEVER);
    for n in 0..200_u8 {
        put(&*engine, &[n], Durability::Buffered);
    }
    let snapshot = engine.snapshot().unwrap();
    let mut cursor = snapshot.cursor(T).unwrap();
    assert!(cursor.seek_first().unwrap());
    let kept = cursor.value_bytes();
    engine.close().unwrap();
    assert_eq!(cursor.key(), [0]);
    loop {
        match cursor.next() {
            Ok(true) => {}
            Ok(false) | Err(StorageError::Closed) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    match snapshot.get(T, &[100]) {
        Ok(value) => assert_eq!(value, Some(kept)),
        Err(error) => assert_eq!(error, StorageError::Closed),
    }
    drop((snapshot, cursor, engine));
    // The file can be opened at once.
    assert_eq!(open(&disk, NEVER).table_stats(T).unwrap().entries, 200);
}
