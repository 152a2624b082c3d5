//! Observability: `comment` and `maxTimeMS` of every command, the profiler, `top`, `dbHash`,
//! currentOp.

use std::time::{Duration, Instant};

use sheaf_bson::json::parse_doc;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, doc};

use super::client::Client;
use super::server::Server;
use super::write_commands::{command, script};

/// The required arguments of commands; the first field is `1` by default. `None` for commands that
/// would end the server or the test's own session.
fn least(name: &str) -> Option<String> {
    Some(match name {
        "find"
        | "count"
        | "listIndexes"
        | "drop"
        | "create"
        | "collStats"
        | "validate"
        | "planCacheClear"
        | "planCacheListFilters"
        | "planCacheClearFilters"
        | "compact" => {
            format!("{{{name}: 'c'}}")
        }
        "getMore" => "{getMore: NumberLong('77'), collection: 'c'}".into(),
        "killCursors" => "{killCursors: 'c', cursors: [NumberLong('77')]}".into(),
        "distinct" => "{distinct: 'c', key: 'a'}".into(),
        "aggregate" => "{aggregate: 'c', pipeline: [], cursor: {}}".into(),
        "explain" => "{explain: {find: 'c'}}".into(),
        "insert" => "{insert: 'c', documents: [{}]}".into(),
        "update" => "{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}}]}".into(),
        "delete" => "{delete: 'c', deletes: [{q: {}, limit: 1}]}".into(),
        "findAndModify" => "{findAndModify: 'c', remove: true}".into(),
        "bulkWrite" => {
            "{bulkWrite: 1, ops: [{delete: 0, filter: {}}], nsInfo: [{ns: 'test.c'}]}".into()
        }
        "renameCollection" => "{renameCollection: 'test.c', to: 'test.d'}".into(),
        "applyOps" => "{applyOps: []}".into(),
        "collMod" => "{collMod: 'c'}".into(),
        "createIndexes" => "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}".into(),
        "dropIndexes" => "{dropIndexes: 'c', index: 'nosuch'}".into(),
        "planCacheSetFilter" => "{planCacheSetFilter: 'c', query: {}, indexes: [{a: 1}]}".into(),
        "profile" => "{profile: -1}".into(),
        "getLog" => "{getLog: '*'}".into(),
        "getParameter" => "{getParameter: 1, notablescan: 1}".into(),
        "setParameter" => "{setParameter: 1, notablescan: false}".into(),
        "killOp" => "{killOp: 1, op: 99999}".into(),
        "startSession" => "{startSession: 1}".into(),
        "refreshSessions"
        | "endSessions"
        | "killSessions"
        | "killAllSessions"
        | "killAllSessionsByPattern" => format!("{{{name}: []}}"),
        "shutdown" | "dropDatabase" | "logout" => return None,
        _ => format!("{{{name}: 1}}"),
    })
}

fn with(text: &str, more: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::from_doc(
        parse_doc(text)
            .unwrap_or_else(|e| panic!("{text}: {e}"))
            .as_raw(),
    );
    out.extend(more.as_raw());
    out.finish()
}

