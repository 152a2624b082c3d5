//! Reads what is readable of a damaged file.
//!
//! ```text
//!   1  roots are readable    every intact page of every table, from the root down
//!   2  in addition           every other leaf found by examining each granule that is not free
//!   3  no roots at all       every leaf found, the oldest first, so that the newest entry wins
//! ```
//!
//! A page below a damaged one is found in the second step: a leaf states which table it belongs to.
//! If even the list of free space is lost, leaves that were replaced long ago cannot be
//! distinguished from live ones; an entry that was deleted may then reappear, which the result
//! reports as `stale`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::page::{self, Shape};
use super::page_memory::PageBuf;
use super::pointer::{ExtentPtr, FIRST_GRANULE, GRANULE, PagePtr, Run};
use super::record::{DIRECTORY, TableRecord};
use super::space::{FreeRuns, Space};
use super::store::{Store, Within};
use super::verify::{Finding, Verified};
use super::{PageReading, read_free_map, read_superblock};
use crate::disk::logtree::budget::MemoryBudget;
use crate::engine::TableId;
use crate::error::{Result, StorageError};
use crate::folder::Folder;

/// The result of salvaging: what was saved, and what was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvage {
    /// The log sequence of the roots, if a superblock could be read.
    pub sequence: Option<u64>,
    /// The tables with salvaged entries, and those that the directory lists.
    pub tables: BTreeSet<TableId>,
    /// Entries passed to the sink; those found in two leaves count twice.
    pub entries: u64,
    /// Leaves found by examining granules.
    pub found_leaves: u64,
    /// Whether the entries may include deleted or replaced ones.
    pub stale: bool,
    /// What could not be read, at most [`Verified::FINDINGS_MAX`].
    pub lost: Vec<Finding>,
}

/// Receives entries: table, key, value.
pub type Sink<'a> = &'a mut dyn FnMut(TableId, &[u8], &[u8]) -> Result<()>;

struct Rescue<'a> {
    store: Arc<Store>,
    within: Within,
    sink: Sink<'a>,
    answer: Salvage,
    /// Granules of the leaves that were reached from a root.
    read: HashSet<u64>,
}

/// Passes every readable entry to `sink`. If a key comes twice, the later value is the newer one.
/// The file is not changed.
/// Errors: `Io` if the file cannot be read at all, and those of `sink`. Damage is reported in the
/// result.
pub fn salvage(folder: &Arc<dyn Folder>, name: &str, sink: Sink<'_>) -> Result<Salvage> {
    let shown = folder.display(name);
    let failed = |error: std::io::Error| StorageError::io(format!("open {shown}"), &error);
    let file = folder.open(name, false).map_err(failed)?;
    let len = file.len().map_err(failed)?;
    let superblock = match read_superblock(&*file, &shown, len) {
        Ok(superblock) => Some(superblock),
        Err(error @ (StorageError::Io { .. } | StorageError::NewerFormat { .. })) => {
            return Err(error);
        }
        Err(_) => None,
    };
    let space = Space::new(FIRST_GRANULE, FreeRuns::default());
    let budget = MemoryBudget::new(32 << 20);
    let store = Store::new(file, shown, len, budget, PageReading::Cached, space);
    let mut rescue = Rescue {
        store: Arc::new(store),
        within: Within {
            end: len.div_ceil(GRANULE),
            map: None,
        },
        sink,
        answer: Salvage::default(),
        read: HashSet::new(),
    };
    let mut free = None;
    if let Some(superblock) = &superblock {
        rescue.answer.sequence = Some(superblock.sequence);
        match read_free_map(&rescue.store, superblock) {
            Ok(runs) => free = Some(runs),
            Err(error) => {
                let offset = superblock.free.granule.saturating_mul(GRANULE);
                rescue.lose(offset, None, &error)?;
            }
        }
    } else {
        rescue.lost(0, None, "no superblock is intact".into());
    }
    // The tables that the directory lists, down to the leaves.
    let before = rescue.answer.lost.len();
    if let Some((root, level)) = superblock.and_then(|superblock| superblock.directory) {
        let mut tables = BTreeMap::new();
        rescue.directory(root, level, &mut tables)?;
        for (table, record) in &tables {
            rescue.answer.tables.insert(*table);
            if let Some((root, level)) = record.root {
                rescue.page(*table, root, level)?;
            }
        }
    }
    if superblock.is_none() || rescue.answer.lost.len() > before {
        rescue.scan(free.as_ref())?;
    }
    Ok(rescue.answer)
}

