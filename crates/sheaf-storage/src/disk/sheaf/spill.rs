//! Old snapshots out of memory: what a snapshot needs of generations that are in the tree by now is written to pages of
//! its own.
//!
//! ```text
//!   snapshot at 41 ── view: generation 30..60 (in the tree since, held for it alone) ── roots at 30
//!        │ spilled
//!        └─────────── view: nothing in memory ────────────── a branch of the roots at 30, with 31..41
//! ```
//!
//! A snapshot keeps the generations of its view, though checkpoints have long brought them into the tree. A few are
//! no matter; a hundred taken at a hundred moments would keep a hundred generations. So when those that only
//! snapshots hold pass a share of the budget, the oldest snapshots get a view without generations, over a
//! branch of their roots. That costs disk space, at most one copy of the pages which they see and others do not, and it
//! goes with the snapshot.
//!
//! Invariant: both views say the same, so a snapshot does not change. A cursor goes over with its next move; until
//! then it keeps what it stands on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checkpoint::merge;
use super::memtable::Generation;
use super::{Shared, View};
use crate::error::Result;

impl Shared {
    /// Spills the oldest snapshots until the generations that only snapshots hold fit their share. A failure leaves
    /// them as they are: writers are slowed then, and told by the next checkpoint what is wrong.
    pub(super) fn spill(&self) {
        loop {
            self.retired.sweep();
            if self.retired.bytes() <= self.sizes.retired_max
                || self.scarce.load(Ordering::Relaxed)
                || *self.checkpointer.stop.lock()
            {
                return;
            }
            match self.spill_oldest() {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Spills the oldest snapshot that holds a retired generation, and all that see the same. Answers whether
    /// there was one.
    fn spill_oldest(&self) -> Result<bool> {
        let retired: HashSet<*const Generation> = self.retired.all();
        let candidates = self.snapshots.candidates(|view| {
            view.generations()
                .any(|generation| retired.contains(&Arc::as_ptr(generation)))
        });
        for candidate in &candidates {
            let view = &candidate.pinned.view;
            let generations: Vec<Arc<Generation>> = view.generations().cloned().collect();
            let mut branch = self.tree.branch(view.roots())?;
            merge(
                branch.writer(),
                &generations,
                candidate.visible,
                self.new_table,
            )?;
            let roots = branch.finish(candidate.visible)?;
            let nothing = Generation::new(0, self.budget.clone());
            let instead = Arc::new(View::new(Arc::new(nothing), Vec::new(), roots));
            let replaced = self.snapshots.replace(candidate, &instead);
            self.spilled.fetch_add(replaced as u64, Ordering::Relaxed);
            if replaced > 0 {
                return Ok(true);
            }
            // It was just being read, or is gone; the next one may do.
        }
        Ok(false)
    }
}