#[test]
fn every_command_takes_a_comment_and_a_time_limit() {
    let server = Server::start();
    let mut client = server.client();
    let list = client.ok(&doc! {"listCommands": 1, "$db": "admin"});
    let commands = list.get("commands").and_then(|v| v.as_document()).unwrap();
    let mut tried = 0;
    let mut wrong = Vec::new();
    for row in commands.iter() {
        let name = row.key();
        let admin = row.value().as_document().and_then(|d| d.get("adminOnly"));
        let db = match admin {
            Some(RawValue::Boolean(true)) => "admin",
            _ => "test",
        };
        // The limit is checked before anything else, so the error is the same for every command.
        for (limit, bad, code) in [
            ("negative", RawValue::Int32(-1), 2),
            ("text", RawValue::String("1"), 14),
            ("document", RawValue::Document(RawDoc::EMPTY), 14),
            ("large", RawValue::Int64(1 << 31), 2),
            ("fraction", RawValue::Double(1.5), 9),
        ] {
            let mut out = DocBuilder::new();
            out.append(name, 1);
            out.append("maxTimeMS", bad);
            out.append("$db", db);
            let reply = client.run(&out.finish());
            if reply.is_ok() || reply.code() != code {
                wrong.push(format!("{name}, {limit}: {:?}", reply.body));
            }
        }
        let Some(least) = least(name) else { continue };
        let plain = client.run(&with(&least, &doc! {"$db": db}));
        for comment in [
            doc! {"comment": "why"},
            doc! {"comment": {"who": [1, "me"]}},
        ] {
            let mut more = DocBuilder::from_doc(comment.as_raw());
            more.append("maxTimeMS", 60_000);
            more.append("$db", db);
            let reply = client.run(&with(&least, &more.finish()));
            // An error must have another cause than these arguments.
            let message = reply
                .body
                .get("errmsg")
                .and_then(|v| v.as_str())
                .unwrap_or("");
            if message.contains("comment") || message.contains("maxTimeMS") || reply.code() == 40415
            {
                wrong.push(format!(
                    "{name}: {:?}, without: {:?}",
                    reply.body, plain.body
                ));
            }
        }
        tried += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 50, "{tried}");
}

/// Operations that may take long, over documents that take milliseconds each.
#[test]
fn time_limits_end_long_operations() {
    let server = Server::start();
    let mut client = server.client();
    let docs: Vec<DocBuf> = (0..20_000)
        .map(|i| doc! {"_id": i, "n": i % 10, "s": "x".repeat(20)})
        .collect();
    client.ok(&doc! {"insert": "c", "documents": docs, "$db": "test"});
    let slow = "{$expr: {$eq: [{$reduce: {input: {$range: [0, 20000]}, initialValue: 0, in: {$add: ['$$value', '$n']}}}, -1]}}";
    for text in [
        format!("{{find: 'c', filter: {slow}}}"),
        format!("{{count: 'c', query: {slow}}}"),
        format!("{{distinct: 'c', key: 'n', query: {slow}}}"),
        format!("{{aggregate: 'c', pipeline: [{{$match: {slow}}}], cursor: {{}}}}"),
        format!("{{aggregate: 'c', pipeline: [{{$match: {slow}}}, {{$out: 'd'}}], cursor: {{}}}}"),
        format!("{{update: 'c', updates: [{{q: {slow}, u: {{$set: {{t: 1}}}}, multi: true}}]}}"),
        format!("{{delete: 'c', deletes: [{{q: {slow}, limit: 0}}]}}"),
        format!("{{findAndModify: 'c', query: {slow}, remove: true}}"),
        format!(
            "{{bulkWrite: 1, ops: [{{update: 0, filter: {slow}, updateMods: {{$set: {{t: 1}}}}}}], nsInfo: [{{ns: 'test.c'}}], $db: 'admin'}}"
        ),
        format!("{{explain: {{find: 'c', filter: {slow}}}, verbosity: 'executionStats'}}"),
    ] {
        let mut limited = DocBuilder::from_doc(command(&text).as_raw());
        limited.append("maxTimeMS", 20);
        assert_eq!(client.fails(&limited.finish()).0, 50, "{text}");
    }
    // These take more than a millisecond for that many documents.
    for text in [
        "{createIndexes: 'c', indexes: [{key: {s: 1, n: 1}, name: 's'}]}",
        "{validate: 'c'}",
        "{dbHash: 1}",
    ] {
        let mut limited = DocBuilder::from_doc(command(text).as_raw());
        limited.append("maxTimeMS", 1);
        assert_eq!(client.fails(&limited.finish()).0, 50, "{text}");
    }
    script(
        &mut client,
        &[
            ("{count: 'c'}", "{n: 20000}"),
            ("{validate: 'c'}", "{nIndexes: 1, valid: true}"),
            ("{find: 'd'}", "{ok: 1.0}"),
        ],
    );
}

