//! The cost of the storage engines, without a database on top.
//!
//! ```text
//!   cargo run --release -p sheaf-bench --bin storage_bench -- [memory|redb] [--entries N]
//!       [--seconds S] [--folder F] [--flush-ms MS] [only ...]
//! ```
//!
//! `only` is any of: load get cursor seek commit unit sync hot concurrent raw large reopen. Choose
//! a folder on the disk to measure; the data is removed when the program ends. Prints one line per
//! measurement: name, number, unit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redb::TableDefinition;
use sheaf_storage::{
    Durability, LockMode, MemoryEngine, RedbEngine, RedbOptions, Storage, StorageEngine,
    StorageError, TableId, WriteBatch,
};

const RECORDS: TableId = TableId(1);
const INDEX: TableId = TableId(2);
const VALUE_BYTES: usize = 500;

struct Options {
    engine: String,
    entries: u64,
    duration: Duration,
    folder: PathBuf,
    flush: Duration,
    only: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        engine: "redb".into(),
        entries: 200_000,
        duration: Duration::from_secs(1),
        folder: std::env::temp_dir(),
        flush: Duration::from_millis(100),
        only: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "memory" | "redb" => options.engine = arg,
            "--entries" => options.entries = value()?.parse().map_err(|e| format!("{e}"))?,
            "--seconds" => {
                let seconds = value()?.parse().map_err(|e| format!("{e}"))?;
                options.duration = Duration::from_secs_f64(seconds);
            }
            "--flush-ms" => {
                let ms = value()?.parse().map_err(|e| format!("{e}"))?;
                options.flush = Duration::from_millis(ms);
            }
            "--folder" => options.folder = value()?.into(),
            _ => options.only.push(arg),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    let folder = tempfile::tempdir_in(&options.folder)?;
    let path = folder.path().join("bench.redb");
    let engine: Arc<dyn StorageEngine> = match options.engine.as_str() {
        "memory" => Arc::new(MemoryEngine::new()),
        _ => Arc::new(RedbEngine::open(&path, redb_options(&options))?),
    };
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|o| o == name);
    load(&*engine, options.entries)?;
    if wanted("get") {
        get(&*engine, &options)?;
    }
    if wanted("cursor") {
        cursor(&*engine, &options)?;
    }
    if wanted("seek") {
        seek(&*engine, &options)?;
    }
    for threads in [1, 16] {
        for durability in [Durability::Buffered, Durability::Synced] {
            if wanted("commit") {
                commit(&engine, &options, threads, durability)?;
            }
            if wanted("unit") {
                unit(&engine, &options, threads, durability, false)?;
            }
            if wanted("sync") && durability == Durability::Buffered {
                unit(&engine, &options, threads, durability, true)?;
            }
            if wanted("hot") {
                hot(&engine, &options, threads, durability)?;
            }
        }
    }
    if wanted("concurrent") {
        for durability in [Durability::Buffered, Durability::Synced] {
            reads_during_commits(&engine, &options, durability)?;
        }
    }
    if wanted("raw") && options.engine == "redb" {
        raw(&folder.path().join("raw.redb"), &options)?;
    }
    if wanted("large") {
        large(&*engine, &options)?;
    }
    if wanted("reopen") && options.engine == "redb" {
        engine.close()?;
        let start = Instant::now();
        let engine = RedbEngine::open(&path, redb_options(&options))?;
        report(
            "open after a clean close",
            start.elapsed().as_secs_f64() * 1e3,
            "ms",
        );
        let mut batch = WriteBatch::new();
        batch.put(RECORDS, b"after", "x");
        engine.apply(batch, Durability::Synced)?;
        // A copy of the file while it is open is the state after a crash.
        let crashed = folder.path().join("crashed.redb");
        std::fs::copy(&path, &crashed)?;
        let bytes = std::fs::metadata(&crashed)?.len();
        report("file", bytes as f64 / 1e6, "MB");
        let start = Instant::now();
        RedbEngine::open(&crashed, redb_options(&options))?;
        report(
            "open after a crash",
            start.elapsed().as_secs_f64() * 1e3,
            "ms",
        );
    }
    Ok(())
}

fn redb_options(options: &Options) -> RedbOptions {
    RedbOptions {
        cache_bytes: 1 << 30,
        flush_interval: options.flush,
        ..RedbOptions::default()
    }
}

