//! The log-tree engine: a write-ahead log, memtables, and a copy-on-write B-tree of pages in one
//! file.
//!
//! ```text
//!  writers ──> log (group commit) ──> memtable ── ack
//!                                        │  full or old
//!                                        v
//!                frozen generations ──> checkpointer ──> page tree
//!  readers ──> snapshot = (visible sequence, [memtable, frozen..., roots of the tree])
//! ```
//!
//! A commit costs a copy into the log's buffer and inserts into the memtable. Readers take no lock
//! that writers hold. One thread writes the tree, so the tree needs no latches, and a crash finds
//! either the old tree or the new one. Writes that a crash loses from memory are replayed from the
//! log.
//!
//! ```text
//!   commit.rs      sequences, visibility        log/       segments, records, group commit, replay
//!   checkpoint.rs  generations into the tree    memtable/  generations
//!   throttle.rs    back-pressure                view/      snapshots and merged cursors
//!   budget.rs      memory, by kind              spill.rs   old snapshots out of memory
//!   flush.rs       durable by itself            tree/      pages, free space, reading, bulk builds
//!   open.rs        files, close
//!   loading.rs     the log into generations
//! ```
//!
//! Invariants: the log is ahead of the tree; a sequence is visible once all up to it are; replay
//! begins after the tree's sequence. A write or sync that failed is never retried: the engine then
//! serves reads only. A full disk only makes batches fail.

mod backup;
pub mod budget;
mod checkpoint;
mod commit;
mod compact;
mod flush;
mod load;
mod loading;
mod log;
mod memtable;
mod open;
mod random;
mod repair;
mod roots;
mod spill;
mod stats;
mod sync;
mod throttle;
pub mod tree;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::budget::MemoryBudget;
pub use self::budget::MemoryUse;
use self::checkpoint::Checkpointer;
use self::commit::{PipelineState, Sequencer};
use self::flush::Flusher;
pub use self::log::TornTail;
use self::log::{Encoded, Log};
use self::memtable::Retired;
pub use self::open::Recovery;
pub use self::repair::{Repaired, repair, verify_files};
use self::spill::Bases;
use self::stats::Counters;
pub use self::stats::{LogTreeStats, MemoryStats};
use self::throttle::Throttle;
use self::tree::{PageReading, Roots, TableOptions, TreeFile};
use self::view::{OpenSnapshots, View};
use crate::batch::WriteBatch;
use crate::engine::{
    CommitSeq, Durability, EngineStats, Finding, Snapshot, StorageEngine, TableId, TableStats,
};
use crate::error::{Result, StorageError};
use crate::folder::{DiskFolder, Folder, FolderLock};

/// How to open a [`LogTreeEngine`].
#[derive(Clone, Debug)]
pub struct LogTreeOptions {
    /// Memory for pages, generations, and generations that only snapshots hold, in bytes.
    pub cache_bytes: u64,
    /// Size of a generation, in bytes, from which on it is merged into the tree. `None`: an eighth
    /// of `cache_bytes`, at most 64 MiB.
    pub generation_bytes: Option<u64>,
    /// How long a `Buffered` commit may stay in memory only.
    pub flush_interval: Duration,
    /// Maximum time between a commit and a checkpoint that merges it into the tree, if nothing else
    /// requests a checkpoint.
    pub checkpoint_interval: Duration,
    /// Length of a segment of the log, in bytes.
    pub segment_bytes: u64,
    /// Bytes that the log buffers before it writes them without a request.
    pub log_buffer_bytes: usize,
    /// Free disk space, in bytes, below which batches with puts are rejected. Batches that free
    /// space are accepted down to a quarter of it.
    pub reserve_bytes: u64,
    /// How pages are read.
    pub reading: PageReading,
    /// Whether pages of new tables are compressed.
    pub compression: bool,
}

impl Default for LogTreeOptions {
    fn default() -> Self {
        LogTreeOptions {
            cache_bytes: 256 << 20,
            generation_bytes: None,
            flush_interval: Duration::from_millis(100),
            checkpoint_interval: Duration::from_secs(60),
            segment_bytes: 32 << 20,
            log_buffer_bytes: 1 << 20,
            reserve_bytes: 64 << 20,
            reading: PageReading::default(),
            compression: false,
        }
    }
}

/// Minimum number of bytes written between two checks of the free disk space by writers.
const SPACE_CHECK_BYTES_MIN: u64 = 1 << 20;

