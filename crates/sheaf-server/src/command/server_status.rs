//! `serverStatus`: counters and gauges for monitoring.

use std::sync::atomic::Ordering::Relaxed;

use sheaf_bson::{DateTime, DocBuilder, Error};
use sheaf_db::ttl::TtlCounters;
use sheaf_storage::StorageEngine;
use sheaf_wire::Compressor;

use super::Kind;
use super::build_info::COMPATIBLE_VERSION;
use super::context::CommandContext;
use super::server_status_sections as sections;
use crate::host::host_name;
use crate::server::Server;

/// Appends one section.
type Append = fn(&Server, &mut DocBuilder);

/// The sections in the order of the reply. `section: 0` in the command leaves one out.
const SECTIONS: &[(&str, Append)] = &[
    ("asserts", |server, out| server.metrics.append_asserts(out)),
    ("catalogStats", sections::catalog_stats),
    ("connections", append_connections),
    ("defaultRWConcern", sections::default_rw_concern),
    ("electionMetrics", sections::election_metrics),
    ("extra_info", append_extra_info),
    ("flowControl", sections::flow_control),
    ("globalLock", append_global_lock),
    ("indexStats", sections::index_stats),
    ("locks", sections::locks),
    ("logicalSessionRecordCache", append_sessions),
    ("mem", append_memory),
    ("metrics", append_metrics),
    ("network", append_network),
    ("opLatencies", |server, out| {
        let transactions = server.sessions.counts.latency();
        server.metrics.append_latencies(transactions, out);
    }),
    ("opcounters", |server, out| {
        server.metrics.append_opcounters(out);
    }),
    ("opcountersRepl", sections::opcounters_repl),
    ("queues", sections::queues),
    ("repl", sections::repl),
    ("security", sections::security),
    ("storageEngine", append_storage_engine),
    ("transactions", append_transactions),
    ("transportSecurity", sections::transport_security),
    ("wiredTiger", sections::wired_tiger),
];

/// The sections that are left out unless requested with `section: 1`.
const SECTIONS_ON_REQUEST: &[(&str, Append)] = &[("mirroredReads", sections::mirrored_reads)];

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let (mut left_out, mut asked) = (Vec::new(), Vec::new());
    for element in cx.arguments_as_sent() {
        // Unknown sections are ignored, as in MongoDB: monitoring tools name the sections of every
        // version.
        match element.value().is_truthy() {
            true => asked.push(element.key()),
            false => left_out.push(element.key()),
        }
    }
    append(cx, &left_out, out);
    for (section, append) in SECTIONS_ON_REQUEST {
        if asked.contains(section) {
            append(cx.server, out);
        }
    }
    Ok(())
}

/// Appends the sections of a command without options.
pub fn append_default(cx: &CommandContext<'_>, out: &mut DocBuilder) {
    append(cx, &[], out);
}

fn append(cx: &CommandContext<'_>, left_out: &[&str], out: &mut DocBuilder) {
    let server = cx.server;
    let uptime = server.started.elapsed();
    out.append("host", format!("{}:{}", host_name(), cx.port()).as_str());
    out.append("version", COMPATIBLE_VERSION);
    out.append("process", "sheafd");
    out.append("pid", i64::from(std::process::id()));
    out.append("uptime", uptime.as_secs_f64().floor());
    out.append("uptimeMillis", uptime.as_millis() as i64);
    out.append("uptimeEstimate", uptime.as_secs() as i64);
    out.append("localTime", DateTime::now());
    for (section, append) in SECTIONS {
        if !left_out.contains(section) {
            append(server, out);
        }
    }
}

fn append_connections(server: &Server, out: &mut DocBuilder) {
    let stats = server.traffic.connections();
    out.begin_document("connections");
    out.append("current", stats.current as i32);
    out.append("available", stats.available as i32);
    out.append("totalCreated", stats.total_created as i64);
    out.append("rejected", stats.rejected as i64);
    out.append("active", stats.active as i32);
    // Each connection has a thread.
    out.append("threaded", stats.current as i32);
    out.end();
}

