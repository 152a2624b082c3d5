//! insert, update, delete and findAndModify: their replies, in particular if some statements fail.

use sheaf_bson::json::{parse_doc, shell_doc};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, doc};
use sheaf_wire::Flags;
use sheaf_wire::request::op_msg;

use super::client::Client;
use super::server::Server;

/// A command in shell notation.
pub fn command(text: &str) -> DocBuf {
    let command = parse_doc(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut out = DocBuilder::from_doc(command.as_raw());
    if command.get("$db").is_none() {
        out.append("$db", "test");
    }
    out.finish()
}

/// Commands with the replies they must have; only the named fields are compared.
pub fn script(client: &mut Client, rows: &[(&str, &str)]) {
    for (text, wanted) in rows {
        let reply = client.run(&command(text)).body;
        let wanted = parse_doc(wanted).unwrap_or_else(|e| panic!("{wanted}: {e}"));
        let mut shown = DocBuilder::new();
        for element in wanted.iter() {
            match reply.get(element.key()) {
                Some(value) => drop(shown.append(element.key(), value)),
                None => drop(shown.append(element.key(), "(absent)")),
            }
        }
        assert_eq!(
            shell_doc(shown.finish().as_raw()),
            shell_doc(wanted.as_raw()),
            "{text}: {reply:?}"
        );
    }
}

#[test]
fn inserts() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{createIndexes: 'c', indexes: [{key: {a: 1, b: 1}, name: 'ab', unique: true}]}",
                "{ok: 1.0}",
            ),
            (
                "{insert: 'c', documents: [{_id: 1, a: 1, b: 1}, {_id: 2, a: 1, b: 2}]}",
                "{n: 2, ok: 1.0}",
            ),
            // The first error ends an ordered batch.
            (
                "{insert: 'c', documents: [{_id: 3, a: 2}, {_id: 1}, {_id: 4, a: 3}]}",
                "{n: 1, writeErrors: [{index: 1, code: 11000, keyPattern: {_id: 1}, keyValue: {_id: 1}, errmsg: 'E11000 duplicate key error collection: test.c index: _id_ dup key: { _id: 1 }'}], ok: 1.0}",
            ),
            (
                "{insert: 'c', ordered: false, documents: [{_id: 5, a: 5}, {_id: 1}, {_id: 6, a: 1, b: 2}, {_id: 7, a: 7}]}",
                "{n: 2, writeErrors: [{index: 1, code: 11000, keyPattern: {_id: 1}, keyValue: {_id: 1}, errmsg: 'E11000 duplicate key error collection: test.c index: _id_ dup key: { _id: 1 }'}, {index: 2, code: 11000, keyPattern: {a: 1, b: 1}, keyValue: {a: 1, b: 2}, errmsg: 'E11000 duplicate key error collection: test.c index: ab dup key: { a: 1, b: 2 }'}], ok: 1.0}",
            ),
            ("{count: 'c'}", "{n: 5}"),
            // Write errors do not fail the command.
            (
                "{insert: 'c', documents: [{_id: [1]}], comment: {who: 'me'}}",
                "{n: 0, ok: 1.0}",
            ),
            (
                "{insert: 'c', documents: [{_id: 9, a: [1], b: [2]}]}",
                "{n: 0, ok: 1.0}",
            ),
            ("{count: 'c', comment: 5}", "{n: 5}"),
        ],
    );
    let refused = client.ok(&command(
        "{insert: 'c', documents: [{_id: 9, a: [1], b: [2]}]}",
    ));
    assert_eq!(first_error(&refused), 171);
    for id in ["[1]", "/a/", "undefined"] {
        let insert = command(&format!("{{insert: 'c', documents: [{{_id: {id}}}]}}"));
        assert_eq!(first_error(&client.ok(&insert)), 53, "{id}");
    }
}

fn first_error(reply: &DocBuf) -> i64 {
    let errors = reply.get("writeErrors").and_then(|v| v.as_array());
    let first = errors
        .and_then(|list| list.get(0))
        .and_then(|e| e.as_document());
    let code = first
        .and_then(|e| e.get("code"))
        .and_then(|v| v.as_i64_exact());
    code.unwrap_or_else(|| panic!("{reply:?}"))
}

