//! The arguments that all commands share, and the rules by which every command reads its own.

use super::client::script;
use super::server::Server;

#[test]
fn null_counts_as_absent() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{insert: 'c', documents: [{_id: 1}, {_id: 2}]}", "{n: 2}"),
            (
                "{find: 'c', limit: null, skip: undefined, batchSize: null, collation: null, min: null, \
                 let: null, maxTimeMS: null, readConcern: null, singleBatch: null}",
                "{ok: 1.0}",
            ),
            ("{count: 'c', limit: null, collation: null}", "{n: 2}"),
            ("{count: 'c', readConcern: {level: null}}", "{n: 2}"),
            (
                "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {a: 1}}, arrayFilters: null, collation: null, \
                 upsert: null}], writeConcern: null}",
                "{n: 1, nModified: 1}",
            ),
            (
                "{delete: 'c', deletes: [{q: {_id: 9}, limit: 1, collation: undefined}], let: null}",
                "{n: 0}",
            ),
            (
                "{findAndModify: 'c', query: {_id: 1}, update: {$set: {a: 2}}, arrayFilters: null}",
                "{ok: 1.0}",
            ),
            (
                "{aggregate: 'c', pipeline: [], cursor: {batchSize: null}, collation: null}",
                "{ok: 1.0}",
            ),
            // A required one is then missing.
            ("{distinct: 'c', key: null}", "{code: 40414}"),
            ("{insert: 'c', documents: null}", "{code: 40414}"),
            (
                "{delete: 'c', deletes: [{q: {}, limit: null}]}",
                "{code: 40414}",
            ),
            // Null is a wrong hint, pipeline and update.
            ("{find: 'c', hint: null}", "{code: 9}"),
            ("{aggregate: 'c', pipeline: null, cursor: {}}", "{code: 14}"),
            ("{update: 'c', updates: [{q: {}, u: null}]}", "{code: 9}"),
            ("{create: 'd', clusteredIndex: null}", "{code: 14}"),
            ("{create: 'd', expireAfterSeconds: null}", "{code: 14}"),
            ("{create: 't', timeseries: {timeField: 't'}}", "{ok: 1.0}"),
            ("{collMod: 't', expireAfterSeconds: null}", "{code: 14}"),
            ("{create: 'v', viewOn: 'c', pipeline: null}", "{ok: 1.0}"),
            ("{collMod: 'v', viewOn: null, pipeline: null}", "{ok: 1.0}"),
            (
                "{renameCollection: null, to: 'test.x', $db: 'admin'}",
                "{code: 40414}",
            ),
        ],
    );
}

#[test]
fn numbers_are_rounded_by_their_type() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}, {_id: 4}, {_id: 5}]}",
                "{n: 5}",
            ),
            ("{count: 'c', skip: 2.9}", "{n: 3}"),
            ("{count: 'c', skip: NumberDecimal('2.5')}", "{n: 3}"),
            ("{count: 'c', skip: NumberDecimal('3.5')}", "{n: 1}"),
            ("{count: 'c', skip: NumberDecimal('2.51')}", "{n: 2}"),
            ("{count: 'c', skip: NaN}", "{n: 5}"),
            ("{count: 'c', skip: NumberDecimal('NaN')}", "{n: 5}"),
            ("{count: 'c', skip: NumberDecimal('1E+40')}", "{n: 0}"),
            ("{count: 'c', skip: -1}", "{code: 2}"),
            (
                "{count: 'c', skip: NumberDecimal('-Infinity')}",
                "{code: 2}",
            ),
            ("{count: 'c', skip: 'x'}", "{code: 14}"),
            // The limit of a count is an integer.
            ("{count: 'c', limit: -2}", "{n: 2}"),
            ("{count: 'c', limit: 1.5}", "{code: 9}"),
            ("{count: 'c', limit: NaN}", "{code: 9}"),
            ("{count: 'c', limit: 'x'}", "{code: 2}"),
            (
                "{count: 'c', limit: NumberLong('-9223372036854775808')}",
                "{code: 2}",
            ),
        ],
    );
}