fn append_global_lock(server: &Server, out: &mut DocBuilder) {
    let (mut readers, mut writers, mut others) = (0, 0, 0);
    for slot in server.operations.slots() {
        match slot.current().map(|operation| operation.command.kind) {
            Some(Kind::Read) => readers += 1,
            Some(Kind::Write) => writers += 1,
            Some(_) => others += 1,
            None => {}
        }
    }
    out.begin_document("globalLock");
    out.append("totalTime", server.started.elapsed().as_micros() as i64);
    // There is no global lock that an operation could wait for.
    for (name, total, readers, writers) in [
        ("currentQueue", 0, 0, 0),
        (
            "activeClients",
            readers + writers + others,
            readers,
            writers,
        ),
    ] {
        out.begin_document(name);
        out.append("total", total);
        out.append("readers", readers);
        out.append("writers", writers);
        out.end();
    }
    out.end();
}

fn append_sessions(server: &Server, out: &mut DocBuilder) {
    out.begin_document("logicalSessionRecordCache");
    out.append("activeSessionsCount", server.sessions.len() as i32);
    out.end();
}

fn append_network(server: &Server, out: &mut DocBuilder) {
    let network = server.traffic.network();
    out.begin_document("network");
    let (logical_in, logical_out) = network.logical_bytes();
    out.append("bytesIn", logical_in as i64);
    out.append("bytesOut", logical_out as i64);
    out.append("physicalBytesIn", network.bytes_in as i64);
    out.append("physicalBytesOut", network.bytes_out as i64);
    out.append("numRequests", network.requests as i64);
    out.begin_document("compression");
    for (compressor, stats) in Compressor::NEGOTIABLE.iter().zip(network.compression) {
        out.begin_document(compressor.name());
        for (name, flow) in [
            ("compressor", stats.compressed),
            ("decompressor", stats.decompressed),
        ] {
            out.begin_document(name);
            out.append("bytesIn", flow.bytes_in as i64);
            out.append("bytesOut", flow.bytes_out as i64);
            out.end();
        }
        out.end();
    }
    out.end();
    out.end();
}

fn append_transactions(server: &Server, out: &mut DocBuilder) {
    out.begin_document("transactions");
    server.sessions.append_status(out);
    let held = server.db.transaction_memory().used();
    out.append("memoryBytesHeld", held as i64);
    out.end();
}

fn append_memory(_server: &Server, out: &mut DocBuilder) {
    let (resident, virtual_bytes) = memory().unwrap_or((0, 0));
    out.begin_document("mem");
    out.append("bits", usize::BITS as i32);
    out.append("resident", (resident >> 20) as i32);
    out.append("virtual", (virtual_bytes >> 20) as i32);
    out.append("supported", true);
    out.end();
}

fn append_extra_info(_server: &Server, out: &mut DocBuilder) {
    out.begin_document("extra_info");
    out.append("note", "fields vary by platform");
    let (user, system) = cpu_micros();
    out.append("user_time_us", user);
    out.append("system_time_us", system);
    out.append("page_faults", crate::host::page_faults());
    out.end();
}

fn append_metrics(server: &Server, out: &mut DocBuilder) {
    out.begin_document("metrics");
    server.metrics.append_metrics(out);
    append_ttl(&server.ttl, out);
    sections::get_last_error(out);
    sections::repl_metrics(server, out);
    let (open, pinned, no_timeout) = server.cursors.open_counts();
    let counts = server.cursors.counts();
    out.begin_document("cursor");
    out.append("timedOut", counts.timed_out as i64);
    out.append("totalOpened", counts.total_opened as i64);
    out.begin_document("open");
    out.append("noTimeout", no_timeout as i64);
    out.append("pinned", pinned as i64);
    out.append("total", open as i64);
    out.end();
    out.end();
    out.end();
}

