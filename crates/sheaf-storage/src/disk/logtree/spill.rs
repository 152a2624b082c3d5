//! Spilling: moves the data of checkpointed generations that old snapshots need out of memory, to
//! temporary pages.
//!
//! ```text
//!   snapshot at 41 ── view: generation 30..60 (checkpointed, held for snapshots only) ── roots at 30
//!   snapshot at 50 ──┘
//!
//!   spilled:  roots at 30 ──> fork at 41, adds 31..41 ──> fork at 50, adds 42..50
//! ```
//!
//! A snapshot keeps the generations of its view, even after checkpoints have merged them into the
//! tree. A few such snapshots are cheap; a hundred, taken at different times, would pin a hundred
//! generations. When the generations that only snapshots hold exceed their share of the budget, the
//! oldest snapshots therefore get a view without generations, on a fork of the tree.
//!
//! A fork is based on the newest roots that are not beyond the snapshot: those of its view, of a
//! later checkpoint, or of the snapshot spilled before it. Together, all snapshots of a generation
//! therefore write its contents about once. Pages that a fork has written are pinned by every fork
//! based on it, so a chain of forks is limited in length and then restarted. The pages take disk
//! space, and are freed with the last snapshot that sees them.
//!
//! Invariant: both views have the same contents, so the snapshot does not change. A cursor switches
//! with its next move; until then it pins its current page.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::checkpoint::merge;
use super::memtable::Generation;
use super::view::Candidate;
use super::{Roots, Shared, View};
use crate::error::{Result, StorageError};

/// Maximum length of a chain of forks.
const DEPTH_MAX: usize = 16;

/// The roots on which forks may be based, as long as they are in use elsewhere.
#[derive(Default)]
pub(super) struct Bases {
    known: Mutex<Vec<Weak<Roots>>>,
    /// Serialises spilling.
    one: Mutex<()>,
}

impl Bases {
    /// Adds roots that a checkpoint or a spill has made.
    pub(super) fn enter(&self, roots: &Arc<Roots>) {
        let mut bases = self.known.lock();
        bases.retain(|base| base.strong_count() > 0);
        bases.push(Arc::downgrade(roots));
    }

    /// The newest roots that are not beyond the snapshot.
    fn newest_for(&self, candidate: &Candidate<Roots>) -> Arc<Roots> {
        let own = candidate.pinned.view.roots();
        let bases = self.known.lock();
        let fitting = || {
            let living = bases.iter().filter_map(Weak::upgrade);
            let own_and_later = std::iter::once(own.clone()).chain(living);
            own_and_later.filter(|base| {
                // A bulk-loaded table is in the roots, but has no sequence.
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
    /// Spills the oldest snapshots until the generations that only snapshots hold fit their share.
    /// A failure leaves the snapshots as they are: writers are then slowed down, and the next
    /// checkpoint reports the cause.
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

    /// Spills the oldest snapshot that holds a retired generation, and all snapshots with the same
    /// contents. Returns whether there was one.
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
            // A generation's changes always apply on top of what is below it; otherwise one
            // snapshot would pin everything.
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
            // The snapshot was in use, or has been dropped; try the next one.
        }
        Ok(false)
    }

    /// The roots with the contents of the snapshot, built from `base` and the generations of its
    /// view.
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

    /// Makes snapshots read through the cache once the newest roots do: mapped pages are charged
    /// and cannot be evicted. A failure leaves the snapshots as they are.
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
