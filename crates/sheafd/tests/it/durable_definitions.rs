//! DDL waits for its write concern like writes: no acknowledged change is lost by a kill.
//!
//! ```text
//!   a server that flushes its log rarely ── a command with {j: true} ──> ok ── kill ──> start: it is done
//! ```

use sheaf_bson::{RawDoc, RawValue};

use super::client::Client;
use super::server::Server;
use super::write_commands::command;

/// Half a second between flushes: longer than the time from a reply to the kill.
const RARELY: &[&str] = &["--journalCommitInterval", "500"];

fn listed(client: &mut Client, text: &str, show: impl Fn(RawDoc<'_>) -> String) -> Vec<String> {
    let reply = client.ok(&command(text));
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    let batch = cursor.get("firstBatch").and_then(|v| v.as_array()).unwrap();
    let mut found: Vec<String> = batch
        .iter()
        .map(|item| show(item.as_document().unwrap()))
        .collect();
    found.sort();
    found
}

fn name(item: RawDoc<'_>) -> String {
    item.get("name").and_then(|v| v.as_str()).unwrap().into()
}

fn collections(client: &mut Client) -> Vec<String> {
    let list = "{listCollections: 1, filter: {name: {$not: /^system/}}}";
    listed(client, list, |item| {
        let options = item.get("options").and_then(|v| v.as_document()).unwrap();
        let level = match options.get("validationLevel") {
            Some(RawValue::String(level)) => format!(" {level}"),
            _ => String::new(),
        };
        let capped = options.get("capped").map_or("", |_| " capped");
        format!("{}{capped}{level}", name(item))
    })
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let steps: &[(&str, &[&str])] = &[
        ("{create: 'a'}", &["a"]),
        ("{create: 'v', viewOn: 'a', pipeline: []}", &["a", "v"]),
        (
            "{collMod: 'a', validator: {n: 1}, validationLevel: 'moderate'}",
            &["a moderate", "v"],
        ),
        ("{drop: 'v'}", &["a moderate"]),
        (
            "{renameCollection: 'test.a', to: 'test.b', $db: 'admin'}",
            &["b moderate"],
        ),
        ("{convertToCapped: 'b', size: 4096}", &["b capped moderate"]),
        ("{drop: 'b'}", &[]),
        ("{create: 'c'}", &["c"]),
        ("{dropDatabase: 1}", &[]),
    ];
    for (text, left) in steps {
        let mut server = Server::start_on(folder.path(), RARELY);
        let mut client = server.client();
        let text = text.strip_suffix('}').unwrap();
        let text = format!("{text}, writeConcern: {{w: 1, j: true}}}}");
        client.ok(&command(&text));
        server.kill();
        let server = Server::start_on(folder.path(), RARELY);
        assert_eq!(collections(&mut server.client()), *left, "{text}");
        assert!(server.stop().success());
    }
}

#[test]
fn indexes_that_were_acknowledged_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let steps: &[(&str, &[&str])] = &[
        (
            "{createIndexes: 'a', indexes: [{key: {k: 1}, name: 'k'}], writeConcern: {w: 'majority'}}",
            &["_id_", "k"],
        ),
        (
            "{dropIndexes: 'a', index: 'k', writeConcern: {j: true}}",
            &["_id_"],
        ),
    ];
    for (text, left) in steps {
        let mut server = Server::start_on(folder.path(), RARELY);
        server.client().ok(&command(text));
        server.kill();
        let server = Server::start_on(folder.path(), RARELY);
        let found = listed(&mut server.client(), "{listIndexes: 'a'}", name);
        assert_eq!(found, *left, "{text}");
        assert!(server.stop().success());
    }
}

#[test]
fn search_indexes_that_were_acknowledged_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let field = "{type: 'vector', path: 'v', numDimensions: 2, similarity: 'cosine'}";
    let filter = "{type: 'filter', path: 'k'}";
    let steps = [
        (
            format!(
                "{{createSearchIndexes: 'a', indexes: [{{name: 's', type: 'vectorSearch', \
                 definition: {{fields: [{field}]}}}}]"
            ),
            vec!["s 1"],
        ),
        (
            format!(
                "{{updateSearchIndex: 'a', name: 's', definition: {{fields: [{field}, {filter}]}}"
            ),
            vec!["s 2"],
        ),
        ("{dropSearchIndex: 'a', name: 's'".into(), vec![]),
    ];
    let server = Server::start_on(folder.path(), RARELY);
    server.client().ok(&command("{create: 'a'}"));
    assert!(server.stop().success());
    for (text, left) in &steps {
        let mut server = Server::start_on(folder.path(), RARELY);
        let text = format!("{text}, writeConcern: {{w: 1, j: true}}}}");
        server.client().ok(&command(&text));
        server.kill();
        let server = Server::start_on(folder.path(), RARELY);
        let list = "{aggregate: 'a', pipeline: [{$listSearchIndexes: {}}], cursor: {}}";
        let found = listed(&mut server.client(), list, |item| {
            let latest = item.get("latestDefinition").and_then(|v| v.as_document());
            let fields = latest.unwrap().get("fields").and_then(|v| v.as_array());
            format!("{} {}", name(item), fields.unwrap().iter().count())
        });
        assert_eq!(found, *left, "{text}");
        assert!(server.stop().success());
    }
}
