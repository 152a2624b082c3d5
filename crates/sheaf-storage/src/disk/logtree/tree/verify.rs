//! Verification: walks everything reachable from roots and reports what is wrong.
//!
//! Checks the checksum and the format of every page and large value, the order of keys within and
//! between pages, the tables' sizes, that no granule is reached twice or is also free, and, if the
//! roots are the newest, that no granule is lost. A damaged page is a finding, and the walk
//! continues with the next one.

use std::sync::Arc;

use super::pointer::{ExtentPtr, FIRST_GRANULE, GRANULE, PagePtr, Run};
use super::record::{DIRECTORY, TableRecord};
use super::space::FreeRuns;
use super::superblock::Found;
use super::{Roots, TreeFile, superblocks, write};
use crate::engine::TableId;
use crate::error::{Result, StorageError};

/// One instance of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The table, if it is known.
    pub table: Option<TableId>,
    /// What is wrong.
    pub detail: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Pages and large values read.
    pub pages: u64,
    /// Entries seen, in all tables.
    pub entries: u64,
    /// What is damaged, at most [`Verified::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Maximum number of findings that are listed.
    pub const FINDINGS_MAX: usize = 1000;
}

struct Walk<'a> {
    roots: &'a Arc<Roots>,
    progress: &'a mut dyn FnMut(u64),
    seen: Verified,
    reached: FreeRuns,
    /// The table being walked, and its sizes so far.
    table: u64,
    sums: TableRecord,
    /// Whether part of the table could not be read, so that its sizes cannot be compared.
    torn: bool,
    key: Vec<u8>,
    last: Option<Vec<u8>>,
}

impl TreeFile {
    /// Reads everything reachable from `roots`. `progress` is called at intervals with the number
    /// of pages read so far. Writers continue meanwhile; for the newest roots they wait briefly at
    /// the end.
    /// Errors: those of reading (`Io`); damage is reported in the result.
    pub fn verify(&self, roots: &Arc<Roots>, progress: &mut dyn FnMut(u64)) -> Result<Verified> {
        let mut walk = Walk {
            roots,
            progress,
            seen: Verified::default(),
            reached: FreeRuns::default(),
            table: DIRECTORY,
            sums: TableRecord::default(),
            torn: false,
            key: Vec::new(),
            last: None,
        };
        walk.superblocks()?;
        let free_map = roots.free_map;
        if free_map.granule != 0 {
            walk.reach(super::free_map_run(&free_map), "the list of free space");
        }
        walk.table(
            TableId(DIRECTORY),
            &TableRecord {
                entries: roots.tables.len() as u64,
                ..roots.directory
            },
        )?;
        for (table, record) in &roots.tables {
            walk.table(*table, record)?;
        }
        walk.space(self);
        Ok(walk.seen)
    }
}

