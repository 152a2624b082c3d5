//! bulkWrite: the result of each op, what ends the command, what is refused; repeated, in
//! transactions, and after a crash.

use sheaf_bson::json::{parse_doc, shell_doc};
use sheaf_bson::{DocBuf, RawDoc, doc};

use super::client::Client;
use super::server::Server;
use super::write_commands::{command, script};

const SUMS: [&str; 6] = [
    "nErrors",
    "nInserted",
    "nMatched",
    "nModified",
    "nUpserted",
    "nDeleted",
];

/// A bulkWrite with these ops over the collections test.a, test.b and other.c.
fn bulk(ops: &str, more: &str) -> DocBuf {
    command(&format!(
        "{{bulkWrite: 1, ops: [{ops}], nsInfo: [{{ns: 'test.a'}}, {{ns: 'test.b'}}, {{ns: 'other.c'}}]{more}, $db: 'admin'}}"
    ))
}

/// The cursor's documents and the totals of a successful reply, in shell notation.
fn outcome(reply: &DocBuf) -> (Vec<String>, Vec<i64>) {
    assert_eq!(
        reply.get("ok").and_then(|v| v.as_f64()),
        Some(1.0),
        "{reply:?}"
    );
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    let batch = cursor.get("firstBatch").or_else(|| cursor.get("nextBatch"));
    let docs = batch.and_then(|v| v.as_array()).unwrap();
    let docs = docs
        .iter()
        .map(|v| shell_doc(v.as_document().unwrap()))
        .collect();
    let sums = SUMS
        .iter()
        .filter_map(|name| reply.get(name)?.as_i64_exact());
    (docs, sums.collect())
}

/// Runs a bulkWrite and checks its documents and its totals, which are in the order of [`SUMS`].
fn answers(client: &mut Client, bulk: &DocBuf, documents: &[&str], sums: [i64; 6]) {
    let reply = client.run(bulk).body;
    let wanted: Vec<String> = documents
        .iter()
        .map(|text| {
            shell_doc(
                parse_doc(text)
                    .unwrap_or_else(|e| panic!("{text}: {e}"))
                    .as_raw(),
            )
        })
        .collect();
    assert_eq!(outcome(&reply), (wanted, sums.to_vec()), "{bulk:?}");
}

#[test]
fn one_result_per_op() {
    let server = Server::start();
    let mut client = server.client();
    answers(
        &mut client,
        &bulk(
            "{insert: 0, document: {_id: 1, n: 1}}, {insert: 0, document: {_id: 2, n: 2}},
             {insert: 2, document: {_id: 1, n: 7}},
             {update: 0, filter: {_id: 1}, updateMods: {$inc: {n: 10}}},
             {update: 0, filter: {}, updateMods: {$set: {n: 11}}, multi: true},
             {update: 1, filter: {_id: 5}, updateMods: {n: 5}, upsert: true},
             {update: 2, filter: {_id: 9}, updateMods: {$set: {n: 1}}},
             {delete: 0, filter: {_id: 2}}, {delete: 2, filter: {}, multi: true}, {delete: 2, filter: {}}",
            "",
        ),
        &[
            "{ok: 1.0, idx: 0, n: 1}",
            "{ok: 1.0, idx: 1, n: 1}",
            "{ok: 1.0, idx: 2, n: 1}",
            "{ok: 1.0, idx: 3, n: 1, nModified: 1}",
            "{ok: 1.0, idx: 4, n: 2, nModified: 1}",
            "{ok: 1.0, idx: 5, n: 1, nModified: 0, upserted: {_id: 5}}",
            "{ok: 1.0, idx: 6, n: 0, nModified: 0}",
            "{ok: 1.0, idx: 7, n: 1}",
            "{ok: 1.0, idx: 8, n: 1}",
            "{ok: 1.0, idx: 9, n: 0}",
        ],
        [0, 3, 3, 2, 1, 2],
    );
    script(
        &mut client,
        &[
            (
                "{find: 'a'}",
                "{cursor: {firstBatch: [{_id: 1, n: 11}], id: NumberLong('0'), ns: 'test.a'}}",
            ),
            (
                "{find: 'b'}",
                "{cursor: {firstBatch: [{_id: 5, n: 5}], id: NumberLong('0'), ns: 'test.b'}}",
            ),
            ("{count: 'c', $db: 'other'}", "{n: 0}"),
        ],
    );
    // With errorsOnly successful ops have no document.
    answers(
        &mut client,
        &bulk(
            "{insert: 0, document: {_id: 3}}, {delete: 0, filter: {_id: 3}}",
            ", errorsOnly: true",
        ),
        &[],
        [0, 1, 0, 0, 0, 1],
    );
}