/// The documents of a cursor's first batch.
fn batch(reply: &DocBuf) -> Vec<DocBuf> {
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    let batch = cursor.get("firstBatch").and_then(|v| v.as_array()).unwrap();
    batch
        .iter()
        .map(|doc| doc.as_document().unwrap().to_buf())
        .collect()
}

fn profiled(client: &mut Client, db: &str, filter: &str) -> Vec<DocBuf> {
    let find = command(&format!(
        "{{find: 'system.profile', filter: {filter}, sort: {{ts: 1}}, $db: '{db}'}}"
    ));
    batch(&client.ok(&find))
}

fn int(doc: &DocBuf, name: &str) -> i64 {
    let value = doc.get(name).and_then(|v| v.as_i64_exact());
    value.unwrap_or_else(|| panic!("{name} in {doc:?}"))
}

#[test]
fn profiler_documents_match_the_manual() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command(
        "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}]}",
    ));
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}]}",
    ));
    client.ok(&command("{profile: 2}"));
    let seen = ", comment: 'seen'";
    for text in [
        "{find: 'c', filter: {a: {$gte: 1}}, batchSize: 1",
        "{insert: 'c', documents: [{_id: 4, a: 4}]",
        "{update: 'c', updates: [{q: {a: {$gt: 2}}, u: {$inc: {a: 10}}, multi: true}, {q: {_id: 9}, u: {a: 9}, upsert: true}]",
        "{delete: 'c', deletes: [{q: {a: 2}, limit: 1}]",
        "{findAndModify: 'c', query: {_id: 1}, update: {$set: {a: 5}}",
        "{count: 'c', query: {a: 5}",
        "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 1}}, {delete: 1, filter: {_id: 1}}], nsInfo: [{ns: 'other.c'}, {ns: 'test.c'}]",
    ] {
        let db = if text.contains("bulkWrite") {
            ", $db: 'admin'"
        } else {
            ""
        };
        let reply = client.ok(&command(&format!("{text}{seen}{db}}}")));
        if let Some(RawValue::Document(cursor)) = reply.get("cursor")
            && let Some(id) = cursor
                .get("id")
                .and_then(|v| v.as_i64_exact())
                .filter(|id| *id != 0)
        {
            client.ok(&command(&format!(
                "{{getMore: NumberLong('{id}'), collection: 'c'}}"
            )));
        }
    }
    client.ok(&command("{profile: 0}"));
    let entries = profiled(&mut client, "test", "{'command.comment': 'seen'}");
    let ops: Vec<&str> = entries
        .iter()
        .filter_map(|doc| doc.get("op")?.as_str())
        .collect();
    let wanted = [
        "query", "getmore", "insert", "update", "update", "remove", "command", "command", "remove",
    ];
    assert_eq!(ops, wanted, "{entries:?}");
    for doc in &entries {
        for field in [
            "ns", "ts", "client", "millis", "numYield", "allUsers", "user", "command",
        ] {
            assert!(doc.get(field).is_some(), "{field} in {doc:?}");
        }
        assert_eq!(doc.get("ns").and_then(|v| v.as_str()), Some("test.c"));
    }
    let (query, more, insert, multi, upsert, remove, modify) = (
        &entries[0],
        &entries[1],
        &entries[2],
        &entries[3],
        &entries[4],
        &entries[5],
        &entries[6],
    );
    assert_eq!(
        (
            int(query, "keysExamined"),
            int(query, "docsExamined"),
            int(query, "nreturned")
        ),
        (1, 1, 1)
    );
    assert_eq!(
        query.get("planSummary").and_then(|v| v.as_str()),
        Some("IXSCAN { a: 1 }")
    );
    for field in [
        "queryHash",
        "planCacheKey",
        "cursorid",
        "responseLength",
        "protocol",
    ] {
        assert!(query.get(field).is_some(), "{field} in {query:?}");
    }
    let stats = query
        .get("execStats")
        .and_then(|v| v.as_document())
        .unwrap();
    assert!(stats.get("stage").is_some() && stats.get("works").is_some());
    // A getMore shows the comment of its find and the originating command.
    assert!(
        more.get("originatingCommand")
            .and_then(|v| v.as_document())
            .unwrap()
            .get("find")
            .is_some()
    );
    assert_eq!(int(insert, "ninserted"), 1);
    assert_eq!(int(insert, "keysInserted"), 2);
    assert_eq!((int(multi, "nMatched"), int(multi, "nModified")), (2, 2));
    assert_eq!(
        (int(multi, "keysInserted"), int(multi, "keysDeleted")),
        (2, 2)
    );
    assert_eq!(
        (upsert.get("upsert"), multi.get("upsert")),
        (Some(RawValue::Boolean(true)), None)
    );
    assert_eq!(
        (int(remove, "ndeleted"), int(remove, "keysDeleted")),
        (1, 2)
    );
    assert_eq!(
        (int(modify, "nModified"), int(modify, "docsExamined")),
        (1, 1)
    );
    assert!(
        modify
            .get("command")
            .and_then(|v| v.as_document())
            .unwrap()
            .get("findAndModify")
            .is_some()
    );
    // The profiler is off in the database of the other namespace.
    assert!(profiled(&mut client, "other", "{}").is_empty());
    // Long commands are truncated and keep their comments.
    client.ok(&command("{profile: 2}"));
    let long =
        doc! {"find": "c", "filter": {"s": "y".repeat(60_000)}, "comment": "long", "$db": "test"};
    client.ok(&long);
    let entries = profiled(&mut client, "test", "{'command.comment': 'long'}");
    let command = entries[0]
        .get("command")
        .and_then(|v| v.as_document())
        .unwrap();
    assert!(
        command
            .get("$truncated")
            .and_then(|v| v.as_str())
            .is_some_and(|text| text.ends_with("..."))
    );
}

