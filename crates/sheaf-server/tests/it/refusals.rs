//! Invalid commands are refused with a code, and the server continues.
//!
//! One row per mistake: the command, MongoDB's code, and a part of the message that a reader needs.
//! The connection is the same throughout.

use sheaf_bson::json::parse_doc;
use sheaf_bson::{DocBuf, DocBuilder, doc};

use super::client::{Client, command, script};
use super::server::Server;

type Row = (&'static str, i64, &'static str);

/// A command in shell notation, to a database.
fn on(db: &str, command: &str) -> DocBuf {
    let command = parse_doc(command).unwrap_or_else(|e| panic!("{command}: {e}"));
    let mut out = DocBuilder::from_doc(command.as_raw());
    if command.get("$db").is_none() {
        out.append("$db", db);
    }
    out.finish()
}

fn check(client: &mut Client, db: &str, rows: &[Row]) {
    let mut wrong = Vec::new();
    for (command, code, part) in rows {
        let reply = client.run(&on(db, command));
        let message = reply.body.get("errmsg").and_then(|v| v.as_str());
        let message = message.unwrap_or("");
        if reply.is_ok() || reply.code() != *code || !message.contains(part) {
            wrong.push(format!(
                "{command}\n    wanted {code} '{part}', got {:?}",
                reply.body
            ));
        } else {
            assert!(!reply.code_name().is_empty(), "{:?}", reply.body);
        }
    }
    assert!(client.run(&doc! {"ping": 1, "$db": "admin"}).is_ok());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn prepared(server: &Server) -> Client {
    let mut client = server.client();
    for command in [
        "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 2}, {_id: 3, a: 3}]}",
        "{insert: 'other', documents: [{_id: 1}]}",
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}, {key: {u: 1}, name: 'u', unique: true, sparse: true}]}",
    ] {
        client.ok(&on("test", command));
    }
    client
}