#[test]
fn errors_keep_their_indexes() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command(
        "{insert: 'a', documents: [{_id: 1, s: 'x'}, {_id: 2, n: 1}]}",
    ));
    client.ok(&command("{create: 'b', viewOn: 'a', pipeline: []}"));
    let duplicate = |idx| {
        format!(
            "{{ok: 0.0, idx: {idx}, code: 11000, keyPattern: {{_id: 1}}, keyValue: {{_id: 1}}, errmsg: \
             'E11000 duplicate key error collection: test.a index: _id_ dup key: {{ _id: 1 }}', n: 0}}"
        )
    };
    // The first error ends an ordered command, also within consecutive inserts.
    let ops = "{insert: 0, document: {_id: 3}}, {insert: 0, document: {_id: 1}}, {insert: 0, document: {_id: 4}}";
    answers(
        &mut client,
        &bulk(ops, ""),
        &["{ok: 1.0, idx: 0, n: 1}", &duplicate(1)],
        [1, 1, 0, 0, 0, 0],
    );
    answers(
        &mut client,
        &bulk(ops, ", ordered: false, errorsOnly: true"),
        &[
            "{ok: 0.0, idx: 0, code: 11000, keyPattern: {_id: 1}, keyValue: {_id: 3}, errmsg: 'E11000 duplicate key error collection: test.a index: _id_ dup key: { _id: 3 }', n: 0}",
            &duplicate(1),
        ],
        [2, 1, 0, 0, 0, 0],
    );
    // An error of each kind of op; the other ops are done.
    let ops = "{update: 0, filter: {_id: 1}, updateMods: {$inc: {s: 1}}},
         {update: 0, filter: {_id: 2}, updateMods: {$inc: {n: 1}}},
         {update: 0, filter: {}, updateMods: {n: 1}, multi: true},
         {delete: 0, filter: {$expr: {$eq: ['$_id', '$$nosuch']}}},
         {delete: 0, filter: {$nope: 1}},
         {insert: 1, document: {_id: 1}}, {insert: 1, document: {_id: 2}}, {delete: 1, filter: {}},
         {insert: 0, document: {_id: [1]}},
         {delete: 0, filter: {_id: 3}}";
    let reply = client.ok(&bulk(ops, ", ordered: false"));
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    let batch = cursor.get("firstBatch").and_then(|v| v.as_array()).unwrap();
    let codes: Vec<(i64, i64)> = batch
        .iter()
        .map(|doc| {
            let doc: RawDoc<'_> = doc.as_document().unwrap();
            let int = |name| doc.get(name).and_then(|v| v.as_i64_exact());
            (int("idx").unwrap(), int("code").unwrap_or(0))
        })
        .collect();
    assert_eq!(
        codes,
        [
            (0, 14),
            (1, 0),
            (2, 9),
            (3, 17276),
            (4, 2),
            (5, 166),
            (6, 166),
            (7, 166),
            (8, 53),
            (9, 0)
        ],
        "{reply:?}"
    );
    assert_eq!(outcome(&reply).1, [8, 0, 1, 1, 0, 1]);
    // A failed update reports nModified, as a successful one does.
    let reply = client.ok(&bulk(
        "{update: 0, filter: {_id: 1}, updateMods: {$inc: {s: 1}}}",
        "",
    ));
    let (docs, sums) = outcome(&reply);
    assert_eq!((docs.len(), sums), (1, vec![1, 0, 0, 0, 0, 0]));
    assert!(
        docs[0].ends_with("n: 0, nModified: 0 }") || docs[0].ends_with("n: 0, nModified: 0}"),
        "{docs:?}"
    );
}

