//! Copies tables into a new file, concurrently with readers and writers.
//!
//! The copy is built from the entries: it has no free space, its tables are stored in order, and
//! every page that was copied has been verified.

use std::sync::Arc;

use super::record::TableRecord;
use super::{PageReading, Roots, TableOptions, TreeFile, TreeOptions};
use crate::disk::logtree::budget::MemoryBudget;
use crate::engine::{Cursor, TableId};
use crate::error::Result;
use crate::folder::Folder;

/// Receives entries one by one, in order.
pub type Sink<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Passes every entry of a cursor's table to `sink`, in order.
/// Errors: the cursor's, and those of `sink`.
pub fn copy_entries(cursor: &mut dyn Cursor, sink: &mut Sink<'_>) -> Result<()> {
    let mut found = cursor.seek_first()?;
    while found {
        sink(cursor.key(), cursor.value())?;
        found = cursor.next()?;
    }
    Ok(())
}

impl TreeFile {
    /// Writes these tables to a new file `name` in `to`, under a sequence; durable when it returns.
    /// `copy` produces a table's entries. An error leaves a file that opens without tables and with
    /// sequence 0.
    /// Errors: `Corrupt`, `Io`, `NoSpace`, and those of `copy`.
    pub fn copy_tables(
        to: &Arc<dyn Folder>,
        name: &str,
        budget: Arc<MemoryBudget>,
        sequence: u64,
        tables: &[(TableId, TableOptions)],
        copy: &mut dyn FnMut(TableId, &mut Sink<'_>) -> Result<()>,
    ) -> Result<()> {
        let options = TreeOptions {
            reading: PageReading::Cached,
            budget,
        };
        let file = TreeFile::create(to, name, options)?;
        let mut writer = file.writer()?;
        for (table, options) in tables {
            let mut bulk = file.bulk(*table, *options)?;
            copy(*table, &mut |key, value| bulk.push(key, value))?;
            writer.create_table(*table, *options)?;
            writer.install(*table, bulk.finish()?)?;
        }
        writer.commit(sequence)?;
        Ok(())
    }
}

impl Roots {
    /// The tables with their options, ascending.
    pub fn table_options(&self) -> Vec<(TableId, TableOptions)> {
        let options = |record: &TableRecord| TableOptions { lz4: record.lz4 };
        let tables = self.tables.iter();
        tables.map(|(table, r)| (*table, options(r))).collect()
    }
}
