//! Random concurrent transactions through real connections, and a check of their histories.
//!
//! ```text
//!   transaction: reads a list, appends a number to a list; each number is unique ... commits
//!   list 3, in the end: [7, 12, 4]   ──> appended in the order 7, 12, 4    (write after write)
//!   a transaction read [7, 12]       ──> after the one that appended 12    (read after write)
//!                                    ──> before the one that appended 4    (write after read)
//! ```
//!
//! Elle's method (Kingsbury and Alvaro, 2020) with lists: reads reveal the order of writes, so the
//! graph of dependencies between transactions is known, and anomalies are its cycles. Snapshot
//! isolation forbids cycles without two consecutive read-before-write edges (here: with fewer than
//! two of them); a serializable history has no cycle.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sheaf_bson::json::parse_doc;
use sheaf_bson::{DocBuf, RawValue};

use super::client::Client;
use super::server::Server;

const LISTS: u64 = 6;

/// The end of a transaction, as known to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Committed,
    Aborted,
    /// The reply to the commit was lost.
    Unknown,
}

#[derive(Debug, Clone)]
enum Step {
    Read(u64, Vec<i64>),
    Append(u64, i64),
}

#[derive(Debug)]
struct Transaction {
    steps: Vec<Step>,
    end: End,
}

/// A small random number generator, one per client.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

pub fn command(text: &str) -> DocBuf {
    parse_doc(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn list_of(doc: sheaf_bson::RawDoc<'_>) -> Vec<i64> {
    match doc.get("list") {
        Some(RawValue::Array(list)) => list.iter().filter_map(|n| n.as_i64_exact()).collect(),
        _ => Vec::new(),
    }
}

/// One client's session, with the number of its latest transaction.
struct Session {
    client: Client,
    lsid: String,
    number: i64,
}

impl Session {
    fn new(server: &Server, id: u64) -> Session {
        Session {
            client: server.client(),
            lsid: format!("lsid: {{id: UUID('{id:08x}-0000-4000-8000-000000000000')}}"),
            number: 0,
        }
    }

    /// Executes one random transaction; `None` if the connection was lost.
    fn transaction(
        &mut self,
        level: &str,
        random: &mut Random,
        numbers: &AtomicU64,
    ) -> Option<Transaction> {
        self.number += 1;
        let mut done = Transaction {
            steps: Vec::new(),
            end: End::Aborted,
        };
        let steps = 2 + random.below(3);
        for step in 0..steps {
            let start = match step {
                0 => format!(", startTransaction: true, readConcern: {{level: '{level}'}}"),
                _ => String::new(),
            };
            let arguments = format!(
                "{}, txnNumber: NumberLong('{}'), autocommit: false{start}, $db: 'test'",
                self.lsid, self.number
            );
            let list = random.below(LISTS);
            let (text, what) = match random.below(2) {
                0 => (
                    format!("{{find: 'lists', filter: {{_id: {list}}}, {arguments}}}"),
                    Step::Read(list, Vec::new()),
                ),
                _ => {
                    let n = numbers.fetch_add(1, Ordering::Relaxed) as i64;
                    let text = format!(
                        "{{update: 'lists', updates: [{{q: {{_id: {list}}}, u: {{$push: {{list: {n}}}}}}}], {arguments}}}"
                    );
                    (text, Step::Append(list, n))
                }
            };
            let reply = self.client.try_run(&command(&text))?;
            if !reply.is_ok() {
                assert_eq!(reply.code(), 112, "{:?}", reply.body);
                return Some(done);
            }
            done.steps.push(match what {
                Step::Read(list, _) => {
                    let Some(RawValue::Document(cursor)) = reply.body.get("cursor") else {
                        panic!("{:?}", reply.body);
                    };
                    let Some(RawValue::Array(batch)) = cursor.get("firstBatch") else {
                        panic!("{:?}", reply.body);
                    };
                    match batch.iter().next() {
                        Some(RawValue::Document(doc)) => Step::Read(list, list_of(doc)),
                        _ => panic!("{:?}", reply.body),
                    }
                }
                append => append,
            });
        }
        let text = format!(
            "{{commitTransaction: 1, {}, txnNumber: NumberLong('{}'), autocommit: false, writeConcern: {{w: 'majority'}}, $db: 'admin'}}",
            self.lsid, self.number
        );
        done.end = End::Unknown;
        match self.client.try_run(&command(&text)) {
            None => {}
            Some(reply) if reply.is_ok() => done.end = End::Committed,
            Some(reply) => {
                assert_eq!(reply.code(), 112, "{:?}", reply.body);
                done.end = End::Aborted;
            }
        }
        Some(done)
    }
}

fn prepare(server: &Server) {
    let mut client = server.client();
    let docs: Vec<String> = (0..LISTS)
        .map(|n| format!("{{_id: {n}, list: []}}"))
        .collect();
    let insert = format!(
        "{{insert: 'lists', documents: [{}], writeConcern: {{w: 'majority'}}, $db: 'test'}}",
        docs.join(", ")
    );
    assert!(client.run(&command(&insert)).is_ok());
}

/// Runs clients concurrently until each has executed `count` transactions, or `stop`.
fn run(
    server: &Server,
    level: &str,
    clients: u64,
    count: u64,
    first: u64,
    stop: &AtomicBool,
) -> Vec<Transaction> {
    let numbers = AtomicU64::new(first);
    let history = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (numbers, history) = (&numbers, &history);
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (first << 20) ^ (client + 1));
                let mut session = Session::new(server, (first >> 32) * 100 + client + 1);
                for _ in 0..count {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match session.transaction(level, &mut random, numbers) {
                        Some(done) => history.lock().unwrap().push(done),
                        None => return,
                    }
                }
            });
        }
    });
    history.into_inner().unwrap()
}

