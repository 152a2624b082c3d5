//! Measures the savings of a clustered collection over a collection with an `_id` index: bytes and
//! keys per insert, and instructions of reads and writes.
//!
//! ```text
//!   cargo run --release -p sheaf-bench --bin clustered
//!   valgrind --tool=callgrind --toggle-collect='*measured*' \
//!       target/release/clustered find clustered
//! ```
//!
//! Without arguments it prints bytes, which are the same on any machine. With an operation (`find`,
//! `range`, `insert`, `load`, `delete`) and a kind (`plain`, `clustered`) it runs the operation
//! [`TIMES`] times inside `measured`, for callgrind to count; divide the total by the number it
//! prints.

use std::sync::Arc;

use sheaf_bson::{DocBuf, Error, ObjectId, RawDoc, doc};
use sheaf_db::QueryOptions;
use sheaf_db::find;
use sheaf_db::modify::{DeleteReport, DeleteStatement, ReturnDocument, delete};
use sheaf_db::{CollectionOptions, Db, DbOptions, Namespace, ResultSource, StatementContext};
use sheaf_query::canonical::FindSpec;
use sheaf_storage::{LogTreeEngine, LogTreeOptions, StorageEngine};

/// Documents in the collection.
const DOCUMENTS: i64 = 50_000;
/// Operations inside `measured`.
const TIMES: i64 = 500;
/// Documents in a range, and in an inserted batch.
const MANY: i64 = 100;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => bytes(),
        [operation, kind] => {
            let bench = Bench::new(kind == "clustered")?;
            bench.load(0..DOCUMENTS, MANY)?;
            bench.engine.checkpoint()?;
            measured(&bench, operation)?;
            println!("{operation} {kind}: divide by {TIMES}");
            Ok(())
        }
        _ => Err("expected no arguments, or an operation and a kind".into()),
    }
}

/// The operations that callgrind counts.
#[inline(never)]
fn measured(bench: &Bench, operation: &str) -> Result<()> {
    for turn in 0..TIMES {
        let at =
            ((turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as i64 % (DOCUMENTS - MANY);
        match operation {
            "find" => bench.read(&doc! {"_id": at}, 1)?,
            "range" => bench.read(&doc! {"_id": {"$gte": at, "$lt": at + MANY}}, MANY)?,
            "insert" => bench.load(DOCUMENTS + turn..DOCUMENTS + turn + 1, 1)?,
            "load" => bench.load(DOCUMENTS + turn * MANY..DOCUMENTS + (turn + 1) * MANY, MANY)?,
            "delete" => bench.delete(turn * MANY..(turn + 1) * MANY)?,
            _ => return Err("unknown operation".into()),
        }
    }
    Ok(())
}

fn bytes() -> Result<()> {
    println!(
        "{:<34} {:>7} {:>9} {:>9} {:>9} {:>6}",
        "each of 50,000 documents of 120 bytes",
        "records",
        "_id index",
        "logged",
        "written",
        "keys"
    );
    for (name, ids) in [("_id counts up", false), ("_id an ObjectId", true)] {
        for clustered in [false, true] {
            let bench = Bench::new(clustered)?;
            let before = bench.counts()?;
            match ids {
                true => bench.load_object_ids()?,
                false => bench.load(0..DOCUMENTS, MANY)?,
            }
            let after = bench.counts()?;
            let each = |before: u64, after: u64| (after - before) as f64 / DOCUMENTS as f64;
            let collection = bench
                .db
                .catalog()
                .collection(&bench.ns)
                .cloned()
                .ok_or("no collection")?;
            let stats = bench.db.collection_stats(&collection).map_err(said)?;
            let kind = if clustered { "clustered" } else { "plain" };
            println!(
                "{:<34} {:>7.1} {:>9.1} {:>9.1} {:>9.1} {:>6}",
                format!("{name}, {kind}"),
                each(0, stats.size.storage_bytes),
                each(0, stats.total_index_bytes()),
                each(before.0, after.0),
                each(before.1, after.1),
                each(before.2, after.2),
            );
        }
    }
    Ok(())
}

fn said(error: Error) -> String {
    error.to_string()
}

struct Bench {
    db: Arc<Db>,
    engine: Arc<LogTreeEngine>,
    op: StatementContext,
    ns: Namespace,
    text: String,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(clustered: bool) -> Result<Bench> {
        let folder = tempfile::tempdir()?;
        let engine = Arc::new(LogTreeEngine::open(
            folder.path(),
            LogTreeOptions::default(),
        )?);
        let bench = Bench {
            db: Db::open(engine.clone(), DbOptions::default()).map_err(said)?,
            engine,
            op: StatementContext::new(),
            ns: Namespace::new("bench", "c").map_err(said)?,
            text:
                "a text that is some ninety bytes long, which is what documents are made of mostly."
                    .into(),
            _folder: folder,
        };
        let options = match clustered {
            true => doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}},
            false => doc! {},
        };
        let options = CollectionOptions::parse(options.as_raw()).map_err(said)?;
        bench
            .db
            .create_collection(&bench.op, &bench.ns, options)
            .map_err(said)?;
        Ok(bench)
    }

    /// Bytes logged, bytes written to files after a checkpoint, index keys.
    fn counts(&self) -> Result<(u64, u64, u64)> {
        self.engine.checkpoint()?;
        let (stats, detail) = (self.engine.stats(), self.engine.detail());
        let keys = self.op.counters().counts();
        Ok((
            detail.log_bytes,
            stats.bytes_written - detail.log_bytes_filled,
            keys.keys_inserted,
        ))
    }

    fn load(&self, ids: std::ops::Range<i64>, batch: i64) -> Result<()> {
        for first in ids.clone().step_by(batch as usize) {
            let docs = (first..ids.end.min(first + batch))
                .map(|id| doc! {"_id": id, "n": id % 1000, "text": self.text.as_str()});
            self.insert(&docs.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn load_object_ids(&self) -> Result<()> {
        for _ in 0..DOCUMENTS / MANY {
            let docs = (0..MANY)
                .map(|n| doc! {"_id": ObjectId::new(), "n": n, "text": self.text.as_str()});
            self.insert(&docs.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn insert(&self, docs: &[DocBuf]) -> Result<()> {
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        let result = self
            .db
            .insert(&self.op, &self.ns, &docs, true)
            .map_err(said)?;
        match result.errors.is_empty() {
            true => Ok(()),
            false => Err(result.errors[0].error.to_string().into()),
        }
    }

    fn read(&self, filter: &DocBuf, expected: i64) -> Result<()> {
        let view = self.db.read_view(&self.ns).map_err(said)?;
        let spec = FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        };
        let query = Arc::new(find::canonicalize(&view, spec).map_err(said)?);
        let mut found =
            find::find(&view, &self.op, query, &QueryOptions::default()).map_err(said)?;
        let mut count = 0;
        while found.next(&self.op).map_err(said)?.is_some() {
            count += 1;
        }
        match count == expected {
            true => Ok(()),
            false => Err(format!("{count} found, {expected} expected").into()),
        }
    }

    fn delete(&self, ids: std::ops::Range<i64>) -> Result<()> {
        let filter = doc! {"_id": {"$gte": ids.start, "$lt": ids.end}};
        let statement = DeleteStatement {
            spec: FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
            multi: true,
            return_document: ReturnDocument::None,
            projection: None,
        };
        let mut report = DeleteReport::default();
        let options = QueryOptions::default();
        delete(
            &self.db,
            &self.op,
            &self.ns,
            &statement,
            &options,
            &mut report,
        )
        .map_err(said)?;
        Ok(())
    }
}
