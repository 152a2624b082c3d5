//! The cost of a write below the server: bytes logged, bytes that the engine writes to its files,
//! and index keys changed, per write.
//!
//!   cargo run --release -p sheaf-bench --bin write_cost
//!
//! Reads the engine's counters before and after [`WRITES`] writes, each in its own unit of work. A
//! checkpoint follows, so that the pages that the writes cause are included. Zeros written ahead of
//! the log are not, because the log's files are reused. The numbers are counts, not times, and are
//! the same on any machine.

use std::sync::Arc;

use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Error, RawValue, Value, doc};
use sheaf_db::QueryOptions;
use sheaf_db::index::definition::IndexSpec;
use sheaf_db::modify::{ReturnDocument, UpdateReport, UpdateStatement, update};
use sheaf_db::{Db, DbOptions, Namespace, StatementContext};
use sheaf_query::canonical::FindSpec;
use sheaf_storage::{LogTreeEngine, LogTreeOptions, StorageEngine};

/// Number of documents in a collection, which are updated at random.
const DOCUMENTS: i64 = 2000;
/// Number of writes over which a number is averaged.
const WRITES: i64 = 2000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let engine = Arc::new(LogTreeEngine::open(
        folder.path(),
        LogTreeOptions::default(),
    )?);
    let bench = Bench {
        db: Db::open(engine.clone(), DbOptions::default()).map_err(said)?,
        engine,
        op: StatementContext::new(),
    };
    println!(
        "{:<52} {:>9} {:>9} {:>12} {:>6}",
        "", "document", "logged", "written", "keys"
    );
    bench.counters()?;
    bench.sizes()?;
    bench.arrays()
}

fn said(error: Error) -> String {
    error.to_string()
}

struct Bench {
    db: Arc<Db>,
    engine: Arc<LogTreeEngine>,
    op: StatementContext,
}

/// Counters of the engine.
struct Counts {
    logged: u64,
    written: u64,
    keys: u64,
}

impl Bench {
    /// The counters after a checkpoint.
    fn counts(&self) -> Result<Counts> {
        self.engine.checkpoint()?;
        let (stats, detail) = (self.engine.stats(), self.engine.detail());
        let keys = self.op.counters().counts();
        Ok(Counts {
            logged: detail.log_bytes,
            written: stats.bytes_written - detail.log_bytes_filled,
            keys: keys.keys_inserted + keys.keys_deleted,
        })
    }

    fn print(&self, name: &str, length: u64, before: &Counts, writes: u64) -> Result<()> {
        let after = self.counts()?;
        let each = |before: u64, after: u64| (after - before) as f64 / writes as f64;
        println!(
            "{name:<52} {length:>9} {:>9.1} {:>12.1} {:>6}",
            each(before.logged, after.logged),
            each(before.written, after.written),
            each(before.keys, after.keys),
        );
        Ok(())
    }

    fn insert(&self, collection: &str, documents: &[DocBuf]) -> Result<()> {
        let ns = Namespace::new("bench", collection).map_err(said)?;
        for document in documents {
            let document = document.as_raw();
            self.db.insert_one(&self.op, &ns, document).map_err(said)?;
        }
        Ok(())
    }

    fn update(&self, ns: &Namespace, id: i64, change: &DocBuf) -> Result<()> {
        let filter = doc! {"_id": id};
        let statement = UpdateStatement {
            spec: FindSpec {
                filter: Some(filter.as_raw()),
                ..FindSpec::default()
            },
            update: RawValue::Document(change.as_raw()),
            constants: None,
            upsert_supplied: None,
            array_filters: None,
            upsert: false,
            multi: false,
            return_document: ReturnDocument::None,
            projection: None,
        };
        let mut report = UpdateReport::default();
        let options = QueryOptions::default();
        update(&self.db, &self.op, ns, &statement, &options, &mut report).map_err(said)?;
        match report.result.matched {
            1 => Ok(()),
            matched => Err(format!("{matched} documents matched").into()),
        }
    }

