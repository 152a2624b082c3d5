//! `--repair` removes damaged data, rebuilds indexes from the remaining documents, and reports
//! both.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use super::client::Client;
use super::server::{Server, command as server_command};
use super::write_commands::{command, script};

const DOCUMENTS: usize = 3000;

/// Documents with a plain, a multikey and a unique index; the server has stopped.
fn filled(folder: &Path) {
    let server = Server::start_on(folder, &[]);
    let mut client = server.client();
    script(
        &mut client,
        &[(
            "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}, {key: {tags: -1}, name: 'tags'}, {key: {u: 1}, name: 'u', unique: true}]}",
            "{ok: 1.0}",
        )],
    );
    for from in (0..DOCUMENTS).step_by(500) {
        let documents: Vec<String> = (from..from + 500)
            .map(|n| {
                let filler = "f".repeat(300);
                format!(
                    "{{_id: {n}, a: {}, tags: [{n}, 'x'], u: 'u{n}', filler: '{filler}'}}",
                    n % 7
                )
            })
            .collect();
        let insert = format!("{{insert: 'c', documents: [{}]}}", documents.join(", "));
        client.ok(&command(&insert));
    }
    assert!(server.stop().success());
}

/// The offsets of the leaves in the tree file, by table.
fn leaves(folder: &Path) -> BTreeMap<u64, Vec<usize>> {
    let file = std::fs::read(folder.join("sheaf/tree")).unwrap();
    let mut leaves: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for at in (8192..file.len()).step_by(4096) {
        let page = &file[at..];
        if page[36..40] == *b"ShPg" && page[4] == 1 {
            let table = u64::from_le_bytes(page[8..16].try_into().unwrap());
            leaves.entry(table).or_default().push(at);
        }
    }
    // The catalog and the directory stay intact here.
    leaves.remove(&0);
    leaves.remove(&u64::MAX);
    leaves
}

fn damage(folder: &Path, offsets: &[usize]) {
    let path = folder.join("sheaf/tree");
    let mut file = std::fs::read(&path).unwrap();
    for at in offsets {
        file[at + 60] ^= 0x20;
    }
    std::fs::write(&path, file).unwrap();
}

fn maintain(folder: &Path, option: &str) -> (Option<i32>, String) {
    let output: Output = server_command(folder, &[option]).output().unwrap();
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), log)
}

#[test]
fn damaged_indexes_are_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let leaves = leaves(folder.path());
    let records = leaves.iter().max_by_key(|(_, offsets)| offsets.len());
    let records = *records.unwrap().0;
    assert!(leaves.len() >= 5, "records and four indexes: {leaves:?}");
    // Every leaf of every index: nothing of the indexes is readable.
    let offsets: Vec<usize> = leaves
        .iter()
        .filter(|(table, _)| **table != records)
        .flat_map(|(_, offsets)| offsets.clone())
        .collect();
    damage(folder.path(), &offsets);

    let (code, log) = maintain(folder.path(), "--verify");
    assert_ne!(code, Some(0));
    assert!(
        log.contains("A data file is damaged") && log.contains("\"offset\""),
        "{log}"
    );
    let (code, log) = maintain(folder.path(), "--repair");
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("\"records\":3000,\"recordsRemoved\":0"),
        "{log}"
    );
    for index in ["\"_id_\"", "\"a\"", "\"tags\"", "\"u\""] {
        assert!(log.contains(index), "{log}");
    }
    assert!(folder.path().join("sheaf.damaged.1/tree").exists());

    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{validate: 'c'}",
                "{valid: true, nrecords: 3000, keysPerIndex: {_id_: 3000, a: 3000, tags: 6000, u: 3000}}",
            ),
            ("{count: 'c', query: {a: 3}, hint: 'a'}", "{n: 429}"),
            (
                "{count: 'c', query: {tags: 'x'}, hint: 'tags'}",
                "{n: 3000}",
            ),
            ("{count: 'c', query: {_id: 2999}}", "{n: 1}"),
            // The index is unique as before, and multikey.
            (
                "{insert: 'c', documents: [{_id: -1, u: 'u17'}]}",
                "{n: 0, writeErrors: [{index: 0, code: 11000, keyPattern: {u: 1}, keyValue: {u: 'u17'}, errmsg: 'E11000 duplicate key error collection: test.c index: u dup key: { u: \"u17\" }'}]}",
            ),
            ("{insert: 'c', documents: [{_id: -2, u: 'new'}]}", "{n: 1}"),
            ("{validate: 'c'}", "{valid: true, nrecords: 3001}"),
        ],
    );
    assert!(server.stop().success());
    let (code, log) = maintain(folder.path(), "--verify");
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn undamaged_documents_and_their_indexes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let leaves = leaves(folder.path());
    let records = leaves.values().max_by_key(|offsets| offsets.len()).unwrap();
    assert!(records.len() > 100, "{}", records.len());
    damage(folder.path(), &[records[20], records[70]]);
    let (code, log) = maintain(folder.path(), "--repair");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("A data file is damaged"), "{log}");
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    let reply = client.ok(&command("{validate: 'c'}"));
    let number = |field: &str| reply.get(field).and_then(|v| v.as_i64_exact()).unwrap();
    assert!(
        reply.get("valid").is_some_and(|v| v.is_truthy()),
        "{reply:?}"
    );
    // Two leaves of about twenty documents each.
    let left = number("nrecords");
    assert!(
        left < DOCUMENTS as i64 && left > DOCUMENTS as i64 - 100,
        "{left}"
    );
    script(
        &mut client,
        &[(
            "{count: 'c', query: {tags: 'x'}, hint: 'tags'}",
            &format!("{{n: {left}}}"),
        )],
    );
}

#[test]
fn undamaged_files_get_their_indexes_rebuilt_too() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let (code, log) = maintain(folder.path(), "--repair");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("The data files are not damaged"), "{log}");
    assert!(
        log.contains("\"records\":3000,\"recordsRemoved\":0"),
        "{log}"
    );
    assert!(!folder.path().join("sheaf.damaged.1").exists());
    let server = Server::start_on(folder.path(), &[]);
    script(
        &mut server.client(),
        &[("{validate: 'c'}", "{valid: true, nrecords: 3000}")],
    );
}

/// Oplog entries have no `_id`: no entry is taken for misplaced.
#[test]
fn the_oplog_keeps_its_entries() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    // A change stream turns the oplog on.
    client.ok(&command(
        "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}",
    ));
    for n in 0..20 {
        client.ok(&command(&format!(
            "{{insert: 'c', documents: [{{_id: {n}}}]}}"
        )));
    }
    let validate = command("{validate: 'oplog.rs', $db: 'local'}");
    let entries = |client: &mut Client| {
        let reply = client.ok(&validate);
        assert!(
            reply.get("valid").is_some_and(|v| v.is_truthy()),
            "{reply:?}"
        );
        reply
            .get("nrecords")
            .and_then(|v| v.as_i64_exact())
            .unwrap()
    };
    let before = entries(&mut client);
    assert!(before >= 20, "{before}");
    drop(client);
    assert!(server.stop().success());
    let (code, log) = maintain(folder.path(), "--repair");
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("Could not rebuild an index"), "{log}");
    let server = Server::start_on(folder.path(), &[]);
    assert_eq!(entries(&mut server.client()), before);
}
