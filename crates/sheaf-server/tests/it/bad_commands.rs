//! Generated malformed commands: a refused command has changed nothing, an accepted one did what
//! its reply reports.
//!
//! ```text
//!   a command in order (a row of COMMANDS) ── one to three damages ──> reply
//!     refused      a code with a name, never an internal error; every document is as it was
//!     carried out  the sums of the reply are what the collections gained, lost and kept
//! ```
//!
//! A damage removes, duplicates or renames a field, gives it a value of another type, or nests it
//! deeply.
//! `SHEAF_BAD_COMMANDS_SEED` and `SHEAF_BAD_COMMANDS` (the number) change the run; a failure names
//! its seed.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};
use sheaf_testkit::differential::setting;

use super::client::{Client, Reply, command};
use super::server::Server;

/// A reproducible random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 33) % n.max(1) as u64) as usize
    }

    fn of<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// Valid commands, which together use every option.
const COMMANDS: &[&str] = &[
    "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 100, n: 1}}, {update: 1, filter: {_id: 1}, updateMods: {$inc: {n: 1}}, upsert: true, hint: {_id: 1}}, {delete: 0, filter: {_id: 2}, collation: {locale: 'en'}}], nsInfo: [{ns: 'gen.a'}, {ns: 'gen.b'}], ordered: true, let: {v: 1}, comment: 'c', maxTimeMS: 60000, $db: 'admin'}",
    "{bulkWrite: 1, ops: [{insert: 1, document: {n: 1}}, {insert: 1, document: {_id: 1}}, {update: 0, filter: {n: {$gt: 1}}, updateMods: {$set: {'l.$[x]': 0}}, multi: true, arrayFilters: [{x: {$gt: 1}}]}, {delete: 1, filter: {n: 3}, multi: true}], nsInfo: [{ns: 'gen.a'}, {ns: 'gen.b'}], ordered: false, errorsOnly: true, cursor: {batchSize: 2}, bypassDocumentValidation: false, $db: 'admin'}",
    "{bulkWrite: 1, ops: [{update: 0, filter: {_id: 3}, updateMods: [{$set: {c: '$$k', v: '$$v'}}], constants: {k: 5}}, {update: 0, filter: {_id: 4}, updateMods: {n: 4}, sort: {n: 1}}], nsInfo: [{ns: 'gen.a'}], let: {v: '$$NOW'}, writeConcern: {w: 1, j: false}, $db: 'admin'}",
    "{findAndModify: 'a', query: {n: {$gte: 1}}, sort: {n: -1}, update: {$inc: {n: 1}}, new: true, fields: {n: 1}, $db: 'gen'}",
    "{findAndModify: 'a', query: {_id: 77}, update: {$set: {'l.$[x]': 1, m: 2}}, upsert: true, arrayFilters: [{x: 1}], hint: {_id: 1}, $db: 'gen'}",
    "{findAndModify: 'b', query: {$expr: {$eq: ['$n', '$$v']}}, remove: true, let: {v: 2}, collation: {locale: 'en', strength: 2}, maxTimeMS: 60000, comment: {a: 1}, $db: 'gen'}",
    "{update: 'a', updates: [{q: {n: 1}, u: {$inc: {n: 1}}, multi: true}, {q: {_id: 50}, u: [{$set: {c: '$$k'}}], c: {k: 1}, upsert: true}], ordered: false, let: {v: 1}, $db: 'gen'}",
    "{delete: 'b', deletes: [{q: {n: 1}, limit: 0, hint: '_id_'}, {q: {_id: 3}, limit: 1, collation: {locale: 'en'}}], ordered: true, let: {v: 1}, $db: 'gen'}",
    "{insert: 'a', documents: [{_id: 200}, {_id: 201, d: {e: [1]}}], ordered: false, bypassDocumentValidation: true, $db: 'gen'}",
    "{profile: 0, slowms: 100, sampleRate: 1.0, filter: {op: 'query', millis: {$gt: 5}}, $db: 'gen'}",
    "{profile: -1, filter: 'unset', comment: 1, $db: 'gen'}",
    "{currentOp: 1, $all: true, $ownOps: false, $truncateOps: true, secs_running: {$gte: 0}, ns: /gen/, $db: 'admin'}",
    "{aggregate: 1, pipeline: [{$currentOp: {allUsers: true, idleConnections: true, idleCursors: true, idleSessions: true, localOps: true, truncateOps: true}}, {$match: {op: 'none'}}], cursor: {batchSize: 1}, $db: 'admin'}",
    "{killOp: 1, op: 99999999, comment: 'c', $db: 'admin'}",
    "{top: 1, maxTimeMS: 60000, $db: 'admin'}",
    "{dbHash: 1, collections: ['a', 'b'], maxTimeMS: 60000, $db: 'gen'}",
];

