//! Cursors, operations in progress, time limits, the profiler, and expensive filters.

use std::time::{Duration, Instant};

use sheaf_bson::{DocBuf, RawValue, Value, doc};
use sheaf_wire::Flags;
use sheaf_wire::request::op_msg;

use super::client::Client;
use super::server::Server;

fn integer(doc: &DocBuf, path: &str) -> i64 {
    let path = sheaf_bson::path::FieldPath::parse(path).unwrap();
    let value = sheaf_bson::path::get_path(doc.as_raw(), &path);
    let value = value.and_then(|v| v.as_i64_exact());
    value.unwrap_or_else(|| panic!("{} in {doc:?}", path.dotted()))
}

fn filled(server: &Server, count: i32) -> Client {
    let mut client = server.client();
    let docs: Vec<DocBuf> = (0..count)
        .map(|i| doc! {"_id": i, "s": "a".repeat(30), "n": i % 10})
        .collect();
    client.ok(&doc! {"insert": "c", "documents": docs, "$db": "test"});
    client
}

/// A find that takes minutes, with some milliseconds per document.
fn endless() -> DocBuf {
    let expression = doc! {"$reduce": {
        "input": {"$range": [0, 20_000]}, "initialValue": 0, "in": {"$add": ["$$value", "$n"]}
    }};
    doc! {"find": "c", "filter": {"$expr": {"$eq": [expression, -1]}}, "$db": "test"}
}

#[test]
fn cursors() {
    let server = Server::start();
    let mut client = filled(&server, 20);
    let open = |client: &mut Client| {
        let find = doc! {"find": "c", "batchSize": 2, "$db": "test"};
        integer(&client.ok(&find), "cursor.id")
    };
    let more = |id: i64, collection: &str| {
        doc! {"getMore": id, "collection": collection, "batchSize": 3, "$db": "test"}
    };
    let id = open(&mut client);
    assert_ne!(id, 0);
    assert_eq!(client.fails(&more(id, "other")).0, 13);
    // Another connection may continue the cursor.
    let mut second = server.client();
    let reply = second.ok(&more(id, "c"));
    assert_eq!(integer(&reply, "cursor.id"), id);
    let kill = doc! {"killCursors": "c", "cursors": [id, 77i64], "$db": "test"};
    let killed = client.ok(&kill);
    let list = |name: &str| killed.get(name).and_then(|v| v.as_array()).unwrap().count();
    assert_eq!((list("cursorsKilled"), list("cursorsNotFound")), (1, 1));
    assert_eq!(client.fails(&more(id, "c")).0, 43);
    // Dropping the collection closes the cursor.
    let id = open(&mut client);
    client.ok(&doc! {"drop": "c", "$db": "test"});
    let (code, message) = client.fails(&more(id, "c"));
    assert!(matches!(code, 175 | 43), "{code} {message}");
    // Empty batches, and batches of one document.
    let mut client = filled(&server, 5);
    let find = doc! {"find": "c", "batchSize": 0, "$db": "test"};
    let reply = client.ok(&find);
    let id = integer(&reply, "cursor.id");
    assert_ne!(id, 0);
    assert_eq!(integer(&client.ok(&more(id, "c")), "cursor.id"), id);
    assert_eq!(integer(&client.ok(&more(id, "c")), "cursor.id"), 0);
    let find = doc! {"find": "c", "batchSize": 2, "singleBatch": true, "$db": "test"};
    assert_eq!(integer(&client.ok(&find), "cursor.id"), 0);
    let find = doc! {"find": "c", "batchSize": 2, "limit": 2, "$db": "test"};
    assert_eq!(integer(&client.ok(&find), "cursor.id"), 0);
}

/// A cursor without a collection is named by the namespace of its reply, which drivers send back.
#[test]
fn cursors_over_no_collection_are_closed() {
    let server = Server::start();
    let mut client = filled(&server, 20);
    for command in [
        "{aggregate: 1, pipeline: [{$documents: [{a: 1}, {a: 2}]}], cursor: {batchSize: 1}}",
        "{aggregate: 1, pipeline: [{$changeStream: {}}], cursor: {}}",
        "{listIndexes: 'c', cursor: {batchSize: 0}}",
        "{listCollections: 1, cursor: {batchSize: 0}}",
    ] {
        let reply = client.ok(&super::write_commands::command(command));
        let id = integer(&reply, "cursor.id");
        let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
        let ns = cursor.get("ns").and_then(|v| v.as_str()).unwrap();
        let name = ns.strip_prefix("test.").unwrap();
        let kill = doc! {"killCursors": name, "cursors": [id], "$db": "test"};
        let killed = client.ok(&kill);
        let killed = killed.get("cursorsKilled").and_then(|v| v.as_array());
        assert_eq!(killed.unwrap().count(), 1, "{command} {name}");
        let more = doc! {"getMore": id, "collection": name, "$db": "test"};
        assert_eq!(client.fails(&more).0, 43, "{command}");
    }
    let bad = doc! {"killCursors": "$other", "cursors": [1i64], "$db": "test"};
    assert_eq!(client.fails(&bad).0, 73);
}

