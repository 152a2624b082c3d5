//! All data of a server: storage and catalog, opened together.
//!
//! ```text
//!   Db::open(engine) ─ catalog read, crash leftovers dropped ─> Arc<Db>
//!      read_view()   ─> consistent catalog and storage snapshot            (no lock)
//!      begin_write() ─> WriteUnitOfWork on one collection                        (write/unit.rs)
//!      create_collection, drop_collection, create_indexes, ...             (ddl/)
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sheaf_bson::{DateTime, Error, ErrorCode, Result};
use sheaf_storage::{Snapshot, Storage, StorageEngine};

use crate::catalog::namespace::Namespace;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::{Catalog, Random, ReadView, open};
use crate::clock::ClusterClock;
use crate::counters::CollectionSize;
use crate::events::Events;
use crate::op_context::OpContext;
use crate::oplog::Oplog;
use crate::snapshot_history::SnapshotHistory;
use crate::storage_error::IntoClientError;
use crate::system_names::{BUCKETS_PREFIX, TEMPORARY_PREFIX};
use crate::timeseries::catalogue::BucketCatalogue;
use crate::transaction_memory::TransactionMemory;

/// Default of `maxIndexBuildMemoryUsageMegabytes`.
const INDEX_BUILD_MEMORY_MB: u64 = 200;

/// How to open a [`Db`].
#[derive(Debug, Clone)]
pub struct DbOptions {
    /// Source of randomness for UUIDs and identifiers.
    pub random: Random,
    /// Seconds since 1970.
    pub clock: fn() -> u32,
    /// Wall clock with millisecond resolution, for dates that are displayed and never compared:
    /// `wall`.
    pub wall_clock: fn() -> DateTime,
    /// Receiver of events for the log.
    pub events: Events,
    /// Directory for spilled data, `<dbpath>/_tmp`. Emptied on open, so nothing else may use it.
    /// `None` for a directory with a random name under the system's temporary directory.
    pub temp_dir: Option<PathBuf>,
}

impl Default for DbOptions {
    fn default() -> Self {
        DbOptions {
            random: system_random,
            clock: system_clock,
            wall_clock: DateTime::now,
            events: Events::default(),
            temp_dir: None,
        }
    }
}

/// Reads random bytes from the operating system.
fn system_random(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        // Identifiers must be unique; there is no sensible way to continue.
        panic!("the operating system provides no random bytes: {error}");
    }
}

/// The operating system's clock.
fn system_clock() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}

/// All data of a server.
pub struct Db {
    storage: Storage,
    catalog: Catalog,
    events: Events,
    temp_dir: Arc<Path>,
    index_build_memory_mb: AtomicU64,
    oplog: Oplog,
    snapshot_history: SnapshotHistory,
    clock: ClusterClock,
    transaction_memory: Arc<TransactionMemory>,
    bucket_catalogue: BucketCatalogue,
    access_changes: AtomicU64,
}

impl Db {
    /// Opens the data that the engine holds: reads the catalog, and drops what a crash left
    /// incomplete.
    ///
    /// Errors: `MustUpgrade` for data of a newer version, `DataCorruptionDetected`, and those of
    /// the engine.
    pub fn open(engine: Arc<dyn StorageEngine>, options: DbOptions) -> Result<Arc<Db>> {
        let storage = Storage::new(engine);
        let catalog = open::open(&storage, options.random, &options.events)?;
        let temp_dir = options.temp_dir.unwrap_or_else(random_temp_dir);
        empty_temp_dir(&temp_dir)?;
        let db = Arc::new(Db {
            storage,
            catalog,
            events: options.events,
            temp_dir: temp_dir.into(),
            index_build_memory_mb: AtomicU64::new(INDEX_BUILD_MEMORY_MB),
            oplog: Oplog::default(),
            snapshot_history: SnapshotHistory::default(),
            clock: ClusterClock::new(options.clock, options.wall_clock),
            transaction_memory: Arc::default(),
            bucket_catalogue: BucketCatalogue::default(),
            access_changes: AtomicU64::new(0),
        });
        db.find_clock()?;
        db.find_oplog()?;
        db.drop_unfinished_outputs()?;
        db.complete_system_views()?;
        Ok(db)
    }

    /// Drops the collections that `$out` was filling when the server died, and those that clients
    /// created as temporary.
    fn drop_unfinished_outputs(&self) -> Result<()> {
        let catalog = self.catalog();
        for collection in catalog.collections() {
            let ns = collection.ns();
            // Bucket collections are dropped along with their time-series collection.
            let name = ns.collection();
            let name = name.strip_prefix(BUCKETS_PREFIX).unwrap_or(name);
            if name.starts_with(TEMPORARY_PREFIX) || collection.options().is_temporary() {
                self.drop_collection(&OpContext::new(), &Namespace::new(ns.db(), name)?)?;
            }
        }
        Ok(())
    }

