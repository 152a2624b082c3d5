//! Merges ascending changes into a tree: pages they touch are rewritten, the others are kept.
//!
//! ```text
//!   old     [ d ·  k ·  r · ]              changes   put e, delete s
//!            /     |      \
//!        [d f h] [k m p] [r s t]
//!   new     [ d ·  k ·  r · ]
//!            /     |      \
//!       [d e f h]  same   [r t]
//! ```
//!
//! One descent visits every page that a change falls into, in order, and feeds the [`Builder`]. The
//! pages that were read are dead with the commit. Entries that are removed are counted, so the
//! table's sizes stay exact.

use std::cmp::Ordering;

use super::build::Builder;
use super::output::Output;
use super::page::Entry;
use super::pointer::{ExtentPtr, GRANULE, PagePtr, Run};
use super::record::TableRecord;
use super::store::{PageRef, Within};
use crate::error::Result;

/// One change of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Sets the value of the key.
    Put(&'a [u8], &'a [u8]),
    /// Removes the key, if it exists.
    Delete(&'a [u8]),
    /// Removes what the tree holds from the first key (inclusive) to the second (exclusive; `None`:
    /// to the end). Does not affect other changes of the same stream inside the range.
    DeleteRange(&'a [u8], Option<&'a [u8]>),
}

impl<'a> Change<'a> {
    /// The key by which changes are ordered; of a range its lower end.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Change::Put(key, _) | Change::Delete(key) | Change::DeleteRange(key, _) => key,
        }
    }
}

/// Changes of one table, ascending by [`Change::key`]. No key is put or deleted twice, and a range
/// precedes the change of the key that it begins with.
pub trait Changes {
    /// The current change, initially the first; `None` at the end.
    fn current(&self) -> Option<Change<'_>>;
    /// Moves to the next change. Errors are returned by `apply`.
    fn advance(&mut self) -> Result<()>;
}

/// The upper end of a deleted range.
enum Erase {
    Nothing,
    Below(Vec<u8>),
    Everything,
}

impl Erase {
    fn covers(&self, key: &[u8]) -> bool {
        match self {
            Erase::Nothing => false,
            Erase::Below(end) => key < &end[..],
            Erase::Everything => true,
        }
    }

    fn extend(&mut self, end: Option<&[u8]>) {
        match (&*self, end) {
            (Erase::Everything, _) => {}
            (_, None) => *self = Erase::Everything,
            (Erase::Below(old), Some(new)) if old.as_slice() >= new => {}
            (_, Some(new)) => *self = Erase::Below(new.to_vec()),
        }
    }
}

/// Granules that a commit releases, with the birth of their contents.
pub(super) type Dead = Vec<(u32, Run)>;

