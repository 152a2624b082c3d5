//! The privileges that a command requires, by its arguments.

use sheaf_bson::json::parse_doc;
use sheaf_server::command::find;
use sheaf_server::command_facts::{Asked, On};

/// `action resource`, in the order of the table.
fn required(command: &str) -> String {
    let body = parse_doc(command).unwrap();
    let name = body.as_raw().first().unwrap().key().to_owned();
    let row = find(&name).unwrap();
    let asked = Asked {
        db: "d",
        body: body.as_raw(),
        sequences: &[],
        caller: None,
    };
    let required = row.command.privileges.required(&asked);
    let shown: Vec<String> = required
        .into_iter()
        .map(|(action, on)| match on {
            On::Anything => format!("{} anything", action.name()),
            On::Cluster => format!("{} cluster", action.name()),
            On::Database(db) => format!("{} {db}", action.name()),
            On::Collection(db, name) => format!("{} {db}.{name}", action.name()),
        })
        .collect();
    shown.join(", ")
}

#[test]
fn of_commands() {
    for (command, expected) in [
        ("{ping: 1}", ""),
        ("{find: 'c'}", "find d.c"),
        // The owner of the cursor, and what opened it, decide.
        ("{getMore: 1, collection: 'c'}", ""),
        ("{insert: 'c', documents: []}", "insert d.c"),
        (
            "{insert: 'c', documents: [], bypassDocumentValidation: true}",
            "insert d.c, bypassDocumentValidation d.c",
        ),
        (
            "{update: 'c', updates: [{q: {}, u: {}}]}",
            "find d.c, update d.c",
        ),
        (
            "{update: 'c', updates: [{q: {}, u: {}, upsert: true}]}",
            "find d.c, update d.c, insert d.c",
        ),
        ("{update: 'c'}", "find d.c, update d.c"),
        ("{findAndModify: 'c', remove: true}", "find d.c, remove d.c"),
        (
            "{renameCollection: 'd.a', to: 'd.b'}",
            "renameCollectionSameDB d",
        ),
        (
            "{renameCollection: 'd.a', to: 'e.b', dropTarget: true}",
            "find d.a, dropCollection d.a, insert e.b, createIndex e.b, dropCollection e.b",
        ),
        ("{listDatabases: 1}", ""),
        (
            "{listDatabases: 1, authorizedDatabases: false}",
            "listDatabases cluster",
        ),
        ("{currentOp: 1}", "inprog cluster"),
        ("{dbStats: 1}", "dbStats d"),
        ("{validateDBMetadata: 1, db: 'e'}", "validate e"),
        // All databases, which have no name here.
        ("{validateDBMetadata: 1}", "validate "),
        (
            "{create: 'v', viewOn: 'c', pipeline: [{$lookup: {from: 'x'}}]}",
            "createCollection d.v, find d.c, find d.x",
        ),
        ("{explain: {find: 'c'}}", "find d.c"),
        ("{explain: {explain: {find: 'c'}}}", ""),
        ("{shutdown: 1}", "shutdown cluster"),
        ("{applyOps: []}", "anyAction anything"),
    ] {
        assert_eq!(required(command), expected, "{command}");
    }
}

#[test]
fn of_pipelines() {
    for (stages, expected) in [
        ("", "find d.c"),
        ("{$lookup: {from: 'x', as: 'y'}}", "find d.c, find d.x"),
        (
            "{$match: {}}, {$unionWith: {coll: 'x', pipeline: [{$graphLookup: {from: 'y'}}]}}",
            "find d.c, find d.x, find d.y",
        ),
        (
            "{$facet: {a: [{$lookup: {from: 'x'}}]}}",
            "find d.c, find d.x",
        ),
        ("{$out: 'x'}", "find d.c, insert d.x, remove d.x"),
        (
            "{$merge: {into: {db: 'e', coll: 'x'}}}",
            "find d.c, insert e.x, update e.x",
        ),
        ("{$indexStats: {}}", "indexStats d.c"),
        ("{$currentOp: {}}", ""),
        ("{$currentOp: {allUsers: true}}", "inprog cluster"),
        ("{$listLocalSessions: {}}", ""),
        ("{$listSessions: {users: []}}", "listSessions cluster"),
        ("{$documents: []}", ""),
        ("{$changeStream: {}}", "changeStream d.c, find d.c"),
    ] {
        let command = format!("{{aggregate: 'c', pipeline: [{stages}]}}");
        assert_eq!(required(&command), expected, "{stages}");
    }
}
