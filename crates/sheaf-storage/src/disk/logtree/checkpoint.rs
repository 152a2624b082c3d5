//! The checkpointer: merges full generations into the tree, and trims the log that held them.
//!
//! ```text
//!   full or old ──> freeze ──> wait until fully inserted ──> log synced ──> merge into the tree
//!                                                                               │ all that wait,
//!       log trimmed <── view without them, on the new roots <── commit ─────────┘ in one pass
//! ```
//!
//! Invariants:
//!
//! - The tree contains exactly the batches up to its sequence. Replay begins after it, so a
//!   checkpoint that a crash interrupted is simply repeated.
//! - The log is trimmed after the roots are durable, never before.
//! - A checkpoint that fails for lack of space, or because a page could not be read, has changed
//!   nothing, and is retried. After any other failure of the tree's file the engine is read-only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::budget::MemoryKind;
use super::memtable::{self, Generation, TableOutcome};
use super::tree::{Changes, Subtree, TableOptions, TreeWriter};
use super::{Roots, Shared, View};
use crate::batch::WriteBatch;
use crate::engine::TableId;
use crate::error::{Result, StorageError};

/// Delay before a failed checkpoint is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which the checkpointer checks for work without a request.
const TICK: Duration = Duration::from_millis(500);
/// Interval at which a stalled writer checks again.
const POLL: Duration = Duration::from_millis(5);
/// Maximum pause after a piece of a paced checkpoint.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Minimum free space within the file that is worth reclaiming when the disk is nearly full.
const RECLAIM_BYTES_MIN: u64 = 1 << 20;
/// Maximum interval between attempts to reclaim space that gained nothing.
const RECLAIM_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Requests to the checkpointer, and its statistics.
#[derive(Default)]
pub(super) struct Checkpointer {
    /// Serialises checkpoints.
    one: Mutex<()>,
    pub(super) stop: Mutex<bool>,
    called: Condvar,
    /// Whether a thread is creating the next generation.
    freezing: AtomicBool,
    /// Bytes of frozen generations.
    pub(super) debt: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) micros: AtomicU64,
    /// Number of rounds in which it has done all pending work.
    rounds: AtomicU64,
    /// Why the last checkpoint failed; `None` once one has succeeded.
    pub(super) failure: Mutex<Option<StorageError>>,
    failing: AtomicBool,
}

impl Checkpointer {
    /// Why the last checkpoint failed; `None` once one has succeeded.
    pub(super) fn failure(&self) -> Option<String> {
        match self.failing.load(Ordering::Acquire) {
            true => self.failure.lock().as_ref().map(ToString::to_string),
            false => None,
        }
    }

    pub(super) fn stop(&self) {
        *self.stop.lock() = true;
        self.called.notify_one();
    }

    fn call(&self) {
        drop(self.stop.lock());
        self.called.notify_one();
    }
}

/// When to reclaim space for a nearly full disk again.
#[derive(Default)]
struct ReclaimTimer {
    next: Option<Instant>,
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// No caller waits: pauses between pieces if the load of writers allows it.
    Paced,
    /// A caller waits for the checkpoint: no pauses.
    Immediate,
}

/// Additional work for a checkpoint's commit.
pub(super) enum Extra {
    Nothing,
    /// Installs a table that was bulk-loaded.
    Loaded(TableId, Subtree),
    /// Moves the end of the file into free space, as far as possible.
    Compaction,
}

impl Shared {
    /// Freezes the active generation if it is full and still the active one.
    pub(super) fn freeze_if_full(&self, view: &Arc<View<Roots>>) {
        if view.active().bytes() < self.sizes.full_at(view.frozen().len()) {
            return;
        }
        if !self.checkpointer.freezing.swap(true, Ordering::AcqRel) {
            self.freeze(Some(view));
            self.checkpointer.freezing.store(false, Ordering::Release);
            self.checkpointer.call();
        }
    }