#[test]
fn the_time_limit() {
    let server = Server::start();
    let mut client = server.client();
    for command in [
        "ping: 1",
        "find: 'c'",
        "startSession: 1",
        "listCollections: 1",
    ] {
        let rows = [
            ("0", "{ok: 1.0}"),
            ("1000.0", "{ok: 1.0}"),
            ("NumberDecimal('2147483647')", "{ok: 1.0}"),
            ("null", "{ok: 1.0}"),
            ("true", "{code: 14}"),
            ("'1'", "{code: 14}"),
            ("{}", "{code: 14}"),
            ("1.5", "{code: 9}"),
            ("NaN", "{code: 9}"),
            ("Infinity", "{code: 9}"),
            ("NumberDecimal('1E+30')", "{code: 9}"),
            ("-1", "{code: 2}"),
            ("2147483648", "{code: 2}"),
        ];
        for (limit, reply) in rows {
            script(
                &mut client,
                &[(&format!("{{{command}, maxTimeMS: {limit}}}"), reply)],
            );
        }
    }
}

#[test]
fn booleans_that_are_no_numbers() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{insert: 'c', documents: [{_id: 1}]}", "{n: 1}"),
            ("{find: 'c', singleBatch: 1}", "{code: 14}"),
            ("{find: 'c', allowDiskUse: 1}", "{code: 14}"),
            ("{insert: 'c', documents: [{}], ordered: 1}", "{code: 14}"),
            (
                "{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}, multi: 1}]}",
                "{code: 14}",
            ),
            (
                "{aggregate: 'c', pipeline: [], cursor: {}, allowDiskUse: 0}",
                "{code: 14}",
            ),
            // Where MongoDB takes numbers for truth.
            (
                "{findAndModify: 'c', query: {_id: 1}, update: {$set: {a: 1}}, new: 1, upsert: 0}",
                "{ok: 1.0}",
            ),
            (
                "{insert: 'c', documents: [{_id: 2}], bypassDocumentValidation: 1}",
                "{n: 1}",
            ),
        ],
    );
}

#[test]
fn read_concerns() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        ("find: 'c'", "level: 'majority'", "{ok: 1.0}"),
        ("count: 'c'", "level: 'available'", "{ok: 1.0}"),
        ("count: 'c'", "level: 'snapshot'", "{code: 72}"),
        ("ping: 1", "level: 'local'", "{ok: 1.0}"),
        ("ping: 1", "level: 'majority'", "{code: 72}"),
        ("listCollections: 1", "level: 'available'", "{code: 72}"),
        ("startSession: 1", "level: 'linearizable'", "{code: 72}"),
        ("find: 'c'", "level: 'nearby'", "{code: 2}"),
        ("find: 'c'", "level: 1", "{code: 14}"),
        ("find: 'c'", "atClusterTime: 1", "{code: 14}"),
        ("find: 'c'", "atClusterTime: null", "{code: 14}"),
        ("find: 'c'", "atClusterTime: Timestamp(1, 1)", "{code: 72}"),
        ("find: 'c'", "afterClusterTime: null", "{code: 14}"),
        ("find: 'c'", "provenance: 'clientSupplied'", "{ok: 1.0}"),
        ("find: 'c'", "provenance: 'elsewhere'", "{code: 2}"),
        ("find: 'c'", "provenance: 5", "{code: 14}"),
        ("find: 'c'", "other: 5", "{code: 40415}"),
        (
            "aggregate: 'c', pipeline: [{$out: 'd'}], cursor: {}",
            "level: 'linearizable'",
            "{code: 72}",
        ),
        (
            "aggregate: 'c', pipeline: [{$planCacheStats: {}}], cursor: {}",
            "level: 'majority'",
            "{code: 72}",
        ),
        (
            "aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}",
            "level: 'local'",
            "{ok: 1.0}",
        ),
        (
            "aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}",
            "level: 'local'",
            "{code: 72}",
        ),
    ];
    for (command, concern, reply) in rows {
        script(
            &mut client,
            &[(&format!("{{{command}, readConcern: {{{concern}}}}}"), reply)],
        );
    }
}

