//! The tree file: many ordered tables in one file, one writer, and any number of readers without
//! latches.
//!
//! ```text
//!            superblocks        ┌ directory: table number → root, sums
//!   file    [ 0 │ 1 │ pages ... │ ...... free ...... │ pages and large values ... ]
//!             └─ the newer one points to the directory and to the list of free space
//!
//!   TreeFile ── roots() ──> Arc<Roots> ── get, cursor      pins its pages while it lives
//!            ── writer() ──> TreeWriter ── apply* ── commit(sequence) ──> Arc<Roots>
//!            ── bulk() ──> BulkBuilder ── push* ── finish ──> Subtree ── writer.install
//! ```
//!
//! Pages are never changed in place. A commit writes new pages to free space, syncs, and then
//! writes one of two superblocks: a crash leaves the old roots or the new ones, each complete.
//! Replaced pages are reused once no pinned roots refer to them. `docs/format/tree.md` describes
//! the file byte by byte.
//!
//! Invariants: every granule of the file is exactly one of live, free, waiting, or owned by a
//! writer; every pointer carries the checksum of what it points to; whatever bytes the file holds,
//! reading it terminates, with a result or with an error that names file and offset.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

mod backup;
mod build;
mod bulk;
mod cache;
mod cursor;
mod fork;
mod merge;
mod output;
mod page;
mod page_memory;
mod pointer;
mod record;
mod relocate;
mod salvage;
mod space;
mod store;
mod superblock;
mod verify;
mod write;

use self::cursor::Keep;
use self::fork::ForkPages;
pub use backup::{Sink, copy_entries};
pub use bulk::{BulkBuilder, Subtree};
pub use cursor::TreeCursor;
pub use fork::Fork;
pub use merge::{Change, Changes};
pub use output::WrittenHook;
pub use salvage::{Salvage, salvage};
pub use store::{KEY_MAX, VALUE_MAX};
pub use verify::{Finding, Verified};
pub use write::TreeWriter;

use self::pointer::{ExtentPtr, FIRST_GRANULE, GRANULE, Run};
use self::record::TableRecord;
use self::space::{FreeRuns, Space};
use self::store::{Store, Within};
use self::superblock::{Found, FreeMap, Superblock};
use super::budget::MemoryBudget;
use crate::engine::{TableId, TableStats};
use crate::error::{Result, StorageError};
use crate::folder::{File, Folder};

/// How pages are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageReading {
    /// `Mapped` for roots whose file is not larger than the memory budget, `Cached` beyond. A map
    /// is fastest while all of it stays in memory; otherwise a missing page costs a fault that
    /// reads far more than the page, into memory that is not accounted.
    #[default]
    Auto,
    /// Directly in the mapped file; the system's page cache holds the pages. A file that cannot be
    /// mapped is read as with `Cached`.
    Mapped,
    /// Into the engine's own cache, within the memory budget.
    Cached,
}

/// Options for opening or creating a tree file.
#[derive(Clone)]
pub struct TreeOptions {
    /// How pages are read.
    pub reading: PageReading,
    /// The budget that the page cache is charged to.
    pub budget: Arc<MemoryBudget>,
}

/// Whether pages and large values are compressed with LZ4 where that saves space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// Whether pages and large values are compressed with LZ4 where that saves space.
    pub lz4: bool,
}

/// Counters since the file was opened, and sizes as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeFileStats {
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Part of the file that can be reused immediately.
    pub free_bytes: u64,
    /// Part of the file that only older roots see; it becomes free when they are dropped.
    pub waiting_bytes: u64,
    /// Bytes that the page cache holds.
    pub cached_bytes: u64,
    /// Pages evicted from the cache.
    pub evicted: u64,
    /// Pages and large values read from the file, or, if mapped, accessed for the first time.
    pub pages_read: u64,
    /// The bytes of `pages_read`.
    pub bytes_read: u64,
    /// Pages found in memory, approximately.
    pub hits: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Bytes written to the file.
    pub bytes_written: u64,
    /// Number of write calls.
    pub writes: u64,
    /// Number of syncs of the file.
    pub syncs: u64,
    /// Commits since the file was opened.
    pub commits: u64,
    /// Pages and values moved from the file's end, so that it can shrink.
    pub relocated: u64,
}

struct Inner {
    store: Arc<Store>,
    current: RwLock<Arc<Roots>>,
    gate: Gate,
    /// The greatest version that a writer has used, committed or not.
    version: Mutex<u32>,
    idle: Mutex<relocate::Idle>,
}

/// A lock that admits one writer at a time.
#[derive(Default)]
struct Gate {
    busy: Mutex<bool>,
    left: Condvar,
}

