//! The cost of transactions and change streams on the server.
//!
//!   cargo run --release -p sheaf-bench --bin transactions -- target/release/sheafd [--seconds S]
//!
//! CPU is that of the server's process. Conflicts are counted: an aborted transaction is retried
//! until it commits, and its latency includes the retries.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sheaf_bench::engines::mixed;
use sheaf_bench::load::{cpu_time, resident_kb};
use sheaf_bench::measure::per_mille;
use sheaf_bench::sheafd::{Sheafd, ask, run_command};
use sheaf_bson::{DocBuf, DocBuilder, RawValue, doc};

const DOCUMENTS: u64 = 100_000;

fn main() -> io::Result<()> {
    let mut binary = PathBuf::from("target/release/sheafd");
    let mut duration = Duration::from_secs(3);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let seconds = arguments.next().and_then(|s| s.parse().ok());
                duration = Duration::from_secs_f64(seconds.ok_or(io::ErrorKind::InvalidInput)?);
            }
            _ => binary = argument.into(),
        }
    }
    let server = Sheafd::start(&binary)?;
    prepare(&server)?;
    five_writes(&server, duration)?;
    hot(&server, duration)?;
    sessions(&server)?;
    watchers(&server, duration)?;
    Ok(())
}

fn prepare(server: &Sheafd) -> io::Result<()> {
    let mut stream = connect(server)?;
    for batch in 0..DOCUMENTS / 1000 {
        let mut insert = DocBuilder::new();
        insert.append("insert", "c");
        insert.begin_array("documents");
        for n in batch * 1000..(batch + 1) * 1000 {
            insert.push_begin_document();
            insert.append("_id", n as i64);
            insert.append("n", 0i64);
            insert.append(
                "text",
                "a document of about a hundred bytes, as counters with a name are",
            );
            insert.end();
        }
        insert.end();
        insert.append("$db", "bench");
        run_command(&mut stream, insert.finish().as_raw())?;
    }
    Ok(())
}

fn connect(server: &Sheafd) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server.address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A client with its session.
struct Client {
    stream: TcpStream,
    session: [u8; 16],
    number: i64,
}

impl Client {
    fn new(server: &Sheafd, id: u64) -> io::Result<Client> {
        let mut session = [0; 16];
        session[..8].copy_from_slice(&mixed(id).to_be_bytes());
        session[8..].copy_from_slice(&mixed(!id).to_be_bytes());
        Ok(Client {
            stream: connect(server)?,
            session,
            number: 0,
        })
    }

    fn update(&mut self, id: u64, within: Option<(bool, &str)>) -> io::Result<DocBuf> {
        let mut out = DocBuilder::new();
        out.append("update", "c");
        out.begin_array("updates");
        out.push_begin_document();
        out.append_bson("q", &doc! {"_id": id as i64});
        out.append_bson("u", &doc! {"$inc": {"n": 1}});
        out.end();
        out.end();
        self.append_session(&mut out, within);
        out.append("$db", "bench");
        ask(&mut self.stream, out.finish().as_raw())
    }

    fn append_session(&self, out: &mut DocBuilder, within: Option<(bool, &str)>) {
        let Some((starts, level)) = within else {
            return;
        };
        out.begin_document("lsid");
        out.append(
            "id",
            RawValue::Binary {
                subtype: 4,
                bytes: &self.session,
            },
        );
        out.end();
        out.append("txnNumber", self.number);
        out.append("autocommit", false);
        if starts {
            out.append("startTransaction", true);
            out.append_bson("readConcern", &doc! {"level": level});
        }
    }

    fn commit(&mut self) -> io::Result<DocBuf> {
        let mut out = DocBuilder::new();
        out.append("commitTransaction", 1);
        self.append_session(&mut out, Some((false, "")));
        out.append("$db", "admin");
        ask(&mut self.stream, out.finish().as_raw())
    }

