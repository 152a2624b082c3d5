//! The file of a tree: all writes to it, and all reads of pages from it.
//!
//! ```text
//!   PagePtr ──> read ──┬── mapped: the page in place; checked once, which a bit records
//!                      └── cached: from the page cache, else read, checked, decompressed, cached
//! ```
//!
//! A reader gets a [`PageRef`] in both cases. Compressed pages are read through the cache even if
//! the file is mapped.
//!
//! ```text
//!   store/read.rs          pages and large values, checked      store/mapping.rs       the mapped file
//!   store/page_ref.rs      what a reader holds                  store/checked_bits.rs  pages already checked
//! ```
//!
//! Invariant: a page is returned only if its checksum, its birth and its level are those in the
//! pointer to it, and its [`Shape`](super::page::Shape) was checked.

mod checked_bits;
mod mapping;
mod page_ref;
mod read;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use self::checked_bits::CheckedBits;
use self::mapping::Mapping;
pub(super) use self::mapping::Within;
pub(super) use self::page_ref::{PageRef, value_bytes};
use super::PageReading;
use super::cache::PageCache;
use super::pointer::{GRANULE, Run, granules};
use super::space::Space;
use crate::disk::logtree::budget::{Charge, MemoryBudget, MemoryKind};
use crate::error::{Result, StorageError};
use crate::folder::File;

/// Maximum length of a value in bytes.
pub const VALUE_MAX: usize = 64 << 20;
/// Maximum length of a key in bytes.
pub const KEY_MAX: usize = 20 << 20;
/// Counters since the file was opened.
#[derive(Default)]
pub(super) struct Counters {
    pub pages_read: AtomicU64,
    pub bytes_read: AtomicU64,
    pub hits: AtomicU64,
    pub bytes_written: AtomicU64,
    pub pages_written: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    pub commits: AtomicU64,
    pub relocated: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// An open tree file.
pub(super) struct Store {
    pub file: Arc<dyn File>,
    /// The file's name in messages.
    pub name: String,
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<PageCache>,
    pub space: Mutex<Space>,
    pub counters: Counters,
    /// Length of the file in bytes, as last set or extended by a write.
    pub len: AtomicU64,
    /// Held shared to write pages, and exclusively to cut the file: see [`Store::cut`].
    tail: RwLock<()>,
    reading: PageReading,
    unmappable: AtomicBool,
    /// Whether the newest roots read from a map.
    is_mapped: AtomicBool,
    map: RwLock<Option<Arc<Mapping>>>,
    checked: CheckedBits,
    /// The first write or sync that failed.
    failed: Mutex<Option<StorageError>>,
}

impl Store {
    pub(super) fn new(
        file: Arc<dyn File>,
        name: String,
        len: u64,
        budget: Arc<MemoryBudget>,
        reading: PageReading,
        space: Space,
    ) -> Store {
        Store {
            file,
            name,
            cache: PageCache::new(&budget),
            budget,
            space: Mutex::new(space),
            counters: Counters::default(),
            len: AtomicU64::new(len),
            tail: RwLock::new(()),
            reading,
            unmappable: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            map: RwLock::new(None),
            checked: CheckedBits::default(),
            failed: Mutex::new(None),
        }
    }

    pub(super) fn corrupt(&self, offset: u64, detail: impl fmt::Display) -> StorageError {
        StorageError::Corrupt {
            file: self.name.clone(),
            detail: format!("at offset {offset}: {detail}"),
        }
    }

    /// Returns an error if a write or a sync has failed before.
    pub(super) fn check_writable(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(error) => Err(error.as_read_only()),
            None => Ok(()),
        }
    }

