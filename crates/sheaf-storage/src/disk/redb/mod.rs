//! An engine on redb, a copy-on-write B-tree in one file.
//!
//! ```text
//!   apply ──┐                    ┌ one redb transaction for all waiting batches
//!   apply ──┼─> group, a leader ─┤   Buffered only:  Durability::None      (visible, in memory)
//!   sync  ──┘                    └   with a Synced:  Durability::Immediate (one fdatasync)
//!   flusher ── sync, one flush interval after the first commit that was not durable
//! ```
//!
//! redb has one writer at a time, and holds it through the sync of a durable commit. Waiting
//! batches are therefore put into one transaction: they become visible, and durable, together. A
//! rejected batch (for example because its table does not exist) is left out before anything is
//! written and does not affect the others.
//!
//! ```text
//!   redb/commit.rs  batches into transactions     redb/file.rs   the file's format, and the sizes of tables
//!   redb/flush.rs   background work               redb/view.rs   snapshots and cursors
//!   redb/load.rs    bulk loads                    redb/backend.rs, redb/errors.rs, redb/group.rs
//! ```
//!
//! redb can store its allocator's state in the file; with it a file that was not closed cleanly
//! opens at once instead of being read completely. Storing it costs an additional sync and bytes in
//! proportion to the file, so not every commit does it: the flusher does when nothing has been
//! written for a second, and `checkpoint` on demand.
//!
//! After a failed write or sync redb rejects all further writes, and so does the engine
//! (`ReadOnly`): durable commits are safe, all others are lost with the process. The engine
//! therefore avoids a full disk: while less than a reserve of disk space is free, it rejects
//! batches with puts.

mod backend;
mod commit;
mod errors;
mod file;
mod flush;
mod group;
mod load;
mod view;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use redb::{Builder, Database, DatabaseError, ReadableDatabase, StorageBackend};

use self::backend::{CountingBackend, IoCounters, SpaceProbe, open_file};
use self::commit::{Answer, Request};
use self::errors::{begin_error, database_error, internal_failure};
use self::file::Sizes;
use self::flush::Flush;
use self::group::Group;
use self::view::{OpenSnapshots, RedbSnapshot, View};
use crate::batch::WriteBatch;
use crate::engine::{
    CommitSeq, Durability, EngineStats, Snapshot, StorageEngine, TableId, TableStats,
};
use crate::error::{Result, StorageError};

/// The longest key or value, in bytes: below redb's own limit of 3 GiB for the two together.
const LENGTH_MAX: u64 = 1 << 30;

/// How to open a [`RedbEngine`].
pub struct RedbOptions {
    /// Memory for pages, in bytes; half of it may hold pages not yet written.
    pub cache_bytes: usize,
    /// How long a `Buffered` commit may stay in memory only.
    pub flush_interval: Duration,
    /// Free disk space, in bytes, below which batches with puts are rejected.
    pub reserve_bytes: u64,
    /// Called with the progress, from 0 to 1, while a file that was not closed cleanly is being
    /// repaired.
    pub on_repair: Option<Box<dyn Fn(f64) + Send>>,
}

impl Default for RedbOptions {
    fn default() -> Self {
        RedbOptions {
            cache_bytes: 256 << 20,
            flush_interval: Duration::from_millis(100),
            reserve_bytes: 64 << 20,
            on_repair: None,
        }
    }
}

/// The engine on redb.
pub struct RedbEngine {
    shared: Arc<Shared>,
    flusher: Mutex<Option<thread::JoinHandle<()>>>,
}

struct Shared {
    file: String,
    /// `None` once closed. Locked exclusively only to close; shared by all others, also to write
    /// through it.
    db: RwLock<Option<Database>>,
    group: Group<Request, Answer>,
    /// The view of the newest state, once one has been requested. Locked while a view is made and
    /// after every commit, so that no cached view is older than a finished commit.
    newest: Mutex<Option<Arc<View>>>,
    snapshots: Arc<OpenSnapshots>,
    sizes: RwLock<Sizes>,
    /// Held from before a transaction begins until its effects are recorded here.
    writing: Mutex<()>,
    /// The sequence of the newest batch that may be visible already, of the newest that is visible,
    /// and of the newest that is durable.
    begun: AtomicU64,
    applied: AtomicU64,
    durable: AtomicU64,
    /// The sequence of the newest batch that is durable together with the allocator's state.
    checkpointed: AtomicU64,
    /// Duration of the last durable commit.
    sync_nanos: AtomicU64,
    /// Whether requests were waiting when it ended.
    company: AtomicBool,
    /// Why the engine is read-only; `None` while it accepts writes.
    failed: Mutex<Option<StorageError>>,
    space: Option<SpaceProbe>,
    reserve_bytes: u64,
    io: Arc<IoCounters>,
    counters: Mutex<EngineStats>,
    flush: Mutex<Flush>,
    flush_changed: Condvar,
}