    /// Runs a transaction with these updates; false if it was aborted by a conflict.
    fn transaction(&mut self, ids: &[u64], level: &str) -> io::Result<bool> {
        self.number += 1;
        for (n, id) in ids.iter().enumerate() {
            let reply = self.update(*id, Some((n == 0, level)))?;
            if !went_well(&reply)? {
                return Ok(false);
            }
        }
        let reply = self.commit()?;
        went_well(&reply)
    }
}

/// Whether a reply is a success; false for a conflict. Errors: any other failure.
fn went_well(reply: &DocBuf) -> io::Result<bool> {
    match (
        reply.get("ok").and_then(|ok| ok.as_f64()),
        reply.get("code").and_then(|code| code.as_i64_exact()),
    ) {
        (Some(1.0), _) if reply.get("writeErrors").is_none() => Ok(true),
        (_, Some(112)) => Ok(false),
        _ => Err(io::Error::other(reply.to_string())),
    }
}

/// Five updates by one client, plain and as a transaction.
fn five_writes(server: &Sheafd, duration: Duration) -> io::Result<()> {
    println!("five updates by _id, one client");
    for level in ["", "snapshot", "serializable"] {
        let mut client = Client::new(server, 1 + level.len() as u64)?;
        let (start, cpu) = (Instant::now(), cpu_time(server.pid())?);
        let mut done = 0u64;
        while start.elapsed() < duration {
            let ids: Vec<u64> = (0..5).map(|n| mixed(done * 5 + n) % DOCUMENTS).collect();
            match level {
                "" => {
                    for id in &ids {
                        went_well(&client.update(*id, None)?)?;
                    }
                }
                level => {
                    client.transaction(&ids, level)?;
                }
            }
            done += 1;
        }
        let cpu = (cpu_time(server.pid())? - cpu).as_secs_f64() * 1e6;
        let name = if level.is_empty() { "plain" } else { level };
        println!(
            "  {name:<16} {:>8.0} per second, {:>7.1} us of CPU per five",
            done as f64 / start.elapsed().as_secs_f64(),
            cpu / done as f64
        );
    }
    Ok(())
}

