//! The state after a crash: on the simulated disk at every event in turn, and after `kill -9`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheaf_storage::testing::fault::{Fault, FaultDisk, Remains};
use sheaf_storage::*;

use crate::engines::folder;
use crate::model::{Model, Op, TABLES, dump};

const NEVER: Duration = Duration::from_secs(3600);

fn options(flush_interval: Duration) -> RedbOptions {
    RedbOptions {
        // Small, so that pages are also written before their commit.
        cache_bytes: 256 << 10,
        flush_interval,
        ..RedbOptions::default()
    }
}

fn open(disk: &FaultDisk) -> Result<RedbEngine> {
    RedbEngine::open_with_backend(disk.backend(), options(NEVER))
}

/// The script: batches, each with whether it is synced. Every table is created, filled, thinned
/// out, and dropped or replaced at some point.
pub fn script() -> Vec<(Vec<Op>, bool)> {
    let mut steps = Vec::new();
    let (a, b) = (TABLES[1], TABLES[2]);
    steps.push((vec![Op::Create(a), Op::Create(b)], true));
    for round in 0..14_u8 {
        let key = |n: u8| vec![n % 3, n, round / 5];
        let value = |n: u8| vec![round ^ n; 30 + 97 * usize::from(n)];
        let mut ops = vec![Op::Put(TableId::CATALOG, vec![round], vec![round])];
        for n in 0..6 {
            ops.push(Op::Put(a, key(n), value(n)));
            ops.push(Op::Put(b, [value(n), key(n)].concat(), Vec::new()));
        }
        ops.push(Op::Delete(a, key(round)));
        // Two hot keys, one changed in every batch, the other sometimes, and then twice.
        let seed = u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ops.push(Op::Change(a, b"hot".to_vec(), seed));
        if round % 3 == 0 {
            for seed in [7, 77] {
                let seed = (u64::from(round) + seed) << 20;
                ops.push(Op::Change(TableId::CATALOG, b"hot".to_vec(), seed));
            }
        }
        match round {
            4 => ops.extend([Op::Drop(b), Op::Create(b), Op::Put(b, key(1), value(2))]),
            6 => ops.push(Op::Range(a, vec![1], Some(vec![2]))),
            8 => ops.push(Op::Put(a, vec![9], vec![7; 60_000])),
            10 => ops.push(Op::Delete(a, vec![9])),
            11 => ops.push(Op::Range(b, Vec::new(), None)),
            12 => ops.extend([Op::Drop(a), Op::Create(TABLES[3])]),
            13 => ops = vec![Op::Drop(b), Op::Create(a)],
            _ => {}
        }
        steps.push((ops, round % 3 == 1));
    }
    steps
}

/// The states that the script goes through: the initial one, and one after each batch.
pub fn states() -> Vec<Model> {
    let mut states = vec![Model::new()];
    for (ops, _) in script() {
        let mut next = states[states.len() - 1].clone();
        assert!(next.apply_all(&ops), "the script is consistent");
        states.push(next);
    }
    states
}

/// Runs the script until it ends or something fails. Returns how many batches were visible, how
/// many were acknowledged as durable, and the failure.
pub fn run(engine: &dyn StorageEngine) -> (usize, usize, Option<StorageError>) {
    let (mut visible, mut durable) = (0, 0);
    let mut state = Model::new();
    for (index, (ops, synced)) in script().into_iter().enumerate() {
        let batch = state.batch(&ops);
        state.apply_all(&ops);
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        if let Err(error) = engine.apply(batch, durability) {
            return (visible, durable, Some(error));
        }
        visible = index + 1;
        let sync = match index {
            7 => engine.checkpoint(),
            9 => engine.sync(),
            _ => {
                if synced {
                    durable = visible;
                }
                continue;
            }
        };
        match sync {
            Ok(()) => durable = visible,
            Err(error) => return (visible, durable, Some(error)),
        }
    }
    (visible, durable, None)
}

/// Opens what is left, and checks that it is the state after one of the batches from `durable` on.
fn check_found(content: Vec<u8>, states: &[Model], durable: usize, what: &str) {
    let disk = FaultDisk::new(content);
    check_state(&|| open(&disk), states, durable, what);
}

/// Opens twice, and checks that the first state found is the one after one of the batches from
/// `durable` on, and that the engine continues from there.
pub fn check_state<E: StorageEngine>(
    open: &dyn Fn() -> Result<E>,
    states: &[Model],
    durable: usize,
    what: &str,
) {
    let engine = open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = dump(&*engine.snapshot().unwrap(), TABLES);
    let index = states.iter().rposition(|state| *state == found);
    assert!(
        index.is_some_and(|index| index >= durable),
        "{what}: found the state after {index:?} batches, {durable} were durable"
    );
    for (table, rows) in &found.0 {
        let stats = engine.table_stats(*table).unwrap();
        assert_eq!(stats.entries, rows.len() as u64, "{what}");
        let bytes = rows.values().map(|value| value.len() as u64).sum::<u64>();
        assert_eq!(stats.value_bytes, bytes, "{what}");
    }
    // The engine continues from there.
    let mut batch = WriteBatch::new();
    batch.put(TableId::CATALOG, b"after the crash", "x");
    engine.apply(batch, Durability::Synced).unwrap();
    engine.close().unwrap();
    assert_eq!(
        open()
            .unwrap()
            .snapshot()
            .unwrap()
            .get(TableId::CATALOG, b"after the crash"),
        Ok(Some("x".into()))
    );
}