#[test]
fn write_concerns() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        ("w: 1.9", "{ok: 1.0}"),
        ("w: -0.5", "{ok: 1.0}"),
        ("w: NumberDecimal('1.4')", "{ok: 1.0}"),
        ("w: NumberDecimal('1.5')", "{code: 2}"),
        ("w: 50.9", "{code: 2}"),
        ("w: 51", "{code: 9}"),
        ("w: -1", "{code: 9}"),
        ("w: NaN", "{code: 9}"),
        ("w: true", "{code: 9}"),
        ("w: null", "{code: 2}"),
        ("w: 'some'", "{code: 2}"),
        ("w: {east: 1, west: 2.5}", "{ok: 1.0}"),
        ("w: {}", "{code: 9}"),
        ("w: {east: 'x'}", "{code: 9}"),
        ("j: null", "{ok: 1.0}"),
        ("j: 'x'", "{code: 14}"),
        ("wtimeout: 'x'", "{ok: 1.0}"),
        ("wtimeout: NaN", "{ok: 1.0}"),
        ("wtimeout: -5", "{ok: 1.0}"),
        ("wtimeout: 2147483648", "{code: 9}"),
        ("provenance: 'x'", "{code: 2}"),
        ("provenance: 1", "{code: 14}"),
    ];
    for (concern, reply) in rows {
        script(
            &mut client,
            &[(
                &format!(
                    "{{update: 'c', updates: [{{q: {{}}, u: {{$set: {{a: 1}}}}}}], writeConcern: {{{concern}}}}}"
                ),
                reply,
            )],
        );
    }
    // Commands that do not write take none, not even an empty one.
    for command in [
        "find: 'c'",
        "count: 'c'",
        "listCollections: 1",
        "startSession: 1",
        "killAllSessions: []",
    ] {
        script(
            &mut client,
            &[
                (&format!("{{{command}, writeConcern: {{}}}}"), "{code: 72}"),
                (&format!("{{{command}, writeConcern: null}}"), "{ok: 1.0}"),
            ],
        );
    }
    script(
        &mut client,
        &[
            (
                "{aggregate: 'c', pipeline: [{$out: 'd'}], explain: true, writeConcern: {w: 1}}",
                "{code: 9}",
            ),
            // Without acknowledgement there is no error either.
            (
                "{update: 'c', updates: [{q: {}, u: {a: 1}, multi: true}], writeConcern: {w: 0}}",
                "{ok: 1.0, writeErrors: '(absent)'}",
            ),
        ],
    );
}

#[test]
fn unknown_arguments() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{hello: 1, newerThanThis: 1}", "{ok: 1.0}"),
            ("{listCommands: 1, x: 1}", "{ok: 1.0}"),
            ("{killAllSessions: [], $x: 1}", "{ok: 1.0}"),
            ("{ping: 1, x: 1}", "{code: 40415}"),
            ("{find: 'c', x: 1}", "{code: 40415}"),
            ("{endSessions: [], x: 1}", "{code: 40415}"),
        ],
    );
}

#[test]
fn the_stable_api() {
    let server = Server::start();
    let mut client = server.client();
    let strict = |command: &str| format!("{{{command}, apiVersion: '1', apiStrict: true}}");
    let rows = [
        ("ping: 1", "{ok: 1.0}"),
        (
            "insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]",
            "{n: 3}",
        ),
        ("find: 'c', filter: {_id: 1}", "{ok: 1.0}"),
        ("find: 'c', showRecordId: true", "{code: 323}"),
        ("distinct: 'c', key: 'a'", "{code: 323}"),
        ("buildInfo: 1", "{code: 323}"),
        ("startSession: 1", "{code: 323}"),
        ("isMaster: 1", "{code: 323}"),
        ("findandmodify: 'c', remove: true", "{code: 323}"),
        ("create: 'd', capped: true, size: 4096", "{code: 323}"),
        ("create: 'd'", "{ok: 1.0}"),
        (
            "createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a', sparse: true}]",
            "{code: 323}",
        ),
        (
            "createIndexes: 'c', indexes: [{key: {a: 'text'}, name: 'a'}]",
            "{code: 323}",
        ),
        (
            "aggregate: 'c', pipeline: [{$indexStats: {}}], cursor: {}",
            "{code: 323}",
        ),
        (
            "aggregate: 'c', pipeline: [{$collStats: {count: {}}}], cursor: {}",
            "{ok: 1.0}",
        ),
        (
            "aggregate: 'c', pipeline: [{$collStats: {latencyStats: {}}}], cursor: {}",
            "{code: 323}",
        ),
        (
            "aggregate: 'c', pipeline: [{$lookup: {from: 'c', as: 'x', pipeline: [{$indexStats: {}}]}}], cursor: {}",
            "{code: 323}",
        ),
        (
            "aggregate: 'c', pipeline: [{$facet: {x: [{$planCacheStats: {}}]}}], cursor: {}",
            "{code: 323}",
        ),
        ("explain: {find: 'c'}", "{ok: 1.0}"),
        ("explain: {distinct: 'c', key: 'a'}", "{code: 323}"),
    ];
    for (command, reply) in rows {
        script(&mut client, &[(&strict(command), reply)]);
    }
    script(
        &mut client,
        &[
            ("{ping: 1, apiVersion: '2'}", "{code: 322}"),
            ("{ping: 1, apiVersion: 1}", "{code: 14}"),
            ("{ping: 1, apiStrict: true}", "{code: 4886600}"),
            ("{ping: 1, apiDeprecationErrors: false}", "{code: 4886600}"),
            (
                "{distinct: 'c', key: 'a', apiVersion: '1', apiStrict: false}",
                "{ok: 1.0}",
            ),
        ],
    );
    let commands = client.ok(&super::client::command("{listCommands: 1}"));
    let commands = commands
        .get("commands")
        .and_then(|v| v.as_document())
        .unwrap();
    for (name, versions) in [("find", 1), ("distinct", 0)] {
        let command = commands.get(name).and_then(|v| v.as_document()).unwrap();
        let listed = command
            .get("apiVersions")
            .and_then(|v| v.as_array())
            .unwrap();
        assert_eq!(listed.iter().count(), versions, "{name}");
    }
}

