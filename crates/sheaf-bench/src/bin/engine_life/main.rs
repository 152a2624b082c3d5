//! What the storage engine does over time: bytes written for an update, the file's size, readers' latency beside
//! checkpoints, recovery, memory.
//!
//! ```text
//!   cargo run --release -p sheaf-bench --bin engine_life -- [--folder F] [--cache-mb M] WHAT [...]
//!
//!   amplification [KEYS ...]      bytes logged and written for an update, at so many keys (1, 10 and 50 million)
//!   space MINUTES [SNAPSHOT_S]    the file under updates, with a snapshot of so many seconds always open; then most is deleted
//!   latency [SECONDS]             a reader's p50, p99, p99.9: idle, beside checkpoints, beside an index build
//!   recovery [MB ...]             opening after a crash, with so much log to replay
//!   changes [N ...]               the same, with so many values changed in one place: logged whole, and as what changed
//!   memory DATA_MB                reads and writes on so much data; what is resident
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sheaf_bench::engines::{Result, mixed};
use sheaf_bench::measure::{per_mille, resident_bytes, resident_bytes_max};
use sheaf_storage::{Durability, SheafEngine, SheafOptions, StorageEngine, TableId, WriteBatch};

const RECORDS: TableId = TableId(1);
const INDEX: TableId = TableId(2);

struct Options {
    folder: PathBuf,
    cache_bytes: u64,
}

fn main() -> Result<()> {
    let mut options = Options {
        folder: std::env::temp_dir(),
        cache_bytes: 1 << 30,
    };
    let mut rest = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--folder" => options.folder = args.next().ok_or("--folder needs a path")?.into(),
            "--cache-mb" => {
                let mb: u64 = args.next().ok_or("--cache-mb needs a number")?.parse()?;
                options.cache_bytes = mb << 20;
            }
            _ => rest.push(arg),
        }
    }
    let Some((what, rest)) = rest.split_first() else {
        return Err(
            "say what to measure: amplification, space, latency, recovery, changes or memory"
                .into(),
        );
    };
    let mut numbers = Vec::new();
    for number in rest {
        numbers.push(number.parse::<u64>()?);
    }
    let first = |default| numbers.first().copied().unwrap_or(default);
    match what.as_str() {
        "amplification" => {
            if numbers.is_empty() {
                numbers = vec![1_000_000, 10_000_000, 50_000_000];
            }
            amplification(&options, &numbers)
        }
        "space" => space(&options, first(10), numbers.get(1).copied().unwrap_or(0)),
        "latency" => latency(&options, first(10)),
        "recovery" => {
            if numbers.is_empty() {
                numbers = vec![16, 64, 256, 1024];
            }
            recovery(&options, &numbers)
        }
        "changes" => {
            if numbers.is_empty() {
                numbers = vec![100_000, 400_000];
            }
            changes(&options, &numbers)
        }
        "memory" => memory(&options, first(4096)),
        _ => Err(format!("what is {what}?").into()),
    }
}

fn open(options: &Options, folder: &Path) -> Result<Arc<SheafEngine>> {
    let engine = SheafEngine::open(
        folder,
        SheafOptions {
            cache_bytes: options.cache_bytes,
            ..SheafOptions::default()
        },
    )?;
    Ok(Arc::new(engine))
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Bytes of which half repeat.
fn value(n: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 16);
    let mut state = mixed(n ^ (version << 40));
    while value.len() < bytes {
        value.extend_from_slice(&state.to_le_bytes());
        value.extend_from_slice(b"category");
        state = mixed(state);
    }
    value.truncate(bytes);
    value
}

fn load(engine: &dyn StorageEngine, keys: u64, bytes: usize) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.create_table(RECORDS);
    engine.apply(batch, Durability::Synced)?;
    engine.bulk_load(
        RECORDS,
        &mut (0..keys).map(|n| Ok((key(n).to_vec(), value(n, 0, bytes)))),
    )?;
    Ok(())
}

