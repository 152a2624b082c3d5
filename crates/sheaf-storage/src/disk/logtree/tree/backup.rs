//! Copies tables into a new file, while others read and write.
//!
//! The copy is built from the entries: it holds no free space, its tables lie in order, and every page
//! that goes into it has been checked.

use std::sync::Arc;

use super::record::TableRecord;
use super::{PageReading, Roots, TableOptions, TreeFile, TreeOptions};
use crate::disk::logtree::budget::MemoryBudget;
use crate::engine::{Cursor, TableId};
use crate::error::Result;
use crate::folder::Folder;

/// Entries are given to it one by one, in order.
pub type Sink<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Hands on every entry that a cursor walks over, in order.
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
    /// Writes these tables to a new file `name` in `to`, under a sequence; durable when it returns. `copy` hands a
    /// table's entries on. On an error a file is left that opens with no tables and the sequence 0.
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
    /// The tables, ascending, each with what it is like.
    pub fn table_options(&self) -> Vec<(TableId, TableOptions)> {
        let options = |record: &TableRecord| TableOptions { lz4: record.lz4 };
        let tables = self.tables.iter();
        tables.map(|(table, r)| (*table, options(r))).collect()
    }
}
