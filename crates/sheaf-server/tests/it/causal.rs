//! The cluster time as clients see it, on a server without a replica set.

use std::path::Path;

use sheaf_bson::{RawValue, Timestamp};

use super::client::{Client, Reply, command, script};
use super::server::Server;

const SESSION: &str = "lsid: {id: UUID('0c0c0c0c-0c0c-0c0c-0c0c-0c0c0c0c0c0c')}";

fn operation_time(reply: &Reply) -> Timestamp {
    match reply.body.get("operationTime") {
        Some(RawValue::Timestamp(time)) => time,
        other => panic!("operationTime is {other:?} in {:?}", reply.body),
    }
}

fn cluster_time(reply: &Reply) -> Timestamp {
    let Some(RawValue::Document(gossip)) = reply.body.get("$clusterTime") else {
        panic!("no $clusterTime in {:?}", reply.body);
    };
    match gossip.get("clusterTime") {
        Some(RawValue::Timestamp(time)) => time,
        other => panic!("clusterTime is {other:?}"),
    }
}

fn text(time: Timestamp) -> String {
    format!("Timestamp({}, {})", time.time, time.increment)
}

fn insert(client: &mut Client, id: i32) -> Timestamp {
    let reply = client.run(&command(&format!(
        "{{insert: 'c', documents: [{{_id: {id}}}], {SESSION}}}"
    )));
    assert!(reply.is_ok(), "{:?}", reply.body);
    assert!(operation_time(&reply) <= cluster_time(&reply));
    operation_time(&reply)
}

#[test]
fn times_on_a_server_without_a_replica_set() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        // Clients without sessions receive no times, as from a standalone.
        &[
            (
                "{insert: 'c', documents: [{_id: 0}]}",
                "{n: 1, operationTime: '(absent)', '$clusterTime': '(absent)'}",
            ),
            (
                "{ping: 1}",
                "{operationTime: '(absent)', '$clusterTime': '(absent)'}",
            ),
        ],
    );
    let first = insert(&mut client, 1);
    let second = insert(&mut client, 2);
    assert!(second > first);
    // Reads and refused commands return the time of the newest commit.
    for text in [
        format!("{{find: 'c', {SESSION}}}"),
        format!("{{find: 'c', filter: {{$none: 1}}, {SESSION}}}"),
        format!("{{noSuchOption: 1, find: 'c', {SESSION}}}"),
        format!("{{insert: 'c', documents: [{{_id: 1}}], {SESSION}}}"),
    ] {
        let reply = client.run(&command(&text));
        if reply.is_ok() || reply.code() == 2 {
            assert_eq!(operation_time(&reply), second, "{text}");
        }
    }
    // A client returns the cluster time that it received.
    let reply = client.run(&command(&format!("{{ping: 1, {SESSION}}}")));
    let Some(RawValue::Document(gossip)) = reply.body.get("$clusterTime") else {
        panic!("{:?}", reply.body);
    };
    let gossip = sheaf_bson::json::shell_doc(gossip);
    script(
        &mut client,
        &[(
            &format!("{{find: 'c', $clusterTime: {gossip}, limit: 1}}"),
            "{ok: 1.0}",
        )],
    );
}

