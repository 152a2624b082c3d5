//! Write amplification: bytes per update requested by the caller, written to log and tree, and size
//! of the files.

use std::time::Instant;

use sheaf_bench::engines::{Result, mixed};
use sheaf_bench::measure::{process_cpu, process_io};
use sheaf_storage::StorageEngine;

use super::{Options, RECORDS, change, load, open, update};

const UPDATES: u64 = 1_000_000;
/// Updates before the measurement, so that the log has its files and the tree the space of a
/// checkpoint, as after an hour of operation.
const FIRST: u64 = UPDATES;

/// Random updates by one thread up to a checkpoint that completes them: values replaced as a whole,
/// then changed in four bytes.
pub(super) fn run(options: &Options, sizes: &[u64]) -> Result<()> {
    let bytes = options.value_bytes.unwrap_or(100);
    println!("bytes per update, {UPDATES} updates of values of {bytes} bytes:");
    println!(
        "{:>11} {:>8} {:>6} {:>7} {:>7} {:>8} {:>8} {:>10} {:>12} {:>11} {:>9} {:>8} {:>8} {:>8} {:>8}",
        "keys",
        "update",
        "input",
        "logged",
        "zeros",
        "tree",
        "all",
        "by kernel",
        "checkpoints",
        "pages",
        "calls",
        "live, MB",
        "files",
        "µs",
        "µs CPU",
    );
    for &keys in sizes {
        let folder = tempfile::tempdir_in(&options.folder)?;
        let engine = open(options, folder.path())?;
        load(&*engine, keys, bytes)?;
        engine.checkpoint()?;
        for n in 0..FIRST {
            update(&*engine, mixed(!n) % keys, n + 1, bytes)?;
        }
        for (how, changed) in [("whole", false), ("change", true)] {
            engine.checkpoint()?;
            let (before, detail, io) = (engine.stats(), engine.detail(), process_io());
            let (start, cpu) = (Instant::now(), process_cpu());
            for n in 0..UPDATES {
                match changed {
                    true => change(&*engine, mixed(n) % keys, n)?,
                    false => update(&*engine, mixed(n) % keys, n + FIRST, bytes)?,
                }
            }
            engine.checkpoint()?;
            let (took, cpu) = (start.elapsed(), process_cpu() - cpu);
            let (after, io_after) = (engine.stats(), process_io());
            let detail_after = engine.detail();
            let each = |amount: u64| amount as f64 / UPDATES as f64;
            let written = after.bytes_written - before.bytes_written;
            let logged = detail_after.log_bytes - detail.log_bytes;
            let zeros = detail_after.log_bytes_filled - detail.log_bytes_filled;
            println!(
                "{keys:>11} {how:>8} {:>6.1} {:>7.1} {:>7.1} {:>8.1} {:>8.1} {:>10.1} {:>12} {:>11.3} {:>9} {:>8.0} {:>8.0} {:>8.2} {:>8.2}",
                each(after.bytes_logged - before.bytes_logged),
                each(logged),
                each(zeros),
                each(written - logged - zeros),
                each(written),
                each(io_after.bytes_written - io.bytes_written),
                detail_after.checkpoints - detail.checkpoints,
                each(detail_after.pages_written - detail.pages_written),
                io_after.writes - io.writes,
                engine.table_stats(RECORDS)?.disk_bytes as f64 / 1e6,
                after.file_bytes.unwrap_or(0) as f64 / 1e6,
                took.as_secs_f64() * 1e6 / UPDATES as f64,
                cpu.as_secs_f64() * 1e6 / UPDATES as f64,
            );
        }
        engine.close()?;
    }
    Ok(())
}
