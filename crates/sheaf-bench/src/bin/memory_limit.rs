//! A server under a memory limit smaller than its data, with clients that read, update, leave
//! cursors open and write documents of the maximum size. Reports whether the server survives, its
//! memory, and the latency of an unrelated client.
//!
//! ```text
//!   cargo build --release -p sheafd
//!   cargo run --release -p sheaf-bench --bin memory_limit -- [--limit-mb 256] [--cache-mb 128]
//!       [--data-mb 1024] [--seconds 60] target/release/sheafd
//!
//!   group of --limit-mb ── sheafd --cacheSizeGB ─┬─ 2 clients read --data-mb at random
//!                                                ├─ 2 update it at random
//!                                                ├─ 1 writes documents of 16 MiB
//!                                                ├─ 1 opens cursors, 100 of which stay idle
//!                                                └─ 1 reads a small collection every
//!                                                     millisecond; its latencies are printed
//! ```
//!
//! The server runs in its own control group if this program may create one. Otherwise it prints a
//! note and measures only resident memory.

use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sheaf_bench::control_group::ControlGroup;
use sheaf_bench::engines::mixed;
use sheaf_bench::measure::per_mille;
use sheaf_bench::sheafd::{Sheafd, run_command};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, doc};

const DOCUMENT_BYTES: u64 = 1000;
const SMALL: i64 = 1000;
const LARGE: i64 = 20;
/// Length of the text in a document of the maximum size; its other fields take less than the rest.
const LARGE_BYTES: usize = (16 << 20) - 256;
const CURSORS: usize = 100;
const KINDS: [&str; 6] = ["total", "generations", "pages", "mapped", "log", "batches"];

struct Options {
    limit_mb: u64,
    cache_mb: u64,
    data_mb: u64,
    seconds: u64,
    sheafd: PathBuf,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        limit_mb: 256,
        cache_mb: 128,
        data_mb: 1024,
        seconds: 60,
        sheafd: PathBuf::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = match argument.as_str() {
            "--limit-mb" => &mut options.limit_mb,
            "--cache-mb" => &mut options.cache_mb,
            "--data-mb" => &mut options.data_mb,
            "--seconds" => &mut options.seconds,
            _ => {
                options.sheafd = argument.into();
                continue;
            }
        };
        let value = arguments.next().and_then(|value| value.parse().ok());
        *number = value.ok_or_else(|| format!("{argument} needs a number"))?;
    }
    match options.sheafd.is_file() {
        true => Ok(options),
        false => Err("missing argument: the server's path, such as target/release/sheafd".into()),
    }
}

fn main() -> io::Result<()> {
    let options = options().map_err(io::Error::other)?;
    let group = match ControlGroup::with_memory(options.limit_mb << 20) {
        Ok(group) => {
            println!(
                "The server is in a control group (version {}) of {} MB; budget {} MB, data {} MB.",
                group.version(),
                options.limit_mb,
                options.cache_mb,
                options.data_mb
            );
            Some(group)
        }
        Err(error) => {
            println!(
                "Cannot create a control group ({error}): memory is not limited, only resident memory is measured. \
                 Budget {} MB, data {} MB.",
                options.cache_mb, options.data_mb
            );
            None
        }
    };
    // Declared after the group, so that the server ends before the group is removed.
    let mut server = Sheafd::start_as(&options.sheafd, |command| {
        let cache = options.cache_mb as f64 / 1024.0;
        command.args(["--cacheSizeGB", &cache.to_string()]);
        if let Some(group) = &group {
            group.enter(command);
        }
    })?;
    let outcome = measure(&server, &options);
    let ended = server.ended()?;
    if let Err(error) = outcome {
        println!("The run failed: {error}");
    }
    if let Some(group) = &group {
        let of = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        println!(
            "Group: peak {} MB including page cache; processes killed for lack of memory: {}.",
            of(group.peak().map(|bytes| bytes >> 20)),
            of(group.kills())
        );
    }
    match ended {
        None => println!("The server is running."),
        Some(status) => println!("The server has ended: {status}."),
    }
    Ok(())
}

