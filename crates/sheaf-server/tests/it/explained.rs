//! The replies of explain: shapes, plans of writes, the stages of a pipeline.

use sheaf_bson::{DocBuf, RawValue, Value, doc};
use sheaf_server::Session;

use crate::in_process::{code, ok, server};

/// The value at a dotted path; numbers are positions.
pub fn at(doc: &DocBuf, path: &str) -> Option<Value> {
    let mut value = RawValue::Document(doc.as_raw());
    for part in path.split('.') {
        value = match value {
            RawValue::Document(doc) => doc.get(part)?,
            RawValue::Array(array) => array.iter().nth(part.parse().ok()?)?,
            _ => return None,
        };
    }
    Some(value.to_value())
}

fn text(doc: &DocBuf, path: &str) -> String {
    match at(doc, path) {
        Some(Value::String(text)) => text,
        other => panic!("{path} is {other:?} in {doc}"),
    }
}

fn filled(session: &mut Session) {
    ok(
        session,
        "{insert: 'c', documents: [{_id: 1, a: 1, b: 1}, {_id: 2, a: 2, b: 2}, {_id: 3, a: 3}]}",
    );
    ok(
        session,
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}]}",
    );
}

#[test]
fn the_shape_of_a_query_has_a_hash() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let mut hash = |command: &str| {
        let reply = ok(
            session,
            &format!("{{explain: {command}, verbosity: 'queryPlanner'}}"),
        );
        text(&reply, "queryShapeHash")
    };
    let one = hash("{find: 'c', filter: {b: 1}}");
    assert_eq!(one.len(), 64);
    assert_eq!(
        one,
        hash("{find: 'c', filter: {b: {$eq: 7}}, batchSize: 5}")
    );
    assert_ne!(one, hash("{find: 'c', filter: {b: 'x'}}"));
    assert_ne!(
        one,
        hash("{aggregate: 'c', pipeline: [{$match: {b: 1}}], cursor: {}}")
    );
    assert_ne!(one, hash("{find: 'other', filter: {b: 1}}"));
    hash("{distinct: 'c', key: 'b'}");
    let counted = ok(session, "{explain: {count: 'c'}}");
    assert_eq!(counted.get("queryShapeHash"), None);
}

#[test]
fn what_follows_in_a_pipeline_is_part_of_its_plan_cache_shape() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let mut hash = |stage: &str| {
        let pipeline = format!("[{{$match: {{b: {{$gt: 0}}}}}}{stage}]");
        let reply = ok(
            session,
            &format!("{{aggregate: 'c', pipeline: {pipeline}, explain: true}}"),
        );
        let planner = match reply.get("queryPlanner") {
            Some(_) => "queryPlanner",
            None => "stages.0.$cursor.queryPlanner",
        };
        text(&reply, &format!("{planner}.planCacheShapeHash"))
    };
    let alone = hash("");
    for planned in [
        ", {$group: {_id: '$a'}}",
        ", {$count: 'n'}",
        ", {$project: {a: 1}}",
        ", {$lookup: {from: 'c', localField: 'a', foreignField: 'b', as: 'x'}}",
    ] {
        assert_ne!(alone, hash(planned), "{planned}");
    }
    for after in [
        ", {$limit: 2}",
        ", {$unset: 'a'}",
        ", {$set: {x: 1}}",
        ", {$out: 'o'}",
        ", {$facet: {x: [{$match: {a: 1}}]}}",
    ] {
        assert_eq!(alone, hash(after), "{after}");
    }
}

#[test]
fn a_pipeline_that_a_plan_executes_says_so() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let whole = ok(
        session,
        "{aggregate: 'c', pipeline: [{$match: {b: 1}}], explain: true}",
    );
    assert_eq!(
        at(&whole, "queryPlanner.optimizedPipeline"),
        Some(Value::Boolean(true))
    );
    let find = ok(session, "{explain: {find: 'c', filter: {b: 1}}}");
    assert_eq!(at(&find, "queryPlanner.optimizedPipeline"), None);
}

#[test]
fn stages_are_shown_as_they_are_executed() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let mut last = |stages: &str| {
        let command = format!(
            "{{aggregate: 'c', explain: true, pipeline: [{{$group: {{_id: '$a', n: {{$sum: 1}}}}}}, {stages}]}}"
        );
        ok(session, &command)
    };
    let filter = last("{$match: {n: 1}}");
    assert_eq!(
        at(&filter, "stages.2.$match.n.$eq"),
        Some(Value::Int32(1)),
        "{filter}"
    );
    let out = last("{$out: 'o'}");
    assert_eq!(text(&out, "stages.2.$out.db"), "d");
    assert_eq!(text(&out, "stages.2.$out.coll"), "o");
    let merge = last("{$merge: 'o'}");
    assert_eq!(text(&merge, "stages.2.$merge.into.db"), "d");
    assert_eq!(text(&merge, "stages.2.$merge.into.coll"), "o");
    let union = last("{$unionWith: {coll: 'c', pipeline: [{$match: {a: 2}}]}}");
    let plan = "stages.2.$unionWith.pipeline.0.$cursor.queryPlanner.winningPlan.stage";
    assert_eq!(text(&union, plan), "FETCH");
}