#[test]
fn profiler_filters() {
    let server = Server::start_with(&[
        "--slowOpFilter",
        "{op: 'query', nreturned: {$gte: 2}}",
        "--profile",
        "1",
    ]);
    let mut client = server.client();
    client.ok(&command(
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    ));
    let find = |limit: i32, comment: &str| {
        command(&format!(
            "{{find: 'c', limit: {limit}, comment: '{comment}'}}"
        ))
    };
    // The server's filter applies until the database has one.
    client.ok(&find(1, "a"));
    client.ok(&find(2, "a"));
    assert_eq!(
        profiled(&mut client, "test", "{'command.comment': 'a'}").len(),
        1
    );
    let status = client.ok(&command("{profile: -1}"));
    assert_eq!(int(&status, "was"), 1);
    assert!(
        status.get("filter").is_some() && status.get("note").is_some(),
        "{status:?}"
    );
    client.ok(&command("{profile: 1, filter: {'command.comment': 'b'}}"));
    client.ok(&find(1, "b"));
    client.ok(&find(3, "a"));
    assert_eq!(
        profiled(&mut client, "test", "{'command.comment': 'b'}").len(),
        1
    );
    assert_eq!(
        profiled(&mut client, "test", "{'command.comment': 'a'}").len(),
        1
    );
    server.wait_log("\"comment\":\"b\"");
    client.ok(&command("{profile: 1, filter: 'unset'}"));
    client.ok(&find(1, "b"));
    client.ok(&find(3, "a"));
    assert_eq!(
        profiled(&mut client, "test", "{'command.comment': 'b'}").len(),
        1
    );
    assert_eq!(
        profiled(&mut client, "test", "{'command.comment': 'a'}").len(),
        2
    );
    // At level 2 the filter applies only to the log.
    client.ok(&command("{profile: 2}"));
    client.ok(&find(1, "c"));
    assert_eq!(
        profiled(&mut client, "test", "{'command.comment': 'c'}").len(),
        1
    );
    let logged = |comment: &str| {
        let part = format!("\"comment\":\"{comment}\"");
        server
            .log()
            .iter()
            .filter(|line| line.contains(&part) && line.contains("Slow query"))
            .count()
    };
    // A line is written after its reply.
    let deadline = Instant::now() + Duration::from_secs(10);
    while logged("a") < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((logged("a"), logged("b"), logged("c")), (2, 1, 0));
    for (bad, code) in [
        ("{profile: 1, filter: {$nope: 1}}", 2),
        ("{profile: 1, filter: 'set'}", 2),
        ("{profile: 1, filter: 5}", 2),
        ("{profile: 1, sampleRate: 2}", 2),
        ("{profile: 1, sampleRate: 'x'}", 14),
        ("{profile: 'x'}", 14),
        ("{profile: 1, slowms: {}}", 14),
        ("{profile: 1, nosuch: 1}", 40415),
    ] {
        assert_eq!(client.fails(&command(bad)).0, code, "{bad}");
    }
    assert_eq!(int(&client.ok(&command("{profile: -1}")), "was"), 2);
}

