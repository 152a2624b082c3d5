//! Roots that no superblock leads to: old ones with changes of their own, for a snapshot that is not to keep its
//! generations in memory.
//!
//! ```text
//!   commits     roots 7 ───── roots 8 ───── roots 9        what the file says
//!                  └── fork: 7 and what a snapshot has seen beyond it
//! ```
//!
//! A fork shares the pages of the roots it grew from, and owns those it has written. It may grow from a fork.
//! Nothing of it is synced, and after a crash its pages are free, for no superblock knows them. It grows beside the
//! writer.

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

/// Pages that a fork has written; dropped with the last roots that see them, they are free.
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
    /// Begins a fork of roots of this file, which may be old ones, or a fork.
    /// Errors: `ReadOnly`.
    pub fn fork(&self, roots: &Arc<Roots>) -> Result<Fork> {
        Ok(Fork {
            writer: TreeWriter::fork(self, roots)?,
        })
    }
}

impl Fork {
    /// What writes its pages.
    pub fn writer(&mut self) -> &mut TreeWriter {
        &mut self.writer
    }

    /// The roots, which say all up to `sequence`. Dropped, they give back their pages.
    /// Errors: those of writing; then nothing has happened.
    pub fn finish(mut self, sequence: u64) -> Result<Arc<Roots>> {
        self.writer.check()?;
        self.writer.out.settle()?;
        let TreeWriter {
            out,
            tables,
            roots: base,
            ..
        } = self.writer;
        let store = out.store.clone();
        let end = {
            let mut space = store.space.lock();
            space.pin(base.version);
            base.within.end.max(space.end())
        };
        // It is read as the newest roots are; those it grew from may still lie in a map that is to go.
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