#[test]
fn options_of_ops() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command(
        "{insert: 'a', documents: [{_id: 1, s: 'Ab', l: [1, 5, 9]}, {_id: 2, s: 'aB', n: 2}, {_id: 3, s: 'c', n: 3}]}",
    ));
    client.ok(&command(
        "{createIndexes: 'a', indexes: [{key: {n: 1}, name: 'n_1'}]}",
    ));
    answers(
        &mut client,
        &bulk(
            "{update: 0, filter: {_id: 1}, updateMods: {$set: {'l.$[big]': 0}}, arrayFilters: [{big: {$gt: 4}}]},
             {update: 0, filter: {s: 'ab'}, updateMods: {$set: {t: 1}}, multi: true, collation: {locale: 'en', strength: 2}},
             {update: 0, filter: {}, updateMods: {$set: {last: true}}, sort: {_id: -1}},
             {update: 0, filter: {$expr: {$eq: ['$_id', '$$who']}}, updateMods: [{$set: {c: '$$given', w: '$$who'}}], constants: {given: '$s'}},
             {update: 0, filter: {n: 2}, updateMods: {$set: {h: 1}}, hint: 'n_1'},
             {update: 0, filter: {_id: 8}, updateMods: [{$set: {n: 1}}], upsert: true, upsertSupplied: true, constants: {new: {_id: 80, whole: true}}},
             {delete: 0, filter: {s: 'C'}, collation: {locale: 'en', strength: 2}, hint: {_id: 1}}",
            ", let: {who: 2}, bypassDocumentValidation: true, comment: {why: 'test'}, maxTimeMS: 60000, writeConcern: {w: 1, j: true}",
        ),
        &[
            "{ok: 1.0, idx: 0, n: 1, nModified: 1}",
            "{ok: 1.0, idx: 1, n: 2, nModified: 2}",
            "{ok: 1.0, idx: 2, n: 1, nModified: 1}",
            "{ok: 1.0, idx: 3, n: 1, nModified: 1}",
            "{ok: 1.0, idx: 4, n: 1, nModified: 1}",
            "{ok: 1.0, idx: 5, n: 1, nModified: 0, upserted: {_id: 80}}",
            "{ok: 1.0, idx: 6, n: 1}",
        ],
        [0, 0, 6, 6, 1, 1],
    );
    // A constant is a value: '$s' is not a path.
    script(
        &mut client,
        &[(
            "{find: 'a', sort: {_id: 1}}",
            "{cursor: {firstBatch: [{_id: 1, s: 'Ab', l: [1, 0, 0], t: 1}, {_id: 2, s: 'aB', n: 2, t: 1, c: '$s', w: 2, h: 1}, {_id: 80, whole: true}], id: NumberLong('0'), ns: 'test.a'}}",
        )],
    );
}

#[test]
fn validators_apply_unless_bypassed() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command("{create: 'a', validator: {n: {$type: 'int'}}}"));
    let ops = "{insert: 0, document: {_id: 1, n: 'x'}}, {insert: 0, document: {_id: 2, n: 2}},
         {update: 0, filter: {_id: 2}, updateMods: {$set: {n: 'x'}}}";
    let reply = client.ok(&bulk(ops, ", ordered: false"));
    assert_eq!(outcome(&reply).1, [2, 1, 0, 0, 0, 0]);
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    let batch = cursor.get("firstBatch").and_then(|v| v.as_array()).unwrap();
    for (place, code) in [(0, Some(121)), (1, None), (2, Some(121))] {
        let result = batch.get(place).and_then(|v| v.as_document()).unwrap();
        let found = result.get("code").and_then(|v| v.as_i64_exact());
        assert_eq!(
            (found, result.get("errInfo").is_some()),
            (code, code.is_some()),
            "{reply:?}"
        );
    }
    let bypassed = client.ok(&bulk(
        "{update: 0, filter: {_id: 2}, updateMods: {$set: {n: 'x'}}}, {insert: 0, document: {_id: 1, n: 'x'}}",
        ", bypassDocumentValidation: true",
    ));
    assert_eq!(outcome(&bypassed).1, [0, 1, 1, 1, 0, 0]);
}