/// Number of events of the script without a fault, on a new disk, and of opening alone.
fn events() -> (u64, u64) {
    let disk = FaultDisk::default();
    let engine = open(&disk).unwrap();
    let opening = disk.events();
    assert_eq!(run(&engine).2, None);
    engine.close().unwrap();
    (opening, disk.events())
}

#[test]
fn durable_batches_survive_a_crash_at_any_event() {
    let states = states();
    let (opening, events) = events();
    assert!(events > 100, "{events} events");
    let mut seed = 0;
    for at in opening..events {
        let disk = FaultDisk::default();
        disk.set_fault(Some(Fault::Crash { at }));
        let engine = open(&disk).unwrap();
        let (_, durable, _) = run(&engine);
        // A close after the crash reaches no disk, and must not hang or panic.
        let _ = engine.close();
        seed += 2;
        for remains in [
            Remains::Nothing,
            Remains::All,
            Remains::Some { seed },
            Remains::Some { seed: seed + 1 },
        ] {
            let what = format!("crash at event {at} of {events}, {remains:?}");
            check_found(disk.after_crash(remains), &states, durable, &what);
        }
    }
}

#[test]
fn an_unfinished_new_file_is_removed() {
    let (folder, path) = folder();
    let unfinished = folder.path().join("data.redb.new");
    std::fs::write(&unfinished, vec![0; 5000]).unwrap();
    let engine = RedbEngine::open(&path, options(NEVER)).unwrap();
    assert_eq!(engine.tables().unwrap(), [TableId::CATALOG]);
    assert!(!unfinished.exists());
}

#[test]
fn a_failed_write_or_sync_ends_writing_and_loses_nothing_durable() {
    let states = states();
    let (opening, events) = events();
    for (at, kind) in (opening..events).step_by(3).zip(
        [ErrorKind::StorageFull, ErrorKind::Other]
            .into_iter()
            .cycle(),
    ) {
        let disk = FaultDisk::default();
        disk.set_fault(Some(Fault::Error { at, kind }));
        let engine = open(&disk).unwrap();
        let (visible, durable, error) = run(&engine);
        let Some(error) = error else {
            // The fault hit the close.
            continue;
        };
        let expected = match kind {
            ErrorKind::StorageFull => matches!(error, StorageError::NoSpace { .. }),
            _ => matches!(error, StorageError::Io { .. }),
        };
        assert!(expected, "event {at}: {error:?}");
        // No more writes, even though the disk works again. The error states the reason. Visible
        // data remains visible if it can be read.
        let mut batch = WriteBatch::new();
        batch.put(TableId::CATALOG, b"k", "v");
        match engine.apply(batch, Durability::Buffered) {
            Err(StorageError::ReadOnly { why, .. }) => assert_eq!(why, error.to_string()),
            other => panic!("event {at}: {other:?}"),
        }
        assert!(matches!(
            engine.checkpoint(),
            Err(StorageError::ReadOnly { .. })
        ));
        if let Ok(snapshot) = engine.snapshot() {
            for (table, rows) in &states[visible].0 {
                for (key, value) in rows {
                    if let Ok(found) = snapshot.get(*table, key) {
                        assert_eq!(found.as_deref(), Some(&value[..]), "event {at}");
                    }
                }
            }
        }
        let _ = engine.close();
        for remains in [Remains::All, Remains::Nothing] {
            let what = format!("{kind:?} at event {at}, {remains:?}");
            check_found(disk.after_crash(remains), &states, durable, &what);
        }
    }
}

#[test]
fn only_a_crash_during_writes_requires_a_check() {
    let repaired = |content: Vec<u8>| {
        let steps = Arc::new(AtomicU64::new(0));
        let seen = steps.clone();
        let disk = FaultDisk::new(content);
        let options = RedbOptions {
            on_repair: Some(Box::new(move |_| {
                seen.fetch_add(1, Ordering::Relaxed);
            })),
            ..options(NEVER)
        };
        RedbEngine::open_with_backend(disk.backend(), options).unwrap();
        steps.load(Ordering::Relaxed) > 0
    };
    let disk = FaultDisk::default();
    let engine = open(&disk).unwrap();
    let put = |engine: &RedbEngine, n: u8| {
        let mut batch = WriteBatch::new();
        batch.put(TableId::CATALOG, &[n], vec![n; 100]);
        engine.apply(batch, Durability::Synced).unwrap();
    };
    put(&engine, 1);
    assert!(repaired(disk.after_crash(Remains::All)));
    engine.checkpoint().unwrap();
    assert!(!repaired(disk.after_crash(Remains::All)));
    put(&engine, 2);
    assert!(repaired(disk.after_crash(Remains::All)));
    engine.close().unwrap();
    assert!(!repaired(disk.after_crash(Remains::All)));
}

