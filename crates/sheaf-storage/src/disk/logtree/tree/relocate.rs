//! Relocation: empties the end of the file, so that it can be truncated.
//!
//! ```text
//!   before   [ live │ free      │ live │ free   │ live ]  end
//!                      ▲                            │
//!                      └──────── moved ─────────────┘
//!   after    [ live │ live │ free │ live ]  end    (once no older roots see the old place)
//! ```
//!
//! When a quarter of the file is free, each commit moves a bounded part of the last pages to free
//! places before them. The pointers to them are changed in copies of the pages above, which keep
//! their format and length, so no page is rebuilt.

use super::merge::read;
use super::pointer::{ExtentPtr, GRANULE, PagePtr};
use super::store::count;
use super::write::TreeWriter;
use crate::engine::TableId;
use crate::error::Result;

/// Granules of free space below which nothing is moved.
const FREE_MIN: u64 = 256;
/// Number of granules that a commit may move regardless of the file's size.
const MOVED_MIN: u64 = 2048;
/// Maximum number of commits without an attempt, after attempts that gained almost nothing.
const IDLE_MAX: u32 = 64;

/// Backs off from attempts that gain nothing: each walks the inner pages.
#[derive(Default)]
pub(super) struct Idle {
    /// Remaining commits without an attempt.
    left: u32,
    /// Number of commits skipped last time.
    last: u32,
}

struct Move {
    /// Pages after this granule are moved before it.
    cut: u64,
    moved: u64,
    /// Pages visited. More than the file has granules cannot be a tree.
    looked_at: u64,
}

impl TreeWriter {
    /// Makes this commit move as much of the file's end as fits before it, and truncate the file
    /// even if that gains little.
    pub fn compact(&mut self) {
        self.compacts = true;
    }

    /// Moves pages and values from the file's end, if there is enough free space before it.
    pub(super) fn relocate(&mut self) -> Result<()> {
        self.out.settle()?;
        let cut = {
            let space = self.out.store.space.lock();
            let (free, end) = (space.free_granules(), space.end());
            if self.compacts {
                space.tail_that_fits(free)
            } else if free < FREE_MIN || free * 4 < end {
                return Ok(());
            } else {
                space.tail_that_fits((free / 2).min(MOVED_MIN.max(end / 64)))
            }
        };
        if !self.compacts {
            let mut idle = self.file.inner.idle.lock();
            if idle.left > 0 {
                idle.left -= 1;
                return Ok(());
            }
        }
        let mut state = Move {
            cut,
            moved: 0,
            looked_at: 0,
        };
        let tables: Vec<TableId> = self.tables.keys().copied().collect();
        for table in tables {
            let mut record = self.tables[&table];
            let Some((root, level)) = record.root else {
                continue;
            };
            let lz4 = record.lz4;
            if let Some(new) = self.moved(&mut state, &mut record.granules, root, level, lz4)? {
                record.root = Some((new, level));
                self.tables.insert(table, record);
                self.changed.insert(table);
            }
        }
        self.out.flush()?;
        count(&self.out.store.counters.relocated, state.moved);
        let mut idle = self.file.inner.idle.lock();
        idle.last = match state.moved {
            0 => (idle.last * 2).clamp(1, IDLE_MAX),
            _ => 0,
        };
        idle.left = idle.last;
        Ok(())
    }

    /// The new place of a page, if it or something below it was moved.
    fn moved(
        &mut self,
        state: &mut Move,
        granules: &mut u64,
        ptr: PagePtr,
        level: u8,
        lz4: bool,
    ) -> Result<Option<PagePtr>> {
        // Pages of this writer need not be moved: the allocator has just placed them.
        let behind = ptr.run().end() > state.cut && ptr.birth != self.out.birth;
        if level == 0 && !behind && !ptr.extents {
            return Ok(None);
        }
        state.looked_at += 1;
        if state.looked_at > self.out.store.space.lock().end() {
            let detail = "pages refer to each other in a cycle";
            return Err(self.out.store.corrupt(ptr.granule * GRANULE, detail));
        }
        let page = read(&mut self.out, &self.within, ptr, level)?;
        let (image, shape) = (page.bytes(), page.shape);
        let mut patches: Vec<(usize, Vec<u8>)> = Vec::new();
        for index in 0..if level > 0 || ptr.extents {
            shape.count
        } else {
            0
        } {
            let entry = shape.entry(image, index);
            if level > 0 {
                let child = shape.child(image, index);
                if let Some(new) = self.moved(state, granules, child, level - 1, lz4)? {
                    patches.push((entry.value_at, new.encode().to_vec()));
                }
            } else if entry.extent
                && let Some(old) = ExtentPtr::decode(entry.value)
                && old.run().end() > state.cut
                && old.birth != self.out.birth
                && old.run().end() <= self.within.end
                && let Some(new) = self.out.move_extent(old, state.cut)?
            {
                self.dead.push((old.birth, old.run()));
                state.moved += 1;
                patches.push((entry.value_at, new.encode().to_vec()));
            }
        }
        if !behind && patches.is_empty() {
            return Ok(None);
        }
        let mut copy = image.to_vec();
        for (at, bytes) in &patches {
            copy[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        // `seal` compresses the image in place, so each attempt needs a copy.
        let mut new = None;
        if behind {
            new = self
                .out
                .page(&mut copy.clone(), lz4, false, Some(state.cut))?;
            state.moved += u64::from(new.is_some());
        }
        if new.is_none() && !patches.is_empty() {
            new = self.out.page(&mut copy, lz4, false, None)?;
        }
        if let Some(new) = &new {
            *granules = granules.saturating_sub(u64::from(ptr.granules)) + u64::from(new.granules);
            self.dead.push((ptr.birth, ptr.run()));
        }
        Ok(new)
    }
}
