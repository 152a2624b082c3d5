//! The merging cursor: the walks over the generations and the tree's cursor.
//!
//! ```text
//!   active      b            d(gone)         g
//!   frozen           c   (d)                 (g)
//!   tree    a       (c)  (d)         e   f         h
//!   seen    a   b    c               e   f   g     h      (..) hidden by a layer above
//! ```
//!
//! Every source is at the current entry or beyond it in the direction of the last move. A step
//! moves the source of the current entry; sources on the same key were moved when it was chosen.
//! There are two or three of them, so they are compared one by one. A change of direction seeks all
//! of them again from the current key.
//!
//! If the generations have no entries of the table there are no walks: the cursor then only adds
//! one branch to the tree's cursor.

use std::cmp::Ordering as Compared;
use std::sync::Arc;

use bytes::Bytes;

use super::open::Pinned;
use super::snapshot::Hold;
use super::{Base, View};
use crate::disk::logtree::memtable::{Cover, NodeRef, Run, Source};
use crate::engine::{Cursor, TableId};
use crate::error::{Result, StorageError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    Nowhere,
    Base,
    Source(usize),
    /// On the key in `turn_key`, with the entry released.
    Suspended,
}

/// Whether the version on which a walk is positioned is visible.
enum Shown {
    Yes,
    /// The key is deleted.
    No,
    /// The source has no visible entry in this range, which the generation at this index deleted.
    NotIn(Cover, usize),
}

/// Minimum number of consecutive deleted keys that is recorded for other readers.
const RUN_MIN: usize = if cfg!(test) { 2 } else { 64 };

/// Consecutive deleted keys.
#[derive(Default)]
struct Gone {
    /// The first and the last key in the direction of the move.
    ends: Option<(NodeRef<'static>, NodeRef<'static>)>,
    count: usize,
    /// The index of the newest generation that contributed.
    place: usize,
}

impl Gone {
    fn contributed_by(&mut self, place: usize) {
        self.place = if self.count == 0 && self.ends.is_none() {
            place
        } else {
            self.place.min(place)
        };
    }

    fn add(&mut self, at: NodeRef<'static>) {
        self.count += 1;
        self.ends = Some(match self.ends {
            Some((first, _)) => (first, at),
            None => (at, at),
        });
    }
}

/// The merged walk. Does not keep the view alive; see [`Merged::new`].
pub(super) struct Merged<C> {
    /// Newest first.
    sources: Vec<Source<'static>>,
    base: Option<C>,
    /// Whether `base` is on an entry.
    base_on: bool,
    current: Current,
    forward: bool,
    /// Whether runs of deleted keys are recorded for other readers.
    notes: bool,
    /// Buffer for the key at which the direction changes; while suspended, the current key.
    turn_key: Vec<u8>,
}

impl<C: Cursor> Merged<C> {
    /// Not yet positioned.
    ///
    /// Errors: `NoSuchTable`, and those of the tree.
    ///
    /// # Safety
    /// The view must not be moved or dropped while the result lives: the result points into its
    /// generations and roots.
    pub(super) unsafe fn new<R: Base<Cursor = C>>(
        view: &View<R>,
        table: TableId,
        visible: u64,
    ) -> Result<Merged<C>> {
        let mut sources = Vec::new();
        let mut floor = 0;
        for generation in view.generations() {
            let Some(mem) = generation.table(table) else {
                continue;
            };
            if let Some(fate) = mem.fate(visible) {
                if !fate.exists {
                    return Err(StorageError::NoSuchTable(table));
                }
                floor = fate.seq;
            }
            // SAFETY: the caller keeps the view, and with it the generation and its part of the
            // table. What a walk exposes is bounded by its own borrow: `'static` does not leave
            // this type.
            let mem = unsafe { &*std::ptr::from_ref(mem) };
            sources.extend(Source::new(mem, floor, visible));
            if floor > 0 {
                break;
            }
        }
        let base = if floor > 0 {
            None
        } else if view.roots.table(table).is_some() {
            // SAFETY: the caller keeps the view, and with it its roots.
            Some(unsafe { view.roots.lent_cursor(table)? })
        } else {
            return Err(StorageError::NoSuchTable(table));
        };
        Ok(Merged {
            sources,
            base,
            base_on: false,
            current: Current::Nowhere,
            forward: true,
            notes: true,
            turn_key: Vec::new(),
        })
    }

    /// Disables recording, for a walk at a sequence up to which batches may still be inserted: a
    /// deleted key may become visible.
    pub(super) fn without_notes(mut self) -> Merged<C> {
        self.notes = false;
        self
    }

