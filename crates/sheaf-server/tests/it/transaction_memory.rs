//! Large transactions: their memory limits, and what happens beyond them.

use std::path::Path;

use sheaf_bson::{DocBuf, DocBuilder, RawValue};

use super::client::{Client, Reply, command, script};
use super::server::Server;

const ONE: &str = "0d0d0d0d-0d0d-0d0d-0d0d-0d0d0d0d0d0d";
const OTHER: &str = "0e0e0e0e-0e0e-0e0e-0e0e-0e0e0e0e0e0e";

/// An insert of that many documents of one megabyte each, from this `_id` on, in a transaction.
fn insert(session: &str, first: i32, megabytes: i32, number: i64, starts: bool) -> DocBuf {
    let text = "x".repeat((1 << 20) - 100);
    let mut out = DocBuilder::new();
    out.append("insert", "c");
    out.begin_array("documents");
    for id in first..first + megabytes {
        out.push_begin_document();
        out.append("_id", id);
        out.append("text", text.as_str());
        out.end();
    }
    out.end();
    let mut more = format!("{{{}", within(session, number));
    if starts {
        more += ", startTransaction: true";
    }
    out.extend(command(&(more + "}")).as_raw());
    out.finish()
}

fn within(session: &str, number: i64) -> String {
    format!("lsid: {{id: UUID('{session}')}}, txnNumber: NumberLong('{number}'), autocommit: false")
}

fn commit(session: &str, number: i64) -> DocBuf {
    command(&format!(
        "{{commitTransaction: 1, writeConcern: {{w: 'majority'}}, {}, $db: 'admin'}}",
        within(session, number)
    ))
}

/// A transaction of that many megabytes, from this `_id` on; the last reply of its statements.
fn fill(client: &mut Client, session: &str, from: i32, megabytes: i32, number: i64) -> Reply {
    let mut done = 0;
    loop {
        let now = 8.min(megabytes - done);
        let reply = client.run(&insert(session, from + done, now, number, done == 0));
        done += now;
        if !reply.is_ok() || done >= megabytes {
            return reply;
        }
    }
}

fn held(client: &mut Client) -> i64 {
    let status = client.run(&command("{serverStatus: 1, $db: 'admin'}")).body;
    let Some(RawValue::Document(transactions)) = status.get("transactions") else {
        panic!("{status:?}");
    };
    let held = transactions.get("memoryBytesHeld");
    held.and_then(|bytes| bytes.as_i64_exact()).unwrap()
}

fn has_transient_label(reply: &Reply) -> bool {
    matches!(reply.body.get("errorLabels"), Some(RawValue::Array(labels))
        if labels.iter().any(|label| label == RawValue::String("TransientTransactionError")))
}

#[test]
fn a_hundred_megabytes_commit_together() {
    let server = Server::start();
    let mut client = server.client();
    script(&mut client, &[("{create: 'c'}", "{ok: 1.0}")]);
    let reply = fill(&mut client, ONE, 0, 100, 1);
    assert!(reply.is_ok(), "{:?}", reply.body);
    assert!(held(&mut client) > 100 << 20);
    let counted = "{count: 'c'}";
    script(&mut client, &[(counted, "{n: 0}")]);
    assert!(client.run(&commit(ONE, 1)).is_ok());
    assert_eq!(held(&mut client), 0);
    script(&mut client, &[(counted, "{n: 100}")]);
}

#[test]
fn a_too_large_transaction_is_aborted() {
    let server = Server::start_with(&["--setParameter", "transactionMemoryMaxBytes=33554432"]);
    let mut client = server.client();
    script(&mut client, &[("{create: 'c'}", "{ok: 1.0}")]);
    let reply = fill(&mut client, ONE, 0, 60, 1);
    assert_eq!(
        (reply.code(), reply.code_name()),
        (388, "TransactionTooLargeForCache"),
        "{:?}",
        reply.body
    );
    // The error is permanent, so it has no transient label.
    assert!(!has_transient_label(&reply));
    assert_eq!(held(&mut client), 0);
    assert_eq!(client.run(&commit(ONE, 1)).code(), 251);
    // Its locks are free: the same ids can be written at once.
    script(
        &mut client,
        &[
            ("{count: 'c'}", "{n: 0}"),
            ("{insert: 'c', documents: [{_id: 1}]}", "{n: 1}"),
        ],
    );
    // Sixteen megabytes are within the limit.
    for (from, number) in [(100, 2), (200, 3), (300, 4)] {
        assert!(fill(&mut client, ONE, from, 16, number).is_ok());
        assert!(client.run(&commit(ONE, number)).is_ok());
    }
    script(&mut client, &[("{count: 'c'}", "{n: 49}")]);
    // A single statement is limited in the same way.
    let reply = client.run(&command(&format!(
        "{{update: 'c', updates: [{{q: {{}}, u: {{$set: {{b: 1}}}}, multi: true}}], startTransaction: true, {}}}",
        within(ONE, 5)
    )));
    assert_eq!(reply.code(), 388, "{:?}", reply.body);
    assert_eq!(held(&mut client), 0);
    script(&mut client, &[("{count: 'c', query: {b: 1}}", "{n: 0}")]);
}

