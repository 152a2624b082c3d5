//! Query settings: what they do to the queries of a shape, and what is stored.

use sheaf_bson::json::{parse_doc, shell};
use sheaf_bson::{DocBuf, RawValue, Value};

use super::client::{Client, command, script};
use super::explained::at;
use super::server::Server;

fn set(query: &str, settings: &str) -> String {
    format!("{{setQuerySettings: {query}, settings: {settings}, $db: 'admin'}}")
}

fn remove(query: &str) -> String {
    format!("{{removeQuerySettings: {query}, $db: 'admin'}}")
}

fn hints(indexes: &str) -> String {
    format!("{{indexHints: {{ns: {{db: 'test', coll: 'c'}}, allowedIndexes: {indexes}}}}}")
}

const LIST: &str = "{aggregate: 1, pipeline: [{$querySettings: {}}], cursor: {}, $db: 'admin'}";
/// A query that a_1 and b_1 serve.
const FIND: &str = "{find: 'c', filter: {a: 1, b: 1}, $db: 'test'}";
const AGGREGATE: &str =
    "{aggregate: 'c', pipeline: [{$match: {a: 1, b: 1}}], cursor: {}, $db: 'test'}";

/// A replica set with indexes on a and b, of which b is the better one for [`FIND`].
fn started(options: &[&str]) -> (Server, Client) {
    let server = Server::start_with(&[&["--replSet", "rs"], options].concat());
    let mut client = server.client();
    client.ok(&command("{replSetInitiate: {}, $db: 'admin'}"));
    fill(&mut client);
    (server, client)
}

fn fill(client: &mut Client) {
    let docs: Vec<String> = (0..60)
        .map(|n| format!("{{_id: {n}, a: 1, b: {n}, x: {n}}}"))
        .collect();
    client.ok(&command(&format!(
        "{{insert: 'c', documents: [{}]}}",
        docs.join(", ")
    )));
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}, {key: {b: 1}, name: 'b_1'}]}",
    ));
}

fn explain(client: &mut Client, query: &str) -> DocBuf {
    client.ok(&command(&format!(
        "{{explain: {query}, verbosity: 'queryPlanner'}}"
    )))
}

/// The name of the index of the winning plan, or its lowest stage.
fn access(client: &mut Client, query: &str) -> String {
    let reply = explain(client, query);
    let mut path = match at(&reply, "stages") {
        Some(_) => "stages.0.$cursor.queryPlanner.winningPlan".to_owned(),
        None => "queryPlanner.winningPlan".to_owned(),
    };
    while at(&reply, &format!("{path}.inputStage")).is_some() {
        path.push_str(".inputStage");
    }
    let name = at(&reply, &format!("{path}.indexName"));
    match name.or_else(|| at(&reply, &format!("{path}.stage"))) {
        Some(Value::String(name)) => name,
        other => panic!("no stage but {other:?} in {reply}"),
    }
}

/// Compares a part of a reply, in shell notation.
fn shows(client: &mut Client, text: &str, path: &str, expected: &str) {
    let reply = client.ok(&command(text));
    let expected = parse_doc(&format!("{{value: {expected}}}")).unwrap();
    assert_eq!(
        at(&reply, path).map(|value| shell(value.as_raw())),
        expected.get("value").map(shell),
        "{text}"
    );
}

fn settings_of(client: &mut Client, query: &str) -> Option<String> {
    let reply = explain(client, query);
    at(&reply, "queryPlanner.querySettings").map(|settings| settings.to_string())
}

#[test]
fn queries_of_the_shape_use_the_allowed_indexes_alone() {
    let (_server, mut client) = started(&[]);
    let client = &mut client;
    for (query, other) in [
        (FIND, "{find: 'c', filter: {a: 1, b: 7}}"),
        (
            AGGREGATE,
            "{aggregate: 'c', pipeline: [{$match: {a: 1, b: 7}}], cursor: {}}",
        ),
        (
            "{distinct: 'c', key: 'x', query: {a: 1, b: 1}, $db: 'test'}",
            "{distinct: 'c', key: 'x', query: {a: 1, b: 7}}",
        ),
    ] {
        assert_eq!(access(client, other), "b_1");
        client.ok(&command(&set(query, &hints("['a_1']"))));
        assert_eq!(access(client, other), "a_1", "{query}");
        // By key pattern, as an update.
        client.ok(&command(&set(query, &hints("[{b: 1}]"))));
        assert_eq!(access(client, other), "b_1", "{query}");
        client.ok(&command(&remove(query)));
        assert_eq!(access(client, other), "b_1", "{query}");
    }
    // The express path, too, uses allowed indexes alone.
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {x: 1}, name: 'x_1', unique: true}]}",
    ));
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {x: 1, a: 1}, name: 'x_1_a_1'}]}",
    ));
    let by_x = "{find: 'c', filter: {x: 5}, $db: 'test'}";
    assert_eq!(access(client, by_x), "x_1");
    client.ok(&command(&set(by_x, &hints("['x_1_a_1']"))));
    assert_eq!(access(client, by_x), "x_1_a_1");
    shows(client, by_x, "cursor.firstBatch.0._id", "5");
}

