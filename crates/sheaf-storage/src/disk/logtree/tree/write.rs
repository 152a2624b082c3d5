//! The writer: changes to any number of tables, committed atomically.
//!
//! ```text
//!   apply*, install*, create, drop     new pages to free granules, nothing overwritten
//!   commit    directory ── list of free space ── data sync ── superblock ── sync ── publish
//!                                                               ▲
//!                                         before: the old roots │ after: the new ones
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::build::{Builder, Sizes};
use super::bulk::Subtree;
use super::merge::{Change, Changes, Dead, Merge, free_tree};
use super::output::{Output, WrittenHook};
use super::pointer::{Run, granules};
use super::record::{DIRECTORY, TableRecord};
use super::store::{Store, Within, count};
use super::superblock::{FreeMap, Superblock};
use super::{Roots, TableOptions, TreeFile, free_map_run};
use crate::engine::{TableId, TableStats};
use crate::error::{Result, StorageError};

/// The unused end of the file is cut off if it is at least one part in this many of the file's
/// length: otherwise it would soon be needed again.
const CUT_MIN: u64 = 16;

/// Writes to a tree file; there is one writer at a time. Dropping it without a commit changes
/// nothing.
pub struct TreeWriter {
    pub(super) out: Output,
    pub(super) tables: BTreeMap<TableId, TableRecord>,
    pub(super) changed: BTreeSet<TableId>,
    pub(super) dead: Dead,
    pub(super) within: Within,
    /// The error of a failed apply: its changes may be partially in the pages, so nothing is
    /// committed.
    pub(super) broken: Option<StorageError>,
    /// See [`TreeWriter::compact`].
    pub(super) compacts: bool,
    /// Number of tables loaded so far; see [`Roots::loads`].
    pub(super) loads: u64,
    pub(super) file: TreeFile,
    pub(super) roots: Arc<Roots>,
    // Last field: the next writer is admitted once this one's pages have been freed. `None` for a
    // fork, which runs concurrently with all others.
    _entry: Option<Entry>,
}

/// Holds the writers' gate.
struct Entry(TreeFile);

impl Entry {
    fn enter(file: &TreeFile) -> Entry {
        let gate = &file.inner.gate;
        let mut busy = gate.busy.lock();
        while *busy {
            gate.left.wait(&mut busy);
        }
        *busy = true;
        Entry(file.clone())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let gate = &self.0.inner.gate;
        *gate.busy.lock() = false;
        gate.left.notify_one();
    }
}

/// Keeps writers out until it is dropped.
pub(super) fn without_writers(file: &TreeFile) -> impl Sized + use<> {
    Entry::enter(file)
}

impl TreeWriter {
    pub(super) fn new(file: &TreeFile) -> Result<TreeWriter> {
        let entry = Entry::enter(file);
        let store = &file.inner.store;
        store.check_writable()?;
        store.space.lock().collect();
        store.cut(CUT_MIN)?;
        Ok(TreeWriter::over(file, file.roots(), Some(entry)))
    }

    /// A writer whose pages do not belong to a commit.
    pub(super) fn fork(file: &TreeFile, roots: &Arc<Roots>) -> Result<TreeWriter> {
        file.inner.store.check_writable()?;
        Ok(TreeWriter::over(file, roots.clone(), None))
    }

    fn over(file: &TreeFile, roots: Arc<Roots>, entry: Option<Entry>) -> TreeWriter {
        TreeWriter {
            out: Output::new(&file.inner.store, file.next_version()),
            tables: roots.tables.iter().copied().collect(),
            changed: BTreeSet::new(),
            dead: Dead::new(),
            within: roots.within.clone(),
            broken: None,
            compacts: false,
            loads: roots.loads,
            file: file.clone(),
            roots,
            _entry: entry,
        }
    }

    fn store(&self) -> &Arc<Store> {
        &self.file.inner.store
    }

    /// Calls `hook` after about every megabyte written, with the number of bytes, in place of an
    /// earlier hook. It may sleep: that slows down this writer only.
    pub fn on_written(&mut self, hook: WrittenHook) {
        self.out.hook = Some(hook);
    }