fn update(engine: &dyn StorageEngine, n: u64, version: u64, bytes: usize) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(RECORDS, &key(n), value(n, version, bytes));
    engine.apply(batch, Durability::Buffered)?;
    Ok(())
}

/// Random updates of values of 100 bytes, a million of them, until all are in their place.
fn amplification(options: &Options, sizes: &[u64]) -> Result<()> {
    const UPDATES: u64 = 1_000_000;
    const BYTES: usize = 100;
    println!(
        "{:>12} {:>12} {:>14} {:>16} {:>16} {:>12} {:>10}",
        "keys", "file, MB", "given, B", "logged+paged, B", "checkpoints", "µs/update", "syncs"
    );
    for &keys in sizes {
        let folder = tempfile::tempdir_in(&options.folder)?;
        let engine = open(options, folder.path())?;
        load(&*engine, keys, BYTES)?;
        engine.checkpoint()?;
        let before = engine.stats();
        let start = Instant::now();
        for n in 0..UPDATES {
            update(&*engine, mixed(n) % keys, n + 1, BYTES)?;
        }
        let took = start.elapsed();
        engine.checkpoint()?;
        let after = engine.stats();
        println!(
            "{keys:>12} {:>12.0} {:>14.1} {:>16.1} {:>16} {:>12.2} {:>10}",
            after.file_bytes.unwrap_or(0) as f64 / 1e6,
            (after.bytes_logged - before.bytes_logged) as f64 / UPDATES as f64,
            (after.bytes_written - before.bytes_written) as f64 / UPDATES as f64,
            after.checkpoints - before.checkpoints,
            took.as_secs_f64() * 1e6 / UPDATES as f64,
            after.syncs - before.syncs,
        );
        engine.close()?;
    }
    Ok(())
}

/// The file's size over minutes of updates as fast as four threads can.
fn space(options: &Options, minutes: u64, snapshot_seconds: u64) -> Result<()> {
    const KEYS: u64 = 500_000;
    const BYTES: usize = 400;
    let folder = tempfile::tempdir_in(&options.folder)?;
    let engine = open(options, folder.path())?;
    load(&*engine, KEYS, BYTES)?;
    engine.checkpoint()?;
    let report = |label: &str, updates: u64| {
        let stats = engine.stats();
        println!(
            "{label:<24} file {:>8.1} MB, free {:>8.1} MB, {updates:>12} updates, resident {:>6.0} MB",
            stats.file_bytes.unwrap_or(0) as f64 / 1e6,
            stats.file_free_bytes.unwrap_or(0) as f64 / 1e6,
            resident_bytes() as f64 / 1e6,
        );
    };
    report("loaded", 0);
    let (stop, updates) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| -> Result<()> {
        let mut writers = Vec::new();
        for thread in 0..4_u64 {
            let (engine, stop, updates) = (&engine, &stop, &updates);
            writers.push(scope.spawn(move || -> Result<()> {
                let mut n = thread << 40;
                while !stop.load(Ordering::Relaxed) {
                    update(&**engine, mixed(n) % KEYS, n, BYTES)?;
                    updates.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                }
                Ok(())
            }));
        }
        let start = Instant::now();
        let mut snapshot = None;
        let mut taken = Instant::now();
        let mut reported = Instant::now();
        while start.elapsed() < Duration::from_secs(minutes * 60) {
            let old = taken.elapsed() >= Duration::from_secs(snapshot_seconds);
            if snapshot_seconds > 0 && (snapshot.is_none() || old) {
                snapshot = Some(engine.snapshot()?);
                taken = Instant::now();
            }
            thread::sleep(Duration::from_millis(200));
            if reported.elapsed() >= Duration::from_secs(30) {
                reported = Instant::now();
                let label = format!("{:>5.1} min", start.elapsed().as_secs_f64() / 60.0);
                report(&label, updates.load(Ordering::Relaxed));
            }
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("a writer panicked")?;
        }
        Ok(())
    })?;
    let total = updates.load(Ordering::Relaxed);
    engine.checkpoint()?;
    report("snapshot gone", total);
    let mut batch = WriteBatch::new();
    batch.delete_range(RECORDS, &key(KEYS / 10), None);
    engine.apply(batch, Durability::Synced)?;
    for round in 1..=5 {
        // A checkpoint of nothing writes nothing: pages that the one before let go become free with the next.
        update(&*engine, mixed(round) % (KEYS / 10), round, BYTES)?;
        engine.checkpoint()?;
        report(&format!("nine tenths deleted, {round}"), total);
    }
    println!(
        "the most that was resident: {} MB",
        resident_bytes_max() >> 20
    );
    engine.close()?;
    Ok(())
}