#[test]
fn top_counts_by_collection() {
    let server = Server::start();
    let mut client = server.client();
    for text in [
        "{insert: 'a', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
        "{insert: 'b', documents: [{_id: 1}]}",
        "{find: 'a'}",
        "{find: 'a', filter: {_id: 1}}",
        "{count: 'a'}",
        "{update: 'a', updates: [{q: {_id: 1}, u: {$set: {x: 1}}}, {q: {_id: 2}, u: {$set: {x: 1}}}]}",
        "{delete: 'b', deletes: [{q: {_id: 1}, limit: 1}]}",
        "{findAndModify: 'a', query: {_id: 3}, remove: true}",
        "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 7}}, {update: 1, filter: {}, updateMods: {$set: {y: 1}}}], nsInfo: [{ns: 'test.b'}, {ns: 'test.a'}], $db: 'admin'}",
        "{aggregate: 'a', pipeline: [], cursor: {}}",
    ] {
        client.ok(&command(text));
    }
    let reply = client.ok(&command("{find: 'a', batchSize: 1}"));
    let id = reply
        .get("cursor")
        .and_then(|v| v.as_document())
        .unwrap()
        .get("id")
        .unwrap()
        .as_i64_exact()
        .unwrap();
    client.ok(&command(&format!(
        "{{getMore: NumberLong('{id}'), collection: 'a'}}"
    )));
    let top = client.ok(&command("{top: 1, $db: 'admin'}"));
    let totals = top.get("totals").and_then(|v| v.as_document()).unwrap();
    assert_eq!(
        totals.get("note").and_then(|v| v.as_str()),
        Some("all times in microseconds")
    );
    let counts = |ns: &str| -> Vec<i64> {
        let of = totals.get(ns).and_then(|v| v.as_document()).unwrap();
        [
            "total",
            "readLock",
            "writeLock",
            "queries",
            "getmore",
            "insert",
            "update",
            "remove",
            "commands",
        ]
        .iter()
        .map(|name| {
            let counter = of.get(name).and_then(|v| v.as_document()).unwrap();
            assert!(counter.get("time").and_then(|v| v.as_i64_exact()).is_some());
            counter.get("count").and_then(|v| v.as_i64_exact()).unwrap()
        })
        .collect()
    };
    // Reads: three finds, a getMore, a count, an aggregate. Writes: an insert, three updates, a
    // findAndModify.
    assert_eq!(counts("test.a"), [11, 6, 5, 3, 1, 1, 3, 0, 3]);
    assert_eq!(counts("test.b"), [3, 0, 3, 0, 0, 2, 0, 1, 0]);
    // The counters are removed with their collection.
    client.ok(&command("{drop: 'b'}"));
    let top = client.ok(&command("{top: 1, $db: 'admin'}"));
    let totals = top.get("totals").and_then(|v| v.as_document()).unwrap();
    assert!(totals.get("test.b").is_none());
    assert_eq!(client.fails(&command("{top: 1}")).0, 13);
    // Arguments that it does not know are ignored.
    client.ok(&command("{top: 1, x: 1, $db: 'admin'}"));
}