#[test]
fn reading_after_a_time() {
    let server = Server::start();
    let mut client = server.client();
    let written = insert(&mut client, 1);
    let later = |seconds: u32| Timestamp {
        time: written.time + seconds,
        increment: 1,
    };
    let find = |concern: &str| format!("{{find: 'c', readConcern: {{{concern}}}, {SESSION}}}");
    let after =
        |time: Timestamp, more: &str| find(&format!("afterClusterTime: {}{more}", text(time)));
    let gossip = |time: Timestamp| format!("$clusterTime: {{clusterTime: {}}}", text(time));
    let rows = [
        (after(written, ""), "{ok: 1.0}"),
        (after(written, ", level: 'local'"), "{ok: 1.0}"),
        (after(written, ", level: 'majority'"), "{ok: 1.0}"),
        (after(written, ", level: 'snapshot'"), "{ok: 1.0}"),
        // Writes and DDL may wait too.
        (
            after(written, "").replace("find: 'c'", "insert: 'c', documents: [{_id: 2}]"),
            "{ok: 1.0, n: 1}",
        ),
        (
            after(written, "").replace("find: 'c'", "create: 'd'"),
            "{ok: 1.0}",
        ),
        // A time that no client can have received.
        (
            after(later(60), ""),
            "{ok: 0.0, code: 72, codeName: 'InvalidOptions'}",
        ),
        (
            after(written, ", level: 'available'"),
            "{ok: 0.0, code: 72}",
        ),
        (
            after(written, ", level: 'linearizable'"),
            "{ok: 0.0, code: 72}",
        ),
        (
            after(
                written,
                &format!(", level: 'snapshot', atClusterTime: {}", text(written)),
            ),
            "{ok: 0.0, code: 72}",
        ),
        (
            find("afterClusterTime: Timestamp(0, 0)"),
            "{ok: 0.0, code: 72}",
        ),
        (
            find("afterClusterTime: 'now'"),
            "{ok: 0.0, code: 14, codeName: 'TypeMismatch'}",
        ),
        (find("afterClusterTime: 5"), "{ok: 0.0, code: 14}"),
        // A time from another server, sent as `$clusterTime` too.
        (
            after(later(60), "").replace("find: 'c'", &format!("find: 'c', {}", gossip(later(60)))),
            "{ok: 1.0}",
        ),
        (after(later(60), ""), "{ok: 1.0}"),
        // Values that are not a cluster time.
        ("{ping: 1, $clusterTime: 5}".into(), "{ok: 0.0, code: 14}"),
        (
            "{ping: 1, $clusterTime: {clusterTime: 5}}".into(),
            "{ok: 0.0, code: 14}",
        ),
        (
            "{ping: 1, $clusterTime: {clusterTime: Timestamp(5, 1), signature: 5}}".into(),
            "{ok: 0.0, code: 14}",
        ),
        (
            "{ping: 1, $clusterTime: {}}".into(),
            "{ok: 0.0, code: 40414}",
        ),
        (
            format!("{{ping: 1, {}}}", gossip(later(3 * 31_536_000))),
            "{ok: 0.0, code: 205, codeName: 'ClusterTimeFailsRateLimiter'}",
        ),
    ];
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(&mut client, &rows);
    assert!(insert(&mut client, 9) > later(60));
}

#[test]
fn a_snapshot_of_the_newest_time() {
    let server = Server::start();
    let mut client = server.client();
    let first = insert(&mut client, 1);
    let find = |time: Timestamp| {
        format!(
            "{{find: 'c', readConcern: {{level: 'snapshot', atClusterTime: {}}}, {SESSION}}}",
            text(time)
        )
    };
    let one = format!(
        "{{cursor: {{firstBatch: [{{_id: 1}}], id: NumberLong('0'), ns: 'test.c', atClusterTime: {}}}}}",
        text(first)
    );
    script(&mut client, &[(&find(first), &one)]);
    let second = insert(&mut client, 2);
    let third = insert(&mut client, 3);
    assert!(second > first);
    let beyond = Timestamp {
        time: third.time + 1000,
        increment: 1,
    };
    script(
        &mut client,
        &[
            // Kept since its first read.
            (&find(first), &one),
            (
                &find(second),
                "{ok: 0.0, code: 239, codeName: 'SnapshotTooOld'}",
            ),
            (&find(beyond), "{ok: 0.0, code: 72}"),
            (&find(third), "{ok: 1.0}"),
        ],
    );
}

#[test]
fn times_continue_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = Timestamp {
        time: 0,
        increment: 0,
    };
    for round in 0..3 {
        let server = start(folder.path());
        let mut client = server.client();
        let reply = client.run(&command(&format!("{{ping: 1, {SESSION}}}")));
        assert!(operation_time(&reply) >= last);
        let now = insert(&mut client, round);
        assert!(now > last);
        last = now;
        // Dropping the server closes it.
    }
}

fn start(folder: &Path) -> Server {
    Server::start_on(folder, &[])
}