/// See the module's head.
pub struct LogTreeEngine {
    shared: Arc<Shared>,
    recovery: Recovery,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// Limits derived from the options, in bytes.
struct Sizes {
    generation_bytes: u64,
    /// Checkpoint debt from which on writers are slowed down, and at which they are slowed down
    /// strongly.
    debt_soft: u64,
    debt_hard: u64,
    /// Checkpoint debt at which no batch is admitted.
    debt_max: u64,
    /// For large batches between their encoding and their write to the log.
    batches_max: u64,
    /// For generations that only snapshots hold; beyond it snapshots are spilled.
    retired_max: u64,
    /// For generations, including those that snapshots hold, the log's buffers and large batches
    /// together.
    written_max: u64,
    /// Allowed excess over `written_max` or over the budget; beyond it writers wait.
    excess_max: u64,
    reserve_bytes: u64,
}

struct Shared {
    folder: Arc<dyn Folder>,
    budget: Arc<MemoryBudget>,
    sizes: Sizes,
    tree: TreeFile,
    /// Options of new tables.
    new_table: TableOptions,
    log: Log<PipelineState>,
    sequencer: Sequencer,
    /// The view in the log's state, for readers.
    views: ArcSwap<View<Roots>>,
    snapshots: OpenSnapshots<Roots>,
    /// Number of snapshots that were spilled.
    spilled: AtomicU64,
    bases: Bases,
    retired: Retired,
    flusher: Flusher,
    checkpointer: Checkpointer,
    throttle: Throttle,
    counters: Counters,
    /// Whether less disk space than the reserve is free.
    scarce: AtomicBool,
    /// Bytes written when that was last checked.
    space_checked_at: AtomicU64,
    closed: AtomicBool,
    /// Moved to the open snapshots when the engine is closed.
    lock: Mutex<Option<FolderLock>>,
}

impl LogTreeEngine {
    /// Opens the engine's files in a folder, or creates them. Batches that are not in the tree are
    /// replayed from the log.
    ///
    /// Errors: `InUse`, `WrongFormat`, `NewerFormat`, `Corrupt`, `Io`, `NoSpace`.
    pub fn open(path: &Path, options: LogTreeOptions) -> Result<LogTreeEngine> {
        let folder = DiskFolder::open(path)
            .map_err(|error| StorageError::io(format!("open {}", path.display()), &error))?;
        Self::open_in(Arc::new(folder), options)
    }

    /// Copies the newest state into an empty folder. See [`StorageEngine::backup`].
    pub fn backup_in(&self, to: Arc<dyn Folder>, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        self.shared.backup(to, go_on)
    }

    /// Opens or creates the engine's files in any implementation of a folder.
    /// Errors: as [`LogTreeEngine::open`].
    pub fn open_in(folder: Arc<dyn Folder>, options: LogTreeOptions) -> Result<LogTreeEngine> {
        // Keeps `Instant + interval` representable.
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let intervals = (options.flush_interval.min(DAY), options.checkpoint_interval);
        let (shared, recovery) = open::open(folder, &options)?;
        let spawn = |name: &str, run: Box<dyn FnOnce(Arc<Shared>) + Send>| {
            let shared = shared.clone();
            thread::Builder::new()
                .name(name.into())
                .spawn(move || run(shared))
                .map_err(|error| StorageError::io(format!("start the {name}"), &error))
        };
        let engine = LogTreeEngine {
            shared: shared.clone(),
            recovery,
            threads: Mutex::default(),
        };
        for thread in [
            spawn(
                "flusher",
                Box::new(move |shared| shared.flush_loop(intervals.0)),
            ),
            spawn(
                "checkpointer",
                Box::new(move |shared| shared.checkpoint_loop(intervals.1)),
            ),
        ] {
            engine.threads.lock().push(thread?);
        }
        Ok(engine)
    }

