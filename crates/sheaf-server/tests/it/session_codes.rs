//! What sessions, transactions and retryable writes refuse: codes and labels of the manual and the
//! drivers' specifications.

use super::client::{Client, command, script};
use super::server::Server;

fn lsid(s: u8) -> String {
    let two = format!("{s:02x}");
    let part = |bytes: usize| two.repeat(bytes);
    format!(
        "lsid: {{id: UUID('{}-{}-{}-{}-{}')}}",
        part(4),
        part(2),
        part(2),
        part(2),
        part(6)
    )
}

/// A statement of transaction `n` of session `s`; `text` without its last brace.
fn within(text: &str, s: u8, n: i64) -> String {
    let session = lsid(s);
    format!("{text}, {session}, txnNumber: NumberLong('{n}'), autocommit: false}}")
}

fn starts(text: &str, s: u8, n: i64) -> String {
    within(&format!("{text}, startTransaction: true"), s, n)
}

fn commit(s: u8, n: i64) -> String {
    within("{commitTransaction: 1, $db: 'admin'", s, n)
}

fn abort(s: u8, n: i64) -> String {
    within("{abortTransaction: 1, $db: 'admin'", s, n)
}

fn run(client: &mut Client, rows: &[(String, &str)]) {
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(client, &rows);
}

const OK: &str = "{ok: 1.0}";
const TRANSIENT: &str = "{ok: 0.0, code: 251, errorLabels: ['TransientTransactionError']}";
const NOT_INSIDE: &str =
    "{ok: 0.0, code: 263, codeName: 'OperationNotSupportedInTransaction', errorLabels: '(absent)'}";

#[test]
fn statements_allowed_in_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    run(
        &mut client,
        &[("{insert: 'c', documents: [{_id: 1}]}".into(), OK)],
    );
    // A first statement that is refused starts no transaction.
    for text in [
        "{count: 'c'",
        "{drop: 'c'",
        "{dropDatabase: 1",
        "{dropIndexes: 'c', index: '*'",
        "{collMod: 'c'",
        "{listCollections: 1",
        "{listIndexes: 'c'",
        "{renameCollection: 'test.c', to: 'test.d', $db: 'admin'",
        "{explain: {find: 'c'}",
        "{ping: 1",
        "{hello: 1",
        "{serverStatus: 1, $db: 'admin'",
        "{endSessions: [], $db: 'admin'",
        "{getMore: NumberLong('5'), collection: 'c'",
        "{killCursors: 'c', cursors: []",
        "{aggregate: 'c', pipeline: [{$out: 'd'}], cursor: {}",
        "{aggregate: 'c', pipeline: [{$merge: 'd'}], cursor: {}",
        "{aggregate: 'c', pipeline: [{$collStats: {count: {}}}], cursor: {}",
        "{aggregate: 'c', pipeline: [{$indexStats: {}}], cursor: {}",
        "{aggregate: 'c', pipeline: [{$planCacheStats: {}}], cursor: {}",
        "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}",
        "{find: 'c', $db: 'config'",
        "{find: 'c', $db: 'local'",
        "{insert: 'c', documents: [{}], $db: 'admin'",
    ] {
        run(&mut client, &[(starts(text, 1, 1), NOT_INSIDE)]);
    }
    run(
        &mut client,
        &[
            (within("{find: 'c'", 1, 1), TRANSIENT),
            (starts("{find: 'c'", 1, 2), OK),
            // A refused statement leaves the transaction open only if it does not belong to it.
            (
                within("{find: 'c', readConcern: {level: 'local'}", 1, 2),
                "{code: 72}",
            ),
            (
                within("{find: 'c', writeConcern: {w: 1}", 1, 2),
                "{code: 72}",
            ),
            (within("{find: 'c'", 1, 2), OK),
            (commit(1, 2), OK),
        ],
    );
}