fn measure(server: &Sheafd, options: &Options) -> io::Result<()> {
    let watch = Watch::start(server)?;
    let documents = options.data_mb * 1024 * 1024 / DOCUMENT_BYTES;
    println!(
        "\n| | counted, max, MB | anonymous resident, max, MB | gets of a small collection | p50, µs | p99 | p99.9 | max |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let began = Instant::now();
    load(server.address, documents)?;
    let took = began.elapsed().as_secs_f64();
    watch.row(&format!("loaded, {took:.0} s"), &mut Vec::new());
    let idle = Duration::from_secs((options.seconds / 4).max(1));
    let mut times = probe(server.address, &AtomicBool::new(false), Some(idle))?;
    watch.row("idle", &mut times);
    let (mut times, done) = under_load(server, documents, options.seconds)?;
    watch.row("under load", &mut times);
    println!("\nMeanwhile: {done}.");
    let memory = Memory::of(server)?;
    println!(
        "Maximum counted by kind, MB: {}; budget {}; snapshots spilled: {}.",
        memory.by_kind(),
        memory.limit >> 20,
        memory.spilled
    );
    Ok(())
}

// --- Clients
// --------------------------------------------------------------------------------------

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Text of which half is repetitive.
fn filler(seed: u64, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 32);
    let mut state = mixed(seed);
    while text.len() < bytes {
        let _ = write!(text, "{state:016x}category of goods");
        state = mixed(state);
    }
    text.truncate(bytes);
    text
}

fn big(n: u64) -> DocBuf {
    let used = 60;
    doc! {"_id": n as i64, "a": (mixed(n) % 1000) as i64, "v": 0_i64,
    "filler": filler(n, DOCUMENT_BYTES as usize - used)}
}

fn insert(stream: &mut TcpStream, collection: &str, documents: &[DocBuf]) -> io::Result<()> {
    let mut command = DocBuilder::new();
    command.append("insert", collection);
    command.begin_array("documents");
    for document in documents {
        command.push_document_bytes(document.as_bytes());
    }
    command.end();
    command.append("$db", "bench");
    run_command(stream, command.finish().as_raw()).map(drop)
}

fn load(address: SocketAddr, documents: u64) -> io::Result<()> {
    let mut stream = connect(address)?;
    let small: Vec<_> = (0..SMALL)
        .map(|n| doc! {"_id": n, "filler": filler(n as u64, 200)})
        .collect();
    insert(&mut stream, "small", &small)?;
    let index =
        doc! {"createIndexes": "big", "indexes": [{"key": {"a": 1}, "name": "a"}], "$db": "bench"};
    run_command(&mut stream, index.as_raw())?;
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let loaders = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut stream = connect(address)?;
                loop {
                    let from = next.fetch_add(500, Ordering::Relaxed);
                    if from >= documents {
                        return Ok(());
                    }
                    let batch: Vec<_> = (from..documents.min(from + 500)).map(big).collect();
                    insert(&mut stream, "big", &batch)?;
                }
            })
        });
        loaders.into_iter().try_for_each(join)
    })
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    handle.join().expect("a client does not panic")
}

/// Reads documents of the small collection, one per millisecond; returns the latencies in
/// microseconds.
fn probe(address: SocketAddr, stop: &AtomicBool, limit: Option<Duration>) -> io::Result<Vec<u64>> {
    let mut stream = connect(address)?;
    let (began, mut times) = (Instant::now(), Vec::new());
    while !stop.load(Ordering::Relaxed) && limit.is_none_or(|limit| began.elapsed() < limit) {
        let id = mixed(times.len() as u64) as i64 & i64::MAX;
        let find =
            doc! {"find": "small", "filter": {"_id": id % SMALL}, "limit": 1, "$db": "bench"};
        let asked = Instant::now();
        run_command(&mut stream, find.as_raw())?;
        times.push(asked.elapsed().as_micros() as u64);
        thread::sleep(Duration::from_millis(1));
    }
    Ok(times)
}

