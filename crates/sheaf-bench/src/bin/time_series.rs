//! The cost of a time-series collection: loading, bytes per point, and reading a range of one
//! series among few and among many points.
//!
//! ```text
//!   load N points of 100 sensors, one per second each, 5000 per insert
//!   at N/10 and at N:  one hour of one sensor, filtered ──> buckets read, measurements, microseconds
//!   the same points in a plain collection with an index on sensor and time, at N/10
//! ```
//!
//! `cargo run --release -p sheaf-bench --bin time_series -- 10000000`. Runs in one process on our
//! own engine; times are the median of 51 runs.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::{ArrayBuf, DateTime, DocBuf, DocBuilder, ObjectId, RawDoc, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::aggregate::explain::{ExplainRequest, explain};
use sheaf_db::aggregate::{self, AggregateContext};
use sheaf_db::explain::Verbosity;
use sheaf_db::index::definition::IndexSpec;
use sheaf_db::{CollectionOptions, Db, DbOptions, Namespace, ResultSource, StatementContext};
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{OptimizedPipeline, Pipeline};
use sheaf_storage::{LogTreeEngine, LogTreeOptions};

const SENSORS: i64 = 100;
const BATCH: i64 = 5_000;
const START: i64 = 1_700_000_000_000;
/// Start of the hour that is read, in seconds: with ten million points, a tenth of them extends
/// beyond it.
const FROM_SECOND: i64 = 4_000;
const RUNS: usize = 51;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Point number `n`: every sensor in turn, then the next second.
fn point(n: i64, random: &mut u64) -> DocBuf {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let noise = (*random >> 59) as i64;
    let second = n / SENSORS;
    let temperature = (200 + second / 600 % 100 + noise) as f64 / 10.0;
    doc! {
        "_id": ObjectId::new(),
        "t": DateTime(START + second * 1000),
        "sensor": n % SENSORS,
        "temperature": temperature,
        "count": second % 1000,
    }
}

struct Bench {
    db: Arc<Db>,
    op: StatementContext,
}

impl Bench {
    fn load(&self, name: &str, from: i64, to: i64) -> Outcome<f64> {
        let ns = Namespace::new("bench", name)?;
        let mut random = from as u64;
        let mut seconds = 0.0;
        let mut at = from;
        while at < to {
            let end = to.min(at + BATCH);
            let docs: Vec<DocBuf> = (at..end).map(|n| point(n, &mut random)).collect();
            let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
            let begun = Instant::now();
            let result = self.db.insert(&self.op, &ns, &docs, true)?;
            seconds += begun.elapsed().as_secs_f64();
            if result.inserted as usize != docs.len() {
                return Err(format!("{:?}", result.errors).into());
            }
            at = end;
        }
        Ok((to - from) as f64 / seconds)
    }

    /// One hour of one sensor, the same for every size, and about half of its points.
    fn pipeline(&self, name: &str) -> Outcome<(Namespace, OptimizedPipeline)> {
        let from = START + FROM_SECOND * 1000;
        let (from, to) = (DateTime(from), DateTime(from + 3_600_000));
        let range = doc! {"$gte": from, "$lt": to};
        let hot = doc! {"$gt": 22.5};
        let filter = doc! {"sensor": 42, "t": &range, "temperature": &hot};
        let stages = [doc! {"$match": &filter}];
        let stages = stages
            .iter()
            .map(|stage| RawValue::Document(stage.as_raw()));
        let stages = ArrayBuf::from_values(stages);
        let context = ParseContext::default();
        let mut pipeline = Pipeline::parse(stages.as_raw(), &context)?;
        let mut on = Namespace::new("bench", name)?;
        if let Some(view) = self.db.resolve_view(&on)? {
            let mut whole = Pipeline::parse(view.pipeline.as_raw(), &context)?;
            whole.stages.append(&mut pipeline.stages);
            (pipeline, on) = (whole, view.on);
        }
        Ok((on, pipeline.optimize()))
    }

