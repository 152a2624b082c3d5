//! Counters for serverStatus. Relaxed atomics: exact in sum, not in order.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sheaf_bson::{DocBuilder, RawArray};
use sheaf_db::OpContext;

use super::finished::Finished;
use super::stage_counters::StageCounters;
use crate::command_facts::{Command, CountsAs, Kind};

/// Operation counters of serverStatus.
pub struct Metrics {
    /// Per command, in table order: run, failed.
    commands: Vec<(&'static Command, AtomicU64, AtomicU64)>,
    unknown_commands: AtomicU64,
    opcounters: [AtomicU64; 6],
    documents: [AtomicU64; 4],
    scanned_keys: AtomicU64,
    scanned_documents: AtomicU64,
    write_conflicts: AtomicU64,
    scan_and_order: AtomicU64,
    /// Collection scans; those of cursors that are not tailable.
    collection_scans: AtomicU64,
    non_tailable_scans: AtomicU64,
    stages: StageCounters,
    latencies: [(AtomicU64, AtomicU64); 3],
    user_asserts: AtomicU64,
}

/// The names of opcounters.
pub const OPCOUNTERS: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];
const DOCUMENTS: [&str; 4] = ["deleted", "inserted", "returned", "updated"];
const LATENCIES: [&str; 3] = ["reads", "writes", "commands"];

impl Metrics {
    /// Counters of these commands, all zero.
    pub fn new(commands: impl Iterator<Item = &'static Command>) -> Metrics {
        Metrics {
            commands: commands
                .map(|command| (command, AtomicU64::default(), AtomicU64::default()))
                .collect(),
            unknown_commands: AtomicU64::default(),
            opcounters: Default::default(),
            documents: Default::default(),
            scanned_keys: AtomicU64::default(),
            scanned_documents: AtomicU64::default(),
            write_conflicts: AtomicU64::default(),
            scan_and_order: AtomicU64::default(),
            collection_scans: AtomicU64::default(),
            non_tailable_scans: AtomicU64::default(),
            stages: StageCounters::default(),
            latencies: Default::default(),
            user_asserts: AtomicU64::default(),
        }
    }

    /// Counts a command that is not in the table.
    pub fn unknown_command(&self) {
        self.unknown_commands.fetch_add(1, Relaxed);
        self.user_asserts.fetch_add(1, Relaxed);
    }

    /// Counts a finished command.
    pub(super) fn count(&self, finished: &Finished<'_>) {
        let (command, report) = (finished.command, finished.report);
        let mut rows = self.commands.iter();
        if let Some((_, run, failed)) = rows.find(|(row, ..)| std::ptr::eq(*row, command)) {
            run.fetch_add(1, Relaxed);
            if finished.error.is_some() {
                failed.fetch_add(1, Relaxed);
            }
        }
        if finished.error.is_some() {
            self.user_asserts.fetch_add(1, Relaxed);
        }
        let counts = finished.op.counters().counts();
        // Each part of a bulkWrite counts as if it were a separate command.
        let parts = match command.counts_as {
            CountsAs::Parts => report.writes.as_slice(),
            _ => &[],
        };
        for write in parts {
            let (opcounter, times) = match write.kind {
                "insert" => (0, write.n_inserted),
                "update" => (2, 1),
                _ => (3, 1),
            };
            self.opcounters[opcounter].fetch_add(times, Relaxed);
        }
        let (opcounter, times) = match command.counts_as {
            CountsAs::Parts => (5, 0),
            CountsAs::Insert => (0, counts.docs_inserted),
            CountsAs::Query => (1, 1),
            CountsAs::Update => (2, report.writes.len() as u64),
            CountsAs::Delete => (3, report.writes.len() as u64),
            CountsAs::GetMore => (4, 1),
            CountsAs::Command => (5, 1),
        };
        self.opcounters[opcounter].fetch_add(times, Relaxed);
        for (slot, n) in self.documents.iter().zip([
            counts.docs_deleted,
            counts.docs_inserted,
            report.n_returned.unwrap_or(0),
            counts.docs_modified,
        ]) {
            if n > 0 {
                slot.fetch_add(n, Relaxed);
            }
        }
        self.scanned_keys.fetch_add(counts.keys_examined, Relaxed);
        self.scanned_documents
            .fetch_add(counts.docs_examined, Relaxed);
        if counts.write_conflicts > 0 {
            self.write_conflicts
                .fetch_add(counts.write_conflicts, Relaxed);
        }
        if report.plan.has_sort_stage() {
            self.scan_and_order.fetch_add(1, Relaxed);
        }
        if report.plan.scans_collection() {
            self.collection_scans.fetch_add(1, Relaxed);
            let tailable = finished.body.get("tailable");
            if !tailable.is_some_and(|value| value.is_truthy()) {
                self.non_tailable_scans.fetch_add(1, Relaxed);
            }
        }
        let latency = match command.kind {
            Kind::Read => 0,
            Kind::Write => 1,
            _ => 2,
        };
        self.latencies[latency]
            .0
            .fetch_add(micros(finished.elapsed), Relaxed);
        self.latencies[latency].1.fetch_add(1, Relaxed);
    }