/// Latencies of a snapshot and a get, in nanoseconds, until told to stop.
fn read_until(engine: &dyn StorageEngine, keys: u64, stop: &AtomicBool) -> Result<Vec<u64>> {
    let mut nanos = Vec::new();
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let one = Instant::now();
        let found = engine.snapshot()?.get(RECORDS, &key(mixed(n) % keys))?;
        nanos.push(one.elapsed().as_nanos() as u64);
        assert!(found.is_some());
        n += 1;
        // A pause, so that the reader does not fight the writers for a processor: latency is asked, not throughput.
        if n.is_multiple_of(16) {
            thread::sleep(Duration::from_micros(200));
        }
    }
    nanos.sort_unstable();
    Ok(nanos)
}

fn latency(options: &Options, seconds: u64) -> Result<()> {
    const KEYS: u64 = 1_000_000;
    const BYTES: usize = 500;
    let folder = tempfile::tempdir_in(&options.folder)?;
    let engine = open(options, folder.path())?;
    load(&*engine, KEYS, BYTES)?;
    engine.checkpoint()?;
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "a snapshot and a get, µs", "p50", "p99", "p99.9", "most", "reads"
    );
    let beside = |label: &str, work: &mut dyn FnMut(u64) -> Result<()>| -> Result<()> {
        let stop = AtomicBool::new(false);
        let nanos = thread::scope(|scope| -> Result<Vec<u64>> {
            let reader = scope.spawn(|| read_until(&*engine, KEYS, &stop));
            let start = Instant::now();
            let mut n = 0;
            let mut worked = Ok(());
            while start.elapsed() < Duration::from_secs(seconds) && worked.is_ok() {
                worked = work(n);
                n += 1;
            }
            stop.store(true, Ordering::Relaxed);
            let nanos = reader.join().expect("the reader panicked");
            worked?;
            nanos
        })?;
        let micros = |part| per_mille(&nanos, part) as f64 / 1e3;
        println!(
            "{label:<44} {:>10.1} {:>10.1} {:>10.1} {:>10.0} {:>12}",
            micros(500),
            micros(990),
            micros(999),
            micros(1000),
            nanos.len()
        );
        Ok(())
    };
    beside("idle", &mut |_| {
        thread::sleep(Duration::from_millis(10));
        Ok(())
    })?;
    beside("beside a writer", &mut |n| {
        update(&*engine, mixed(n) % KEYS, n, BYTES)
    })?;
    beside("beside a writer and checkpoints without pause", &mut |n| {
        for i in 0..20_000 {
            update(&*engine, mixed(n * 20_000 + i) % KEYS, n, BYTES)?;
        }
        engine.checkpoint()?;
        Ok(())
    })?;
    beside("beside an index build", &mut |n| {
        let table = TableId(INDEX.0 + n);
        let mut batch = WriteBatch::new();
        batch.create_table(table);
        engine.apply(batch, Durability::Buffered)?;
        let mut entries = (0..KEYS).map(|n| Ok(([&key(n)[..], &key(!n)[..]].concat(), Vec::new())));
        engine.bulk_load(table, &mut entries)?;
        let mut batch = WriteBatch::new();
        batch.drop_table(table);
        engine.apply(batch, Durability::Buffered)?;
        Ok(())
    })?;
    engine.close()?;
    Ok(())
}

