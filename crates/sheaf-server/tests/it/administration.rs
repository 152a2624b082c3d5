//! Commands on the whole server: locks, blocks, versions, parameters, what monitoring reads.

use std::sync::mpsc;
use std::time::Duration;

use sheaf_bson::RawValue;

use super::client::{Client, command, script};
use super::server::Server;

fn admin(text: &str) -> String {
    format!("{}, $db: 'admin'}}", text.strip_suffix('}').unwrap())
}

#[test]
fn the_lock_of_fsync_keeps_writes_out_until_it_is_released() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command("{insert: 'c', documents: [{_id: 1}]}"));
    let lock = admin("{fsync: 1, lock: true}");
    script(
        &mut client,
        &[
            (&lock, "{ok: 1.0, lockCount: NumberLong('1')}"),
            (&lock, "{ok: 1.0, lockCount: NumberLong('2')}"),
            ("{find: 'c'}", "{ok: 1.0}"),
            (
                "{insert: 'c', documents: [{_id: 2}], maxTimeMS: 50}",
                "{ok: 0.0, code: 50}",
            ),
            ("{drop: 'c', maxTimeMS: 50}", "{ok: 0.0, code: 50}"),
            (
                "{aggregate: 'c', pipeline: [{$out: 'd'}], cursor: {}, maxTimeMS: 50}",
                "{ok: 0.0, code: 50}",
            ),
            ("{aggregate: 'c', pipeline: [], cursor: {}}", "{ok: 1.0}"),
        ],
    );
    let mut waiting = server.client();
    let (written, wrote) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        let reply = waiting.run(&command("{insert: 'c', documents: [{_id: 3}]}"));
        written.send(reply.is_ok()).unwrap();
    });
    assert!(wrote.recv_timeout(Duration::from_millis(100)).is_err());
    let unlock = admin("{fsyncUnlock: 1}");
    script(
        &mut client,
        &[
            (&unlock, "{ok: 1.0, lockCount: NumberLong('1')}"),
            (&unlock, "{ok: 1.0, lockCount: NumberLong('0')}"),
            (&unlock, "{ok: 0.0, code: 20}"),
        ],
    );
    assert!(wrote.recv().unwrap());
    writer.join().unwrap();
    script(&mut client, &[("{count: 'c'}", "{n: 2}")]);
}

#[test]
fn blocked_users_cannot_write_and_the_block_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    client.ok(&command("{insert: 'c', documents: [{_id: 1}]}"));
    let block =
        admin("{setUserWriteBlockMode: 1, global: true, reason: 'DiskUseThresholdExceeded'}");
    client.ok(&command(&block));
    let refused = client
        .run(&command("{insert: 'c', documents: [{_id: 2}]}"))
        .body;
    assert_eq!(refused.get("n"), Some(RawValue::Int32(0)), "{refused:?}");
    assert!(refused.to_string().contains("371"), "{refused:?}");
    drop(client);
    server.stop();
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                "{drop: 'c'}",
                "{ok: 0.0, code: 371, codeName: 'UserWritesBlocked'}",
            ),
            ("{create: 'd'}", "{ok: 0.0, code: 371}"),
            (
                "{renameCollection: 'test.c', to: 'test.d', $db: 'admin'}",
                "{ok: 0.0, code: 371}",
            ),
            (
                "{findAndModify: 'c', query: {}, remove: true}",
                "{ok: 0.0, code: 371}",
            ),
            ("{find: 'c'}", "{ok: 1.0}"),
            (
                "{insert: 'own', documents: [{_id: 1}], $db: 'config'}",
                "{ok: 1.0, n: 1}",
            ),
            (
                &admin("{setUserWriteBlockMode: 1, global: false}"),
                "{ok: 0.0, code: 20}",
            ),
            (
                &admin(
                    "{setUserWriteBlockMode: 1, global: false, reason: 'DiskUseThresholdExceeded'}",
                ),
                "{ok: 1.0}",
            ),
            (
                &admin("{setUserWriteBlockMode: 1, global: 1}"),
                "{code: 14}",
            ),
            (&admin("{setUserWriteBlockMode: 1}"), "{code: 40414}"),
            (
                &admin("{setUserWriteBlockMode: 1, global: true, reason: 'x'}"),
                "{code: 2}",
            ),
            ("{insert: 'c', documents: [{_id: 2}]}", "{ok: 1.0, n: 1}"),
        ],
    );
}

