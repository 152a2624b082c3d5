//! Fail points, as tests of drivers use them.

use std::time::{Duration, Instant};

use sheaf_bson::json::parse_doc;

use super::client::{Client, command, script};
use super::server::Server;

const TESTS: [&str; 2] = ["--setParameter", "enableTestCommands=1"];

fn configure(client: &mut Client, mode: &str, data: &str) {
    let text =
        format!("{{configureFailPoint: 'failCommand', mode: {mode}, data: {data}, $db: 'admin'}}");
    client.ok(&command(&text));
}

#[test]
fn only_a_server_for_tests_has_them() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[(
            "{configureFailPoint: 'failCommand', mode: 'alwaysOn', data: {failCommands: ['ping'], errorCode: 2}, $db: 'admin'}",
            "{ok: 0.0, code: 59, codeName: 'CommandNotFound'}",
        )],
    );
}

#[test]
fn commands_fail_as_configured() {
    let server = Server::start_with(&TESTS);
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{configureFailPoint: 'x', mode: 'off', $db: 'admin'}",
                "{code: 288}",
            ),
            (
                "{configureFailPoint: 'failCommand', mode: 'sometimes', $db: 'admin'}",
                "{code: 2}",
            ),
            (
                "{configureFailPoint: 'failCommand', $db: 'admin'}",
                "{code: 40414}",
            ),
        ],
    );
    configure(
        &mut client,
        "{times: 2}",
        "{failCommands: ['find', 'insert'], errorCode: 10107, errorLabels: ['X']}",
    );
    script(
        &mut client,
        &[
            ("{count: 'c'}", "{ok: 1.0}"),
            (
                "{find: 'c'}",
                "{ok: 0.0, code: 10107, codeName: 'NotWritablePrimary', errorLabels: ['X']}",
            ),
            (
                "{insert: 'c', documents: [{_id: 1}]}",
                "{ok: 0.0, code: 10107}",
            ),
            ("{insert: 'c', documents: [{_id: 1}]}", "{ok: 1.0, n: 1}"),
        ],
    );
    configure(
        &mut client,
        "{skip: 1}",
        "{failCommands: ['insert'], writeConcernError: {code: 91, errmsg: 'x'}}",
    );
    script(
        &mut client,
        &[
            (
                "{insert: 'c', documents: [{_id: 2}]}",
                "{ok: 1.0, writeConcernError: '(absent)'}",
            ),
            // The write is done.
            (
                "{insert: 'c', documents: [{_id: 3}]}",
                "{ok: 1.0, n: 1, writeConcernError: {code: 91, errmsg: 'x'}, errorLabels: '(absent)'}",
            ),
            ("{count: 'c'}", "{n: 3}"),
            (
                "{configureFailPoint: 'failCommand', mode: 'off', $db: 'admin'}",
                "{count: 3, ok: 1.0}",
            ),
            (
                "{insert: 'c', documents: [{_id: 4}]}",
                "{writeConcernError: '(absent)'}",
            ),
        ],
    );
    configure(
        &mut client,
        "'alwaysOn'",
        "{failCommands: ['ping'], blockConnection: true, blockTimeMS: 60}",
    );
    let since = Instant::now();
    client.ok(&command("{ping: 1}"));
    assert!(since.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_connection_is_cut_off() {
    let server = Server::start_with(&TESTS);
    let mut client = server.client();
    configure(
        &mut client,
        "{times: 1}",
        "{failCommands: ['find'], closeConnection: true}",
    );
    // In process there is no connection to close: the reply is empty.
    let reply = client.run(&command("{find: 'c'}"));
    assert_eq!(reply.body, parse_doc("{}").unwrap());
    client.ok(&command("{find: 'c'}"));
    script(
        &mut client,
        &[
            (
                "{configureFailPoint: 'maxTimeAlwaysTimeOut', mode: 'alwaysOn', $db: 'admin'}",
                "{ok: 1.0}",
            ),
            ("{find: 'c', maxTimeMS: 10000}", "{code: 50}"),
            ("{find: 'c'}", "{ok: 1.0}"),
        ],
    );
}

/// A session's id and its next number, as drivers send them.
const SESSION: &str = "lsid: {id: {$uuid: '00000000-0000-4000-8000-0000000000aa'}}";

fn configure_point(client: &mut Client, point: &str, rest: &str) {
    client.ok(&command(&format!(
        "{{configureFailPoint: '{point}', {rest}, $db: 'admin'}}"
    )));
}

#[test]
fn labels_follow_the_session() {
    let server = Server::start_with(&TESTS);
    let mut client = server.client();
    let fail = |client: &mut Client, data: &str| configure(client, "{times: 1}", data);
    let run = |client: &mut Client, text: String, expected: &str| {
        script(client, &[(text.as_str(), expected)]);
    };
    // A write that may be sent again: its write concern error has the label.
    fail(
        &mut client,
        "{failCommands: ['insert'], writeConcernError: {code: 91, errmsg: 'x'}}",
    );
    run(
        &mut client,
        format!(
            "{{insert: 'c', documents: [{{_id: 1}}], {SESSION}, txnNumber: {{$numberLong: '1'}}}}"
        ),
        "{ok: 1.0, n: 1, errorLabels: ['RetryableWriteError']}",
    );
    // Not within a transaction.
    fail(
        &mut client,
        "{failCommands: ['insert'], writeConcernError: {code: 91, errmsg: 'x'}}",
    );
    let numbers = "txnNumber: {$numberLong: '2'}, autocommit: false";
    run(
        &mut client,
        format!(
            "{{insert: 'c', documents: [{{_id: 2}}], {SESSION}, {numbers}, startTransaction: true}}"
        ),
        "{ok: 1.0, n: 1, errorLabels: '(absent)'}",
    );
    for code in [24, 112, 246, 251, 267] {
        fail(
            &mut client,
            &format!("{{failCommands: ['commitTransaction'], errorCode: {code}}}"),
        );
        run(
            &mut client,
            format!("{{commitTransaction: 1, {SESSION}, {numbers}, $db: 'admin'}}"),
            "{ok: 0.0, errorLabels: ['TransientTransactionError']}",
        );
    }
    fail(
        &mut client,
        "{failCommands: ['commitTransaction'], errorCode: 91}",
    );
    run(
        &mut client,
        format!("{{commitTransaction: 1, {SESSION}, {numbers}, $db: 'admin'}}"),
        "{ok: 0.0, errorLabels: ['RetryableWriteError']}",
    );
}

#[test]
fn a_handshake_is_matched_by_the_name_it_introduces() {
    let server = Server::start_with(&TESTS);
    let mut client = server.client();
    configure(
        &mut client,
        "'alwaysOn'",
        "{failCommands: ['hello', 'isMaster'], errorCode: 91, appName: 'a'}",
    );
    script(
        &mut client,
        &[
            (
                "{isMaster: 1, client: {application: {name: 'a'}}}",
                "{code: 91}",
            ),
            (
                "{hello: 1, client: {application: {name: 'b'}}}",
                "{ok: 1.0}",
            ),
            ("{hello: 1}", "{ok: 1.0}"),
        ],
    );
}

#[test]
fn retryable_writes_fail_statement_by_statement() {
    let server = Server::start_with(&TESTS);
    let mut client = server.client();
    let point = "onPrimaryTransactionalWrite";
    let write = |number: u32, documents: &str| {
        let text = format!(
            "{{insert: 'c', documents: [{documents}], {SESSION}, txnNumber: {{$numberLong: '{number}'}}}}"
        );
        command(&text)
    };
    let none = parse_doc("{}").unwrap();
    // Two documents pass, the third fails before it is written and the connection is closed.
    configure_point(
        &mut client,
        point,
        "mode: {skip: 2}, data: {failBeforeCommitExceptionCode: 1}",
    );
    client.ok(&write(1, "{_id: 1}, {_id: 2}"));
    assert_eq!(client.run(&write(2, "{_id: 3}")).body, none);
    configure_point(&mut client, point, "mode: 'off'");
    script(&mut client, &[("{count: 'c'}", "{n: 2}")]);
    // One that is written but whose reply is lost: the retry finds it and is not counted.
    configure_point(&mut client, point, "mode: {times: 2}");
    assert_eq!(client.run(&write(3, "{_id: 3}")).body, none);
    client.ok(&write(3, "{_id: 3}"));
    assert_eq!(client.run(&write(4, "{_id: 4}")).body, none);
    client.ok(&write(4, "{_id: 4}"));
    client.ok(&write(5, "{_id: 5}"));
    script(&mut client, &[("{count: 'c'}", "{n: 5}")]);
}

#[test]
fn a_get_more_fails_with_its_cursor() {
    let server = Server::start_with(&["--replSet", "rs", TESTS[0], TESTS[1]]);
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{replSetInitiate: {}, $db: 'admin'}", "{ok: 1.0}"),
            ("{insert: 'c', documents: [{_id: 1}, {_id: 2}]}", "{n: 2}"),
        ],
    );
    let open = |client: &mut Client, text: &str| {
        let reply = client.ok(&command(text));
        let cursor = reply.get("cursor").unwrap().as_document().unwrap();
        let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
        format!("{{getMore: {{$numberLong: '{id}'}}, collection: 'c'}}")
    };
    let fail = "mode: {times: 1}, data: {errorCode: 262}";
    // Only the error of a change stream is marked: another cursor can continue it.
    let stream = "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}";
    for (opening, labels) in [
        (stream, "['ResumableChangeStreamError']"),
        ("{find: 'c', batchSize: 1}", "'(absent)'"),
    ] {
        let more = open(&mut client, opening);
        configure_point(&mut client, "failGetMoreAfterCursorCheckout", fail);
        let expected = format!("{{ok: 0.0, code: 262, errorLabels: {labels}}}");
        script(&mut client, &[(&more, &expected), (&more, "{code: 43}")]);
    }
    // The limit of the command that opened the cursor is that of its getMores.
    configure_point(&mut client, "maxTimeAlwaysTimeOut", "mode: 'off'");
    let limited = open(&mut client, "{find: 'c', batchSize: 1, maxTimeMS: 100000}");
    let free = open(&mut client, "{find: 'c', batchSize: 1}");
    configure_point(&mut client, "maxTimeAlwaysTimeOut", "mode: 'alwaysOn'");
    script(
        &mut client,
        &[(&free, "{ok: 1.0}"), (&limited, "{code: 50}")],
    );
}
