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
                "{ok: 1.0, n: 1, writeConcernError: {code: 91, errmsg: 'x'}, errorLabels: ['RetryableWriteError']}",
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
