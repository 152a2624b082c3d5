//! Bulk loads: writes sorted entries directly to pages, concurrently with other writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checkpoint::{Extra, Urgency};
use super::{Shared, no_reserve};
use crate::engine::TableId;
use crate::error::Result;

/// Number of entries after which the disk's free space is checked.
const LOOK: u64 = 1024;

impl Shared {
    /// See [`crate::StorageEngine::bulk_load`]; the caller has checked that the table is empty. A
    /// checkpoint installs the pages as the table. Until then they are not reachable, and after any
    /// error they are free.
    pub(super) fn bulk_load(
        self: &Arc<Self>,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        self.log.check()?;
        let mut builder = self.tree.bulk(table, self.new_table)?;
        let mut count = 0;
        for entry in entries {
            let (key, value) = entry?;
            if count % LOOK == 0 {
                self.refresh_free_space();
                if self.scarce.load(Ordering::Relaxed) {
                    return Err(no_reserve());
                }
            }
            builder.push(&key, &value)?;
            count += 1;
        }
        let loaded = builder.finish()?;
        self.checkpoint(Urgency::Immediate, true, Extra::Loaded(table, loaded))?;
        Ok(count)
    }
}