/// An open tree file. Clones share the file.
#[derive(Clone)]
pub struct TreeFile {
    inner: Arc<Inner>,
}

impl TreeFile {
    /// Creates a file without tables and with sequence 0; durable when this returns.
    /// Errors: `Io` (also when the file exists), `NoSpace`.
    pub fn create(folder: &Arc<dyn Folder>, name: &str, options: TreeOptions) -> Result<TreeFile> {
        let shown = folder.display(name);
        let failed = |error: io::Error| StorageError::io(format!("create {shown}"), &error);
        if folder
            .list()
            .map_err(failed)?
            .iter()
            .any(|found| found == name)
        {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let first = Superblock {
            slot: 0,
            version: 1,
            sequence: 0,
            end: FIRST_GRANULE,
            directory: None,
            free: FreeMap::default(),
        };
        // Under another name until it is complete: a crash leaves no file, or a valid one.
        let unfinished = format!("{name}.new");
        let file = folder.open(&unfinished, true).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        file.set_len(FIRST_GRANULE * GRANULE).map_err(failed)?;
        let second = Superblock {
            slot: 1,
            version: 2,
            ..first
        };
        for superblock in [first, second] {
            for offset in Superblock::places(superblock.slot) {
                let bytes = superblock.encode();
                file.write_at(offset, &bytes).map_err(failed)?;
            }
        }
        file.sync().map_err(failed)?;
        folder.rename(&unfinished, name).map_err(failed)?;
        folder.sync().map_err(failed)?;
        Self::open_file(file, shown, options)
    }

    /// Opens a file at its newest commit.
    /// Errors: `WrongFormat`, `NewerFormat`, `Corrupt`, `Io`.
    pub fn open(folder: &Arc<dyn Folder>, name: &str, options: TreeOptions) -> Result<TreeFile> {
        let shown = folder.display(name);
        let file = folder
            .open(name, false)
            .map_err(|error| StorageError::io(format!("open {shown}"), &error))?;
        Self::open_file(file, shown, options)
    }

    fn open_file(file: Arc<dyn File>, name: String, options: TreeOptions) -> Result<TreeFile> {
        let len = file
            .len()
            .map_err(|error| StorageError::io(format!("open {name}"), &error))?;
        let newest = read_superblock(&*file, &name, len)?;
        let space = Space::new(newest.end, FreeRuns::default());
        let store = Store::new(file, name, len, options.budget, options.reading, space);
        let store = Arc::new(store);
        if len < newest.end * GRANULE {
            let detail = format!("the file ends before offset {}", newest.end * GRANULE);
            return Err(store.corrupt(len, detail));
        }
        let free = read_free_map(&store, &newest)?;
        *store.space.lock() = Space::new(newest.end, free);
        let roots = Roots::load(&store, &newest)?;
        Ok(TreeFile {
            inner: Arc::new(Inner {
                store,
                current: RwLock::new(Arc::new(roots)),
                gate: Gate::default(),
                version: Mutex::new(newest.version),
                idle: Mutex::default(),
            }),
        })
    }

    /// The roots of the newest commit.
    pub fn roots(&self) -> Arc<Roots> {
        self.inner.current.read().clone()
    }

    /// Begins to write; waits until another writer has ended.
    /// Errors: `ReadOnly` after a write or a sync has failed.
    pub fn writer(&self) -> Result<TreeWriter> {
        TreeWriter::new(self)
    }

    /// Begins to build a table's tree from ordered entries, concurrently with writers and readers.
    /// Errors: `ReadOnly`.
    pub fn bulk(&self, table: TableId, options: TableOptions) -> Result<BulkBuilder> {
        self.inner.store.check_writable()?;
        // The commit that will install it is not known; it is the next one at the earliest.
        let birth = self.roots().version();
        Ok(BulkBuilder::new(&self.inner.store, birth, table, options))
    }

    /// Counters and sizes. Cheap.
    pub fn stats(&self) -> TreeFileStats {
        self.inner.store.stats()
    }

    /// Whether writes are still accepted; otherwise an error with the reason.
    pub fn check_writable(&self) -> Result<()> {
        self.inner.store.check_writable()
    }

    fn next_version(&self) -> u32 {
        let mut version = self.inner.version.lock();
        *version += 1;
        *version
    }
}

impl Store {
    fn stats(&self) -> TreeFileStats {
        use std::sync::atomic::Ordering::Relaxed;
        let counters = &self.counters;
        let (free, waiting, end) = {
            let mut space = self.space.lock();
            // Free the space that only dropped readers used since the last commit.
            space.collect();
            let free = space.free_granules();
            (free, space.waiting_granules(), space.end())
        };
        let file_bytes = self.len.load(Relaxed);
        // Space after the last granule in use is effectively free: the next commit cuts it off.
        let behind = file_bytes.saturating_sub(end * GRANULE);
        TreeFileStats {
            file_bytes,
            free_bytes: (free * GRANULE + behind).min(file_bytes),
            waiting_bytes: waiting * GRANULE,
            cached_bytes: self.cache.bytes(),
            evicted: self.cache.evicted(),
            pages_read: counters.pages_read.load(Relaxed),
            bytes_read: counters.bytes_read.load(Relaxed),
            hits: counters.hits.load(Relaxed),
            pages_written: counters.pages_written.load(Relaxed),
            bytes_written: counters.bytes_written.load(Relaxed),
            writes: counters.writes.load(Relaxed),
            syncs: counters.syncs.load(Relaxed),
            commits: counters.commits.load(Relaxed),
            relocated: counters.relocated.load(Relaxed),
        }
    }
}

/// Every copy of every superblock, with its offset.
fn superblocks(file: &dyn File, len: u64) -> io::Result<Vec<(u64, Found)>> {
    let mut found = Vec::new();
    for slot in 0..2 {
        for offset in Superblock::places(slot) {
            let mut bytes = [0; superblock::LEN];
            if offset + superblock::LEN as u64 <= len {
                file.read_at(offset, &mut bytes)?;
            }
            found.push((offset, Superblock::decode(&bytes, slot)));
        }
    }
    Ok(found)
}

/// The newest valid superblock.
fn read_superblock(file: &dyn File, name: &str, len: u64) -> Result<Superblock> {
    let found =
        superblocks(file, len).map_err(|error| StorageError::io(format!("read {name}"), &error))?;
    let mut newest: Option<Superblock> = None;
    let (mut newer, mut damaged) = (None, None);
    for (offset, found) in found {
        match found {
            Found::Whole(block) if newest.is_none_or(|newest| block.version > newest.version) => {
                newest = Some(block);
            }
            Found::Whole(_) | Found::Foreign => {}
            Found::Newer(version) => newer = Some(version),
            Found::Damaged => damaged = Some(offset),
        }
    }
    match (newer, newest, damaged) {
        (Some(version), _, _) => Err(StorageError::NewerFormat {
            found: u64::from(version),
            supported: u64::from(superblock::VERSION),
        }),
        (None, Some(newest), _) => Ok(newest),
        (None, None, Some(offset)) => Err(StorageError::Corrupt {
            file: name.to_owned(),
            detail: format!("at offset {offset}: no superblock is intact"),
        }),
        (None, None, None) => Err(StorageError::WrongFormat {
            detail: format!("{name} has no superblock"),
        }),
    }
}

fn read_free_map(store: &Store, superblock: &Superblock) -> Result<FreeRuns> {
    let map = superblock.free;
    if map.granule == 0 {
        return Ok(FreeRuns::default());
    }
    let run = free_map_run(&map);
    let offset = map.granule.saturating_mul(GRANULE);
    let inside = run.start < superblock.end && run.end() <= superblock.end;
    if run.start < FIRST_GRANULE || !inside || u64::from(map.len) > run.len * GRANULE {
        return Err(store.corrupt(offset, "the list of free space is outside the file"));
    }
    let mut bytes = store.read_run(run)?;
    bytes.truncate(map.len as usize);
    if crc32c::crc32c(&bytes) != map.crc {
        return Err(store.corrupt(offset, "the list of free space has a wrong checksum"));
    }
    FreeRuns::decode(&bytes, superblock.end)
        .ok_or_else(|| store.corrupt(offset, "the list of free space is invalid"))
}

fn free_map_run(map: &FreeMap) -> Run {
    Run {
        start: map.granule,
        len: u64::from(map.granules),
    }
}

/// The tables as of one commit. Pins their pages while it lives.
pub struct Roots {
    store: Arc<Store>,
    /// The superblock that leads here.
    slot: u8,
    version: u32,
    sequence: u64,
    loads: u64,
    /// Ascending by table.
    tables: Vec<(TableId, TableRecord)>,
    directory: TableRecord,
    free_map: FreeMap,
    within: Within,
    /// For roots of a fork: the pages that no commit refers to, each set shared by all forks based
    /// on it.
    forks: Vec<Arc<ForkPages>>,
}

impl Drop for Roots {
    fn drop(&mut self) {
        self.store.space.lock().unpin(self.version);
    }
}

impl Roots {
    /// The roots that a superblock leads to, with an empty list of tables.
    fn new(store: &Arc<Store>, superblock: &Superblock) -> Roots {
        store.space.lock().pin(superblock.version);
        Roots {
            store: store.clone(),
            slot: superblock.slot,
            version: superblock.version,
            sequence: superblock.sequence,
            loads: 0,
            tables: Vec::new(),
            directory: TableRecord {
                root: superblock.directory,
                // Neither known nor needed; an upper bound prevents an endless loop on a damaged
                // file.
                granules: superblock.end,
                ..TableRecord::default()
            },
            free_map: superblock.free,
            within: Within {
                end: superblock.end,
                map: store.map(superblock.end),
            },
            forks: Vec::new(),
        }
    }