#[test]
fn versions_and_parameters_of_the_cluster_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    let set_version = |version: &str, rest: &str| {
        admin(&format!(
            "{{setFeatureCompatibilityVersion: {version}{rest}}}"
        ))
    };
    script(
        &mut client,
        &[
            (&set_version("'8.0'", ""), "{code: 7369100}"),
            (&set_version("'8.0'", ", confirm: 0.0"), "{code: 7369100}"),
            (&set_version("'8.0'", ", confirm: 'yes'"), "{code: 14}"),
            (&set_version("'9.9'", ", confirm: true"), "{code: 4926900}"),
            (&set_version("null", ", confirm: true"), "{code: 40414}"),
            (&set_version("8.0", ", confirm: true"), "{code: 14}"),
            (&set_version("'8.0'", ", confirm: true"), "{ok: 1.0}"),
            (
                &admin("{setParameter: 1, featureCompatibilityVersion: '8.2'}"),
                "{code: 20}",
            ),
            (
                &admin("{setClusterParameter: {defaultMaxTimeMS: {readOperations: 1}}}"),
                "{ok: 1.0}",
            ),
            (&admin("{setClusterParameter: {x: {a: 1}}}"), "{code: 4}"),
            (
                &admin("{setClusterParameter: {changeStreams: {}, defaultMaxTimeMS: {}}}"),
                "{code: 72}",
            ),
            (&admin("{setClusterParameter: null}"), "{code: 40414}"),
            (&admin("{getClusterParameter: 'x'}"), "{code: 4}"),
            (&admin("{getClusterParameter: []}"), "{code: 2}"),
            (&admin("{getClusterParameter: 1}"), "{code: 14}"),
        ],
    );
    drop(client);
    server.stop();
    let server = Server::start_on(folder.path(), &[]);
    let mut client = server.client();
    script(
        &mut client,
        &[(
            &admin("{getParameter: 1, featureCompatibilityVersion: 1}"),
            "{featureCompatibilityVersion: {version: '8.0'}, ok: 1.0}",
        )],
    );
    let reply = client.ok(&command(&admin(
        "{getClusterParameter: 'defaultMaxTimeMS'}",
    )));
    assert!(reply.to_string().contains("readOperations"), "{reply:?}");
    // Reads obey it, unless they state a limit of their own.
    let docs: Vec<String> = (0..3000).map(|n| format!("{{_id: {n}}}")).collect();
    client.ok(&command(&format!(
        "{{insert: 'c', documents: [{}]}}",
        docs.join(", ")
    )));
    let slow = "{aggregate: 'c', cursor: {}, pipeline: [{$match: {$expr: {$gt: [{$size: {$range: [0, 4000]}}, 0]}}}, {$count: 'n'}]";
    script(
        &mut client,
        &[
            (&format!("{slow}}}"), "{ok: 0.0, code: 50}"),
            (&format!("{slow}, maxTimeMS: 60000}}"), "{ok: 1.0}"),
        ],
    );
}

