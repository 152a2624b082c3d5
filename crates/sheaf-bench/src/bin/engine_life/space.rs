//! Size of the files under updates, with and without old snapshots, and after most data was
//! deleted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sheaf_bench::engines::{Result, mixed};
use sheaf_bench::measure::{resident_bytes, resident_bytes_max};
use sheaf_storage::{Durability, StorageEngine, WriteBatch};

use super::{Options, RECORDS, key, load, open, update};

/// Reports the file size during minutes of updates by four threads at full speed.
pub(super) fn run(options: &Options, minutes: u64, snapshot_seconds: u64) -> Result<()> {
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
    let before = engine.stats();
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
    report("snapshot released", total);
    let (stats, detail) = (engine.stats(), engine.detail());
    let each = |bytes: u64| bytes as f64 / total.max(1) as f64;
    println!(
        "bytes per update: {:.0} logged, {:.0} zeros preallocated, {:.0} to the tree; {} checkpoints",
        each(detail.log_bytes),
        each(detail.log_bytes_filled),
        each(
            stats.bytes_written - detail.log_bytes - detail.log_bytes_filled - before.bytes_written
        ),
        detail.checkpoints,
    );
    let mut batch = WriteBatch::new();
    batch.delete_range(RECORDS, &key(KEYS / 10), None);
    engine.apply(batch, Durability::Synced)?;
    for round in 1..=5 {
        // An empty checkpoint writes nothing, and pages released by one checkpoint become free with
        // the next: write something each time.
        update(&*engine, mixed(round) % (KEYS / 10), round, BYTES)?;
        engine.checkpoint()?;
        report(&format!("nine tenths deleted, {round}"), total);
    }
    println!("maximum resident: {} MB", resident_bytes_max() >> 20);
    engine.close()?;
    Ok(())
}