/// Passes the file to the child process of the test below, which is this same test run again.
const CHILD: &str = "SHEAF_STORAGE_CRASH_CHILD";
/// Number of rounds, if not the default.
const ROUNDS: &str = "SHEAF_STORAGE_CRASH_ROUNDS";

/// Writes until killed: batches of two keys in two tables, a synced one after every few buffered
/// ones, and prints each acknowledged one.
fn write_until_killed(path: &Path) {
    let engine = Arc::new(RedbEngine::open(path, options(Duration::from_millis(5))).unwrap());
    let writers: Vec<_> = (0..2_u8)
        .map(|writer| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                for n in count(&*engine, writer).. {
                    let mut batch = WriteBatch::new();
                    let key = [&[writer][..], &n.to_be_bytes()].concat();
                    batch.put(TABLES[1], &key, vec![n as u8; (n % 3000) as usize]);
                    batch.put(TABLES[2], &key, "");
                    if n > 20 {
                        let old = [&[writer][..], &(n - 20).to_be_bytes()].concat();
                        batch.put(TABLES[1], &old, "old");
                    }
                    let synced = n % 4 == 3;
                    let durability = if synced {
                        Durability::Synced
                    } else {
                        Durability::Buffered
                    };
                    engine.apply(batch, durability).unwrap();
                    if synced {
                        let mut out = std::io::stdout().lock();
                        writeln!(out, "acknowledged {writer} {n}").unwrap();
                        out.flush().unwrap();
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
}

/// The number of a writer's batches; checks that they are its first ones, and complete.
fn count(engine: &dyn StorageEngine, writer: u8) -> u64 {
    let snapshot = engine.snapshot().unwrap();
    let mut records = snapshot.cursor(TABLES[1]).unwrap();
    let mut index = snapshot.cursor(TABLES[2]).unwrap();
    let mut count = 0_u64;
    let mut found = records.seek(&[writer]).unwrap();
    let mut also = index.seek(&[writer]).unwrap();
    loop {
        let here = found && records.key()[0] == writer;
        assert_eq!(here, also && index.key()[0] == writer, "torn after {count}");
        if !here {
            return count;
        }
        let key = [&[writer][..], &count.to_be_bytes()].concat();
        assert_eq!((records.key(), index.key()), (&key[..], &key[..]));
        let value = records.value();
        assert!(value == b"old" || value == vec![count as u8; (count % 3000) as usize]);
        count += 1;
        found = records.next().unwrap();
        also = index.next().unwrap();
    }
}

#[test]
fn kill_9_loses_no_acknowledged_batch() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let rounds = std::env::var(ROUNDS).map_or(5, |rounds| rounds.parse().unwrap());
    let (_folder, path) = folder();
    {
        let engine = RedbEngine::open(&path, RedbOptions::default()).unwrap();
        let mut batch = WriteBatch::new();
        batch.create_table(TABLES[1]);
        batch.create_table(TABLES[2]);
        engine.apply(batch, Durability::Synced).unwrap();
    }
    let mut written = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::kill_9_loses_no_acknowledged_batch"])
            .args(["--nocapture", "--test-threads=1"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = [None; 2];
        let mut note = |line: &str| {
            // The test runner's own output is on separate lines, or before ours.
            let Some((_, numbers)) = line.split_once("acknowledged ") else {
                return false;
            };
            let (writer, n) = numbers.split_once(' ').unwrap();
            let writer: usize = writer.parse().unwrap();
            acknowledged[writer] = Some(n.parse::<u64>().unwrap());
            true
        };
        // Let it write for a while, then kill it at a time that differs between rounds.
        let mut first = 0;
        while first < 3 {
            let line = lines.next().expect("the child writes until it is killed");
            first += usize::from(note(&line.unwrap()));
        }
        std::thread::sleep(Duration::from_micros(
            std::process::id() as u64 * 7919 * (round + 1) % 60_000,
        ));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(std::result::Result::ok) {
            note(&line);
        }
        let engine = RedbEngine::open(&path, RedbOptions::default()).unwrap();
        for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
            let found = count(&engine, writer as u8);
            if let Some(acknowledged) = acknowledged {
                assert!(
                    found > acknowledged,
                    "writer {writer}: {found} batches found, number {acknowledged} acknowledged"
                );
            }
            written += found;
        }
    }
    assert!(written > 0);
}
