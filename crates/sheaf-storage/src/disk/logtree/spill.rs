//! Old snapshots out of memory: what a snapshot needs of generations that are in the tree by now is written to pages of
//! its own.
//!
//! ```text
//!   snapshot at 41 ── view: generation 30..60 (in the tree since, held for snapshots alone) ── roots at 30
//!   snapshot at 50 ──┘
//!
//!   spilled:  roots at 30 ──> fork at 41: with 31..41 ──> fork at 50: with 42..50 as well
//! ```
//!
//! A snapshot keeps the generations of its view, though checkpoints have long brought them into the tree. A few are
//! no matter; a hundred taken at a hundred moments would keep a hundred generations. So when those that only
//! snapshots hold pass a share of the budget, the oldest snapshots get a view without generations, over a fork.
//!
//! A fork grows from the newest roots that are not beyond the snapshot: those of its view, of a later checkpoint, or
//! of the snapshot spilled before it. So all snapshots of a generation together write what it holds about once. What a
//! fork has written is kept by all that grew from it, so a line of forks is ended after some, and begun anew.
//! The pages cost disk space, and go with the last snapshot that sees them.
//!
//! Invariant: both views say the same, so a snapshot does not change. A cursor goes over with its next move; until
//! then it keeps what it stands on.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::checkpoint::merge;
use super::memtable::Generation;
use super::view::Candidate;
use super::{Roots, Shared, View};
use crate::error::{Result, StorageError};

/// How many forks may lie one upon the other.
const DEPTH_MAX: usize = 16;

/// The roots from which forks may grow, as long as somebody has them.
#[derive(Default)]
pub(super) struct Bases {
    known: Mutex<Vec<Weak<Roots>>>,
    /// Held by who spills: one at a time.
    one: Mutex<()>,
}

impl Bases {
    /// Enters roots that a checkpoint or a spill has made.
    pub(super) fn enter(&self, roots: &Arc<Roots>) {
        let mut bases = self.known.lock();
        bases.retain(|base| base.strong_count() > 0);
        bases.push(Arc::downgrade(roots));
    }

    /// The newest that hold what the snapshot sees, or less.
    fn newest_for(&self, candidate: &Candidate<Roots>) -> Arc<Roots> {
        let own = candidate.pinned.view.roots();
        let bases = self.known.lock();
        let fitting = || {
            let living = bases.iter().filter_map(Weak::upgrade);
            let own_and_later = std::iter::once(own.clone()).chain(living);
            own_and_later.filter(|base| {
                // A table that was loaded is in roots without a sequence of its own.
                base.loads() == own.loads()
                    && (own.sequence()..=candidate.visible).contains(&base.sequence())
            })
        };
        let newest = |base: &Arc<Roots>| (base.sequence(), std::cmp::Reverse(base.depth()));
        let base = fitting().max_by_key(newest);
        let base = base.filter(|base| base.depth() < DEPTH_MAX);
        let flat = || {
            fitting()
                .filter(|base| base.depth() == 0)
                .max_by_key(newest)
        };
        base.or_else(flat).unwrap_or_else(|| own.clone())
    }
}

impl Shared {
    /// Spills the oldest snapshots until the generations that only snapshots hold fit their share. A failure leaves
    /// them as they are: writers are slowed then, and told by the next checkpoint what is wrong.
    pub(super) fn spill(&self) {
        let Some(_one) = self.bases.one.try_lock() else {
            return;
        };
        self.leave_old_map();
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
            let base = self.bases.newest_for(candidate);
            let roots = match base.sequence() < candidate.visible {
                true => self.fork_for(candidate, &base),
                false => Ok(base),
            };
            // What generations do always applies to what lies below them; else one snapshot would keep all in memory.
            debug_assert!(
                !matches!(
                    roots,
                    Err(StorageError::NoSuchTable(_) | StorageError::TableExists(_))
                ),
                "a fork at {}",
                candidate.visible
            );
            let roots = roots?;
            let nothing = Generation::new(0, self.budget.clone());
            let instead = View::new(Arc::new(nothing), Vec::new(), roots.clone());
            let replaced = self.snapshots.replace(candidate, &Arc::new(instead));
            self.spilled.fetch_add(replaced as u64, Ordering::Relaxed);
            if replaced > 0 {
                self.bases.enter(&roots);
                return Ok(true);
            }
            // It was just being read, or is gone; the next one may do.
        }
        Ok(false)
    }

    /// What the snapshot sees, out of `base` and the generations of its view.
    fn fork_for(&self, candidate: &Candidate<Roots>, base: &Arc<Roots>) -> Result<Arc<Roots>> {
        let generations: Vec<Arc<Generation>> =
            candidate.pinned.view.generations().cloned().collect();
        let mut fork = self.tree.fork(base)?;
        merge(
            fork.writer(),
            &generations,
            candidate.visible,
            self.new_table,
        )?;
        fork.finish(candidate.visible)
    }

    /// Has snapshots read through the cache once the newest roots do: what lies in a map is counted, and cannot give
    /// way. A failure leaves them as they are.
    fn leave_old_map(&self) {
        let old = |view: &View<Roots>| view.roots().is_map_outdated();
        for candidate in self.snapshots.candidates(old) {
            let view = &candidate.pinned.view;
            let roots = view.roots();
            let again = self.tree.fork(roots);
            let Ok(again) = again.and_then(|fork| fork.finish(roots.sequence())) else {
                return;
            };
            let instead = view.on(again);
            self.snapshots.replace(&candidate, &Arc::new(instead));
        }
    }
}
