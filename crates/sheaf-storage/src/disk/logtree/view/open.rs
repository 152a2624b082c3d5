//! The open snapshots: their number, their ages, and the view that each of them reads.
//!
//! ```text
//!   shard of some threads ── cached: the newest view, shared by this shard's snapshots
//!                        └─ slots: since when ─ the snapshot ──> Pinned ──> View
//!                                                      │  spilled
//!                                                      └────────> Pinned ──> View of pages only
//! ```
//!
//! Every snapshot enters and leaves this list, so it is sharded by thread. Snapshots of a shard
//! share one [`Pinned`]: taking a snapshot touches no counter that other shards touch.
//!
//! Invariant: the snapshot in a slot is alive: a snapshot leaves its slot, under the shard's lock,
//! before its memory is freed. While it waits for that lock, the holder of the lock may access it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::View;
use super::snapshot::{Hold, LogTreeSnapshot};
use crate::disk::logtree::memtable::thread_number;
use crate::folder::FolderLock;

const SHARDS: usize = 16;

/// A view that snapshots hold.
pub(in crate::disk::logtree) struct Pinned<R> {
    pub(in crate::disk::logtree) view: Arc<View<R>>,
}

/// See the module's head.
pub(in crate::disk::logtree) struct OpenSnapshots<R> {
    shards: [Arc<Mutex<Shard<R>>>; SHARDS],
}

/// The snapshots of some threads.
pub(super) struct Shard<R> {
    /// The newest view at the time when a snapshot was last taken.
    cached: Option<Arc<Pinned<R>>>,
    slots: Vec<Slot<R>>,
    free: Vec<usize>,
    /// The folder's lock after the engine is closed, kept until the last snapshot is dropped:
    /// another process would overwrite the files that it reads.
    lock: Option<Arc<FolderLock>>,
}

struct Slot<R> {
    /// On the clock of [`now`].
    taken: Duration,
    hold: Option<NonNull<Hold<R>>>,
}

// SAFETY: a slot points to data that may be shared between threads, as the compiler checks below.
// It is accessed under the shard's lock, and by the invariant it is alive then.
unsafe impl<R: Send + Sync> Send for Slot<R> {}

#[expect(dead_code, reason = "checked, not called")]
fn holds_are_shared<R: Send + Sync>() {
    fn shared<T: Send + Sync>() {}
    shared::<Hold<R>>();
}

impl<R> Default for OpenSnapshots<R> {
    fn default() -> Self {
        OpenSnapshots {
            shards: std::array::from_fn(|_| Arc::new(Mutex::new(Shard::default()))),
        }
    }
}

impl<R> Default for Shard<R> {
    fn default() -> Self {
        Shard {
            cached: None,
            slots: Vec::new(),
            free: Vec::new(),
            lock: None,
        }
    }
}