    /// Drops everything but the current key and the direction of the last move.
    fn suspended(&mut self) -> Merged<C> {
        let mut key = std::mem::take(&mut self.turn_key);
        key.clear();
        key.extend_from_slice(self.key());
        Merged {
            sources: Vec::new(),
            base: None,
            base_on: false,
            current: match self.valid() {
                true => Current::Suspended,
                false => Current::Nowhere,
            },
            forward: self.forward,
            notes: self.notes,
            turn_key: key,
        }
    }

    /// Positions the tree's cursor, then chooses the current entry.
    #[inline]
    fn position(&mut self, base: impl FnOnce(&mut C) -> Result<bool>) -> Result<bool> {
        self.current = Current::Nowhere;
        self.base_on = false;
        if let Some(cursor) = &mut self.base {
            self.base_on = base(cursor)?;
        }
        self.settle()
    }

    #[inline]
    fn step(&mut self, forward: bool) -> Result<bool> {
        if self.current == Current::Nowhere {
            return Ok(false);
        }
        if self.forward != forward {
            return self.turn(forward);
        }
        match self.current {
            Current::Source(place) => self.step_source(place),
            _ => self.step_base()?,
        }
        self.settle()
    }

    #[inline]
    fn step_base(&mut self) -> Result<()> {
        self.current = Current::Nowhere;
        if let Some(cursor) = &mut self.base {
            self.base_on = false;
            self.base_on = if self.forward {
                cursor.next()?
            } else {
                cursor.prev()?
            };
        }
        Ok(())
    }

    #[inline]
    fn step_source(&mut self, place: usize) {
        if self.forward {
            self.sources[place].next();
        } else {
            self.sources[place].prev();
        }
    }

    /// Chooses the nearest visible entry.
    #[inline]
    fn settle(&mut self) -> Result<bool> {
        if self.sources.is_empty() {
            self.current = if self.base_on {
                Current::Base
            } else {
                Current::Nowhere
            };
            return Ok(self.base_on);
        }
        self.settle_merged()
    }

    fn settle_merged(&mut self) -> Result<bool> {
        self.current = Current::Nowhere;
        let mut gone = Gone::default();
        let found = self.settle_passing(&mut gone)?;
        if gone.count >= RUN_MIN
            && self.notes
            && let Some((first, last)) = gone.ends
        {
            let (first, last) = if self.forward {
                (first, last)
            } else {
                (last, first)
            };
            self.sources[gone.place].record_run(first.key(), last.key());
        }
        Ok(found)
    }

    fn settle_passing(&mut self, gone: &mut Gone) -> Result<bool> {
        let farther = if self.forward {
            Compared::Greater
        } else {
            Compared::Less
        };
        loop {
            let nearest = self.nearest_source(farther.reverse());
            if let Some(cursor) = self.base.as_ref().filter(|_| self.base_on) {
                let at = nearest.and_then(|place| self.sources[place].at);
                let compared = at.map_or(farther, |at| Source::compare(at, cursor.key()));
                if compared == farther {
                    // The tree's entry is nearer.
                    let mut sources = self.sources.iter().enumerate();
                    let cover = sources.find_map(|(above, source)| {
                        let cover = source.cover(cursor.key())?;
                        Some((above, cover))
                    });
                    let Some((above, cover)) = cover else {
                        self.current = Current::Base;
                        return Ok(true);
                    };
                    gone.contributed_by(above);
                    self.take_base_out_of(&cover.lo, cover.hi.as_deref())?;
                    continue;
                }
                if compared == Compared::Equal {
                    self.step_base()?;
                }
            }
            let Some(place) = nearest else {
                return Ok(false);
            };
            match self.shown(place) {
                Shown::Yes => {
                    self.current = Current::Source(place);
                    return Ok(true);
                }
                Shown::No => {
                    gone.contributed_by(place);
                    if let Some(at) = self.sources[place].at {
                        gone.add(at);
                        self.leave_run(at)?;
                        if self.sources[place].at == Some(at) {
                            self.step_source(place);
                        }
                    }
                }
                Shown::NotIn(cover, above) => {
                    gone.contributed_by(above);
                    self.take_source_out_of(place, &cover.lo, cover.hi.as_deref());
                }
            }
        }
    }

    /// If a run of deleted keys around the key is recorded, moves past it.
    fn leave_run(&mut self, at: NodeRef<'static>) -> Result<()> {
        for place in 0..self.sources.len() {
            if let Some(Run { lo, hi }) = self.sources[place].run_over(at.key()) {
                for below in place..self.sources.len() {
                    self.take_source_out_of(below, &lo, Some(&hi));
                }
                if self.base_on {
                    self.take_base_out_of(&lo, Some(&hi))?;
                }
                break;
            }
        }
        Ok(())
    }