#[test]
fn db_hash_compares_databases() {
    let server = Server::start();
    let mut client = server.client();
    for text in [
        "{insert: 'a', documents: [{_id: 1, n: 1}, {_id: 2, n: 2}]}",
        "{insert: 'b', documents: [{_id: 'x'}]}",
        "{insert: 'a', documents: [{_id: 2, n: 2}, {_id: 1, n: 1}], $db: 'same'}",
        "{createIndexes: 'a', indexes: [{key: {n: 1}, name: 'n'}], $db: 'same'}",
        "{insert: 'b', documents: [{_id: 'x'}], $db: 'same'}",
        "{insert: 'a', documents: [{_id: 1, n: 1}, {_id: 2, n: 2.5}], $db: 'other'}",
        "{insert: 'b', documents: [{_id: 'x'}], $db: 'other'}",
    ] {
        client.ok(&command(text));
    }
    let mut hash = |more: &str| {
        let reply = client.ok(&command(&format!("{{dbHash: 1{more}}}")));
        let of = reply
            .get("collections")
            .and_then(|v| v.as_document())
            .unwrap();
        let sums: Vec<String> = of
            .iter()
            .map(|sum| format!("{} {}", sum.key(), sum.value().as_str().unwrap()))
            .collect();
        (
            sums,
            reply
                .get("md5")
                .and_then(|v| v.as_str())
                .unwrap()
                .to_owned(),
        )
    };
    let (sums, md5) = hash("");
    // The MD5 sum of the single document {_id: 'x'} in BSON, computed with md5sum.
    assert_eq!(sums.len(), 2);
    assert_eq!(sums[1], "b ebe1cc9ad61525eb10014efd86353e27");
    assert_eq!(hash(", $db: 'same'"), (sums.clone(), md5.clone()));
    let (others, other) = hash(", $db: 'other'");
    assert!(others[0] != sums[0] && others[1] == sums[1] && other != md5);
    assert_eq!(hash(", collections: ['b', 'nosuch']").0, sums[1..]);
    assert_eq!(hash(", collections: []").0, sums);
    assert_eq!(
        hash(", $db: 'nosuch'"),
        (Vec::new(), "d41d8cd98f00b204e9800998ecf8427e".into())
    );
    assert_eq!(client.fails(&command("{dbHash: 1, collections: [1]}")).0, 2);
    // Anything but an array means all collections.
    client.ok(&command("{dbHash: 1, collections: 'a'}"));
    // Arguments that it does not know are ignored.
    client.ok(&command("{dbHash: 1, x: 1}"));
}