#[test]
fn updates() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 2}, {_id: 3, a: 's'}]}",
                "{n: 3}",
            ),
            (
                "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {a: 1}}}]}",
                "{n: 1, nModified: 0, ok: 1.0}",
            ),
            (
                "{update: 'c', updates: [{q: {a: {$type: 'number'}}, u: {$inc: {a: 1}}, multi: true}]}",
                "{n: 2, nModified: 2}",
            ),
            (
                "{update: 'c', updates: [{q: {_id: 3}, u: {$inc: {a: 1}}}, {q: {_id: 1}, u: {$inc: {a: 1}}}]}",
                "{n: 0, nModified: 0}",
            ),
            (
                "{update: 'c', ordered: false, updates: [{q: {_id: 3}, u: {$inc: {a: 1}}}, {q: {_id: 1}, u: {$inc: {a: 1}}}]}",
                "{n: 1, nModified: 1}",
            ),
            (
                "{update: 'c', updates: [{q: {_id: 7}, u: {$set: {a: 7}}, upsert: true}, {q: {_id: 8, b: 2}, u: {c: 3}, upsert: true}]}",
                "{n: 2, nModified: 0, upserted: [{index: 0, _id: 7}, {index: 1, _id: 8}]}",
            ),
            (
                "{find: 'c', filter: {_id: {$gte: 7}}, sort: {_id: 1}}",
                "{cursor: {firstBatch: [{_id: 7, a: 7}, {_id: 8, c: 3}], id: {$numberLong: '0'}, ns: 'test.c'}}",
            ),
            // An identical replacement changes nothing, but without _id it is validated.
            (
                "{update: 'c', updates: [{q: {_id: 7}, u: {a: 7}}]}",
                "{n: 1, nModified: 0}",
            ),
            (
                "{update: 'c', updates: [{q: {_id: 7}, u: {_id: 7, a: 7}}]}",
                "{n: 1, nModified: 0}",
            ),
            ("{collMod: 'c', validator: {a: {$lt: 7}}}", "{ok: 1.0}"),
            (
                "{update: 'c', updates: [{q: {_id: 7}, u: {a: 7}}]}",
                "{n: 0, nModified: 0}",
            ),
        ],
    );
    for (statement, code) in [
        ("{q: {}, u: {$foo: {a: 1}}}", 9),
        ("{q: {}, u: {a: 1, $set: {b: 1}}}", 52),
        ("{q: {_id: 1}, u: {_id: 2}}", 66),
        ("{q: {_id: 1}, u: {$set: {_id: 2}}}", 66),
        ("{q: {_id: 1}, u: {$set: {a: 1}, $inc: {a: 1}}}", 40),
        ("{q: {_id: 1}, u: {$set: {'a.b': 1}}}", 28),
        ("{q: {_id: 1}, u: {$push: {a: 1}}}", 2),
        ("{q: {_id: 1}, u: {$inc: {a: 'x'}}}", 14),
        ("{q: {_id: 1}, u: {$rename: {a: 'a'}}}", 2),
        ("{q: {}, u: {a: 1}, multi: true}", 9),
        ("{q: {_id: 1}, u: {$set: {'a.$': 1}}}", 2),
        ("{q: {_id: 1}, u: {$set: {'a.$[x]': 1}}}", 2),
        (
            "{q: {_id: 1}, u: {$set: {a: 1}}, arrayFilters: [{x: 1}]}",
            9,
        ),
        ("{q: {$foo: 1}, u: {$set: {a: 1}}}", 2),
        ("{q: {_id: 1}, u: 5}", 9),
        ("{q: {a: {$gt: 1}}, u: {$set: {a: 1}}, hint: 'nosuch'}", 2),
    ] {
        let reply = client
            .run(&command(&format!(
                "{{update: 'c', updates: [{statement}]}}"
            )))
            .body;
        let own = reply.get("code").and_then(|v| v.as_i64_exact());
        assert_eq!(
            own.unwrap_or_else(|| first_error(&reply)),
            code,
            "{statement}: {reply:?}"
        );
    }
}