#[test]
fn time_limits_end_operations() {
    let server = Server::start();
    let mut client = filled(&server, 50_000);
    let mut find = sheaf_bson::DocBuilder::from_doc(endless().as_raw());
    find.append("maxTimeMS", 50);
    let (code, _) = client.fails(&find.finish());
    assert_eq!(code, 50);
    client.ok(&doc! {"ping": 1, "$db": "admin"});
}

/// An expression can take very long within one document: nested loops, and operators that scan a
/// large array each time.
#[test]
fn time_limits_end_an_expression_within_a_document() {
    let server = Server::start();
    let mut client = filled(&server, 1);
    let range = |n: i32| doc! {"$range": [0, n]};
    let loops = doc! {"$map": {"input": range(1_000_000), "as": "i", "in": {
        "$sum": {"$map": {"input": range(1_000_000), "in": {"$multiply": ["$$this", "$$i"]}}}
    }}};
    let walks = doc! {"$let": {"vars": {"all": range(1_000_000)}, "in": {
        "$filter": {"input": "$$all", "cond": {"$not": [{"$in": [-1, "$$all"]}]}}
    }}};
    let joins = doc! {"$let": {"vars": {"all": range(1_000_000)}, "in": {
        "$map": {"input": "$$all", "in": {"$size": {"$setUnion": ["$$all", ["$$this"]]}}}
    }}};
    for expression in [loops, walks, joins] {
        let pipeline = vec![doc! {"$project": {"n": {"$size": expression}}}];
        let aggregate = doc! {
            "aggregate": "c", "pipeline": pipeline, "cursor": {}, "maxTimeMS": 100, "$db": "test"
        };
        assert_eq!(client.fails(&aggregate).0, 50);
    }
    client.ok(&doc! {"ping": 1, "$db": "admin"});
}

/// Waits until an operation with this comment runs; returns its opid.
fn running(client: &mut Client, comment: &str) -> i64 {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let ops = client.ok(&doc! {"currentOp": 1, "command.comment": comment, "$db": "admin"});
        let found = ops.get("inprog").and_then(|v| v.as_array()).unwrap();
        if let Some(RawValue::Document(op)) = found.get(0) {
            assert_eq!(op.get("ns").and_then(|v| v.as_str()), Some("test.c"));
            assert_eq!(op.get("active"), Some(RawValue::Boolean(true)));
            return op.get("opid").and_then(|v| v.as_i64_exact()).unwrap();
        }
        assert!(Instant::now() < end, "nothing with comment {comment} runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn operations_are_shown_and_killed() {
    let server = Server::start();
    let mut client = filled(&server, 50_000);
    let mut victim = server.client();
    let thread = std::thread::spawn(move || {
        let mut find = sheaf_bson::DocBuilder::from_doc(endless().as_raw());
        find.append("comment", "to be killed");
        victim.fails(&find.finish())
    });
    let opid = running(&mut client, "to be killed");
    client.ok(&doc! {"killOp": 1, "op": opid, "$db": "admin"});
    assert_eq!(thread.join().unwrap().0, 11601);
    // As in MongoDB, killing an unknown operation succeeds.
    client.ok(&doc! {"killOp": 1, "op": 999_999_999, "$db": "admin"});
}

#[test]
fn profiler_levels() {
    let server = Server::start();
    let mut client = filled(&server, 10);
    let set = |level: i32| doc! {"profile": level, "$db": "test"};
    let profiled = |client: &mut Client| {
        let count = doc! {
            "count": "system.profile", "query": {"command.comment": "watched"}, "$db": "test"
        };
        integer(&client.ok(&count), "n")
    };
    let find = doc! {"find": "c", "filter": {"n": 3}, "comment": "watched", "$db": "test"};
    assert_eq!(integer(&client.ok(&set(2)), "was"), 0);
    client.ok(&find);
    assert_eq!(integer(&client.ok(&set(-1)), "was"), 2);
    assert_eq!(profiled(&mut client), 1);
    client.ok(&set(0));
    client.ok(&find);
    assert_eq!(profiled(&mut client), 1);
    // Level 1 profiles slow operations; with this threshold all are slow.
    client.ok(&doc! {"profile": 1, "slowms": -1, "$db": "test"});
    client.ok(&find);
    assert_eq!(profiled(&mut client), 2);
    let slow = doc! {"find": "system.profile", "filter": {"command.comment": "watched"}, "limit": 1, "$db": "test"};
    let reply = client.ok(&slow);
    let entry = reply.get("cursor").and_then(|c| c.as_document()).unwrap();
    let entry = entry.get("firstBatch").and_then(|b| b.as_array()).unwrap();
    let Some(RawValue::Document(entry)) = entry.get(0) else {
        panic!("{reply:?}");
    };
    assert_eq!(entry.get("op").and_then(|v| v.as_str()), Some("query"));
    assert_eq!(
        entry.get("docsExamined").and_then(|v| v.as_i64_exact()),
        Some(10)
    );
    assert_eq!(
        entry.get("planSummary").and_then(|v| v.as_str()),
        Some("COLLSCAN")
    );
}

#[test]
fn the_log_can_be_read() {
    let server = Server::start();
    let mut client = server.client();
    let names = client.ok(&doc! {"getLog": "*", "$db": "admin"});
    assert!(
        names
            .get("names")
            .and_then(|v| v.as_array())
            .unwrap()
            .count()
            >= 2
    );
    let log = client.ok(&doc! {"getLog": "global", "$db": "admin"});
    let lines = log.get("log").and_then(|v| v.as_array()).unwrap();
    let waiting = |line: RawValue<'_>| {
        line.as_str()
            .is_some_and(|l| l.contains("Waiting for connections"))
    };
    assert!(lines.iter().any(waiting));
    assert!(integer(&log, "totalLinesWritten") >= lines.count() as i64);
}

