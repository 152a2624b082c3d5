//! Builds a whole tree from ordered entries, concurrently with the writer and the readers.
//!
//! The pages are not reachable until a writer installs the subtree and commits. If it is dropped
//! before, they are free again; after a crash no superblock refers to them.

use std::sync::Arc;

use super::TableOptions;
use super::build::{Builder, Sizes, check_lengths};
use super::output::{Output, WrittenHook};
use super::record::TableRecord;
use super::space::Owner;
use super::store::Store;
use crate::engine::{TableId, TableStats};
use crate::error::{Result, StorageError};

/// Takes entries in ascending order. See the module's head.
pub struct BulkBuilder {
    out: Output,
    table: TableId,
    builder: Option<Builder>,
    record: TableRecord,
    last: Vec<u8>,
}

impl BulkBuilder {
    pub(super) fn new(
        store: &Arc<Store>,
        birth: u32,
        table: TableId,
        options: TableOptions,
    ) -> BulkBuilder {
        BulkBuilder {
            out: Output::new(store, birth),
            table,
            builder: None,
            record: TableRecord {
                lz4: options.lz4,
                ..TableRecord::default()
            },
            last: Vec::new(),
        }
    }

    /// Calls `hook` after about every megabyte written, with the number of bytes.
    pub fn on_written(&mut self, hook: WrittenHook) {
        self.out.hook = Some(hook);
    }

    /// Adds an entry. After an error the builder can only be dropped.
    /// Errors: `OutOfOrder` if the key is not greater than the one before, `TooLarge`, `NoSpace`,
    /// `Io`, `ReadOnly`.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_lengths(key, value)?;
        if self.record.entries > 0 && key <= &self.last[..] {
            return Err(StorageError::OutOfOrder {
                position: self.record.entries,
            });
        }
        let (table, lz4) = (self.table.0, self.record.lz4);
        let builder = self.builder.get_or_insert_with(|| {
            let mean = (key.len() + value.len()) as u64;
            Builder::new(table, lz4, Sizes::of_leaves(mean, lz4))
        });
        builder.entry(&mut self.out, key, value)?;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.record.entries += 1;
        self.record.key_bytes += key.len() as u64;
        self.record.value_bytes += value.len() as u64;
        Ok(())
    }

    /// Writes the pending entries. The pages are durable with the commit that installs them.
    pub fn finish(mut self) -> Result<Subtree> {
        if let Some(builder) = self.builder.take() {
            let (root, granules) = builder.finish(&mut self.out)?;
            self.record.root = root;
            self.record.granules = granules;
        }
        self.out.settle()?;
        let subtree = Subtree {
            store: self.out.store.clone(),
            owner: Some(self.out.owner),
            record: self.record,
        };
        self.out.keep();
        Ok(subtree)
    }
}

/// A tree that is not part of any roots yet. Dropping it frees its pages.
pub struct Subtree {
    store: Arc<Store>,
    owner: Option<Owner>,
    record: TableRecord,
}

impl Subtree {
    /// Entries and sizes of the table.
    pub fn stats(&self) -> TableStats {
        self.record.stats()
    }

    /// Transfers the pages to another owner.
    pub(super) fn hand_over(mut self, to: Owner) -> TableRecord {
        if let Some(owner) = self.owner.take() {
            self.store.space.lock().hand_over(owner, to);
        }
        self.record
    }
}

impl Drop for Subtree {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            self.store.space.lock().abandon(owner);
        }
    }
}