fn report(name: &str, number: f64, unit: &str) {
    println!("{name:<44} {number:>12.1} {unit}");
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Maps `n` to a pseudo-random number below `entries`.
fn scattered(n: u64, entries: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % entries
}

fn load(engine: &dyn StorageEngine, entries: u64) -> Result<(), StorageError> {
    let mut batch = WriteBatch::new();
    batch.create_table(RECORDS);
    batch.create_table(INDEX);
    engine.apply(batch, Durability::Synced)?;
    let value = vec![7; VALUE_BYTES];
    let start = Instant::now();
    engine.bulk_load(
        RECORDS,
        &mut (0..entries).map(|n| Ok((key(n).to_vec(), value.clone()))),
    )?;
    let took = start.elapsed().as_secs_f64();
    report(
        "bulk load, values of 500 bytes",
        entries as f64 / took,
        "keys/s",
    );
    let start = Instant::now();
    engine.bulk_load(
        INDEX,
        &mut (0..entries).map(|n| Ok(([&[1; 16][..], &key(n)[..]].concat(), vec![]))),
    )?;
    let took = start.elapsed().as_secs_f64();
    report(
        "bulk load, index keys of 24 bytes",
        entries as f64 / took,
        "keys/s",
    );
    let stats = engine.stats();
    if let Some(bytes) = stats.file_bytes {
        report("file", bytes as f64 / 1e6, "MB");
    }
    Ok(())
}

/// Runs `operation` for `duration` on one thread; returns nanoseconds per call.
fn timed(duration: Duration, mut operation: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < duration {
        for _ in 0..100 {
            operation(count);
            count += 1;
        }
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn get(engine: &dyn StorageEngine, options: &Options) -> Result<(), StorageError> {
    let snapshot = engine.snapshot()?;
    let mut bytes = 0;
    let ns = timed(options.duration, |n| {
        let found = snapshot.get(RECORDS, &key(scattered(n, options.entries)));
        bytes += found.ok().flatten().map_or(0, |value| value.len());
    });
    report("get, one snapshot", ns, "ns");
    let ns = timed(options.duration, |n| {
        let key = key(scattered(n, options.entries));
        let found = engine.snapshot().and_then(|s| s.get(RECORDS, &key));
        bytes += found.ok().flatten().map_or(0, |value| value.len());
    });
    report("snapshot and get", ns, "ns");
    assert!(bytes > 0);
    Ok(())
}

fn cursor(engine: &dyn StorageEngine, options: &Options) -> Result<(), StorageError> {
    let snapshot = engine.snapshot()?;
    for (name, table) in [("records", RECORDS), ("index", INDEX)] {
        let mut cursor = snapshot.cursor(table)?;
        let mut bytes = 0;
        let ns = timed(options.duration, |_| {
            if !cursor.next().unwrap_or(false) {
                let _ = cursor.seek_first();
            }
            bytes += cursor.value().len() + cursor.key().len();
        });
        report(&format!("cursor next, {name}"), ns, "ns");
        let ns = timed(options.duration, |_| {
            if !cursor.prev().unwrap_or(false) {
                let _ = cursor.seek_last();
            }
            bytes += cursor.value().len() + cursor.key().len();
        });
        report(&format!("cursor prev, {name}"), ns, "ns");
        assert!(bytes > 0);
    }
    let mut cursor = snapshot.cursor(RECORDS)?;
    let mut bytes = 0;
    let ns = timed(options.duration, |_| {
        if !cursor.next().unwrap_or(false) {
            let _ = cursor.seek_first();
        }
        bytes += cursor.value_bytes().len();
    });
    report("cursor next and value_bytes, records", ns, "ns");
    Ok(())
}

fn seek(engine: &dyn StorageEngine, options: &Options) -> Result<(), StorageError> {
    let snapshot = engine.snapshot()?;
    let mut cursor = snapshot.cursor(INDEX)?;
    let mut bytes = 0;
    let mut target = [&[1; 16][..], &key(0)[..]].concat();
    let ns = timed(options.duration, |n| {
        target[16..].copy_from_slice(&key(scattered(n, options.entries)));
        let _ = cursor.seek(&target);
        bytes += cursor.key().len();
    });
    report("seek, index, random", ns, "ns");
    let ns = timed(options.duration, |n| {
        target[16..].copy_from_slice(&key(n * 10 % options.entries));
        let _ = cursor.seek(&target);
        bytes += cursor.key().len();
    });
    report("seek, index, ten entries ahead", ns, "ns");
    let ns = timed(options.duration, |n| {
        target[16..].copy_from_slice(&key(scattered(n, options.entries)));
        if let Ok(mut cursor) = snapshot.cursor(INDEX) {
            let _ = cursor.seek(&target);
            bytes += cursor.key().len();
        }
    });
    report("new cursor and seek, index", ns, "ns");
    assert!(bytes > 0);
    Ok(())
}

/// Runs `operation(thread, n)` on `threads` threads for the configured duration; prints operations
/// per second.
fn contend(
    name: &str,
    engine: &Arc<dyn StorageEngine>,
    options: &Options,
    threads: u64,
    operation: impl Fn(u64, u64) -> Result<(), StorageError> + Send + Sync + 'static,
) -> Result<(), StorageError> {
    let before = engine.stats();
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let operation = Arc::new(operation);
    let start = Instant::now();
    let running: Vec<_> = (0..threads)
        .map(|thread| {
            let (stop, count) = (stop.clone(), count.clone());
            let operation = operation.clone();
            thread::spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    operation(thread, n)?;
                    n += 1;
                }
                count.fetch_add(n, Ordering::Relaxed);
                Ok(())
            })
        })
        .collect();
    thread::sleep(options.duration);
    stop.store(true, Ordering::Relaxed);
    for thread in running {
        thread.join().expect("a worker panicked")?;
    }
    let took = start.elapsed().as_secs_f64();
    let count = count.load(Ordering::Relaxed) as f64;
    let after = engine.stats();
    let groups = (after.groups - before.groups).max(1) as f64;
    println!(
        "{name:<44} {:>12.1} commits/s  {:>5.1} per group  {:>6.0} syncs/s  {:>6.0} bytes/commit",
        count / took,
        (after.commits - before.commits) as f64 / groups,
        (after.syncs - before.syncs) as f64 / took,
        (after.bytes_written - before.bytes_written) as f64 / count.max(1.0),
    );
    Ok(())
}