/// A short expression can take years on one document: the time limit ends it within the document.
#[test]
fn endless_expressions_end_with_their_time() {
    let server = Server::start();
    let mut client = filled(&server, 1);
    let expression = doc! {"$reduce": {
        "input": {"$range": [0, 1_000_000]}, "initialValue": 0,
        "in": {"$add": ["$$value", {"$size": {"$range": ["$n", 1_000_000]}}]}
    }};
    let filter = doc! {"$expr": {"$eq": [expression, -1]}};
    let find = doc! {"find": "c", "filter": filter, "maxTimeMS": 100, "$db": "test"};
    assert_eq!(client.fails(&find).0, 50);
    client.ok(&doc! {"ping": 1, "$db": "admin"});
}

#[test]
fn slow_patterns_are_aborted() {
    let server = Server::start();
    let mut client = filled(&server, 50);
    // Without a limit this would take practically forever.
    let filter = doc! {"s": {"$regex": "^(a+)+$b"}};
    let bad = doc! {"s": {"$regex": "^(([a-z])+.)+[A-Z]([a-z])+$"}};
    for filter in [filter, bad] {
        let reply = client.run(&doc! {"find": "c", "filter": filter, "$db": "test"});
        if !reply.is_ok() {
            assert_eq!(reply.code(), 51156, "{:?}", reply.body);
        }
    }
    client.ok(&doc! {"ping": 1, "$db": "admin"});
}

/// `{a: {a: {a: ...}}}`, written from the outside in.
fn nested(depth: usize) -> DocBuf {
    let mut bytes = Vec::new();
    for level in (1..=depth).rev() {
        bytes.extend_from_slice(&(5 + 8 * level as i32).to_le_bytes());
        bytes.extend_from_slice(b"\x03a\0");
    }
    bytes.extend_from_slice(&5i32.to_le_bytes());
    bytes.resize(bytes.len() + depth + 1, 0);
    DocBuf::from_vec_unchecked(bytes)
}

#[test]
fn depth_bombs() {
    let server = Server::start();
    let mut client = filled(&server, 1);
    for depth in [90, 150, 1_000] {
        for operator in ["$and", "$nor"] {
            let mut filter = doc! {"a": 1};
            let mut arrays = Value::Int32(1);
            for _ in 0..depth {
                filter = doc! {operator: [filter]};
                arrays = Value::from(vec![arrays]);
            }
            let reply = client.run(&doc! {"find": "c", "filter": filter, "$db": "test"});
            assert!(reply.is_ok() || reply.code() != 0, "{:?}", reply.body);
            let reply = client.run(&doc! {"find": "c", "filter": {"a": arrays}, "$db": "test"});
            assert!(reply.is_ok() || reply.code() != 0, "{:?}", reply.body);
            client.ok(&doc! {"ping": 1, "$db": "admin"});
        }
    }
    for depth in [199, 100_000] {
        let filter = nested(depth);
        let reply = client.run(&doc! {"find": "c", "filter": filter, "$db": "test"});
        assert!(reply.is_ok() || reply.code() != 0, "{:?}", reply.body);
        let reply = client.run(&doc! {"insert": "deep", "documents": [filter], "$db": "test"});
        assert_ne!(reply.body.get("n").and_then(|v| v.as_i64_exact()), Some(1));
        client.ok(&doc! {"ping": 1, "$db": "admin"});
    }
    // A stored document may have 180 levels at most.
    for (depth, taken) in [(95, true), (175, true), (185, false), (210, false)] {
        let reply =
            client.run(&doc! {"insert": "deep", "documents": [nested(depth)], "$db": "test"});
        let stored = reply.body.get("n").and_then(|v| v.as_i64_exact()) == Some(1);
        assert_eq!(stored, taken, "{depth}: {:?}", reply.body);
    }
}