const NAMES: &[&str] = &[
    "nosuch", "", "$nosuch", "ns.x", "_id", "q", "n", "$set", "multi",
];

/// A value of any type.
fn odd(dice: &mut Dice) -> Value {
    match dice.below(22) {
        0 => Value::Null,
        1 => Value::Int32(-1),
        2 => Value::Int32(dice.below(4) as i32),
        3 => Value::Int64(i64::MAX),
        4 => Value::Int64(i64::MIN),
        5 => Value::Double(f64::NAN),
        6 => Value::Double(1.5),
        7 => Value::Double(f64::INFINITY),
        8 => Value::Boolean(dice.below(2) == 0),
        9 => Value::String(dice.of(&["", "x", "$x", "$$x", "unset", "a_1"]).into()),
        10 => Value::String("y".repeat(10_000)),
        11 => Value::Document(DocBuf::new()),
        12 => Value::Document(doc! {"$nosuch": 1}),
        13 => Value::Document(doc! {"a": {"$gt": 1}}),
        14 => Value::from(Vec::<Value>::new()),
        15 => Value::from(vec![Value::Int32(1), Value::Null]),
        16 => Value::Regex {
            pattern: "(".into(),
            options: "i".into(),
        },
        17 => Value::MinKey,
        18 => Value::DateTime(sheaf_bson::DateTime(0)),
        19 => Value::Undefined,
        20 => Value::JavaScript("f()".into()),
        _ => Value::Binary {
            subtype: 4,
            bytes: vec![1; 3],
        },
    }
}

/// The value nested in up to two hundred documents or arrays, the limit of a request.
fn deep(value: Value, dice: &mut Dice) -> Value {
    let key = dice.of(&["$and", "a", "$not", "$expr"]);
    let mut value = value;
    for _ in 0..60 + dice.below(140) {
        value = match dice.below(2) {
            0 => Value::Document(doc! {key: value}),
            _ => Value::from(vec![value]),
        };
    }
    value
}

/// The fields of a document or array, one of them damaged; the first `spared` are left unchanged.
fn damage(fields: RawDoc<'_>, spared: usize, array: bool, dice: &mut Dice) -> Vec<(String, Value)> {
    let mut fields: Vec<(String, Value)> = fields
        .iter()
        .map(|field| (field.key().to_owned(), field.value().to_value()))
        .collect();
    let end = fields.iter().take_while(|(name, _)| name != "$db").count();
    if end <= spared {
        if !array && end == 0 {
            fields.push((dice.of(NAMES).to_owned(), odd(dice)));
        }
        return fields;
    }
    let at = spared + dice.below(end - spared);
    let inner = match &fields[at].1 {
        Value::Document(doc) => Some((doc.clone(), false)),
        Value::Array(array) => Some((array.as_raw().as_doc().to_buf(), true)),
        _ => None,
    };
    if let Some((inner, array)) = inner
        && dice.below(3) > 0
    {
        let damaged = damage(inner.as_raw(), 0, array, dice);
        fields[at].1 = if array {
            Value::from(
                damaged
                    .into_iter()
                    .map(|(_, value)| value)
                    .collect::<Vec<_>>(),
            )
        } else {
            Value::Document(document(damaged))
        };
        return fields;
    }
    match dice.below(8) {
        0 => drop(fields.remove(at)),
        1 => fields.insert(at, fields[at].clone()),
        2 => fields[at].0 = dice.of(NAMES).to_owned(),
        3 => fields.insert(at, (dice.of(NAMES).to_owned(), odd(dice))),
        4 if dice.below(4) == 0 => fields[at].1 = deep(fields[at].1.clone(), dice),
        _ => fields[at].1 = odd(dice),
    }
    fields
}

fn document(fields: Vec<(String, Value)>) -> DocBuf {
    let mut out = DocBuilder::new();
    for (name, value) in &fields {
        out.append_value(name, value);
    }
    out.finish()
}

/// A hash over all documents, and their number.
fn state(client: &mut Client) -> (String, i64) {
    let hash = client.ok(&doc! {"dbHash": 1, "$db": "gen"});
    let stats = client.ok(&doc! {"dbStats": 1, "$db": "gen"});
    let md5 = hash.get("md5").and_then(|v| v.as_str()).unwrap();
    let objects = stats.get("objects").and_then(|v| v.as_i64_exact()).unwrap();
    (md5.to_owned(), objects)
}

