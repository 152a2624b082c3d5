//! Empties the file's end, so that the file can be shortened.
//!
//! ```text
//!   before   [ live │ free      │ live │ free   │ live ]  end
//!                      ▲                            │
//!                      └──────── moved ─────────────┘
//!   after    [ live │ live │ free │ live ]  end    (when no older roots see the old place)
//! ```
//!
//! When a quarter of the file is free, each commit moves a bounded part of what lies last to free places
//! before it. The pointers to it are changed in copies of the pages above, which have the same form and
//! length, so nothing is built anew.

use super::merge::read;
use super::pointer::{ExtentPtr, GRANULE, PagePtr};
use super::store::count;
use super::write::TreeWriter;
use crate::engine::TableId;
use crate::error::Result;

/// Below this much free space nothing is moved, in granules.
const FREE_MIN: u64 = 256;
/// A commit may move this much whatever the file's size, in granules.
const MOVED_MIN: u64 = 2048;
/// Commits that pass without a try after one that moved next to nothing, at most.
const IDLE_MAX: u32 = 64;

/// Slows down tries that lead to nothing: each walks the inner pages.
#[derive(Default)]
pub(super) struct Idle {
    /// Commits that still pass without a try.
    left: u32,
    /// How many passed last time.
    last: u32,
}

struct Move {
    /// What lies behind this granule is moved before it.
    cut: u64,
    moved: u64,
    /// Pages looked at. More than the file has granules are not a tree.
    looked_at: u64,
}

impl TreeWriter {
    /// Has this commit move as much of the file's end as finds room before it, and shorten the file however little
    /// that gives.
    pub fn compact(&mut self) {
        self.compacts = true;
    }

    /// Moves what lies at the file's end, if enough is free before it.
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

    /// The new place of a page when it was moved, or when something below it was.
    fn moved(
        &mut self,
        state: &mut Move,
        granules: &mut u64,
        ptr: PagePtr,
        level: u8,
        lz4: bool,
    ) -> Result<Option<PagePtr>> {
        // What this writer wrote lies where the allocator found best.
        let behind = ptr.run().end() > state.cut && ptr.birth != self.out.birth;
        if level == 0 && !behind && !ptr.extents {
            return Ok(None);
        }
        state.looked_at += 1;
        if state.looked_at > self.out.store.space.lock().end() {
            let detail = "pages lead to each other again and again";
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
        // `seal` packs the image, so each try has one of its own.
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
