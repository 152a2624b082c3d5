//! Measures the delay with which an operation ends after it exceeds its time limit or is killed.
//!
//! ```text
//!   maxTimeMS     ├──── limit ────┤── late ──┤ reply
//!   killOp        ├──── wait ─── killOp sent ──┤ late ──┤ reply of the operation
//!   killCursors   the same, of a getMore; and of an idle cursor with a large state:
//!                 until killCursors replies
//! ```
//!
//! `cargo run --release -p sheaf-bench --bin endings -- target/release/sheafd [rounds]
//! [documents]`. Every blocking stage runs over all documents, in memory and (in separate rows)
//! spilling. The numbers are milliseconds of wall time: other load on the machine shows in the
//! maximum.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sheaf_bench::sheafd::{Sheafd, ask, run_command};
use sheaf_bson::{ArrayBuf, ArrayBuilder, DocBuf, DocBuilder, doc};

/// When operations are interrupted, in milliseconds after their start.
const TIMES: [u64; 4] = [40, 120, 250, 400];

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || io::Error::other("usage: endings SHEAFD [ROUNDS] [DOCUMENTS]");
    let binary = PathBuf::from(arguments.next().ok_or_else(usage)?);
    let rounds = arguments.next().map_or(Ok(5), |n| n.parse());
    let rounds: usize = rounds.map_err(io::Error::other)?;
    let documents = arguments.next().map_or(Ok(300_000), |n| n.parse());
    let documents: i32 = documents.map_err(io::Error::other)?;
    let server = Sheafd::start(&binary)?;
    let mut client = Client::connect(&server)?;
    let mut other = Client::connect(&server)?;
    client.load(documents)?;
    println!("min, median and max milliseconds late, {rounds} rounds, interrupted at {TIMES:?} ms");
    println!(
        "{:34} {:>16} {:>16} {:>16}",
        "", "maxTimeMS", "killOp", "killCursors"
    );
    for (name, pipeline) in pipelines() {
        let (mut limited, mut killed, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            for millis in TIMES {
                limited.extend(client.limited(&pipeline, millis)?);
                killed.extend(client.killed(&mut other, &pipeline, millis)?);
                closed.extend(client.closed(&mut other, &pipeline, millis)?);
            }
        }
        println!(
            "{name:34} {:>16} {:>16} {:>16}",
            shown(limited),
            shown(killed),
            shown(closed)
        );
    }
    let sorted = pipeline(&[doc! {"$sort": {"s": 1}}]);
    let mut idle = Vec::new();
    for _ in 0..rounds {
        idle.push(client.idle_closed(&sorted)?);
    }
    println!(
        "killCursors of an idle cursor that holds a sort: {}",
        shown(idle)
    );
    Ok(())
}

fn pipeline(stages: &[DocBuf]) -> ArrayBuf {
    let mut out = ArrayBuilder::new();
    for stage in stages {
        out.push_document_bytes(stage.as_bytes());
    }
    out.finish()
}

