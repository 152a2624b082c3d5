//! The environment of a running pipeline: interruption, memory limits, other collections, temporary
//! files.
//!
//! This crate accesses no data, no clock and no disk. The caller that runs a pipeline passes an
//! [`Environment`] to every call. It interrupts stages, limits their memory, and gives them access
//! to other collections and to temporary files.
//!
//! ```text
//!   $lookup  ── open / probe ──> Environment ──> plans, snapshots     (sheaf-db)
//!   $group   ── spill ─────────> Environment ──> temporary files      (sheaf-db)
//!   any      ── check_interrupt > Environment ──> maxTimeMS, killOp
//! ```

use std::any::Any;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::limits::BLOCKING_BYTES_MAX;
use super::{OptimizedPipeline, Pipeline};
use crate::expression::random_bits;
use crate::matcher::ParseContext;

/// The environment of a running pipeline. By default, there are no other collections and no disk.
pub trait Environment {
    /// Checks for interruption. Cheap; every loop must call it.
    ///
    /// Errors: the operation was killed or exceeded its time limit.
    fn check_interrupt(&self) -> Result<()>;

    /// Memory limit of one blocking stage, in bytes; beyond it the stage must spill.
    fn memory_bytes_max(&self) -> usize {
        BLOCKING_BYTES_MAX
    }

    /// Creates a temporary store on disk for `stage`.
    ///
    /// Errors: QueryExceededMemoryLimitNoDiskUseAllowed if the command or the server does not allow
    /// disk use.
    fn spill(&self, stage: &'static str) -> Result<Box<dyn SpillStore>> {
        Err(no_disk_use(stage, self.memory_bytes_max()))
    }

    /// Starts a pipeline over another collection or view.
    ///
    /// Errors: those of planning and of views.
    fn open(&self, request: &ForeignRequest<'_>) -> Result<ForeignCursor> {
        Err(unreachable_collection(request.from))
    }

    /// Opens a cursor over the documents of another collection whose `path` has one of the values
    /// of a later [`Environment::probe`]. Planned once for many probes.
    fn open_join(&self, request: &JoinRequest<'_>) -> Result<ForeignCursor> {
        Err(unreachable_collection(request.from))
    }

    /// Restarts a cursor of [`Environment::open_join`] with the documents that have one of these
    /// values. Null also matches documents without the path.
    fn probe(&self, cursor: &mut ForeignCursor, values: &[RawValue<'_>]) -> Result<()> {
        let _ = (cursor, values);
        Ok(())
    }

    /// Prepares a pipeline over another collection that is run many times with different variables,
    /// which are used only in the filter of its prefix. `None` if the caller must open a new cursor
    /// each time.
    fn open_prepared(&self, request: &PreparedRequest<'_>) -> Result<Option<ForeignCursor>> {
        let _ = request;
        Ok(None)
    }

    /// Restarts a cursor of [`Environment::open_prepared`] with the variables of `context`. `also`
    /// is an additional filter on the documents of the collection.
    fn rerun(
        &self,
        cursor: &mut ForeignCursor,
        also: Option<&DocBuf>,
        context: ParseContext,
    ) -> Result<()> {
        let _ = (cursor, also, context);
        Ok(())
    }

    /// The next document; `None` at the end.
    fn advance<'c>(&self, cursor: &'c mut ForeignCursor) -> Result<Option<RawDoc<'c>>> {
        let _ = cursor;
        Ok(None)
    }

    /// Counts of what a cursor has read so far.
    fn foreign_counts(&self, cursor: &ForeignCursor) -> ForeignCounts {
        let _ = cursor;
        ForeignCounts::default()
    }

    /// 64 random bits: those of the generator that `$rand` uses, unless a test needs others.
    fn random(&self) -> u64 {
        random_bits()
    }
}

/// A cursor of the environment: a pipeline over another collection.
pub struct ForeignCursor(pub Box<dyn ForeignReader>);

/// The environment's reader of another collection.
pub trait ForeignReader: Any + Send {
    /// Suspends the reader: releases everything that it does not need to continue at its position.
    fn suspend(&mut self);
}

impl ForeignCursor {
    /// See [`ForeignReader::suspend`].
    pub fn suspend(&mut self) {
        self.0.suspend();
    }
}

impl std::fmt::Debug for ForeignCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForeignCursor")
    }
}

/// The name of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignName {
    /// The database; `None` is that of the pipeline.
    pub db: Option<Box<str>>,
    /// The collection or view; empty for a pipeline that produces its own documents.
    pub collection: Box<str>,
}

/// A pipeline over another collection, for explain.
#[derive(Debug)]
pub struct OtherInput {
    /// The source of the documents.
    pub from: ForeignName,
    /// The pipeline, not yet optimised.
    pub pipeline: Pipeline,
    /// The context with which it was parsed.
    pub context: ParseContext,
}

/// The parameters of [`Environment::open`].
#[derive(Debug)]
pub struct ForeignRequest<'a> {
    /// The source of the documents.
    pub from: &'a ForeignName,
    /// The pipeline to run, not yet optimised.
    pub pipeline: &'a Pipeline,
    /// The context with which the pipeline was parsed.
    pub context: &'a ParseContext,
}

