//! `system.views`: the views of a database as documents.

use sheaf_server::Session;

use crate::explained::at;
use crate::in_process::{code, ok, server};

fn ids(session: &mut Session) -> Vec<String> {
    let found = ok(session, "{find: 'system.views', sort: {_id: 1}}");
    (0..)
        .map_while(|n| at(&found, &format!("cursor.firstBatch.{n}._id")))
        .map(|id| id.as_raw().as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn follows_the_views() {
    let running = server();
    let session = &mut Session::new(&running.server);
    ok(session, "{insert: 'c', documents: [{_id: 1}]}");
    assert_eq!(code(session, "{listIndexes: 'system.views'}"), 26);
    ok(
        session,
        "{create: 'v', viewOn: 'c', pipeline: [{$match: {a: 1}}]}",
    );
    ok(session, "{create: 't', timeseries: {timeField: 't'}}");
    assert_eq!(ids(session), ["d.t", "d.v"]);
    ok(session, "{collMod: 'v', pipeline: [{$match: {a: 2}}]}");
    let found = ok(session, "{find: 'system.views', filter: {_id: 'd.v'}}");
    let value = at(&found, "cursor.firstBatch.0.pipeline.0.$match.a");
    assert_eq!(value, Some(sheaf_bson::Value::Int32(2)));
    ok(session, "{drop: 'v'}");
    assert_eq!(ids(session), ["d.t"]);
    ok(session, "{drop: 't'}");
    assert!(ids(session).is_empty());
    // It stays without views, and goes with its database.
    ok(session, "{listIndexes: 'system.views'}");
    let report = ok(session, "{validate: 'system.views', full: true}");
    assert_eq!(at(&report, "valid"), Some(sheaf_bson::Value::Boolean(true)));
    ok(session, "{dropDatabase: 1}");
    assert_eq!(code(session, "{listIndexes: 'system.views'}"), 26);
}

#[test]
fn is_listed_as_a_collection() {
    let running = server();
    let session = &mut Session::new(&running.server);
    ok(session, "{create: 'v', viewOn: 'c', pipeline: []}");
    let listed = ok(
        session,
        "{listCollections: 1, filter: {name: 'system.views'}}",
    );
    let text = |path: &str| at(&listed, path).map(|value| value.to_string());
    assert_eq!(
        text("cursor.firstBatch.0.type").as_deref(),
        Some("\"collection\"")
    );
    assert_eq!(text("cursor.firstBatch.0.options").as_deref(), Some("{}"));
    assert!(text("cursor.firstBatch.0.idIndex.key._id").is_some());
    let stats = ok(session, "{dbStats: 1}");
    assert_eq!(at(&stats, "collections"), Some(sheaf_bson::Value::Int64(1)));
}

#[test]
fn clients_change_views_by_commands_alone() {
    let running = server();
    let session = &mut Session::new(&running.server);
    for command in [
        "{createIndexes: 'system.views', indexes: [{key: {a: 1}, name: 'a'}]}",
        "{create: 'system.views', viewOn: 'c', pipeline: []}",
    ] {
        assert_eq!(code(session, command), 73, "{command}");
    }
    ok(session, "{create: 'system.views'}");
    ok(session, "{create: 'system.views'}");
    assert_eq!(
        code(
            session,
            "{create: 'system.views', capped: true, size: 4096}"
        ),
        72
    );
    ok(session, "{create: 'v', viewOn: 'c', pipeline: []}");
    for command in [
        "{insert: 'system.views', documents: [{_id: 'd.w', viewOn: 'c', pipeline: []}]}",
        "{update: 'system.views', updates: [{q: {}, u: {$set: {viewOn: 'x'}}}]}",
        "{delete: 'system.views', deletes: [{q: {}, limit: 0}]}",
    ] {
        let reply = crate::in_process::run(session, command);
        let refused = at(&reply, "writeErrors.0.code").or(at(&reply, "code"));
        assert_eq!(refused, Some(sheaf_bson::Value::Int32(73)), "{command}");
    }
    assert_eq!(ids(session), ["d.v"]);
    ok(session, "{create: 't', timeseries: {timeField: 't'}}");
    assert_eq!(code(session, "{drop: 'system.views'}"), 20);
    ok(session, "{drop: 't'}");
    ok(session, "{drop: 'system.views'}");
    let names = ok(session, "{listCollections: 1}");
    assert!(at(&names, "cursor.firstBatch.0").is_none());
}