#[test]
fn sequences_and_batches() {
    let server = Server::start();
    let mut client = server.client();
    let ops: Vec<DocBuf> = (0..250)
        .map(|n| doc! {"insert": n % 2, "document": {"_id": n}})
        .collect();
    let ops: Vec<RawDoc<'_>> = ops.iter().map(DocBuf::as_raw).collect();
    let namespaces = [doc! {"ns": "test.a"}, doc! {"ns": "test.b"}];
    let namespaces: Vec<RawDoc<'_>> = namespaces.iter().map(DocBuf::as_raw).collect();
    let bulk = doc! {"bulkWrite": 1, "cursor": {"batchSize": 100}, "$db": "admin"};
    let reply = client.run_with(&bulk, &[("ops", &ops), ("nsInfo", &namespaces)]);
    assert!(reply.is_ok(), "{:?}", reply.body);
    let (mut docs, sums) = outcome(&reply.body);
    assert_eq!((docs.len(), sums), (100, vec![0, 250, 0, 0, 0, 0]));
    let cursor = reply
        .body
        .get("cursor")
        .and_then(|v| v.as_document())
        .unwrap();
    assert_eq!(
        cursor.get("ns").and_then(|v| v.as_str()),
        Some("admin.$cmd.bulkWrite")
    );
    let mut id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap();
    while id != 0 {
        let more =
            doc! {"getMore": id, "collection": "$cmd.bulkWrite", "batchSize": 100, "$db": "admin"};
        let reply = client.ok(&more);
        docs.extend(outcome(&reply).0);
        let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
        id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap();
    }
    assert_eq!(docs.len(), 250);
    for (idx, doc) in docs.iter().enumerate() {
        assert_eq!(
            *doc,
            shell_doc(
                parse_doc(&format!("{{ok: 1.0, idx: {idx}, n: 1}}"))
                    .unwrap()
                    .as_raw()
            )
        );
    }
    // A field in both the body and a sequence; a sequence that is not a field of the command.
    let both = command("{bulkWrite: 1, ops: [], nsInfo: [{ns: 'test.a'}], $db: 'admin'}");
    assert_eq!(client.run_with(&both, &[("ops", &ops)]).code(), 17);
    assert_eq!(
        client
            .run_with(&doc! {"ping": 1, "$db": "admin"}, &[("ops", &ops)])
            .code(),
        40415
    );
    assert_eq!(
        client
            .run_with(&bulk, &[("ops", &ops), ("nsinfo", &namespaces)])
            .code(),
        40415
    );
}

#[test]
fn malformed_commands_write_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let good = "{insert: 0, document: {_id: 1}}";
    for (ops, more, code) in [
        ("", "", 16),
        ("1", "", 14),
        ("{}", "", 9),
        ("{merge: 0}", "", 40415),
        ("{document: {}, insert: 0}", "", 40415),
        ("{insert: 'a', document: {}}", "", 14),
        ("{insert: 3, document: {}}", "", 2),
        ("{insert: -1, document: {}}", "", 2),
        ("{insert: 0}", "", 40414),
        ("{insert: 0, document: 1}", "", 14),
        ("{insert: 0, document: {}, multi: true}", "", 40415),
        ("{update: 0, updateMods: {$set: {a: 1}}}", "", 40414),
        ("{update: 0, filter: {}}", "", 40414),
        ("{update: 0, filter: 1, updateMods: {}}", "", 14),
        (
            "{update: 0, filter: {}, updateMods: {}, multi: 'x'}",
            "",
            14,
        ),
        (
            "{update: 0, filter: {}, updateMods: {}, arrayFilters: {}}",
            "",
            14,
        ),
        (
            "{update: 0, filter: {}, updateMods: {}, collation: 'en'}",
            "",
            14,
        ),
        (
            "{update: 0, filter: {}, updateMods: {$set: {a: 1}}, multi: true, sort: {a: 1}}",
            "",
            9,
        ),
        (
            "{update: 0, filter: {}, updateMods: [], upsertSupplied: true, constants: {new: {}}}",
            "",
            9,
        ),
        (
            "{update: 0, filter: {}, updateMods: [], upsertSupplied: true, upsert: true}",
            "",
            9,
        ),
        ("{update: 0, q: {}, u: {}}", "", 40415),
        ("{delete: 0}", "", 40414),
        ("{delete: 0, filter: {}, limit: 1}", "", 40415),
        ("{delete: 0, filter: {}, hint: 5}", "", 9),
        ("", ", nosuch: 1", 40415),
        ("", ", ordered: 'x'", 14),
        ("", ", errorsOnly: {}", 14),
        ("", ", cursor: 1", 14),
        ("", ", cursor: {batchSize: -1}", 2),
        ("", ", cursor: {nosuch: 1}", 40415),
        ("", ", let: 1", 14),
        ("", ", maxTimeMS: -1", 2),
    ] {
        let ops = match ops {
            "" if code != 16 => good.to_owned(),
            "" => String::new(),
            bad => format!("{good}, {bad}"),
        };
        let reply = client.run(&bulk(&ops, more));
        assert_eq!(
            (reply.is_ok(), reply.code()),
            (false, code),
            "{ops} {more}: {:?}",
            reply.body
        );
    }
    for (whole, code) in [
        (
            format!("{{bulkWrite: 1, ops: [{good}], $db: 'admin'}}"),
            40414,
        ),
        (
            format!("{{bulkWrite: 1, ops: [{good}], nsInfo: [{{ns: 'a'}}], $db: 'admin'}}"),
            73,
        ),
        (
            format!("{{bulkWrite: 1, ops: [{good}], nsInfo: [{{ns: 'a.'}}], $db: 'admin'}}"),
            73,
        ),
        (
            format!("{{bulkWrite: 1, ops: [{good}], nsInfo: [{{}}], $db: 'admin'}}"),
            40414,
        ),
        (
            format!(
                "{{bulkWrite: 1, ops: [{good}], nsInfo: [{{ns: 'test.a', x: 1}}], $db: 'admin'}}"
            ),
            40415,
        ),
        (
            format!("{{bulkWrite: 1, ops: [{good}], nsInfo: [], $db: 'admin'}}"),
            2,
        ),
        (
            "{bulkWrite: 1, nsInfo: [{ns: 'test.a'}], $db: 'admin'}".into(),
            40414,
        ),
        (
            format!("{{bulkWrite: 1, ops: [{good}], nsInfo: [{{ns: 'test.a'}}], $db: 'test'}}"),
            13,
        ),
    ] {
        let reply = client.run(&command(&whole));
        assert_eq!(
            (reply.is_ok(), reply.code()),
            (false, code),
            "{whole}: {:?}",
            reply.body
        );
    }
    script(&mut client, &[("{count: 'a'}", "{n: 0}")]);
}