    /// Freezes the active generation unless it is empty. With `expected`, only if it is still the
    /// active generation of that view.
    fn freeze(&self, expected: Option<&Arc<View<Roots>>>) {
        let fresh = Arc::new(Generation::new(
            self.sizes.generation_bytes,
            self.budget.clone(),
        ));
        let mut head = self.log.head();
        let last = head.last();
        debug_assert!(
            self.sequencer.visible() <= last,
            "only sequences that were assigned become visible"
        );
        let state = &mut head.state;
        let is_expected =
            expected.is_none_or(|view| Arc::ptr_eq(view.active(), state.view.active()));
        // A generation that has been assigned a sequence may still be empty.
        if is_expected && last > state.frozen_to {
            let debt = state.view.active().bytes();
            self.checkpointer.debt.fetch_add(debt, Ordering::Relaxed);
            state.view = Arc::new(state.view.rotated(fresh));
            state.frozen_to = last;
            self.views.store(state.view.clone());
            drop(head);
            self.snapshots.forget();
        }
    }

    /// Merges everything applied so far into the tree.
    pub(super) fn checkpoint_now(self: &Arc<Self>) -> Result<()> {
        self.checkpoint(Urgency::Immediate, true, Extra::Nothing)
    }

    /// Merges the frozen generations into the tree in one pass, with additional work in the same
    /// commit.
    pub(super) fn checkpoint(
        self: &Arc<Self>,
        urgency: Urgency,
        with_active: bool,
        extra: Extra,
    ) -> Result<()> {
        let _one = self.checkpointer.one.lock();
        self.log.check()?;
        if with_active {
            self.freeze(None);
        }
        let (view, up_to) = {
            let head = self.log.head();
            (head.state.view.clone(), head.state.frozen_to)
        };
        let outcome = self.flush_into_tree(&view, up_to, urgency, extra);
        if let Err(error) = &outcome
            && (!is_passing(error) || self.tree.check_writable().is_err())
        {
            self.log.fail(error);
        }
        // A table that has been dropped fails only its own load.
        let failed = |error: &&StorageError| !matches!(error, StorageError::NoSuchTable(_));
        let failure = outcome.as_ref().err().filter(failed).cloned();
        self.checkpointer
            .failing
            .store(failure.is_some(), Ordering::Release);
        *self.checkpointer.failure.lock() = failure;
        outcome
    }

    fn flush_into_tree(
        self: &Arc<Self>,
        view: &Arc<View<Roots>>,
        up_to: u64,
        urgency: Urgency,
        extra: Extra,
    ) -> Result<()> {
        let frozen = view.frozen();
        // Everything in the tree must be in the log as well, so that replay finds no gap.
        self.sequencer.wait_visible(up_to);
        self.log.sync_to(up_to)?;
        if frozen.is_empty() && matches!(extra, Extra::Nothing) {
            return Ok(());
        }
        let start = Instant::now();
        let bytes: u64 = frozen.iter().map(|generation| generation.bytes()).sum();
        let mut pacer = Pacer::new(self.clone(), urgency);
        let mut writer = self.tree.writer()?;
        debug_assert!(writer.sequence() <= up_to, "the tree's sequence only grows");
        debug_assert!(self.log.durable() >= up_to, "the log is ahead of the tree");
        writer.on_written(Box::new(move |_| pacer.pause_after_piece()));
        merge(&mut writer, frozen, up_to, self.new_table)?;
        match extra {
            Extra::Nothing => {}
            Extra::Loaded(table, subtree) => writer.install(table, subtree)?,
            Extra::Compaction => writer.compact(),
        }
        let roots = writer.commit(up_to)?;
        self.bases.enter(&roots);
        {
            let mut head = self.log.head();
            let state = &mut head.state;
            debug_assert!(
                up_to <= state.frozen_to,
                "only frozen generations are merged"
            );
            debug_assert!(
                state.view.frozen().len() >= frozen.len(),
                "only a checkpoint removes generations from the view"
            );
            state.view = Arc::new(state.view.checkpointed(roots, frozen.len()));
            self.views.store(state.view.clone());
            let left = state
                .view
                .frozen()
                .iter()
                .map(|generation| generation.bytes());
            self.checkpointer.debt.store(left.sum(), Ordering::Relaxed);
        }
        self.snapshots.forget();
        let took = start.elapsed();
        if bytes > self.sizes.generation_bytes / 8 {
            self.throttle.drained(bytes, took);
        }
        self.checkpointer.done.fetch_add(1, Ordering::Relaxed);
        self.checkpointer
            .micros
            .fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        for generation in frozen {
            self.retired.add(generation.clone());
        }
        self.log.trim(up_to);
        Ok(())
    }