    /// Updates random documents, and prints the cost per update.
    fn measure(
        &self,
        name: &str,
        collection: &str,
        writes: i64,
        change: impl Fn(i64) -> DocBuf,
    ) -> Result<()> {
        let ns = Namespace::new("bench", collection).map_err(said)?;
        let size = self.db.collection_size(&ns).map_err(said)?;
        let before = self.counts()?;
        for n in 0..writes {
            let spread = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            self.update(&ns, (spread % size.count) as i64, &change(n))?;
        }
        let length = size.data_bytes / size.count;
        self.print(name, length, &before, writes as u64)
    }

    fn counters(&self) -> Result<()> {
        for indexes in [0, 1, 2, 4, 8] {
            let collection = format!("counters{indexes}");
            let documents: Vec<DocBuf> = (0..DOCUMENTS)
                .map(|id| {
                    let mut out = DocBuilder::from_doc(doc! {"_id": id, "n": 0}.as_raw());
                    for field in 0..8 {
                        out.append(&format!("f{field}"), id * (field + 1) % 997);
                    }
                    out.append("text", text(350).as_str());
                    out.finish()
                })
                .collect();
            self.insert(&collection, &documents)?;
            for index in 0..indexes {
                let field = format!("f{index}");
                let mut key = DocBuilder::new();
                key.append(&field, 1);
                let spec = doc! {"key": key.finish(), "name": field.as_str()};
                let spec = IndexSpec::parse(spec.as_raw()).map_err(said)?;
                let ns = Namespace::new("bench", &collection).map_err(said)?;
                let created = self.db.create_indexes(&self.op, &ns, &[spec]);
                created.map_err(said)?;
            }
            let name = format!("$inc of a counter, {indexes} indexes on other fields");
            self.measure(&name, &collection, WRITES, |_| doc! {"$inc": {"n": 1}})?;
        }
        let set = |n: i64| doc! {"$set": {"f0": n}};
        self.measure("$set of one indexed field of 8", "counters8", WRITES, set)?;
        let nothing = |_| doc! {"$max": {"n": -1}};
        self.measure("no-op update", "counters8", WRITES, nothing)
    }

    fn sizes(&self) -> Result<()> {
        for (name, length, count, writes) in [
            ("1 KB", 1 << 10, DOCUMENTS, WRITES),
            ("16 KB", 16 << 10, 200, WRITES),
            ("1 MB", 1 << 20, 8, 200),
        ] {
            let collection = format!("sized{length}");
            let documents: Vec<DocBuf> = (0..count)
                .map(|id| {
                    let text = text(length as usize - 40);
                    doc! {"_id": id, "n": 0, "text": text.as_str(), "last": 0}
                })
                .collect();
            let before = self.counts()?;
            self.insert(&collection, &documents)?;
            let inserted = format!("insert of {name}");
            let bytes = documents[0].len_bytes() as u64;
            self.print(&inserted, bytes, &before, count as u64)?;
            let name = format!("$inc of a counter in {name}");
            self.measure(&name, &collection, writes, |_| doc! {"$inc": {"n": 1}})?;
        }
        Ok(())
    }

    fn arrays(&self) -> Result<()> {
        let documents: Vec<DocBuf> = (0..100_i64)
            .map(|id| {
                let values: Vec<Value> = (0..1000_i64).map(Value::from).collect();
                doc! {"_id": id, "a": ArrayBuf::from_values(&values)}
            })
            .collect();
        self.insert("arrays", &documents)?;
        let element = |n: i64| doc! {"$set": {"a.500": n + 5000}};
        self.measure(
            "one element of an array of 1,000",
            "arrays",
            WRITES,
            element,
        )?;
        let push = |n: i64| doc! {"$push": {"a": n}};
        self.measure("$push to an array of 1,000", "arrays", WRITES, push)
    }
}

/// A text without repetitions from which a delta would profit.
fn text(length: usize) -> String {
    let mut state = length as u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'a' + (state >> 59) as u8 % 26)
    };
    (0..length).map(|_| next()).collect()
}
