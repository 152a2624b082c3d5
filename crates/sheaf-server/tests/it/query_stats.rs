//! `$queryStats`: what is counted, for which keys, and how it is shown.

use sheaf_bson::{DocBuf, RawValue, Value};

use super::client::{Client, command, script};
use super::explained::at;
use super::server::Server;

const ALL: [&str; 2] = ["--setParameter", "internalQueryStatsRateLimit=-1"];

fn started() -> (Server, Client) {
    let server = Server::start_with(&ALL);
    let mut client = server.client();
    let docs: Vec<String> = (0..250).map(|n| format!("{{_id: {n}, a: {n}}}")).collect();
    client.ok(&command(&format!(
        "{{insert: 'c', documents: [{}]}}",
        docs.join(", ")
    )));
    (server, client)
}

/// The entries, without that of the stage itself.
fn entries(client: &mut Client, spec: &str) -> Vec<DocBuf> {
    let reply = client.ok(&command(&format!(
        "{{aggregate: 1, pipeline: [{{$queryStats: {spec}}}, {{$match: {{'key.collectionType': {{$ne: 'virtual'}}}}}}], cursor: {{}}, $db: 'admin'}}"
    )));
    let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document());
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch"));
    let Some(RawValue::Array(batch)) = batch else {
        panic!("{reply}")
    };
    let docs = batch.iter().filter_map(|entry| entry.as_document());
    docs.map(|entry| entry.to_buf()).collect()
}

fn shown(entry: &DocBuf, path: &str) -> String {
    at(entry, path).map_or("(absent)".to_owned(), |value| {
        sheaf_bson::json::shell(value.as_raw())
    })
}