/// The changes made before the error stay; the reply does not count them.
#[test]
fn a_statement_that_fails_midway_is_not_counted() {
    let server = Server::start();
    let mut client = server.client();
    let setting = [
        (
            "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 's'}, {_id: 3, a: 3}]}",
            "{n: 3}",
        ),
        (
            "{update: 'c', updates: [{q: {}, u: {$inc: {a: 1}}, multi: true}]}",
            "{n: 0, nModified: 0}",
        ),
        (
            "{bulkWrite: 1, ops: [{update: 0, filter: {}, updateMods: {$inc: {a: 1}}, multi: true}], nsInfo: [{ns: 'test.c'}], $db: 'admin'}",
            "{nErrors: 1, nMatched: 0, nModified: 0}",
        ),
        ("{count: 'c', query: {a: 3}}", "{n: 2}"),
    ];
    script(&mut client, &setting);
}

#[test]
fn deletes_and_find_and_modify() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}, {_id: 4, a: 4}]}",
                "{n: 4}",
            ),
            (
                "{delete: 'c', deletes: [{q: {a: 9}, limit: 0}, {q: {a: 1}, limit: 1}]}",
                "{n: 1, ok: 1.0}",
            ),
            (
                "{findAndModify: 'c', query: {a: 9}, update: {$set: {b: 1}}}",
                "{lastErrorObject: {n: 0, updatedExisting: false}, value: null}",
            ),
            (
                "{findAndModify: 'c', query: {}, sort: {a: -1}, update: {$set: {b: 1}}}",
                "{lastErrorObject: {n: 1, updatedExisting: true}, value: {_id: 4, a: 4}}",
            ),
            (
                "{findAndModify: 'c', query: {_id: 4}, update: {$inc: {b: 1}}, new: true, fields: {b: 1}}",
                "{lastErrorObject: {n: 1, updatedExisting: true}, value: {_id: 4, b: 2}}",
            ),
            (
                "{findAndModify: 'c', query: {_id: 10}, update: {$set: {b: 1}}, upsert: true}",
                "{lastErrorObject: {n: 1, updatedExisting: false, upserted: 10}, value: null}",
            ),
            (
                "{findAndModify: 'c', query: {_id: 11}, update: {$set: {b: 1}}, upsert: true, new: true}",
                "{lastErrorObject: {n: 1, updatedExisting: false, upserted: 11}, value: {_id: 11, b: 1}}",
            ),
            (
                "{findAndModify: 'c', query: {}, sort: {a: 1, _id: 1}, remove: true}",
                "{lastErrorObject: {n: 1}, value: {_id: 10, b: 1}}",
            ),
            (
                "{findAndModify: 'c', query: {a: 77}, remove: true}",
                "{lastErrorObject: {n: 0}, value: null}",
            ),
            ("{delete: 'c', deletes: [{q: {}, limit: 0}]}", "{n: 4}"),
        ],
    );
    for (text, code) in [
        ("{findAndModify: 'c'}", 9),
        ("{findAndModify: 'c', remove: true, update: {a: 1}}", 9),
        ("{findAndModify: 'c', remove: true, new: true}", 9),
        ("{findAndModify: 'c', remove: true, upsert: true}", 9),
        ("{delete: 'c', deletes: [{q: {}, limit: 2}]}", 9),
    ] {
        let reply = client.run(&command(text)).body;
        let own = reply.get("code").and_then(|v| v.as_i64_exact());
        assert_eq!(
            own.unwrap_or_else(|| first_error(&reply)),
            code,
            "{text}: {reply:?}"
        );
    }
}

