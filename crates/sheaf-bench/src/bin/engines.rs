//! Compares the storage engine with redb and LMDB in one run.
//!
//! ```text
//!   cargo run --release -p sheaf-bench --bin engines -- [--documents N] [--bytes B] [--seconds S]
//!       [--rounds R] [--fresh VERSIONS] [--generation-mb M] [--hold SECONDS] [--folder F]
//!       [--engines a,b] [only ...]
//! ```
//!
//! `only` is any of: read commit db_bench. Every engine is loaded with the same documents (five
//! keys each, see `sheaf_bench::engines`). Then each operation is measured on each engine in turn,
//! several times; the output is the median. Reads are measured in microseconds of the reading
//! thread's CPU time, commits in wall time with the process's CPU time. Choose a folder on the disk
//! to measure.
//!
//! The last table compares with the results of a prototype of the engine on other machines, as
//! ratios to redb in the same run. The goal is at least 0.9 of the prototype's ratio.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sheaf_bench::engines::{
    Contender, Documents, EngineContender, HeedContender, IDS, INDEX, Put, RECORDS, Reader,
    RedbContender, Result, TreeContender, mixed,
};
use sheaf_bench::measure::{cpu_micros, median, process_cpu};
use sheaf_storage::tree::PageReading;
use sheaf_storage::{LogTreeEngine, LogTreeOptions, MemoryEngine};

struct Options {
    documents: u64,
    bytes: usize,
    duration: Duration,
    rounds: usize,
    fresh: u64,
    generation: Option<u64>,
    hold: Duration,
    folder: PathBuf,
    engines: Vec<String>,
    only: Vec<String>,
}

fn options() -> Result<Options> {
    let mut options = Options {
        documents: 1_000_000,
        bytes: 500,
        duration: Duration::from_secs(2),
        rounds: 3,
        fresh: 500_000,
        generation: None,
        hold: Duration::from_secs(60),
        folder: std::env::temp_dir(),
        engines: ["sheaf", "redb", "LMDB"].map(String::from).to_vec(),
        only: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--documents" => options.documents = value()?.parse()?,
            "--bytes" => options.bytes = value()?.parse()?,
            "--seconds" => options.duration = Duration::from_secs_f64(value()?.parse()?),
            "--rounds" => options.rounds = value()?.parse()?,
            "--fresh" => options.fresh = value()?.parse()?,
            "--generation-mb" => options.generation = Some(value()?.parse::<u64>()? << 20),
            "--hold" => options.hold = Duration::from_secs_f64(value()?.parse()?),
            "--folder" => options.folder = value()?.into(),
            "--engines" => options.engines = value()?.split(',').map(String::from).collect(),
            "read" | "commit" | "db_bench" => options.only.push(arg),
            _ => return Err(format!("unknown argument '{arg}'").into()),
        }
    }
    Ok(options)
}

/// Measurements by row and engine. Rows are in the order of their first measurement.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
    cells: BTreeMap<(String, String), f64>,
}

impl Table {
    fn put(&mut self, row: &str, engine: &str, number: f64) {
        println!("  {row:<52} {engine:<10} {number:>14.2}");
        if !self.rows.iter().any(|r| r == row) {
            self.rows.push(row.into());
        }
        self.cells.insert((row.into(), engine.into()), number);
    }

    fn get(&self, row: &str, engine: &str) -> Option<f64> {
        self.cells.get(&(row.into(), engine.into())).copied()
    }

    fn print(&self, engines: &[String]) {
        print!("\n{:<54}", "");
        for engine in engines {
            print!("{engine:>14}");
        }
        println!();
        for row in &self.rows {
            print!("{row:<54}");
            for engine in engines {
                match self.get(row, engine) {
                    Some(number) if number >= 1000.0 => print!("{number:>14.0}"),
                    Some(number) => print!("{number:>14.2}"),
                    None => print!("{:>14}", "–"),
                }
            }
            println!();
        }
    }
}