#[test]
fn current_op_shows_waiting_operations_too() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.ok(&command(
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    ));
    let lsid = "lsid: {id: UUID('09090909-0909-0909-0909-090909090909')}";
    other.ok(&command("{find: 'c', batchSize: 1, comment: 'idle'}"));
    other.ok(&command(&format!(
        "{{find: 'c', {lsid}, txnNumber: NumberLong('3'), autocommit: false, startTransaction: true}}"
    )));
    let mut ops = |spec: &str| {
        batch(&client.ok(&command(&format!(
            "{{aggregate: 1, pipeline: [{{$currentOp: {spec}}}], cursor: {{}}, comment: 'me', $db: 'admin'}}"
        ))))
    };
    let kinds = |docs: &[DocBuf]| {
        let mut kinds: Vec<String> = docs
            .iter()
            .filter_map(|doc| Some(doc.get("type")?.as_str()?.to_owned()))
            .collect();
        kinds.sort();
        kinds
    };
    let shown = ops("{}");
    assert_eq!(kinds(&shown), ["idleSession", "op"]);
    assert_eq!(kinds(&ops("{idleSessions: false}")), ["op"]);
    assert_eq!(
        kinds(&ops("{idleConnections: true, idleCursors: true}")),
        ["idleCursor", "idleSession", "op", "op"]
    );
    let own = shown
        .iter()
        .find(|doc| doc.get("type").and_then(|v| v.as_str()) == Some("op"))
        .unwrap();
    for field in [
        "host",
        "desc",
        "connectionId",
        "client",
        "active",
        "currentOpTime",
        "threaded",
        "opid",
        "secs_running",
        "microsecs_running",
        "op",
        "ns",
        "redacted",
        "command",
        "numYields",
        "locks",
        "waitingForLock",
        "killPending",
    ] {
        assert!(own.get(field).is_some(), "{field} in {own:?}");
    }
    let idle = ops("{idleCursors: true, idleSessions: false}");
    let cursor = idle
        .iter()
        .find_map(|doc| doc.get("cursor")?.as_document())
        .unwrap();
    let cursor = cursor.to_buf();
    assert_eq!(
        (
            int(&cursor, "nDocsReturned"),
            int(&cursor, "nBatchesReturned")
        ),
        (1, 1)
    );
    let origin = cursor
        .get("originatingCommand")
        .and_then(|v| v.as_document())
        .unwrap();
    assert_eq!(origin.get("comment").and_then(|v| v.as_str()), Some("idle"));
    let session = shown
        .iter()
        .find_map(|doc| doc.get("transaction")?.as_document())
        .unwrap();
    let parameters = session
        .get("parameters")
        .and_then(|v| v.as_document())
        .unwrap();
    assert_eq!(
        parameters.get("txnNumber").and_then(|v| v.as_i64_exact()),
        Some(3)
    );
    // The currentOp command, with conditions.
    let none = client.ok(&command("{currentOp: 1, op: 'none', $db: 'admin'}"));
    assert_eq!(
        none.get("inprog")
            .and_then(|v| v.as_array())
            .unwrap()
            .count(),
        0
    );
    let all = client.ok(&command(
        "{currentOp: 1, $all: true, op: 'none', $db: 'admin'}",
    ));
    assert_eq!(
        all.get("inprog")
            .and_then(|v| v.as_array())
            .unwrap()
            .count(),
        1
    );
    let long = doc! {"currentOp": 1, "$truncateOps": true, "$ownOps": true, "comment": "x", "ns": {"$ne": "y".repeat(2000)}, "$db": "admin"};
    let reply = client.ok(&long);
    let own = reply
        .get("inprog")
        .and_then(|v| v.as_array())
        .unwrap()
        .get(0)
        .unwrap()
        .as_document()
        .unwrap()
        .to_buf();
    let shown = own.get("command").and_then(|v| v.as_document()).unwrap();
    assert!(
        shown.get("$truncated").is_some() && shown.get("comment").is_some(),
        "{own:?}"
    );
}