fn name(what: &str, threads: u64, durability: Durability) -> String {
    format!("{what}, {durability:?}, {threads} threads").to_lowercase()
}

/// Replaces one record and adds one index entry.
fn commit(
    engine: &Arc<dyn StorageEngine>,
    options: &Options,
    threads: u64,
    durability: Durability,
) -> Result<(), StorageError> {
    let (worker, entries) = (engine.clone(), options.entries);
    contend(
        &name("apply", threads, durability),
        engine,
        options,
        threads,
        move |thread, n| {
            let mut batch = WriteBatch::new();
            let record = scattered(n * 31 + thread, entries);
            batch.put(RECORDS, &key(record), vec![8; VALUE_BYTES]);
            let entry = [&[2; 16][..], &key(record)[..], &key(thread)[..]].concat();
            batch.put(INDEX, &entry, "");
            worker.apply(batch, durability).map(drop)
        },
    )
}

/// The same writes through a unit of work with a lock. With `sync`, a separate sync follows the
/// commit, as for a command that consists of several units.
fn unit(
    engine: &Arc<dyn StorageEngine>,
    options: &Options,
    threads: u64,
    durability: Durability,
    sync: bool,
) -> Result<(), StorageError> {
    let (storage, entries) = (Storage::new(engine.clone()), options.entries);
    let what = if sync { "unit, then sync" } else { "unit" };
    contend(
        &name(what, threads, durability),
        engine,
        options,
        threads,
        move |thread, n| {
            let record = key(scattered(n * 37 + thread, entries));
            loop {
                let mut unit = storage.begin()?;
                match unit.lock(RECORDS, &record, LockMode::Fail) {
                    Err(StorageError::WriteConflict) => continue,
                    other => other?,
                }
                unit.get(RECORDS, &record)?;
                unit.put(RECORDS, &record, vec![8; VALUE_BYTES]);
                let entry = [&[3; 16][..], &record[..], &key(thread)[..]].concat();
                unit.put(INDEX, &entry, "");
                unit.commit(durability)?;
                if sync {
                    storage.engine().sync()?;
                }
                return Ok(());
            }
        },
    )
}

/// All threads increment the same record.
fn hot(
    engine: &Arc<dyn StorageEngine>,
    options: &Options,
    threads: u64,
    durability: Durability,
) -> Result<(), StorageError> {
    let storage = Storage::new(engine.clone());
    let limit = Duration::from_secs(10);
    contend(
        &name("hot", threads, durability),
        engine,
        options,
        threads,
        move |_, _| {
            let mut unit = storage.begin()?;
            loop {
                match unit.lock(RECORDS, b"hot", LockMode::Wait { limit }) {
                    Ok(()) => break,
                    Err(StorageError::WriteConflict) => unit.refresh()?,
                    Err(error) => return Err(error),
                }
            }
            let n = unit
                .get(RECORDS, b"hot")?
                .map_or(0, |v| v.len() as u64 % 100);
            unit.put(RECORDS, b"hot", vec![9; n as usize + 1]);
            unit.commit(durability).map(drop)
        },
    )
}