#[test]
fn a_cursor_is_read_with_the_api_it_was_opened_with() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[(
            "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
            "{n: 3}",
        )],
    );
    let id = open(&mut client, "{find: 'c', batchSize: 1, apiVersion: '1'}");
    let more =
        |api: &str| format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 1{api}}}");
    script(
        &mut client,
        &[
            (&more(""), "{code: 347}"),
            (&more(", apiVersion: '1', apiStrict: true"), "{code: 347}"),
            (&more(", apiVersion: '1', apiStrict: false"), "{ok: 1.0}"),
        ],
    );
}

fn open(client: &mut super::client::Client, command: &str) -> i64 {
    let reply = client.ok(&super::client::command(command));
    let cursor = reply.get("cursor").and_then(|v| v.as_document()).unwrap();
    cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap()
}

#[test]
fn cursors_over_what_is_gone() {
    let server = Server::start();
    let mut client = server.client();
    let fill = "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}";
    let more = |id: i64| format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
    for gone in [
        "{drop: 'c'}",
        "{dropDatabase: 1}",
        "{renameCollection: 'test.c', to: 'test.d', dropTarget: true, $db: 'admin'}",
    ] {
        script(&mut client, &[(fill, "{n: 3}")]);
        let read = open(&mut client, "{find: 'c', batchSize: 1}");
        let killed = open(&mut client, "{find: 'c', batchSize: 1}");
        let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{killed}')]}}");
        let listed = format!("{{cursorsKilled: [NumberLong('{killed}')], cursorsNotFound: []}}");
        script(
            &mut client,
            &[
                (gone, "{ok: 1.0}"),
                (&more(read), "{code: 175}"),
                (&more(read), "{code: 43}"),
                (&kill, &listed),
            ],
        );
    }
    // A wrong id fails the command before any cursor is closed.
    script(&mut client, &[(fill, "{n: 3}")]);
    let id = open(&mut client, "{find: 'c', batchSize: 1}");
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}'), 'x']}}");
    script(
        &mut client,
        &[(&kill, "{code: 14}"), (&more(id), "{ok: 1.0}")],
    );
}

#[test]
fn users_of_kill_all_sessions() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        ("{user: 'a', db: 'b'}", "{ok: 1.0}"),
        ("null", "{ok: 1.0}"),
        ("{}", "{code: 40414}"),
        ("{user: 'a'}", "{code: 40414}"),
        ("{user: null, db: 'b'}", "{code: 40414}"),
        ("{user: 5, db: 'b'}", "{code: 14}"),
        ("{user: 'a', db: 'b', more: 1}", "{code: 40415}"),
        ("'a'", "{code: 14}"),
    ];
    for (user, reply) in rows {
        script(
            &mut client,
            &[(&format!("{{killAllSessions: [{user}]}}"), reply)],
        );
    }
}