#[test]
fn what_tools_ask_of_the_server() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command(
        "{insert: 'c', documents: [{_id: 1, x: 1}, {_id: 2, x: 2}, {_id: 3, x: 3}]}",
    ));
    client.ok(&command("{createIndexes: 'c', indexes: [{key: {x: 1, y: 1}, name: 'xy'}, {key: {s: 1}, name: 's', sparse: true}]}"));
    client.ok(&command("{insert: 'fs.chunks', documents: [{_id: 1, files_id: 7, n: 0, data: BinData(0, 'dGVz')}, {_id: 2, files_id: 7, n: 1, data: BinData(0, 'dA==')}, {_id: 3, files_id: 8, n: 1, data: BinData(0, 'dA==')}]}"));
    let size = |rest: &str| format!("{{dataSize: 'test.c'{rest}}}");
    script(
        &mut client,
        &[
            (
                &size(""),
                "{numObjects: NumberLong('3'), estimate: false, ok: 1.0}",
            ),
            (
                &size(", keyPattern: {x: 1}, min: {x: 2}, max: {x: 4}"),
                "{numObjects: NumberLong('2')}",
            ),
            (
                &size(", keyPattern: {x: 1}, min: {x: 3}, max: {x: 1}"),
                "{numObjects: NumberLong('0'), size: NumberLong('0')}",
            ),
            (
                &size(", maxObjects: 1"),
                "{numObjects: NumberLong('2'), maxReached: true}",
            ),
            (&size(", min: {x: 1}"), "{code: 2}"),
            (&size(", min: {z: 1}, max: {z: 2}"), "{code: 96}"),
            (&size(", estimate: 'x'"), "{code: 14}"),
            ("{dataSize: null}", "{code: 40414}"),
            ("{dataSize: 'test'}", "{code: 73}"),
            ("{dataSize: 'test.none'}", "{numObjects: NumberLong('0')}"),
            // md5("test")
            (
                "{filemd5: 7}",
                "{numChunks: 2, md5: '098f6bcd4621d373cade4e832627b4f6'}",
            ),
            ("{filemd5: 8}", "{code: 96}"),
            ("{filemd5: 8, partialOk: true}", "{numChunks: 0}"),
            (&admin("{lockInfo: 1}"), "{lockInfo: [], ok: 1.0}"),
            (
                &admin("{dropConnections: 1, hostAndPort: ['h:1']}"),
                "{ok: 1.0}",
            ),
            (
                &admin("{dropConnections: 1, hostAndPort: ['h:']}"),
                "{code: 9}",
            ),
            (&admin("{dropConnections: 1}"), "{code: 40414}"),
            (
                "{compactStructuredEncryptionData: 'c', compactionTokens: {}}",
                "{code: 6346807}",
            ),
            (
                "{validateDBMetadata: 1, apiParameters: {version: '1', strict: true}, db: 'test'}",
                "{apiVersionErrors: [{ns: 'test.c', code: 323, codeName: 'APIStrictError', errmsg: 'The index with name s is not allowed in API version 1.'}]}",
            ),
            (
                "{validateDBMetadata: 1, apiParameters: {version: '1'}, db: 'test'}",
                "{apiVersionErrors: []}",
            ),
            (
                "{validateDBMetadata: 1, apiParameters: {strict: true}}",
                "{code: 40414}",
            ),
            (
                "{validateDBMetadata: 1, apiParameters: {version: '1', strict: null}}",
                "{code: 14}",
            ),
            ("{reIndex: 'c'}", "{nIndexesWas: 3, nIndexes: 3, ok: 1.0}"),
            ("{reIndex: 'none'}", "{code: 26}"),
            (
                "{validate: 'c'}",
                "{valid: true, nrecords: 3, nIndexes: 3, repairMode: 'None'}",
            ),
            (
                "{validate: 'c', repair: 'x'}",
                "{valid: true, repaired: false, repairMode: 'FixErrors'}",
            ),
            (
                "{validate: 'c', background: true, full: true}",
                "{code: 72}",
            ),
        ],
    );
}

#[test]
fn auto_compact_is_switched_on_and_off() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                &admin("{autoCompact: true, freeSpaceTargetMB: 5}"),
                "{ok: 1.0}",
            ),
            (
                &admin("{autoCompact: true, freeSpaceTargetMB: 5.9}"),
                "{ok: 1.0}",
            ),
            (&admin("{autoCompact: true}"), "{code: 20}"),
            (&admin("{autoCompact: false, runOnce: true}"), "{ok: 1.0}"),
            (
                &admin("{autoCompact: true, freeSpaceTargetMB: 0.9}"),
                "{code: 2}",
            ),
            (&admin("{autoCompact: true, runOnce: 1}"), "{code: 14}"),
            (&admin("{autoCompact: null}"), "{code: 40414}"),
            (&admin("{autoCompact: 1}"), "{code: 14}"),
        ],
    );
}

