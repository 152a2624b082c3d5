//! Everything that the logtree engine does concurrently, scaled down: tools that detect undefined
//! behaviour and data races, which slow down execution a hundredfold, run this test to cover all of
//! the engine's unsafe code.
//!
//! ```text
//!   writer, writer   batches over two tables: small and large values, deletes, ranges ─┐
//!   reader           snapshots, new and held; both directions, suspended, values kept  ├─ one engine
//!   loader           tables made, bulk-loaded, read, dropped                           │
//!   keeper           checkpoints, compaction, a backup                                ─┘
//! ```
//!
//! Every batch of a writer puts its round under one key of both tables: a snapshot in which they
//! differ is not atomic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sheaf_storage::folder::Folder;
use sheaf_storage::testing::fault::{FaultFolder, Remains};
use sheaf_storage::tree::PageReading;
use sheaf_storage::*;

const TABLES: [TableId; 2] = [TableId(1), TableId(2)];
const WRITERS: u8 = 2;
const ROUNDS: u32 = if cfg!(miri) { 5 } else { 120 };
/// Maximum number of iterations of the other threads; each runs at least once.
const TURNS: usize = if cfg!(miri) { 1 } else { usize::MAX };
/// Longer than what a node of the memtable stores inline, and than a page.
const LARGE: usize = 9_000;
/// Longer than what is copied out of a page.
const LENT: usize = 70_000;

fn options(reading: PageReading) -> LogTreeOptions {
    LogTreeOptions {
        cache_bytes: 1 << 20,
        generation_bytes: Some(64 << 10),
        flush_interval: Duration::from_millis(1),
        segment_bytes: 32 << 10,
        log_buffer_bytes: 4 << 10,
        reserve_bytes: 0,
        reading,
        ..LogTreeOptions::default()
    }
}

fn is_lent(round: u32) -> bool {
    round % 50 == 2
}

/// A writer's batch of a round: its rows are those of the last rounds, one of them large.
fn batch(writer: u8, round: u32) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for table in TABLES {
        let row = |n: u32| [&[writer, 1][..], &n.to_be_bytes()].concat();
        batch.put(table, &[writer], round.to_be_bytes().to_vec());
        match round % 7 {
            // All rows are deleted; this batch's row is put afterwards.
            3 => batch.delete_range(table, &[writer, 1], Some(&[writer, 2])),
            5 => batch.delete(table, &row(round - 1)),
            _ => {}
        }
        let len = match round % 3 {
            _ if is_lent(round) => LENT,
            0 => LARGE,
            _ => 100,
        };
        batch.put(table, &row(round), vec![writer; len]);
    }
    batch
}

type Rows = BTreeMap<Vec<u8>, usize>;

/// A writer's rows after a round, and their lengths.
fn rows(writer: u8, round: u32) -> Rows {
    let mut rows = Rows::new();
    // The rounds since the last deleted range.
    let begin = (1..=round).rev().find(|round| round % 7 == 3).unwrap_or(1);
    for round in begin..=round {
        let batch = batch(writer, round);
        let writes = batch.table(TABLES[0]).unwrap();
        rows.retain(|key, _| writes.ranges().covering(key).is_none());
        for (key, change) in writes.keys() {
            match &change.write {
                KeyWrite::Put(value) => rows.insert(key.to_vec(), value.len()),
                KeyWrite::Delete => rows.remove(&key[..]),
            };
        }
    }
    rows
}

fn round_of(snapshot: &dyn Snapshot, table: TableId, writer: u8) -> u32 {
    let round = snapshot.get(table, &[writer]).unwrap();
    round.map_or(0, |round| u32::from_be_bytes(round[..].try_into().unwrap()))
}