#[test]
fn fields_of_commands() {
    let server = Server::start();
    let mut client = prepared(&server);
    check(
        &mut client,
        "test",
        &[
            ("{nosuch: 1}", 59, "nosuch"),
            ("{find: 'c', nosuch: 1}", 40415, "find.nosuch"),
            (
                "{insert: 'c', documents: [{}], nosuch: 1}",
                40415,
                "insert.nosuch",
            ),
            (
                "{update: 'c', updates: [{q: {}, u: {a: 1}}], nosuch: 1}",
                40415,
                "update.nosuch",
            ),
            (
                "{update: 'c', updates: [{q: {}, u: {a: 1}, nosuch: 1}]}",
                40415,
                "nosuch",
            ),
            (
                "{delete: 'c', deletes: [{q: {}, limit: 1}], nosuch: 1}",
                40415,
                "delete.nosuch",
            ),
            (
                "{delete: 'c', deletes: [{q: {}, limit: 1, nosuch: 1}]}",
                40415,
                "nosuch",
            ),
            (
                "{findAndModify: 'c', remove: true, nosuch: 1}",
                40415,
                "nosuch",
            ),
            (
                "{aggregate: 'c', pipeline: [], cursor: {}, nosuch: 1}",
                40415,
                "aggregate.nosuch",
            ),
            (
                "{aggregate: 'c', pipeline: [], cursor: {nosuch: 1}}",
                40415,
                "nosuch",
            ),
            ("{count: 'c', nosuch: 1}", 40415, "count.nosuch"),
            (
                "{distinct: 'c', key: 'a', nosuch: 1}",
                40415,
                "distinct.nosuch",
            ),
            (
                "{getMore: {$numberLong: '1'}, collection: 'c', nosuch: 1}",
                40415,
                "getMore.nosuch",
            ),
            (
                "{killCursors: 'c', cursors: [], nosuch: 1}",
                40415,
                "killCursors.nosuch",
            ),
            ("{create: 'new', nosuch: 1}", 40415, "nosuch"),
            ("{drop: 'c', nosuch: 1}", 40415, "nosuch"),
            (
                "{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b'}], nosuch: 1}",
                40415,
                "nosuch",
            ),
            ("{listIndexes: 'c', nosuch: 1}", 40415, "nosuch"),
            (
                "{dropIndexes: 'c', index: 'a_1', nosuch: 1}",
                40415,
                "nosuch",
            ),
            ("{listCollections: 1, nosuch: 1}", 40415, "nosuch"),
            ("{collMod: 'c', nosuch: 1}", 40415, "nosuch"),
            // Wrong types.
            ("{find: 'c', filter: 1}", 14, "find.filter"),
            ("{find: 'c', sort: 'a'}", 14, "find.sort"),
            ("{find: 'c', limit: 'x'}", 14, "find.limit"),
            ("{find: 'c', batchSize: {}}", 14, "find.batchSize"),
            ("{find: 'c', singleBatch: 'x'}", 14, "find.singleBatch"),
            ("{find: 'c', projection: 5}", 14, "find.projection"),
            ("{insert: 'c', documents: 5}", 14, "insert.documents"),
            ("{insert: 'c', documents: [5]}", 14, "documents"),
            (
                "{insert: 'c', documents: [{}], ordered: 'x'}",
                14,
                "insert.ordered",
            ),
            ("{update: 'c', updates: [{q: 1, u: {a: 1}}]}", 14, "q"),
            (
                "{update: 'c', updates: [{q: {}, u: {a: 1}, multi: 'x'}]}",
                14,
                "multi",
            ),
            ("{delete: 'c', deletes: [{q: 1, limit: 1}]}", 14, "q"),
            ("{aggregate: 'c', pipeline: 1, cursor: {}}", 14, "pipeline"),
            ("{distinct: 'c', key: 1}", 14, "distinct.key"),
            ("{getMore: 'x', collection: 'c'}", 14, "getMore"),
            (
                "{getMore: {$numberLong: '1'}, collection: 5}",
                14,
                "getMore.collection",
            ),
            ("{find: 'c', lsid: 5}", 14, "lsid"),
            // Missing fields.
            ("{insert: 'c'}", 40414, "documents"),
            ("{update: 'c'}", 40414, "updates"),
            ("{update: 'c', updates: [{u: {a: 1}}]}", 40414, "q"),
            ("{update: 'c', updates: [{q: {}}]}", 40414, "u"),
            ("{delete: 'c'}", 40414, "deletes"),
            ("{delete: 'c', deletes: [{limit: 1}]}", 40414, "q"),
            ("{delete: 'c', deletes: [{q: {}}]}", 40414, "limit"),
            ("{distinct: 'c'}", 40414, "key"),
            ("{aggregate: 'c', cursor: {}}", 40414, "pipeline"),
            ("{getMore: {$numberLong: '1'}}", 40414, "collection"),
            ("{killCursors: 'c'}", 40414, "cursors"),
            ("{createIndexes: 'c'}", 40414, "indexes"),
            ("{dropIndexes: 'c'}", 40414, "index"),
            // Numbers out of range.
            ("{find: 'c', limit: -1}", 2, "limit"),
            ("{find: 'c', skip: -1}", 2, "skip"),
            ("{find: 'c', batchSize: -1}", 2, "batchSize"),
            (
                "{getMore: {$numberLong: '1'}, collection: 'c', batchSize: -1}",
                2,
                "batchSize",
            ),
            ("{count: 'c', skip: -1}", 2, "skip"),
            ("{find: 'c', maxTimeMS: -1}", 2, "maxTimeMS"),
            ("{find: 'c', maxTimeMS: 2147483648}", 2, "maxTimeMS"),
            ("{find: 'c', maxTimeMS: 1.5}", 9, "maxTimeMS"),
            ("{find: 'c', maxTimeMS: 'x'}", 14, "maxTimeMS"),
            ("{insert: 'c', documents: []}", 16, "between 1 and 100000"),
            ("{update: 'c', updates: []}", 16, "between 1 and 100000"),
            ("{delete: 'c', deletes: []}", 16, "between 1 and 100000"),
            // Concerns.
            (
                "{insert: 'c', documents: [{}], writeConcern: {w: 2}}",
                2,
                "w",
            ),
            (
                "{insert: 'c', documents: [{}], writeConcern: {w: 'nosuch'}}",
                2,
                "non-majority 'w' mode",
            ),
            (
                "{insert: 'c', documents: [{}], writeConcern: {w: -1}}",
                9,
                "w",
            ),
            ("{find: 'c', readConcern: {level: 'nosuch'}}", 2, "nosuch"),
            (
                "{count: 'c', readConcern: {level: 'snapshot'}}",
                72,
                "snapshot",
            ),
        ],
    );
}

