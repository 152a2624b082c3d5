//! All kinds of writes: the server's CPU time per write, as a ratio to an insert's; and a hot
//! document.
//!
//! ```text
//!   four clients, keys at random ── a kind of write ──> CPU per write / CPU per insert
//!   1, 4, 16, 64 clients, one key ── $inc ────────────> throughput, latencies, conflicts
//! ```

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sheaf_bench::load::{cpu_time, exchange};
use sheaf_bench::measure::per_mille;
use sheaf_bench::sheafd::{Sheafd, message, run_command};
use sheaf_bson::{DocBuf, DocBuilder, ObjectId, doc};

use super::{DOCUMENTS, Make, TEXT, cheapest, insert_one, key, load_documents};

const CONNECTIONS: usize = 4;
/// How long each group of clients writes the hot document.
const HOT: Duration = Duration::from_secs(3);
/// Operations in a mixed bulkWrite: three updates, four inserts, two upserts and a delete, ten
/// times.
const BULK: u64 = 100;

/// Name, writes per request, and the function that builds its requests.
const WRITES: &[(&str, u64, Make)] = &[
    ("insert one", 1, insert_one),
    ("update by _id, field without index", 1, update_plain),
    ("update by _id, indexed field", 1, update_indexed),
    ("update by _id, $inc", 1, increment),
    ("update by _id, no-op", 1, update_nothing),
    ("replacement by _id", 1, replace),
    ("upsert that inserts", 1, upsert_new),
    ("upsert that matches", 1, upsert_old),
    ("findAndModify, new: true", 1, find_and_modify),
    ("bulkWrite of 100, mixed", BULK, bulk),
];

pub fn run(binary: &Path) -> io::Result<()> {
    let server = Sheafd::start(binary)?;
    load_documents(server.address)?;
    println!(
        "{:<38} {:>12} {:>10} {:>12} {:>12}",
        "", "us/write", "vs insert", "requests/s", "stalled ms"
    );
    let mut stream = TcpStream::connect(server.address)?;
    let mut insert = None;
    for (name, writes, make) in WRITES {
        let stalled = engine_number(&mut stream, "stalledMicros")?;
        let measured = cheapest(server.address, server.pid(), CONNECTIONS, *make)?;
        let stalled = engine_number(&mut stream, "stalledMicros")? - stalled;
        let each = measured.cpu_us() / *writes as f64;
        let insert = *insert.get_or_insert(each);
        println!(
            "{name:<38} {each:>12.2} {:>10.2} {:>12.0} {:>12.1}",
            each / insert,
            measured.per_second(),
            stalled / 1e3
        );
    }
    println!(
        "{:<38} {:>12} {:>10} {:>9} {:>9} {:>9} {:>10}",
        "one hot document", "us/write", "writes/s", "p50 ms", "p99 ms", "worst ms", "conflicts"
    );
    for clients in [1, 4, 16, 64] {
        hot(&server, clients)?;
    }
    Ok(())
}

/// `clients` clients increment one counter concurrently. Errors: an increment was lost.
fn hot(server: &Sheafd, clients: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(server.address)?;
    let counter = doc! {"_id": clients as i64, "n": 0i64, "s": TEXT};
    let insert = doc! {"insert": "hot", "documents": [counter], "$db": "bench"};
    run_command(&mut stream, insert.as_raw())?;
    let before = conflicts(&mut stream)?;
    let cpu = cpu_time(server.pid())?;
    let start = Instant::now();
    let mut latencies = write_at_once(server.address, clients)?;
    let elapsed = start.elapsed();
    let cpu = cpu_time(server.pid())?.saturating_sub(cpu);
    let conflicts = conflicts(&mut stream)? - before;
    latencies.sort_unstable();
    let find = doc! {"find": "hot", "filter": {"_id": clients as i64}, "$db": "bench"};
    let found = run_command(&mut stream, find.as_raw())?;
    let writes = latencies.len() as i64;
    let counted = found.to_string().contains(&format!("n: {writes},"));
    if !counted {
        return Err(io::Error::other(format!("{writes} increments: {found}")));
    }
    println!(
        "{:<38} {:>12.2} {:>10.0} {:>9.2} {:>9.2} {:>9.2} {:>10.3}",
        format!("  {clients} clients"),
        cpu.as_secs_f64() * 1e6 / writes as f64,
        writes as f64 / elapsed.as_secs_f64(),
        per_mille(&latencies, 500) as f64 / 1e3,
        per_mille(&latencies, 990) as f64 / 1e3,
        latencies.last().copied().unwrap_or(0) as f64 / 1e3,
        conflicts as f64 / writes as f64,
    );
    Ok(())
}