    /// The source on the nearest key, the newest of those on the same key; moves the others past
    /// it.
    #[inline]
    fn nearest_source(&mut self, nearer: Compared) -> Option<usize> {
        let mut nearest = None;
        for place in 0..self.sources.len() {
            let Some(at) = self.sources[place].at else {
                continue;
            };
            let Some((_, best)) = nearest else {
                nearest = Some((place, at));
                continue;
            };
            match at.compare_node_key(best) {
                Compared::Equal => self.step_source(place),
                compared if compared == nearer => nearest = Some((place, at)),
                _ => {}
            }
        }
        nearest.map(|(place, _)| place)
    }

    #[inline]
    fn shown(&self, place: usize) -> Shown {
        let Some(at) = self.sources[place].at else {
            return Shown::No;
        };
        for (above, source) in self.sources[..=place].iter().enumerate() {
            if let Some(cover) = source.cover(at.key())
                && cover.seq > at.seq()
            {
                // In its own generation some keys in the range may be newer than the range.
                return if above < place {
                    Shown::NotIn(cover, above)
                } else {
                    Shown::No
                };
            }
        }
        if at.is_deleted() {
            Shown::No
        } else {
            Shown::Yes
        }
    }

    /// Moves a walk out of a range in which it has no visible entries, unless it has left the
    /// range.
    fn take_source_out_of(&mut self, place: usize, lo: &[u8], hi: Option<&[u8]>) {
        let source = &mut self.sources[place];
        let Some(at) = source.at else {
            return;
        };
        match (self.forward, hi) {
            (true, Some(hi)) if at.key() < hi => source.seek(hi),
            (true, None) => source.at = None,
            (false, _) if at.key() >= lo => source.seek_before(lo),
            _ => {}
        }
    }

    /// Moves the tree's cursor, which must be on an entry, out of a range, unless it has left the
    /// range.
    fn take_base_out_of(&mut self, lo: &[u8], hi: Option<&[u8]>) -> Result<()> {
        let Some(cursor) = &mut self.base else {
            return Ok(());
        };
        self.base_on = false;
        self.base_on = match (self.forward, hi) {
            (true, Some(hi)) => cursor.key() >= hi || cursor.seek(hi)?,
            (true, None) => false,
            (false, _) => {
                cursor.key() < lo
                    || (cursor.seek_for_prev(lo)? && (cursor.key() != lo || cursor.prev()?))
            }
        };
        Ok(())
    }

    /// Reverses the direction at the current entry and takes one step.
    fn turn(&mut self, forward: bool) -> Result<bool> {
        let mut key = std::mem::take(&mut self.turn_key);
        key.clear();
        key.extend_from_slice(self.key());
        self.forward = forward;
        for source in &mut self.sources {
            if forward {
                source.seek_after(&key);
            } else {
                source.seek_before(&key);
            }
        }
        let base_there = self.current == Current::Base;
        let result = self.position(|cursor| match (forward, base_there) {
            (true, true) => cursor.next(),
            (false, true) => cursor.prev(),
            (true, false) => Ok(cursor.seek(&key)? && (cursor.key() != key || cursor.next()?)),
            (false, false) => {
                Ok(cursor.seek_for_prev(&key)? && (cursor.key() != key || cursor.prev()?))
            }
        });
        self.turn_key = key;
        result
    }
}

