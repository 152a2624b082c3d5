//! Histories of registers: documents with one value that concurrent transactions read and
//! overwrite.
//!
//! ```text
//!   T1 reads r3 = 7, writes r3 = 12      T2 reads r3 = 12      ──> T1 before T2        (read after write)
//!   T3 reads r3 = 7                                            ──> T3 before T1        (write after read)
//!   T4 reads r3 = 7, writes r3 = 15                            ──> a lost update: never permitted
//! ```
//!
//! Every written value is unique, so a read identifies its writer. Unlike with lists, the order of
//! writes is known only where a transaction had read what it overwrote, as most do; others write
//! blindly. See [`super::histories`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use sheaf_bson::RawValue;

use super::client::{Client, Reply};
use super::histories::{End, Graph, Random, Verdict, command, rounds};
use super::server::Server;

const REGISTERS: u64 = 6;
/// The initial value of every register.
const INITIAL: i64 = 0;

#[derive(Debug, Clone, Copy)]
enum Step {
    Read(u64, i64),
    Write(u64, i64),
}

#[derive(Debug)]
struct Transaction {
    steps: Vec<Step>,
    end: End,
}

struct Session {
    client: Client,
    lsid: String,
    number: i64,
    random: Random,
}

impl Session {
    fn arguments(&self, level: Option<&str>) -> String {
        let start = level.map_or_else(String::new, |level| {
            format!(", startTransaction: true, readConcern: {{level: '{level}'}}")
        });
        format!(
            "{}, txnNumber: NumberLong('{}'), autocommit: false{start}",
            self.lsid, self.number
        )
    }

    /// One statement; `None` if the connection was lost, an error if the transaction was aborted.
    fn statement(&mut self, text: &str, level: &mut Option<&str>) -> Option<Result<Reply, ()>> {
        let arguments = self.arguments(level.take());
        let text = format!("{{{text}, {arguments}, $db: 'test'}}");
        let reply = self.client.try_run(&command(&text))?;
        if reply.is_ok() {
            return Some(Ok(reply));
        }
        assert_eq!(reply.code(), 112, "{:?}", reply.body);
        Some(Err(()))
    }

    /// A random transaction; `None` if the connection was lost before its commit.
    fn transaction(&mut self, level: &str, values: &AtomicI64) -> Option<Transaction> {
        self.number += 1;
        let mut done = Transaction {
            steps: Vec::new(),
            end: End::Aborted,
        };
        let mut level = Some(level);
        for _ in 0..2 + self.random.below(3) {
            let register = self.random.below(REGISTERS);
            let (reads, writes) = match self.random.below(8) {
                0..4 => (true, false),
                4..7 => (true, true),
                _ => (false, true),
            };
            if reads {
                let text = format!("find: 'registers', filter: {{_id: {register}}}");
                match self.statement(&text, &mut level)? {
                    Ok(reply) => done.steps.push(Step::Read(register, value_of(&reply))),
                    Err(()) => return Some(done),
                }
            }
            if writes {
                let value = values.fetch_add(1, Ordering::Relaxed);
                // Sometimes as findAndModify, whose reply is a read.
                let by_modify = self.random.below(4) == 0;
                let text = match by_modify {
                    false => format!(
                        "update: 'registers', updates: [{{q: {{_id: {register}}}, u: {{$set: {{v: {value}}}}}}}]"
                    ),
                    true => format!(
                        "findAndModify: 'registers', query: {{_id: {register}}}, update: {{$set: {{v: {value}}}}}"
                    ),
                };
                match self.statement(&text, &mut level)? {
                    Ok(reply) => {
                        if let Some(RawValue::Document(before)) = reply.body.get("value") {
                            let before = before.get("v").and_then(|v| v.as_i64_exact());
                            done.steps.push(Step::Read(register, before.unwrap()));
                        }
                        done.steps.push(Step::Write(register, value));
                    }
                    Err(()) => return Some(done),
                }
            }
        }
        let text = format!(
            "{{commitTransaction: 1, {}, writeConcern: {{w: 'majority'}}, $db: 'admin'}}",
            self.arguments(None)
        );
        done.end = match self.client.try_run(&command(&text)) {
            None => End::Unknown,
            Some(reply) if reply.is_ok() => End::Committed,
            Some(reply) => {
                assert_eq!(reply.code(), 112, "{:?}", reply.body);
                End::Aborted
            }
        };
        Some(done)
    }
}

