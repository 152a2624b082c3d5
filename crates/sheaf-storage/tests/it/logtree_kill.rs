//! `kill -9` under load, repeatedly on the same files: no acknowledged write is lost, and no batch
//! is torn.
//!
//! The child process is this same test run again. It writes with several threads; each batch has a
//! key in one table, its index entry in another, and a change of the writer's hot key in a third,
//! which the log has as a delta. It prints what has been acknowledged as durable.
//!
//! `SHEAF_KILL_ROUNDS` is the number of rounds (20); with `--nocapture` each round prints how much
//! log was read and how long that took.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sheaf_storage::*;

/// Passes the folder to the child, and the size of its generations.
const CHILD: &str = "SHEAF_STORAGE_KILL_CHILD";
const GENERATION: &str = "SHEAF_STORAGE_KILL_GENERATION";
const ROUNDS: &str = "SHEAF_KILL_ROUNDS";
const NAME: &str = "logtree_kill::kill_9_under_load_loses_no_acknowledged_batch";

const RECORDS: TableId = TableId(1);
const INDEX: TableId = TableId(2);
const HOT: TableId = TableId(3);
const WRITERS: u8 = 4;
/// Number of each writer's latest keys that have their first value.
const RECENT: u64 = 20;
/// Number of batches after which a writer deletes everything that it wrote, and begins again at the
/// next number.
const LAP: u64 = 3000;

fn options(generation_bytes: u64) -> LogTreeOptions {
    LogTreeOptions {
        cache_bytes: 32 << 20,
        generation_bytes: Some(generation_bytes),
        flush_interval: Duration::from_millis(5),
        segment_bytes: 2 << 20,
        ..LogTreeOptions::default()
    }
}

fn key(writer: u8, n: u64) -> Vec<u8> {
    [&[writer][..], &n.to_be_bytes()].concat()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; (n * 7 % 2500) as usize]
}

/// The value of a writer's hot key after its batch `n`: each differs from the previous one in a few
/// places.
fn hot(n: u64) -> Vec<u8> {
    let mut value: Vec<u8> = (0..200_u64)
        .flat_map(|at| (at * at).to_be_bytes())
        .collect();
    value[..8].copy_from_slice(&n.to_be_bytes());
    value[800..808].copy_from_slice(&(n / 3).to_be_bytes());
    value.splice(1000..1000, vec![n as u8; (n / 7 % 40) as usize]);
    value
}

fn write_until_killed(path: &Path) {
    let generation_bytes = std::env::var(GENERATION).unwrap().parse().unwrap();
    let engine = Arc::new(LogTreeEngine::open(path, options(generation_bytes)).unwrap());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                for n in next(&*engine, writer).. {
                    write(&*engine, writer, n);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
}

fn write(engine: &dyn StorageEngine, writer: u8, n: u64) {
    let mut batch = WriteBatch::new();
    if n.is_multiple_of(LAP) && n > 0 {
        for table in [RECORDS, INDEX] {
            batch.delete_range(table, &key(writer, 0), Some(&key(writer, n)));
        }
    }
    batch.insert_new(RECORDS, &key(writer, n), value(n));
    batch.insert_new(INDEX, &key(writer, n), "");
    if n % LAP > RECENT {
        batch.put(RECORDS, &key(writer, n - RECENT), "old");
    }
    match n.checked_sub(1) {
        Some(before) => batch.put_over(HOT, &[writer], hot(n), &hot(before).into()),
        None => batch.insert_new(HOT, &[writer], hot(n)),
    }
    let synced = n % 4 == 3;
    let durability = match synced {
        true => Durability::Synced,
        false => Durability::Buffered,
    };
    engine.apply(batch, durability).unwrap();
    if synced {
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {writer} {n}").unwrap();
        out.flush().unwrap();
    }
}

/// The number of a writer's next batch. Checks that all batches of the lap exist, complete, in both
/// tables.
fn next(engine: &dyn StorageEngine, writer: u8) -> u64 {
    let snapshot = engine.snapshot().unwrap();
    let mut records = snapshot.cursor(RECORDS).unwrap();
    let mut index = snapshot.cursor(INDEX).unwrap();
    let mut found = records.seek(&[writer]).unwrap();
    let mut also = index.seek(&[writer]).unwrap();
    let mut last = None;
    loop {
        let here = found && records.key()[0] == writer;
        assert_eq!(
            here,
            also && index.key()[0] == writer,
            "torn after {last:?}"
        );
        if !here {
            break;
        }
        assert_eq!(records.key(), index.key());
        let mut number = [0; 8];
        number.copy_from_slice(&records.key()[1..]);
        let n = u64::from_be_bytes(number);
        match last {
            None => assert_eq!(n % LAP, 0, "a lap begins with {n}"),
            Some(last) => assert_eq!(n, last + 1, "one is missing"),
        }
        assert!(records.value() == b"old" || records.value() == value(n));
        last = Some(n);
        found = records.next().unwrap();
        also = index.next().unwrap();
    }
    // Only the values of older keys have been replaced.
    if let Some(last) = last {
        let first = last - last % LAP;
        for n in first..=last {
            let found = snapshot.get(RECORDS, &key(writer, n)).unwrap().unwrap();
            let old = n > first && n + RECENT <= last;
            assert_eq!(found == "old", old, "{n} of {first}..={last}");
        }
    }
    let found = snapshot.get(HOT, &[writer]).unwrap();
    assert_eq!(found.as_deref(), last.map(hot).as_deref(), "after {last:?}");
    last.map_or(0, |last| last + 1)
}

#[test]
fn kill_9_under_load_loses_no_acknowledged_batch() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let rounds = std::env::var(ROUNDS).map_or(20, |rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    {
        let engine = LogTreeEngine::open(folder.path(), options(1 << 20)).unwrap();
        let mut batch = WriteBatch::new();
        batch.create_table(RECORDS);
        batch.create_table(INDEX);
        batch.create_table(HOT);
        engine.apply(batch, Durability::Synced).unwrap();
    }
    let mut written = 0;
    for round in 0..rounds {
        // Rounds alternate between continuous checkpoints and none.
        let generation_bytes: u64 = [128 << 10, 1 << 20, 16 << 20][round as usize % 3];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(CHILD, folder.path())
            .env(GENERATION, generation_bytes.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = [None; WRITERS as usize];
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
        while first < 5 {
            let line = lines.next().expect("the child writes until it is killed");
            first += usize::from(note(&line.unwrap()));
        }
        let micros = u64::from(std::process::id()) * 7919 * (round + 1) % 150_000;
        std::thread::sleep(Duration::from_micros(micros));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(std::result::Result::ok) {
            note(&line);
        }
        let engine = LogTreeEngine::open(folder.path(), options(1 << 20)).unwrap();
        let recovery = engine.recovery();
        println!(
            "round {round}: {} batches, {} KB of log read in {:.1} ms",
            recovery.batches,
            recovery.log_bytes >> 10,
            recovery.took.as_secs_f64() * 1e3
        );
        for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
            let next = next(&engine, writer as u8);
            if let Some(acknowledged) = acknowledged {
                assert!(
                    next > acknowledged,
                    "writer {writer}: {next} comes next, number {acknowledged} acknowledged"
                );
            }
            written += next;
        }
        if round % 5 == 4 {
            let damaged = engine.verify(&mut |_| {}).unwrap();
            assert_eq!(damaged, []);
        }
        engine.close().unwrap();
    }
    assert!(written > 0);
}