fn recovery(options: &Options, sizes: &[u64]) -> Result<()> {
    const BYTES: usize = 400;
    println!(
        "{:>12} {:>12} {:>14} {:>12}",
        "log, MB", "records", "open, ms", "MB/s"
    );
    for &mb in sizes {
        let folder = tempfile::tempdir_in(&options.folder)?;
        let engine = Arc::new(SheafEngine::open(
            folder.path(),
            SheafOptions {
                cache_bytes: (8 << 30).max(options.cache_bytes),
                generation_bytes: Some(2 << 30),
                checkpoint_interval: Duration::from_secs(3600),
                ..SheafOptions::default()
            },
        )?);
        load(&*engine, 1000, BYTES)?;
        engine.checkpoint()?;
        let before = engine.stats().bytes_logged;
        let mut records = 0;
        while engine.stats().bytes_logged - before < mb << 20 {
            for _ in 0..100 {
                update(&*engine, mixed(records) % 1_000_000, records, BYTES)?;
                records += 1;
            }
        }
        let (_, took) = crash(options, &engine, folder.path())?;
        println!(
            "{mb:>12} {records:>12} {:>14.1} {:>12.0}",
            took * 1e3,
            mb as f64 / took
        );
    }
    Ok(())
}

/// What opening takes after a crash: bytes of the log that are read, and seconds.
fn crash(options: &Options, engine: &SheafEngine, folder: &Path) -> Result<(u64, f64)> {
    engine.sync()?;
    let crashed = tempfile::tempdir_in(&options.folder)?;
    // A copy of the files while they are open is what a crash leaves.
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        std::fs::copy(entry.path(), crashed.path().join(entry.file_name()))?;
    }
    engine.close()?;
    let start = Instant::now();
    let again = open(options, crashed.path())?;
    let took = start.elapsed().as_secs_f64();
    let bytes = again.recovery().log_bytes;
    again.close()?;
    Ok((bytes, took))
}

/// Opening after values of 500 bytes, of a million in the tree, have been changed in one place, at random.
fn changes(options: &Options, counts: &[u64]) -> Result<()> {
    const KEYS: u64 = 1_000_000;
    const BYTES: usize = 500;
    println!(
        "{:>12} {:>10} {:>12} {:>14}",
        "changes", "logged", "log, MB", "open, ms"
    );
    for (count, delta) in counts.iter().flat_map(|n| [(*n, false), (*n, true)]) {
        let folder = tempfile::tempdir_in(&options.folder)?;
        let engine = SheafEngine::open(
            folder.path(),
            SheafOptions {
                cache_bytes: (8 << 30).max(options.cache_bytes),
                generation_bytes: Some(2 << 30),
                checkpoint_interval: Duration::from_secs(3600),
                ..SheafOptions::default()
            },
        )?;
        load(&engine, KEYS, BYTES)?;
        let snapshot = engine.snapshot()?;
        for n in 0..count {
            // Each key once, so that every base is read from the tree.
            let key = key(n.wrapping_mul(7_919) % KEYS);
            let base = snapshot.get(RECORDS, &key)?.ok_or("a key is missing")?;
            let mut new = base.to_vec();
            new[200..204].copy_from_slice(&(n as u32).to_le_bytes());
            let mut batch = WriteBatch::new();
            match delta {
                true => batch.put_over(RECORDS, &key, new, &base),
                false => batch.put(RECORDS, &key, new),
            }
            engine.apply(batch, Durability::Buffered)?;
        }
        drop(snapshot);
        let (bytes, took) = crash(options, &engine, folder.path())?;
        let how = if delta { "changes" } else { "whole" };
        println!(
            "{count:>12} {how:>10} {:>12.1} {:>14.1}",
            bytes as f64 / 1e6,
            took * 1e3
        );
    }
    Ok(())
}