/// The latency of each increment in microseconds.
fn write_at_once(address: SocketAddr, clients: usize) -> io::Result<Vec<u64>> {
    let stop = AtomicBool::new(false);
    let latencies = Mutex::new(Vec::new());
    let mut request = Vec::new();
    let statement = doc! {"q": {"_id": clients as i64}, "u": {"$inc": {"n": 1i64}}};
    message(
        doc! {"update": "hot", "updates": [statement], "$db": "bench"}.as_raw(),
        &mut request,
    );
    std::thread::scope(|scope| -> io::Result<()> {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| -> io::Result<()> {
                    let mut stream = TcpStream::connect(address)?;
                    stream.set_nodelay(true)?;
                    let (mut reply, mut own) = (Vec::new(), Vec::new());
                    while !stop.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        exchange(&mut stream, &request, &mut reply)?;
                        own.push(begun.elapsed().as_micros() as u64);
                    }
                    latencies.lock().expect("no client panics").extend(own);
                    Ok(())
                })
            })
            .collect();
        std::thread::sleep(HOT);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client does not panic")?;
        }
        Ok(())
    })?;
    Ok(latencies.into_inner().expect("no client panics"))
}

/// Number of write conflicts so far.
fn conflicts(stream: &mut TcpStream) -> io::Result<i64> {
    let status = status(stream)?;
    let operation = section(&section(&status, "metrics"), "operation");
    let count = operation.get("writeConflicts").and_then(|n| n.as_f64());
    Ok(count.unwrap_or(0.0) as i64)
}

/// A counter of the engine.
fn engine_number(stream: &mut TcpStream, name: &str) -> io::Result<f64> {
    let engine = section(&status(stream)?, "sheaf");
    Ok(engine.get(name).and_then(|n| n.as_f64()).unwrap_or(0.0))
}

fn status(stream: &mut TcpStream) -> io::Result<DocBuf> {
    run_command(stream, doc! {"serverStatus": 1, "$db": "admin"}.as_raw())
}

fn section(doc: &DocBuf, name: &str) -> DocBuf {
    let value = doc.as_raw().get(name).and_then(|value| value.as_document());
    value.map(|doc| doc.to_buf()).unwrap_or_default()
}

fn update(filter: DocBuf, change: DocBuf, upsert: bool, out: &mut Vec<u8>) {
    let statement = doc! {"q": filter, "u": change, "upsert": upsert};
    message(
        doc! {"update": "c", "updates": [statement], "$db": "bench"}.as_raw(),
        out,
    );
}

fn update_plain(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": key(connection, number)};
    update(filter, doc! {"$set": {"n": number as i64}}, false, out);
}

fn update_indexed(connection: usize, number: u64, out: &mut Vec<u8>) {
    let id = key(connection, number);
    let change = doc! {"$set": {"a": id + (number as i64 % 1000) * DOCUMENTS}};
    update(doc! {"_id": id}, change, false, out);
}

fn increment(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": key(connection, number)};
    update(filter, doc! {"$inc": {"counter": 1}}, false, out);
}

fn update_nothing(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": key(connection, number)};
    update(filter, doc! {"$set": {"s": TEXT}}, false, out);
}

fn replace(connection: usize, number: u64, out: &mut Vec<u8>) {
    let id = key(connection, number);
    let change = doc! {"a": id, "s": TEXT, "n": number as i64};
    update(doc! {"_id": id}, change, false, out);
}

fn upsert_new(_: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": ObjectId::new()};
    let change = doc! {"$set": {"a": number as i64, "s": TEXT}};
    update(filter, change, true, out);
}

fn upsert_old(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": key(connection, number)};
    update(filter, doc! {"$set": {"n": number as i64}}, true, out);
}

fn find_and_modify(connection: usize, number: u64, out: &mut Vec<u8>) {
    let query = doc! {"_id": key(connection, number)};
    let change = doc! {"$inc": {"counter": 1}};
    message(
        doc! {"findAndModify": "c", "query": query, "update": change, "new": true, "$db": "bench"}
            .as_raw(),
        out,
    );
}

fn bulk(connection: usize, number: u64, out: &mut Vec<u8>) {
    let mut body = DocBuilder::new();
    body.append("bulkWrite", 1);
    body.begin_array("ops");
    for n in 0..BULK {
        let id = key(connection, number * BULK + n);
        let op = match n % 10 {
            0..3 => doc! {"update": 0, "filter": {"_id": id}, "updateMods": {"$inc": {"n": 1}}},
            3..7 => {
                doc! {"insert": 1, "document": {"_id": ObjectId::new(), "a": id, "s": TEXT}}
            }
            7..9 => doc! {
                "update": 1,
                "filter": {"_id": ObjectId::new()},
                "updateMods": {"$set": {"a": id, "s": TEXT}},
                "upsert": true,
            },
            _ => doc! {"delete": 1, "filter": {"_id": ObjectId::new()}},
        };
        body.push_document_bytes(op.as_bytes());
    }
    body.end();
    body.begin_array("nsInfo");
    for ns in ["bench.c", "bench.sink"] {
        body.push_document_bytes(doc! {"ns": ns}.as_bytes());
    }
    body.end();
    body.append("errorsOnly", true);
    body.append("$db", "admin");
    message(body.finish().as_raw(), out);
}