/// Reads a whole snapshot, forward, backward and by key. Returns the rounds that it sees, and
/// values that outlive it.
fn check(snapshot: &dyn Snapshot) -> (Vec<u32>, Vec<bytes::Bytes>) {
    let mut rounds = Vec::new();
    let mut expected = Rows::new();
    for writer in 0..WRITERS {
        let round = round_of(snapshot, TABLES[0], writer);
        assert_eq!(round, round_of(snapshot, TABLES[1], writer));
        rounds.push(round);
        expected.append(&mut rows(writer, round));
    }
    let mut kept = Vec::new();
    for table in TABLES {
        let mut cursor = snapshot.cursor(table).unwrap();
        let mut found = cursor.seek_first().unwrap();
        for (count, (key, len)) in expected.iter().enumerate() {
            assert!(found);
            assert_eq!((cursor.key(), cursor.value().len()), (&key[..], *len));
            if key.len() > 1 {
                assert!(cursor.value().iter().step_by(999).all(|b| *b == key[0]));
                kept.push(cursor.value_bytes());
            }
            if count % 5 == 2 {
                cursor.suspend();
            }
            found = cursor.next().unwrap();
        }
        assert!(!found);
        let mut found = cursor.seek_last().unwrap();
        for key in expected.keys().rev() {
            assert!(found && cursor.key() == &key[..]);
            found = cursor.prev().unwrap();
        }
        assert!(!found);
        assert_eq!(snapshot.len(table), Ok(expected.len() as u64));
    }
    (rounds, kept)
}

