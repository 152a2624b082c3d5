//! Commands of sessions and transactions: numbers, ends, refusals.

use super::client::{command, script};
use super::server::Server;

/// The arguments that make a command a statement of transaction `n` of the session `s`.
fn within(s: u8, n: i64) -> String {
    let session = format!("{s:02x}").repeat(16);
    format!(
        "lsid: {{id: UUID('{}-{}-{}-{}-{}')}}, txnNumber: NumberLong('{n}'), autocommit: false",
        &session[..8],
        &session[8..12],
        &session[12..16],
        &session[16..20],
        &session[20..]
    )
}

#[test]
fn transaction_numbers() {
    let server = Server::start();
    let mut client = server.client();
    let find = |n, more: &str| format!("{{find: 'c', {}{more}}}", within(1, n));
    let end = |name: &str, n| format!("{{{name}: 1, {}, $db: 'admin'}}", within(1, n));
    let start = ", startTransaction: true";
    let rows = [
        (
            "{insert: 'c', documents: [{_id: 1}]}".to_owned(),
            "{ok: 1.0}",
        ),
        (
            find(4, ""),
            "{ok: 0.0, code: 251, errorLabels: ['TransientTransactionError']}",
        ),
        (find(5, start), "{ok: 1.0}"),
        (
            find(5, ", readConcern: {level: 'majority'}"),
            "{ok: 0.0, code: 72}",
        ),
        (find(5, ", writeConcern: {w: 1}"), "{ok: 0.0, code: 72}"),
        // A newer transaction aborts the previous one.
        (find(6, start), "{ok: 1.0}"),
        (
            find(5, ""),
            "{ok: 0.0, code: 225, codeName: 'TransactionTooOld'}",
        ),
        (find(6, start), "{ok: 0.0, code: 117}"),
        (end("commitTransaction", 5), "{ok: 0.0, code: 225}"),
        // A commit may be repeated.
        (end("commitTransaction", 6), "{ok: 1.0}"),
        (end("commitTransaction", 6), "{ok: 1.0}"),
        (
            end("abortTransaction", 6),
            "{ok: 0.0, code: 256, codeName: 'TransactionCommitted'}",
        ),
        (find(6, ""), "{ok: 0.0, code: 256}"),
        (find(7, start), "{ok: 1.0}"),
        (end("abortTransaction", 7), "{ok: 1.0}"),
        (end("abortTransaction", 7), "{ok: 0.0, code: 251}"),
        (
            end("commitTransaction", 7),
            "{ok: 0.0, code: 251, codeName: 'NoSuchTransaction'}",
        ),
        // Contradicting arguments.
        (
            find(8, start).replace("autocommit: false", "autocommit: true"),
            "{ok: 0.0, code: 72}",
        ),
        (
            find(8, start).replace(", autocommit: false", ""),
            "{ok: 0.0, code: 72}",
        ),
        (find(8, ", startTransaction: false"), "{ok: 0.0, code: 72}"),
        (find(-1, start), "{ok: 0.0, code: 72}"),
        (
            find(8, start).replace("NumberLong('8')", "8"),
            "{ok: 0.0, code: 14}",
        ),
        (
            "{find: 'c', txnNumber: NumberLong('8'), autocommit: false}".into(),
            "{ok: 0.0, code: 72}",
        ),
        (
            "{find: 'c', autocommit: false}".into(),
            "{ok: 0.0, code: 72}",
        ),
        (
            "{commitTransaction: 1, $db: 'admin'}".into(),
            "{ok: 0.0, code: 125}",
        ),
        (
            find(
                8,
                &format!("{start}, readConcern: {{level: 'linearizable'}}"),
            ),
            "{ok: 0.0, code: 72}",
        ),
        (
            find(8, &format!("{start}, readConcern: {{level: 'available'}}")),
            "{ok: 0.0, code: 72}",
        ),
    ];
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(&mut client, &rows);
}

#[test]
fn a_session_that_ends_releases_its_locks() {
    let lsid = "{id: UUID('02020202-0202-0202-0202-020202020202')}";
    ended_by(&format!("{{endSessions: [{lsid}]}}"));
    ended_by(&format!("{{killSessions: [{lsid}]}}"));
    ended_by("{killAllSessions: []}");
    ended_by(&format!("{{killAllSessionsByPattern: [{{lsid: {lsid}}}]}}"));
}