fn final_lists(server: &Server) -> BTreeMap<u64, Vec<i64>> {
    let mut client = server.client();
    let reply = client.run(&command("{find: 'lists', sort: {_id: 1}, $db: 'test'}"));
    let Some(RawValue::Document(cursor)) = reply.body.get("cursor") else {
        panic!("{:?}", reply.body);
    };
    let Some(RawValue::Array(batch)) = cursor.get("firstBatch") else {
        panic!("{:?}", reply.body);
    };
    let mut lists = BTreeMap::new();
    for doc in batch.iter() {
        if let RawValue::Document(doc) = doc {
            let id = doc.get("_id").and_then(|id| id.as_i64_exact()).unwrap();
            lists.insert(id as u64, list_of(doc));
        }
    }
    lists
}

/// The dependency graph: which transaction precedes which, and whether only by a read before a
/// write.
#[derive(Default)]
pub struct Graph {
    pub edges: HashMap<usize, HashSet<(usize, bool)>>,
    pub nodes: usize,
}

impl Graph {
    pub fn add(&mut self, from: usize, to: usize, anti: bool) {
        if from != to {
            self.edges.entry(from).or_default().insert((to, anti));
        }
    }

    /// Whether `to` can be reached from `from`, over all edges or only those that are not reads
    /// before writes.
    fn reaches(&self, from: usize, to: usize, all: bool) -> bool {
        let mut seen = HashSet::new();
        let mut todo = vec![from];
        while let Some(node) = todo.pop() {
            for (next, anti) in self.edges.get(&node).into_iter().flatten() {
                if *anti && !all {
                    continue;
                }
                if *next == to {
                    return true;
                }
                if seen.insert(*next) {
                    todo.push(*next);
                }
            }
        }
        false
    }
}

impl Graph {
    /// Looks for cycles.
    pub fn judge(&self, verdict: &mut Verdict) {
        for node in 0..self.nodes {
            verdict.cyclic |= self.reaches(node, node, true);
            verdict.forbidden |= self.reaches(node, node, false);
            for (next, anti) in self.edges.get(&node).into_iter().flatten() {
                verdict.forbidden |= *anti && self.reaches(*next, node, false);
            }
        }
    }
}

/// The anomalies of a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub committed: usize,
    /// A cycle with at most one read before a write: forbidden by snapshot isolation.
    pub forbidden: bool,
    /// Any cycle: not serializable.
    pub cyclic: bool,
}

