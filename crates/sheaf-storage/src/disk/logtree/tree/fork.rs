//! Forks: temporary roots based on committed ones, with additional changes. They let a snapshot
//! read from pages instead of keeping its generations in memory.
//!
//! ```text
//!   commits     roots 7 ───── roots 8 ───── roots 9        recorded in the file
//!                  └── fork: 7, and later changes that a snapshot sees
//! ```
//!
//! A fork shares the pages of the roots it is based on, and owns those it has written. It may be
//! based on another fork. Its pages are not synced, and are free after a crash, as no superblock
//! refers to them. Forks are written concurrently with the writer.

use std::sync::Arc;

use super::space::Owner;
use super::store::{Store, Within};
use super::{Roots, TreeFile, TreeWriter};
use crate::error::Result;

/// See the module's head.
///
/// Invariant: a fork loads no table, so its [`Roots::loads`] are those of its base.
pub struct Fork {
    writer: TreeWriter,
}

/// The pages that a fork has written; freed with the last roots that see them.
pub(super) struct ForkPages {
    store: Arc<Store>,
    owner: Owner,
}

impl Drop for ForkPages {
    fn drop(&mut self) {
        self.store.space.lock().abandon(self.owner);
    }
}

impl TreeFile {
    /// Begins a fork of roots of this file, which may be old ones, or those of another fork.
    /// Errors: `ReadOnly`.
    pub fn fork(&self, roots: &Arc<Roots>) -> Result<Fork> {
        Ok(Fork {
            writer: TreeWriter::fork(self, roots)?,
        })
    }
}

impl Fork {
    /// The writer of its pages.
    pub fn writer(&mut self) -> &mut TreeWriter {
        &mut self.writer
    }

    /// The roots, with everything up to `sequence`. Dropping them frees the fork's pages.
    /// Errors: those of writing; then nothing has changed.
    pub fn finish(mut self, sequence: u64) -> Result<Arc<Roots>> {
        self.writer.check()?;
        self.writer.out.settle()?;
        let TreeWriter {
            out,
            tables,
            roots: base,
            ..
        } = self.writer;
        debug_assert!(
            sequence >= base.sequence(),
            "a fork holds what its base holds"
        );
        let store = out.store.clone();
        let end = {
            let mut space = store.space.lock();
            space.pin(base.version);
            base.within.end.max(space.end())
        };
        // Read in the same way as the newest roots; the base may still use a map that will
        // be unmapped.
        let map = store.current_map(end);
        let own = ForkPages {
            store: store.clone(),
            owner: out.owner,
        };
        out.keep();
        let mut forks = base.forks.clone();
        forks.push(Arc::new(own));
        Ok(Arc::new(Roots {
            store,
            slot: base.slot,
            version: base.version,
            sequence,
            loads: base.loads,
            tables: tables.into_iter().collect(),
            directory: base.directory,
            free_map: base.free_map,
            within: Within { end, map },
            forks,
        }))
    }
}