/// Pipelines with blocking stages, by name.
fn pipelines() -> Vec<(&'static str, ArrayBuf)> {
    let of = |name, stages: &[DocBuf]| (name, pipeline(stages));
    let large =
        doc! {"$addFields": {"t": {"$concat": ["$s", "$s", "$s", "$s", "$s", "$s", "$s", "$s"]}}};
    let window = |operator: &str| {
        let mut function = DocBuilder::new();
        function.append(operator, "$s");
        function.append("window", &doc! {"documents": ["unbounded", "unbounded"]});
        let output = doc! {"w": function.finish()};
        doc! {"$setWindowFields": {"sortBy": {"s": 1}, "output": output}}
    };
    vec![
        of(
            "$group",
            &[doc! {"$group": {"_id": "$s", "n": {"$sum": "$n"}, "f": {"$first": "$s"}}}],
        ),
        of(
            "$group, $push",
            &[doc! {"$group": {"_id": "$g", "all": {"$push": "$s"}}}],
        ),
        of(
            "$group, $addToSet",
            &[doc! {"$group": {"_id": "$g", "all": {"$addToSet": "$s"}}}],
        ),
        of(
            "$group, spilling",
            &[
                large.clone(),
                doc! {"$group": {"_id": "$t", "f": {"$first": "$t"}}},
            ],
        ),
        of(
            "$sort",
            &[
                doc! {"$addFields": {"x": 1}},
                doc! {"$sort": {"s": 1}},
                doc! {"$skip": 10},
            ],
        ),
        of("$sort of the find layer", &[doc! {"$sort": {"s": 1}}]),
        of(
            "$sort, spilling",
            &[large.clone(), doc! {"$sort": {"t": 1}}],
        ),
        of("$setWindowFields", &[window("$max")]),
        of("$setWindowFields, $push", &[window("$addToSet")]),
        of(
            "$bucketAuto",
            &[doc! {"$bucketAuto": {"groupBy": "$s", "buckets": 10}}],
        ),
        of(
            "$bucketAuto, spilling",
            &[
                large,
                doc! {"$bucketAuto": {"groupBy": "$t", "buckets": 10}},
            ],
        ),
        of(
            "$lookup by a hash table",
            &[
                doc! {"$lookup": {"from": "c", "localField": "s", "foreignField": "s", "as": "found"}},
                doc! {"$count": "n"},
            ],
        ),
        of(
            "$graphLookup",
            &[
                doc! {"$graphLookup": {"from": "c", "startWith": "$n", "connectFromField": "next",
                "connectToField": "_id", "as": "found", "maxDepth": 200}},
                doc! {"$count": "n"},
            ],
        ),
        of(
            "$facet",
            &[
                doc! {"$facet": {"a": [{"$sort": {"s": 1}}, {"$count": "n"}], "b": [{"$group": {"_id": "$s"}}, {"$count": "n"}]}},
            ],
        ),
    ]
}