    /// The error for a failed write or sync. A full disk leaves the file unchanged; after anything
    /// else, and after any failed sync (`fatal`), the disk's contents are unknown, so nothing is
    /// written any more.
    fn write_failed(&self, context: &str, error: &io::Error, fatal: bool) -> StorageError {
        let context = format!("{context} {}", self.name);
        let error = StorageError::io(context, error);
        if fatal || !matches!(error, StorageError::NoSpace { .. }) {
            self.failed.lock().get_or_insert_with(|| error.clone());
        }
        error
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, data.len() as u64);
        let _tail = self.tail.read();
        let written = self.file.write_at(offset, data);
        // Also after a failure: part of it may have been written.
        self.len
            .fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        written.map_err(|error| self.write_failed("write to", &error, false))
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        count(&self.counters.syncs, 1);
        let synced = self.file.sync();
        synced.map_err(|error| self.write_failed("sync", &error, true))
    }

    /// Writes a superblock. Any failure is fatal.
    pub(super) fn write_superblock(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        count(&self.counters.bytes_written, data.len() as u64);
        let written = self.file.write_at(offset, data);
        written.map_err(|error| self.write_failed("write to", &error, true))
    }

    /// Cuts off the unused end of the file, if that is at least one part in `parts` of it.
    ///
    /// A bulk build or a fork may be given granules after the end meanwhile. They are written after
    /// the cut: an allocation made before the end was read has moved the end.
    pub(super) fn cut(&self, parts: u64) -> Result<()> {
        self.check_writable()?;
        let _tail = self.tail.write();
        let end = self.space.lock().end();
        let len = self.len.load(Ordering::Relaxed);
        let end_bytes = end * GRANULE;
        if len <= end_bytes || (len - end_bytes).saturating_mul(parts) < len {
            return Ok(());
        }
        // After the file has grown again, these granules must be checked again.
        self.checked.clear(Run {
            start: end,
            len: len.div_ceil(GRANULE) - end,
        });
        // Lower the length first, so that nothing after it is read from the map any more.
        self.len.store(end_bytes, Ordering::Relaxed);
        let cut = self.file.set_len(end_bytes);
        cut.map_err(|error| self.write_failed("shorten", &error, false))?;
        Ok(())
    }

    /// A mapping of at least the first `granules` granules of the file; `None` if the file should
    /// not, or cannot, be mapped.
    pub(super) fn map(&self, granules: u64) -> Option<Arc<Mapping>> {
        let need = granules * GRANULE;
        let mapped = self.wants_map(need).then(|| self.mapped(need)).flatten();
        self.is_mapped.store(mapped.is_some(), Ordering::Relaxed);
        if mapped.is_none() {
            // Older roots may still read from it; it is unmapped with the last of them.
            *self.map.write() = None;
        }
        mapped
    }

    /// The map that the newest roots use, if it covers `granules`.
    pub(super) fn current_map(&self, granules: u64) -> Option<Arc<Mapping>> {
        let map = self.map.read().clone();
        map.filter(|map| map.reaches(granules))
    }

    fn mapped(&self, need: u64) -> Option<Arc<Mapping>> {
        let fits = |map: &&Arc<Mapping>| map.map.len() as u64 >= need;
        let mut current = self.map.write();
        if let Some(mapping) = current.as_ref().filter(fits) {
            mapping.charge.lock().set(need);
            return Some(mapping.clone());
        }
        // Address space is cheap: with room to grow, the file is remapped only a few times.
        let len = (need * 2).next_power_of_two().max(1 << 30);
        match self.file.map(0, len) {
            Ok(Some(map)) => {
                // Two maps of one file share its pages, so only the new one is charged.
                if let Some(before) = current.take() {
                    before.charge.lock().set(0);
                }
                let charge = Charge::new(&self.budget, MemoryKind::Mapped, need);
                let mapping = Arc::new(Mapping {
                    map,
                    charge: Mutex::new(charge),
                });
                *current = Some(mapping.clone());
                Some(mapping)
            }
            // Mapping failed, for example because of a limit on address space: read through the
            // cache.
            Ok(None) | Err(_) => {
                self.unmappable.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Forgets the state of granules that are about to be written.
    pub(super) fn forget(&self, run: Run) {
        self.checked.clear(run);
    }

    /// Whether a file of `len` bytes should be mapped.
    fn wants_map(&self, len: u64) -> bool {
        let wanted = match self.reading {
            // Mapped pages cannot be evicted: half of the budget is reserved for everything else,
            // and the map must fit in addition to the memory in use now. Cached pages are evicted
            // for it.
            PageReading::Auto => {
                let budget = &self.budget;
                let aside = budget.used_for(MemoryKind::Mapped) + self.cache.bytes();
                let others = budget.used().saturating_sub(aside);
                len <= budget.limit() / 2 && others + len <= budget.limit()
            }
            PageReading::Mapped => true,
            PageReading::Cached => false,
        };
        wanted && !self.unmappable.load(Ordering::Relaxed)
    }

    /// Whether pages are read through the cache.
    pub(super) fn is_cached_reading(&self) -> bool {
        !self.is_mapped.load(Ordering::Relaxed)
    }
}

/// Whether a value of this length gets its own granules, in a table whose leaves have `leaf` bytes.
pub(super) fn is_large(value_len: usize, leaf: usize) -> bool {
    value_len > leaf && granules(value_len) >= 2
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Change, Changes, PageReading, TableOptions, TreeFile, TreeOptions};
    use crate::disk::logtree::budget::MemoryBudget;
    use crate::engine::TableId;
    use crate::error::Result;
    use crate::folder::Folder;
    use crate::testing::fault::FaultFolder;

    /// Puts of the numbers from the first to below the second.
    struct Numbers(u32, u32, Vec<[u8; 4]>, Vec<u8>);

    impl Numbers {
        fn new(from: u32, to: u32, value: Vec<u8>) -> Numbers {
            Numbers(
                from,
                from,
                (from..to).map(u32::to_be_bytes).collect(),
                value,
            )
        }
    }

    impl Changes for Numbers {
        fn current(&self) -> Option<Change<'_>> {
            let key = self.2.get((self.1 - self.0) as usize)?;
            Some(Change::Put(key, &self.3))
        }

        fn advance(&mut self) -> Result<()> {
            self.1 += 1;
            Ok(())
        }
    }

    /// Small enough for Miri, which checks the bytes that page references lend.
    #[test]
    fn lent_values_outlive_cache_cursor_and_roots() {
        const TABLE: TableId = TableId(1);
        let folder: Arc<dyn Folder> = Arc::new(FaultFolder::default());
        let options = TreeOptions {
            reading: PageReading::Cached,
            // The cache is too small to keep anything.
            budget: MemoryBudget::new(600_000),
        };
        let file = TreeFile::create(&folder, "tree", options).unwrap();
        let mut writer = file.writer().unwrap();
        writer.create_table(TABLE, TableOptions::default()).unwrap();
        writer
            .apply(TABLE, &mut Numbers::new(0, 150, vec![1; 60]))
            .unwrap();
        writer
            .apply(TABLE, &mut Numbers::new(150, 152, vec![2; 70_000]))
            .unwrap();
        let roots = writer.commit(1).unwrap();
        let mut cursor = roots.cursor(TABLE).unwrap();
        assert!(cursor.seek_first().unwrap());
        let walked = std::thread::spawn(move || {
            let mut lent = Vec::new();
            loop {
                lent.push(cursor.value_bytes());
                if !cursor.next().unwrap() {
                    return lent;
                }
            }
        });
        let got = roots.get(TABLE, &151_u32.to_be_bytes()).unwrap().unwrap();
        let lent = walked.join().unwrap();
        drop(roots);
        let mut writer = file.writer().unwrap();
        writer
            .apply(TABLE, &mut Numbers::new(0, 152, vec![3; 10]))
            .unwrap();
        writer.commit(2).unwrap();
        drop(file);
        assert_eq!(
            (lent.len(), &lent[149][..], &lent[151]),
            (152, &[1; 60][..], &got)
        );
        assert!(got.iter().step_by(999).all(|byte| *byte == 2));
    }
}