#[test]
fn the_uuid_of_a_collection() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{insert: 'c', documents: [{_id: 1}]}", "{n: 1}"),
            ("{insert: 'other', documents: [{_id: 1}]}", "{n: 1}"),
        ],
    );
    let listed = client.ok(&super::client::command(
        "{listCollections: 1, filter: {name: 'c'}}",
    ));
    let cursor = listed.get("cursor").and_then(|v| v.as_document()).unwrap();
    let batch = cursor.get("firstBatch").and_then(|v| v.as_array()).unwrap();
    let entry = batch.iter().next().and_then(|v| v.as_document()).unwrap();
    let info = entry.get("info").and_then(|v| v.as_document()).unwrap();
    let uuid = sheaf_bson::json::shell(info.get("uuid").unwrap());
    let of = |command: &str| command.replace("$U", &format!("collectionUUID: {uuid}"));
    script(
        &mut client,
        &[
            (&of("{find: 'c', $U}"), "{ok: 1.0}"),
            (
                &of("{find: 'other', $U}"),
                &format!(
                    "{{code: 361, db: 'test', collectionUUID: {uuid}, expectedCollection: 'other', \
                     actualCollection: 'c'}}"
                ),
            ),
            (&of("{count: 'missing', $U}"), "{code: 361}"),
            (
                &of("{aggregate: 'other', pipeline: [], cursor: {}, $U}"),
                "{code: 361}",
            ),
            (&of("{drop: 'other', $U}"), "{code: 361}"),
            (
                &of("{renameCollection: 'test.other', to: 'test.new', $U, $db: 'admin'}"),
                "{code: 361}",
            ),
            (&of("{insert: 'c', documents: [{_id: 2}], $U}"), "{n: 1}"),
            (
                &of("{insert: 'other', documents: [{_id: 2}], $U}"),
                "{ok: 1.0, n: 0}",
            ),
            (
                "{find: 'other', filter: {_id: 2}, singleBatch: true, limit: 1}",
                "{ok: 1.0}",
            ),
            ("{count: 'other'}", "{n: 1}"),
            (
                &of(
                    "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 3}}], nsInfo: [{ns: 'test.other', $U}], \
                     $db: 'admin'}",
                ),
                "{nErrors: 1, nInserted: 0}",
            ),
            ("{find: 'c', collectionUUID: 'x'}", "{code: 14}"),
            ("{find: 'c', collectionUUID: null}", "{ok: 1.0}"),
            (&of("{ping: 1, $U}"), "{code: 40415}"),
        ],
    );
}

#[test]
fn empty_timestamps_that_are_kept() {
    let server = Server::start();
    let mut client = server.client();
    let zeros = "{count: 'c', query: {t: Timestamp(0, 0)}}";
    script(
        &mut client,
        &[
            (
                "{insert: 'c', documents: [{_id: 1, t: Timestamp(0, 0)}]}",
                "{n: 1}",
            ),
            (zeros, "{n: 0}"),
            (
                "{insert: 'c', documents: [{_id: 2, t: Timestamp(0, 0)}], bypassEmptyTsReplacement: true}",
                "{n: 1}",
            ),
            (zeros, "{n: 1}"),
            (
                "{update: 'c', updates: [{q: {_id: 1}, u: {t: Timestamp(0, 0)}}], bypassEmptyTsReplacement: true}",
                "{n: 1}",
            ),
            (zeros, "{n: 2}"),
            (
                "{update: 'c', updates: [{q: {_id: 1}, u: {t: Timestamp(0, 0)}}]}",
                "{n: 1}",
            ),
            (zeros, "{n: 1}"),
            (
                "{findAndModify: 'c', query: {_id: 3}, update: {t: Timestamp(0, 0)}, upsert: true, \
                 bypassEmptyTsReplacement: true}",
                "{ok: 1.0}",
            ),
            (zeros, "{n: 2}"),
        ],
    );
}

#[test]
fn what_tools_send() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{create: 'm', timeseries: {timeField: 't'}, capped: false}",
                "{ok: 1.0}",
            ),
            (
                "{create: 'n', timeseries: {timeField: 't'}, capped: true, size: 4096}",
                "{code: 72}",
            ),
            ("{create: 't', temp: true}", "{ok: 1.0}"),
            (
                "{createIndexes: 't', indexes: [{key: {a: 1}, name: 'a'}], v: 2}",
                "{numIndexesAfter: 2}",
            ),
            (
                "{delete: 't', deletes: [{q: {}, limit: 0}], bypassDocumentValidation: true}",
                "{n: 0}",
            ),
            (
                "{findAndModify: 't', query: {_id: 1}, remove: true, batchSize: 1, singleBatch: true}",
                "{ok: 1.0}",
            ),
            ("{find: 't', readOnce: true, mirrored: true}", "{ok: 1.0}"),
            ("{distinct: 't', key: 'a', mirrored: false}", "{ok: 1.0}"),
            ("{count: 't', mirrored: false}", "{n: 0}"),
            ("{hello: 1, hangUpOnStepDown: false}", "{ok: 1.0}"),
        ],
    );
}