fn append_storage_engine(server: &Server, out: &mut DocBuilder) {
    out.begin_document("storageEngine");
    out.append("name", server.db.engine().name());
    out.append("supportsCommittedReads", true);
    out.append("readOnly", false);
    out.append("persistent", server.db.engine().name() != "memory");
    out.end();
    append_engine(server, out);
}

/// `metrics.ttl`.
fn append_ttl(counters: &TtlCounters, out: &mut DocBuilder) {
    out.begin_document("ttl");
    for (name, counter) in [
        ("deletedDocuments", &counters.deleted_documents),
        ("passes", &counters.passes),
        ("subPasses", &counters.sub_passes),
    ] {
        out.append(name, counter.load(Relaxed) as i64);
    }
    out.end();
}

/// The engine's own counters, under the name of the engine.
fn append_engine(server: &Server, out: &mut DocBuilder) {
    let engine = server.db.engine();
    let stats = engine.stats();
    out.begin_document(engine.name());
    for (name, value) in [
        ("commits", stats.commits),
        ("operations", stats.operations),
        ("bytesGiven", stats.bytes_logged),
        ("bytesWritten", stats.bytes_written),
        ("bytesRead", stats.bytes_read),
        ("syncs", stats.syncs),
        ("groups", stats.groups),
        ("groupMax", stats.group_max),
        ("openSnapshots", stats.open_snapshots),
    ] {
        out.append(name, value as i64);
    }
    for (name, value) in [
        ("fileBytes", stats.file_bytes),
        ("fileFreeBytes", stats.file_free_bytes),
        ("cacheBytes", stats.cache_bytes),
    ] {
        if let Some(value) = value {
            out.append(name, value as i64);
        }
    }
    append_report(&**engine, out);
    if let Some(age) = stats.oldest_snapshot_age {
        out.append("oldestSnapshotAgeMillis", age.as_millis() as i64);
    }
    append_snapshot_history(server, out);
    if let Some(why) = &stats.refuses_writes {
        out.append("refusesWrites", why.as_str());
    }
    out.end();
}

/// The snapshots available to reads with `atClusterTime`.
fn append_snapshot_history(server: &Server, out: &mut DocBuilder) {
    let history = server.db.snapshot_history().stats();
    out.begin_document("snapshotHistory");
    out.append("kept", history.kept as i64);
    if let Some(oldest) = history.oldest {
        out.append("oldest", oldest);
    }
    out.append("isActive", history.is_active);
    out.append("windowSeconds", history.window_seconds as i64);
    out.append("snapshotTooOldErrors", history.too_old as i64);
    out.end();
}

/// The counters specific to this engine; a dotted name is a field of a nested document.
fn append_report(engine: &dyn StorageEngine, out: &mut DocBuilder) {
    let mut open: Vec<String> = Vec::new();
    engine.report(&mut |name, value| {
        let mut parts: Vec<&str> = name.split('.').collect();
        let field = parts.pop().unwrap_or(name);
        let common = parts.iter().zip(&open).take_while(|(a, b)| a == b).count();
        for _ in open.drain(common..) {
            out.end();
        }
        for part in &parts[common..] {
            out.begin_document(part);
            open.push((*part).to_owned());
        }
        out.append(field, value as i64);
    });
    for _ in open {
        out.end();
    }
}

/// Resident and virtual size in bytes.
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_whitespace().map(|n| n.parse::<u64>().ok());
    let (virtual_pages, resident_pages) = (pages.next()??, pages.next()??);
    const PAGE_BYTES: u64 = 4096;
    Some((resident_pages * PAGE_BYTES, virtual_pages * PAGE_BYTES))
}

/// Processor time of the process so far, user and system, in microseconds.
fn cpu_micros() -> (i64, i64) {
    crate::host::cpu_times().map_or((0, 0), |(user, system)| {
        (user.as_micros() as i64, system.as_micros() as i64)
    })
}
