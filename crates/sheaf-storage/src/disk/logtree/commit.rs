//! The commit pipeline: a batch gets its sequence in the log, is inserted into the memtable, and
//! becomes visible in order.
//!
//! ```text
//!   encode, checksum      no lock
//!   sequence, log buffer  the log's lock: tables checked, the view chosen, one copy of the bytes
//!   insert                no lock, many concurrently  3 ─────┐
//!   visible               in order of sequences       4 ──┐  ├ 3, then 4 and 5, become visible
//!   sync                  if requested; shared        5 ──┘  │ when 3 is inserted
//! ```
//!
//! Invariants:
//!
//! - When a sequence is visible, every batch up to it is completely in the memtable.
//! - A batch is inserted into the generation that was active when it got its sequence: a generation
//!   is frozen under the log's lock, so its sequences end where those of the next one begin.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::budget::{Charge, MemoryKind};
use super::log::{BATCH_MAX, Encoded, LARGE};
use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence};
use super::tree::{KEY_MAX, VALUE_MAX};
use super::view::LogTreeSnapshot;
use super::{Roots, Shared, View};
use crate::batch::{KeyWrite, WriteBatch};
use crate::engine::{CommitSeq, TableId};
use crate::error::{Result, StorageError};

/// The state that changes with every sequence, guarded by the log's lock.
pub(super) struct PipelineState {
    /// The newest view; the next batch is inserted into its active generation.
    pub(super) view: Arc<View<Roots>>,
    /// The last sequence of the newest frozen generation, or the tree's sequence.
    pub(super) frozen_to: u64,
    /// The tables that exist after the last sequence.
    pub(super) tables: HashSet<TableId>,
    pub(super) closed: bool,
}

/// The tree's directory of tables, which is not available to callers.
const DIRECTORY: TableId = TableId(u64::MAX);

