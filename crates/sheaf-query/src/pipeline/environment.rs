//! What a running pipeline may ask of the world around it.
//!
//! This crate reads no data, no clock and no disk; whoever runs a pipeline
//! gives an [`Environment`] with every call, which tells stages when to stop
//! and how much they may hold, and carries them to other collections and to
//! temporary files.
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

use super::{BLOCKING_BYTES_MAX, OptimizedPipeline, Pipeline};
use crate::matcher::ParseContext;

/// The world around a running pipeline. All that is not overridden refuses.
pub trait Environment {
    /// Fails when the operation was killed or has outrun its time. Cheap; whatever loops calls it in the loop.
    fn check_interrupt(&self) -> Result<()>;

    /// Bytes that one blocking stage may hold before it spills.
    fn memory_bytes_max(&self) -> usize {
        BLOCKING_BYTES_MAX
    }

    /// Room outside memory for `stage`.
    /// Errors: the command or the server does not allow it
    /// (QueryExceededMemoryLimitNoDiskUseAllowed).
    fn spill(&self, stage: &'static str) -> Result<Box<dyn SpillStore>> {
        Err(no_disk_use(stage, self.memory_bytes_max()))
    }

    /// Starts a pipeline over another collection, or a view.
    /// Errors: planning's, and those of views.
    fn open(&self, request: &ForeignRequest<'_>) -> Result<ForeignCursor> {
        Err(unreachable_collection(request.from))
    }

    /// Prepares the documents of another collection whose `path` holds one of
    /// certain values, to be asked for many times: the plan is made once.
    fn open_join(&self, request: &JoinRequest<'_>) -> Result<ForeignCursor> {
        Err(unreachable_collection(request.from))
    }

    /// Begins anew with the documents that hold one of these values. For cursors of [`Environment::open_join`].
    /// An equality with null also finds documents without the path.
    fn probe(&self, cursor: &mut ForeignCursor, values: &[RawValue<'_>]) -> Result<()> {
        let _ = (cursor, values);
        Ok(())
    }

    /// Prepares a pipeline over another collection that is run many times with other variables,
    /// which only its prefix's filter names; `None` if it is to be opened anew each time.
    fn open_prepared(&self, request: &PreparedRequest<'_>) -> Result<Option<ForeignCursor>> {
        let _ = request;
        Ok(None)
    }

    /// Begins anew with the variables of `context`, and with what else must hold of the documents
    /// first. For cursors of [`Environment::open_prepared`].
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

    /// What a cursor has read so far.
    fn foreign_counts(&self, cursor: &ForeignCursor) -> ForeignCounts {
        let _ = cursor;
        ForeignCounts::default()
    }

    /// 64 random bits.
    fn random(&self) -> u64 {
        0
    }
}

/// A pipeline over another collection, as the environment keeps it.
pub struct ForeignCursor(pub Box<dyn ForeignReader>);

/// What an environment reads another collection with.
pub trait ForeignReader: Any + Send {
    /// Nothing may be asked of it for a while: it holds no more than it must to go on where it is.
    fn rest(&mut self);
}

impl ForeignCursor {
    /// See [`ForeignReader::rest`].
    pub fn rest(&mut self) {
        self.0.rest();
    }
}

impl std::fmt::Debug for ForeignCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForeignCursor")
    }
}

/// Names a collection: in the pipeline's own database unless `db` says another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignName {
    /// `None`: the pipeline's own.
    pub db: Option<Box<str>>,
    /// The collection or view; empty for a pipeline that makes its own documents.
    pub collection: Box<str>,
}

/// What [`Environment::open`] is asked for.
#[derive(Debug)]
pub struct ForeignRequest<'a> {
    /// Where documents come from.
    pub from: &'a ForeignName,
    /// What is done with them; not yet optimised.
    pub pipeline: &'a Pipeline,
    /// What it was parsed with.
    pub context: &'a ParseContext,
}

