//! The tree's roots as the base below a view's generations.

use std::sync::Arc;

use bytes::Bytes;

use super::tree::{Roots, TreeCursor};
use super::view::Base;
use crate::engine::{TableId, TableStats};
use crate::error::{Result, StorageError};

impl Base for Roots {
    type Cursor = TreeCursor;

    fn get(self: &Arc<Self>, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        match Roots::get(self, table, key) {
            Err(StorageError::NoSuchTable(_)) => Ok(None),
            found => found,
        }
    }

    fn cursor(self: &Arc<Self>, table: TableId) -> Result<TreeCursor> {
        Roots::cursor(self, table)
    }

    unsafe fn lent_cursor(self: &Arc<Self>, table: TableId) -> Result<TreeCursor> {
        // SAFETY: guaranteed by the caller.
        unsafe { Roots::lent_cursor(self, table) }
    }

    fn table(&self, table: TableId) -> Option<TableStats> {
        Roots::table(self, table)
    }

    fn tables(&self) -> Vec<TableId> {
        Roots::tables(self).collect()
    }
}