    /// The tables after this writer's changes, ascending.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.keys().copied()
    }

    /// The sizes of a table after this writer's changes; `None` if it does not exist.
    pub fn table(&self, table: TableId) -> Option<TableStats> {
        self.tables.get(&table).map(TableRecord::stats)
    }

    /// The log sequence of the roots that the writer is based on.
    pub fn sequence(&self) -> u64 {
        self.roots.sequence
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.out.written
    }

    /// Creates an empty table.
    /// Errors: `TableExists`.
    pub fn create_table(&mut self, table: TableId, options: TableOptions) -> Result<()> {
        if self.tables.contains_key(&table) || table.0 == DIRECTORY {
            return Err(StorageError::TableExists(table));
        }
        let record = TableRecord {
            lz4: options.lz4,
            ..TableRecord::default()
        };
        self.tables.insert(table, record);
        self.changed.insert(table);
        Ok(())
    }

    /// Drops a table with all its entries. Reads its inner pages, and leaves only where they may
    /// have large values.
    /// Errors: `NoSuchTable`, `Corrupt`, `Io`.
    pub fn drop_table(&mut self, table: TableId) -> Result<()> {
        self.check()?;
        let record = self.tables.get(&table);
        let mut record = *record.ok_or(StorageError::NoSuchTable(table))?;
        if let Some((root, level)) = record.root {
            let (out, dead) = (&mut self.out, &mut self.dead);
            let freed = free_tree(out, &self.within, dead, &mut record, root, level);
            self.keep_error(freed)?;
        }
        self.tables.remove(&table);
        self.changed.insert(table);
        Ok(())
    }

    /// Applies ascending changes to a table. After an error the writer can only be dropped.
    /// Errors: `NoSuchTable`, `TooLarge`, `Corrupt`, `Io`, `NoSpace`, and those of `changes`.
    pub fn apply(&mut self, table: TableId, changes: &mut dyn Changes) -> Result<()> {
        self.check()?;
        let before = *self
            .tables
            .get(&table)
            .ok_or(StorageError::NoSuchTable(table))?;
        let first = match changes.current() {
            None => return Ok(()),
            Some(Change::Put(key, value)) => (key.len() + value.len()) as u64,
            Some(Change::Delete(_) | Change::DeleteRange(..)) => 0,
        };
        let sizes = Sizes::of_leaves(before.mean().unwrap_or(first), before.lz4);
        let builder = Builder::new(table.0, before.lz4, sizes);
        let mut record = before;
        let (out, dead) = (&mut self.out, &mut self.dead);
        let merge = Merge::new(out, builder, dead, &mut record, &self.within, changes);
        let merged = merge.run();
        self.keep_error(merged)?;
        if record != before {
            self.tables.insert(table, record);
            self.changed.insert(table);
        }
        Ok(())
    }

    /// Makes a bulk-built tree the contents of an empty table.
    /// Errors: `NoSuchTable`, `TableNotEmpty`.
    pub fn install(&mut self, table: TableId, subtree: Subtree) -> Result<()> {
        let record = self
            .tables
            .get_mut(&table)
            .ok_or(StorageError::NoSuchTable(table))?;
        if record.root.is_some() {
            return Err(StorageError::TableNotEmpty(table));
        }
        *record = subtree.hand_over(self.out.owner);
        self.loads += 1;
        self.changed.insert(table);
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn keep_error<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.broken = Some(error.clone());
        }
        result
    }

    /// Makes everything durable and visible, under the log sequence up to which it is complete.
    /// Errors: `NoSpace` (the file is unchanged, and can be written again), `Corrupt` if the file's
    /// sequence is above this one, `Io` and others (the file is read-only from now on; whether the
    /// commit is found after reopening is unknown).
    pub fn commit(mut self, sequence: u64) -> Result<Arc<Roots>> {
        self.check()?;
        // The sequence of the current roots was read from the file. A lower sequence would make
        // this commit look older than them.
        if sequence < self.roots.sequence() {
            return Err(StorageError::Corrupt {
                file: self.out.store.name.clone(),
                detail: format!(
                    "its log sequence {} is above that of the commit, {sequence}",
                    self.roots.sequence()
                ),
            });
        }
        self.relocate()?;
        let directory = self.write_directory()?;
        let superblock = self.write_free_map(sequence, directory)?;
        let store = self.store().clone();
        store.sync()?;
        for offset in Superblock::places(superblock.slot) {
            store.write_superblock(offset, &superblock.encode())?;
        }
        store.sync()?;
        let TreeWriter {
            out,
            tables,
            dead,
            compacts,
            loads,
            file,
            roots: old,
            _entry,
            ..
        } = self;
        debug_assert!(
            superblock.slot != old.slot,
            "superblocks are written alternately"
        );
        debug_assert!(
            superblock.version > old.version,
            "a commit has a new version"
        );
        let mut roots = Roots::new(&store, &superblock);
        roots.tables = tables.into_iter().collect();
        roots.directory.granules = directory.granules;
        roots.loads = loads;
        let roots = Arc::new(roots);
        store
            .space
            .lock()
            .attach(out.owner, &dead, superblock.version);
        out.keep();
        let replaced = std::mem::replace(&mut *file.inner.current.write(), roots.clone());
        drop((replaced, old));
        count(&store.counters.commits, 1);
        store.space.lock().collect();
        // The commit is complete even if the file cannot be truncated; after such a failure the
        // store rejects the next write.
        let _ = store.cut(if compacts { u64::MAX } else { CUT_MIN });
        Ok(roots)
    }

    fn write_directory(&mut self) -> Result<TableRecord> {
        let rows = self.changed.iter().map(|table| {
            let record = self.tables.get(table).map(TableRecord::encode);
            (TableRecord::key(*table), record)
        });
        let mut rows = Rows {
            rows: rows.collect(),
            at: 0,
        };
        let mut directory = self.roots.directory;
        let (out, dead) = (&mut self.out, &mut self.dead);
        let builder = Builder::new(DIRECTORY, false, Sizes::of_leaves(64, false));
        let merge = Merge::new(out, builder, dead, &mut directory, &self.within, &mut rows);
        merge.run()?;
        Ok(directory)
    }

    /// Writes the list of granules that are free after the commit, and returns the superblock that
    /// refers to it.
    fn write_free_map(&mut self, sequence: u64, directory: TableRecord) -> Result<Superblock> {
        self.out.settle()?;
        let old = self.roots.free_map;
        if old.granule != 0 {
            self.dead.push((self.roots.version, free_map_run(&old)));
        }
        let overlap = || StorageError::Corrupt {
            file: self.out.store.name.clone(),
            detail: "space that is in use is listed as free".into(),
        };
        let store = self.out.store.clone();
        let mut space = store.space.lock();
        let owner = self.out.owner;
        let before = space.free_after(owner, &self.dead).ok_or_else(overlap)?;
        let mut run = Run { start: 0, len: 0 };
        if before.len() > 0 {
            // Allocating splits no run and adds none; it can only lengthen the encoded numbers of
            // one.
            let need = granules(before.encode().len() + 32);
            run = space.allocate(owner, need, need);
        }
        let mut after = space.free_after(owner, &self.dead).ok_or_else(overlap)?;
        let end = after.trim(space.end());
        drop(space);
        let bytes = after.encode();
        let free = FreeMap {
            granule: run.start,
            granules: run.len as u32,
            len: bytes.len() as u32,
            crc: crc32c::crc32c(&bytes),
        };
        // The remainder of the run stays with the list, which every commit rewrites.
        debug_assert!(granules(bytes.len()) <= run.len);
        if run.len > 0 {
            self.out.raw(&bytes, run)?;
            self.out.flush()?;
        }
        Ok(Superblock {
            slot: 1 - self.roots.slot,
            version: self.out.birth,
            sequence,
            end,
            directory: directory.root,
            free,
        })
    }
}

/// Rows of the directory to put, or (`None`) to delete.
struct Rows {
    rows: Vec<([u8; 8], Option<[u8; TableRecord::LEN]>)>,
    at: usize,
}

impl Changes for Rows {
    fn current(&self) -> Option<Change<'_>> {
        self.rows.get(self.at).map(|(key, row)| match row {
            Some(row) => Change::Put(key, row),
            None => Change::Delete(key),
        })
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
}