impl RedbEngine {
    /// Opens the file, or creates it. A file that was not closed cleanly is repaired first, which
    /// reads it completely.
    ///
    /// Errors: `InUse`, `WrongFormat`, `NewerFormat`, `Corrupt`, `Io`, `NoSpace`.
    pub fn open(path: &Path, options: RedbOptions) -> Result<RedbEngine> {
        let file = path.display().to_string();
        let io = |error| StorageError::io(format!("open {file}"), &error);
        if !path.try_exists().map_err(io)? {
            // Create the file under another name, so that a crash meanwhile leaves no file that
            // looks like data.
            let mut unfinished = path.as_os_str().to_owned();
            unfinished.push(".new");
            let unfinished = Path::new(&unfinished);
            match std::fs::remove_file(unfinished) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io(error));
                }
                _ => {}
            }
            let (backend, _) = open_file(unfinished).map_err(io)?;
            let empty = Self::open_on(file.clone(), backend, None, RedbOptions::default())?;
            empty.close()?;
            std::fs::rename(unfinished, path).map_err(io)?;
        }
        let (backend, space) = open_file(path).map_err(io)?;
        Self::open_on(file, backend, Some(space), options)
    }

    /// Opens or creates the engine's data on any implementation of a file. A crash during creation
    /// leaves a file that cannot be opened; a crash after this has returned does not. Errors: as
    /// [`RedbEngine::open`].
    pub fn open_with_backend(
        backend: impl StorageBackend,
        options: RedbOptions,
    ) -> Result<RedbEngine> {
        Self::open_on("the redb file".into(), backend, None, options)
    }

    fn open_on(
        file: String,
        backend: impl StorageBackend,
        space: Option<SpaceProbe>,
        options: RedbOptions,
    ) -> Result<RedbEngine> {
        let io = Arc::new(IoCounters::default());
        let mut builder = Builder::new();
        builder.set_cache_size(options.cache_bytes);
        if let Some(on_repair) = options.on_repair {
            builder.set_repair_callback(move |repair| on_repair(repair.progress()));
        }
        let db = builder
            .create_with_backend(CountingBackend::new(backend, io.clone()))
            .map_err(|error| match error {
                DatabaseError::Storage(redb::StorageError::Io(error))
                    if error.kind() == std::io::ErrorKind::InvalidData =>
                {
                    StorageError::WrongFormat {
                        detail: format!("{file}: {error}"),
                    }
                }
                error => database_error("open", &file, error),
            })?;
        let sizes = match file::read_sizes(&db, &file)? {
            Some(sizes) => sizes,
            None => file::initialise(&db)?,
        };
        let shared = Arc::new(Shared {
            file,
            db: RwLock::new(Some(db)),
            group: Group::new(),
            newest: Mutex::default(),
            snapshots: Arc::default(),
            sizes: RwLock::new(sizes),
            writing: Mutex::new(()),
            begun: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            checkpointed: AtomicU64::new(0),
            sync_nanos: AtomicU64::new(0),
            company: AtomicBool::new(false),
            failed: Mutex::default(),
            space,
            reserve_bytes: options.reserve_bytes,
            io,
            counters: Mutex::default(),
            flush: Mutex::default(),
            flush_changed: Condvar::new(),
        });
        let flusher = {
            let shared = shared.clone();
            thread::Builder::new()
                .name("redb flusher".into())
                .spawn(move || shared.flush_loop(options.flush_interval))
                .map_err(|error| StorageError::io("start the flusher thread", &error))?
        };
        Ok(RedbEngine {
            shared,
            flusher: Mutex::new(Some(flusher)),
        })
    }
}

