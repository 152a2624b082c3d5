//! Time-series collections as clients see them: their indexes, and their buckets.

use sheaf_bson::{RawValue, Value};
use sheaf_server::Session;

use crate::explained::at;
use crate::in_process::{code, ok, server};

fn filled(session: &mut Session) {
    ok(
        session,
        "{create: 's', timeseries: {timeField: 't', metaField: 'm'}}",
    );
    ok(
        session,
        "{insert: 's', documents: [
            {t: {$date: '2024-01-01T00:00:00Z'}, m: 'a', x: 1},
            {t: {$date: '2024-01-01T00:10:00Z'}, m: 'a', x: 2},
            {t: {$date: '2024-01-01T00:20:00Z'}, m: 'b', x: 3}]}",
    );
}

#[test]
fn a_hint_names_the_keys_that_users_gave() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    ok(
        session,
        "{createIndexes: 's', indexes: [{key: {m: 1, x: -1}, name: 'own'}]}",
    );
    for hint in [
        "{m: 1, t: 1}",
        "'m_1_t_1'",
        "{m: 1, x: -1}",
        "{$natural: 1}",
    ] {
        let found = ok(
            session,
            &format!("{{find: 's', filter: {{m: 'a'}}, hint: {hint}}}"),
        );
        assert!(at(&found, "cursor.firstBatch.1.x").is_some(), "{hint}");
        assert!(at(&found, "cursor.firstBatch.2").is_none(), "{hint}");
    }
    let pipeline =
        "{aggregate: 's', pipeline: [{$match: {m: 'b'}}], cursor: {}, hint: {m: 1, x: -1}}";
    assert_eq!(
        at(&ok(session, pipeline), "cursor.firstBatch.0.x"),
        Some(Value::Int32(3))
    );
    assert_eq!(code(session, "{find: 's', hint: {x: 1}}"), 2);
    let deleted = ok(
        session,
        "{delete: 's', deletes: [{q: {m: 'b'}, limit: 0, hint: {m: 1, t: 1}}]}",
    );
    assert_eq!(deleted.get("n"), Some(RawValue::Int32(1)));
}

#[test]
fn indexes_are_listed_as_users_gave_them() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    ok(
        session,
        "{createIndexes: 's', indexes: [
            {key: {t: 1}, name: 'ttl', expireAfterSeconds: 3600, partialFilterExpression: {m: 'a'}},
            {key: {x: 1}, name: 'part', partialFilterExpression: {x: {$gt: 5}}},
            {key: {m: 1}, name: 'sparse', sparse: true}]}",
    );
    let listed = ok(session, "{listIndexes: 's'}");
    let stats = ok(
        session,
        "{aggregate: 's', pipeline: [{$indexStats: {}}, {$sort: {name: 1}}], cursor: {}}",
    );
    let at_listed = |path: &str| at(&listed, &format!("cursor.firstBatch.{path}"));
    assert_eq!(at_listed("1.key.t"), Some(Value::Int32(1)));
    assert_eq!(
        at_listed("1.partialFilterExpression.m"),
        Some(Value::from("a"))
    );
    assert_eq!(
        at_listed("2.partialFilterExpression.x.$gt"),
        Some(Value::Int32(5))
    );
    assert_eq!(at_listed("2.originalSpec"), None);
    assert_eq!(at_listed("3.sparse"), Some(Value::Boolean(true)));
    assert_eq!(
        at(&stats, "cursor.firstBatch.0.key.m"),
        Some(Value::Int32(1))
    );
    assert_eq!(
        at(&stats, "cursor.firstBatch.1.key.x"),
        Some(Value::Int32(1))
    );
    // Every index returns what a scan returns.
    for hint in ["'part'", "'sparse'", "{$natural: 1}"] {
        let found = ok(
            session,
            &format!("{{find: 's', filter: {{x: {{$gt: 1}}}}, hint: {hint}}}"),
        );
        assert!(at(&found, "cursor.firstBatch.1.x").is_some(), "{hint}");
    }
    let of_buckets = ok(session, "{listIndexes: 'system.buckets.s'}");
    assert_eq!(
        at(&of_buckets, "cursor.firstBatch.0.name"),
        Some(Value::from("m_1_t_1"))
    );
    assert_eq!(
        code(
            session,
            "{createIndexes: 's', indexes: [{key: {'$**': 1}, name: 'w'}]}"
        ),
        7246201
    );
}

/// A tool may write buckets; what they hold decides what their `control` says.
#[test]
fn buckets_are_updated_directly() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let update = |u: &str| {
        format!("{{update: 'system.buckets.s', updates: [{{q: {{meta: 'b'}}, u: {u}}}]}}")
    };
    let reply = ok(session, &update("{$set: {meta: 'c'}}"));
    assert_eq!(at(&reply, "nModified"), Some(Value::Int32(1)));
    let found = ok(session, "{find: 's', filter: {m: 'c'}}");
    assert_eq!(at(&found, "cursor.firstBatch.0.x"), Some(Value::Int32(3)));
    let update = |u: &str| {
        format!("{{update: 'system.buckets.s', updates: [{{q: {{meta: 'c'}}, u: {u}}}]}}")
    };
    ok(session, &update("{$set: {'control.max.x': 1000}}"));
    let bucket = ok(session, "{find: 'system.buckets.s', filter: {meta: 'c'}}");
    assert_eq!(
        at(&bucket, "cursor.firstBatch.0.control.max.x"),
        Some(Value::Int32(3))
    );
    for refused in [
        "{$set: {control: 1}}",
        "{$unset: {data: 1}}",
        "{$set: {x: 1}}",
    ] {
        let reply = ok(session, &update(refused));
        assert_eq!(
            at(&reply, "writeErrors.0.code"),
            Some(Value::Int32(121)),
            "{refused}"
        );
    }
}

/// What is listed of a bucket collection creates it elsewhere.
#[test]
fn a_bucket_collection_is_created_as_it_is_listed() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let listed = ok(
        session,
        "{listCollections: 1, filter: {name: 'system.buckets.s'}}",
    );
    assert_eq!(
        at(&listed, "cursor.firstBatch.0.options.clusteredIndex"),
        Some(Value::Boolean(true))
    );
    let options = at(&listed, "cursor.firstBatch.0.options").unwrap();
    let Value::Document(options) = options else {
        panic!("{options:?}")
    };
    assert!(options.get("validator").is_some());
    let mut create = sheaf_bson::DocBuilder::new();
    create.append("create", "system.buckets.other");
    create.extend(options.as_raw());
    let reply = session.run("d", create.finish().as_raw());
    assert_eq!(reply.get("ok"), Some(RawValue::Double(1.0)), "{reply:?}");
    let listed = ok(session, "{listCollections: 1, filter: {name: 'other'}}");
    assert_eq!(
        at(&listed, "cursor.firstBatch.0.type"),
        Some(Value::String("timeseries".into()))
    );
}
