//! More data than memory: latency of reads, and resident memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sheaf_bench::engines::{Result, mixed};
use sheaf_bench::measure::{per_mille, resident_bytes, resident_bytes_max};
use sheaf_storage::{Durability, StorageEngine, WriteBatch};

use super::{INDEX, Options, RECORDS, key, load, open, update, value};

/// Loads more data than the cache holds, then reads and writes at random, while another thread
/// reads a small table.
pub(super) fn run(options: &Options, data_mb: u64) -> Result<()> {
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
        report("random get", &mut nanos);
        let mut nanos = small.join().expect("a reader panicked")?;
        report("get from a small, unrelated table", &mut nanos);
        writer.join().expect("the writer panicked")?;
        Ok(())
    })?;
    println!("{} concurrent updates", updates.load(Ordering::Relaxed));
    // Values of the maximum size.
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
        "after twenty values of 16 MiB: resident {} MB, maximum {} MB, budget {} MB",
        resident_bytes() >> 20,
        resident_bytes_max() >> 20,
        options.cache_bytes >> 20,
    );
    engine.close()?;
    Ok(())
}
