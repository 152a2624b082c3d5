//! A view as of a sequence, as a [`Snapshot`] with its cursors.

use std::marker::PhantomPinned;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::Base;
use super::cursor::LogTreeCursor;
use super::open::{Pinned, Shard};
use crate::engine::{Cursor, Snapshot, TableId};
use crate::error::Result;

/// The state that a snapshot and its cursors share.
pub(in crate::disk::logtree) struct Hold<R> {
    /// The view. It may be replaced by another one with the same contents, to free memory.
    pub(super) pinned: RwLock<Arc<Pinned<R>>>,
    /// Number of replacements.
    replacements: AtomicU32,
    pub(super) visible: u64,
    /// The shard of the list of open snapshots that contains this snapshot.
    shard: Arc<Mutex<Shard<R>>>,
    slot: usize,
    /// Until the snapshot has left its slot, other threads may access it, even while it is being
    /// dropped. The marker prevents the compiler from assuming that an exclusive reference is
    /// exclusive.
    _shared: PhantomPinned,
}

impl<R> Hold<R> {
    pub(super) fn new(
        pinned: Arc<Pinned<R>>,
        visible: u64,
        shard: Arc<Mutex<Shard<R>>>,
        slot: usize,
    ) -> Hold<R> {
        Hold {
            pinned: RwLock::new(pinned),
            replacements: AtomicU32::new(0),
            visible,
            shard,
            slot,
            _shared: PhantomPinned,
        }
    }

    #[inline]
    pub(super) fn replacements(&self) -> u32 {
        // A cursor that sees it late continues with the view that it keeps.
        self.replacements.load(Ordering::Relaxed)
    }

    pub(super) fn count_replacement(&self) {
        self.replacements.fetch_add(1, Ordering::Relaxed);
    }
}

impl<R> Drop for Hold<R> {
    fn drop(&mut self) {
        let _lock = self.shard.lock().leave(self.slot);
    }
}

/// See the module's head.
pub(in crate::disk::logtree) struct LogTreeSnapshot<R> {
    hold: Arc<Hold<R>>,
}

impl<R> LogTreeSnapshot<R> {
    pub(super) fn new(hold: Arc<Hold<R>>) -> LogTreeSnapshot<R> {
        LogTreeSnapshot { hold }
    }
}

impl<R: Base> Snapshot for LogTreeSnapshot<R> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let pinned = self.hold.pinned.read();
        pinned.view.get(table, key, self.hold.visible)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(LogTreeCursor::new(self.hold.clone(), table)?))
    }

    fn len(&self, table: TableId) -> Result<u64> {
        let pinned = self.hold.pinned.read();
        pinned.view.len(table, self.hold.visible)
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        let pinned = self.hold.pinned.read();
        Ok(pinned.view.contains_table(table, self.hold.visible))
    }
}