#[test]
fn transaction_numbers_increase() {
    let server = Server::start();
    let mut client = server.client();
    let write = |n: i64| {
        format!(
            "{{insert: 'c', documents: [{{_id: {n}}}], {}, txnNumber: NumberLong('{n}')}}",
            lsid(1)
        )
    };
    run(
        &mut client,
        &[
            (write(5), "{n: 1, ok: 1.0}"),
            // An older number is always refused.
            (write(4), "{code: 225, codeName: 'TransactionTooOld'}"),
            (starts("{find: 'c'", 1, 4), "{code: 225}"),
            (commit(1, 4), "{code: 225}"),
            (abort(1, 4), "{code: 225}"),
            // The number of a retryable write cannot start a transaction.
            (
                starts("{find: 'c'", 1, 5),
                "{code: 117, codeName: 'ConflictingOperationInProgress'}",
            ),
            (commit(1, 5), "{code: 251}"),
            // A later number that was never started.
            (within("{find: 'c'", 1, 9), TRANSIENT),
            (commit(1, 9), TRANSIENT),
            (abort(1, 9), "{code: 251}"),
            // The number of a transaction cannot be a retryable write's.
            (starts("{find: 'c'", 1, 10), OK),
            (
                write(10),
                "{code: 217, codeName: 'IncompleteTransactionHistory'}",
            ),
            (starts("{find: 'c'", 1, 10), "{code: 117}"),
            // A write with a later number ends it.
            (write(11), "{n: 1, ok: 1.0}"),
            (commit(1, 10), "{code: 225}"),
            // A commit can be repeated; an abort is final.
            (starts("{insert: 'c', documents: [{_id: 100}]", 1, 12), OK),
            (commit(1, 12), OK),
            (commit(1, 12), OK),
            (
                abort(1, 12),
                "{code: 256, codeName: 'TransactionCommitted'}",
            ),
            (within("{find: 'c'", 1, 12), "{code: 256}"),
            (starts("{insert: 'c', documents: [{_id: 101}]", 1, 13), OK),
            (abort(1, 13), OK),
            (abort(1, 13), "{code: 251}"),
            (commit(1, 13), TRANSIENT),
            (within("{find: 'c'", 1, 13), TRANSIENT),
            // A failed statement ends the transaction.
            (
                starts("{insert: 'c', documents: [{_id: 100}]", 1, 14),
                "{ok: 1.0, n: 0}",
            ),
            (within("{find: 'c'", 1, 14), TRANSIENT),
            (commit(1, 14), TRANSIENT),
            (
                starts("{find: 'c', filter: {$nothing: 1}", 1, 15),
                "{code: 2}",
            ),
            (commit(1, 15), TRANSIENT),
            // Another session does not have the transaction, whatever the number.
            (starts("{insert: 'c', documents: [{_id: 102}]", 1, 16), OK),
            (within("{find: 'c'", 2, 16), TRANSIENT),
            (commit(2, 16), TRANSIENT),
            (commit(1, 16), OK),
        ],
    );
}

#[test]
fn invalid_transaction_arguments() {
    let server = Server::start();
    let mut client = server.client();
    let session = lsid(1);
    let rows = [
        // Only these commands are retryable writes.
        (
            format!("{{find: 'c', {session}, txnNumber: NumberLong('1')}}"),
            "{code: 50768}",
        ),
        (
            format!("{{ping: 1, {session}, txnNumber: NumberLong('1')}}"),
            "{code: 50768}",
        ),
        (
            format!(
                "{{commitTransaction: 1, {session}, txnNumber: NumberLong('1'), $db: 'admin'}}"
            ),
            "{code: 50768}",
        ),
        (
            "{insert: 'c', documents: [{}], txnNumber: NumberLong('1')}".into(),
            "{code: 72}",
        ),
        (
            format!("{{insert: 'c', documents: [{{}}], {session}, txnNumber: 1}}"),
            "{code: 14}",
        ),
        (
            format!("{{insert: 'c', documents: [{{}}], {session}, txnNumber: NumberLong('-1')}}"),
            "{code: 72}",
        ),
        // Statements that change many documents are not retryable.
        (
            format!(
                "{{update: 'c', updates: [{{q: {{}}, u: {{$set: {{a: 1}}}}, multi: true}}], {session}, txnNumber: NumberLong('1')}}"
            ),
            "{code: 72}",
        ),
        (
            format!(
                "{{delete: 'c', deletes: [{{q: {{}}, limit: 0}}], {session}, txnNumber: NumberLong('2')}}"
            ),
            "{code: 72}",
        ),
        // Invalid session ids.
        ("{ping: 1, lsid: 5}".into(), "{code: 14}"),
        ("{ping: 1, lsid: {}}".into(), "{code: 40414}"),
        ("{ping: 1, lsid: {id: 5}}".into(), "{code: 14}"),
        (
            "{ping: 1, lsid: {id: BinData(4, 'AAAA')}}".into(),
            "{code: 14}",
        ),
        (
            "{ping: 1, lsid: {id: UUID('01010101-0101-0101-0101-010101010101'), other: 1}}".into(),
            "{code: 40415}",
        ),
        ("{startSession: 1, other: 1}".into(), "{ok: 1.0}"),
        ("{endSessions: 5, $db: 'admin'}".into(), "{code: 14}"),
        ("{killSessions: [5], $db: 'admin'}".into(), "{code: 14}"),
        (
            "{refreshSessions: [{}], $db: 'admin'}".into(),
            "{code: 40414}",
        ),
        ("{killAllSessions: [5], $db: 'admin'}".into(), "{code: 14}"),
    ];
    run(&mut client, &rows);
}