/// Minimum, median and maximum; `-` if every operation completed before the interruption.
fn shown(mut behind: Vec<f64>) -> String {
    behind.sort_by(f64::total_cmp);
    match behind.last() {
        None => "-".to_owned(),
        Some(most) => format!("{:.1} {:.1} {most:.1}", behind[0], behind[behind.len() / 2]),
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    fn connect(server: &Sheafd) -> io::Result<Client> {
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream })
    }

    fn load(&mut self, documents: i32) -> io::Result<()> {
        for first in (0..documents).step_by(10_000) {
            let docs = (first..documents.min(first + 10_000)).map(|n| {
                // The values are distinct and unordered.
                let s = format!(
                    "{:016x} some text to give it a length",
                    u64::from(n as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                );
                doc! {"_id": n, "s": s, "n": n % 1000, "g": n % 3, "next": n + 1}
            });
            let docs: Vec<DocBuf> = docs.collect();
            let insert = doc! {"insert": "c", "documents": docs, "$db": "bench"};
            run_command(&mut self.stream, insert.as_raw())?;
        }
        Ok(())
    }

    /// Milliseconds past the time limit; `None` if the operation completed before.
    fn limited(&mut self, pipeline: &ArrayBuf, millis: u64) -> io::Result<Option<f64>> {
        let aggregate = doc! {
            "aggregate": "c", "pipeline": pipeline.clone(), "cursor": {}, "maxTimeMS": millis as i64, "$db": "bench"
        };
        self.settle()?;
        let begun = Instant::now();
        let reply = ask(&mut self.stream, aggregate.as_raw())?;
        let took = begun.elapsed().as_secs_f64() * 1e3;
        self.close(&reply)?;
        Ok(has_code(&reply, 50).then_some(took - millis as f64))
    }

    /// Waits until the memory of the previous operation is released, which happens after its reply.
    fn settle(&mut self) -> io::Result<()> {
        let ping = doc! {"ping": 1, "$db": "admin"};
        run_command(&mut self.stream, ping.as_raw()).map(drop)
    }

    /// Milliseconds from killOp to the operation's reply; `None` if the operation completed before.
    fn killed(
        &mut self,
        other: &mut Client,
        pipeline: &ArrayBuf,
        millis: u64,
    ) -> io::Result<Option<f64>> {
        self.settle()?;
        let comment = format!("ended {millis}");
        let aggregate = doc! {
            "aggregate": "c", "pipeline": pipeline.clone(), "cursor": {}, "comment": comment.as_str(), "$db": "bench"
        };
        let victim = &mut self.stream;
        let (reply, ended, killed) = std::thread::scope(|scope| {
            let running = scope.spawn(move || {
                let reply = ask(victim, aggregate.as_raw());
                (reply, Instant::now())
            });
            std::thread::sleep(Duration::from_millis(millis));
            let killed = other.kill_op(&comment);
            let (reply, ended) = running
                .join()
                .map_err(|_| io::Error::other("a thread panicked"))?;
            Ok::<_, io::Error>((reply?, ended, killed?))
        })?;
        self.close(&reply)?;
        let Some(killed) = killed.filter(|_| has_code(&reply, 11601)) else {
            return Ok(None);
        };
        Ok(Some(
            ended.saturating_duration_since(killed).as_secs_f64() * 1e3,
        ))
    }

    /// The time at which the operation with this comment was killed; `None` if it was not running.
    fn kill_op(&mut self, comment: &str) -> io::Result<Option<Instant>> {
        let current = doc! {"currentOp": 1, "command.comment": comment, "$db": "admin"};
        let reply = run_command(&mut self.stream, current.as_raw())?;
        let running = reply.get("inprog").and_then(|ops| ops.as_array());
        let first = running
            .and_then(|ops| ops.get(0))
            .and_then(|op| op.as_document());
        let Some(opid) = first
            .and_then(|op| op.get("opid"))
            .and_then(|id| id.as_i64_exact())
        else {
            return Ok(None);
        };
        let kill = doc! {"killOp": 1, "op": opid, "$db": "admin"};
        let at = Instant::now();
        run_command(&mut self.stream, kill.as_raw())?;
        Ok(Some(at))
    }

    /// Milliseconds from killCursors to the reply of the cursor's getMore; `None` if that completed
    /// before.
    fn closed(
        &mut self,
        other: &mut Client,
        pipeline: &ArrayBuf,
        millis: u64,
    ) -> io::Result<Option<f64>> {
        let id = self.open(pipeline, 0)?;
        let more = doc! {"getMore": id, "collection": "c", "$db": "bench"};
        let victim = &mut self.stream;
        let (reply, ended, killed) = std::thread::scope(|scope| {
            let running = scope.spawn(move || {
                let reply = ask(victim, more.as_raw());
                (reply, Instant::now())
            });
            std::thread::sleep(Duration::from_millis(millis));
            let killed = Instant::now();
            other.kill_cursor(id)?;
            let (reply, ended) = running
                .join()
                .map_err(|_| io::Error::other("a thread panicked"))?;
            Ok::<_, io::Error>((reply?, ended, killed))
        })?;
        self.close(&reply)?;
        let behind = ended.saturating_duration_since(killed).as_secs_f64() * 1e3;
        Ok(has_code(&reply, 237).then_some(behind))
    }

    /// Milliseconds that killCursors takes for an idle cursor that has returned its first results.
    fn idle_closed(&mut self, pipeline: &ArrayBuf) -> io::Result<f64> {
        let id = self.open(pipeline, 1)?;
        let begun = Instant::now();
        self.kill_cursor(id)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    fn open(&mut self, pipeline: &ArrayBuf, batch_size: i32) -> io::Result<i64> {
        let aggregate = doc! {
            "aggregate": "c", "pipeline": pipeline.clone(), "cursor": {"batchSize": batch_size}, "$db": "bench"
        };
        let reply = run_command(&mut self.stream, aggregate.as_raw())?;
        Ok(cursor_id(&reply))
    }

    fn kill_cursor(&mut self, id: i64) -> io::Result<()> {
        let kill = doc! {"killCursors": "c", "cursors": [id], "$db": "bench"};
        run_command(&mut self.stream, kill.as_raw()).map(drop)
    }

    /// Closes the cursor that a reply left open, if any.
    fn close(&mut self, reply: &DocBuf) -> io::Result<()> {
        match cursor_id(reply) {
            0 => Ok(()),
            id => self.kill_cursor(id),
        }
    }
}

fn cursor_id(reply: &DocBuf) -> i64 {
    let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document());
    cursor
        .and_then(|cursor| cursor.get("id"))
        .and_then(|id| id.as_i64_exact())
        .unwrap_or(0)
}

fn has_code(reply: &DocBuf, code: i64) -> bool {
    reply.get("code").and_then(|found| found.as_i64_exact()) == Some(code)
}
