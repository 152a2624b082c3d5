//! The server's CPU time per request, and its ratio to that of a null server for a request with the
//! same bytes.
//!
//!   cargo run --release -p sheaf-bench --bin workloads -- target/release/sheafd
//!
//! With `writes` before the server's path: all kinds of writes compared with an insert, and one
//! document that many clients write concurrently.

mod writes;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use sheaf_bench::load::{self, Measured, resident_kb};
use sheaf_bench::null_server::{self, Form, NullServer};
use sheaf_bench::sheafd::{Sheafd, message, run_command};
use sheaf_bson::{DocBuilder, doc};

/// Number of documents in the collection that is read and updated.
const DOCUMENTS: i64 = 100_000;
/// Number of rounds; the cheapest counts, because disturbances only add.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(800);
const CONNECTIONS: [usize; 2] = [1, 4];

type Make = fn(usize, u64, &mut Vec<u8>);

/// Name, documents per request, and the function that builds its requests.
const WORKLOADS: &[(&str, u64, Make)] = &[
    ("find by _id", 1, find_by_id),
    ("find one by secondary index", 1, find_by_a),
    ("range of 100 documents", 100, find_range),
    ("update by _id", 1, update_by_id),
    ("insert one", 1, insert_one),
    ("insert 1000", 1000, insert_batch),
];

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve", form] => null_server::serve_named(form),
        ["writes", sheafd] => writes::run(Path::new(sheafd)),
        [sheafd] => compare(Path::new(sheafd)),
        _ => Err(io::Error::other("usage: workloads [writes] PATH-OF-SHEAFD")),
    }
}

fn compare(binary: &Path) -> io::Result<()> {
    let null = NullServer::start(Form::Threads)?;
    let server = Sheafd::start(binary)?;
    println!(
        "ready in {} ms, {} kB resident when idle",
        server.ready.as_millis(),
        resident_kb(server.pid())?
    );
    load_documents(server.address)?;
    println!(
        "{:<30} {:>5} {:>10} {:>10} {:>7} {:>10} {:>12}",
        "", "conns", "null us", "sheafd us", "ratio", "us/doc", "requests/s"
    );
    for (name, documents, make) in WORKLOADS {
        for connections in CONNECTIONS {
            let base = cheapest(null.address, null.pid(), connections, *make)?;
            let ours = cheapest(server.address, server.pid(), connections, *make)?;
            println!(
                "{name:<30} {connections:>5} {:>10.2} {:>10.2} {:>7.2} {:>10.2} {:>12.0}",
                base.cpu_us(),
                ours.cpu_us(),
                ours.cpu_us() / base.cpu_us(),
                (ours.cpu_us() - base.cpu_us()) / *documents as f64,
                ours.per_second()
            );
        }
    }
    Ok(())
}

fn cheapest(address: SocketAddr, pid: u32, connections: usize, make: Make) -> io::Result<Measured> {
    let mut best: Option<Measured> = None;
    for _ in 0..ROUNDS {
        let measured = load::run_with(address, pid, connections, ROUND, &make)?;
        if best.is_none_or(|best| measured.cpu_us() < best.cpu_us()) {
            best = Some(measured);
        }
    }
    best.ok_or_else(|| io::Error::other("no round was run"))
}

/// A key without a pattern that a cache could follow.
fn key(connection: usize, number: u64) -> i64 {
    let mixed =
        (number.wrapping_add((connection as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 20) % DOCUMENTS as u64) as i64
}

fn find_by_id(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": key(connection, number)};
    message(
        doc! {"find": "c", "filter": filter, "limit": 1i64, "singleBatch": true, "$db": "bench"}
            .as_raw(),
        out,
    );
}

fn find_by_a(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"a": key(connection, number)};
    message(
        doc! {"find": "c", "filter": filter, "limit": 1i64, "singleBatch": true, "$db": "bench"}
            .as_raw(),
        out,
    );
}

fn find_range(connection: usize, number: u64, out: &mut Vec<u8>) {
    let from = key(connection, number).min(DOCUMENTS - 100);
    let filter = doc! {"a": {"$gte": from, "$lt": from + 100}};
    message(
        doc! {"find": "c", "filter": filter, "batchSize": 101i64, "$db": "bench"}.as_raw(),
        out,
    );
}

fn update_by_id(connection: usize, number: u64, out: &mut Vec<u8>) {
    let filter = doc! {"_id": key(connection, number)};
    let statement = doc! {"q": filter, "u": {"$set": {"n": number as i64}}};
    let mut body = DocBuilder::new();
    body.append("update", "c");
    body.begin_array("updates");
    body.push_document_bytes(statement.as_bytes());
    body.end();
    body.append("$db", "bench");
    message(body.finish().as_raw(), out);
}

fn insert_one(_: usize, _: u64, out: &mut Vec<u8>) {
    insert(1, out);
}

fn insert_batch(_: usize, _: u64, out: &mut Vec<u8>) {
    insert(1000, out);
}

fn insert(count: i64, out: &mut Vec<u8>) {
    let mut body = DocBuilder::new();
    body.append("insert", "sink");
    body.begin_array("documents");
    for n in 0..count {
        body.push_document_bytes(
            doc! {"_id": sheaf_bson::ObjectId::new(), "a": n, "s": TEXT}.as_bytes(),
        );
    }
    body.end();
    body.append("$db", "bench");
    message(body.finish().as_raw(), out);
}

/// The filler that makes a document about 500 bytes long.
const TEXT: &str = concat!(
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "01234567890123456789012345678901234567890123456789"
);

fn load_documents(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let started = Instant::now();
    for batch in 0..DOCUMENTS / 1000 {
        let mut body = DocBuilder::new();
        body.append("insert", "c");
        body.begin_array("documents");
        for id in batch * 1000..(batch + 1) * 1000 {
            body.push_document_bytes(doc! {"_id": id, "a": id, "s": TEXT}.as_bytes());
        }
        body.end();
        body.append("$db", "bench");
        run_command(&mut stream, body.finish().as_raw())?;
    }
    let rate = DOCUMENTS as f64 / started.elapsed().as_secs_f64();
    println!("loaded {DOCUMENTS} documents, {rate:.0}/s");
    let index = doc! {"key": {"a": 1}, "name": "a_1"};
    let mut body = DocBuilder::new();
    body.append("createIndexes", "c");
    body.begin_array("indexes");
    body.push_document_bytes(index.as_bytes());
    body.end();
    body.append("$db", "bench");
    run_command(&mut stream, body.finish().as_raw()).map(drop)
}
