//! Opening after a crash, by the kind of log to replay: new values, values replaced as a whole, and
//! values logged as a difference, which are rebuilt from the old value in the tree.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bench::engines::{Result, mixed};
use sheaf_bench::measure::{process_cpu, process_io};
use sheaf_storage::{Durability, LogTreeEngine, LogTreeOptions, Prior, StorageEngine, WriteBatch};

use super::{Options, RECORDS, change, key, load, open, value};

/// Values in the tree before the crash.
const KEYS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inserts,
    Whole,
    Changes,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Inserts => "inserts",
            Kind::Whole => "whole",
            Kind::Changes => "changes",
        }
    }

    fn write(self, engine: &LogTreeEngine, n: u64, bytes: usize) -> Result<()> {
        let number = mixed(n) % KEYS;
        let (number, prior) = match self {
            // Every key is new; the keys are in no order.
            Kind::Inserts => (
                KEYS + n.wrapping_mul(0x9e37_79b1) % (1 << 32),
                Prior::Absent,
            ),
            // Like a server, which has read the old value.
            Kind::Whole => {
                let value_len = bytes as u32;
                (number, Prior::Present { value_len })
            }
            Kind::Changes => return change(engine, number, n),
        };
        let mut batch = WriteBatch::new();
        batch.put_with(RECORDS, &key(number), value(number, n + 1, bytes), prior);
        engine.apply(batch, Durability::Buffered)?;
        Ok(())
    }
}

pub(super) fn run(options: &Options, sizes: &[u64]) -> Result<()> {
    let bytes = options.value_bytes.unwrap_or(500);
    println!(
        "opened with a budget of {} MB, {KEYS} values of {bytes} bytes in the tree:",
        options.cache_bytes >> 20
    );
    println!(
        "{:>8} {:>8} {:>10} {:>6} {:>10} {:>10} {:>8} {:>12} {:>12}",
        "kind",
        "log, MB",
        "batches",
        "files",
        "open, ms",
        "CPU, ms",
        "µs each",
        "read, MB",
        "written, MB"
    );
    for kind in [Kind::Inserts, Kind::Whole, Kind::Changes] {
        for &mb in sizes {
            measure(options, kind, mb << 20, bytes)?;
        }
    }
    Ok(())
}

fn measure(options: &Options, kind: Kind, log_bytes: u64, bytes: usize) -> Result<()> {
    /// Maximum size of the generations held in memory until the crash.
    const MEMTABLE_MAX: u64 = 3 << 30;
    let folder = tempfile::tempdir_in(&options.folder)?;
    // Nothing is written to the tree after the start, regardless of the budget used to open the
    // copy later.
    let engine = LogTreeEngine::open(
        folder.path(),
        LogTreeOptions {
            cache_bytes: 16 << 30,
            generation_bytes: Some(2 * MEMTABLE_MAX),
            checkpoint_interval: Duration::from_secs(3600),
            ..LogTreeOptions::default()
        },
    )?;
    load(&engine, KEYS, bytes)?;
    engine.checkpoint()?;
    let before = engine.detail();
    let mut n = 0;
    loop {
        let stats = engine.detail();
        if stats.checkpoints > before.checkpoints || stats.memtable_bytes > MEMTABLE_MAX {
            println!("{:>8} {:>8} exceeds memory", kind.name(), log_bytes >> 20);
            engine.close()?;
            return Ok(());
        }
        if stats.log_bytes - before.log_bytes >= log_bytes {
            break;
        }
        for _ in 0..100 {
            kind.write(&engine, n, bytes)?;
            n += 1;
        }
    }
    engine.sync()?;
    for cold in [false, true] {
        let crashed = crash(options, folder.path())?;
        look_through(crashed.path(), cold)?;
        let (start, cpu, io) = (Instant::now(), process_cpu(), process_io());
        let again: Arc<LogTreeEngine> = open(options, crashed.path())?;
        let (took, cpu, io_after) = (start.elapsed(), process_cpu() - cpu, process_io());
        let recovery = again.recovery();
        println!(
            "{:>8} {:>8.0} {:>10} {:>6} {:>10.0} {:>10.0} {:>8.2} {:>12.1} {:>12.1}",
            kind.name(),
            recovery.log_bytes as f64 / (1 << 20) as f64,
            recovery.batches,
            if cold { "cold" } else { "warm" },
            took.as_secs_f64() * 1e3,
            cpu.as_secs_f64() * 1e3,
            took.as_secs_f64() * 1e6 / recovery.batches as f64,
            (io_after.bytes_from_disk - io.bytes_from_disk) as f64 / 1e6,
            (io_after.bytes_written - io.bytes_written) as f64 / 1e6,
        );
        again.close()?;
    }
    engine.close()?;
    Ok(())
}

/// Copies the files while they are open, which is the state after a crash.
fn crash(options: &Options, folder: &Path) -> Result<tempfile::TempDir> {
    let crashed = tempfile::tempdir_in(&options.folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        fs::copy(entry.path(), crashed.path().join(entry.file_name()))?;
    }
    Ok(crashed)
}

/// Syncs the files, then evicts them from the page cache (`cold`) or reads them into it.
fn look_through(folder: &Path, cold: bool) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let file = File::open(&path)?;
        file.sync_all()?;
        if cold {
            // SAFETY: the call takes no pointers.
            let refused =
                unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            if refused != 0 {
                return Err(std::io::Error::from_raw_os_error(refused).into());
            }
        } else {
            std::io::copy(&mut &file, &mut std::io::sink())?;
        }
    }
    Ok(())
}