fn int(reply: &Reply, name: &str) -> i64 {
    let value = reply.body.get(name).and_then(|v| v.as_i64_exact());
    value.unwrap_or(0)
}

/// The number of documents that the reply reports as added (negative: removed), and as changed.
fn reported(name: &str, reply: &Reply) -> (i64, i64) {
    let listed = |field: &str| match reply.body.get(field) {
        Some(RawValue::Array(list)) => list.count() as i64,
        _ => 0,
    };
    match name {
        "bulkWrite" => (
            int(reply, "nInserted") + int(reply, "nUpserted") - int(reply, "nDeleted"),
            int(reply, "nModified"),
        ),
        "insert" => (int(reply, "n"), 0),
        "delete" => (-int(reply, "n"), 0),
        "update" => (listed("upserted"), int(reply, "nModified")),
        "findAndModify" => {
            let last = reply
                .body
                .get("lastErrorObject")
                .and_then(|v| v.as_document());
            let n = last
                .and_then(|last| last.get("n")?.as_i64_exact())
                .unwrap_or(0);
            match last.and_then(|last| last.get("updatedExisting")) {
                // An update that sets the same values does not report a change.
                Some(RawValue::Boolean(true)) => (0, n),
                Some(_) => (n, 0),
                None => (-n, 0),
            }
        }
        _ => (0, 0),
    }
}

/// An ordered bulkWrite has one error at most, as its last result.
fn check_results(reply: &Reply) {
    let cursor = reply.body.get("cursor").and_then(|v| v.as_document());
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    let batch = batch.unwrap_or_else(|| panic!("{:?}", reply.body));
    let mut last = -1;
    for result in batch.iter() {
        let result = result.as_document().expect("a document for each result");
        let idx = result
            .get("idx")
            .and_then(|v| v.as_i64_exact())
            .expect("idx");
        assert!(idx > last, "{:?}", reply.body);
        last = idx;
        let ok = result.get("ok").and_then(|v| v.as_f64()) == Some(1.0);
        assert_eq!(ok, result.get("code").is_none(), "{:?}", reply.body);
        assert_eq!(ok, result.get("errmsg").is_none(), "{:?}", reply.body);
    }
}

#[test]
fn damaged_commands() {
    let seed = setting("SHEAF_BAD_COMMANDS_SEED", 1);
    let rounds = setting("SHEAF_BAD_COMMANDS", 3000);
    let server = Server::start();
    let mut client = server.client();
    let fill = |client: &mut Client| {
        for name in ["a", "b"] {
            client.ok(&doc! {"delete": name, "deletes": [{"q": {}, "limit": 0}], "$db": "gen"});
            let docs: Vec<DocBuf> = (0..6)
                .map(|i| doc! {"_id": i, "n": i, "l": [1, i]})
                .collect();
            client.ok(&doc! {"insert": name, "documents": docs, "$db": "gen"});
        }
    };
    fill(&mut client);
    let mut dice = Dice(seed);
    let mut before = state(&mut client);
    let (mut refused, mut done) = (0, 0);
    for round in 0..rounds {
        let mut damaged = command(dice.of(COMMANDS));
        let name = damaged.iter().next().expect("a name").key().to_owned();
        for _ in 0..=dice.below(3) {
            damaged = document(damage(damaged.as_raw(), 1, false, &mut dice));
        }
        let shown = format!("seed {seed}, round {round}: {damaged:?}");
        let Some(reply) = client.try_run(&damaged) else {
            panic!("no answer; {shown}");
        };
        let after = state(&mut client);
        if reply.is_ok() {
            done += 1;
            let (added, changed) = reported(&name, &reply);
            assert_eq!(after.1 - before.1, added, "{shown}\n{:?}", reply.body);
            if added == 0 && changed == 0 && int(&reply, "nInserted") == 0 {
                assert_eq!(after.0, before.0, "{shown}\n{:?}", reply.body);
            }
            if name == "bulkWrite" {
                check_results(&reply);
            }
        } else {
            refused += 1;
            // 1: internal error; 8: unknown error.
            assert!(
                !matches!(reply.code(), 0 | 1 | 8),
                "{shown}\n{:?}",
                reply.body
            );
            assert!(!reply.code_name().is_empty(), "{shown}\n{:?}", reply.body);
            assert_eq!(after, before, "{shown}\n{:?}", reply.body);
        }
        before = after;
        if !(6..=40).contains(&before.1) {
            fill(&mut client);
            before = state(&mut client);
        }
    }
    // Enough commands are refused, and enough are still valid.
    assert!(
        refused > rounds / 4 && done > rounds / 20,
        "{refused} refused, {done} done"
    );
}
