//! Commands of members of a replica set, on a set of one member and without one.

use crate::client::{command, script};
use crate::server::Server;

fn admin(text: &str) -> String {
    text.replace("}$", ", $db: 'admin'}")
}

#[test]
fn a_set_of_one_member_stays_the_primary() {
    let server = Server::start_with(&["--replSet", "rs"]);
    let mut client = server.client();
    let step_down = admin("{replSetStepDown: 10}$");
    script(&mut client, &[(&step_down, "{code: 94}")]);
    client.ok(&command(&admin("{replSetInitiate: {}}$")));
    let rows = [
        ("{replSetStepDown: 10}$", "{code: 262}"),
        ("{replSetStepDown: 10, force: true}$", "{code: 238}"),
        ("{replSetStepDown: -1}$", "{code: 2}"),
        ("{replSetStepDown: 5}$", "{code: 2}"),
        (
            "{replSetStepDown: 20, secondaryCatchUpPeriodSecs: -1}$",
            "{code: 2}",
        ),
        ("{replSetStepDown: 10, nosuch: 1}$", "{code: 40415}"),
        ("{replSetFreeze: 5}$", "{code: 95}"),
        ("{replSetMaintenance: true}$", "{code: 95}"),
        ("{replSetSyncFrom: 'other:1'}$", "{code: 95}"),
        ("{replSetSyncFrom: 1}$", "{code: 14}"),
        ("{replSetAbortPrimaryCatchUp: 1}$", "{code: 20}"),
        ("{replSetResizeOplog: 1, size: 989}$", "{code: 2}"),
        ("{replSetResizeOplog: 1, size: 'x'}$", "{code: 14}"),
        (
            "{replSetResizeOplog: 1, minRetentionHours: -1}$",
            "{code: 2}",
        ),
        ("{replSetResizeOplog: 1}$", "{code: 72}"),
        ("{replSetResizeOplog: 1, size: 1000.0}$", "{ok: 1.0}"),
        (
            "{collStats: 'oplog.rs', $db: 'local'}",
            "{maxSize: 1048576000}",
        ),
        ("{appendOplogNote: 1}$", "{code: 4}"),
        ("{appendOplogNote: 1, data: 1}$", "{code: 14}"),
        (
            "{appendOplogNote: 1, data: {a: 1}, maxClusterTime: {$timestamp: {t: 1, i: 1}}}$",
            "{code: 209}",
        ),
        (
            "{appendOplogNote: 1, data: {from: 'a client'}}$",
            "{ok: 1.0}",
        ),
        (
            "{count: 'oplog.rs', query: {op: 'n', o: {from: 'a client'}}, $db: 'local'}",
            "{n: 1}",
        ),
    ];
    for (text, wanted) in rows {
        script(&mut client, &[(&admin(text), wanted)]);
    }
}

#[test]
fn without_a_set_they_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for text in [
        "{replSetStepDown: 10}$",
        "{replSetFreeze: 5}$",
        "{replSetMaintenance: true}$",
        "{replSetSyncFrom: 'other:1'}$",
        "{replSetAbortPrimaryCatchUp: 1}$",
        "{replSetResizeOplog: 1, size: 1000}$",
        "{appendOplogNote: 1, data: {}}$",
    ] {
        script(&mut client, &[(&admin(text), "{code: 76}")]);
    }
}
