//! Sections of `serverStatus` that monitoring reads by MongoDB's names.
//!
//! Values without a counterpart in this server (queues for tickets, flow control, elections of
//! other members) are shown as by a MongoDB server in which nothing ever waited for them.

use sheaf_bson::{DocBuilder, RawValue};

use crate::observe::OPCOUNTERS;
use crate::repl::{ReplicaSet, append_optime, date_of};
use crate::server::Server;

/// `catalogStats`: how many collections of each kind there are.
pub fn catalog_stats(server: &Server, out: &mut DocBuilder) {
    let (mut collections, mut capped, mut clustered, mut timeseries) = (0, 0, 0, 0);
    let (mut views, mut internal_collections, mut internal_views) = (0, 0, 0);
    let catalog = server.db.catalog();
    for (name, database) in catalog.databases() {
        let is_internal = matches!(name, "admin" | "config" | "local");
        for collection in database.collections() {
            match is_internal || collection.ns().is_system() {
                true => internal_collections += 1,
                false => collections += 1,
            }
            capped += i32::from(collection.options().capped().is_some());
            let is_buckets = collection.options().timeseries().is_some();
            timeseries += i32::from(is_buckets);
            clustered += i32::from(collection.clustered().is_some() && !is_buckets);
        }
        for view in database.views() {
            match is_internal {
                true => internal_views += 1,
                false => views += i32::from(catalog.timeseries(view.ns()).is_none()),
            }
        }
    }
    out.begin_document("catalogStats");
    for (name, count) in [
        ("collections", collections),
        ("capped", capped),
        ("clustered", clustered),
        ("timeseries", timeseries),
        ("views", views),
        ("internalCollections", internal_collections),
        ("internalViews", internal_views),
    ] {
        out.append(name, count);
    }
    out.end();
}

/// `defaultRWConcern`.
pub fn default_rw_concern(server: &Server, out: &mut DocBuilder) {
    out.begin_document("defaultRWConcern");
    server.rw_concern.read().append(out);
    out.end();
}

/// `electionMetrics`: this member alone decides.
pub fn election_metrics(_: &Server, out: &mut DocBuilder) {
    out.begin_document("electionMetrics");
    for name in [
        "stepUpCmd",
        "priorityTakeover",
        "catchUpTakeover",
        "electionTimeout",
        "freezeTimeout",
    ] {
        out.begin_document(name);
        out.append("called", 0i64);
        out.append("successful", 0i64);
        out.end();
    }
    out.append("numStepDownsCausedByHigherTerm", 0i64);
    out.append("numCatchUps", 0i64);
    out.end();
}

/// `flowControl`: never limits anything.
pub fn flow_control(_: &Server, out: &mut DocBuilder) {
    out.begin_document("flowControl");
    out.append("enabled", false);
    out.append("targetRateLimit", 1_000_000_000);
    out.append("timeAcquiringMicros", 0i64);
    out.append("locksPerKiloOp", 0.0);
    out.append("sustainerRate", 0);
    out.append("isLagged", false);
    out.append("isLaggedCount", 0);
    out.append("isLaggedTimeMicros", 0i64);
    out.end();
}

/// `indexStats`: how many indexes of each kind there are.
pub fn index_stats(server: &Server, out: &mut DocBuilder) {
    let (mut count, mut id, mut sparse, mut partial, mut ttl, mut unique) = (0, 0, 0, 0, 0, 0);
    let catalog = server.db.catalog();
    for index in catalog.collections().flat_map(|c| c.index_list()) {
        let spec = index.spec();
        count += 1;
        id += i64::from(spec.is_id_index());
        sparse += i64::from(spec.sparse);
        partial += i64::from(spec.partial_filter.is_some());
        ttl += i64::from(spec.expire_after_seconds.is_some());
        unique += i64::from(spec.unique);
    }
    out.begin_document("indexStats");
    out.append("count", count);
    out.begin_document("features");
    for (name, count) in [
        ("id", id),
        ("partial", partial),
        ("sparse", sparse),
        ("ttl", ttl),
        ("unique", unique),
    ] {
        out.begin_document(name);
        out.append("count", count);
        out.end();
    }
    out.end();
    out.end();
}

/// `locks`: no operation waits for a lock of the whole server.
pub fn locks(server: &Server, out: &mut DocBuilder) {
    out.begin_document("locks");
    out.begin_document("Global");
    out.begin_document("acquireCount");
    if server.write_gate.is_locked() {
        out.append("S", 1i64);
    }
    out.end();
    out.end();
    out.end();
}

/// `mirroredReads`: there is no other member to send reads to.
pub fn mirrored_reads(_: &Server, out: &mut DocBuilder) {
    out.begin_document("mirroredReads");
    for name in [
        "seen",
        "sent",
        "erroredDuringSend",
        "resolved",
        "processedAsSecondary",
    ] {
        out.append(name, 0i64);
    }
    out.end();
}

/// `opcountersRepl`: nothing is replicated to this member.
pub fn opcounters_repl(_: &Server, out: &mut DocBuilder) {
    out.begin_document("opcountersRepl");
    for name in OPCOUNTERS {
        out.append(name, 0i64);
    }
    out.end();
}

/// `queues`: operations do not wait for tickets.
pub fn queues(server: &Server, out: &mut DocBuilder) {
    let (readers, writers) = server.operations.running();
    out.begin_document("queues");
    out.begin_document("execution");
    for (name, running) in [("read", readers), ("write", writers)] {
        out.begin_document(name);
        out.append("out", running);
        out.append("available", TICKETS - running);
        out.append("totalTickets", TICKETS);
        out.begin_document("normalPriority");
        out.append("queueLength", 0i64);
        out.end();
        out.end();
    }
    out.end();
    out.end();
}