#[test]
fn statistics_follow_the_stored_data() {
    let server = Server::start();
    let mut client = server.client();
    for text in [
        "{insert: 'a', documents: [{_id: 1, s: 'xxxxxxxxxx'}, {_id: 2, s: 'y'}]}",
        "{insert: 'b', documents: [{_id: 1}]}",
        "{create: 'v', viewOn: 'a', pipeline: []}",
        "{createIndexes: 'a', indexes: [{key: {s: 1}, name: 's'}]}",
        "{find: 'a', filter: {s: 'y'}}",
        "{find: 'a', filter: {n: 1}}",
    ] {
        client.ok(&command(text));
    }
    let stats = client.ok(&command("{dbStats: 1, freeStorage: 1}"));
    // system.views, with the definition of the view, is counted.
    for (name, n) in [
        ("collections", 3),
        ("views", 1),
        ("objects", 4),
        ("indexes", 3),
    ] {
        assert_eq!(int(&stats, name), n, "{name} in {stats:?}");
    }
    // The BSON sizes of the documents: 14 for {_id}; 8 plus the characters and a zero for {s}.
    // The view's row is {_id: 'test.v', viewOn: 'a', pipeline: []}.
    let view = 5 + 16 + 14 + 15;
    let bytes = (14 + 8 + 10) + (14 + 8 + 1) + 14 + view;
    assert_eq!(
        stats.get("dataSize").and_then(|v| v.as_f64()),
        Some(f64::from(bytes))
    );
    assert!(stats.get("totalFreeStorageSize").is_some());
    let of = batch(&client.ok(&command(
        "{aggregate: 'a', pipeline: [{$collStats: {storageStats: {}, count: {}, latencyStats: {histograms: true}, queryExecStats: {}}}], cursor: {}}",
    )));
    let part = |name: &str| {
        of[0]
            .get(name)
            .and_then(|v| v.as_document())
            .unwrap()
            .to_buf()
    };
    assert_eq!(int(&of[0], "count"), 2);
    let storage = part("storageStats");
    assert_eq!(
        (
            int(&storage, "count"),
            int(&storage, "size"),
            int(&storage, "nindexes")
        ),
        (2, 55, 2)
    );
    let scans = part("queryExecStats");
    assert_eq!(
        int(
            &scans
                .get("collectionScans")
                .unwrap()
                .as_document()
                .unwrap()
                .to_buf(),
            "total"
        ),
        1
    );
    let latency = part("latencyStats");
    let of_kind = |kind: &str| {
        latency
            .get(kind)
            .and_then(|v| v.as_document())
            .unwrap()
            .to_buf()
    };
    assert_eq!(
        (
            int(&of_kind("reads"), "ops"),
            int(&of_kind("writes"), "ops")
        ),
        (2, 1)
    );
    let histogram = of_kind("reads");
    let histogram = histogram
        .get("histogram")
        .and_then(|v| v.as_array())
        .unwrap();
    let counted: i64 = histogram
        .iter()
        .map(|bucket| int(&bucket.as_document().unwrap().to_buf(), "count"))
        .sum();
    assert_eq!(counted, 2);
    let indexes = batch(&client.ok(&command(
        "{aggregate: 'a', pipeline: [{$indexStats: {}}], cursor: {}}",
    )));
    let mut uses: Vec<(String, i64)> = indexes
        .iter()
        .map(|index| {
            let accesses = index
                .get("accesses")
                .and_then(|v| v.as_document())
                .unwrap()
                .to_buf();
            (
                index
                    .get("name")
                    .and_then(|v| v.as_str())
                    .unwrap()
                    .to_owned(),
                int(&accesses, "ops"),
            )
        })
        .collect();
    uses.sort();
    assert_eq!(uses, [("_id_".to_owned(), 0), ("s".to_owned(), 1)]);
    // A bulkWrite counts as its individual ops.
    let counters = |client: &mut Client| {
        let status = client.ok(&command("{serverStatus: 1, $db: 'admin'}"));
        let counters = status
            .get("opcounters")
            .and_then(|v| v.as_document())
            .unwrap()
            .to_buf();
        ["insert", "update", "delete"].map(|name| int(&counters, name))
    };
    let before = counters(&mut client);
    client.ok(&command(
        "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {insert: 0, document: {}}, {update: 0, filter: {}, updateMods: {$set: {a: 1}}}, {delete: 0, filter: {}}], nsInfo: [{ns: 'test.b'}], $db: 'admin'}",
    ));
    let after = counters(&mut client);
    assert_eq!(
        [
            after[0] - before[0],
            after[1] - before[1],
            after[2] - before[2]
        ],
        [2, 1, 1]
    );
}

/// Libraries count queries by the entries since they switched the profiler on.
#[test]
fn switching_the_profiler_on_is_not_recorded() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command("{profile: 2}"));
    assert_eq!(profiled(&mut client, "test", "{}").len(), 0);
    // The reads of system.profile are.
    assert_eq!(profiled(&mut client, "test", "{}").len(), 1);
}
