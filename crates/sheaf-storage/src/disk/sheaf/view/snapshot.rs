//! A view as of a sequence, behind the engine's traits.

use std::sync::Arc;

use bytes::Bytes;

use super::cursor::{Merged, SheafCursor};
use super::open::{Entry, OpenSnapshots};
use super::{Base, View};
use crate::engine::{Cursor, Snapshot, TableId};
use crate::error::Result;

/// What a snapshot and its cursors keep alive.
pub(super) struct Hold<R> {
    pub(super) view: Arc<View<R>>,
    pub(super) visible: u64,
    _entry: Entry,
}

/// See the module's head.
pub(in crate::disk::sheaf) struct SheafSnapshot<R> {
    hold: Arc<Hold<R>>,
}

impl<R: Base> SheafSnapshot<R> {
    /// All batches up to `visible` are in the view, and the view's tree has none that is newer.
    pub(in crate::disk::sheaf) fn new(
        view: Arc<View<R>>,
        visible: u64,
        open: &Arc<OpenSnapshots>,
    ) -> SheafSnapshot<R> {
        SheafSnapshot {
            hold: Arc::new(Hold {
                view,
                visible,
                _entry: open.enter(),
            }),
        }
    }
}

impl<R: Base> Snapshot for SheafSnapshot<R> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        self.hold.view.get(table, key, self.hold.visible)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        let hold = self.hold.clone();
        // SAFETY: the cursor keeps `hold`, and through it the view, for as long as it walks.
        let merged = unsafe { Merged::new(&hold.view, table, hold.visible)? };
        Ok(Box::new(SheafCursor::new(merged, hold)))
    }

    fn len(&self, table: TableId) -> Result<u64> {
        self.hold.view.len(table, self.hold.visible)
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        Ok(self.hold.view.contains_table(table, self.hold.visible))
    }
}