impl Walk<'_> {
    fn find(&mut self, offset: u64, detail: impl Into<String>) {
        if self.seen.findings.len() < Verified::FINDINGS_MAX {
            self.seen.findings.push(Finding {
                file: self.roots.store.name.clone(),
                offset,
                table: (self.table != DIRECTORY).then_some(TableId(self.table)),
                detail: detail.into(),
            });
        }
    }

    /// Records damage as a finding; other errors end the walk.
    fn note(&mut self, offset: u64, error: StorageError) -> Result<()> {
        match error {
            StorageError::Corrupt { detail, .. } => {
                self.torn = true;
                self.find(offset, detail);
                Ok(())
            }
            other => Err(other),
        }
    }

    fn superblocks(&mut self) -> Result<()> {
        let store = &self.roots.store;
        let len = store.len.load(std::sync::atomic::Ordering::Relaxed);
        let found = superblocks(&*store.file, len)
            .map_err(|error| StorageError::io(format!("read {}", store.name), &error))?;
        for (offset, found) in found {
            match found {
                Found::Damaged | Found::Newer(_) => self.find(offset, "a superblock is damaged"),
                Found::Foreign => self.find(offset, "a superblock is missing"),
                Found::Whole(_) => {}
            }
        }
        Ok(())
    }

    /// Marks granules as in use; `false`, and a finding, if they were already.
    fn reach(&mut self, run: Run, what: &str) -> bool {
        let first = self.reached.add(run);
        if !first {
            self.find(
                run.start * GRANULE,
                format!("{what} overlaps something else"),
            );
        }
        first
    }

    fn table(&mut self, table: TableId, record: &TableRecord) -> Result<()> {
        self.table = table.0;
        self.sums = TableRecord::default();
        self.torn = false;
        self.last = None;
        if let Some((root, level)) = record.root {
            self.page(root, level, None, None)?;
        }
        if !self.torn {
            let (sums, directory) = (self.sums, table.0 == DIRECTORY);
            let pairs = [
                ("entries", sums.entries, record.entries, true),
                (
                    "bytes of keys",
                    sums.key_bytes,
                    record.key_bytes,
                    !directory,
                ),
                (
                    "bytes of values",
                    sums.value_bytes,
                    record.value_bytes,
                    !directory,
                ),
                ("granules", sums.granules, record.granules, !directory),
            ];
            for (what, found, expected, compare) in pairs {
                if compare && found != expected {
                    let offset = record.root.map_or(0, |(root, _)| root.granule * GRANULE);
                    let detail =
                        format!("the table has {found} {what}, its record says {expected}");
                    self.find(offset, detail);
                }
            }
        }
        if table.0 != DIRECTORY {
            self.seen.entries += self.sums.entries;
        }
        Ok(())
    }

    fn step(&mut self) {
        self.seen.pages += 1;
        if self.seen.pages.is_multiple_of(256) {
            (self.progress)(self.seen.pages);
        }
    }

    /// Walks a page whose keys are from `lo` (inclusive) to `hi` (exclusive).
    fn page(
        &mut self,
        ptr: PagePtr,
        level: u8,
        lo: Option<&[u8]>,
        hi: Option<&[u8]>,
    ) -> Result<()> {
        let offset = ptr.granule * GRANULE;
        self.step();
        self.sums.granules += u64::from(ptr.granules);
        if !self.reach(ptr.run(), "a page") {
            // Pages that refer to each other would never end.
            self.torn = true;
            return Ok(());
        }
        let store = self.roots.store.clone();
        let page = match store.page_once(ptr, level, &self.roots.within) {
            Ok(page) => page,
            Err(error) => return self.note(offset, error),
        };
        // A mapped page was checked when it was first read: check it again.
        if let Err(error) = store.recheck(&page, ptr) {
            return self.note(offset, error);
        }
        let (image, shape) = (page.bytes(), page.shape);
        if super::page::Header::read(image).map(|header| header.table) != Some(self.table) {
            self.find(offset, "a page belongs to another table");
        }
        let mut child_lo: Option<Vec<u8>> = lo.map(<[u8]>::to_vec);
        for index in 0..shape.count {
            if level == 0 {
                self.leaf_entry(&page, index, offset, lo, hi)?;
                continue;
            }
            let mut child_hi = None;
            if index + 1 < shape.count {
                let mut key = Vec::new();
                shape.key_into(image, index + 1, &mut key);
                let below = child_lo.as_ref().is_some_and(|lo| key <= *lo);
                if below || hi.is_some_and(|hi| &key[..] >= hi) {
                    self.find(offset, "the separators of a page are not in order");
                }
                child_hi = Some(key);
            }
            let child = shape.child(image, index);
            let until = child_hi.as_deref().or(hi);
            self.page(child, level - 1, child_lo.as_deref(), until)?;
            child_lo = child_hi;
        }
        Ok(())
    }

    fn leaf_entry(
        &mut self,
        page: &super::store::PageRef,
        index: usize,
        offset: u64,
        lo: Option<&[u8]>,
        hi: Option<&[u8]>,
    ) -> Result<()> {
        let (image, shape) = (page.bytes(), page.shape);
        let mut key = std::mem::take(&mut self.key);
        shape.key_into(image, index, &mut key);
        let entry = shape.entry(image, index);
        let inside = lo.is_none_or(|lo| &key[..] >= lo) && hi.is_none_or(|hi| &key[..] < hi);
        if self.last.as_ref().is_some_and(|last| key <= *last) || !inside {
            self.find(offset, "the keys of a page are not in order");
        }
        self.sums.entries += 1;
        self.sums.key_bytes += key.len() as u64;
        let last = self.last.get_or_insert_default();
        last.clone_from(&key);
        self.key = key;
        let Some(ptr) = ExtentPtr::decode(entry.value).filter(|_| entry.extent) else {
            self.sums.value_bytes += entry.value.len() as u64;
            return Ok(());
        };
        self.step();
        self.sums.value_bytes += u64::from(ptr.raw);
        self.sums.granules += ptr.run().len;
        self.reach(ptr.run(), "a large value");
        let store = self.roots.store.clone();
        let read = store.extent(ptr, &self.roots.within, false);
        let read = read.and_then(|value| store.recheck_extent(&value, ptr));
        match read {
            Ok(()) => Ok(()),
            Err(error) => self.note(ptr.granule * GRANULE, error),
        }
    }

    /// Compares the granules that were reached with the free ones.
    fn space(&mut self, file: &TreeFile) {
        let torn = !self.seen.findings.is_empty();
        self.table = DIRECTORY;
        let reached = std::mem::take(&mut self.reached);
        let _quiet = write::without_writers(file);
        let newest = Arc::ptr_eq(self.roots, &file.roots());
        let space = self.roots.store.space.lock();
        let mut wrong = Vec::new();
        for run in reached.iter().filter(|run| space.is_free(*run)) {
            wrong.push((run.start, "space that is in use is listed as free"));
        }
        // An unreadable page hides what it refers to.
        if newest && !torn && wrong.is_empty() {
            match space.not_live() {
                None => wrong.push((0, "free space is listed twice")),
                Some(mut all) => {
                    if !reached.iter().all(|run| all.add(run)) {
                        wrong.push((0, "space that is in use is listed as free"));
                    }
                    let mut at = FIRST_GRANULE;
                    for run in all.iter() {
                        if run.start > at {
                            wrong.push((at, "space is neither used nor free"));
                        }
                        at = run.end();
                    }
                    if at < space.end() {
                        wrong.push((at, "space is neither used nor free"));
                    }
                }
            }
        }
        drop(space);
        for (granule, detail) in wrong {
            self.find(granule * GRANULE, detail);
        }
    }
}