#[test]
fn plans_of_writes() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let mut returned = |command: &str| {
        let reply = ok(session, &format!("{{explain: {command}}}"));
        at(&reply, "executionStats.nReturned")
    };
    let found = "{findAndModify: 'c', query: {a: 1}, update: {$set: {b: 5}}}";
    assert_eq!(returned(found), Some(Value::Int32(1)));
    let missed = "{findAndModify: 'c', query: {a: 9}, remove: true}";
    assert_eq!(returned(missed), Some(Value::Int32(0)));
    let update = "{update: 'c', updates: [{q: {a: 1}, u: {$set: {b: 5}}}]}";
    assert_eq!(returned(update), Some(Value::Int32(0)));
    for command in [
        "{delete: 'none', deletes: [{q: {a: 1}, limit: 1}]}",
        "{update: 'none', updates: [{q: {a: 1}, u: {$set: {b: 1}}}]}",
    ] {
        let reply = ok(session, &format!("{{explain: {command}}}"));
        assert_eq!(text(&reply, "queryPlanner.winningPlan.stage"), "EOF");
    }
}

#[test]
fn scans_that_read_keys_alone() {
    let running = server();
    let session = &mut Session::new(&running.server);
    filled(session);
    let counted = ok(session, "{explain: {count: 'c', query: {a: {$gt: 1}}}}");
    let bounds = "queryPlanner.winningPlan.inputStage.indexBounds";
    assert_eq!(
        at(&counted, &format!("{bounds}.startKey.a")),
        Some(Value::Int32(1))
    );
    assert_eq!(
        at(&counted, &format!("{bounds}.startKeyInclusive")),
        Some(Value::Boolean(false))
    );
    assert_eq!(
        at(&counted, &format!("{bounds}.endKey.a")),
        Some(Value::Double(f64::INFINITY))
    );
    let distinct = ok(session, "{explain: {distinct: 'c', key: 'a'}}");
    assert_eq!(
        text(&distinct, "queryPlanner.winningPlan.stage"),
        "PROJECTION_COVERED"
    );
    assert_eq!(
        text(&distinct, "queryPlanner.winningPlan.inputStage.stage"),
        "DISTINCT_SCAN"
    );
    assert_eq!(
        at(&distinct, "executionStats.nReturned"),
        Some(Value::Int32(3))
    );
}

#[test]
fn refused() {
    let running = server();
    let session = &mut Session::new(&running.server);
    for (command, expected) in [
        ("{explain: null}", 40414),
        ("{explain: {}}", 59),
        ("{explain: {noSuchCommand: 1}}", 59),
        ("{explain: {ping: 1}}", 20),
        ("{explain: {findAndModify: 'c', remove: true}}", 26),
        ("{explain: {find: 'c'}, verbosity: 'none'}", 2),
        (
            "{aggregate: 'c', pipeline: [{$out: 'o'}], explain: true, writeConcern: {w: 1}}",
            9,
        ),
    ] {
        assert_eq!(code(session, command), expected, "{command}");
    }
    ok(session, "{explain: {find: 'c'}, verbosity: null}");
}

/// A blocking sort holds the fields that later stages read, also if stages that compute stand
/// between it and the collection or the stage that names the fields.
#[test]
fn a_blocking_sort_holds_the_fields_that_are_read() {
    let running = server();
    let session = &mut Session::new(&running.server);
    let set = doc! {"setParameter": 1, "internalQueryMaxBlockingSortMemoryUsageBytes": 100_000};
    let reply = session.run("admin", set.as_raw());
    assert_eq!(reply.get("ok"), Some(RawValue::Double(1.0)), "{reply:?}");
    let pad = "x".repeat(5000);
    let docs: Vec<String> = (0..50)
        .map(|i| format!("{{_id: {i}, k: {}, a: [1, 2], pad: '{pad}'}}", -i))
        .collect();
    ok(
        session,
        &format!("{{insert: 'c', documents: [{}]}}", docs.join(", ")),
    );
    for before in [
        "{$lookup: {from: 'd', localField: 'k', foreignField: '_id', as: 'q'}}",
        "{$unwind: '$a'}",
        "{$addFields: {z: 1}}",
        "{$match: {k: {$lte: 0}}}",
    ] {
        for after in [
            "{$project: {k: 1}}",
            "{$project: {k: 1}}, {$limit: 1000}",
            "{$group: {_id: '$k'}}",
            "{$bucketAuto: {groupBy: '$k', buckets: 2}}",
        ] {
            let reply = ok(
                session,
                &format!(
                    "{{aggregate: 'c', pipeline: [{before}, {{$sort: {{k: 1}}}}, {after}, {{$limit: 1}}], cursor: {{}}, allowDiskUse: false}}"
                ),
            );
            assert!(
                at(&reply, "cursor.firstBatch.0").is_some(),
                "{before} {after}"
            );
        }
    }
    let whole = "{aggregate: 'c', pipeline: [{$sort: {k: 1}}], cursor: {}, allowDiskUse: false}";
    assert_eq!(code(session, whole), 292);
}