/// Published results of the prototype and of redb in the same run, and of others: row, then redb,
/// LMDB, WiredTiger, RocksDB, prototype, and whether more is better.
const PUBLISHED: &[(&str, [f64; 5], bool)] = &[
    (
        "`_id` entry and document, µs",
        [6.3, 3.1, 5.6, 10.1, 2.3],
        false,
    ),
    (
        "index range of 100 and documents, forward, µs",
        [249.0, 147.0, 263.0, 588.0, 125.0],
        false,
    ),
    (
        "index range of 100 and documents, reverse, µs",
        [249.0, 147.0, 263.0, 588.0, 125.0],
        false,
    ),
    (
        "100 index keys, forward, µs",
        [18.0, 5.8, 12.9, 33.8, 3.0],
        false,
    ),
    (
        "100 index keys, reverse, µs",
        [18.0, 5.8, 12.9, 33.8, 3.0],
        false,
    ),
    ("seek and read one, µs", [2.1, 1.3, 2.2, 4.1, 0.8], false),
    (
        "full scan, µs a document",
        [0.21, 0.15, 0.18, 0.49, 0.05],
        false,
    ),
    (
        "commits/s, not synced, 16 threads",
        [4.5e3, 8e3, 76e3, 30e3, 101e3],
        true,
    ),
    (
        "commits/s, synced, 16 threads",
        [1e3, 1.2e3, 13.5e3, 33.8e3, 43.7e3],
        true,
    ),
    ("load, documents/s", [17e3, 40e3, 32e3, 79e3, 107e3], true),
];

fn main() -> Result<()> {
    let options = options()?;
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|o| o == name);
    let mut table = Table::default();
    if wanted("read") || wanted("commit") {
        let folder = tempfile::tempdir_in(&options.folder)?;
        let mut contenders = Vec::new();
        for name in &options.engines {
            contenders.push(contender(name, folder.path(), options.generation)?);
        }
        let documents = Documents {
            count: options.documents,
            bytes: options.bytes,
        };
        for contender in &contenders {
            load(&**contender, documents, &mut table)?;
        }
        if wanted("read") {
            reads(&contenders, &options, documents, "", &mut table)?;
        }
        if wanted("commit") {
            commits(&contenders, &options, documents, "", &mut table)?;
            held(&contenders, &options, documents, &mut table)?;
        }
        if wanted("read") {
            for contender in &contenders {
                contender.settle()?;
                freshen(&**contender, documents, options.fresh)?;
            }
            let name = format!(", {} fresh versions", options.fresh);
            reads(&contenders, &options, documents, &name, &mut table)?;
            if wanted("commit") {
                commits(&contenders, &options, documents, &name, &mut table)?;
            }
        }
    }
    if wanted("db_bench") {
        for name in &options.engines {
            db_bench(name, &options, &mut table)?;
        }
    }
    table.print(&options.engines);
    compare(&table);
    Ok(())
}

fn contender(name: &str, folder: &Path, generation: Option<u64>) -> Result<Box<dyn Contender>> {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(match name {
        "sheaf" => {
            let options = LogTreeOptions {
                cache_bytes: 4 << 30,
                // The load is measured by itself, and again including the checkpoint.
                generation_bytes: generation,
                ..LogTreeOptions::default()
            };
            let engine = LogTreeEngine::open(&folder, options)?;
            Box::new(EngineContender::create(Arc::new(engine))?)
        }
        "memory" => Box::new(EngineContender::create(Arc::new(MemoryEngine::new()))?),
        "redb" => Box::new(RedbContender::create(&folder, 4 << 30)?),
        "tree" => Box::new(TreeContender::create(
            &folder,
            PageReading::Mapped,
            4 << 30,
        )?),
        "tree-cached" => Box::new(TreeContender::create(
            &folder,
            PageReading::Cached,
            4 << 30,
        )?),
        "LMDB" => Box::new(HeedContender::create(&folder, 64 << 30, false)?),
        _ => return Err(format!("unknown engine '{name}'").into()),
    })
}

/// Loads a thousand documents per commit, synced only at the end.
fn load(contender: &dyn Contender, documents: Documents, table: &mut Table) -> Result<()> {
    let (start, cpu) = (Instant::now(), process_cpu());
    let mut n = 0;
    while n < documents.count {
        let mut puts: Vec<Put> = Vec::new();
        for _ in 0..1000.min(documents.count - n) {
            puts.extend(documents.insert(n));
            n += 1;
        }
        // redb opens a table once per run of puts; the order costs the other engines nothing.
        puts.sort_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        contender.commit(puts, false)?;
    }
    let (took, cpu) = (start.elapsed().as_secs_f64(), process_cpu() - cpu);
    let settle = Instant::now();
    contender.settle()?;
    let count = documents.count as f64;
    table.put("load, documents/s", contender.name(), count / took);
    let with = count / (took + settle.elapsed().as_secs_f64());
    table.put(
        "load including checkpoint, documents/s",
        contender.name(),
        with,
    );
    table.put(
        "load, µs of CPU a document",
        contender.name(),
        cpu.as_secs_f64() * 1e6 / count,
    );
    Ok(())
}