#[test]
fn queries_and_pipelines() {
    let server = Server::start();
    let mut client = prepared(&server);
    check(
        &mut client,
        "test",
        &[
            ("{find: 'c', filter: {a: {$foo: 1}}}", 2, "$foo"),
            ("{find: 'c', filter: {$foo: 1}}", 2, "$foo"),
            ("{find: 'c', filter: {a: {$in: 1}}}", 2, "$in"),
            ("{find: 'c', filter: {$and: []}}", 2, "$and"),
            ("{find: 'c', filter: {$or: 1}}", 2, "$or"),
            (
                "{find: 'c', filter: {a: {$regex: '('}}}",
                51091,
                "Regular expression is invalid",
            ),
            (
                "{find: 'c', filter: {a: {$regex: 'a', $options: 'Q'}}}",
                51108,
                "Q",
            ),
            ("{find: 'c', filter: {a: {$mod: [0, 1]}}}", 2, "divisor"),
            ("{find: 'c', filter: {a: {$size: -1}}}", 2, "$size"),
            ("{find: 'c', filter: {a: {$type: 'nosuch'}}}", 2, "nosuch"),
            ("{find: 'c', filter: {$expr: {$nosuch: 1}}}", 168, "$nosuch"),
            ("{find: 'c', filter: {$expr: '$$nosuch'}}", 17276, "nosuch"),
            ("{find: 'c', sort: {a: 2}}", 15975, "sort"),
            ("{find: 'c', sort: {a: 'x'}}", 15974, "sort"),
            ("{find: 'c', projection: {a: 1, b: 0}}", 31254, "b"),
            ("{find: 'c', projection: {b: 0, a: 1}}", 31253, "a"),
            ("{find: 'c', projection: {a: 1, 'a.b': 1}}", 31249, "a.b"),
            (
                "{find: 'c', projection: {a: {$nosuch: 1}}}",
                31325,
                "$nosuch",
            ),
            ("{find: 'c', hint: 'nosuch'}", 2, "hint"),
            ("{find: 'c', hint: {nosuch: 1}}", 2, "hint"),
            ("{find: 'c', hint: 5}", 9, "hint"),
            ("{find: 'c', min: {a: 1}}", 51173, "hint"),
            ("{find: 'c', collation: {locale: 'xx'}}", 2, "'xx'"),
            ("{find: 'c', collation: {strength: 1}}", 40414, "locale"),
            (
                "{find: 'c', collation: {locale: 'fr', strengths: 1}}",
                40415,
                "strengths",
            ),
            ("{find: 'c', collation: 'fr'}", 14, "collation"),
            (
                "{find: 'c', collation: {locale: 'fr', version: '153.80'}}",
                161,
                "version",
            ),
            ("{find: 'c', filter: {a: {$near: [0, 0]}}}", 238, "$near"),
            (
                "{aggregate: 'c', pipeline: [{$foo: 1}], cursor: {}}",
                40324,
                "$foo",
            ),
            (
                "{aggregate: 'c', pipeline: [{$match: {}, $limit: 1}], cursor: {}}",
                40323,
                "exactly one field",
            ),
            (
                "{aggregate: 'c', pipeline: [{}], cursor: {}}",
                40323,
                "exactly one field",
            ),
            (
                "{aggregate: 'c', pipeline: [{$limit: 0}], cursor: {}}",
                15958,
                "limit",
            ),
            (
                "{aggregate: 'c', pipeline: [{$skip: -1}], cursor: {}}",
                5107200,
                "skip",
            ),
            (
                "{aggregate: 'c', pipeline: [{$group: {}}], cursor: {}}",
                15955,
                "_id",
            ),
            (
                "{aggregate: 'c', pipeline: [{$group: {_id: 1, n: {$foo: 1}}}], cursor: {}}",
                15952,
                "$foo",
            ),
            (
                "{aggregate: 'c', pipeline: [{$project: {}}], cursor: {}}",
                51272,
                "at least one",
            ),
            (
                "{aggregate: 'c', pipeline: [{$sort: {}}], cursor: {}}",
                15976,
                "sort",
            ),
            (
                "{aggregate: 'c', pipeline: [{$count: ''}], cursor: {}}",
                40157,
                "count",
            ),
            ("{aggregate: 'c', pipeline: []}", 9, "cursor"),
            ("{explain: {find: 'c'}, verbosity: 'nosuch'}", 2, "nosuch"),
            ("{explain: {nosuch: 1}}", 59, "nosuch"),
        ],
    );
}