/// Sixteen clients, each with transactions of two updates among ten documents.
fn hot(server: &Sheafd, duration: Duration) -> io::Result<()> {
    println!("16 clients, two updates among ten documents in a transaction");
    for level in ["snapshot", "serializable"] {
        let (committed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let latencies = Mutex::new(Vec::new());
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        std::thread::scope(|scope| -> io::Result<()> {
            let mut clients = Vec::new();
            for n in 0..16u64 {
                let (committed, refused, latencies, stop) =
                    (&committed, &refused, &latencies, &stop);
                clients.push(scope.spawn(move || -> io::Result<()> {
                    let mut client = Client::new(server, 100 + n + level.len() as u64 * 100)?;
                    let mut own = Vec::new();
                    let mut round = n << 32;
                    while !stop.load(Ordering::Relaxed) {
                        round += 1;
                        let ids = [mixed(round) % 10, mixed(!round) % 10];
                        let begun = Instant::now();
                        while !client.transaction(&ids, level)? {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        committed.fetch_add(1, Ordering::Relaxed);
                        own.push(begun.elapsed().as_micros() as u64);
                    }
                    latencies.lock().expect("no client panics").extend(own);
                    Ok(())
                }));
            }
            std::thread::sleep(duration);
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().expect("a client does not panic")?;
            }
            Ok(())
        })?;
        let mut latencies = latencies.into_inner().expect("no client panics");
        latencies.sort_unstable();
        println!(
            "  {level:<16} {:>8.0} committed per second, {:>6.2} aborted per commit, p50 {:>6.2} ms, p99 {:>6.2} ms",
            committed.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64(),
            refused.load(Ordering::Relaxed) as f64 / committed.load(Ordering::Relaxed) as f64,
            per_mille(&latencies, 500) as f64 / 1e3,
            per_mille(&latencies, 990) as f64 / 1e3,
        );
    }
    Ok(())
}

/// Ten thousand sessions, each with one transaction of one update.
fn sessions(server: &Sheafd) -> io::Result<()> {
    const SESSIONS: u64 = 10_000;
    let before = resident_kb(server.pid())?;
    let (start, cpu) = (Instant::now(), cpu_time(server.pid())?);
    let mut client = Client::new(server, 0)?;
    for n in 0..SESSIONS {
        client.session[..8].copy_from_slice(&mixed(n).to_be_bytes());
        client.number = 1;
        let reply = client.update(mixed(n) % DOCUMENTS, Some((true, "snapshot")))?;
        went_well(&reply)?;
        went_well(&client.commit()?)?;
    }
    let cpu = (cpu_time(server.pid())? - cpu).as_secs_f64() * 1e6;
    println!(
        "10,000 sessions, each a transaction of one update: {:.1} us of CPU each, {:.1} kB resident each, {:.1} s",
        cpu / SESSIONS as f64,
        (resident_kb(server.pid())? - before.min(resident_kb(server.pid())?)) as f64
            / SESSIONS as f64,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// 5,000 writes per second, with 0, 1 and 20 change streams on the collection.
fn watchers(server: &Sheafd, duration: Duration) -> io::Result<()> {
    let mut base = 0.0;
    for watchers in [0u64, 1, 20] {
        let stop = AtomicBool::new(false);
        let events = AtomicU64::new(0);
        let (writes, cpu) = std::thread::scope(|scope| -> io::Result<(u64, f64)> {
            let mut running = Vec::new();
            for _ in 0..watchers {
                let (stop, events) = (&stop, &events);
                running.push(scope.spawn(move || watch(server, stop, events)));
            }
            std::thread::sleep(Duration::from_millis(300));
            let mut client = Client::new(server, 9999)?;
            let (start, cpu) = (Instant::now(), cpu_time(server.pid())?);
            let mut writes = 0u64;
            while start.elapsed() < duration {
                went_well(&client.update(mixed(writes) % DOCUMENTS, None)?)?;
                writes += 1;
                let due = Duration::from_micros(200 * writes);
                if let Some(early) = due.checked_sub(start.elapsed()) {
                    std::thread::sleep(early);
                }
            }
            std::thread::sleep(Duration::from_millis(200));
            let cpu = (cpu_time(server.pid())? - cpu).as_secs_f64() * 1e6;
            stop.store(true, Ordering::Relaxed);
            for watcher in running {
                watcher.join().expect("a watcher does not panic")?;
            }
            Ok((writes, cpu))
        })?;
        let events = events.load(Ordering::Relaxed);
        let each = cpu / writes as f64;
        if watchers == 0 {
            base = each;
        }
        println!(
            "{writes} updates ({:.0} per second), {watchers} watchers: {each:.1} us of CPU per update, {events} events, {:.2} us each",
            writes as f64 / duration.as_secs_f64(),
            (each - base) * writes as f64 / events.max(1) as f64,
        );
    }
    Ok(())
}

fn watch(server: &Sheafd, stop: &AtomicBool, events: &AtomicU64) -> io::Result<()> {
    let mut stream = connect(server)?;
    let open =
        doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}, "$db": "bench"};
    let reply = run_command(&mut stream, open.as_raw())?;
    let Some(RawValue::Document(cursor)) = reply.get("cursor") else {
        return Err(io::Error::other(reply.to_string()));
    };
    let id = cursor
        .get("id")
        .and_then(|id| id.as_i64_exact())
        .unwrap_or(0);
    while !stop.load(Ordering::Relaxed) {
        let more = doc! {"getMore": id, "collection": "c", "maxTimeMS": 100i64, "$db": "bench"};
        let reply = run_command(&mut stream, more.as_raw())?;
        if let Some(RawValue::Document(cursor)) = reply.get("cursor")
            && let Some(RawValue::Array(batch)) = cursor.get("nextBatch")
        {
            events.fetch_add(batch.iter().count() as u64, Ordering::Relaxed);
        }
    }
    Ok(())
}
