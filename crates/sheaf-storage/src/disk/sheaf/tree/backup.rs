//! Copies the tables of one commit into a new file, while others read and write.
//!
//! The copy is built from the entries: it holds no free space, its tables lie in order, and every page
//! that goes into it has been checked.

use std::sync::Arc;

use super::{PageReading, Roots, TableOptions, TreeFile, TreeOptions};
use crate::disk::sheaf::files::Folder;
use crate::error::Result;

impl TreeFile {
    /// Writes what `roots` see to a new file `name` in `to`, with their sequence; durable when it
    /// returns. On an error a file is left that opens with fewer tables and the sequence 0.
    /// Errors: `Corrupt`, `Io`, `NoSpace`.
    pub fn backup(&self, roots: &Arc<Roots>, to: &Arc<dyn Folder>, name: &str) -> Result<()> {
        let options = TreeOptions {
            reading: PageReading::Cached,
            budget: roots.store.budget.clone(),
        };
        let copy = TreeFile::create(to, name, options)?;
        let mut writer = copy.writer()?;
        for (table, record) in &roots.tables {
            let options = TableOptions { lz4: record.lz4 };
            let mut bulk = copy.bulk(*table, options)?;
            let mut cursor = roots.cursor(*table)?;
            let mut found = cursor.seek_first()?;
            while found {
                bulk.push(cursor.key(), cursor.value())?;
                found = cursor.next()?;
            }
            writer.create_table(*table, options)?;
            writer.install(*table, bulk.finish()?)?;
        }
        writer.commit(roots.sequence())?;
        Ok(())
    }
}