    fn load(store: &Arc<Store>, superblock: &Superblock) -> Result<Roots> {
        let mut tables = Vec::new();
        let directory = Arc::new(Roots::new(store, superblock));
        let mut cursor = TreeCursor::new(Keep::Counted(directory), superblock.directory);
        let mut found = cursor.seek_first()?;
        while found {
            let record = TableRecord::decode(cursor.key(), cursor.value());
            let Some((table, record)) = record else {
                return Err(store.corrupt(0, "an entry of the directory is invalid"));
            };
            if record.granules > superblock.end {
                return Err(store.corrupt(0, "a table is larger than the file"));
            }
            if tables.last().is_some_and(|(last, _)| *last >= table) {
                return Err(store.corrupt(0, "the directory is not in order"));
            }
            tables.push((table, record));
            found = cursor.next()?;
        }
        let mut roots = Roots::new(store, superblock);
        roots.tables = tables;
        Ok(roots)
    }

    /// The log sequence up to which everything is contained.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Number of tables that have been bulk-loaded since the file was opened: those have no
    /// sequence. Roots with the same number and the same sequence have the same contents.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// Length of the chain of forks; 0 for the roots of a commit.
    pub fn depth(&self) -> usize {
        self.forks.len()
    }

    /// Whether the pages are read from a map that newer roots no longer use.
    pub fn is_map_outdated(&self) -> bool {
        self.within.map.is_some() && self.store.is_cached_reading()
    }