#[test]
fn parameters_are_shown_with_details() {
    let server = Server::start();
    let mut client = server.client();
    script(
        &mut client,
        &[
            (
                &admin("{getParameter: {showDetails: true}, journalCommitInterval: 1}"),
                "{journalCommitInterval: {value: 100, settableAtRuntime: false, settableAtStartup: true}}",
            ),
            (
                &admin("{getParameter: {allParameters: true, setAt: 'runtime'}}"),
                "{quiet: false, journalCommitInterval: '(absent)'}",
            ),
            (
                &admin("{getParameter: {allParameters: true, setAt: 'startup'}}"),
                "{journalCommitInterval: 100}",
            ),
            (&admin("{getParameter: {setAt: 'x'}}"), "{code: 2}"),
            (&admin("{getParameter: {setAt: 1}}"), "{code: 14}"),
            (
                &admin("{setParameter: 1, quiet: []}"),
                "{was: false, ok: 1.0}",
            ),
        ],
    );
}

#[test]
fn monitoring_finds_its_sections() {
    let server = Server::start_with(&["--replSet", "rs"]);
    let mut client = server.client();
    client.ok(&command(&admin("{replSetInitiate: {}}")));
    client.ok(&command("{create: 'capped', capped: true, size: 4096}"));
    let status = client.ok(&command(&admin("{serverStatus: 1, mirroredReads: 1}")));
    for section in [
        "repl",
        "opcountersRepl",
        "locks",
        "catalogStats",
        "indexStats",
        "queues",
        "flowControl",
        "electionMetrics",
        "defaultRWConcern",
        "security",
        "wiredTiger",
        "mirroredReads",
    ] {
        let value = status.get(section);
        assert!(
            matches!(value, Some(RawValue::Document(_))),
            "{section}: {value:?}"
        );
    }
    let Some(RawValue::Document(catalog)) = status.get("catalogStats") else {
        panic!("no catalogStats");
    };
    assert_eq!(catalog.get("collections"), Some(RawValue::Int32(1)));
    let at = |path: &str| {
        let mut value = Some(RawValue::Document(status.as_raw()));
        for part in path.split('/') {
            value = value
                .and_then(|v| v.as_document())
                .and_then(|doc| doc.get(part));
        }
        value.and_then(|v| v.as_f64())
    };
    for counter in [
        "connections/threaded",
        "metrics/getLastError/wtime/num",
        "metrics/getLastError/wtimeouts",
        "metrics/repl/apply/ops",
        "metrics/repl/buffer/sizeBytes",
        "metrics/repl/network/bytes",
        "network/physicalBytesIn",
        "network/physicalBytesOut",
        "wiredTiger/cache/bytes currently in the cache",
    ] {
        assert!(at(counter).is_some(), "{counter}: {status:?}");
    }
    let sample = client.ok(&command(&admin("{getDiagnosticData: 1}")));
    let Some(RawValue::Document(data)) = sample.get("data") else {
        panic!("no data");
    };
    assert!(data.get("serverStatus").is_some() && data.get("replSetGetStatus").is_some());
    let databases = client.ok(&command(&admin("{listDatabases: 1, nameOnly: true}")));
    for name in ["admin", "config", "local"] {
        assert!(databases.to_string().contains(name), "{databases:?}");
    }
}

/// A number in `serverStatus`, at a path of names.
fn status(client: &mut Client, path: &[&str]) -> i64 {
    let status = client.ok(&command(&admin("{serverStatus: 1}")));
    let mut value = RawValue::Document(status.as_raw());
    for part in path {
        let field = value.as_document().and_then(|doc| doc.get(part));
        value = field.unwrap_or_else(|| panic!("{path:?}: {status:?}"));
    }
    value.as_i64_exact().unwrap()
}

