//! The storage engine's behaviour over time: bytes written per update, file size, latency of
//! readers during checkpoints, recovery, memory.
//!
//! ```text
//!   cargo run --release -p sheaf-bench --bin engine_life -- [--folder F] [--cache-mb M]
//!       [--value-bytes B] WHAT [...]
//!
//!   amplification [KEYS ...]    bytes logged and written per update, with KEYS keys
//!                               (1, 10 and 50 million)
//!   space MINUTES [SNAPSHOT_S]  file size under updates, with a snapshot of SNAPSHOT_S seconds
//!                               always open; then nine tenths of the keys are deleted
//!   latency [SECONDS]           a reader's p50, p99, p99.9: idle, during checkpoints, during an
//!                               index build
//!   recovery [MB ...]           opening after a crash with MB of log to replay, with a warm and a
//!                               cold page cache
//!   memory DATA_MB              reads and writes on DATA_MB of data; resident memory
//! ```

mod amplification;
mod latency;
mod memory;
mod recovery;
mod space;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheaf_bench::engines::{Result, mixed};
use sheaf_storage::{
    Durability, LogTreeEngine, LogTreeOptions, StorageEngine, TableId, WriteBatch,
};

const RECORDS: TableId = TableId(1);
const INDEX: TableId = TableId(2);

struct Options {
    folder: PathBuf,
    cache_bytes: u64,
    /// Length of the values, for the measurements in which it is variable.
    value_bytes: Option<usize>,
}

fn main() -> Result<()> {
    let mut options = Options {
        folder: std::env::temp_dir(),
        cache_bytes: 1 << 30,
        value_bytes: None,
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
            "--value-bytes" => {
                let bytes = args.next().ok_or("--value-bytes needs a number")?;
                options.value_bytes = Some(bytes.parse()?);
            }
            _ => rest.push(arg),
        }
    }
    let Some((what, rest)) = rest.split_first() else {
        return Err("name a measurement: amplification, space, latency, recovery or memory".into());
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
            amplification::run(&options, &numbers)
        }
        "space" => space::run(&options, first(10), numbers.get(1).copied().unwrap_or(0)),
        "latency" => latency::run(&options, first(10)),
        "recovery" => {
            if numbers.is_empty() {
                numbers = vec![16, 64, 256, 1024];
            }
            recovery::run(&options, &numbers)
        }
        "memory" => memory::run(&options, first(4096)),
        _ => Err(format!("unknown measurement '{what}'").into()),
    }
}

fn open(options: &Options, folder: &Path) -> Result<Arc<LogTreeEngine>> {
    let engine = LogTreeEngine::open(
        folder,
        LogTreeOptions {
            cache_bytes: options.cache_bytes,
            ..LogTreeOptions::default()
        },
    )?;
    Ok(Arc::new(engine))
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A pseudo-random value, half of which is repetitive.
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

/// Changes four bytes of an existing value. Passes the old value to the engine, which therefore
/// logs only the difference.
fn change(engine: &dyn StorageEngine, n: u64, version: u64) -> Result<()> {
    let key = key(n);
    let base = engine.snapshot()?.get(RECORDS, &key)?;
    let base = base.ok_or("a key is missing")?;
    let mut new = base.to_vec();
    let at = mixed(version) as usize % (new.len() - 3);
    new[at..at + 4].copy_from_slice(&(version as u32).to_le_bytes());
    let mut batch = WriteBatch::new();
    batch.put_over(RECORDS, &key, new, &base);
    engine.apply(batch, Durability::Buffered)?;
    Ok(())
}