    /// Syncs and closes the engine. Later operations fail with `ShutdownInProgress`.
    pub fn close(&self) -> Result<()> {
        // A failure only loses an optimisation.
        let _ = self.settle_clock();
        self.storage.engine().close().into_client_error()
    }

    /// Makes everything committed so far durable, as a write with `j: true` requires. Concurrent
    /// callers share syncs.
    pub fn sync(&self) -> Result<()> {
        self.storage.engine().sync().into_client_error()
    }

    /// The storage with its lock table, for statistics.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The storage engine, for statistics and checkpoints.
    pub fn engine(&self) -> &Arc<dyn StorageEngine> {
        self.storage.engine()
    }

    /// The current catalog, for commands that read no data.
    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        self.catalog.current()
    }

    /// A collection and a consistent storage snapshot. Never blocks.
    pub fn read_view(&self, ns: &Namespace) -> Result<ReadView> {
        loop {
            let catalog = self.catalog.current();
            let collection = catalog.collection(ns);
            let snapshot = self.storage.snapshot().into_client_error()?;
            if self.catalog.still_has(&catalog, ns, collection) {
                return Ok(ReadView {
                    collection: collection.cloned(),
                    snapshot,
                    cluster_time: self.cluster_time_of_expressions(),
                });
            }
        }
    }

    /// The whole catalog and a consistent storage snapshot.
    pub fn whole_view(&self) -> Result<(Arc<CatalogSnapshot>, Arc<dyn Snapshot>)> {
        loop {
            let catalog = self.catalog.current();
            let snapshot = self.storage.snapshot().into_client_error()?;
            if Arc::ptr_eq(&catalog, &self.catalog.current()) {
                return Ok((catalog, snapshot));
            }
        }
    }

    /// Number and size of the collection's documents; zeros if it does not exist.
    pub fn collection_size(&self, ns: &Namespace) -> Result<CollectionSize> {
        match self.catalog().collection(ns) {
            Some(collection) => CollectionSize::of(&self.storage, collection.table()),
            None => Ok(CollectionSize::default()),
        }
    }

    /// Exact number of the collection's documents, without reading them; 0 if it does not exist.
    pub fn record_count(&self, ns: &Namespace) -> Result<u64> {
        Ok(self.collection_size(ns)?.count)
    }

    /// Sets the server parameter `maxIndexBuildMemoryUsageMegabytes`, for later builds.
    /// Errors: `BadValue` below 50, as in MongoDB.
    pub fn set_index_build_memory_mb(&self, megabytes: u64) -> Result<()> {
        if megabytes < 50 {
            return Err(Error::bad_value(
                "maxIndexBuildMemoryUsageMegabytes must be at least 50",
            ));
        }
        self.index_build_memory_mb
            .store(megabytes, Ordering::Relaxed);
        Ok(())
    }

    /// The server parameter `maxIndexBuildMemoryUsageMegabytes`.
    pub fn index_build_memory_mb(&self) -> u64 {
        self.index_build_memory_mb.load(Ordering::Relaxed)
    }

    /// The snapshots for reads in the past.
    pub fn snapshot_history(&self) -> &SnapshotHistory {
        &self.snapshot_history
    }

    /// The oplog; off until needed.
    pub fn oplog(&self) -> &Oplog {
        &self.oplog
    }

    /// Number of changes of users and roles since the start. A server compares it to detect that
    /// what it knows of a user is out of date.
    pub fn access_changes(&self) -> u64 {
        self.access_changes.load(Ordering::Acquire)
    }

    /// Counts a change of users and roles.
    pub fn access_changed(&self) {
        self.access_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Memory held by open transactions.
    pub fn transaction_memory(&self) -> &Arc<TransactionMemory> {
        &self.transaction_memory
    }

    pub(crate) fn clock(&self) -> &ClusterClock {
        &self.clock
    }

    /// Open buckets of time-series collections.
    pub(crate) fn bucket_catalogue(&self) -> &BucketCatalogue {
        &self.bucket_catalogue
    }

    pub(crate) fn catalog_writer(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Directory for spilled data. It may not exist yet.
    pub fn temp_dir(&self) -> &Arc<Path> {
        &self.temp_dir
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db")
            .field("engine", &self.storage.engine().name())
            .finish_non_exhaustive()
    }
}

/// A directory name that no other database of this or another process uses.
fn random_temp_dir() -> PathBuf {
    let mut random = [0; 8];
    system_random(&mut random);
    let name = format!("sheaf-{:016x}", u64::from_be_bytes(random));
    std::env::temp_dir().join(name)
}

/// Removes leftovers of a process that died.
fn empty_temp_dir(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::new(
            ErrorCode::FILE_STREAM_FAILED,
            format!("cannot empty the folder {}: {error}", dir.display()),
        )),
    }
}