#[test]
fn collections_indexes_and_cursors() {
    let server = Server::start();
    let mut client = prepared(&server);
    check(
        &mut client,
        "test",
        &[
            (
                "{getMore: {$numberLong: '123'}, collection: 'c'}",
                43,
                "123",
            ),
            (
                "{getMore: {$numberLong: '123'}, collection: ''}",
                73,
                "namespace",
            ),
            ("{listIndexes: 'nosuch'}", 26, "test.nosuch"),
            ("{dropIndexes: 'nosuch', index: '*'}", 26, "not found"),
            (
                "{collMod: 'nosuch', index: {name: 'x', hidden: true}}",
                26,
                "test.nosuch",
            ),
            ("{validate: 'nosuch'}", 26, "nosuch"),
            ("{create: ''}", 73, "namespace"),
            ("{create: 'a$b'}", 73, "a$b"),
            ("{create: '.a'}", 73, ".a"),
            ("{create: 'system.nosuch'}", 73, "system.nosuch"),
            ("{insert: '', documents: [{}]}", 73, "namespace"),
            ("{find: 5}", 73, "invalid type"),
            ("{find: 'c', $db: 'a b'}", 73, "a b"),
            ("{find: 'c', $db: ''}", 73, "database name"),
            ("{create: 'new', capped: true}", 72, "size"),
            ("{create: 'new', viewOn: '', pipeline: []}", 2, "viewOn"),
            ("{createIndexes: 'c', indexes: []}", 2, "at least one index"),
            (
                "{createIndexes: 'c', indexes: [{key: {}, name: 'x'}]}",
                67,
                "key",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {a: 0}, name: 'x'}]}",
                67,
                "a",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {a: 'nosuch'}, name: 'x'}]}",
                67,
                "nosuch",
            ),
            ("{createIndexes: 'c', indexes: [{key: {b: 1}}]}", 9, "name"),
            (
                "{createIndexes: 'c', indexes: [{key: {b: 1}, name: ''}]}",
                67,
                "name",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b', nosuch: 1}]}",
                197,
                "nosuch",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b', sparse: true, partialFilterExpression: {b: 1}}]}",
                67,
                "sparse",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'other'}]}",
                85,
                "a_1",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'a_1'}]}",
                86,
                "a_1",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1', unique: true}]}",
                86,
                "a_1",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {_id: 1}, name: '_id_', sparse: true}]}",
                197,
                "_id",
            ),
            ("{dropIndexes: 'c', index: '_id_'}", 72, "_id"),
            ("{dropIndexes: 'c', index: {_id: 1}}", 72, "_id"),
            ("{dropIndexes: 'c', index: 'nosuch'}", 27, "nosuch"),
            ("{dropIndexes: 'c', index: {nosuch: 1}}", 27, "nosuch"),
            (
                "{collMod: 'c', index: {name: 'nosuch', hidden: true}}",
                27,
                "nosuch",
            ),
            (
                "{collMod: 'c', index: {name: '_id_', hidden: true}}",
                2,
                "_id",
            ),
            ("{collMod: 'c', index: {keyPattern: {a: 1}}}", 72, "hidden"),
            ("{renameCollection: 'test.c', to: 'test.x'}", 13, "admin"),
        ],
    );
    check(
        &mut client,
        "admin",
        &[
            (
                "{renameCollection: 'test.nosuch', to: 'test.x'}",
                26,
                "nosuch",
            ),
            (
                "{renameCollection: 'test.c', to: 'test.other'}",
                48,
                "target",
            ),
            ("{renameCollection: 'test.c', to: 'test.c'}", 20, ""),
            ("{renameCollection: 'test.c', to: 'test'}", 73, "test"),
            ("{renameCollection: 'test.c'}", 40414, "to"),
            ("{setParameter: 1}", 72, "no option"),
            ("{setParameter: 1, nosuch: 1}", 72, "nosuch"),
            (
                "{setParameter: 1, journalCommitInterval: 50}",
                20,
                "journalCommitInterval",
            ),
            (
                "{setParameter: 1, cursorTimeoutMillis: 'x'}",
                14,
                "cursorTimeoutMillis",
            ),
            ("{setParameter: 1, logLevel: 9}", 2, "logLevel"),
            ("{getParameter: 1, nosuch: 1}", 72, "no option"),
            ("{getLog: 'nosuch'}", 96, "nosuch"),
            ("{getLog: 5}", 14, "getLog"),
            ("{killOp: 1}", 40414, "op"),
            ("{listDatabases: 1, filter: {a: {$foo: 1}}}", 2, "$foo"),
            ("{profile: 1, sampleRate: 2}", 2, "sampleRate"),
            ("{profile: 'x'}", 14, "profile"),
            ("{hello: 1, compression: 5}", 14, "compression"),
        ],
    );
    // Dropping what does not exist succeeds.
    assert!(client.run(&on("test", "{drop: 'nosuch'}")).is_ok());
    assert!(client.run(&on("nosuch", "{dropDatabase: 1}")).is_ok());
    // create reports an existing collection, and only if the options differ.
    client.ok(&on("test", "{create: 'c'}"));
    client.fails(&on("test", "{renameCollection: 'test.c', to: 'test.x'}"));
}