const LSID: &str = "lsid: {id: UUID('07070707-0707-0707-0707-070707070707')}";

#[test]
fn in_a_transaction() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let within = |n: i64| format!(", {LSID}, txnNumber: NumberLong('{n}'), autocommit: false");
    let start = |n: i64| format!("{}, startTransaction: true", within(n));
    let end = |name: &str, n: i64| command(&format!("{{{name}: 1{}, $db: 'admin'}}", within(n)));
    let ops = "{insert: 0, document: {_id: 1}}, {insert: 2, document: {_id: 1}}, {update: 1, filter: {_id: 1}, updateMods: {$set: {a: 1}}, upsert: true}";
    // The results come in batches, which are read within the transaction.
    let reply = client.ok(&bulk(
        ops,
        &format!("{}, cursor: {{batchSize: 1}}", start(1)),
    ));
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap();
    let more = |more: &str| {
        command(&format!(
            "{{getMore: NumberLong('{id}'), collection: '$cmd.bulkWrite'{more}, $db: 'admin'}}"
        ))
    };
    assert_eq!(client.fails(&more("")).0, 50737);
    assert_eq!(outcome(&client.ok(&more(&within(1)))).0.len(), 2);
    for count in ["{count: 'a'}", "{count: 'b'}", "{count: 'c', $db: 'other'}"] {
        script(&mut other, &[(count, "{n: 0}")]);
    }
    client.ok(&end("commitTransaction", 1));
    for count in ["{count: 'a'}", "{count: 'b'}", "{count: 'c', $db: 'other'}"] {
        script(&mut other, &[(count, "{n: 1}")]);
    }
    // An error of one op ends the transaction and the command, ordered or not.
    let ops = "{insert: 0, document: {_id: 2}}, {insert: 2, document: {_id: 1}}, {insert: 1, document: {_id: 2}}";
    let reply = client.ok(&bulk(ops, &format!("{}, ordered: false", start(2))));
    let (docs, sums) = outcome(&reply);
    assert_eq!((docs.len(), sums), (2, vec![1, 1, 0, 0, 0, 0]), "{docs:?}");
    assert_eq!(client.fails(&end("commitTransaction", 2)).0, 251);
    // A conflict with another writer fails the whole command.
    client.ok(&bulk(
        "{update: 0, filter: {_id: 1}, updateMods: {$set: {a: 2}}}",
        &start(3),
    ));
    other.ok(&bulk(
        "{update: 1, filter: {_id: 1}, updateMods: {$set: {a: 3}}}",
        "",
    ));
    let conflict = client.run(&bulk(
        "{delete: 0, filter: {_id: 1}}, {update: 1, filter: {_id: 1}, updateMods: {$set: {a: 4}}}",
        &within(3),
    ));
    assert_eq!(
        (conflict.is_ok(), conflict.code()),
        (false, 112),
        "{:?}",
        conflict.body
    );
    assert!(conflict.body.get("errorLabels").is_some());
    // Databases without transactions.
    let config = command(&format!(
        "{{bulkWrite: 1, ops: [{{insert: 0, document: {{}}}}], nsInfo: [{{ns: 'config.x'}}]{}, $db: 'admin'}}",
        start(4)
    ));
    assert_eq!(client.fails(&config).0, 263);
    script(
        &mut other,
        &[(
            "{find: 'a'}",
            "{cursor: {firstBatch: [{_id: 1}], id: NumberLong('0'), ns: 'test.a'}}",
        )],
    );
}