/// Replaces documents until there are `versions` new versions that no checkpoint has written (for
/// engines that have checkpoints).
fn freshen(contender: &dyn Contender, documents: Documents, versions: u64) -> Result<()> {
    for n in 0..versions / 2 {
        contender.commit(
            documents.replace(mixed(n) % documents.count, n + 1_000_000),
            false,
        )?;
    }
    Ok(())
}

fn record_of(key: &[u8]) -> &[u8] {
    &key[key.len() - 8..]
}

type Operation = fn(&mut dyn Reader, Documents, u64, &Cell<usize>) -> Result<()>;

fn id_and_document(
    reader: &mut dyn Reader,
    documents: Documents,
    n: u64,
    bytes: &Cell<usize>,
) -> Result<()> {
    let id = documents.id_key(mixed(n) % documents.count);
    let mut record = [0; 8];
    reader.get(IDS, &id, &mut |value| record.copy_from_slice(value))?;
    reader.get(RECORDS, &record, &mut |value| {
        bytes.set(bytes.get() + value.len())
    })?;
    Ok(())
}

fn range(
    reader: &mut dyn Reader,
    documents: Documents,
    n: u64,
    reverse: bool,
    fetch: bool,
    bytes: &Cell<usize>,
) -> Result<()> {
    let from = documents.index_key(1, mixed(n) % documents.count);
    let mut records = [[0; 8]; 100];
    let mut count = 0;
    reader.range(INDEX + 1, &from, 100, reverse, &mut |key, _| {
        records[count].copy_from_slice(record_of(key));
        count += 1;
    })?;
    bytes.set(bytes.get() + count);
    if fetch {
        for record in &records[..count] {
            reader.get(RECORDS, record, &mut |value| {
                bytes.set(bytes.get() + value.len())
            })?;
        }
    }
    Ok(())
}

const OPERATIONS: &[(&str, u64, Operation)] = &[
    ("`_id` entry and document, µs", 1, id_and_document),
    (
        "index range of 100 and documents, forward, µs",
        1,
        |r, d, n, b| range(r, d, n, false, true, b),
    ),
    (
        "index range of 100 and documents, reverse, µs",
        1,
        |r, d, n, b| range(r, d, n, true, true, b),
    ),
    ("100 index keys, forward, µs", 1, |r, d, n, b| {
        range(r, d, n, false, false, b)
    }),
    ("100 index keys, reverse, µs", 1, |r, d, n, b| {
        range(r, d, n, true, false, b)
    }),
    ("seek and read one, µs", 1, |r, d, n, b| {
        let from = d.index_key(0, mixed(n) % d.count);
        r.range(INDEX, &from, 1, false, &mut |key, _| {
            b.set(b.get() + key.len())
        })?;
        Ok(())
    }),
];

fn reads(
    contenders: &[Box<dyn Contender>],
    options: &Options,
    documents: Documents,
    suffix: &str,
    table: &mut Table,
) -> Result<()> {
    let mut failed = None;
    let mut readers = Vec::new();
    for contender in contenders {
        readers.push((contender.name(), contender.reader()?));
    }
    for (name, _, operation) in OPERATIONS {
        let mut numbers: Vec<Vec<f64>> = vec![Vec::new(); readers.len()];
        for _ in 0..options.rounds {
            for ((_, reader), numbers) in readers.iter_mut().zip(&mut numbers) {
                let bytes = Cell::new(0);
                numbers.push(cpu_micros(options.duration, 1, |n| {
                    if let Err(error) = operation(&mut **reader, documents, n, &bytes) {
                        failed.get_or_insert(error);
                    }
                }));
                assert!(bytes.get() > 0, "{name} read nothing");
            }
        }
        for ((engine, _), numbers) in readers.iter().zip(&mut numbers) {
            table.put(&format!("{name}{suffix}"), engine, median(numbers));
        }
    }
    let mut numbers: Vec<Vec<f64>> = vec![Vec::new(); readers.len()];
    for _ in 0..options.rounds {
        for ((_, reader), numbers) in readers.iter_mut().zip(&mut numbers) {
            let mut bytes = 0;
            numbers.push(cpu_micros(Duration::ZERO, documents.count, |_| {
                let read = reader.range(RECORDS, &[], usize::MAX, false, &mut |_, value| {
                    bytes += usize::from(value[0]) + value.len();
                });
                match read {
                    Ok(count) => assert_eq!(count as u64, documents.count),
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }));
            assert!(bytes > 0);
        }
    }
    for ((engine, _), numbers) in readers.iter().zip(&mut numbers) {
        table.put(
            &format!("full scan, µs a document{suffix}"),
            engine,
            median(numbers),
        );
    }
    failed.map_or(Ok(()), Err)
}

/// Commits on `threads` threads for `duration`. Returns commits per second, and CPU time per commit
/// in microseconds.
fn commit_rate(
    contender: &dyn Contender,
    documents: Documents,
    threads: u64,
    synced: bool,
    duration: Duration,
    versions: &AtomicU64,
) -> Result<(f64, f64)> {
    let stop = AtomicBool::new(false);
    let (start, cpu) = (Instant::now(), process_cpu());
    let count = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<u64> {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let version = versions.fetch_add(1, Ordering::Relaxed);
                        let n = mixed(version ^ 0x5555) % documents.count;
                        contender.commit(documents.replace(n, version), synced)?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let mut count = 0;
        for thread in running {
            count += thread.join().expect("a writer panicked")?;
        }
        Result::Ok(count)
    })?;
    let cpu = (process_cpu() - cpu).as_secs_f64() * 1e6 / count as f64;
    Ok((count as f64 / start.elapsed().as_secs_f64(), cpu))
}