thread_local! {
    /// Memory in which this thread encodes its next batch.
    static MEMORY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Maximum memory that a thread keeps for its next batch.
const MEMORY_MAX: usize = 64 << 10;

impl Shared {
    /// Applies a batch that is not empty; it is visible when this returns. Also returns the bytes
    /// that its record takes in the log.
    pub(super) fn commit(&self, batch: &WriteBatch) -> Result<(CommitSeq, u64)> {
        check_lengths(batch)?;
        if cfg!(debug_assertions) {
            self.check_bases(batch);
        }
        self.refuse_without_space(batch)?;
        let mut charge = self.admit(batch)?;
        self.slow_down(batch, charge.as_ref().map_or(0, Charge::bytes))?;
        let memory = MEMORY.with_borrow_mut(mem::take);
        let Some(mut encoded) = Encoded::new(batch, memory) else {
            return Err(StorageError::TooLarge {
                bytes: batch.bytes(),
                limit: BATCH_MAX,
            });
        };
        let (logged, deltas) = (encoded.stride(), encoded.deltas);
        if let Some(charge) = &mut charge {
            charge.set(encoded.stride());
        }
        encoded.charge = charge;
        let begun = self.begin(batch, &mut encoded);
        let mut memory = encoded.into_memory();
        if memory.capacity() <= MEMORY_MAX {
            memory.clear();
            MEMORY.set(memory);
        }
        let (seq, view, crowded) = begun?;
        // A partially inserted batch cannot be undone, and no later batch may become visible after
        // it.
        let whole = AbortUnlessWhole;
        view.insert(seq, batch);
        mem::forget(whole);
        self.sequencer.publish(seq);
        self.counters.count(batch, deltas);
        if crowded {
            self.flusher.write_soon();
        } else {
            self.flusher.wake_if_idle();
        }
        self.freeze_if_full(&view);
        self.sequencer.wait_visible(seq);
        debug_assert!(self.log.durable() <= self.log.head().last());
        Ok((CommitSeq(seq), logged))
    }

    /// Checks that the values which a batch claims to replace are the current ones: with a false
    /// base the log could not be replayed.
    fn check_bases(&self, batch: &WriteBatch) {
        let (view, visible) = self.newest();
        for (table, writes) in batch.tables() {
            for (key, change) in writes.keys() {
                if let Some(base) = &change.base
                    && writes.keeps(key)
                    && let Ok(found) = view.get(table, key, visible)
                {
                    let what = "a false base for key";
                    assert_eq!(
                        found.as_ref(),
                        Some(base),
                        "{what} {key:?} of table {table}"
                    );
                }
            }
        }
    }

    /// Charges the memory that a large batch takes until it is written to the log. If too many are
    /// in flight, waits for them.
    fn admit(&self, batch: &WriteBatch) -> Result<Option<Charge>> {
        let bytes = batch.bytes();
        if bytes < LARGE as u64 {
            return Ok(None);
        }
        let kind = MemoryKind::Batches;
        while !self
            .budget
            .charge_up_to(kind, bytes, self.sizes.batches_max)
        {
            self.check_open()?;
            self.log.write()?;
            // Other threads are encoding their batches.
            self.throttle.sleep(Duration::from_millis(1));
        }
        Ok(Some(Charge::taken(&self.budget, kind, bytes)))
    }

    /// Assigns the batch its sequence and its place in the log.
    fn begin(
        &self,
        batch: &WriteBatch,
        encoded: &mut Encoded,
    ) -> Result<(u64, Arc<View<Roots>>, bool)> {
        loop {
            let mut appender = self.log.appender(encoded.stride())?;
            let seq = appender.seq();
            if seq - self.sequencer.visible() >= Sequencer::IN_FLIGHT_MAX {
                drop(appender);
                thread::yield_now();
                continue;
            }
            let state = appender.state();
            debug_assert!(
                seq > state.frozen_to,
                "the active generation takes only sequences after the frozen ones"
            );
            if state.closed {
                return Err(StorageError::Closed);
            }
            batch.check(&mut |table| state.tables.contains(&table))?;
            if batch.table(DIRECTORY).is_some() {
                return Err(StorageError::TableExists(DIRECTORY));
            }
            for (table, writes) in batch.tables() {
                if writes.fate().exists_after() {
                    state.tables.insert(table);
                } else {
                    state.tables.remove(&table);
                }
            }
            let view = state.view.clone();
            let crowded = appender.append(encoded);
            return Ok((seq, view, crowded));
        }
    }

    /// A snapshot of what is visible now.
    pub(super) fn snapshot(&self) -> LogTreeSnapshot<Roots> {
        self.snapshots
            .take(&self.views, || self.sequencer.visible())
    }

    /// The newest view, and a sequence up to which it holds everything; see
    /// [`OpenSnapshots::take`].
    ///
    /// [`OpenSnapshots::take`]: super::view::OpenSnapshots::take
    pub(super) fn newest(&self) -> (Arc<View<Roots>>, u64) {
        loop {
            let view = self.views.load_full();
            let visible = self.sequencer.visible();
            if Arc::ptr_eq(&view, &self.views.load()) {
                debug_assert!(
                    view.roots().sequence() <= visible,
                    "the tree holds only what is visible"
                );
                return (view, visible);
            }
        }
    }
}

fn check_lengths(batch: &WriteBatch) -> Result<()> {
    if batch.bytes() <= KEY_MAX as u64 {
        return Ok(());
    }
    for (_, writes) in batch.tables() {
        for (key, change) in writes.keys() {
            let value_len = match &change.write {
                KeyWrite::Put(value) => value.len(),
                KeyWrite::Delete => 0,
            };
            for (len, limit) in [(key.len(), KEY_MAX), (value_len, VALUE_MAX)] {
                if len > limit {
                    return Err(StorageError::TooLarge {
                        bytes: len as u64,
                        limit: limit as u64,
                    });
                }
            }
        }
    }
    Ok(())
}

/// Aborts the process on drop.
struct AbortUnlessWhole;

impl Drop for AbortUnlessWhole {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Iterations of a busy wait before the thread sleeps.
const ROUNDS: u32 = if cfg!(explore) { 0 } else { 64 };

/// Tracks which sequences are inserted, and up to which all are.
///
/// ```text
///   slots, a ring     | 5 | 6 | . | 8 | ...      5, 6 and 8 are inserted; 7 is not
///   visible             4 ──> 6                  each publisher advances it as far as possible
/// ```
pub(super) struct Sequencer {
    visible: AtomicU64,
    slots: Box<[AtomicU64]>,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    moved: Condvar,
}

impl Sequencer {
    /// Maximum number of sequences that are begun and not yet visible.
    const IN_FLIGHT_MAX: u64 = if cfg!(explore) { 4 } else { 4096 };

    pub(super) fn new(visible: u64) -> Sequencer {
        Sequencer {
            visible: AtomicU64::new(visible),
            slots: (0..Self::IN_FLIGHT_MAX)
                .map(|_| AtomicU64::new(0))
                .collect(),
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            moved: Condvar::new(),
        }
    }

    /// The sequence up to which everything is visible.
    pub(super) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    fn slot(&self, seq: u64) -> &AtomicU64 {
        &self.slots[(seq % Self::IN_FLIGHT_MAX) as usize]
    }

    /// Records that a batch is inserted, and advances the visible sequence.
    fn publish(&self, seq: u64) {
        debug_assert!(seq > self.visible(), "sequence {seq} is published twice");
        debug_assert!(
            seq - self.visible() <= Self::IN_FLIGHT_MAX,
            "sequence {seq} shares its slot with one that is not visible"
        );
        self.slot(seq).store(seq, Ordering::Release);
        // Of two threads that publish adjacent sequences, at least one sees the other's slot.
        fence(Ordering::SeqCst);
        let mut visible = self.visible.load(Ordering::Acquire);
        let mut moved = false;
        while self.slot(visible + 1).load(Ordering::Acquire) == visible + 1 {
            match self.visible.compare_exchange(
                visible,
                visible + 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => {
                    visible += 1;
                    moved = true;
                    fence(Ordering::SeqCst);
                }
                Err(now) => visible = now,
            }
        }
        if moved && self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.moved.notify_all();
        }
    }

    /// Waits until a sequence that has been begun is visible.
    pub(super) fn wait_visible(&self, seq: u64) {
        // The preceding writers are inserting, which takes microseconds unless they are preempted.
        for round in 0..ROUNDS {
            if self.visible() >= seq {
                return;
            }
            if round < 16 {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // A publisher either sees that there is a waiter, or has advanced before this load.
        fence(Ordering::SeqCst);
        let mut lock = self.lock.lock();
        while self.visible.load(Ordering::SeqCst) < seq {
            self.moved.wait(&mut lock);
        }
        drop(lock);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, explore))]
mod explore {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize as Plain;
    use loom::thread;

    use super::*;

    fn explored(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    }

    /// The data inserted by batches, one value per sequence; accessed without synchronisation other
    /// than the sequencer's.
    type Inserted = Arc<[Plain; 3]>;

    fn insert(sequencer: &Sequencer, inserted: &Inserted, seq: u64) {
        inserted[seq as usize - 1].store(1, Ordering::Relaxed);
        sequencer.publish(seq);
    }

    fn check(sequencer: &Sequencer, inserted: &Inserted) -> u64 {
        let visible = sequencer.visible();
        for plain in &inserted[..visible as usize] {
            assert_eq!(plain.load(Ordering::Relaxed), 1, "visible but not inserted");
        }
        visible
    }

    #[test]
    fn visible_batches_are_inserted() {
        explored(3, || {
            let sequencer = Arc::new(Sequencer::new(0));
            let inserted: Inserted = Arc::new(Default::default());
            let threads = [2, 1].map(|seq| {
                let (sequencer, inserted) = (sequencer.clone(), inserted.clone());
                thread::spawn(move || insert(&sequencer, &inserted, seq))
            });
            let before = check(&sequencer, &inserted);
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(before <= 2);
            // Of two threads that publish adjacent sequences, at least one saw the other's slot.
            assert_eq!(check(&sequencer, &inserted), 2);
        });
    }

    #[test]
    fn no_writer_sleeps_indefinitely() {
        explored(3, || {
            let sequencer = Arc::new(Sequencer::new(0));
            let inserted: Inserted = Arc::new(Default::default());
            let other = (sequencer.clone(), inserted.clone());
            let thread = thread::spawn(move || {
                insert(&other.0, &other.1, 2);
                other.0.wait_visible(2);
                assert_eq!(check(&other.0, &other.1), 2);
            });
            insert(&sequencer, &inserted, 1);
            sequencer.wait_visible(1);
            assert!(check(&sequencer, &inserted) >= 1);
            thread.join().unwrap();
        });
    }

    #[test]
    fn three_complete_around_the_ring() {
        explored(2, || {
            // The slots still hold earlier sequences.
            let sequencer = Arc::new(Sequencer::new(3));
            let threads = [5, 6].map(|seq| {
                let sequencer = sequencer.clone();
                thread::spawn(move || sequencer.publish(seq))
            });
            sequencer.publish(4);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(sequencer.visible(), 6);
        });
    }
}

#[cfg(all(test, not(explore)))]
mod tests {
    use super::*;

    #[test]
    fn sequences_become_visible_in_order() {
        const THREADS: u64 = 4;
        const EACH: u64 = 20_000;
        let sequencer = Sequencer::new(7);
        let next = AtomicU64::new(8);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for n in 0..EACH {
                        let seq = next.fetch_add(1, Ordering::Relaxed);
                        if n % 64 == 0 {
                            thread::yield_now();
                        }
                        sequencer.publish(seq);
                        sequencer.wait_visible(seq);
                        assert!(sequencer.visible() >= seq);
                    }
                });
            }
        });
        assert_eq!(sequencer.visible(), 7 + THREADS * EACH);
    }

    #[test]
    fn sequences_wait_for_earlier_ones() {
        let sequencer = Sequencer::new(0);
        sequencer.publish(2);
        sequencer.publish(3);
        assert_eq!(sequencer.visible(), 0);
        sequencer.publish(1);
        assert_eq!(sequencer.visible(), 3);
        sequencer.publish(5);
        assert_eq!(sequencer.visible(), 3);
    }
}