#[test]
fn unacknowledged_writes_have_no_reply() {
    let server = Server::start();
    let mut client = server.client();
    for id in 1..=3 {
        // The third insert is a duplicate; its error is not reported.
        let insert = doc! {
            "insert": "c", "documents": [{"_id": id.min(2)}],
            "writeConcern": {"w": 0}, "$db": "test"
        };
        let flags = Flags(Flags::MORE_TO_COME);
        let request = client.next_id();
        client.send(&op_msg(request, flags, insert.as_raw(), &[]));
    }
    // The next reply is that of the count.
    let count = client.ok(&doc! {"count": "c", "$db": "test"});
    assert_eq!(count.get("n").and_then(|v| v.as_i64_exact()), Some(2));
}

#[test]
fn documents_and_batches_beyond_the_limits() {
    let server = Server::start();
    let mut client = server.client();
    let padding = |size: usize| {
        let empty = doc! {"_id": 1, "s": ""}.len_bytes();
        doc! {"_id": 1, "s": "x".repeat(size - empty)}
    };
    let largest = padding(16 * 1024 * 1024);
    assert_eq!(largest.len_bytes(), 16 * 1024 * 1024);
    let insert = |doc: &DocBuf| doc! {"insert": "c", "documents": [doc], "$db": "test"};
    let reply = client.ok(&insert(&largest));
    assert_eq!(reply.get("n").and_then(|v| v.as_i64_exact()), Some(1));
    let too_large = padding(16 * 1024 * 1024 + 1);
    let reply = client.run(&insert(&too_large)).body;
    let own = reply.get("code").and_then(|v| v.as_i64_exact());
    assert_eq!(own.unwrap_or_else(|| first_error(&reply)), 2, "{reply:?}");
    let reply = client.ok(&doc! {
        "bulkWrite": 1,
        "ops": [doc! {"insert": 0, "document": &too_large}],
        "nsInfo": [doc! {"ns": "test.c"}],
        "$db": "admin",
    });
    assert!(shell_doc(reply.as_raw()).contains("code: 10334"));
    // An update must not exceed the limit either.
    let reply = client.ok(&command(
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {t: 'y'}}}]}",
    ));
    assert_eq!(first_error(&reply), 17419);
    for upsert in [false, true] {
        let (q, u) = (
            doc! {"_id": i32::from(!upsert)},
            padding(16 * 1024 * 1024).as_raw().to_buf(),
        );
        let u = doc! {"s": u.get("s").unwrap(), "t": 1};
        let reply = client.ok(&doc! {
            "update": "c",
            "updates": [doc! {"q": q, "u": u, "upsert": upsert}],
            "$db": "test",
        });
        assert_eq!(first_error(&reply), 17420);
    }
    let read = client.ok(&command("{find: 'c'}"));
    assert!(read.len_bytes() > 16 * 1024 * 1024);
    let statements: Vec<DocBuf> = (0..100_001).map(|i| doc! {"_id": i}).collect();
    let raws: Vec<RawDoc<'_>> = statements.iter().map(DocBuf::as_raw).collect();
    let body = doc! {"insert": "many", "$db": "test"};
    let reply = client.run_with(&body, &[("documents", &raws)]);
    assert_eq!(reply.code(), 16, "{:?}", reply.body);
    let reply = client.run_with(&body, &[("documents", &raws[1..])]);
    assert_eq!(
        reply.body.get("n").and_then(|v| v.as_i64_exact()),
        Some(100_000)
    );
}

#[test]
fn large_index_keys_are_kept() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}",
    ));
    let value = "k".repeat(10 << 20);
    let reply = client.ok(&doc! {
        "insert": "c", "documents": [{"_id": 1, "a": value.as_str()}], "$db": "test"
    });
    assert_eq!(
        reply.get("n").and_then(|v| v.as_i64_exact()),
        Some(1),
        "{reply:?}"
    );
    let found = client.ok(&doc! {
        "count": "c", "query": {"a": value.as_str()}, "$db": "test"
    });
    assert_eq!(found.get("n").and_then(|v| v.as_i64_exact()), Some(1));
    client.ok(&command(
        "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}]}",
    ));
    let valid = client.ok(&command("{validate: 'c'}"));
    assert_eq!(valid.get("valid").and_then(|v| v.as_bool()), Some(true));
}