fn only(client: &mut Client) -> DocBuf {
    let mut all = entries(client, "{}");
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn queries_of_a_shape_are_counted_together() {
    let (_server, mut client) = started();
    let client = &mut client;
    for value in [5, 7, 300] {
        client.ok(&command(&format!(
            "{{find: 'c', filter: {{a: {value}}}, hint: {{$natural: 1}}, comment: 'x'}}"
        )));
    }
    let entry = only(client);
    for (path, expected) in [
        (
            "key.queryShape",
            "{ cmdNs: { db: \"test\", coll: \"c\" }, command: \"find\", filter: { a: { $eq: \"?number\" } } }",
        ),
        ("key.collectionType", "\"collection\""),
        ("key.hint", "{ $natural: 1 }"),
        ("key.comment", "\"?string\""),
        ("key.batchSize", "(absent)"),
        ("metrics.execCount", "3"),
        ("metrics.docsReturned.sum", "2"),
        ("metrics.docsReturned.max", "1"),
        ("metrics.docsReturned.min", "0"),
        ("metrics.docsExamined.sum", "750"),
        ("metrics.keysExamined.sum", "0"),
        ("metrics.hasSortStage", "{ true: 0, false: 3 }"),
        ("metrics.usedDisk", "{ true: 0, false: 3 }"),
    ] {
        assert_eq!(shown(&entry, path), expected, "{path} of {entry}");
    }
    let squares = at(&entry, "metrics.docsExamined.sumOfSquares");
    assert_eq!(squares, Some(Value::Decimal128("187500".parse().unwrap())));
    // Other keys: a batch size, a sort, another command, a failing one.
    script(
        client,
        &[
            ("{find: 'c', filter: {a: 5}, batchSize: 3}", "{ok: 1.0}"),
            ("{find: 'c', filter: {a: 5}, sort: {b: 1}}", "{ok: 1.0}"),
            ("{distinct: 'none', key: 'a'}", "{ok: 1.0}"),
            (
                "{aggregate: 'c', pipeline: [{$match: {a: 1}}], cursor: {batchSize: 10}}",
                "{ok: 1.0}",
            ),
            (
                "{find: 'c', filter: {$expr: {$divide: [1, 0]}}}",
                "{ok: 0.0}",
            ),
        ],
    );
    let all = entries(client, "{}");
    assert_eq!(all.len(), 5, "{all:?}");
    // The most recently used first.
    assert_eq!(shown(&all[0], "key.cursor"), "{ batchSize: \"?number\" }");
    assert_eq!(shown(&all[1], "key.collectionType"), "\"nonExistent\"");
    assert_eq!(shown(&all[1], "key.queryShape.key"), "\"a\"");
    assert_eq!(
        shown(&all[2], "metrics.hasSortStage"),
        "{ true: 1, false: 0 }"
    );
    assert_eq!(shown(&all[3], "key.batchSize"), "\"?number\"");
}

#[test]
fn a_query_is_counted_when_its_cursor_is_closed() {
    let (_server, mut client) = started();
    let client = &mut client;
    let open = |client: &mut Client| {
        let reply = client.ok(&command("{find: 'c', batchSize: 100}"));
        at(&reply, "cursor.id").and_then(|id| id.as_raw().as_i64_exact())
    };
    let id = open(client).unwrap();
    assert!(entries(client, "{}").is_empty());
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
    client.ok(&command(&more));
    let entry = only(client);
    assert_eq!(shown(&entry, "metrics.execCount"), "1");
    assert_eq!(shown(&entry, "metrics.docsReturned.sum"), "250");
    assert_eq!(shown(&entry, "metrics.docsExamined.sum"), "250");
    let micros = |entry: &DocBuf, name: &str| {
        let path = format!("metrics.{name}.sum");
        at(entry, &path).unwrap().as_raw().as_i64_exact()
    };
    assert!(micros(&entry, "firstResponseExecMicros") < micros(&entry, "totalExecMicros"));
    let id = open(client).unwrap();
    client.ok(&command(&format!(
        "{{killCursors: 'c', cursors: [NumberLong('{id}')]}}"
    )));
    assert_eq!(shown(&only(client), "metrics.execCount"), "2");
}

#[test]
fn identifiers_are_hashed_with_the_given_key() {
    let (_server, mut client) = started();
    let client = &mut client;
    client.ok(&command("{find: 'c', filter: {'a.b': 1}, hint: {_id: 1}}"));
    let spec = "{transformIdentifiers: {algorithm: 'hmac-sha-256', hmacKey: BinData(8, 'a2V5')}}";
    let entry = entries(client, spec).remove(0);
    // HMAC-SHA-256 with the key "key", by another program.
    for (path, hashed) in [
        ("db", "Aq+1YwSQLGVvy3N83QPeYgW7bUAdooEu/ZstNqCK8Vk="),
        ("coll", "POQKDtwgg3mZHQdnTfA+oAh1yzgQM2vFUKfzd0FZHQo="),
    ] {
        let path = format!("key.queryShape.cmdNs.{path}");
        assert_eq!(shown(&entry, &path), format!("\"{hashed}\""));
    }
    assert_eq!(shown(&entry, "key.queryShape.command"), "\"find\"");
    assert_eq!(shown(&entry, "key.collectionType"), "\"collection\"");
    let text = entry.to_string();
    assert!(!text.contains("a.b") && !text.contains("_id"), "{text}");
    let plain = only(client);
    assert_ne!(shown(&plain, "keyHash"), shown(&entry, "keyHash"));
    assert_eq!(
        shown(&plain, "queryShapeHash"),
        shown(&entry, "queryShapeHash")
    );
}

#[test]
fn nothing_is_counted_by_default() {
    let server = Server::start();
    let mut client = server.client();
    let client = &mut client;
    client.ok(&command("{find: 'c'}"));
    assert!(entries(client, "{}").is_empty());
    let limit =
        |n: i32| format!("{{setParameter: 1, internalQueryStatsRateLimit: {n}, $db: 'admin'}}");
    client.ok(&command(&limit(-1)));
    client.ok(&command("{find: 'c'}"));
    assert_eq!(shown(&only(client), "metrics.execCount"), "1");
    client.ok(&command(
        "{setParameter: 1, internalQueryStatsCacheSize: '0MB', $db: 'admin'}",
    ));
    client.ok(&command("{find: 'd'}"));
    client.ok(&command(&limit(0)));
    assert!(entries(client, "{}").is_empty());
}

#[test]
fn operands_and_places() {
    let server = Server::start();
    let stage = |stage: &str, db: &str| {
        format!("{{aggregate: 1, pipeline: [{stage}], cursor: {{}}, $db: '{db}'}}")
    };
    let transform = |spec: &str| {
        stage(
            &format!("{{$queryStats: {{transformIdentifiers: {spec}}}}}"),
            "admin",
        )
    };
    let list = |spec: &str| stage(&format!("{{$listMqlEntities: {spec}}}"), "admin");
    let mut client = server.client();
    script(
        &mut client,
        &[
            (&stage("{$queryStats: {}}", "test"), "{code: 73}"),
            (
                "{aggregate: 'c', pipeline: [{$queryStats: {}}], cursor: {}, $db: 'admin'}",
                "{code: 73}",
            ),
            (
                &stage("{$queryStats: {}}, {$queryStats: {}}", "admin"),
                "{code: 40602}",
            ),
            (&stage("{$queryStats: 1}", "admin"), "{code: 9}"),
            (&stage("{$queryStats: {x: 1}}", "admin"), "{code: 40415}"),
            (&transform("1"), "{code: 14}"),
            (&transform("{algorithm: 'hmac-sha-256'}"), "{code: 40414}"),
            (&transform("{hmacKey: BinData(8, 'a2V5')}"), "{code: 40414}"),
            (
                &transform("{algorithm: 'md5', hmacKey: BinData(8, 'a2V5')}"),
                "{code: 2}",
            ),
            (
                &transform("{algorithm: 'hmac-sha-256', hmacKey: BinData(0, 'a2V5')}"),
                "{code: 14}",
            ),
            (
                &transform("{algorithm: 'hmac-sha-256', hmacKey: 'key'}"),
                "{code: 14}",
            ),
            (&list("{}"), "{code: 40414}"),
            (&list("1"), "{code: 14}"),
            (&list("{entityType: 'x'}"), "{code: 2}"),
            (
                &list("{entityType: 'aggregationStages', x: 1}"),
                "{code: 40415}",
            ),
            (
                &stage(
                    "{$listMqlEntities: {entityType: 'aggregationStages'}}",
                    "test",
                ),
                "{code: 73}",
            ),
        ],
    );
    let reply = client.ok(&command(&stage(
        "{$listMqlEntities: {entityType: 'aggregationStages'}}, {$match: {name: {$in: ['$match', '$changeStream', '$queryStats']}}}",
        "admin",
    )));
    let names: Vec<String> = (0..3)
        .map(|n| shown(&reply, &format!("cursor.firstBatch.{n}.name")))
        .collect();
    assert_eq!(
        names,
        ["\"$changeStream\"", "\"$match\"", "\"$queryStats\""]
    );
}