#[test]
fn retries_also_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    client.ok(&command(
        "{insert: 'b', documents: [{_id: 1, n: 0}, {_id: 2}]}",
    ));
    let numbered = |n: i64, more: &str| {
        format!(", {LSID}, txnNumber: NumberLong('{n}'), writeConcern: {{w: 'majority'}}{more}")
    };
    let ops = "{insert: 0, document: {_id: 1}}, {insert: 0, document: {_id: 2}}, {update: 1, filter: {_id: 1}, updateMods: {$inc: {n: 1}}},
        {update: 2, filter: {_id: 7}, updateMods: {$inc: {n: 1}}, upsert: true}, {delete: 1, filter: {_id: 2}}";
    let did = [
        "{ok: 1.0, idx: 0, n: 1}",
        "{ok: 1.0, idx: 1, n: 1}",
        "{ok: 1.0, idx: 2, n: 1, nModified: 1}",
        "{ok: 1.0, idx: 3, n: 1, nModified: 0, upserted: {_id: 7}}",
        "{ok: 1.0, idx: 4, n: 1}",
    ];
    let sums = [0, 2, 1, 1, 1, 1];
    answers(&mut client, &bulk(ops, &numbered(1, "")), &did, sums);
    answers(&mut client, &bulk(ops, &numbered(1, "")), &did, sums);
    server.kill();
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    answers(&mut client, &bulk(ops, &numbered(1, "")), &did, sums);
    let again = client.ok(&bulk(ops, &numbered(1, "")));
    let retried = again
        .get("retriedStmtIds")
        .and_then(|v| v.as_array())
        .unwrap();
    assert_eq!(
        retried
            .iter()
            .filter_map(|v| v.as_i64_exact())
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    script(
        &mut client,
        &[
            (
                "{find: 'b'}",
                "{cursor: {firstBatch: [{_id: 1, n: 1}], id: NumberLong('0'), ns: 'test.b'}}",
            ),
            ("{count: 'a'}", "{n: 2}"),
        ],
    );
    // Some ops were done before, some not: the statement ids decide.
    let ops = "{update: 1, filter: {_id: 1}, updateMods: {$inc: {n: 1}}}, {insert: 0, document: {_id: 3}}, {insert: 0, document: {_id: 4}}";
    client.ok(&bulk(
        "{insert: 0, document: {_id: 3}}",
        &numbered(2, ", stmtId: 6"),
    ));
    let reply = client.ok(&bulk(ops, &numbered(2, ", stmtIds: [5, 6, 7]")));
    assert_eq!(outcome(&reply).1, [0, 2, 1, 1, 0, 0], "{reply:?}");
    let retried = reply
        .get("retriedStmtIds")
        .and_then(|v| v.as_array())
        .unwrap();
    assert_eq!(
        retried
            .iter()
            .filter_map(|v| v.as_i64_exact())
            .collect::<Vec<_>>(),
        [6]
    );
    // Updates and deletes of many documents are not retryable.
    let multi = bulk("{delete: 0, filter: {}, multi: true}", &numbered(3, ""));
    assert_eq!(client.fails(&multi).0, 72);
    let ids = bulk(
        "{delete: 0, filter: {_id: 1}}",
        &numbered(4, ", stmtIds: [1, 2]"),
    );
    assert_eq!(client.fails(&ids).0, 72);
    script(&mut client, &[("{count: 'a'}", "{n: 4}")]);
}