    /// Number of the commit; greater is newer.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The tables, ascending.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.iter().map(|(table, _)| *table)
    }

    /// The sizes of a table; `None` if it does not exist.
    pub fn table(&self, table: TableId) -> Option<TableStats> {
        self.record(table).map(TableRecord::stats)
    }

    fn record(&self, table: TableId) -> Option<&TableRecord> {
        let at = self
            .tables
            .binary_search_by_key(&table, |(table, _)| *table);
        at.ok().map(|at| &self.tables[at].1)
    }

    fn root(&self, table: TableId) -> Result<&TableRecord> {
        self.record(table).ok_or(StorageError::NoSuchTable(table))
    }

    /// The value under `key`. A small one is copied; a large one stays in its page, which it pins
    /// together with the roots.
    /// Errors: `NoSuchTable`, `Corrupt`, `Io`.
    pub fn get(self: &Arc<Self>, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let Some((mut ptr, mut level)) = self.root(table)?.root else {
            return Ok(None);
        };
        loop {
            let page = self.store.page(ptr, level, &self.within)?;
            let (image, shape) = (page.bytes(), page.shape);
            if level > 0 {
                ptr = shape.child(image, shape.child_for(image, key));
                level -= 1;
                continue;
            }
            let (at, true) = shape.lower_bound(image, key) else {
                return Ok(None);
            };
            let entry = shape.entry(image, at);
            if !entry.extent {
                return Ok(Some(Bytes::copy_from_slice(entry.value)));
            }
            let ptr = ExtentPtr::decode(entry.value).expect("checked when the page was read");
            let value = self.store.extent(ptr, &self.within, true)?;
            return Ok(Some(store::value_bytes(value, || self.clone())));
        }
    }

    /// A cursor over a table, not yet positioned.
    /// Errors: `NoSuchTable`.
    pub fn cursor(self: &Arc<Self>, table: TableId) -> Result<TreeCursor> {
        let root = self.root(table)?.root;
        Ok(TreeCursor::new(Keep::Counted(self.clone()), root))
    }

    /// Like [`Roots::cursor`], without taking a reference.
    ///
    /// # Safety
    /// This `Arc` must not be moved or dropped while the cursor lives.
    pub(super) unsafe fn lent_cursor(self: &Arc<Self>, table: TableId) -> Result<TreeCursor> {
        let root = self.root(table)?.root;
        Ok(TreeCursor::new(Keep::Lent(NonNull::from(self)), root))
    }
}