/// Rules that concern one option each.
#[test]
fn options_are_read_as_in_mongodb() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{insert: 'c', documents: [{_id: 1, x: 5, a: [1, 2, 3, 4], b: [10, 20, 30]}]}", "{n: 1}"),
            // An identical replacement is no modification, with or without _id.
            ("{update: 'c', updates: [{q: {_id: 1}, u: {_id: 1, x: 5, a: [1, 2, 3, 4], b: [10, 20, 30]}}]}",
             "{n: 1, nModified: 0}"),
            ("{update: 'c', updates: [{q: {_id: 1}, u: {x: 5, a: [1, 2, 3, 4], b: [10, 20, 30]}}]}",
             "{n: 1, nModified: 0}"),
            ("{find: 'c', filter: {a: {$gte: 3}}, projection: {'a.$': 1, b: {$slice: -2}}}", "{ok: 1.0}"),
            ("{find: 'c', filter: {a: {$gte: 3}}, projection: {'a.$': 1, a: {$slice: 2}}}", "{code: 28667}"),
            ("{create: 'd', idIndex: {key: {_id: 1}, name: '_id_', v: 2.5}}", "{code: 2}"),
            ("{create: 'd', idIndex: {key: {_id: 1}, name: '_id_', v: 3}}", "{code: 67}"),
            ("{create: 'v', viewOn: 'c', changeStreamPreAndPostImages: {enabled: false}}", "{ok: 1.0}"),
            ("{create: 'w', viewOn: 'c', changeStreamPreAndPostImages: {enabled: true}}", "{code: 72}"),
            ("{find: 'c', min: {x: 1}, hint: {$natural: 1}}", "{code: 291}"),
            ("{aggregate: 'c', cursor: {}, pipeline: [{$bucket: {groupBy: '$x', boundaries: ['$$NOW', 10]}}]}",
             "{code: 40191}"),
            ("{aggregate: 'c', cursor: {}, pipeline: [{$densify: {field: 'x', range: {step: 1, bounds: ['$$NOW', 10]}}}]}",
             "{code: 5733402}"),
            // The view of a join has another collation, also if no document is joined.
            ("{create: 'folded', viewOn: 'c', collation: {locale: 'en', strength: 2}}", "{ok: 1.0}"),
            ("{aggregate: 'none', cursor: {}, pipeline: [{$lookup: {from: 'folded', pipeline: [], as: 'j'}}]}",
             "{code: 167}"),
            ("{aggregate: 'none', cursor: {}, pipeline: [{$unionWith: 'folded'}]}", "{code: 167}"),
            ("{aggregate: 'none', cursor: {}, pipeline: [{$lookup: {from: 'folded', pipeline: [], as: 'j'}}],
               collation: {locale: 'en', strength: 2}}", "{ok: 1.0}"),
            // Only the _id index is converted.
            ("{create: 'k', clusteredIndex: {key: {_id: 1}, unique: true}}", "{ok: 1.0}"),
            ("{insert: 'k', documents: [{_id: 1}, {_id: 2}]}", "{n: 2}"),
            ("{convertToCapped: 'k', size: 4096}", "{ok: 1.0}"),
            ("{count: 'k'}", "{n: 2}"),
            ("{collStats: 'k'}", "{capped: true, clustered: '(absent)'}"),
            ("{profile: 2}", "{was: 0}"),
            ("{profile: 0}", "{was: 2}"),
            ("{listIndexes: 'system.profile'}", "{ok: 1.0}"),
        ],
    );
    let regex = format!(
        "{{create: 'r', validator: {{x: {{$regex: '{}'}}}}}}",
        "a".repeat(16_385)
    );
    script(&mut client, &[(&regex, "{code: 51091}")]);
    let top = client.ok(&command("{top: 1, $db: 'admin'}"));
    assert!(
        top.get("totals")
            .and_then(|t| t.as_document()?.get("test.folded"))
            .is_some(),
        "{top:?}"
    );
}

#[test]
fn statements_of_a_command_share_their_time() {
    let server = Server::start();
    let mut client = server.client();
    let documents: Vec<DocBuf> = (0..300).map(|n| doc! {"_id": n}).collect();
    client.ok(&doc! {"insert": "c", "documents": documents, "$db": "test"});
    let updates: Vec<DocBuf> = (0..300)
        .map(|n| doc! {"q": {"_id": n}, "u": [{"$set": {"t": "$$NOW"}}]})
        .collect();
    client.ok(&doc! {"update": "c", "updates": updates, "$db": "test"});
    let reply = client.ok(&doc! {"distinct": "c", "key": "t", "$db": "test"});
    let values = reply.get("values").and_then(|values| values.as_array());
    assert_eq!(values.map(|values| values.count()), Some(1));
}