#[test]
fn natural_counts_as_an_index_and_settings_without_a_plan_are_ignored() {
    let (_server, mut client) = started(&[]);
    let client = &mut client;
    for (allowed, expected) in [
        ("['$natural']", "COLLSCAN"),
        ("[{$natural: -1}]", "COLLSCAN"),
        // An index that serves the query is preferred to a scan.
        ("['$natural', 'a_1']", "a_1"),
        ("['$natural', 'x_1']", "COLLSCAN"),
        // Neither exists or serves the query: as without settings.
        ("['x_1']", "b_1"),
        ("['_id_']", "b_1"),
    ] {
        client.ok(&command(&set(FIND, &hints(allowed))));
        assert_eq!(access(client, FIND), expected, "{allowed}");
    }
    client.ok(&command(&set(FIND, &hints("[{$natural: -1}]"))));
    let reply = explain(client, FIND);
    assert_eq!(
        at(&reply, "queryPlanner.winningPlan.direction"),
        Some(Value::String("backward".into()))
    );
    // A $natural order is part of the query.
    let backward = "{find: 'c', filter: {a: 1}, sort: {$natural: -1}, limit: 1, $db: 'test'}";
    client.ok(&command(&set(backward, &hints("['a_1']"))));
    shows(client, backward, "cursor.firstBatch.0._id", "59");
    // A scan that is forbidden anyway.
    let (_server, mut client) = started(&["--setParameter", "notablescan=true"]);
    client.ok(&command(&set(FIND, &hints("['$natural']"))));
    assert_eq!(access(&mut client, FIND), "b_1");
}

#[test]
fn settings_win_over_hints_and_index_filters() {
    let (_server, mut client) = started(&[]);
    let client = &mut client;
    let hinted = "{find: 'c', filter: {a: 1, b: 1}, hint: 'b_1'}";
    client.ok(&command(
        "{planCacheSetFilter: 'c', query: {a: 1, b: 1}, indexes: ['b_1']}",
    ));
    assert_eq!(
        at(&explain(client, FIND), "queryPlanner.indexFilterSet"),
        Some(Value::Boolean(true))
    );
    // Settings without hints leave both as they are.
    client.ok(&command(&set(FIND, "{queryFramework: 'classic'}")));
    assert_eq!(access(client, hinted), "b_1");
    client.ok(&command(&set(FIND, &hints("['a_1']"))));
    assert_eq!(access(client, hinted), "a_1");
    assert_eq!(access(client, FIND), "a_1");
    assert_eq!(
        at(&explain(client, FIND), "queryPlanner.indexFilterSet"),
        Some(Value::Boolean(false))
    );
    // Even a hint that matches no index is ignored.
    client.ok(&command("{find: 'c', filter: {a: 1, b: 1}, hint: 'none'}"));
}

#[test]
fn cached_plans_of_other_settings_do_not_apply() {
    let (_server, mut client) = started(&[]);
    let client = &mut client;
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {b: 1, x: 1}, name: 'b_1_x_1'}, {key: {a: 1, x: 1}, name: 'a_1_x_1'}]}",
    ));
    let examined = |client: &mut Client| {
        for _ in 0..4 {
            client.ok(&command(FIND));
        }
        let reply = client.ok(&command(&format!(
            "{{explain: {FIND}, verbosity: 'executionStats'}}"
        )));
        at(&reply, "executionStats.totalKeysExamined").map(|n| n.to_string())
    };
    assert_eq!(examined(client).as_deref(), Some("1"));
    client.ok(&command(&set(FIND, &hints("['a_1', 'a_1_x_1']"))));
    assert_eq!(examined(client).as_deref(), Some("60"));
    let plans = "{aggregate: 'c', pipeline: [{$planCacheStats: {}}, {$count: 'n'}], cursor: {}}";
    shows(client, plans, "cursor.firstBatch.0.n", "2");
    client.ok(&command(&remove(FIND)));
    assert_eq!(examined(client).as_deref(), Some("1"));
}