    fn range(&self, name: &str) -> Outcome<String> {
        let (on, pipeline) = self.pipeline(name)?;
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..RUNS {
            let begun = Instant::now();
            let cx = self.context();
            let view = cx.view(&self.op, &on)?;
            let mut source = aggregate::start(&cx, &view, &self.op, &pipeline, None)?;
            found = 0;
            while source.next(&self.op)?.is_some() {
                found += 1;
            }
            times.push(begun.elapsed().as_micros());
        }
        times.sort_unstable();
        let cx = self.context();
        let request = ExplainRequest {
            view: &cx.view(&self.op, &on)?,
            op: &self.op,
            namespace: on.as_str(),
            verbosity: Verbosity::ExecutionStats,
            hint: None,
        };
        let mut out = DocBuilder::new();
        explain(&cx, &request, &pipeline, &mut out)?;
        let explained = out.finish();
        let read = |field: &str| number(explained.as_raw(), field).unwrap_or(0);
        Ok(format!(
            "{} keys, {} documents, {} unpacked, {found} results, {} us",
            read("totalKeysExamined"),
            read("totalDocsExamined"),
            read("nBucketsUnpacked"),
            times[RUNS / 2]
        ))
    }

    fn context(&self) -> AggregateContext {
        let options = QueryOptions::default();
        AggregateContext::new(&self.db, "bench", ParseContext::default(), options, None)
    }

    fn bytes_per_point(&self, name: &str, points: i64) -> Outcome<f64> {
        self.db.engine().checkpoint()?;
        let ns = Namespace::new("bench", name)?;
        let catalog = self.db.catalog();
        let collection = catalog.collection(&ns).ok_or("no such collection")?;
        let stats = self.db.collection_stats(collection)?;
        let bytes = stats.size.storage_bytes + stats.total_index_bytes();
        Ok(bytes as f64 / points as f64)
    }
}

/// The first number with this name, at any depth.
fn number(doc: RawDoc<'_>, field: &str) -> Option<i64> {
    doc.iter().find_map(|element| match element.value() {
        value if element.key() == field => value.as_i64_exact(),
        RawValue::Document(inner) => number(inner, field),
        RawValue::Array(inner) => number(inner.as_doc(), field),
        _ => None,
    })
}

fn main() -> Outcome<()> {
    let points: i64 = match std::env::args().nth(1) {
        Some(points) => points.parse()?,
        None => 10_000_000,
    };
    let tenth = points / 10;
    let dir = tempfile::tempdir()?;
    let engine = LogTreeEngine::open(&dir.path().join("data"), LogTreeOptions::default())?;
    let options = DbOptions {
        temp_dir: Some(dir.path().join("tmp")),
        ..DbOptions::default()
    };
    let bench = Bench {
        db: Db::open(Arc::new(engine), options)?,
        op: StatementContext::new(),
    };
    let series = doc! {"timeseries": {"timeField": "t", "metaField": "sensor"}};
    for (name, options) in [("series", series), ("plain", doc! {})] {
        let options = CollectionOptions::parse(options.as_raw())?;
        let ns = Namespace::new("bench", name)?;
        bench.db.create_collection(&bench.op, &ns, options)?;
    }
    let spec = doc! {"key": {"sensor": 1, "t": 1}, "name": "sensor_1_t_1"};
    let spec = IndexSpec::parse(spec.as_raw())?;
    let plain = Namespace::new("bench", "plain")?;
    bench.db.create_indexes(&bench.op, &plain, &[spec])?;

    println!(
        "{:<34} {:.0} points/s",
        "load, first tenth",
        bench.load("series", 0, tenth)?
    );
    println!(
        "{:<34} {:.1}",
        "bytes per point on disk",
        bench.bytes_per_point("system.buckets.series", tenth)?
    );
    println!(
        "{:<34} {}",
        format!("one sensor-hour of {tenth}"),
        bench.range("series")?
    );
    println!(
        "{:<34} {:.0} points/s",
        "load, remainder",
        bench.load("series", tenth, points)?
    );
    println!(
        "{:<34} {:.1}",
        "bytes per point on disk",
        bench.bytes_per_point("system.buckets.series", points)?
    );
    println!(
        "{:<34} {}",
        format!("one sensor-hour of {points}"),
        bench.range("series")?
    );
    println!(
        "{:<34} {:.0} points/s",
        "plain: load of a tenth",
        bench.load("plain", 0, tenth)?
    );
    println!(
        "{:<34} {:.1}",
        "plain: bytes per point on disk",
        bench.bytes_per_point("plain", tenth)?
    );
    println!(
        "{:<34} {}",
        format!("plain: one sensor-hour of {tenth}"),
        bench.range("plain")?
    );
    Ok(())
}