    /// The result of recovery when the files were opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }
}

impl Shared {
    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(StorageError::Closed),
            false => Ok(()),
        }
    }

    /// Updates `scarce` from the disk's free space, and returns that space if it is known.
    fn refresh_free_space(&self) -> Option<u64> {
        let wanted = self.space_wanted(self.sizes.reserve_bytes);
        self.space_checked_at
            .store(self.counters.bytes(), Ordering::Relaxed);
        let free = self.folder.free_bytes().unwrap_or(None);
        let scarce = free.is_some_and(|free| free < wanted);
        self.scarce.store(scarce, Ordering::Relaxed);
        free
    }

    /// The free space needed so that `reserve` bytes are left once everything is in the tree.
    fn space_wanted(&self, reserve: u64) -> u64 {
        // Data that waits for a checkpoint is written a second time, to the tree.
        let debt = self.checkpointer.debt.load(Ordering::Relaxed);
        reserve.saturating_add(debt)
    }

    fn refuse_without_space(&self, batch: &WriteBatch) -> Result<()> {
        let space_checked_at = self.space_checked_at.load(Ordering::Relaxed);
        let every = (self.sizes.reserve_bytes / 8).max(SPACE_CHECK_BYTES_MIN);
        if self.counters.bytes().saturating_sub(space_checked_at) > every {
            // The flusher checks at intervals; a fast writer would use up the reserve between two
            // of them.
            self.refresh_free_space();
        }
        if self.scarce.load(Ordering::Relaxed) && batch.puts() > 0 {
            // Space may have been freed since.
            let free = self.refresh_free_space();
            if !self.scarce.load(Ordering::Relaxed) {
                return Ok(());
            }
            let last = self.space_wanted(self.sizes.reserve_bytes / 4);
            if !(batch.makes_room() && free.is_some_and(|free| free >= last)) {
                return Err(no_reserve());
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.check_open()?;
        let last = self.log.head().last();
        self.sequencer.wait_visible(last);
        self.log.sync_to(last)
    }
}

fn no_reserve() -> StorageError {
    StorageError::NoSpace {
        context: "the free disk space has reached the reserve".into(),
    }
}

impl StorageEngine for LogTreeEngine {
    fn name(&self) -> &'static str {
        "sheaf"
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.shared.check_open()?;
        Ok(Arc::new(self.shared.snapshot()))
    }

    fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        self.apply_counted(batch, durability).map(|(seq, _)| seq)
    }

    fn bytes_to_log(&self, batch: &WriteBatch) -> u64 {
        match batch.is_empty() {
            true => 0,
            false => Encoded::new(batch, Vec::new()).map_or(0, |encoded| encoded.stride()),
        }
    }

    fn apply_counted(&self, batch: WriteBatch, durability: Durability) -> Result<(CommitSeq, u64)> {
        let shared = &self.shared;
        shared.check_open()?;
        if batch.is_empty() {
            let seq = shared.sequencer.visible();
            if durability == Durability::Synced {
                shared.sync()?;
            }
            return Ok((CommitSeq(seq), 0));
        }
        let (seq, logged) = shared.commit(&batch)?;
        if durability == Durability::Synced {
            shared.log.sync_to(seq.0)?;
        }
        Ok((seq, logged))
    }

    fn sync(&self) -> Result<()> {
        self.shared.sync()
    }

    fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        if self.table_stats(table)?.entries > 0 {
            return Err(StorageError::TableNotEmpty(table));
        }
        self.shared.bulk_load(table, entries)
    }

    fn checkpoint(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.checkpoint_now()?;
        self.shared.spill();
        Ok(())
    }

    fn stats(&self) -> EngineStats {
        self.shared.stats()
    }

    fn report(&self, out: &mut dyn FnMut(&str, u64)) {
        self.shared.detail().report(out);
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.shared.check_open()?;
        let (view, _) = self.shared.newest();
        view.table_stats(table)
            .ok_or(StorageError::NoSuchTable(table))
    }

    fn tables(&self) -> Result<Vec<TableId>> {
        self.shared.check_open()?;
        let (view, visible) = self.shared.newest();
        Ok(view.tables(visible))
    }

    fn backup(&self, to: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<u64> {
        let folder = DiskFolder::open(to)
            .map_err(|error| StorageError::io(format!("open {}", to.display()), &error))?;
        self.shared.backup(Arc::new(folder), go_on)
    }

    fn compact(&self) -> Result<u64> {
        self.shared.compact()
    }

    fn verify(&self, progress: &mut dyn FnMut(f64)) -> Result<Vec<Finding>> {
        self.shared.verify(progress)
    }

    fn close(&self) -> Result<()> {
        self.shared.close(&self.threads)
    }
}

impl Drop for LogTreeEngine {
    fn drop(&mut self) {
        // A caller that wants to know of a failure calls `close`.
        let _ = self.close();
    }
}
