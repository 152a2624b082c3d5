//! A view as of a sequence, as a [`Snapshot`] with its cursors.

use std::marker::PhantomPinned;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::Base;
use super::cursor::SheafCursor;
use super::open::{Part, Pinned};
use crate::engine::{Cursor, Snapshot, TableId};
use crate::error::Result;

/// The state that a snapshot and its cursors share.
pub(in crate::disk::logtree) struct Hold<R> {
    /// The view. It may be replaced by another one with the same contents, to free memory.
    pub(super) pinned: RwLock<Arc<Pinned<R>>>,
    /// Number of replacements.
    replacements: AtomicU32,
    pub(super) visible: u64,
    /// Where it is entered among those alive.
    part: Arc<Mutex<Part<R>>>,
    place: usize,
    /// Until it has left its slot other threads may access it, also while it is being dropped: an
    /// exclusive reference to it is not exclusive to the compiler.
    _shared: PhantomPinned,
}

impl<R> Hold<R> {
    pub(super) fn new(
        pinned: Arc<Pinned<R>>,
        visible: u64,
        part: Arc<Mutex<Part<R>>>,
        place: usize,
    ) -> Hold<R> {
        Hold {
            pinned: RwLock::new(pinned),
            replacements: AtomicU32::new(0),
            visible,
            part,
            place,
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
        let _lock = self.part.lock().leave(self.place);
    }
}

/// See the module's head.
pub(in crate::disk::logtree) struct SheafSnapshot<R> {
    hold: Arc<Hold<R>>,
}

impl<R> SheafSnapshot<R> {
    pub(super) fn new(hold: Arc<Hold<R>>) -> SheafSnapshot<R> {
        SheafSnapshot { hold }
    }
}

impl<R: Base> Snapshot for SheafSnapshot<R> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let pinned = self.hold.pinned.read();
        pinned.view.get(table, key, self.hold.visible)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(SheafCursor::new(self.hold.clone(), table)?))
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
