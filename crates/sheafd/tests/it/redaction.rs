//! `redactClientLogData`: no value that a client sent reaches the log or `getLog`.

use sheaf_bson::{DocBuf, array, doc};

use super::client::Client;
use super::server::Server;

/// In every value that the client sends.
const PLANTED: &str = "plantedWord";

/// Commands that are logged with their values, also in errors and in the command of a cursor.
fn run_all(client: &mut Client) {
    let word = |n: i32| format!("{PLANTED}{n}");
    let documents: Vec<DocBuf> = (0..5)
        .map(|n| doc! {"_id": word(n).as_str(), "text": PLANTED, "list": array![PLANTED, {"a": PLANTED}]})
        .collect();
    let mut insert = sheaf_bson::DocBuilder::new();
    insert.append("insert", "c");
    insert.append("$db", "test");
    insert.begin_array("documents");
    for document in &documents {
        insert.push(document.as_raw());
    }
    insert.end();
    let insert = insert.finish();
    client.ok(&insert);
    // The duplicate key is in the write error, and in no line.
    client.run(&insert);
    let find = doc! {"find": "c", "filter": {"text": {"$in": [PLANTED]}}, "batchSize": 1, "comment": PLANTED, "$db": "test"};
    let reply = client.ok(&find);
    let cursor = reply
        .get("cursor")
        .and_then(|v| v.as_document())
        .expect("a cursor");
    let id = cursor
        .get("id")
        .and_then(|v| v.as_i64_exact())
        .expect("an id");
    client.ok(&doc! {"getMore": id, "collection": "c", "$db": "test"});
    client.ok(&doc! {"update": "c", "updates": [{"q": {"text": PLANTED}, "u": {"$set": {"b": PLANTED}}}], "$db": "test"});
    client.ok(&doc! {"aggregate": "c", "pipeline": [{"$match": {"text": {"$regex": PLANTED}}}], "cursor": {}, "$db": "test"});
    // The message names the value.
    client.fails(&doc! {"find": "c", "filter": {"a": {"$type": PLANTED}}, "$db": "test"});
    // Longer than a line shows.
    let long = PLANTED.repeat(2000);
    client.ok(&doc! {"find": "c", "filter": {"text": long.as_str()}, "$db": "test"});
}

fn lines_with(lines: &[String], text: &str) -> Vec<String> {
    lines
        .iter()
        .filter(|line| line.contains(text))
        .cloned()
        .collect()
}

fn get_log(client: &mut Client) -> Vec<String> {
    let reply = client.ok(&doc! {"getLog": "global", "$db": "admin"});
    let lines = reply.get("log").and_then(|v| v.as_array()).expect("lines");
    lines
        .iter()
        .filter_map(|line| line.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn no_value_of_a_client_reaches_the_log() {
    let mut server = Server::start_with(&["--redactClientLogData", "--slowms", "-1"]);
    let mut client = server.client();
    run_all(&mut client);
    let recent = get_log(&mut client);
    assert_eq!(lines_with(&recent, PLANTED), [""; 0]);
    // What is no value stays: names of fields, counts, namespaces, codes.
    let find = lines_with(
        &recent,
        "\"command\":{\"find\":\"###\",\"filter\":{\"text\":{\"$in\":[\"###\"]}}",
    );
    assert!(
        find.iter().any(|line| line.contains("\"ns\":\"test.c\"")),
        "{recent:#?}"
    );
    assert!(
        find.iter()
            .any(|line| line.contains("\"planSummary\":\"COLLSCAN\"")),
        "{recent:#?}"
    );
    let more = lines_with(&recent, "\"originatingCommand\":{\"find\":\"###\"");
    assert!(!more.is_empty(), "{recent:#?}");
    let failed = lines_with(&recent, "\"errMsg\":\"###\",\"errName\":\"BadValue\"");
    assert!(!failed.is_empty(), "{recent:#?}");

    // The parameter changes it while the server runs.
    client.ok(&doc! {"setParameter": 1, "redactClientLogData": false, "$db": "admin"});
    client.ok(&doc! {"find": "c", "filter": {"text": "plainWord"}, "$db": "test"});
    assert!(!lines_with(&get_log(&mut client), "plainWord").is_empty());
    client.ok(&doc! {"setParameter": 1, "redactClientLogData": true, "$db": "admin"});
    client.ok(&doc! {"find": "c", "filter": {"text": "hiddenWord"}, "$db": "test"});
    assert_eq!(lines_with(&get_log(&mut client), "hiddenWord"), [""; 0]);

    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(lines_with(&server.log(), PLANTED), [""; 0]);
}

#[test]
fn without_it_the_log_has_values() {
    let server = Server::start_with(&["--slowms", "-1"]);
    let mut client = server.client();
    run_all(&mut client);
    assert!(!lines_with(&get_log(&mut client), PLANTED).is_empty());
}