/// What [`Environment::open_prepared`] is asked for.
#[derive(Debug)]
pub struct PreparedRequest<'a> {
    /// Where documents come from.
    pub from: &'a ForeignName,
    /// What is done with them; its prefix's filter is parsed anew each time.
    pub pipeline: &'a Arc<OptimizedPipeline>,
    /// What it was parsed with, but for the variables.
    pub context: &'a ParseContext,
}

/// What [`Environment::open_join`] is asked for.
#[derive(Debug)]
pub struct JoinRequest<'a> {
    /// Where documents come from.
    pub from: &'a ForeignName,
    /// The dotted path that must hold a value asked for.
    pub path: &'a str,
    /// What else must hold of the documents; empty holds always.
    pub filter: &'a DocBuf,
    /// What is done with the matches; not yet optimised. `None`: nothing.
    pub pipeline: Option<&'a Arc<Pipeline>>,
    /// What filter and pipeline were parsed with.
    pub context: &'a ParseContext,
}

/// What a cursor over another collection has read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignCounts {
    /// Index keys.
    pub keys_examined: u64,
    /// Documents.
    pub docs_examined: u64,
    /// Collection scans begun.
    pub collection_scans: u64,
    /// Names of indexes used, each once.
    pub indexes_used: Vec<String>,
    /// How a join finds its documents: `IndexedLoopJoin`, `HashJoin`, `NestedLoopJoin`.
    pub strategy: Option<&'static str>,
}

impl ForeignCounts {
    /// Adds what another cursor has read.
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

    /// Appends them as explain shows them.
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

/// Sorted runs kept outside memory, gone when dropped.
///
/// ```text
///   begin_run, push*, begin_run, push*, ... then next*: all runs merged by key
/// ```
pub trait SpillStore: Send {
    /// Ends the run before, if any, and begins the next.
    fn begin_run(&mut self) -> Result<()>;
    /// Appends a record to the run; keys must not descend within a run.
    fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()>;
    /// The next record of all runs in order of keys (of equal keys the earlier run's first). Nothing
    /// may be pushed any more.
    fn next(&mut self) -> Result<Option<SpilledRecord>>;
    /// Bytes written so far.
    fn bytes_written(&self) -> u64;
}

/// A record of a [`SpillStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpilledRecord {
    /// What it is sorted by.
    pub key: Vec<u8>,
    /// Opaque.
    pub payload: Vec<u8>,
}

/// What a stage has spilled, for explain.
#[derive(Debug, Clone, Default)]
pub struct SpillStats {
    /// How often memory was full.
    pub spills: u64,
    /// Records written.
    pub records: u64,
    /// Bytes that were in memory when it was full, all times together.
    pub memory_bytes: u64,
    /// Bytes written.
    pub disk_bytes: u64,
    /// Bytes of the documents that the stage gave.
    pub output_bytes: u64,
}

impl SpillStats {
    /// Counts one spill of what took `memory_bytes`; `disk_bytes` were written up to now.
    pub fn count(&mut self, memory_bytes: usize, disk_bytes: u64) {
        self.spills += 1;
        self.memory_bytes += memory_bytes as u64;
        self.disk_bytes = disk_bytes;
    }

    /// Appends `usedDisk` and what goes with it.
    pub fn append(&self, out: &mut DocBuilder) {
        out.append("usedDisk", self.spills > 0);
        out.append("spills", self.spills as i64);
        out.append("spilledBytes", self.memory_bytes as i64);
        out.append("spilledDataStorageSize", self.disk_bytes as i64);
        out.append("numBytesSpilledEstimate", self.memory_bytes as i64);
        out.append("spilledRecords", self.records as i64);
    }
}

/// The error of a stage that outgrew its memory and may not use the disk.
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
            "there is no way to the collection '{}' from here",
            from.collection
        ),
    )
}

/// An environment without collections or a disk, that never interrupts.
#[derive(Debug, Default)]
pub struct Isolated;

impl Environment for Isolated {
    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }
}