#[test]
fn cursors_belong_to_sessions_and_transactions() {
    let server = Server::start();
    let mut client = server.client();
    let docs: Vec<String> = (0..9).map(|n| format!("{{_id: {n}}}")).collect();
    run(
        &mut client,
        &[(
            format!("{{insert: 'c', documents: [{}]}}", docs.join(", ")),
            OK,
        )],
    );
    let mut open = |text: String| {
        let reply = client.run(&command(&text));
        let cursor = reply.body.get("cursor").and_then(|c| c.as_document());
        let id = cursor.and_then(|cursor| cursor.get("id")?.as_i64_exact());
        format!(
            "{{getMore: NumberLong('{}'), collection: 'c', batchSize: 1",
            id.unwrap()
        )
    };
    let find = "{find: 'c', batchSize: 1";
    let alone = open(format!("{find}}}"));
    let session = open(format!("{find}, {}}}", lsid(1)));
    let inside = open(starts(find, 2, 1));
    let of = |cursor: &str, more: String| format!("{cursor}, {more}}}");
    let rows = [
        (format!("{alone}}}"), OK),
        (of(&alone, lsid(1)), "{code: 50736}"),
        (of(&session, lsid(1)), OK),
        (format!("{session}}}"), "{code: 50737}"),
        (of(&session, lsid(2)), "{code: 50738}"),
        (within(&inside, 2, 1), OK),
        (of(&inside, lsid(2)), "{code: 50740}"),
        (format!("{inside}}}"), "{code: 50737}"),
        // None of these errors has closed the cursors.
        (format!("{alone}}}"), OK),
        (of(&session, lsid(1)), OK),
        (within(&inside, 2, 1), OK),
        // Reading an outside cursor fails the transaction and closes its cursors.
        (within(&session, 2, 1), "{code: 50738}"),
        (within(&inside, 2, 1), TRANSIENT),
        (starts("{find: 'c'", 1, 1), OK),
        (within(&session, 1, 1), "{code: 50739}"),
        (starts("{find: 'c'", 2, 2), OK),
        (within(&inside, 2, 2), "{code: 50741}"),
    ];
    run(&mut client, &rows);
}

/// The outcomes of a retryable write hold the ids that it upserted: together they may be larger
/// than a document.
#[test]
fn outcomes_larger_than_a_document() {
    let server = Server::start();
    let mut client = server.client();
    let upserts = ["a", "b"].map(|letter| {
        let id = letter.repeat(8 << 20);
        format!("{{q: {{_id: '{id}'}}, u: {{$set: {{x: 1}}}}, upsert: true}}")
    });
    for update in &upserts {
        let number = "txnNumber: NumberLong('1')";
        let at = upserts.iter().position(|one| one == update).unwrap();
        let text = format!(
            "{{update: 'c', updates: [{update}], {}, {number}, stmtIds: [{at}]}}",
            lsid(1)
        );
        run(
            &mut client,
            &[
                (
                    text.clone(),
                    "{ok: 1.0, n: 1, nModified: 0, writeErrors: '(absent)'}",
                ),
                // The retry returns the same and writes nothing.
                (
                    text,
                    "{ok: 1.0, n: 1, nModified: 0, writeErrors: '(absent)'}",
                ),
            ],
        );
    }
    run(&mut client, &[("{count: 'c'}".into(), "{n: 2}")]);
}