/// Ends the session with this command while its transaction holds a document.
fn ended_by(command: &str) {
    let server = Server::start();
    let mut client = server.client();
    let change = |n: i32, more: &str| {
        format!("{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{$set: {{n: {n}}}}}}}]{more}}}")
    };
    let rows = [
        (
            "{insert: 'c', documents: [{_id: 1, n: 0}]}".to_owned(),
            "{ok: 1.0}",
        ),
        (
            change(1, &format!(", {}, startTransaction: true", within(2, 1))),
            "{ok: 1.0, nModified: 1}",
        ),
        // A write outside of the transaction waits until the transaction ends.
        (change(2, ", maxTimeMS: 50"), "{ok: 0.0, code: 50}"),
        (command.to_owned(), "{ok: 1.0}"),
        (change(2, ""), "{ok: 1.0, nModified: 1}"),
        (
            format!("{{commitTransaction: 1, {}, $db: 'admin'}}", within(2, 1)),
            "{ok: 0.0, code: 251}",
        ),
        (
            "{find: 'c'}".into(),
            "{cursor: {firstBatch: [{_id: 1, n: 2}], id: NumberLong('0'), ns: 'test.c'}}",
        ),
    ];
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(&mut client, &rows);
}

#[test]
fn a_disconnected_clients_transaction_ends_at_the_time_limit() {
    let server = Server::start();
    let mut gone = server.client();
    let mut client = server.client();
    let insert = format!(
        "{{insert: 'c', documents: [{{_id: 1}}], {}, startTransaction: true}}",
        within(3, 1)
    );
    script(
        &mut gone,
        &[
            ("{create: 'c'}", "{ok: 1.0}"),
            (
                "{setParameter: 1, transactionLifetimeLimitSeconds: 1, $db: 'admin'}",
                "{ok: 1.0}",
            ),
            (&insert, "{ok: 1.0, n: 1}"),
        ],
    );
    drop(gone);
    // The key stays locked until the time limit.
    script(
        &mut client,
        &[(
            "{insert: 'c', documents: [{_id: 1, by: 'another'}], maxTimeMS: 30000}",
            "{ok: 1.0, n: 1}",
        )],
    );
}

#[test]
fn retryable_writes_are_done_once() {
    let server = Server::start();
    let mut client = server.client();
    let numbered = |command: &str, n: i64| {
        let arguments = within(4, n).replace(", autocommit: false", "");
        format!("{{{command}, {arguments}}}")
    };
    let insert = "insert: 'c', documents: [{_id: 1, n: 0}, {_id: 2, n: 0}]";
    let update = "update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}, {q: {_id: 9}, u: {$set: {n: 9}}, upsert: true}]";
    let modify = "findAndModify: 'c', query: {_id: 2}, update: {$inc: {n: 5}}, new: true";
    let delete = "delete: 'c', deletes: [{q: {_id: 1}, limit: 1}]";
    let rows = [
        (
            numbered(insert, 1),
            "{ok: 1.0, n: 2, retriedStmtIds: '(absent)'}",
        ),
        (
            numbered(insert, 1),
            "{ok: 1.0, n: 2, retriedStmtIds: [0, 1]}",
        ),
        // More statements than the first time: the new ones are executed.
        (
            numbered("insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]", 1),
            "{ok: 1.0, n: 3, retriedStmtIds: [0, 1]}",
        ),
        (
            numbered(update, 2),
            "{ok: 1.0, n: 2, nModified: 1, upserted: [{index: 1, _id: 9}]}",
        ),
        (
            numbered(update, 2),
            "{ok: 1.0, n: 2, nModified: 1, upserted: [{index: 1, _id: 9}], retriedStmtIds: [0, 1]}",
        ),
        (
            "{find: 'c', filter: {_id: 1}}".into(),
            "{cursor: {firstBatch: [{_id: 1, n: 1}], id: NumberLong('0'), ns: 'test.c'}}",
        ),
        (
            numbered(modify, 3),
            "{ok: 1.0, value: {_id: 2, n: 5}, retriedStmtId: '(absent)'}",
        ),
        (
            numbered(modify, 3),
            "{ok: 1.0, value: {_id: 2, n: 5}, retriedStmtId: 0}",
        ),
        (numbered(delete, 4), "{ok: 1.0, n: 1}"),
        (numbered(delete, 4), "{ok: 1.0, n: 1, retriedStmtIds: [0]}"),
        // Transaction numbers increase.
        (numbered(update, 2), "{ok: 0.0, code: 225}"),
        // A failed statement is not recorded as done.
        (
            numbered("insert: 'c', documents: [{_id: 2}]", 5),
            "{ok: 1.0, n: 0}",
        ),
        (
            numbered("insert: 'c', documents: [{_id: 2}]", 5),
            "{ok: 1.0, n: 0, retriedStmtIds: '(absent)'}",
        ),
        (
            numbered(
                "update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]",
                6,
            ),
            "{ok: 0.0, code: 72}",
        ),
        (numbered("find: 'c'", 7), "{ok: 0.0, code: 50768}"),
    ];
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(&mut client, &rows);
}