#[test]
fn monitoring_counts_what_commands_do() {
    let server = Server::start_with(&["--replSet", "rs"]);
    let mut client = server.client();
    client.ok(&command(&admin("{replSetInitiate: {}}")));
    let session = "lsid: {id: UUID('00112233-4455-6677-8899-aabbccddeeff')}";
    client.ok(&command("{insert: 'c', documents: [{_id: 1}]}"));
    // Each counter, the command that raises it, and by how much.
    let rows: &[(&[&str], String, i64)] = &[
        (
            &["metrics", "queryExecutor", "collectionScans", "total"],
            "{find: 'c', filter: {a: 1}}".to_owned(),
            1,
        ),
        (
            &["metrics", "queryExecutor", "collectionScans", "nonTailable"],
            "{find: 'c', filter: {a: 1}}".to_owned(),
            1,
        ),
        (
            &["metrics", "queryExecutor", "collectionScans", "total"],
            "{find: 'c', filter: {_id: 1}}".to_owned(),
            0,
        ),
        (
            &["metrics", "aggStageCounters", "$match"],
            "{aggregate: 'c', cursor: {}, pipeline: [{$match: {}}, {$facet: {f: [{$match: {}}]}},
              {$unionWith: {coll: 'c', pipeline: [{$match: {}}]}}]}"
                .to_owned(),
            3,
        ),
        (
            &["transactions", "retriedStatementsCount"],
            format!(
                "{{insert: 'c', documents: [{{_id: 2}}, {{_id: 3}}], {session}, txnNumber: {{$numberLong: '1'}}}}"
            ),
            0,
        ),
        (
            &["transactions", "retriedStatementsCount"],
            format!(
                "{{insert: 'c', documents: [{{_id: 2}}, {{_id: 3}}], {session}, txnNumber: {{$numberLong: '1'}}}}"
            ),
            2,
        ),
        (
            &["transactions", "retriedCommandsCount"],
            format!(
                "{{insert: 'c', documents: [{{_id: 2}}, {{_id: 3}}], {session}, txnNumber: {{$numberLong: '1'}}}}"
            ),
            1,
        ),
        (
            &["opLatencies", "transactions", "ops"],
            format!(
                "{{insert: 'c', documents: [{{_id: 4}}], {session}, txnNumber: {{$numberLong: '2'}}, startTransaction: true, autocommit: false}}"
            ),
            0,
        ),
        (
            &["opLatencies", "transactions", "ops"],
            admin(&format!(
                "{{commitTransaction: 1, {session}, txnNumber: {{$numberLong: '2'}}, autocommit: false}}"
            )),
            1,
        ),
    ];
    for (path, text, raised) in rows {
        let before = status(&mut client, path);
        client.ok(&command(text));
        assert_eq!(
            status(&mut client, path) - before,
            *raised,
            "{path:?}: {text}"
        );
    }
    assert!(status(&mut client, &["opLatencies", "transactions", "latency"]) > 0);
}