/// Calls `ask` until `stop` is set; returns the number of calls.
fn repeat(
    address: SocketAddr,
    stop: &AtomicBool,
    mut ask: impl FnMut(&mut TcpStream, u64) -> io::Result<()>,
) -> io::Result<u64> {
    let (mut stream, mut count) = (connect(address)?, 0);
    while !stop.load(Ordering::Relaxed) {
        ask(&mut stream, count)?;
        count += 1;
    }
    Ok(count)
}

fn under_load(server: &Sheafd, documents: u64, seconds: u64) -> io::Result<(Vec<u64>, String)> {
    let (address, stop) = (server.address, &AtomicBool::new(false));
    thread::scope(|scope| {
        let readers = [1_u64, 2].map(|seed| {
            scope.spawn(move || {
                repeat(address, stop, |stream, n| {
                    let id = (mixed(n ^ (seed << 50)) % documents) as i64;
                    let find =
                        doc! {"find": "big", "filter": {"_id": id}, "limit": 1, "$db": "bench"};
                    run_command(stream, find.as_raw()).map(drop)
                })
            })
        });
        let updaters = [3_u64, 4].map(|seed| {
            scope.spawn(move || {
                repeat(address, stop, |stream, n| {
                    let id = (mixed(n ^ (seed << 50)) % documents) as i64;
                    let set = doc! {"v": n as i64, "filler": filler(n ^ seed, DOCUMENT_BYTES as usize - 60)};
                    let update = doc! {"update": "big",
                    "updates": [{"q": {"_id": id}, "u": {"$set": &set}}], "$db": "bench"};
                    run_command(stream, update.as_raw()).map(drop)
                })
            })
        });
        let holder = scope.spawn(move || hold_cursors(address, stop));
        let large = scope.spawn(move || {
            repeat(address, stop, |stream, n| {
                let id = n as i64 % LARGE;
                let new = doc! {"_id": id, "n": n as i64, "filler": filler(n, LARGE_BYTES)};
                let update = doc! {"update": "large",
                "updates": [{"q": {"_id": id}, "u": &new, "upsert": true}], "$db": "bench"};
                run_command(stream, update.as_raw())?;
                if n % 4 == 3 {
                    let find =
                        doc! {"find": "large", "filter": {"_id": id}, "limit": 1, "$db": "bench"};
                    run_command(stream, find.as_raw())?;
                }
                thread::sleep(Duration::from_millis(250));
                Ok(())
            })
        });
        let prober = scope.spawn(move || probe(address, stop, None));
        for _ in 0..seconds * 10 {
            thread::sleep(Duration::from_millis(100));
            // If the server has ended, the clients have, too.
            if prober.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let [reads, updates] = [readers, updaters].map(|clients| {
            let counts = clients.into_iter().map(join);
            counts.sum::<io::Result<u64>>()
        });
        let (cursors, large) = (join(holder), join(large));
        let times = join(prober)?;
        let done = format!(
            "{} reads and {} updates of 1 KB, {} documents of 16 MiB, {} cursors opened",
            reads?, updates?, large?, cursors?
        );
        Ok((times, done))
    })
}

/// Opens a cursor of one of three kinds every tenth of a second and leaves it idle. If more than
/// [`CURSORS`] are open, reads ten more batches from the oldest, which must still be valid, and
/// closes it.
fn hold_cursors(address: SocketAddr, stop: &AtomicBool) -> io::Result<u64> {
    let mut open = std::collections::VecDeque::new();
    repeat(address, stop, |stream, n| {
        let sort = if n % 2 == 0 { 1 } else { -1 };
        let find = match n % 3 {
            2 => {
                doc! {"find": "big", "filter": {"a": {"$gte": (mixed(n) % 900) as i64}}, "sort": {"a": 1},
                "batchSize": 10, "$db": "bench"}
            }
            _ => {
                doc! {"find": "big", "sort": {"_id": sort}, "skip": (n % 100) as i64, "batchSize": 10, "$db": "bench"}
            }
        };
        let reply = run_command(stream, find.as_raw())?;
        open.push_back(cursor_id(&reply)?);
        if open.len() > CURSORS
            && let Some(id) = open.pop_front()
        {
            for _ in 0..10 {
                let more =
                    doc! {"getMore": id, "collection": "big", "batchSize": 10, "$db": "bench"};
                let reply = run_command(stream, more.as_raw())?;
                if cursor_id(&reply)? != id {
                    return Err(io::Error::other("a cursor was closed unexpectedly"));
                }
            }
            let kill = doc! {"killCursors": "big", "cursors": [id], "$db": "bench"};
            run_command(stream, kill.as_raw())?;
        }
        thread::sleep(Duration::from_millis(100));
        Ok(())
    })
}

fn cursor_id(reply: &DocBuf) -> io::Result<i64> {
    let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document());
    match cursor.and_then(|cursor| cursor.get("id")) {
        Some(RawValue::Int64(id)) => Ok(id),
        _ => Err(io::Error::other("a reply without a cursor")),
    }
}