#[test]
fn exhaust_cursors_stream_their_batches() {
    let server = Server::start();
    let mut client = filled(&server, 10);
    let find = doc! {"find": "c", "batchSize": 2, "$db": "test"};
    let id = integer(&client.ok(&find), "cursor.id");
    let more = doc! {"getMore": id, "collection": "c", "batchSize": 3, "$db": "test"};
    let flags = Flags(Flags::EXHAUST_ALLOWED);
    let request = client.next_id();
    client.send(&op_msg(request, flags, more.as_raw(), &[]));
    let mut batches = Vec::new();
    loop {
        let reply = client.receive();
        assert!(reply.is_ok(), "{:?}", reply.body);
        let cursor = reply
            .body
            .get("cursor")
            .and_then(|c| c.as_document())
            .unwrap();
        let batch = cursor.get("nextBatch").and_then(|b| b.as_array()).unwrap();
        batches.push(batch.count());
        if reply.flags.0 & Flags::MORE_TO_COME == 0 {
            assert_eq!(integer(&reply.body, "cursor.id"), 0);
            break;
        }
    }
    assert_eq!(batches.iter().sum::<usize>(), 8);
    assert!(batches.len() >= 3, "{batches:?}");
    client.ok(&doc! {"ping": 1, "$db": "admin"});
}

/// Waits until no operation with this comment runs.
fn wait_ended(client: &mut Client, comment: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    let query = doc! {"currentOp": 1, "command.comment": comment, "$db": "admin"};
    loop {
        let reply = client.ok(&query);
        let shown = reply.get("inprog").and_then(|v| v.as_array()).unwrap();
        if shown.count() == 0 {
            return;
        }
        assert!(Instant::now() < end, "{comment} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The command with a comment by which currentOp finds it.
fn commented(command: &DocBuf, comment: &str) -> DocBuf {
    let mut out = sheaf_bson::DocBuilder::from_doc(command.as_raw());
    out.append("comment", comment);
    out.finish()
}

#[test]
fn a_read_ends_with_its_client() {
    let server = Server::start();
    let mut client = filled(&server, 50_000);
    let filter = endless();
    let filter = filter.get("filter").unwrap();
    let reads = [
        endless(),
        doc! {"count": "c", "query": filter, "$db": "test"},
        doc! {"distinct": "c", "key": "n", "query": filter, "$db": "test"},
        doc! {"aggregate": "c", "pipeline": [{"$match": filter}], "cursor": {}, "$db": "test"},
    ];
    for (at, read) in reads.iter().enumerate() {
        let comment = format!("left alone {at}");
        let mut leaving = server.client();
        let request = commented(read, &comment);
        leaving.send(&op_msg(1, Flags::default(), request.as_raw(), &[]));
        running(&mut client, &comment);
        drop(leaving);
        wait_ended(&mut client, &comment);
    }
}

#[test]
fn a_write_outlives_its_client() {
    let server = Server::start();
    let mut client = filled(&server, 300);
    let slow = doc! {"$add": [{"$reduce": {
        "input": {"$range": [0, 5_000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}
    }}, 0]};
    let update = doc! {"update": "c", "updates": [
        {"q": {}, "u": [{"$set": {"t": slow}}], "multi": true}
    ], "$db": "test"};
    let mut leaving = server.client();
    let request = commented(&update, "goes on");
    let flags = Flags(Flags::MORE_TO_COME);
    leaving.send(&op_msg(1, flags, request.as_raw(), &[]));
    running(&mut client, "goes on");
    drop(leaving);
    wait_ended(&mut client, "goes on");
    let count = doc! {"count": "c", "query": {"t": 5_000}, "$db": "test"};
    assert_eq!(integer(&client.ok(&count), "n"), 300);
}