#[test]
fn hints_are_for_a_collection_each() {
    let (_server, mut client) = started(&[]);
    let client = &mut client;
    client.ok(&command("{insert: 'o', documents: [{_id: 1, k: 1}]}"));
    let lookup = "{aggregate: 'o', pipeline: [{$lookup: {from: 'c', as: 'found', let: {k: '$k'}, pipeline: [{$match: {a: 1, b: 1}}]}}], cursor: {}, $db: 'test'}";
    client.ok(&command(&set(lookup, &hints("['$natural']"))));
    let reply = client.ok(&command(&format!(
        "{{explain: {lookup}, verbosity: 'executionStats'}}"
    )));
    assert_eq!(
        at(&reply, "stages.1.collectionScans").map(|n| n.to_string()),
        Some("1".into()),
        "{reply}"
    );
    // A time-series collection, by the key that its users see.
    client.ok(&command(
        "{create: 's', timeseries: {timeField: 't', metaField: 'm'}}",
    ));
    client.ok(&command(
        "{createIndexes: 's', indexes: [{key: {m: 1}, name: 'm_1'}, {key: {m: 1, t: 1}, name: 'm_1_t_1'}]}",
    ));
    client.ok(&command(
        "{insert: 's', documents: [{t: ISODate('2024-01-01T00:00:00Z'), m: 1}]}",
    ));
    let series = "{find: 's', filter: {m: 1}, $db: 'test'}";
    for (allowed, expected) in [("[{m: 1}]", "m_1"), ("[{m: 1, t: 1}]", "m_1_t_1")] {
        let settings = format!(
            "{{indexHints: [{{ns: {{db: 'test', coll: 's'}}, allowedIndexes: {allowed}}}]}}"
        );
        client.ok(&command(&set(series, &settings)));
        assert_eq!(access(client, series), expected);
    }
}

#[test]
fn rejected_queries_are_explained_but_do_not_run() {
    let (_server, mut client) = started(&[]);
    let client = &mut client;
    let refused = "{ok: 0.0, code: 411, codeName: 'QueryRejectedBySettings'}";
    let distinct = "{distinct: 'c', key: 'a', $db: 'test'}";
    for query in [FIND, AGGREGATE, distinct] {
        client.ok(&command(&set(query, "{reject: true}")));
        script(client, &[(query, refused)]);
        assert_eq!(
            settings_of(client, query).as_deref(),
            Some("{ reject: true }")
        );
    }
    script(
        client,
        &[
            // Another shape, and other commands.
            ("{find: 'c', filter: {a: 1, b: 'x'}}", "{ok: 1.0}"),
            ("{count: 'c', query: {a: 1, b: 1}}", "{ok: 1.0, n: 1}"),
            // reject: false is not a setting.
            (&set(FIND, "{reject: false}"), "{ok: 0.0, code: 7746604}"),
            (
                &set(FIND, "{queryFramework: 'sbe'}"),
                "{ok: 1.0, settings: {queryFramework: 'sbe', reject: true}}",
            ),
            (
                &set(FIND, "{reject: false}"),
                "{ok: 1.0, settings: {queryFramework: 'sbe'}}",
            ),
            (FIND, "{ok: 1.0}"),
            (&remove(AGGREGATE), "{ok: 1.0}"),
            (AGGREGATE, "{ok: 1.0}"),
            (&remove(AGGREGATE), "{ok: 1.0}"),
        ],
    );
    client.ok(&command(
        "{create: 'v', viewOn: 'c', pipeline: [{$match: {a: 1}}]}",
    ));
    let on_view = "{find: 'v', filter: {b: 1}, $db: 'test'}";
    client.ok(&command(&set(on_view, "{reject: true}")));
    script(client, &[(on_view, refused), ("{find: 'v'}", "{ok: 1.0}")]);
}

