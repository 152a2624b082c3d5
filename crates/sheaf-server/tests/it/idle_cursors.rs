//! Idle cursors: each returns the documents of its snapshot whenever its client continues, and
//! together they stay within the server's memory limit.

use std::time::Duration;

use sheaf_bson::{DocBuf, RawDoc, RawValue};

use super::client::{Client, command};
use super::server::Server;

const DOCUMENTS: i64 = 2000;
const ROUNDS: i64 = 12;
const LIMIT: i64 = 64 << 20;

/// The cursors opened in each round, and how many documents each returns.
const OPENED: [(&str, i64); 6] = [
    ("{find: 'c', batchSize: 2}", DOCUMENTS),
    ("{find: 'c', sort: {_id: -1}, batchSize: 3}", DOCUMENTS),
    (
        "{find: 'c', filter: {a: {$in: [1, 4]}}, batchSize: 2}",
        DOCUMENTS / 5,
    ),
    // Sorted in memory; the documents were read when the cursor was opened.
    (
        "{find: 'c', projection: {v: 1}, sort: {v: 1, a: -1}, limit: 100, batchSize: 2}",
        100,
    ),
    (
        "{aggregate: 'few', pipeline: [
            {$lookup: {from: 'c', localField: 'a', foreignField: 'a', as: 'c'}},
            {$unwind: '$c'}, {$replaceRoot: {newRoot: '$c'}}], cursor: {batchSize: 2}}",
        DOCUMENTS / 5,
    ),
    (
        "{aggregate: 'few', pipeline: [
            {$match: {_id: -1}}, {$unionWith: 'c'}], cursor: {batchSize: 2}}",
        DOCUMENTS,
    ),
];

/// A client's view of a cursor.
struct Cursor {
    id: i64,
    collection: &'static str,
    version: i64,
    given: i64,
    documents: i64,
}

impl Cursor {
    fn take(&mut self, reply: &DocBuf, batch: &str) {
        let cursor = document(reply.as_raw(), "cursor");
        self.id = number(cursor, "id");
        let Some(RawValue::Array(batch)) = cursor.get(batch) else {
            panic!("no batch: {reply:?}");
        };
        for value in batch {
            let found = value.as_document().map(|doc| number(doc, "v"));
            assert_eq!(found, Some(self.version));
            self.given += 1;
        }
    }
}

fn document<'d>(of: RawDoc<'d>, field: &str) -> RawDoc<'d> {
    let found = of.get(field).and_then(|value| value.as_document());
    found.unwrap_or_else(|| panic!("{field} of {of:?}"))
}

fn number(of: RawDoc<'_>, field: &str) -> i64 {
    let found = of.get(field).and_then(|value| value.as_i64_exact());
    found.unwrap_or_else(|| panic!("{field} of {of:?}"))
}

fn memory_most(client: &mut Client) -> i64 {
    let status = client.ok(&command("{serverStatus: 1}"));
    let memory = document(document(status.as_raw(), "sheaf"), "memory");
    assert_eq!(number(memory, "limitBytes"), LIMIT);
    number(document(memory, "total"), "bytesMax")
}

#[test]
fn idle_cursors_keep_their_snapshot_and_hold_no_memory() {
    let server = Server::start_with(&["--cacheSizeGB", "0.0625"]);
    let mut client = server.client();
    let filler = "x".repeat(4000);
    for from in (0..DOCUMENTS).step_by(500) {
        let documents: Vec<String> = (from..from + 500)
            .map(|n| format!("{{_id: {n}, a: {}, v: 0, filler: '{filler}'}}", n % 10))
            .collect();
        client.ok(&command(&format!(
            "{{insert: 'c', documents: [{}]}}",
            documents.join(", ")
        )));
    }
    client.ok(&command(
        "{insert: 'few', documents: [{_id: 1, a: 1}, {_id: 2, a: 4}]}",
    ));
    client.ok(&command(
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}",
    ));
    let mut cursors = Vec::new();
    for version in 0..ROUNDS {
        // One update per round. In the memtable values are whole, so a round takes about an eighth
        // of the limit.
        let update = format!(
            "{{update: 'c', updates: [{{q: {{}}, u: {{$set: {{v: {}}}}}, multi: true}}]}}",
            version + 1
        );
        for (text, documents) in OPENED {
            let mut cursor = Cursor {
                id: 0,
                collection: if text.contains("few") { "few" } else { "c" },
                version,
                given: 0,
                documents,
            };
            cursor.take(&client.ok(&command(text)), "firstBatch");
            assert_ne!(cursor.id, 0);
            cursors.push(cursor);
        }
        // Long enough for all cursors to be found idle.
        std::thread::sleep(Duration::from_millis(450));
        client.ok(&command(&update));
    }
    let most = memory_most(&mut client);
    assert!(most <= LIMIT + LIMIT / 4, "{most}");
    for mut cursor in cursors {
        // One batch, idle again, then everything.
        for size in [1, 100_000] {
            while cursor.id != 0 && (size > 1 || cursor.given < 5) {
                let more = format!(
                    "{{getMore: {{$numberLong: '{}'}}, collection: '{}', batchSize: {size}}}",
                    cursor.id, cursor.collection
                );
                cursor.take(&client.ok(&command(&more)), "nextBatch");
            }
        }
        assert_eq!(cursor.given, cursor.documents);
    }
    let most = memory_most(&mut client);
    assert!(most <= LIMIT + LIMIT / 4, "{most}");
}