/// Runs all threads in a folder, and checks that the result is what the writers wrote.
fn run_concurrently(folder: &Arc<dyn Folder>, reading: PageReading) {
    let engine = LogTreeEngine::open_in(folder.clone(), options(reading)).unwrap();
    let mut tables = WriteBatch::new();
    TABLES.iter().for_each(|table| tables.create_table(*table));
    engine.apply(tables, Durability::Synced).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (engine, done) = (&engine, &done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let durability = match round % 5 {
                            0 => Durability::Synced,
                            _ => Durability::Buffered,
                        };
                        engine.apply(batch(writer, round), durability).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            // The first snapshot is held to the end: its generations are spilled during the run.
            let first = engine.snapshot().unwrap();
            let (then, _) = check(&*first);
            let mut cursor = first.cursor(TABLES[0]).unwrap();
            let mut last = then.clone();
            let (mut held, mut kept) = (Vec::new(), Vec::new());
            for _ in 0..TURNS {
                let snapshot = engine.snapshot().unwrap();
                let (rounds, values) = check(&*snapshot);
                assert!(rounds.iter().zip(&last).all(|(now, before)| now >= before));
                last = rounds;
                held.push(snapshot);
                kept = values;
                if held.len() > 3 {
                    check(&*held.remove(1));
                }
                let found = cursor.seek_first().unwrap();
                assert_eq!(found, then.iter().any(|round| *round > 0));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
            assert_eq!(check(&*first).0, then);
            drop((held, cursor, first));
            assert!(
                kept.iter()
                    .all(|value| value.iter().all(|b| *b == value[0]))
            );
        });
        scope.spawn(move || {
            for table in (10..).map(TableId).take(TURNS) {
                let mut made = WriteBatch::new();
                made.create_table(table);
                engine.apply(made, Durability::Buffered).unwrap();
                let count = if cfg!(miri) { 20 } else { 2000 };
                let entry = |n: u32| (n.to_be_bytes().to_vec(), vec![n as u8; 300]);
                let mut entries = (0..count).map(|n| Ok(entry(n)));
                let loaded = engine.bulk_load(table, &mut entries).unwrap();
                assert_eq!(loaded, u64::from(count));
                let snapshot = engine.snapshot().unwrap();
                let got = snapshot.get(table, &7_u32.to_be_bytes()).unwrap();
                assert_eq!(got.as_deref(), Some(&entry(7).1[..]));
                let mut dropped = WriteBatch::new();
                dropped.drop_table(table);
                engine.apply(dropped, Durability::Buffered).unwrap();
                assert_eq!(snapshot.len(table), Ok(u64::from(count)));
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        scope.spawn(move || {
            for turn in 0..TURNS {
                engine.checkpoint().unwrap();
                if turn % 4 == 1 {
                    engine.compact().unwrap();
                }
                if turn % 8 == 0 {
                    let copy: Arc<dyn Folder> = Arc::new(FaultFolder::default());
                    engine.backup_in(copy.clone(), &mut || true).unwrap();
                    let copy = LogTreeEngine::open_in(copy, options(PageReading::Cached)).unwrap();
                    check(&*copy.snapshot().unwrap());
                }
                if done.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        // Set also when a writer has failed, so that the others end.
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let all = vec![ROUNDS; WRITERS.into()];
    assert_eq!(check(&*engine.snapshot().unwrap()).0, all);
    // A snapshot may outlive the engine.
    let snapshot = engine.snapshot().unwrap();
    engine.close().unwrap();
    drop(engine);
    assert_eq!(check(&*snapshot).0, all);
    drop(snapshot);
    let engine = LogTreeEngine::open_in(folder.clone(), options(reading)).unwrap();
    assert_eq!(check(&*engine.snapshot().unwrap()).0, all);
    assert_eq!(engine.verify(&mut |_| {}), Ok(vec![]));
}

#[test]
fn all_threads_with_the_page_cache() {
    let folder = FaultFolder::default();
    run_concurrently(&(Arc::new(folder.clone()) as _), PageReading::Cached);
    // The same without a close: the log is replayed.
    let engine = LogTreeEngine::open_in(Arc::new(folder.clone()), options(PageReading::Cached));
    let engine = engine.unwrap();
    let more = ROUNDS + 1;
    for writer in 0..WRITERS {
        engine
            .apply(batch(writer, more), Durability::Synced)
            .unwrap();
    }
    let found = Arc::new(folder.after_crash(Remains::Nothing));
    let engine = LogTreeEngine::open_in(found, options(PageReading::Cached)).unwrap();
    let rounds = check(&*engine.snapshot().unwrap()).0;
    assert_eq!(rounds, vec![more; WRITERS.into()]);
}

#[test]
fn a_snapshot_is_spilled_while_cursors_use_it() {
    // With no memory for data that only snapshots hold.
    let options = LogTreeOptions {
        cache_bytes: 0,
        ..options(PageReading::Cached)
    };
    let engine = LogTreeEngine::open_in(Arc::new(FaultFolder::default()), options).unwrap();
    let mut rows = WriteBatch::new();
    rows.create_table(TABLES[0]);
    for (key, len) in [(b"a", 10), (b"b", LARGE), (b"c", 10)] {
        rows.put(TABLES[0], key, vec![key[0]; len]);
    }
    engine.apply(rows, Durability::Buffered).unwrap();
    let snapshot = engine.snapshot().unwrap();
    let spilled = || engine.detail().memory.snapshots_spilled > 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut cursor = snapshot.cursor(TABLES[0]).unwrap();
            assert!(cursor.seek_first().unwrap());
            let mut kept = Vec::new();
            // Once more after it has been spilled: the cursor switches with its next move.
            let mut more = true;
            while more {
                more = !spilled();
                for key in [b"b", b"c", b"b", b"a"] {
                    let found = match cursor.key() < &key[..] {
                        true => cursor.next(),
                        false => cursor.prev(),
                    };
                    assert_eq!((found, cursor.key()), (Ok(true), &key[..]));
                    assert_eq!(cursor.value().last(), Some(&key[0]));
                    kept = vec![cursor.value_bytes()];
                }
                assert_eq!(cursor.next(), Ok(true));
                kept.push(cursor.value_bytes());
                assert_eq!(cursor.prev(), Ok(true));
            }
            drop(cursor);
            assert_eq!((&kept[0][..], kept[1].len()), (&[b'a'; 10][..], LARGE));
            assert_eq!(kept[1].last(), Some(&b'b'));
        });
        // Generations fill and are checkpointed, and the snapshot is the last holder of the first
        // one.
        while !spilled() {
            let mut batch = WriteBatch::new();
            batch.put(TABLES[0], b"b", vec![0; 4 * LARGE]);
            engine.apply(batch, Durability::Buffered).unwrap();
        }
    });
    assert_eq!(snapshot.len(TABLES[0]), Ok(3));
}

/// Miri cannot map files.
#[cfg(not(miri))]
#[test]
fn all_threads_with_a_mapped_file() {
    use sheaf_storage::folder::DiskFolder;
    let path = tempfile::tempdir().unwrap();
    let folder: Arc<dyn Folder> = Arc::new(DiskFolder::open(path.path()).unwrap());
    run_concurrently(&folder, PageReading::Mapped);
}