#[test]
fn retryable_writes_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(folder.path(), &[]);
    let update = format!(
        "{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{$inc: {{n: 1}}}}}}], {}}}",
        within(5, 1).replace(", autocommit: false", "")
    );
    let write = format!(
        "{{insert: 'c', documents: [{{_id: 7}}], {}, startTransaction: true}}",
        within(6, 1)
    );
    let commit = format!(
        "{{commitTransaction: 1, {}, writeConcern: {{w: 'majority'}}, $db: 'admin'}}",
        within(6, 1)
    );
    script(
        &mut server.client(),
        &[
            ("{insert: 'c', documents: [{_id: 1, n: 0}]}", "{ok: 1.0}"),
            (&update, "{ok: 1.0, nModified: 1}"),
            (&write, "{ok: 1.0, n: 1}"),
            (&commit, "{ok: 1.0}"),
        ],
    );
    server.stop();
    let server = Server::start_on(folder.path(), &[]);
    script(
        &mut server.client(),
        &[
            (&update, "{ok: 1.0, nModified: 1, retriedStmtIds: [0]}"),
            (&commit, "{ok: 1.0}"),
            (
                "{find: 'c', sort: {_id: 1}}",
                "{cursor: {firstBatch: [{_id: 1, n: 1}, {_id: 7}], id: NumberLong('0'), ns: 'test.c'}}",
            ),
        ],
    );
}

#[test]
fn indexes_and_cursors_of_transactions() {
    let server = Server::start();
    let mut client = server.client();
    let inside = |command: &str, n: i64, first: bool| {
        let start = if first {
            ", startTransaction: true"
        } else {
            ""
        };
        format!("{{{command}, {}{start}}}", within(7, n))
    };
    let index = "createIndexes: 'new', indexes: [{key: {a: 1}, name: 'a', unique: true}]";
    let rows = [
        (
            "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}".to_owned(),
            "{ok: 1.0}",
        ),
        // A collection that the transaction creates may get indexes while it is empty.
        (
            inside(index, 1, true),
            "{ok: 1.0, numIndexesBefore: 1, numIndexesAfter: 2, createdCollectionAutomatically: true}",
        ),
        (
            inside("insert: 'new', documents: [{_id: 1, a: [1, 2]}]", 1, false),
            "{ok: 1.0, n: 1}",
        ),
        (
            inside("find: 'new', filter: {a: 2}, hint: 'a'", 1, false),
            "{cursor: {firstBatch: [{_id: 1, a: [1, 2]}], id: NumberLong('0'), ns: 'test.new'}}",
        ),
        (
            format!("{{commitTransaction: 1, {}, $db: 'admin'}}", within(7, 1)),
            "{ok: 1.0}",
        ),
        (
            "{find: 'new', filter: {a: 1}, hint: 'a'}".into(),
            "{cursor: {firstBatch: [{_id: 1, a: [1, 2]}], id: NumberLong('0'), ns: 'test.new'}}",
        ),
        (
            "{insert: 'new', documents: [{_id: 2, a: 2}]}".into(),
            "{ok: 1.0, n: 0}",
        ),
        ("{validate: 'new'}".into(), "{ok: 1.0, valid: true}"),
        // Not on other collections; creating an existing index is a no-op.
        (inside(index, 2, true), "{ok: 1.0, numIndexesAfter: 2}"),
        (
            inside(
                "createIndexes: 'new', indexes: [{key: {b: 1}, name: 'b'}]",
                2,
                false,
            ),
            "{ok: 0.0, code: 263}",
        ),
    ];
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(&mut client, &rows);
    // A cursor of a transaction is read within it.
    let find = command(&inside("find: 'c', batchSize: 1", 3, true));
    let reply = client.run(&find).body;
    let Some(sheaf_bson::RawValue::Document(cursor)) = reply.get("cursor") else {
        panic!("{reply:?}");
    };
    let id = cursor.get("id").and_then(|id| id.as_i64_exact()).unwrap();
    let more = format!("getMore: NumberLong('{id}'), collection: 'c'");
    let rows = [
        (format!("{{{more}}}"), "{ok: 0.0, code: 50737}"),
        (
            inside(&format!("{more}, batchSize: 1"), 3, false),
            "{ok: 1.0}",
        ),
        (
            inside(&more, 3, false),
            "{cursor: {nextBatch: [{_id: 3}], id: NumberLong('0'), ns: 'test.c'}}",
        ),
    ];
    let rows: Vec<(&str, &str)> = rows.iter().map(|(text, reply)| (&**text, *reply)).collect();
    script(&mut client, &rows);
}

#[test]
fn an_existing_collection_is_not_created_again_within_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    let create = |n| {
        let numbers = within(1, n);
        format!("{{create: 'c', {numbers}, startTransaction: true}}")
    };
    let commit = format!("{{commitTransaction: 1, {}, $db: 'admin'}}", within(1, 1));
    script(
        &mut client,
        &[
            (create(1).as_str(), "{ok: 1.0}"),
            (commit.as_str(), "{ok: 1.0}"),
            (
                create(2).as_str(),
                "{code: 48, codeName: 'NamespaceExists'}",
            ),
            ("{create: 'c'}", "{ok: 1.0}"),
        ],
    );
}