#[test]
fn all_transactions_together_are_bounded() {
    let options = ["--setParameter", "transactionMemoryTotalMaxBytes=33554432"];
    let server = Server::start_with(&options);
    let mut client = server.client();
    script(&mut client, &[("{create: 'c'}", "{ok: 1.0}")]);
    let mut other = server.client();
    assert!(fill(&mut client, ONE, 0, 20, 1).is_ok());
    let reply = fill(&mut other, OTHER, 100, 20, 1);
    assert_eq!(reply.code(), 112, "{:?}", reply.body);
    assert!(has_transient_label(&reply));
    assert!(held(&mut client) < 30 << 20);
    // The first continues; its end releases memory.
    assert!(client.run(&commit(ONE, 1)).is_ok());
    assert!(fill(&mut other, OTHER, 100, 20, 2).is_ok());
    assert!(other.run(&commit(OTHER, 2)).is_ok());
    script(&mut client, &[("{count: 'c'}", "{n: 40}")]);
}

#[test]
fn a_transaction_of_several_entries_is_streamed_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let opened = client.run(&command(
        "{aggregate: 'c', pipeline: [{$changeStream: {}}, {$project: {documentKey: 1, txnNumber: 1, clusterTime: 1}}], \
         cursor: {}}",
    ));
    let id = cursor_id(&opened);
    script(&mut client, &[("{create: 'c'}", "{ok: 1.0}")]);
    assert!(fill(&mut client, ONE, 0, 40, 7).is_ok());
    assert!(client.run(&commit(ONE, 7)).is_ok());
    let mut ids = Vec::new();
    let mut times = Vec::new();
    while ids.len() < 40 {
        let reply = client.run(&command(&format!(
            "{{getMore: NumberLong('{id}'), collection: 'c', maxTimeMS: 5000}}"
        )));
        let Some(RawValue::Document(cursor)) = reply.body.get("cursor") else {
            panic!("{:?}", reply.body);
        };
        let Some(RawValue::Array(batch)) = cursor.get("nextBatch") else {
            panic!("{:?}", reply.body);
        };
        assert!(!batch.is_empty(), "{ids:?}");
        for event in batch.iter() {
            let RawValue::Document(event) = event else {
                panic!("{event:?}")
            };
            let Some(RawValue::Document(key)) = event.get("documentKey") else {
                panic!("{event:?}")
            };
            ids.push(key.get("_id").and_then(|id| id.as_i64_exact()).unwrap());
            assert_eq!(event.get("txnNumber"), Some(RawValue::Int64(7)));
            match event.get("clusterTime") {
                Some(RawValue::Timestamp(time)) => times.push(time),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(ids, (0..40).collect::<Vec<_>>());
    // Consecutive entries of at most sixteen megabytes.
    assert!(times.is_sorted());
    times.dedup();
    assert_eq!(times.len(), 3);
}

fn cursor_id(reply: &Reply) -> i64 {
    match reply.body.get("cursor") {
        Some(RawValue::Document(cursor)) => cursor.get("id").and_then(|id| id.as_i64_exact()),
        _ => None,
    }
    .unwrap_or_else(|| panic!("{:?}", reply.body))
}

#[test]
fn a_transaction_open_at_shutdown_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let count = |folder: &Path, wanted: &str| {
        let server = Server::start_on(folder, &[]);
        let mut client = server.client();
        script(&mut client, &[("{count: 'c'}", wanted)]);
        let reply = fill(&mut client, ONE, 0, 30, 1);
        assert!(reply.is_ok(), "{:?}", reply.body);
        (server, client)
    };
    // Dropping the server closes it while the transaction is open.
    drop(count(folder.path(), "{n: 0}"));
    let (server, mut client) = count(folder.path(), "{n: 0}");
    assert!(client.run(&commit(ONE, 1)).is_ok());
    drop(server);
    let server = Server::start_on(folder.path(), &[]);
    script(&mut server.client(), &[("{count: 'c'}", "{n: 30}")]);
}