/// The parameters of [`Environment::open_prepared`].
#[derive(Debug)]
pub struct PreparedRequest<'a> {
    /// The source of the documents.
    pub from: &'a ForeignName,
    /// The pipeline to run; the filter of its prefix is parsed again for each run.
    pub pipeline: &'a Arc<OptimizedPipeline>,
    /// The context with which the pipeline was parsed, without the variables.
    pub context: &'a ParseContext,
}

/// The parameters of [`Environment::open_join`].
#[derive(Debug)]
pub struct JoinRequest<'a> {
    /// The source of the documents.
    pub from: &'a ForeignName,
    /// The dotted path that must have one of the probed values.
    pub path: &'a str,
    /// An additional filter on the documents; an empty one matches everything.
    pub filter: &'a DocBuf,
    /// The pipeline to run on the matches, not yet optimised; `None` returns them unchanged.
    pub pipeline: Option<&'a Arc<Pipeline>>,
    /// The context with which filter and pipeline were parsed.
    pub context: &'a ParseContext,
}

/// Counts of what a cursor over another collection has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignCounts {
    /// Number of index keys examined.
    pub keys_examined: u64,
    /// Number of documents examined.
    pub docs_examined: u64,
    /// Number of collection scans started.
    pub collection_scans: u64,
    /// Names of the indexes used, without duplicates.
    pub indexes_used: Vec<String>,
    /// Strategy of a join: `IndexedLoopJoin`, `HashJoin`, `NestedLoopJoin`.
    pub strategy: Option<&'static str>,
}

impl ForeignCounts {
    /// Adds the counts of another cursor.
    pub fn add(&mut self, other: &ForeignCounts) {
        self.keys_examined += other.keys_examined;
        self.docs_examined += other.docs_examined;
        self.collection_scans += other.collection_scans;
        self.strategy = other.strategy.or(self.strategy);
        for index in &other.indexes_used {
            if !self.indexes_used.contains(index) {
                self.indexes_used.push(index.clone());
            }
        }
    }

    /// Appends the counts in the form of explain.
    pub fn append(&self, out: &mut DocBuilder) {
        if let Some(strategy) = self.strategy {
            out.append("strategy", strategy);
        }
        out.append("totalDocsExamined", self.docs_examined as i64);
        out.append("totalKeysExamined", self.keys_examined as i64);
        out.append("collectionScans", self.collection_scans as i64);
        out.begin_array("indexesUsed");
        for index in &self.indexes_used {
            out.push(index.as_str());
        }
        out.end();
    }
}

/// A temporary store of sorted runs outside memory, deleted on drop.
///
/// ```text
///   begin_run, push*, begin_run, push*, ... then next*: all runs merged by key
/// ```
pub trait SpillStore: Send {
    /// Ends the current run, if any, and begins a new one.
    fn begin_run(&mut self) -> Result<()>;
    /// Appends a record to the run; keys must not descend within a run.
    fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()>;
    /// The next record of all runs in key order; for equal keys, that of the earlier run is first.
    /// After the first call, `push` is not allowed.
    fn next(&mut self) -> Result<Option<SpilledRecord>>;
    /// Bytes written so far.
    fn bytes_written(&self) -> u64;
}

/// A record of a [`SpillStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpilledRecord {
    /// The sort key.
    pub key: Vec<u8>,
    /// Opaque to the store.
    pub payload: Vec<u8>,
}

/// Spill counters of a stage, for explain.
#[derive(Debug, Clone, Default)]
pub struct SpillStats {
    /// Number of spills.
    pub spills: u64,
    /// Number of records written.
    pub records: u64,
    /// Total size in memory of the data at each spill, in bytes.
    pub memory_bytes: u64,
    /// Number of bytes written.
    pub disk_bytes: u64,
    /// Total size of the documents that the stage returned, in bytes.
    pub output_bytes: u64,
}

impl SpillStats {
    /// Counts one spill of `memory_bytes` in memory; `disk_bytes` is the total written so far.
    pub fn count(&mut self, memory_bytes: usize, disk_bytes: u64) {
        self.spills += 1;
        self.memory_bytes += memory_bytes as u64;
        self.disk_bytes = disk_bytes;
    }

    /// Appends `usedDisk` and the spill counters.
    pub fn append(&self, out: &mut DocBuilder) {
        out.append("usedDisk", self.spills > 0);
        out.append("spills", self.spills as i64);
        out.append("spilledBytes", self.memory_bytes as i64);
        out.append("spilledDataStorageSize", self.disk_bytes as i64);
        out.append("numBytesSpilledEstimate", self.memory_bytes as i64);
        out.append("spilledRecords", self.records as i64);
    }
}

/// The error of a stage that exceeded its memory limit and may not use the disk.
pub fn no_disk_use(stage: &str, bytes_max: usize) -> Error {
    Error::new(
        ErrorCode::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
        format!(
            "{stage} exceeded its memory limit of {bytes_max} bytes, and disk use is not allowed; pass allowDiskUse: true"
        ),
    )
}

fn unreachable_collection(from: &ForeignName) -> Error {
    Error::new(
        ErrorCode::INTERNAL_ERROR,
        format!(
            "the collection '{}' cannot be read in this context",
            from.collection
        ),
    )
}

/// An environment without collections, disk and interruption.
#[derive(Debug, Default)]
pub struct Isolated;

impl Environment for Isolated {
    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
}