/// More data than the cache: loads, reads at random, writes beside them; a small table is read all the while.
fn memory(options: &Options, data_mb: u64) -> Result<()> {
    const BYTES: usize = 1000;
    let keys = (data_mb << 20) / BYTES as u64;
    let folder = tempfile::tempdir_in(&options.folder)?;
    let engine = open(options, folder.path())?;
    load(&*engine, keys, BYTES)?;
    let mut batch = WriteBatch::new();
    batch.create_table(INDEX);
    for n in 0..1000 {
        batch.put(INDEX, &key(n), value(n, 0, 100));
    }
    engine.apply(batch, Durability::Synced)?;
    engine.checkpoint()?;
    let report = |label: &str, nanos: &mut Vec<u64>| {
        nanos.sort_unstable();
        let micros = |part| per_mille(nanos, part) as f64 / 1e3;
        println!(
            "{label:<44} {:>9} reads, p50 {:>8.1} µs, p99 {:>8.1}, p99.9 {:>9.1}; resident {:>6} MB",
            nanos.len(),
            micros(500),
            micros(990),
            micros(999),
            resident_bytes() >> 20,
        );
    };
    let stop = AtomicBool::new(false);
    let updates = AtomicU64::new(0);
    thread::scope(|scope| -> Result<()> {
        let mut running = Vec::new();
        for thread in 0..2_u64 {
            let (engine, stop) = (&engine, &stop);
            running.push(scope.spawn(move || -> Result<Vec<u64>> {
                let mut nanos = Vec::new();
                let mut n = thread << 32;
                while !stop.load(Ordering::Relaxed) {
                    let one = Instant::now();
                    engine.snapshot()?.get(RECORDS, &key(mixed(n) % keys))?;
                    nanos.push(one.elapsed().as_nanos() as u64);
                    n += 1;
                }
                Ok(nanos)
            }));
        }
        let writer = scope.spawn(|| -> Result<()> {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                update(&*engine, mixed(n) % keys, n, BYTES)?;
                updates.fetch_add(1, Ordering::Relaxed);
                n += 1;
                if n.is_multiple_of(100) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Ok(())
        });
        let small = scope.spawn(|| -> Result<Vec<u64>> {
            let mut nanos = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let one = Instant::now();
                engine
                    .snapshot()?
                    .get(INDEX, &key(nanos.len() as u64 % 1000))?;
                nanos.push(one.elapsed().as_nanos() as u64);
                thread::sleep(Duration::from_millis(1));
            }
            Ok(nanos)
        });
        thread::sleep(Duration::from_secs(20));
        stop.store(true, Ordering::Relaxed);
        let mut nanos = Vec::new();
        for thread in running {
            nanos.extend(thread.join().expect("a reader panicked")?);
        }
        report("a get at random", &mut nanos);
        let mut nanos = small.join().expect("a reader panicked")?;
        report("a get from a small table, unrelated", &mut nanos);
        writer.join().expect("the writer panicked")?;
        Ok(())
    })?;
    println!("{} updates beside", updates.load(Ordering::Relaxed));
    // Values as large as they come.
    let mut batch = WriteBatch::new();
    for n in 0..4 {
        batch.put(
            INDEX,
            format!("large {n}").as_bytes(),
            value(n, 1, 16 << 20),
        );
    }
    engine.apply(batch, Durability::Synced)?;
    for n in 0..16_u64 {
        let mut batch = WriteBatch::new();
        batch.put(
            INDEX,
            format!("large {}", n % 4).as_bytes(),
            value(n, n, 16 << 20),
        );
        engine.apply(batch, Durability::Buffered)?;
        let found = engine
            .snapshot()?
            .get(INDEX, format!("large {}", n % 4).as_bytes())?;
        assert_eq!(found.map_or(0, |value| value.len()), 16 << 20);
    }
    println!(
        "after twenty values of 16 MiB: resident {} MB, at most {} MB, of a budget of {} MB",
        resident_bytes() >> 20,
        resident_bytes_max() >> 20,
        options.cache_bytes >> 20,
    );
    engine.close()?;
    Ok(())
}
