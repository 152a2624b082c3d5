//! A snapshot overlaid with a unit's own writes, itself a [`Snapshot`].
//!
//! The cursor merges two streams that have no key in common:
//!
//! ```text
//!   snapshot    a     c  (d)  e  (f)     h      (..) hidden: deleted, replaced, in a deleted range
//!   own puts       b      d           g
//!   together    a  b  c   d   e       g  h
//! ```
//!
//! Both streams are at the current entry or beyond it in the direction of the last move. A change
//! of direction seeks both again from the current key; a step moves one of them.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{KeyWrite, TableFate, TableWrites, WriteBatch};
use crate::engine::{Cursor, Snapshot, TableId};
use crate::error::{Result, StorageError};

/// The view of a unit of work: its snapshot, and its writes at the time when the view was taken.
pub(super) struct OverlaySnapshot {
    base: Arc<dyn Snapshot>,
    writes: Arc<WriteBatch>,
}

impl OverlaySnapshot {
    pub(super) fn new(base: Arc<dyn Snapshot>, writes: Arc<WriteBatch>) -> OverlaySnapshot {
        OverlaySnapshot { base, writes }
    }
}

/// Looks `key` up in the writes, then in the snapshot.
pub(super) fn get(
    base: &dyn Snapshot,
    writes: &WriteBatch,
    table: TableId,
    key: &[u8],
) -> Result<Option<Bytes>> {
    let Some(writes) = writes.table(table) else {
        return base.get(table, key);
    };
    if !writes.fate().exists_after() {
        return Err(StorageError::NoSuchTable(table));
    }
    match writes.keys().get(key).map(|change| &change.write) {
        Some(KeyWrite::Put(value)) => Ok(Some(value.clone())),
        Some(KeyWrite::Delete) => Ok(None),
        None if !writes.keeps(key) => Ok(None),
        None => base.get(table, key),
    }
}