impl Rescue<'_> {
    fn lost(&mut self, offset: u64, table: Option<TableId>, detail: String) {
        if self.answer.lost.len() < Verified::FINDINGS_MAX {
            self.answer.lost.push(Finding {
                file: self.store.name.clone(),
                offset,
                table,
                detail,
            });
        }
    }

    /// Records that something is unreadable. Parts that the disk fails to read count as lost, too.
    fn lose(&mut self, offset: u64, table: Option<TableId>, error: &StorageError) -> Result<()> {
        self.lost(offset, table, error.to_string());
        Ok(())
    }

    fn directory(
        &mut self,
        ptr: PagePtr,
        level: u8,
        tables: &mut BTreeMap<TableId, TableRecord>,
    ) -> Result<()> {
        if !self.read.insert(ptr.granule) {
            return Ok(());
        }
        let page = match self.store.page_once(ptr, level, &self.within) {
            Ok(page) => page,
            Err(error) => return self.lose(ptr.granule * GRANULE, None, &error),
        };
        let (image, shape) = (page.bytes(), page.shape);
        let mut key = Vec::new();
        for index in 0..shape.count {
            if level > 0 {
                self.directory(shape.child(image, index), level - 1, tables)?;
                continue;
            }
            shape.key_into(image, index, &mut key);
            match TableRecord::decode(&key, shape.entry(image, index).value) {
                Some((table, record)) => {
                    tables.insert(table, record);
                }
                None => {
                    let detail = "an entry of the directory is invalid";
                    self.lost(ptr.granule * GRANULE, None, detail.into());
                }
            }
        }
        Ok(())
    }

    fn page(&mut self, table: TableId, ptr: PagePtr, level: u8) -> Result<()> {
        let page = match self.store.page_once(ptr, level, &self.within) {
            Ok(page) => page,
            Err(error) => return self.lose(ptr.granule * GRANULE, Some(table), &error),
        };
        let (image, shape) = (page.bytes(), page.shape);
        if level == 0 {
            // A malicious file may refer to the same page repeatedly.
            if self.read.insert(ptr.granule) {
                self.leaf(table, image, shape)?;
            }
            return Ok(());
        }
        if !self.read.insert(ptr.granule) {
            return Ok(());
        }
        for index in 0..shape.count {
            self.page(table, shape.child(image, index), level - 1)?;
        }
        Ok(())
    }

    fn leaf(&mut self, table: TableId, image: &[u8], shape: Shape) -> Result<()> {
        let mut key = Vec::new();
        self.answer.tables.insert(table);
        for index in 0..shape.count {
            shape.key_into(image, index, &mut key);
            let entry = shape.entry(image, index);
            let ptr = ExtentPtr::decode(entry.value).filter(|_| entry.extent);
            match ptr.map(|ptr| (ptr, self.store.extent(ptr, &self.within, false))) {
                None => (self.sink)(table, &key, entry.value)?,
                Some((_, Ok(value))) => (self.sink)(table, &key, value.bytes())?,
                Some((ptr, Err(error))) => {
                    self.lose(ptr.granule * GRANULE, Some(table), &error)?;
                    continue;
                }
            }
            self.answer.entries += 1;
        }
        Ok(())
    }

    /// Examines every granule that is not known to be free for leaves.
    fn scan(&mut self, free: Option<&FreeRuns>) -> Result<()> {
        let mut leaves: Vec<(u32, u64, u64)> = Vec::new();
        for granule in FIRST_GRANULE..self.within.end {
            let run = Run {
                start: granule,
                len: 1,
            };
            if self.read.contains(&granule) || free.is_some_and(|free| free.overlaps(run)) {
                continue;
            }
            if let Some((header, _)) = self.leaf_at(granule)
                && header.table != DIRECTORY
            {
                leaves.push((header.birth, granule, header.table));
            }
        }
        self.answer.stale = free.is_none() && !leaves.is_empty();
        leaves.sort_unstable();
        for (_, granule, table) in leaves {
            let Some((header, bytes)) = self.leaf_at(granule) else {
                continue;
            };
            if let Ok(image) = page::unpack(&bytes, &header)
                && let Ok(shape) = Shape::check(&image, &header)
            {
                self.answer.found_leaves += 1;
                self.leaf(TableId(table), &image, shape)?;
            }
        }
        Ok(())
    }

    /// The leaf that begins at a granule, if there is an intact one.
    fn leaf_at(&self, granule: u64) -> Option<(page::Header, PageBuf)> {
        let run = Run {
            start: granule,
            len: 1,
        };
        let first = self.store.read_run(run).ok()?;
        let header = page::Header::read(&first).filter(|header| header.level == 0)?;
        let len = super::pointer::granules(header.stored);
        if len > PagePtr::GRANULES_MAX || granule + len > self.within.end {
            return None;
        }
        let bytes = self
            .store
            .read_run(Run {
                start: granule,
                len,
            })
            .ok()?;
        let header = page::check_stored(&bytes).ok()?;
        Some((header, bytes))
    }
}