impl<C: Cursor> Cursor for Merged<C> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward = true;
        self.sources.iter_mut().for_each(|source| source.seek(key));
        self.position(|cursor| cursor.seek(key))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.forward = false;
        let sources = self.sources.iter_mut();
        sources.for_each(|source| source.seek_for_prev(key));
        self.position(|cursor| cursor.seek_for_prev(key))
    }

    fn seek_first(&mut self) -> Result<bool> {
        self.forward = true;
        self.sources.iter_mut().for_each(Source::seek_first);
        self.position(C::seek_first)
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.forward = false;
        self.sources.iter_mut().for_each(Source::seek_last);
        self.position(C::seek_last)
    }

    #[inline]
    fn next(&mut self) -> Result<bool> {
        self.step(true)
    }

    #[inline]
    fn prev(&mut self) -> Result<bool> {
        self.step(false)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self.current {
            Current::Nowhere => &[],
            Current::Base => self.base.as_ref().map_or(&[], |cursor| cursor.key()),
            Current::Source(place) => self.sources[place].at.map_or(&[], |at| at.key()),
            Current::Suspended => &self.turn_key,
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self.current {
            Current::Nowhere | Current::Suspended => &[],
            Current::Base => self.base.as_ref().map_or(&[], |cursor| cursor.value()),
            Current::Source(place) => self.sources[place].at.map_or(&[], |at| at.value()),
        }
    }

    fn value_bytes(&self) -> Bytes {
        match self.current {
            Current::Nowhere | Current::Suspended => Bytes::new(),
            Current::Base => self.base.as_ref().map_or_else(Bytes::new, C::value_bytes),
            Current::Source(place) => {
                let at = self.sources[place].at;
                at.map_or_else(Bytes::new, |at| at.value_bytes())
            }
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current != Current::Nowhere
    }
}

/// The merged walk together with the view that it pins.
///
/// ```text
///   walk ──suspend──> a key, nothing is pinned
///     ▲                  │ next move: a new walk, over the snapshot's present view,
///     └──────────────────┘ is positioned on the key
/// ```
///
/// If the snapshot has been given another view, the walk switches to it with its next move in the
/// same way, and releases what the old view pinned.
pub(super) struct LogTreeCursor<R: Base> {
    // Dropped first: it points into the view that `pinned` keeps alive.
    merged: Merged<R::Cursor>,
    /// `None` while the cursor is suspended.
    pinned: Option<Arc<Pinned<R>>>,
    /// Number of the snapshot's view that `pinned` is; [`SUSPENDED`] if there is none.
    replacements: u32,
    table: TableId,
    hold: Arc<Hold<R>>,
}

/// No view has this number, so one comparison detects both a suspended cursor and one whose view
/// was replaced.
const SUSPENDED: u32 = u32::MAX;

impl<R: Base> LogTreeCursor<R> {
    /// A cursor that is not yet positioned. Errors: `NoSuchTable`, and those of the tree.
    pub(super) fn new(hold: Arc<Hold<R>>, table: TableId) -> Result<LogTreeCursor<R>> {
        // Read before the view: if the number is outdated, the cursor only switches once
        // unnecessarily.
        let replacements = hold.replacements();
        let pinned = hold.pinned.read().clone();
        // SAFETY: the cursor keeps `pinned`, and through it the view, which is not moved; it drops
        // it after the walk (`suspend`, `switch_view`, and the order of the fields).
        let merged = unsafe { Merged::new(&pinned.view, table, hold.visible)? };
        Ok(LogTreeCursor {
            merged,
            pinned: Some(pinned),
            replacements,
            table,
            hold,
        })
    }

    /// Switches to the snapshot's newest view if it is another one, and positions itself on the
    /// current key.
    #[inline]
    fn follow(&mut self) -> Result<()> {
        match self.hold.replacements() == self.replacements {
            true => Ok(()),
            false => self.switch_view(true),
        }
    }

    /// Like [`LogTreeCursor::follow`], for a move that does not depend on the current position.
    #[inline]
    fn follow_nowhere(&mut self) -> Result<()> {
        match self.hold.replacements() == self.replacements {
            true => Ok(()),
            false => self.switch_view(false),
        }
    }

    #[cold]
    #[inline(never)]
    fn switch_view(&mut self, find: bool) -> Result<()> {
        let key = (find && self.merged.valid()).then(|| self.merged.key().to_vec());
        let forward = self.merged.forward;
        // If the new view cannot be read, the cursor has no position.
        self.merged.current = Current::Nowhere;
        let mut new = LogTreeCursor::new(self.hold.clone(), self.table)?;
        if let Some(key) = key {
            let found = match forward {
                true => new.merged.seek(&key)?,
                false => new.merged.seek_for_prev(&key)?,
            };
            debug_assert!(
                found && new.merged.key() == key,
                "both views have the same entry"
            );
        }
        *self = new;
        Ok(())
    }
}

impl<R: Base> Cursor for LogTreeCursor<R> {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.follow_nowhere()?;
        self.merged.seek(key)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.follow_nowhere()?;
        self.merged.seek_for_prev(key)
    }

    fn seek_first(&mut self) -> Result<bool> {
        self.follow_nowhere()?;
        self.merged.seek_first()
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.follow_nowhere()?;
        self.merged.seek_last()
    }

    fn next(&mut self) -> Result<bool> {
        self.follow()?;
        self.merged.next()
    }

    fn prev(&mut self) -> Result<bool> {
        self.follow()?;
        self.merged.prev()
    }

    fn key(&self) -> &[u8] {
        self.merged.key()
    }

    fn value(&self) -> &[u8] {
        self.merged.value()
    }

    fn value_bytes(&self) -> Bytes {
        self.merged.value_bytes()
    }

    fn valid(&self) -> bool {
        self.merged.valid()
    }

    fn suspend(&mut self) {
        if self.pinned.is_some() {
            // The walk is dropped before the view that it points into.
            self.merged = self.merged.suspended();
            self.pinned = None;
            self.replacements = SUSPENDED;
        }
    }
}