/// See the module's head.
pub(super) struct Merge<'a> {
    pub out: &'a mut Output,
    pub builder: Builder,
    pub dead: &'a mut Dead,
    pub record: &'a mut TableRecord,
    pub within: &'a Within,
    pub changes: &'a mut dyn Changes,
    erase: Erase,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        out: &'a mut Output,
        builder: Builder,
        dead: &'a mut Dead,
        record: &'a mut TableRecord,
        within: &'a Within,
        changes: &'a mut dyn Changes,
    ) -> Merge<'a> {
        Merge {
            out,
            builder,
            dead,
            record,
            within,
            changes,
            erase: Erase::Nothing,
        }
    }

    /// Applies all changes and stores the new root in the record.
    pub(super) fn run(mut self) -> Result<()> {
        // A table that is emptied completely is freed without reading its leaves.
        while let Some(Change::DeleteRange([], None)) = self.changes.current() {
            if let Some((root, level)) = self.record.root.take() {
                let Merge {
                    out,
                    within,
                    dead,
                    record,
                    ..
                } = &mut self;
                free_tree(out, within, dead, record, root, level)?;
            }
            self.record.clear();
            self.changes.advance()?;
        }
        match self.record.root {
            Some((root, level)) => self.node(root, level, &[], None)?,
            None => self.new_entries(None)?,
        }
        let (root, granules) = self.builder.finish(self.out)?;
        self.record.root = root;
        self.record.granules += granules;
        Ok(())
    }

    /// Rewrites the subtree of a page whose keys are from `lo` (inclusive) to `hi` (exclusive).
    fn node(&mut self, ptr: PagePtr, level: u8, lo: &[u8], hi: Option<&[u8]>) -> Result<()> {
        if self.out.store.is_cached_reading() && self.out.store.is_cached(ptr) {
            self.builder.warm(usize::from(level));
        }
        let page = read(self.out, self.within, ptr, level)?;
        self.dead.push((ptr.birth, ptr.run()));
        self.record.granules = self.record.granules.saturating_sub(u64::from(ptr.granules));
        self.builder.begin(usize::from(level), lo);
        if level == 0 {
            self.leaf(&page, hi)?;
        } else {
            self.children(&page, lo, hi)?;
        }
        self.builder
            .boundary(self.out, usize::from(level), hi.is_none())
    }

    fn children(&mut self, page: &PageRef, lo: &[u8], hi: Option<&[u8]>) -> Result<()> {
        let (image, shape) = (page.bytes(), page.shape);
        let below = shape.level - 1;
        let mut from = lo.to_vec();
        let mut to = Vec::new();
        for index in 0..shape.count {
            let last = index + 1 == shape.count;
            if !last {
                shape.key_into(image, index + 1, &mut to);
            }
            let end = if last { hi } else { Some(&to[..]) };
            let child = shape.child(image, index);
            if self.touches(&from, end) || self.must_join(usize::from(below)) {
                self.node(child, below, &from, end)?;
            } else {
                self.builder
                    .subtree(self.out, usize::from(below), &from, child)?;
            }
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }

    /// Whether a change falls into the keys from `lo` (inclusive) to `hi` (exclusive).
    fn touches(&self, lo: &[u8], hi: Option<&[u8]>) -> bool {
        let changed = match (self.changes.current(), hi) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(change), Some(hi)) => change.key() < hi,
        };
        changed || self.erase.covers(lo)
    }

    /// Whether the pending entries at a level, or below, are so few that the next page should be
    /// merged with them.
    fn must_join(&self, level: usize) -> bool {
        (0..=level).any(|level| self.builder.pending(level) > 0 && self.builder.is_small(level))
    }

    fn leaf(&mut self, page: &PageRef, hi: Option<&[u8]>) -> Result<()> {
        let (image, shape) = (page.bytes(), page.shape);
        let mut key = Vec::new();
        let mut at = 0;
        loop {
            let change = self.changes.current();
            let change = change.filter(|change| hi.is_none_or(|hi| change.key() < hi));
            let (upto, equal) = match &change {
                Some(change) => shape.lower_bound(image, change.key()),
                None => (shape.count, false),
            };
            let erased = match &self.erase {
                Erase::Nothing => 0,
                Erase::Below(end) => shape.lower_bound(image, end).0,
                Erase::Everything => shape.count,
            };
            while at < upto {
                let entry = shape.entry(image, at);
                shape.key_into(image, at, &mut key);
                if at < erased {
                    remove(self.out, self.dead, self.record, key.len(), &entry)?;
                } else {
                    self.builder
                        .stored(self.out, &key, entry.value, entry.extent)?;
                }
                at += 1;
            }
            let Some(change) = change else {
                return Ok(());
            };
            let replaces = !matches!(change, Change::DeleteRange(..));
            if equal && at == upto && replaces {
                let entry = shape.entry(image, at);
                remove(self.out, self.dead, self.record, change.key().len(), &entry)?;
                at += 1;
            }
            self.one_change()?;
        }
    }

    /// Applies the current change where there are no old entries, and moves to the next change.
    fn one_change(&mut self) -> Result<()> {
        match self.changes.current() {
            Some(Change::Put(key, value)) => {
                self.record.entries += 1;
                self.record.key_bytes += key.len() as u64;
                self.record.value_bytes += value.len() as u64;
                self.builder.entry(self.out, key, value)?;
            }
            Some(Change::DeleteRange(lo, hi)) if hi.is_none_or(|hi| hi > lo) => {
                self.erase.extend(hi)
            }
            Some(Change::Delete(_) | Change::DeleteRange(..)) | None => {}
        }
        self.changes.advance()
    }

    /// Applies the changes below `hi` where there are no old entries.
    fn new_entries(&mut self, hi: Option<&[u8]>) -> Result<()> {
        while let Some(change) = self.changes.current() {
            if hi.is_some_and(|hi| change.key().cmp(hi) != Ordering::Less) {
                break;
            }
            self.one_change()?;
        }
        Ok(())
    }
}

/// Marks a page or a large value of a table as dead.
fn kill(
    out: &Output,
    dead: &mut Dead,
    record: &mut TableRecord,
    birth: u32,
    run: Run,
) -> Result<()> {
    let more = "a table has more pages than its record states";
    let known = record.release(run.len);
    known.ok_or_else(|| out.store.corrupt(run.start * GRANULE, more))?;
    dead.push((birth, run));
    Ok(())
}

/// Counts an entry as removed, and marks its large value as dead.
fn remove(
    out: &Output,
    dead: &mut Dead,
    record: &mut TableRecord,
    key_len: usize,
    entry: &Entry<'_>,
) -> Result<()> {
    let mut value_len = entry.value.len() as u64;
    if entry.extent
        && let Some(ptr) = ExtentPtr::decode(entry.value)
    {
        value_len = u64::from(ptr.raw);
        kill(out, dead, record, ptr.birth, ptr.run())?;
    }
    record.entries = record.entries.saturating_sub(1);
    record.key_bytes = record.key_bytes.saturating_sub(key_len as u64);
    record.value_bytes = record.value_bytes.saturating_sub(value_len);
    Ok(())
}

/// Reads a page for rewriting: one of the newest roots, or one that this writer or a builder has
/// written since.
pub(super) fn read(out: &mut Output, within: &Within, ptr: PagePtr, level: u8) -> Result<PageRef> {
    if ptr.birth != out.birth && ptr.run().end() <= within.end {
        return out.store.page_once(ptr, level, within);
    }
    let own = out.own_pages()?;
    out.store.page_once(ptr, level, &own)
}

/// Marks all pages and values of a subtree as dead. Leaves are read only where they may have large
/// values.
pub(super) fn free_tree(
    out: &mut Output,
    within: &Within,
    dead: &mut Dead,
    record: &mut TableRecord,
    ptr: PagePtr,
    level: u8,
) -> Result<()> {
    kill(out, dead, record, ptr.birth, ptr.run())?;
    if level == 0 && !ptr.extents {
        return Ok(());
    }
    let page = read(out, within, ptr, level)?;
    let (image, shape) = (page.bytes(), page.shape);
    for index in 0..shape.count {
        if level > 0 {
            free_tree(
                out,
                within,
                dead,
                record,
                shape.child(image, index),
                level - 1,
            )?;
            continue;
        }
        let entry = shape.entry(image, index);
        if entry.extent
            && let Some(ptr) = ExtentPtr::decode(entry.value)
        {
            kill(out, dead, record, ptr.birth, ptr.run())?;
        }
    }
    Ok(())
}