    /// The checkpointer's thread.
    pub(super) fn checkpoint_loop(self: &Arc<Self>, interval: Duration) {
        let mut last = Instant::now();
        let mut timer = ReclaimTimer::default();
        loop {
            {
                let mut stop = self.checkpointer.stop.lock();
                if !*stop && self.views.load().frozen().is_empty() {
                    self.checkpointer.called.wait_for(&mut stop, TICK);
                }
                if *stop {
                    return;
                }
            }
            self.retired.sweep();
            self.reclaim_space(&mut timer);
            let view = self.views.load_full();
            if view.frozen().is_empty() && view.active().is_empty() {
                last = Instant::now();
            }
            let old = last.elapsed() >= interval;
            let is_due = old || !view.frozen().is_empty();
            drop(view);
            if is_due && self.log.check().is_err() {
                // The engine is read-only; `close` ends the thread.
                self.sleep_unless_stopped(RETRY);
                continue;
            }
            if is_due {
                last = Instant::now();
                if self
                    .checkpoint(Urgency::Paced, old, Extra::Nothing)
                    .is_err()
                {
                    self.sleep_unless_stopped(RETRY);
                }
            }
            self.spill();
            self.checkpointer.rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// While less disk space than the reserve is free, returns free space within the file to the
    /// file system. Writes are rejected meanwhile, so there is no ordinary checkpoint that would do
    /// this.
    fn reclaim_space(self: &Arc<Self>, timer: &mut ReclaimTimer) {
        let due = timer.next.is_none_or(|next| Instant::now() >= next);
        if !due || !self.scarce.load(Ordering::Relaxed) || self.log.check().is_err() {
            return;
        }
        let before = self.tree.stats();
        if before.free_bytes < RECLAIM_BYTES_MIN {
            return;
        }
        // A failure is reported by the next checkpoint.
        let _ = self.checkpoint(Urgency::Paced, false, Extra::Compaction);
        timer.pause = match self.tree.stats().file_bytes < before.file_bytes {
            true => TICK,
            false => (timer.pause * 2).clamp(TICK, RECLAIM_PAUSE_MAX),
        };
        timer.next = Some(Instant::now() + timer.pause);
        self.refresh_free_space();
    }

    fn sleep_unless_stopped(&self, time: Duration) {
        let mut stop = self.checkpointer.stop.lock();
        if !*stop {
            self.checkpointer.called.wait_for(&mut stop, time);
        }
    }

    /// How strongly to slow down a writer, of whose batch `own` bytes are charged already: not at
    /// all below 0, strongly from 1 on.
    pub(super) fn pressure(&self, own: u64) -> f64 {
        let debt = self.debt(own);
        let sizes = &self.sizes;
        debug_assert!(sizes.debt_soft < sizes.debt_hard && sizes.debt_hard <= sizes.debt_max);
        let room = sizes.debt_hard - sizes.debt_soft;
        let by_debt = debt.saturating_sub(sizes.debt_soft) as f64 / room as f64;
        // Old snapshots may pin what a checkpoint cannot free: it slows writers down, and does not
        // stop them.
        let excess = self.excess(debt, 0);
        let by_memory = (excess as f64 / (sizes.debt_hard as f64 / 4.0)).min(0.9);
        by_debt.max(by_memory)
    }

    /// Bytes in use beyond the budget, or beyond the share for writes with `coming` more bytes, as
    /// long as checkpoints or spills can free some.
    fn excess(&self, debt: u64, coming: u64) -> u64 {
        let written = [
            MemoryKind::Generations,
            MemoryKind::Log,
            MemoryKind::Batches,
        ];
        let written: u64 = written.map(|kind| self.budget.used_for(kind)).iter().sum();
        let written = written + coming;
        let excess = self.budget.excess();
        match excess.max(written.saturating_sub(self.sizes.written_max)) {
            0 => 0,
            excess if debt + self.retired.bytes() > self.sizes.generation_bytes => excess,
            // Only readers hold the excess memory.
            _ => 0,
        }
    }

    /// Bytes that checkpoints still have to merge, including large batches of others in flight.
    fn debt(&self, own: u64) -> u64 {
        let coming = self.budget.used_for(MemoryKind::Batches);
        self.checkpointer.debt.load(Ordering::Relaxed)
            + self.views.load().active().bytes()
            + coming.saturating_sub(own)
    }

    /// Slows a writer down in proportion to the debt. Errors: the error of the failing checkpoints,
    /// once the debt has reached its maximum.
    pub(super) fn slow_down(&self, batch: &WriteBatch, own: u64) -> Result<()> {
        let pressure = self.pressure(own);
        if pressure <= 0.0 {
            return match own {
                0 => Ok(()),
                _ => self.wait_for_memory(own),
            };
        }
        let bytes = batch.bytes() + 64 * batch.operations();
        self.throttle.slow_down(bytes, pressure);
        let mut waited = 0;
        while self.pressure(own) >= 1.0 {
            if self.checkpointer.failing.load(Ordering::Acquire)
                && let Some(error) = &*self.checkpointer.failure.lock()
            {
                return Err(error.clone());
            }
            self.log.check()?;
            if self.log.head().state.closed {
                return Err(StorageError::Closed);
            }
            // At the limit no batch is admitted; below it, each one eventually is.
            if waited >= 10 && self.debt(own) < self.sizes.debt_max {
                break;
            }
            waited += 1;
            self.checkpointer.call();
            self.throttle.sleep(POLL);
        }
        self.wait_for_memory(own)
    }

    /// Waits while much more than the budget is in use and checkpoints or spills free some of it.
    /// Does not wait for memory that they cannot free: a cursor in use pins its page.
    fn wait_for_memory(&self, own: u64) -> Result<()> {
        let given_back = || {
            self.checkpointer.done.load(Ordering::Relaxed) + self.spilled.load(Ordering::Relaxed)
        };
        let rounds = || self.checkpointer.rounds.load(Ordering::Relaxed);
        // The batch is charged already, and its bytes will be charged again in a generation.
        let is_crowded = || self.excess(self.debt(own), own) > self.sizes.excess_max;
        while is_crowded() {
            let before = given_back();
            // The round in progress may have checked already.
            let whole = rounds() + 2;
            while rounds() < whole && is_crowded() {
                self.check_open()?;
                self.log.check()?;
                if self.checkpointer.failing.load(Ordering::Acquire) {
                    return Ok(());
                }
                self.checkpointer.call();
                self.throttle.sleep(POLL);
            }
            if given_back() == before {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Whether the engine continues after a checkpoint failed with this error. `Io` is from a read:
/// after a failed write or sync the tree refuses all further ones.
fn is_passing(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::NoSpace { .. }
            | StorageError::Io { .. }
            | StorageError::NoSuchTable(_)
            | StorageError::Closed
            | StorageError::ReadOnly { .. }
    )
}

/// Writes the changes of the generations (newest first) that the tree does not hold, up to a
/// sequence, into the tree.
pub(super) fn merge(
    writer: &mut TreeWriter,
    generations: &[Arc<Generation>],
    up_to: u64,
    new_table: TableOptions,
) -> Result<()> {
    for mut changes in memtable::changes(generations, writer.sequence(), up_to) {
        let table = changes.table;
        match changes.outcome {
            TableOutcome::Kept => {}
            TableOutcome::Dropped | TableOutcome::Fresh => {
                if writer.table(table).is_some() {
                    writer.drop_table(table)?;
                }
                if changes.outcome == TableOutcome::Dropped {
                    continue;
                }
                writer.create_table(table, new_table)?;
            }
        }
        if changes.current().is_none() {
            // These changes predate the tree's copy of the table, or the tree has since dropped it.
            continue;
        }
        writer.apply(table, &mut changes)?;
    }
    Ok(())
}

/// Pauses between the pieces of a checkpoint; the pauses are shorter if the load of writers is
/// higher.
struct Pacer {
    shared: Arc<Shared>,
    urgency: Urgency,
    since: Instant,
}

impl Pacer {
    fn new(shared: Arc<Shared>, urgency: Urgency) -> Pacer {
        let since = Instant::now();
        Pacer {
            shared,
            urgency,
            since,
        }
    }

    /// Without pressure, pauses as long as the piece took, so that half of the time of the disk and
    /// of a processor stays available.
    fn pause_after_piece(&mut self) {
        if self.urgency == Urgency::Paced && !*self.shared.checkpointer.stop.lock() {
            let debt = self.shared.checkpointer.debt.load(Ordering::Relaxed);
            let active = self.shared.views.load().active().bytes();
            let fullness = (debt + active) as f64 / self.shared.sizes.debt_soft as f64;
            let share = match self.shared.budget.excess() {
                0 => (1.0 - fullness).max(0.0),
                _ => 0.0,
            };
            let pause = self.since.elapsed().mul_f64(share).min(PAUSE_MAX);
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
        self.since = Instant::now();
    }
}
