//! `compact` releases space to the file system and keeps the documents.

use sheaf_bson::RawValue;

use super::client::{command, script};
use super::server::Server;

fn number(client: &mut super::client::Client, text: &str, field: &str) -> i64 {
    let reply = client.ok(&command(text));
    let value = reply.get(field);
    value
        .and_then(|value: RawValue<'_>| value.as_i64_exact())
        .unwrap_or_else(|| panic!("{text}: {field} of {reply:?}"))
}

#[test]
fn free_space_is_released() {
    let server = Server::start();
    let mut client = server.client();
    let filler = "x".repeat(5000);
    for from in (0..6000).step_by(500) {
        let documents: Vec<String> = (from..from + 500)
            .map(|n| format!("{{_id: {n}, keep: {}, filler: '{filler}'}}", n >= 5900))
            .collect();
        let insert = format!("{{insert: 'c', documents: [{}]}}", documents.join(", "));
        client.ok(&command(&insert));
    }
    client.ok(&command("{fsync: 1, $db: 'admin'}"));
    client.ok(&command(
        "{delete: 'c', deletes: [{q: {keep: false}, limit: 0}]}",
    ));
    script(
        &mut client,
        &[
            (
                "{compact: 'nosuch'}",
                "{ok: 0.0, code: 26, codeName: 'NamespaceNotFound'}",
            ),
            ("{compact: 'c', paddingBytes: 1}", "{ok: 0.0, code: 40415}"),
            (
                "{compact: 'c', freeSpaceTargetMB: 0}",
                "{ok: 0.0, codeName: 'BadValue'}",
            ),
            (
                "{compact: 'c', freeSpaceTargetMB: -1}",
                "{ok: 0.0, code: 2}",
            ),
            (
                "{compact: 'c', dryRun: 'yes'}",
                "{ok: 0.0, codeName: 'TypeMismatch'}",
            ),
            // A target larger than the free space.
            (
                "{compact: 'c', freeSpaceTargetMB: 100000}",
                "{ok: 1.0, bytesFreed: 0}",
            ),
        ],
    );
    // Deletes reach the tree with a compaction or a checkpoint before it.
    let path = server.folder().join("sheaf/tree");
    let length = || std::fs::metadata(&path).unwrap().len() as i64;
    let first = number(
        &mut client,
        "{compact: 'c', freeSpaceTargetMB: 1, force: true, comment: 'x'}",
        "bytesFreed",
    );
    let estimate = number(
        &mut client,
        "{compact: 'c', dryRun: true}",
        "estimatedBytesFreed",
    );
    let before = length();
    let second = number(
        &mut client,
        "{compact: 'c', freeSpaceTargetMB: 1}",
        "bytesFreed",
    );
    assert_eq!(length(), before - second);
    assert!(estimate >= second, "{estimate} {second}");
    assert!(
        first + second > 0 || before < 6_000_000,
        "{first} {second} {before}"
    );
    assert!(length() < 6_000_000, "{first} {second} {}", length());
    script(
        &mut client,
        &[
            ("{count: 'c'}", "{n: 100}"),
            ("{validate: 'c'}", "{valid: true, nrecords: 100}"),
        ],
    );
}

#[test]
fn a_primary_requires_force() {
    let server = Server::start_with(&["--replSet", "rs"]);
    let mut client = server.client();
    client.ok(&command("{replSetInitiate: {}, $db: 'admin'}"));
    script(
        &mut client,
        &[
            ("{insert: 'c', documents: [{_id: 1}]}", "{n: 1}"),
            (
                "{compact: 'c'}",
                "{ok: 0.0, code: 20, codeName: 'IllegalOperation'}",
            ),
            ("{compact: 'c', force: true}", "{ok: 1.0}"),
            ("{compact: 'c', dryRun: true}", "{ok: 1.0}"),
        ],
    );
}