#[test]
fn definitions_are_refused_and_shown_as_mongodb_does() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command(
        "{create: 'v', viewOn: 'c', pipeline: [], capped: true, size: 1, storageEngine: {x: 1}}",
    ));
    client.ok(&command(
        "{create: 'k', clusteredIndex: {key: {_id: 1}, unique: true}}",
    ));
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {h: 'hashed'}, name: 'h', expireAfterSeconds: 9}]}",
    ));
    script(
        &mut client,
        &[
            ("{create: 'v'}", "{code: 48}"),
            ("{create: 'w', viewOn: 'c', capped: true}", "{code: 72}"),
            (
                "{create: 'w', viewOn: 'c', clusteredIndex: {key: {_id: 1}, unique: true}}",
                "{code: 6026500}",
            ),
            ("{create: 'x', clusteredIndex: true}", "{code: 5979703}"),
            (
                "{create: 'x', clusteredIndex: {key: {_id: 1}, unique: true}, capped: true, size: 4096}",
                "{code: 6049200}",
            ),
            (
                "{create: 'x', clusteredIndex: {key: {_id: 1}, unique: true, v: 1}}",
                "{code: 5979704}",
            ),
            ("{collMod: 'v', pipeline: [{$match: {a: 1}}]}", "{ok: 1.0}"),
            ("{collMod: 'v', viewOn: 'd'}", "{ok: 1.0}"),
            (
                "{create: 's', storageEngine: {wiredTiger: {configString: 'block_compressor=zlib'}}}",
                "{ok: 1.0}",
            ),
            (
                "{create: 't', storageEngine: {wiredTiger: {configString: 'nothing=1'}}}",
                "{code: 2}",
            ),
            (
                "{createIndexes: 'k', indexes: [{key: {a: 1}, name: 'a'}]}",
                "{numIndexesBefore: 0, numIndexesAfter: 1}",
            ),
            (
                "{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b', hidden: 1}]}",
                "{code: 14}",
            ),
            ("{convertToCapped: 'c'}", "{code: 72}"),
            ("{convertToCapped: 'c', size: 'x'}", "{code: 72}"),
            ("{convertToCapped: 'c', size: NaN}", "{code: 72}"),
            (
                "{collMod: 'c', index: {name: 'h', expireAfterSeconds: 20.9}}",
                "{expireAfterSeconds_old: 9, expireAfterSeconds_new: 20}",
            ),
            (
                "{collMod: 'c', index: {name: 'h', expireAfterSeconds: true}}",
                "{code: 14}",
            ),
            (
                "{collMod: 'c', index: {name: 'h', expireAfterSeconds: -1}}",
                "{code: 72}",
            ),
            (
                "{collMod: 'c', index: {name: 'h', hidden: null}}",
                "{code: 72}",
            ),
            (
                "{listIndexes: 'c', includeIndexBuildInfo: true, includeBuildUUIDs: true}",
                "{code: 72}",
            ),
        ],
    );
    let listed = client.ok(&command("{listIndexes: 'c', includeIndexBuildInfo: true}"));
    assert!(listed.to_string().contains("{ spec: { v: 2"), "{listed}");
    let listed = client.ok(&command("{listCollections: 1, filter: {name: 's'}}"));
    assert!(
        listed.to_string().contains("block_compressor=zlib"),
        "{listed}"
    );
    let listed = client.ok(&command(
        "{listCollections: 1, nameOnly: true, filter: {options: {$exists: true}}}",
    ));
    assert!(listed.to_string().contains("firstBatch: []"), "{listed}");
}

#[test]
fn commands_on_the_catalog_of_a_set() {
    let server = Server::start_with(&["--replSet", "rs"]);
    let mut client = server.client();
    let stream =
        "{aggregate: 'a', pipeline: [{$changeStream: {showExpandedEvents: true}}], cursor: {}}";
    script(
        &mut client,
        &[
            ("{replSetInitiate: {}, $db: 'admin'}", "{ok: 1.0}"),
            ("{insert: 'a', documents: [{_id: 1}]}", "{n: 1}"),
            ("{create: 'b'}", "{ok: 1.0}"),
            // A command that fails reports a write concern that cannot be satisfied as well.
            (
                "{renameCollection: 'test.a', to: 'test.b', writeConcern: {w: 2}, $db: 'admin'}",
                "{ok: 0.0, code: 48, writeConcernError: {code: 100, codeName: 'UnsatisfiableWriteConcern', errmsg: 'Not enough data-bearing nodes'}}",
            ),
            (
                "{renameCollection: 'test.a', to: 'test.b', $db: 'admin'}",
                "{ok: 0.0, code: 48, writeConcernError: '(absent)'}",
            ),
            (
                "{drop: 'b', writeConcern: {w: 2}}",
                "{ok: 1.0, writeConcernError: {code: 100, codeName: 'UnsatisfiableWriteConcern', errmsg: 'Not enough data-bearing nodes'}}",
            ),
        ],
    );
    // A collMod without options is an event all the same.
    let reply = client.ok(&command(stream));
    let id = reply.get("cursor").unwrap().as_document().unwrap();
    let id = id.get("id").unwrap().as_i64_exact().unwrap();
    client.ok(&command("{collMod: 'a'}"));
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'a'}}");
    let reply = client.ok(&command(&more));
    let cursor = reply.get("cursor").unwrap().as_document().unwrap();
    let events = cursor.get("nextBatch").unwrap().as_array().unwrap();
    let event = events.iter().next().unwrap().as_document().unwrap();
    assert_eq!(event.get("operationType"), Some(RawValue::String("modify")));
}