#[test]
fn settings_are_listed_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--replSet", "rs"];
    let server = Server::start_on(folder.path(), &options);
    let mut client = server.client();
    client.ok(&command("{replSetInitiate: {}, $db: 'admin'}"));
    fill(&mut client);
    let reply = client.ok(&command(&set(FIND, &hints("['a_1']"))));
    let hash = match reply.get("queryShapeHash") {
        Some(RawValue::String(hash)) => hash.to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        at(&explain(&mut client, FIND), "queryShapeHash"),
        Some(Value::String(hash.clone()))
    );
    let listed = format!(
        "[{{queryShapeHash: '{hash}', settings: {{indexHints: [{{ns: {{db: 'test', coll: 'c'}}, \
         allowedIndexes: ['a_1']}}]}}, representativeQuery: {FIND}}}]"
    );
    shows(&mut client, LIST, "cursor.firstBatch", &listed);
    drop(client);
    server.stop();
    let server = Server::start_on(folder.path(), &options);
    let client = &mut server.client();
    assert_eq!(access(client, FIND), "a_1");
    shows(client, LIST, "cursor.firstBatch", &listed);
    shows(
        client,
        "{aggregate: 1, pipeline: [{$querySettings: {showDebugQueryShape: true}}], cursor: {}, $db: 'admin'}",
        "cursor.firstBatch.0.debugQueryShape",
        "{cmdNs: {db: 'test', coll: 'c'}, command: 'find', filter: {$and: [{a: {$eq: '?number'}}, {b: {$eq: '?number'}}]}}",
    );
    let by_hash = format!("'{}'", hash.to_lowercase());
    shows(
        client,
        &set(&by_hash, "{comment: {body: {msg: 'why'}}}"),
        "settings",
        "{indexHints: [{ns: {db: 'test', coll: 'c'}, allowedIndexes: ['a_1']}], comment: {body: {msg: 'why'}}}",
    );
    client.ok(&command(&remove(&by_hash)));
    shows(client, LIST, "cursor.firstBatch", "[]");
    script(
        client,
        &[(&set(&by_hash, "{reject: true}"), "{ok: 0.0, code: 7746401}")],
    );
}

#[test]
fn shapes_that_cannot_have_settings() {
    let (_server, mut client) = started(&[]);
    let rejected = |query: &str| set(query, "{reject: true}");
    script(
        &mut client,
        &[
            (
                &rejected("{find: 'c', filter: {_id: 1}, $db: 'test'}"),
                "{code: 7746606}",
            ),
            (
                &rejected("{find: 'c', filter: {_id: {$gt: 1}}, $db: 'test'}"),
                "{ok: 1.0}",
            ),
            (&rejected("{find: 'c', $db: 'admin'}"), "{code: 8584900}"),
            (&rejected("{find: 'c', $db: 'config'}"), "{code: 8584900}"),
            (
                &rejected("{find: 'system.profile', $db: 'test'}"),
                "{code: 8584901}",
            ),
            (&rejected("{count: 'c', $db: 'test'}"), "{code: 7746402}"),
            (&rejected("{find: 'c'}"), "{code: 40414}"),
            (&rejected("{find: 'c', $db: 1}"), "{code: 14}"),
            (
                &rejected("{find: 'c', filter: {$no: 1}, $db: 'test'}"),
                "{code: 2}",
            ),
            (
                &rejected("{find: 'c', no: 1, $db: 'test'}"),
                "{code: 40415}",
            ),
            (
                &rejected("{aggregate: 'c', pipeline: [{$no: 1}], $db: 'test'}"),
                "{code: 40324}",
            ),
            (
                &rejected("{aggregate: 1, pipeline: [{$documents: [{a: 1}]}], $db: 'test'}"),
                "{ok: 1.0}",
            ),
            (&rejected("{distinct: 'c', $db: 'test'}"), "{code: 40414}"),
            (&rejected("1"), "{code: 14}"),
            ("{setQuerySettings: 'AB', $db: 'admin'}", "{code: 40414}"),
            (&set(FIND, "1"), "{code: 14}"),
            (&set(FIND, "{}"), "{code: 8727502}"),
            (
                "{setQuerySettings: {}, settings: {reject: true}}",
                "{code: 13}",
            ),
        ],
    );
    let standalone = Server::start();
    script(
        &mut standalone.client(),
        &[
            (
                &rejected(FIND),
                "{ok: 0.0, code: 20, codeName: 'IllegalOperation'}",
            ),
            (&remove(FIND), "{ok: 0.0, code: 20}"),
            (LIST, "{ok: 1.0}"),
        ],
    );
}