impl Snapshot for OverlaySnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        get(&*self.base, &self.writes, table, key)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        let Some(writes) = self.writes.table(table) else {
            return self.base.cursor(table);
        };
        let base = match writes.fate() {
            TableFate::Dropped | TableFate::Transient => {
                return Err(StorageError::NoSuchTable(table));
            }
            TableFate::Kept => Some(self.base.cursor(table)?),
            TableFate::Created | TableFate::Replaced => None,
        };
        Ok(Box::new(OverlayCursor {
            base,
            base_on: false,
            base_suspended: false,
            own: None,
            writes: writes.clone(),
            current: Stream::Neither,
            forward: true,
            turn_key: Vec::new(),
        }))
    }

    fn len(&self, table: TableId) -> Result<u64> {
        let Some(writes) = self.writes.table(table) else {
            return self.base.len(table);
        };
        let mut count = match writes.fate() {
            TableFate::Dropped | TableFate::Transient => {
                return Err(StorageError::NoSuchTable(table));
            }
            TableFate::Kept => self.base.len(table)?,
            TableFate::Created | TableFate::Replaced => 0,
        };
        let kept = writes.fate() == TableFate::Kept;
        if kept && !writes.ranges().is_empty() {
            let mut cursor = self.base.cursor(table)?;
            for (lo, hi) in writes.ranges().iter() {
                let mut found = cursor.seek(lo)?;
                while found && hi.is_none_or(|hi| cursor.key() < &hi[..]) {
                    count -= 1;
                    found = cursor.next()?;
                }
            }
        }
        for (key, change) in writes.keys() {
            let was_there = writes.keeps(key) && self.base.get(table, key)?.is_some();
            match change.write {
                KeyWrite::Put(_) if !was_there => count += 1,
                KeyWrite::Delete if was_there => count -= 1,
                _ => {}
            }
        }
        Ok(count)
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        match self.writes.table(table).map(|writes| writes.fate()) {
            None | Some(TableFate::Kept) => self.base.contains_table(table),
            Some(fate) => Ok(fate.exists_after()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Neither,
    Base,
    Own,
}

struct OverlayCursor {
    /// The snapshot's cursor; `None` if no entry of the snapshot's table is visible.
    base: Option<Box<dyn Cursor>>,
    /// Whether `base` is on a visible entry.
    base_on: bool,
    /// Whether `base` is suspended.
    base_suspended: bool,
    /// The unit's own put on which that stream is positioned.
    own: Option<(Bytes, Bytes)>,
    writes: Arc<TableWrites>,
    current: Stream,
    forward: bool,
    /// Buffer for the key at which the direction changes.
    turn_key: Vec<u8>,
}

impl OverlayCursor {
    /// Positions both streams by `base` and `own`, and selects the nearer one.
    fn position(
        &mut self,
        forward: bool,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        base: impl FnOnce(&mut dyn Cursor) -> Result<bool>,
    ) -> Result<bool> {
        self.current = Stream::Neither;
        self.forward = forward;
        self.own = self.own_put(range);
        self.base_suspended = false;
        self.base_on = match &mut self.base {
            Some(cursor) => base(&mut **cursor)?,
            None => false,
        };
        self.skip_hidden()?;
        Ok(self.settle())
    }

    /// The unit's first put in the range, or its last when moving backward.
    fn own_put(&self, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Option<(Bytes, Bytes)> {
        let mut writes = self.writes.keys().range::<[u8], _>(range);
        loop {
            let (key, change) = if self.forward {
                writes.next()
            } else {
                writes.next_back()
            }?;
            if let KeyWrite::Put(value) = &change.write {
                return Some((key.clone(), value.clone()));
            }
        }
    }

    /// Moves the snapshot's cursor to an entry that the unit's writes do not hide.
    fn skip_hidden(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.base else {
            return Ok(());
        };
        while self.base_on {
            let key = cursor.key();
            self.base_on = if let Some((lo, hi)) = self.writes.ranges().covering(key) {
                match (self.forward, hi) {
                    (true, Some(hi)) => cursor.seek(hi)?,
                    (true, None) => false,
                    // `lo` is inside the range, what precedes it is not.
                    (false, _) => {
                        cursor.seek_for_prev(lo)? && (cursor.key() != lo || cursor.prev()?)
                    }
                }
            } else if self.writes.keys().contains_key(key) {
                if self.forward {
                    cursor.next()?
                } else {
                    cursor.prev()?
                }
            } else {
                break;
            };
        }
        Ok(())
    }

    /// Selects the nearer of the two streams.
    fn settle(&mut self) -> bool {
        let base = self.base.as_ref().filter(|_| self.base_on);
        self.current = match (base, &self.own) {
            (None, None) => Stream::Neither,
            (Some(_), None) => Stream::Base,
            (None, Some(_)) => Stream::Own,
            (Some(base), Some((own, _))) => {
                if (base.key() < &own[..]) == self.forward {
                    Stream::Base
                } else {
                    Stream::Own
                }
            }
        };
        self.current != Stream::Neither
    }

    fn step(&mut self, forward: bool) -> Result<bool> {
        if self.current == Stream::Neither {
            return Ok(false);
        }
        if self.forward != forward {
            return self.turn(forward);
        }
        match std::mem::replace(&mut self.current, Stream::Neither) {
            Stream::Base => {
                if let Some(cursor) = &mut self.base {
                    self.base_suspended = false;
                    self.base_on = if forward {
                        cursor.next()?
                    } else {
                        cursor.prev()?
                    };
                    self.skip_hidden()?;
                }
            }
            Stream::Own => {
                self.resume_base()?;
                if let Some((key, _)) = self.own.take() {
                    self.own = self.own_put(beyond(&key, forward));
                }
            }
            Stream::Neither => {}
        }
        Ok(self.settle())
    }

    /// Restores the position of the suspended snapshot cursor: it may be the next entry without
    /// being moved.
    fn resume_base(&mut self) -> Result<()> {
        if std::mem::take(&mut self.base_suspended)
            && self.base_on
            && let Some(cursor) = &mut self.base
        {
            let key = cursor.key().to_vec();
            cursor.seek(&key)?;
        }
        Ok(())
    }

    /// Reverses the direction at the current entry and takes one step.
    fn turn(&mut self, forward: bool) -> Result<bool> {
        let mut key = std::mem::take(&mut self.turn_key);
        key.clear();
        key.extend_from_slice(self.key());
        let result = self.position(forward, beyond(&key, forward), |cursor| {
            if forward {
                Ok(cursor.seek(&key)? && (cursor.key() != key || cursor.next()?))
            } else {
                Ok(cursor.seek_for_prev(&key)? && (cursor.key() != key || cursor.prev()?))
            }
        });
        self.turn_key = key;
        result
    }
}

/// The range after `key` in the direction of the move.
fn beyond(key: &[u8], forward: bool) -> (Bound<&[u8]>, Bound<&[u8]>) {
    if forward {
        (Bound::Excluded(key), Bound::Unbounded)
    } else {
        (Bound::Unbounded, Bound::Excluded(key))
    }
}

impl Cursor for OverlayCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let range = (Bound::Included(key), Bound::Unbounded);
        self.position(true, range, |cursor| cursor.seek(key))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        let range = (Bound::Unbounded, Bound::Included(key));
        self.position(false, range, |cursor| cursor.seek_for_prev(key))
    }

    fn seek_first(&mut self) -> Result<bool> {
        let range = (Bound::Unbounded, Bound::Unbounded);
        self.position(true, range, |cursor| cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<bool> {
        let range = (Bound::Unbounded, Bound::Unbounded);
        self.position(false, range, |cursor| cursor.seek_last())
    }

    fn next(&mut self) -> Result<bool> {
        self.step(true)
    }

    fn prev(&mut self) -> Result<bool> {
        self.step(false)
    }

    fn key(&self) -> &[u8] {
        match (self.current, &self.base, &self.own) {
            (Stream::Base, Some(cursor), _) => cursor.key(),
            (Stream::Own, _, Some((key, _))) => key,
            _ => &[],
        }
    }

    fn value(&self) -> &[u8] {
        match (self.current, &self.base, &self.own) {
            (Stream::Base, Some(cursor), _) => cursor.value(),
            (Stream::Own, _, Some((_, value))) => value,
            _ => &[],
        }
    }

    fn value_bytes(&self) -> Bytes {
        match (self.current, &self.base, &self.own) {
            (Stream::Base, Some(cursor), _) => cursor.value_bytes(),
            (Stream::Own, _, Some((_, value))) => value.clone(),
            _ => Bytes::new(),
        }
    }

    fn valid(&self) -> bool {
        self.current != Stream::Neither
    }

    fn suspend(&mut self) {
        // Its key remains available for comparison with the own one.
        if let Some(base) = &mut self.base {
            base.suspend();
            self.base_suspended = true;
        }
    }
}