/// Concurrent operations shown as possible; there is no limit below that of connections.
const TICKETS: i32 = 128;

/// `repl`, on a member of an initiated set.
pub fn repl(server: &Server, out: &mut DocBuilder) {
    let Some(set) = &server.repl else {
        return;
    };
    let Some(config) = set.config() else {
        return;
    };
    let me = ReplicaSet::host(config.as_raw());
    let visible = server.db.oplog().visible();
    out.begin_document("repl");
    out.append("setName", set.name());
    out.append(
        "setVersion",
        config.get("version").unwrap_or(RawValue::Int32(1)),
    );
    out.append("isWritablePrimary", true);
    out.append("secondary", false);
    out.append("primary", me.as_str());
    out.append("me", me.as_str());
    out.begin_array("hosts");
    out.push(me.as_str());
    out.end();
    out.begin_document("lastWrite");
    append_optime(out, "opTime", visible);
    out.append("lastWriteDate", date_of(visible));
    append_optime(out, "majorityOpTime", visible);
    out.append("majorityWriteDate", date_of(visible));
    out.end();
    out.append("rbid", 1);
    out.end();
}

/// `security`: the server has no users.
pub fn security(server: &Server, out: &mut DocBuilder) {
    out.begin_document("security");
    out.begin_document("authentication");
    out.begin_document("mechanisms");
    out.end();
    out.end();
    if let Some(tls) = server.traffic.transport_security() {
        out.append("SSLServerSubjectName", tls.subject.as_str());
        out.append("SSLServerHasCertificateAuthority", true);
        out.append("SSLServerCertificateExpirationDate", tls.expires);
    }
    out.end();
}

/// `transportSecurity`: connections made with each version of TLS.
pub fn transport_security(server: &Server, out: &mut DocBuilder) {
    let tls = server.traffic.transport_security();
    let (tls12, tls13) = tls.map_or((0, 0), |tls| (tls.tls12, tls.tls13));
    out.begin_document("transportSecurity");
    // Versions 1.0 and 1.1 are not supported.
    for (version, count) in [
        ("1.0", 0),
        ("1.1", 0),
        ("1.2", tls12),
        ("1.3", tls13),
        ("unknown", 0),
    ] {
        out.append(version, count as i64);
    }
    out.end();
}

/// `metrics.getLastError`: a write waits for no other member.
pub fn get_last_error(out: &mut DocBuilder) {
    out.begin_document("getLastError");
    out.begin_document("default");
    out.append("unsatisfiable", 0i64);
    out.append("wtimeouts", 0i64);
    out.end();
    out.begin_document("wtime");
    out.append("num", 0);
    out.append("totalMillis", 0);
    out.end();
    out.append("wtimeouts", 0i64);
    out.end();
}

/// `metrics.repl`, on a member of a set: nothing is fetched from or applied for other members.
pub fn repl_metrics(server: &Server, out: &mut DocBuilder) {
    if server.repl.is_none() {
        return;
    }
    const PARTS: &[(&str, &[&str], &[&str])] = &[
        (
            "apply",
            &["attemptsToBecomeSecondary", "batchSize", "ops"],
            &["batches"],
        ),
        (
            "buffer",
            &["count", "maxCount", "maxSizeBytes", "sizeBytes"],
            &[],
        ),
        (
            "network",
            &[
                "bytes",
                "notPrimaryUnacknowledgedWrites",
                "ops",
                "readersCreated",
            ],
            &["getmores"],
        ),
    ];
    out.begin_document("repl");
    for (part, counters, timed) in PARTS {
        out.begin_document(part);
        for name in *timed {
            out.begin_document(name);
            out.append("num", 0);
            out.append("totalMillis", 0);
            out.end();
        }
        for name in *counters {
            out.append(name, 0i64);
        }
        out.end();
    }
    out.end();
}

/// The engine's counters that are shown in `wiredTiger.cache`. What is in memtables is not yet in
/// the tree.
const CACHE: &[(&str, &str)] = &[
    ("memtableBytes", "tracked dirty bytes in the cache"),
    ("pagesRead", "pages read into cache"),
    ("pagesHit", "pages requested from the cache"),
    ("pagesEvicted", "unmodified pages evicted"),
];

/// `wiredTiger`: sheaf's own cache and its operations, under the names that dashboards use.
pub fn wired_tiger(server: &Server, out: &mut DocBuilder) {
    let stats = server.db.engine().stats();
    let (readers, writers) = server.operations.running();
    out.begin_document("wiredTiger");
    out.begin_document("cache");
    let cached = stats.cache_bytes.unwrap_or(0) as i64;
    out.append("bytes currently in the cache", cached);
    let max = (server.settings.storage.cache_bytes).unwrap_or_else(crate::engine::default_cache);
    out.append("maximum bytes configured", max as i64);
    out.append("bytes read into cache", stats.bytes_read as i64);
    out.append("bytes written from cache", stats.bytes_written as i64);
    server.db.engine().report(&mut |name, value| {
        if let Some((_, shown)) = CACHE.iter().find(|(counter, _)| *counter == name) {
            out.append(shown, value as i64);
        }
    });
    out.end();
    out.begin_document("log");
    out.append("log sync operations", stats.syncs as i64);
    out.append("log bytes written", stats.bytes_logged as i64);
    out.end();
    out.begin_document("transaction");
    out.append("transactions committed", stats.commits as i64);
    out.end();
    out.begin_document("concurrentTransactions");
    for (name, running) in [("read", readers), ("write", writers)] {
        out.begin_document(name);
        out.append("out", running);
        out.append("available", TICKETS - running);
        out.append("totalTickets", TICKETS);
        out.end();
    }
    out.end();
    out.end();
}