impl Shared {
    /// Runs `write` as the only writer. redb asserts its invariants: a panic, like any failure that
    /// leaves redb unusable, ends all further writing.
    fn as_writer<T>(&self, write: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let db = self.db.read();
        let Some(db) = &*db else {
            return Err(StorageError::Closed);
        };
        let _writing = self.writing.lock();
        if let Some(error) = &*self.failed.lock() {
            return Err(error.as_read_only());
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| write(db)));
        let outcome = outcome.unwrap_or_else(|_| Err(internal_failure("write")));
        if let Err(error) = &outcome {
            // Commits in progress will not become visible.
            let applied = self.applied.load(Ordering::Acquire);
            self.begun.store(applied, Ordering::Release);
            if !leaves_redb_usable(error) {
                *self.failed.lock() = Some(error.clone());
            }
        }
        outcome
    }

    fn is_closed(&self) -> bool {
        self.db.read().is_none()
    }

    fn view(&self) -> Result<Arc<View>> {
        let db = self.db.read();
        let Some(db) = &*db else {
            return Err(StorageError::Closed);
        };
        let mut newest = self.newest.lock();
        if let Some(view) = &*newest {
            return Ok(view.clone());
        }
        let view = Arc::new(View::new(db.begin_read().map_err(begin_error)?));
        *newest = Some(view.clone());
        Ok(view)
    }

    fn sync(&self) -> Result<()> {
        if self.is_closed() {
            return Err(StorageError::Closed);
        }
        let begun = self.begun.load(Ordering::Acquire);
        if self.durable.load(Ordering::Acquire) < begun {
            self.submit(WriteBatch::new(), Durability::Synced)?;
        }
        Ok(())
    }
}

impl StorageEngine for RedbEngine {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let view = self.shared.view()?;
        Ok(Arc::new(RedbSnapshot::new(view, &self.shared.snapshots)))
    }

    fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        if batch.is_empty() {
            let seq = CommitSeq(self.shared.applied.load(Ordering::Acquire));
            if durability == Durability::Synced {
                self.shared.sync()?;
            }
            return Ok(seq);
        }
        self.shared.submit(batch, durability)
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
        self.shared.checkpoint()
    }

    /// The flusher saves the allocator's state only when the engine is idle.
    fn checkpoints_itself(&self) -> bool {
        false
    }

    fn stats(&self) -> EngineStats {
        let io = &self.shared.io;
        let (open_snapshots, oldest_snapshot_age) = self.shared.snapshots.count_and_oldest();
        EngineStats {
            bytes_written: io.bytes_written.load(Ordering::Relaxed),
            bytes_read: io.bytes_read.load(Ordering::Relaxed),
            syncs: io.syncs.load(Ordering::Relaxed),
            file_bytes: Some(io.file_bytes.load(Ordering::Relaxed)),
            open_snapshots,
            oldest_snapshot_age,
            refuses_writes: self.shared.failed.lock().as_ref().map(ToString::to_string),
            ..self.shared.counters.lock().clone()
        }
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        if self.shared.is_closed() {
            return Err(StorageError::Closed);
        }
        let sizes = self.shared.sizes.read();
        let stats = sizes.tables.get(&table).copied();
        let mut stats = stats.ok_or(StorageError::NoSuchTable(table))?;
        stats.disk_bytes = file::disk_bytes(&stats);
        Ok(stats)
    }

    fn tables(&self) -> Result<Vec<TableId>> {
        if self.shared.is_closed() {
            return Err(StorageError::Closed);
        }
        let sizes = self.shared.sizes.read();
        let mut tables: Vec<TableId> = sizes.tables.keys().copied().collect();
        tables.sort_unstable();
        Ok(tables)
    }

    fn close(&self) -> Result<()> {
        if let Some(flusher) = self.flusher.lock().take() {
            self.shared.flush.lock().stop = true;
            self.shared.flush_changed.notify_one();
            // A flusher that panicked has nothing left to flush.
            let _ = flusher.join();
        }
        let synced = match self.shared.sync() {
            Err(StorageError::Closed) => return Ok(()),
            synced => synced,
        };
        let Some(db) = self.shared.db.write().take() else {
            return Ok(());
        };
        *self.shared.newest.lock() = None;
        let file = &self.shared.file;
        let closed = catch_unwind(AssertUnwindSafe(|| db.close()));
        let closed = match closed {
            Ok(closed) => closed.map_err(|error| database_error("close", file, error)),
            Err(_) => Err(internal_failure("close")),
        };
        synced.and(closed)
    }
}

impl Drop for RedbEngine {
    fn drop(&mut self) {
        // A caller that wants to know of a failure calls `close`.
        let _ = self.close();
    }
}

/// Whether redb can continue to write after this failure.
fn leaves_redb_usable(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::Closed
            | StorageError::NoSuchTable(_)
            | StorageError::TableNotEmpty(_)
            | StorageError::TooLarge { .. }
    )
}
