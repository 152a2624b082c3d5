//! Latency of a reader during concurrent work of the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sheaf_bench::engines::{Result, mixed};
use sheaf_bench::measure::per_mille;
use sheaf_storage::{Durability, StorageEngine, TableId, WriteBatch};

use super::{INDEX, Options, RECORDS, key, load, open, update};

/// Latencies of a snapshot and a get, in nanoseconds, sorted. Measures until `stop` is set.
fn read_until(engine: &dyn StorageEngine, keys: u64, stop: &AtomicBool) -> Result<Vec<u64>> {
    let mut nanos = Vec::new();
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let one = Instant::now();
        let found = engine.snapshot()?.get(RECORDS, &key(mixed(n) % keys))?;
        nanos.push(one.elapsed().as_nanos() as u64);
        assert!(found.is_some());
        n += 1;
        // Pause, so that the reader does not compete with the writers for a processor: this
        // measures latency, not throughput.
        if n.is_multiple_of(16) {
            thread::sleep(Duration::from_micros(200));
        }
    }
    nanos.sort_unstable();
    Ok(nanos)
}

pub(super) fn run(options: &Options, seconds: u64) -> Result<()> {
    const KEYS: u64 = 1_000_000;
    const BYTES: usize = 500;
    let folder = tempfile::tempdir_in(&options.folder)?;
    let engine = open(options, folder.path())?;
    load(&*engine, KEYS, BYTES)?;
    engine.checkpoint()?;
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "a snapshot and a get, µs", "p50", "p99", "p99.9", "max", "reads"
    );
    let measure = |label: &str, work: &mut dyn FnMut(u64) -> Result<()>| -> Result<()> {
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
    measure("idle", &mut |_| {
        thread::sleep(Duration::from_millis(10));
        Ok(())
    })?;
    measure("with a writer", &mut |n| {
        update(&*engine, mixed(n) % KEYS, n, BYTES)
    })?;
    measure("with a writer and continuous checkpoints", &mut |n| {
        for i in 0..20_000 {
            update(&*engine, mixed(n * 20_000 + i) % KEYS, n, BYTES)?;
        }
        engine.checkpoint()?;
        Ok(())
    })?;
    measure("with an index build", &mut |n| {
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