#[test]
fn values_of_let() {
    let server = Server::start();
    let mut client = server.client();
    let aggregate =
        |vars: &str| format!("{{aggregate: 'c', pipeline: [], cursor: {{}}, let: {vars}}}");
    for (vars, reply) in [
        ("{x: {$add: [1, 2]}}", "{ok: 1.0}"),
        ("{x: '$$NOW'}", "{code: 51144}"),
        ("{NOW: 1}", "{code: 4738901}"),
        ("{ROOT: 1}", "{code: 9}"),
    ] {
        script(&mut client, &[(&aggregate(vars), reply)]);
    }
    let find = "{find: 'c', filter: {$expr: {$lt: ['$a', '$$NOW']}}, let: {x: 1}}";
    script(&mut client, &[(find, "{ok: 1.0}")]);
}

#[test]
fn explained_commands() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            ("{explain: null}", "{code: 40414}"),
            ("{explain: {}}", "{code: 59}"),
            ("{explain: {nosuch: 1}}", "{code: 59}"),
            ("{explain: {ping: 1}}", "{code: 20}"),
            ("{explain: {find: 'c'}, verbosity: null}", "{ok: 1.0}"),
            (
                "{explain: {find: 'c', limit: null, collation: null}}",
                "{ok: 1.0}",
            ),
        ],
    );
}

#[test]
fn arguments_of_the_ends_of_transactions() {
    let server = Server::start();
    let mut client = server.client();
    for command in ["commitTransaction: 1", "abortTransaction: 1"] {
        script(
            &mut client,
            &[
                (&format!("{{{command}, $db: 'admin'}}"), "{code: 125}"),
                (
                    &format!("{{{command}, recoveryToken: {{}}, $db: 'admin'}}"),
                    "{code: 125}",
                ),
                // What is unknown is refused before that.
                (
                    &format!("{{{command}, x: 1, $db: 'admin'}}"),
                    "{code: 40415}",
                ),
                (
                    &format!("{{{command}, TxnNumber: 1, $db: 'admin'}}"),
                    "{code: 40415}",
                ),
            ],
        );
    }
}

#[test]
fn results_of_a_bulk_write_that_do_not_fit_a_batch() {
    let server = Server::start();
    let mut client = server.client();
    let ops = "{insert: 0, document: {_id: 1}}, {insert: 0, document: {_id: 2}}, {insert: 0, document: {_id: 3}}";
    let id = open(
        &mut client,
        &format!(
            "{{bulkWrite: 1, ops: [{ops}], nsInfo: [{{ns: 'test.c'}}], cursor: {{batchSize: 1}}, $db: 'admin'}}"
        ),
    );
    let more =
        format!("{{getMore: NumberLong('{id}'), collection: '$cmd.bulkWrite', $db: 'admin'}}");
    let batch = "{cursor: {nextBatch: [{ok: 1.0, idx: 1, n: 1}, {ok: 1.0, idx: 2, n: 1}], \
                 id: NumberLong('0'), ns: 'admin.$cmd.bulkWrite'}}";
    script(&mut client, &[(&more, batch)]);
}

#[test]
fn constants_are_for_pipelines() {
    let server = Server::start();
    let mut client = server.client();
    let error = "51198";
    script(
        &mut client,
        &[
            ("{insert: 'c', documents: [{_id: 1}]}", "{n: 1}"),
            (
                "{bulkWrite: 1, ops: [{update: 0, filter: {_id: 1}, updateMods: {$set: {a: 1}}, constants: {v: 1}}], \
                 nsInfo: [{ns: 'test.c'}], $db: 'admin'}",
                "{ok: 1.0, nErrors: 1, nModified: 0}",
            ),
            // A value that is not an update fails the whole command.
            (
                "{bulkWrite: 1, ops: [{update: 0, filter: {_id: 1}, updateMods: 5}], \
                 nsInfo: [{ns: 'test.c'}], $db: 'admin'}",
                "{ok: 0.0, code: 9}",
            ),
        ],
    );
    let update = "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {a: 1}}, c: {v: 1}}]}";
    let reply = client.ok(&super::client::command(update));
    assert!(format!("{reply:?}").contains(error), "{reply:?}");
}