/// Latency of a reader that takes a new snapshot and gets a value, while one thread commits without
/// pause.
fn reads_during_commits(
    engine: &Arc<dyn StorageEngine>,
    options: &Options,
    durability: Durability,
) -> Result<(), StorageError> {
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (engine, stop, entries) = (engine.clone(), stop.clone(), options.entries);
        thread::spawn(move || {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut batch = WriteBatch::new();
                batch.put(RECORDS, &key(scattered(n, entries)), vec![8; VALUE_BYTES]);
                engine.apply(batch, durability)?;
                n += 1;
            }
            Ok::<_, StorageError>(())
        })
    };
    let mut nanos = Vec::new();
    let start = Instant::now();
    while start.elapsed() < options.duration {
        let one = Instant::now();
        let key = key(scattered(nanos.len() as u64, options.entries));
        engine.snapshot()?.get(RECORDS, &key)?;
        nanos.push(one.elapsed().as_nanos() as u64);
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("the writer panicked")?;
    nanos.sort_unstable();
    for (name, part) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
        let name = format!("snapshot and get during {durability:?} commits, {name}");
        report(
            &name.to_lowercase(),
            nanos[nanos.len() * part / 1000] as f64,
            "ns",
        );
    }
    Ok(())
}

/// The writes of `commit` with redb directly, each in its own transaction: the baseline for
/// grouping waiting batches.
fn raw(path: &Path, options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
    const INDEX: TableDefinition<&[u8], &[u8]> = TableDefinition::new("index");
    let db = Arc::new(redb::Database::create(path)?);
    let txn = db.begin_write()?;
    {
        let mut records = txn.open_table(RECORDS)?;
        for n in 0..options.entries {
            records.insert(&key(n)[..], &[7; VALUE_BYTES][..])?;
        }
        txn.open_table(INDEX)?;
    }
    txn.commit()?;
    for threads in [1_u64, 16] {
        for durability in [redb::Durability::None, redb::Durability::Immediate] {
            let stop = Arc::new(AtomicBool::new(false));
            let start = Instant::now();
            let running: Vec<_> = (0..threads)
                .map(|thread| {
                    let (db, stop, entries) = (db.clone(), stop.clone(), options.entries);
                    thread::spawn(move || -> Result<u64, redb::Error> {
                        let mut n = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let mut txn = db.begin_write()?;
                            txn.set_durability(durability)?;
                            let record = scattered(n * 31 + thread, entries);
                            {
                                let mut records = txn.open_table(RECORDS)?;
                                records.insert(&key(record)[..], &[8; VALUE_BYTES][..])?;
                                let entry =
                                    [&[2; 16][..], &key(record)[..], &key(thread)[..]].concat();
                                txn.open_table(INDEX)?.insert(&entry[..], &[][..])?;
                            }
                            txn.commit()?;
                            n += 1;
                        }
                        Ok(n)
                    })
                })
                .collect();
            thread::sleep(options.duration);
            stop.store(true, Ordering::Relaxed);
            let mut count = 0;
            for thread in running {
                count += thread.join().expect("a worker panicked")?;
            }
            let rate = count as f64 / start.elapsed().as_secs_f64();
            let name = format!("redb directly, {durability:?}, {threads} threads").to_lowercase();
            report(&name, rate, "commits/s");
        }
    }
    Ok(())
}

/// The cost of reading a value, by its size.
fn large(engine: &dyn StorageEngine, options: &Options) -> Result<(), StorageError> {
    let sizes = [200, 1000, 2000, 4000, 8000, 16_000, 64_000, 1_000_000];
    let mut batch = WriteBatch::new();
    for n in 0..100 {
        for size in sizes {
            batch.put(
                RECORDS,
                format!("large {size} {n:03}").as_bytes(),
                vec![1; size],
            );
        }
    }
    engine.apply(batch, Durability::Synced)?;
    let snapshot = engine.snapshot()?;
    for size in sizes {
        let mut bytes = 0;
        let ns = timed(options.duration / 4, |n| {
            let key = format!("large {size} {:03}", n % 100);
            let value = snapshot.get(RECORDS, key.as_bytes());
            bytes += value.ok().flatten().map_or(0, |value| value[0] as usize);
        });
        report(&format!("get a value of {size} bytes"), ns, "ns");
        assert!(bytes > 0);
    }
    Ok(())
}