/// Checks a history against the final lists.
///
/// Panics on what no isolation level permits: a read of an aborted or partial transaction, a lost
/// or duplicated append, own writes that are not visible.
fn judge(history: &[Transaction], lists: &BTreeMap<u64, Vec<i64>>) -> Verdict {
    let mut writer = HashMap::new();
    for (node, transaction) in history.iter().enumerate() {
        for step in &transaction.steps {
            if let Step::Append(list, n) = step {
                writer.insert(*n, (node, *list));
            }
        }
    }
    // Every number in the final lists was appended once, by a transaction that did not abort.
    let mut present = HashSet::new();
    for (list, numbers) in lists {
        for n in numbers {
            let (node, into) = writer[n];
            assert_eq!(into, *list, "{n} is in another list");
            assert!(present.insert(*n), "{n} is there twice");
            assert_ne!(history[node].end, End::Aborted, "{n} was aborted");
        }
    }
    for transaction in history {
        let appended: Vec<bool> = transaction
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Append(_, n) => Some(present.contains(n)),
                Step::Read(..) => None,
            })
            .collect();
        if transaction.end == End::Committed {
            assert!(
                appended.iter().all(|there| *there),
                "a committed append is lost: {transaction:?}"
            );
        }
        let some = appended.iter().any(|there| *there);
        assert!(
            !some || appended.iter().all(|there| *there),
            "half committed: {transaction:?}"
        );
    }
    let took_effect = |node: usize| {
        history[node].end == End::Committed
            || history[node].end == End::Unknown
                && history[node]
                    .steps
                    .iter()
                    .any(|step| matches!(step, Step::Append(_, n) if present.contains(n)))
    };
    let mut graph = Graph {
        nodes: history.len(),
        ..Graph::default()
    };
    for numbers in lists.values() {
        for pair in numbers.windows(2) {
            graph.add(writer[&pair[0]].0, writer[&pair[1]].0, false);
        }
    }
    let mut verdict = Verdict::default();
    for (node, transaction) in history.iter().enumerate() {
        if !took_effect(node) {
            continue;
        }
        verdict.committed += 1;
        let mut own: HashMap<u64, Vec<i64>> = HashMap::new();
        for step in &transaction.steps {
            let (list, read) = match step {
                Step::Append(list, n) => {
                    own.entry(*list).or_default().push(*n);
                    continue;
                }
                Step::Read(list, read) => (list, read),
            };
            let own = own.get(list).cloned().unwrap_or_default();
            assert!(
                read.ends_with(&own),
                "own writes are not seen: {transaction:?}"
            );
            let others = &read[..read.len() - own.len()];
            let whole = &lists[list];
            assert!(
                whole.starts_with(others),
                "{others:?} was read of list {list}, which is {whole:?}: aborted or torn"
            );
            if let Some(last) = others.last() {
                let (by, _) = writer[last];
                let rest = history[by].steps.iter().any(|step| {
                    matches!(step, Step::Append(l, n) if l == list && present.contains(n) && !others.contains(n))
                });
                assert!(!rest, "a part of a transaction was read: {transaction:?}");
                graph.add(by, node, false);
            }
            if let Some(next) = whole.get(others.len()) {
                graph.add(node, writer[next].0, true);
            }
        }
    }
    graph.judge(&mut verdict);
    verdict
}

pub fn rounds() -> u64 {
    let rounds = std::env::var("SHEAF_HISTORY_ROUNDS").ok();
    rounds.and_then(|n| n.parse().ok()).unwrap_or(1)
}

#[test]
fn snapshot_isolation_and_its_write_skew() {
    let mut cyclic = false;
    for round in 0..rounds() {
        let server = Server::start();
        prepare(&server);
        let stop = AtomicBool::new(false);
        let history = run(&server, "snapshot", 8, 120, 1 + (round << 32), &stop);
        let verdict = judge(&history, &final_lists(&server));
        assert!(verdict.committed > 100, "{verdict:?}");
        assert!(!verdict.forbidden, "{verdict:?}");
        cyclic |= verdict.cyclic;
    }
    assert!(
        cyclic,
        "eight clients on six lists, and no write skew: is this snapshot isolation?"
    );
}

#[test]
fn serializable_histories_have_no_cycle() {
    for round in 0..rounds() {
        let server = Server::start();
        prepare(&server);
        let stop = AtomicBool::new(false);
        let history = run(&server, "serializable", 8, 120, 1 + (round << 32), &stop);
        let verdict = judge(&history, &final_lists(&server));
        assert!(verdict.committed > 50, "{verdict:?}");
        assert!(!verdict.cyclic, "{verdict:?}");
    }
}

#[test]
fn histories_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = Vec::new();
    let first = start(folder.path());
    prepare(&first);
    let mut server = first;
    for round in 1..=2 + rounds() {
        let stop = AtomicBool::new(false);
        let pid = server.pid();
        let done = std::thread::scope(|scope| {
            let (server, stop) = (&server, &stop);
            let running =
                scope.spawn(move || run(server, "snapshot", 6, 100_000, round << 32, stop));
            std::thread::sleep(std::time::Duration::from_millis(300 + round * 37));
            // SAFETY: the process is a child of this one and not yet waited for.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        server.kill();
        history.extend(done);
        server = start(folder.path());
    }
    let verdict = judge(&history, &final_lists(&server));
    assert!(verdict.committed > 20, "{verdict:?}");
    assert!(!verdict.forbidden, "{verdict:?}");
}

fn start(folder: &Path) -> Server {
    Server::start_on(folder, &[])
}