    /// Counts the stages of a client's pipeline, and those of the pipelines in it.
    pub fn count_stages(&self, pipeline: RawArray<'_>) {
        self.stages.count(pipeline);
    }

    /// Appends `opcounters`.
    pub fn append_opcounters(&self, out: &mut DocBuilder) {
        out.begin_document("opcounters");
        for (name, counter) in OPCOUNTERS.iter().zip(&self.opcounters) {
            out.append(name, get(counter));
        }
        out.end();
    }

    /// Appends `opLatencies`; `transactions` are the microseconds and the number of those that have
    /// ended.
    pub fn append_latencies(&self, transactions: (u64, u64), out: &mut DocBuilder) {
        out.begin_document("opLatencies");
        let counted = self.latencies.iter().map(|(l, n)| (get(l), get(n)));
        let transactions = (transactions.0 as i64, transactions.1 as i64);
        let all = counted.chain([transactions]);
        for (name, (latency, ops)) in LATENCIES.iter().chain(&["transactions"]).zip(all) {
            out.begin_document(name);
            out.append("latency", latency);
            out.append("ops", ops);
            out.end();
        }
        out.end();
    }

    /// Appends `asserts`.
    pub fn append_asserts(&self, out: &mut DocBuilder) {
        out.begin_document("asserts");
        for name in ["regular", "warning", "msg"] {
            out.append(name, 0);
        }
        out.append("user", get(&self.user_asserts));
        out.append("tripwire", 0);
        out.append("rollovers", 0);
        out.end();
    }

    /// Appends the parts of `metrics` that are counted here.
    pub fn append_metrics(&self, out: &mut DocBuilder) {
        self.stages.append(out);
        out.begin_document("commands");
        out.append("<UNKNOWN>", get(&self.unknown_commands));
        for (command, total, failed) in &self.commands {
            out.begin_document(command.name);
            out.append("failed", get(failed));
            out.append("total", get(total));
            out.end();
        }
        out.end();
        out.begin_document("document");
        for (name, counter) in DOCUMENTS.iter().zip(&self.documents) {
            out.append(name, get(counter));
        }
        out.end();
        out.begin_document("operation");
        out.append("scanAndOrder", get(&self.scan_and_order));
        out.append("writeConflicts", get(&self.write_conflicts));
        out.end();
        out.begin_document("queryExecutor");
        out.begin_document("collectionScans");
        out.append("nonTailable", get(&self.non_tailable_scans));
        out.append("total", get(&self.collection_scans));
        out.end();
        out.append("scanned", get(&self.scanned_keys));
        out.append("scannedObjects", get(&self.scanned_documents));
        out.end();
    }
}

fn get(counter: &AtomicU64) -> i64 {
    counter.load(Relaxed) as i64
}

fn micros(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Appends the counters of an operation's work.
pub fn append_counts(op: &OpContext, out: &mut DocBuilder) {
    let counts = op.counters().counts();
    out.append("keysExamined", counts.keys_examined as i64);
    out.append("docsExamined", counts.docs_examined as i64);
}