fn commits(
    contenders: &[Box<dyn Contender>],
    options: &Options,
    documents: Documents,
    suffix: &str,
    table: &mut Table,
) -> Result<()> {
    let versions = AtomicU64::new(1 << 32);
    for synced in [false, true] {
        for threads in [1, 4, 16] {
            let what = if synced { "synced" } else { "not synced" };
            let plural = if threads == 1 { "thread" } else { "threads" };
            let row = format!("commits/s, {what}, {threads} {plural}{suffix}");
            let mut rates = vec![Vec::new(); contenders.len()];
            let mut costs = vec![Vec::new(); contenders.len()];
            for _ in 0..options.rounds {
                for (i, contender) in contenders.iter().enumerate() {
                    let (rate, cpu) = commit_rate(
                        &**contender,
                        documents,
                        threads,
                        synced,
                        options.duration,
                        &versions,
                    )?;
                    rates[i].push(rate);
                    costs[i].push(cpu);
                }
            }
            for (i, contender) in contenders.iter().enumerate() {
                table.put(&row, contender.name(), median(&mut rates[i]));
                let row = format!("  µs of CPU a commit, {what}, {threads}{suffix}");
                table.put(&row, contender.name(), median(&mut costs[i]));
            }
        }
    }
    Ok(())
}