fn value_of(reply: &Reply) -> i64 {
    let cursor = reply.body.get("cursor").and_then(|c| c.as_document());
    let Some(RawValue::Array(batch)) = cursor.and_then(|cursor| cursor.get("firstBatch")) else {
        panic!("{:?}", reply.body);
    };
    let doc = batch.iter().next().and_then(|doc| doc.as_document());
    let value = doc.and_then(|doc| doc.get("v")?.as_i64_exact());
    value.unwrap_or_else(|| panic!("{:?}", reply.body))
}

fn prepare(server: &Server) {
    let docs: Vec<String> = (0..REGISTERS)
        .map(|n| format!("{{_id: {n}, v: {INITIAL}}}"))
        .collect();
    let insert = format!(
        "{{insert: 'registers', documents: [{}], writeConcern: {{w: 'majority'}}, $db: 'test'}}",
        docs.join(", ")
    );
    assert!(server.client().run(&command(&insert)).is_ok());
}

/// Runs eight clients concurrently, each for `count` transactions or until `stop`.
fn run(
    server: &Server,
    level: &str,
    count: u64,
    first: i64,
    stop: &AtomicBool,
) -> Vec<Transaction> {
    let values = AtomicI64::new(first);
    let history = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..8u64 {
            let (values, history) = (&values, &history);
            scope.spawn(move || {
                let id = (first as u64 >> 32) * 100 + client + 1;
                let mut session = Session {
                    client: server.client(),
                    lsid: format!("lsid: {{id: UUID('{id:08x}-0000-4000-8000-000000000001')}}"),
                    number: 0,
                    random: Random(0x2545_f491_4f6c_dd1d ^ ((first as u64) << 20) ^ (client + 1)),
                };
                for _ in 0..count {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match session.transaction(level, values) {
                        Some(done) => history.lock().unwrap().push(done),
                        None => return,
                    }
                }
            });
        }
    });
    history.into_inner().unwrap()
}

fn final_values(server: &Server) -> BTreeMap<u64, i64> {
    let mut client = server.client();
    (0..REGISTERS)
        .map(|register| {
            let text = format!("{{find: 'registers', filter: {{_id: {register}}}, $db: 'test'}}");
            (register, value_of(&client.run(&command(&text))))
        })
        .collect()
}