/// A cheap clock for ages: a resolution of milliseconds suffices, and it is read for every
/// snapshot.
fn now() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for the call; a clock that cannot be read leaves zeros.
    unsafe { libc::clock_gettime(CLOCK, &mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// A snapshot that may be spilled: its view and its sequence.
pub(in crate::disk::logtree) struct Candidate<R> {
    pub(in crate::disk::logtree) pinned: Arc<Pinned<R>>,
    pub(in crate::disk::logtree) visible: u64,
}

impl<R> OpenSnapshots<R> {
    /// The number of snapshots, and the age of the oldest.
    pub(in crate::disk::logtree) fn count_and_oldest(&self) -> (u64, Option<Duration>) {
        let (mut count, mut oldest) = (0, None::<Duration>);
        for shard in &self.shards {
            let shard = shard.lock();
            for slot in shard.slots.iter().filter(|slot| slot.hold.is_some()) {
                count += 1;
                oldest = Some(oldest.map_or(slot.taken, |oldest| oldest.min(slot.taken)));
            }
        }
        (count, oldest.map(|taken| now().saturating_sub(taken)))
    }

    /// Takes a snapshot of the newest view, at a sequence up to which the view holds everything.
    ///
    /// The view is loaded first: a sequence that is visible by then is in it. One that became
    /// visible later may be in a generation that the view lacks, so the view must still be the
    /// newest afterwards. The tree in the view holds nothing beyond what was visible before the
    /// view was made.
    pub(in crate::disk::logtree) fn take(
        &self,
        views: &ArcSwap<View<R>>,
        visible: impl Fn() -> u64,
    ) -> LogTreeSnapshot<R> {
        let own = &self.shards[thread_number() % SHARDS];
        let mut shard = own.lock();
        let (pinned, visible) = loop {
            let view = views.load();
            let visible = visible();
            if !Arc::ptr_eq(&view, &views.load()) {
                continue;
            }
            match &shard.cached {
                Some(cached) if Arc::ptr_eq(&cached.view, &view) => {
                    break (cached.clone(), visible);
                }
                _ => {
                    let view = arc_swap::Guard::into_inner(view);
                    let pinned = Arc::new(Pinned { view });
                    shard.cached = Some(pinned.clone());
                    break (pinned, visible);
                }
            }
        };
        Self::enter(own, &mut shard, pinned, visible)
    }

    /// A snapshot of a view. The view must hold all batches up to `visible`, and its tree none that
    /// is newer.
    #[cfg(all(test, not(explore)))]
    pub(super) fn take_of(&self, view: Arc<View<R>>, visible: u64) -> LogTreeSnapshot<R> {
        let own = &self.shards[thread_number() % SHARDS];
        Self::enter(own, &mut own.lock(), Arc::new(Pinned { view }), visible)
    }

    fn enter(
        own: &Arc<Mutex<Shard<R>>>,
        shard: &mut Shard<R>,
        pinned: Arc<Pinned<R>>,
        visible: u64,
    ) -> LogTreeSnapshot<R> {
        let at = shard.free.pop().unwrap_or(shard.slots.len());
        let hold = Arc::new(Hold::new(pinned, visible, own.clone(), at));
        let slot = Slot {
            taken: now(),
            hold: NonNull::new(Arc::as_ptr(&hold).cast_mut()),
        };
        match shard.slots.get_mut(at) {
            Some(free) => *free = slot,
            None => shard.slots.push(slot),
        }
        LogTreeSnapshot::new(hold)
    }

    /// Drops cached views. Called after a newer view has been published.
    pub(in crate::disk::logtree) fn forget(&self) {
        for shard in &self.shards {
            // Dropped without the lock: it may be the last reference to a view.
            let _cached = shard.lock().cached.take();
        }
    }

    /// Keeps the folder locked until the last snapshot is dropped: another process would overwrite
    /// the files that it reads.
    pub(in crate::disk::logtree) fn keep(&self, lock: FolderLock) {
        let lock = Arc::new(lock);
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.cached = None;
            if shard.free.len() < shard.slots.len() {
                shard.lock = Some(lock.clone());
            }
        }
    }

    /// The snapshots whose view is accepted by `chosen`, oldest first.
    pub(in crate::disk::logtree) fn candidates(
        &self,
        chosen: impl Fn(&View<R>) -> bool,
    ) -> Vec<Candidate<R>> {
        let mut candidates = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for slot in &shard.slots {
                // SAFETY: the slot contains it while the lock is held, so it is alive: a snapshot
                // leaves its slot before it is dropped. Another thread may be dropping it and
                // waiting for the lock; `Hold`'s `PhantomPinned` makes this sound.
                let Some(hold) = slot.hold.map(|hold| unsafe { hold.as_ref() }) else {
                    continue;
                };
                if let Some(pinned) = hold.pinned.try_read()
                    && chosen(&pinned.view)
                {
                    candidates.push(Candidate {
                        pinned: pinned.clone(),
                        visible: hold.visible,
                    });
                }
            }
        }
        candidates.sort_by_key(|candidate| candidate.visible);
        candidates
    }

    /// Makes all snapshots with the view and the sequence of `of` read `instead`, which must have
    /// the same contents. Cursors switch with their next move. Returns the number of snapshots;
    /// those in use are skipped.
    pub(in crate::disk::logtree) fn replace(
        &self,
        of: &Candidate<R>,
        instead: &Arc<View<R>>,
    ) -> usize {
        let mut replaced = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let pinned = Arc::new(Pinned {
                view: instead.clone(),
            });
            for slot in &shard.slots {
                // SAFETY: as in `candidates`.
                let Some(hold) = slot.hold.map(|hold| unsafe { hold.as_ref() }) else {
                    continue;
                };
                if hold.visible == of.visible
                    && let Some(mut held) = hold.pinned.try_write()
                    && Arc::ptr_eq(&held.view, &of.pinned.view)
                {
                    replaced.push(std::mem::replace(&mut *held, pinned.clone()));
                    hold.count_replacement();
                }
            }
        }
        replaced.len()
    }
}

impl<R> Shard<R> {
    /// Removes a snapshot that is being dropped from its slot.
    pub(super) fn leave(&mut self, at: usize) -> Option<Arc<FolderLock>> {
        debug_assert!(
            self.slots[at].hold.is_some(),
            "a snapshot leaves its slot once"
        );
        self.slots[at].hold = None;
        self.free.push(at);
        debug_assert!(self.free.len() <= self.slots.len());
        if self.free.len() == self.slots.len() {
            return self.lock.take();
        }
        None
    }
}