// --- The server's memory
// --------------------------------------------------------------------------

/// Memory as counted by the server.
struct Memory {
    limit: u64,
    spilled: u64,
    total: u64,
    /// Maximum by kind, in the order of [`KINDS`].
    most: [u64; 6],
}

impl Memory {
    fn of(server: &Sheafd) -> io::Result<Memory> {
        Memory::ask(&mut connect(server.address)?)
    }

    fn ask(stream: &mut TcpStream) -> io::Result<Memory> {
        let status = run_command(stream, doc! {"serverStatus": 1, "$db": "admin"}.as_raw())?;
        let memory = inner(status.as_raw(), "sheaf").and_then(|sheaf| inner(sheaf, "memory"));
        let memory =
            memory.ok_or_else(|| io::Error::other("serverStatus has no memory section"))?;
        let number = |of: RawDoc<'_>, name: &str| {
            let found = of.get(name).and_then(|value| value.as_i64_exact());
            found.map_or(0, i64::unsigned_abs)
        };
        let kind = |name: &str, field: &str| inner(memory, name).map_or(0, |of| number(of, field));
        Ok(Memory {
            limit: number(memory, "limitBytes"),
            spilled: number(memory, "snapshotsSpilled"),
            total: kind("total", "bytes"),
            most: KINDS.map(|name| kind(name, "bytesMax")),
        })
    }

    fn by_kind(&self) -> String {
        let all = KINDS.iter().zip(self.most);
        let shown = all.map(|(name, bytes)| format!("{name} {}", bytes >> 20));
        shown.collect::<Vec<_>>().join(", ")
    }
}

fn inner<'d>(of: RawDoc<'d>, name: &str) -> Option<RawDoc<'d>> {
    of.get(name)?.as_document()
}

/// Samples the server ten times per second and keeps the maximum.
struct Watch {
    most: Arc<Mutex<(u64, u64)>>,
}

impl Watch {
    fn start(server: &Sheafd) -> io::Result<Watch> {
        let watch = Watch {
            most: Arc::default(),
        };
        let (most, pid) = (Arc::downgrade(&watch.most), server.pid());
        let mut stream = connect(server.address)?;
        thread::spawn(move || {
            while let Some(most) = most.upgrade() {
                let counted = Memory::ask(&mut stream).map_or(0, |memory| memory.total);
                let resident = resident_anonymous(pid).unwrap_or(0);
                {
                    let mut most = most
                        .lock()
                        .expect("no thread panics while holding the lock");
                    *most = (most.0.max(counted), most.1.max(resident));
                }
                drop(most);
                thread::sleep(Duration::from_millis(100));
            }
        });
        Ok(watch)
    }

    /// Prints the maximum since the last row.
    fn row(&self, name: &str, times: &mut [u64]) {
        let most = std::mem::take(
            &mut *self
                .most
                .lock()
                .expect("no thread panics while holding the lock"),
        );
        times.sort_unstable();
        print!("| {name} | {} | {} |", most.0 >> 20, most.1 >> 20);
        match times.last() {
            None => println!(" | | | | |"),
            Some(last) => {
                let part = |part| per_mille(times, part);
                let parts = (part(500), part(990), part(999));
                println!(
                    " {} | {} | {} | {} | {last} |",
                    times.len(),
                    parts.0,
                    parts.1,
                    parts.2
                );
            }
        }
    }
}

/// Resident anonymous memory of a process, in bytes.
fn resident_anonymous(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes: u64 = line?.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes << 10)
}