/// Checks a history.
///
/// Panics on what no isolation level permits: a read of a value of an aborted transaction or of one
/// overwritten within its own, two values of one register within a transaction that did not write
/// it, own writes that are not visible, lost updates.
fn judge(history: &[Transaction], finally: &BTreeMap<u64, i64>) -> Verdict {
    // The writer of a value, and whether it was its last of the register.
    let mut writer: HashMap<i64, (usize, bool)> = HashMap::new();
    for (node, transaction) in history.iter().enumerate() {
        let mut last: HashMap<u64, i64> = HashMap::new();
        for step in &transaction.steps {
            if let Step::Write(register, value) = *step {
                if let Some(before) = last.insert(register, value) {
                    writer.insert(before, (node, false));
                }
                writer.insert(value, (node, true));
            }
        }
    }
    let check = |value: i64, by: &dyn std::fmt::Debug| {
        if value != INITIAL {
            let (node, is_last) = writer[&value];
            assert_ne!(
                history[node].end,
                End::Aborted,
                "{value} was aborted: {by:?}"
            );
            assert!(
                is_last,
                "{value} was overwritten where it was written: {by:?}"
            );
        }
    };
    let mut seen: HashSet<i64> = HashSet::new();
    for value in finally.values() {
        check(*value, &"in the end");
        seen.insert(*value);
    }
    for transaction in history.iter().filter(|t| t.end == End::Committed) {
        seen.extend(transaction.steps.iter().filter_map(|step| match step {
            Step::Read(_, value) => Some(*value),
            Step::Write(..) => None,
        }));
    }
    let took_effect = |transaction: &Transaction| match transaction.end {
        End::Committed => true,
        End::Aborted => false,
        End::Unknown => transaction
            .steps
            .iter()
            .any(|step| matches!(step, Step::Write(_, value) if seen.contains(value))),
    };
    let mut graph = Graph {
        nodes: history.len(),
        ..Graph::default()
    };
    let mut verdict = Verdict::default();
    let mut readers: HashMap<(u64, i64), Vec<usize>> = HashMap::new();
    let mut overwriter: HashMap<(u64, i64), usize> = HashMap::new();
    for (node, transaction) in history.iter().enumerate() {
        if !took_effect(transaction) {
            continue;
        }
        verdict.committed += 1;
        let mut own: HashMap<u64, i64> = HashMap::new();
        let mut others: HashMap<u64, i64> = HashMap::new();
        for step in &transaction.steps {
            match *step {
                Step::Write(register, value) => {
                    let first = own.insert(register, value).is_none();
                    if let Some(read) = others.get(&register).filter(|_| first) {
                        let lost = overwriter.insert((register, *read), node);
                        assert_eq!(lost, None, "an update of {read} is lost: {transaction:?}");
                    }
                }
                Step::Read(register, value) => match own.get(&register) {
                    Some(own) => assert_eq!(value, *own, "own write not seen: {transaction:?}"),
                    None => {
                        check(value, transaction);
                        let before = others.insert(register, value);
                        assert!(
                            before.is_none_or(|before| before == value),
                            "two values of one register: {transaction:?}"
                        );
                        readers.entry((register, value)).or_default().push(node);
                        if value != INITIAL {
                            graph.add(writer[&value].0, node, false);
                        }
                    }
                },
            }
        }
    }
    for (version, next) in &overwriter {
        for reader in readers.get(version).into_iter().flatten() {
            graph.add(*reader, *next, true);
        }
    }
    graph.judge(&mut verdict);
    verdict
}

#[test]
fn snapshot_isolation_of_registers() {
    let mut cyclic = false;
    for round in 0..rounds() {
        let server = Server::start();
        prepare(&server);
        let stop = AtomicBool::new(false);
        let history = run(&server, "snapshot", 120, 1 + ((round as i64) << 32), &stop);
        let verdict = judge(&history, &final_values(&server));
        assert!(verdict.committed > 100, "{verdict:?}");
        assert!(!verdict.forbidden, "{verdict:?}");
        cyclic |= verdict.cyclic;
    }
    assert!(cyclic, "no write skew: is this snapshot isolation?");
}

#[test]
fn serializable_registers() {
    for round in 0..rounds() {
        let server = Server::start();
        prepare(&server);
        let stop = AtomicBool::new(false);
        let history = run(
            &server,
            "serializable",
            120,
            1 + ((round as i64) << 32),
            &stop,
        );
        let verdict = judge(&history, &final_values(&server));
        assert!(verdict.committed > 50, "{verdict:?}");
        assert!(!verdict.cyclic, "{verdict:?}");
    }
}

#[test]
fn registers_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = Vec::new();
    let mut server = Server::start_on(folder.path(), &[]);
    prepare(&server);
    for round in 1..=2 + rounds() as i64 {
        let stop = AtomicBool::new(false);
        let level = if round % 2 == 0 {
            "serializable"
        } else {
            "snapshot"
        };
        let done = std::thread::scope(|scope| {
            let (running, stop) = (&server, &stop);
            let clients = scope.spawn(move || run(running, level, 100_000, round << 32, stop));
            std::thread::sleep(std::time::Duration::from_millis(
                300 + round as u64 % 20 * 37,
            ));
            // SAFETY: the process is a child of this one and not yet waited for.
            unsafe { libc::kill(running.pid() as i32, libc::SIGKILL) };
            stop.store(true, Ordering::Relaxed);
            clients.join().unwrap()
        });
        server.kill();
        history.extend(done);
        server = Server::start_on(folder.path(), &[]);
    }
    let verdict = judge(&history, &final_values(&server));
    assert!(verdict.committed > 20, "{verdict:?}");
    assert!(!verdict.forbidden, "{verdict:?}");
}