/// Commits while a snapshot is held for a long time, then the cost of reads from that snapshot.
fn held(
    contenders: &[Box<dyn Contender>],
    options: &Options,
    documents: Documents,
    table: &mut Table,
) -> Result<()> {
    let versions = AtomicU64::new(2 << 32);
    for contender in contenders {
        let mut reader = contender.reader()?;
        let (rate, _) = commit_rate(&**contender, documents, 16, false, options.hold, &versions)?;
        let row = format!(
            "commits/s, not synced, 16 threads, snapshot held {} s",
            options.hold.as_secs()
        );
        table.put(&row, contender.name(), rate);
        let bytes = Cell::new(0);
        let mut failed = None;
        let micros = cpu_micros(options.duration, 1, |n| {
            if let Err(error) = id_and_document(&mut *reader, documents, n, &bytes) {
                failed.get_or_insert(error);
            }
        });
        table.put(
            "  `_id` entry and document from that snapshot, µs",
            contender.name(),
            micros,
        );
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// The five workloads of RocksDB's benchmark page, adapted: keys of 20 bytes, values of 400, one
/// table.
fn db_bench(name: &str, options: &Options, table: &mut Table) -> Result<()> {
    let folder = tempfile::tempdir_in(&options.folder)?;
    let contender = contender(name, folder.path(), None)?;
    let count = options.documents * 2;
    let documents = Documents { count, bytes: 400 };
    let put = |n: u64, version: u64| Put {
        table: RECORDS,
        key: [&[0; 12][..], &n.to_be_bytes()].concat(),
        value: documents.document(n, version),
        fresh: version == 0,
    };
    let start = Instant::now();
    for n in 0..count {
        contender.commit(vec![put(n, 0)], false)?;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    table.put("fillseq, puts/s", name, rate);
    contender.settle()?;
    let key = |n: u64| [&[0; 12][..], &(mixed(n) % count).to_be_bytes()].concat();
    // Four readers concurrent with a writer that is limited to 2 MB per second.
    let measure = |row: &str, read: &(dyn Fn(&mut dyn Reader, u64) -> Result<()> + Sync)| {
        let stop = AtomicBool::new(false);
        let reads = AtomicU64::new(0);
        let start = Instant::now();
        thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| -> Result<()> {
                let mut version = 1;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..50 {
                        contender.commit(vec![put(mixed(version) % count, version)], false)?;
                        version += 1;
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                Ok(())
            });
            let readers: Vec<_> = (0..4)
                .map(|thread| {
                    let (contender, stop, reads) = (&contender, &stop, &reads);
                    scope.spawn(move || -> Result<()> {
                        let mut n = thread << 32;
                        while !stop.load(Ordering::Relaxed) {
                            // Take a new snapshot regularly, as a server does.
                            let mut reader = contender.reader()?;
                            for _ in 0..100 {
                                read(&mut *reader, n)?;
                                n += 1;
                            }
                            reads.fetch_add(100, Ordering::Relaxed);
                        }
                        Ok(())
                    })
                })
                .collect();
            thread::sleep(options.duration * 2);
            stop.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().expect("a reader panicked")?;
            }
            writer.join().expect("the writer panicked")
        })?;
        Result::Ok((
            row.to_owned(),
            reads.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64(),
        ))
    };
    let walk = |reverse: bool| {
        move |reader: &mut dyn Reader, n: u64| -> Result<()> {
            let mut bytes = 0;
            reader.range(RECORDS, &key(n), 10, reverse, &mut |_, value| {
                bytes += value.len()
            })?;
            Ok(())
        }
    };
    for (row, rate) in [
        measure("fwdrangeww, ranges of 10/s", &walk(false))?,
        measure("revrangeww, ranges of 10/s", &walk(true))?,
        measure("readww, gets/s", &|reader, n| {
            let mut bytes = 0;
            reader.get(RECORDS, &key(n), &mut |value| bytes += value.len())?;
            Ok(())
        })?,
    ] {
        table.put(&row, name, rate);
    }
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    let total = thread::scope(|scope| -> Result<u64> {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (contender, stop, put) = (&contender, &stop, &put);
                scope.spawn(move || -> Result<u64> {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let version = (thread + 1) << 40 | n;
                        contender.commit(vec![put(mixed(version) % count, version)], false)?;
                        n += 1;
                    }
                    Ok(n)
                })
            })
            .collect();
        thread::sleep(options.duration * 4);
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for writer in writers {
            total += writer.join().expect("a writer panicked")?;
        }
        Ok(total)
    })?;
    let rate = total as f64 / start.elapsed().as_secs_f64();
    table.put("overwrite, 4 threads, puts/s", name, rate);
    Ok(())
}

/// Prints the distance between the engine and the prototype, each as a ratio to redb.
fn compare(table: &Table) {
    println!(
        "\n{:<48}{:>9}{:>9}{:>9}{:>11}{:>9}{:>9}{:>10}",
        "times better than redb (higher is better)",
        "sheaf",
        "LMDB",
        "LMDB, p.",
        "WiredT., p.",
        "Rocks, p.",
        "prot., p.",
        "sheaf/prot."
    );
    for (row, [redb, lmdb, wired_tiger, rocks, prototype], more_is_better) in PUBLISHED {
        let ratio = |number: f64, redb: f64| match more_is_better {
            true => number / redb,
            false => redb / number,
        };
        let Some(redb_here) = table.get(row, "redb") else {
            continue;
        };
        let here = |engine: &str| {
            table
                .get(row, engine)
                .map_or(f64::NAN, |number| ratio(number, redb_here))
        };
        let (ours, published) = (here("sheaf"), ratio(*prototype, *redb));
        println!(
            "{row:<48}{ours:>9.2}{:>9.2}{:>9.2}{:>11.2}{:>9.2}{published:>9.2}{:>10.2}{}",
            here("LMDB"),
            ratio(*lmdb, *redb),
            ratio(*wired_tiger, *redb),
            ratio(*rocks, *redb),
            ours / published,
            if ours / published < 0.9 { "  miss" } else { "" },
        );
    }
    println!("p.: published with the engine's design, measured on other machines.");
}
