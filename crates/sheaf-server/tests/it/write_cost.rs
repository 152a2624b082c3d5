//! What updates log, as the profiler and explain report it: what changed, however large the
//! document is and however many indexes there are on other fields.

use sheaf_bson::{DocBuf, RawDoc, RawValue, doc};

use super::client::{Client, command};
use super::server::Server;

/// The profiler's counters of one update.
#[derive(Debug, PartialEq)]
struct Cost {
    keys: Option<f64>,
    bytes: Option<f64>,
}

fn number(doc: RawDoc<'_>, name: &str) -> Option<f64> {
    doc.get(name).and_then(|value| value.as_f64())
}

/// Updates one document; returns the costs that explain predicts and the profiler reports.
fn cost(client: &mut Client, collection: &str, update: &str) -> (Cost, Cost) {
    let statement =
        format!("{{update: '{collection}', updates: [{{q: {{_id: 1}}, u: {update}}}]}}");
    let explained = client.ok(&command(&format!(
        "{{explain: {statement}, verbosity: 'executionStats'}}"
    )));
    let stages = ["executionStats", "executionStages"];
    let stage = stages.iter().try_fold(explained.as_raw(), |doc, name| {
        doc.get(name).and_then(|value| value.as_document())
    });
    let stage = stage.unwrap_or_else(|| panic!("{explained}"));
    let total = |doc| Some(number(doc, "keysInserted")? + number(doc, "keysDeleted")?);
    let would = Cost {
        keys: total(stage),
        bytes: number(stage, "bytesLogged"),
    };
    client.ok(&command(&statement));
    let find = "{find: 'system.profile', filter: {op: 'update'}, sort: {ts: -1}, limit: 1}";
    let found = client.ok(&command(find));
    let batch = found.as_raw().get("cursor").and_then(|c| c.as_document());
    let batch = batch.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    let Some(Some(RawValue::Document(entry))) = batch.map(|batch| batch.iter().next()) else {
        panic!("{found}");
    };
    let done = Cost {
        keys: total(entry),
        bytes: number(entry, "bytesLogged"),
    };
    (would, done)
}

/// Size of the engine's log after a flush, in bytes.
fn log_bytes(client: &mut Client) -> f64 {
    client.ok(&command("{fsync: 1, $db: 'admin'}"));
    let status = client.ok(&command("{serverStatus: 1}"));
    let engine = status.as_raw().get("sheaf").and_then(|s| s.as_document());
    engine
        .and_then(|engine| number(engine, "logBytes"))
        .unwrap()
}

fn document(length: usize) -> DocBuf {
    // No two parts of the text are alike.
    let text: String = (0..length as u64)
        .map(|n| char::from(b'a' + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as u8 % 26))
        .collect();
    doc! {"_id": 1, "n": 0, "a": 1, "b": 2, "c": [3, 4], "text": text.as_str(), "d": {"e": 5}}
}

#[test]
fn an_update_logs_what_it_changes() {
    let server = Server::start();
    let mut client = server.client();
    let fields = ["a", "b", "c", "d.e", "text", "x", "y", "z"];
    let counts = [0, 1, 2, 4, 8];
    for indexes in counts {
        let name = format!("indexes{indexes}");
        let insert = doc! {"insert": name.as_str(), "documents": [document(500)], "$db": "test"};
        client.ok(&insert);
        for field in &fields[..indexes] {
            let specs = format!("[{{key: {{'{field}': 1}}, name: '{field}'}}]");
            client.ok(&command(&format!(
                "{{createIndexes: '{name}', indexes: {specs}}}"
            )));
        }
    }
    for (name, length) in [("kb", 1 << 10), ("more", 16 << 10), ("mb", 1 << 20)] {
        let insert = doc! {"insert": name, "documents": [document(length)], "$db": "test"};
        client.ok(&insert);
    }
    let array: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let array = array.join(", ");
    client.ok(&command(&format!(
        "{{insert: 'array', documents: [{{_id: 1, a: [{array}]}}]}}"
    )));
    client.ok(&command("{profile: 2}"));

    // A counter costs the same whatever indexes there are on other fields. The sum of several
    // updates, because the number of changed bytes differs.
    let mut totals = Vec::new();
    for indexes in counts {
        let mut total = 0.0;
        for _ in 0..20 {
            let before = log_bytes(&mut client);
            let (would, done) = cost(&mut client, &format!("indexes{indexes}"), "{$inc: {n: 1}}");
            assert_eq!(done.keys, Some(0.0));
            assert_eq!(would, done);
            total += done.bytes.unwrap();
            assert!(log_bytes(&mut client) - before >= done.bytes.unwrap());
        }
        totals.push(total / 20.0);
    }
    let (least, most) = (totals[0], totals[totals.len() - 1]);
    assert!(
        least > 0.0 && totals.iter().all(|n| (n - least).abs() <= least * 0.02),
        "{totals:?}"
    );
    assert!(most < 128.0, "{totals:?}");

    // The document's length does not matter either.
    for name in ["kb", "more", "mb"] {
        let (would, done) = cost(&mut client, name, "{$inc: {n: 1}}");
        assert_eq!(would, done);
        assert!(done.bytes.unwrap() < 128.0, "{name}: {done:?}");
    }
    let (_, element) = cost(&mut client, "array", "{$set: {'a.500': 7}}");
    assert!(element.bytes.unwrap() < 128.0, "{element:?}");
    let (_, pushed) = cost(&mut client, "array", "{$push: {a: 7}}");
    assert!(pushed.bytes.unwrap() < 160.0, "{pushed:?}");

    // The field is indexed: one key is removed, one added.
    let (would, done) = cost(&mut client, "indexes8", "{$set: {a: 77}}");
    assert_eq!((would, done.keys), (Cost { ..done }, Some(2.0)));

    // Nothing changes, and nothing is written.
    client.ok(&command("{profile: 0}"));
    let before = log_bytes(&mut client);
    for (collection, update) in [
        ("indexes0", "{$set: {a: 1}}"),
        ("indexes8", "{$max: {n: -5}}"),
        ("mb", "{$unset: {nothing: ''}}"),
        ("array", "{$addToSet: {a: 3}}"),
        ("more", "[{$set: {a: 1}}]"),
    ] {
        let update =
            format!("{{update: '{collection}', updates: [{{q: {{_id: 1}}, u: {update}}}]}}");
        let reply = client.ok(&command(&update));
        assert_eq!(number(reply.as_raw(), "n"), Some(1.0), "{update}");
        assert_eq!(number(reply.as_raw(), "nModified"), Some(0.0), "{update}");
    }
    assert_eq!(log_bytes(&mut client), before);
    client.ok(&command("{profile: 2}"));
    let (would, done) = cost(&mut client, "indexes8", "{$set: {b: 2}}");
    assert_eq!((would.keys, would.bytes), (Some(0.0), Some(0.0)));
    assert_eq!((done.keys, done.bytes), (None, None));
}
