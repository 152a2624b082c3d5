//! Blocks writes: the lock of `fsync`, and the block of user writes.
//!
//! ```text
//!   writer     marks its connection as writing ─ gate open? ── yes ──> writes, then unmarks
//!                        ▲                          │ no
//!                        └───── waits until open ───┘ unmarks
//!   fsync      closes the gate ─ waits until no connection is marked ─> flushes
//! ```
//!
//! A writer marks its connection before it checks the gate, and the thread that closes the gate
//! checks the marks afterwards: either the writer sees the gate closed, or that thread sees the
//! mark. While the gate closes, transactions may still end, because writers may be waiting for
//! them.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sheaf_bson::{Error, ErrorCode};
use sheaf_db::OpContext;

/// How long a waiter sleeps before it checks whether it was killed.
const WAIT_SLICE: Duration = Duration::from_millis(20);

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// Who may write.
#[derive(Debug, Default)]
pub struct WriteGate {
    state: AtomicU8,
    locks: Mutex<u64>,
    opened: Condvar,
    /// Background jobs that write now.
    background: AtomicUsize,
    user_block: Mutex<Option<BlockReason>>,
    /// Whether `user_block` is set.
    is_blocked: AtomicU8,
}

/// A connection's mark that it writes.
#[derive(Debug, Default)]
pub struct WritingMark(AtomicU8);

/// A write in progress; unmarks its connection when dropped.
#[derive(Debug)]
pub struct Writing<'a>(&'a WritingMark);

/// A background job that writes.
#[derive(Debug)]
pub struct BackgroundWriting<'a>(&'a WriteGate);

/// Why user writes are blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockReason {
    /// `Unspecified`.
    Unspecified,
    /// `ClusterToClusterMigrationInProgress`.
    Migration,
    /// `DiskUseThresholdExceeded`.
    DiskUse,
}

impl BlockReason {
    /// All reasons.
    pub const ALL: [BlockReason; 3] = [
        BlockReason::Unspecified,
        BlockReason::Migration,
        BlockReason::DiskUse,
    ];

    /// As the command spells it.
    pub fn name(self) -> &'static str {
        match self {
            BlockReason::Unspecified => "Unspecified",
            BlockReason::Migration => "ClusterToClusterMigrationInProgress",
            BlockReason::DiskUse => "DiskUseThresholdExceeded",
        }
    }
}

impl WriteGate {
    /// Marks the connection as writing, after waiting until the gate is open. `ends_transaction`
    /// lets a commit pass while the gate closes.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    pub fn enter<'a>(
        &self,
        mark: &'a WritingMark,
        op: &OpContext,
        ends_transaction: bool,
    ) -> Result<Writing<'a>, Error> {
        loop {
            mark.0.store(1, Ordering::SeqCst);
            let writing = Writing(mark);
            match self.state.load(Ordering::SeqCst) {
                OPEN => return Ok(writing),
                CLOSING if ends_transaction => return Ok(writing),
                _ => drop(writing),
            }
            let mut locks = self.locks.lock();
            while *locks > 0 {
                op.check_interrupt_now()?;
                self.opened.wait_for(&mut locks, WAIT_SLICE);
                if ends_transaction && self.state.load(Ordering::SeqCst) == CLOSING {
                    break;
                }
            }
        }
    }

    /// Lets a background job write, unless the gate is closed.
    pub fn enter_background(&self) -> Option<BackgroundWriting<'_>> {
        self.background.fetch_add(1, Ordering::SeqCst);
        let writing = BackgroundWriting(self);
        (self.state.load(Ordering::SeqCst) == OPEN).then_some(writing)
    }

    /// Adds a lock, and waits until nothing writes. `is_idle` reports whether no connection is
    /// marked. Returns the number of locks.
    ///
    /// Errors: `LockTimeout` when writers do not end within `limit`, `Interrupted`,
    /// `MaxTimeMSExpired`; the lock is then not held.
    pub fn lock(
        &self,
        op: &OpContext,
        limit: Duration,
        is_idle: impl Fn() -> bool,
    ) -> Result<u64, Error> {
        let held = {
            let mut locks = self.locks.lock();
            *locks += 1;
            if *locks == 1 {
                self.state.store(CLOSING, Ordering::SeqCst);
            }
            *locks
        };
        let since = Instant::now();
        let is_idle = || self.background.load(Ordering::SeqCst) == 0 && is_idle();
        loop {
            if is_idle() {
                self.state.store(CLOSED, Ordering::SeqCst);
                // A commit may have passed in between.
                if is_idle() {
                    return Ok(held);
                }
                self.state.store(CLOSING, Ordering::SeqCst);
            }
            let late = since.elapsed() >= limit;
            if let Err(error) = op.check_interrupt_now().and_then(|()| match late {
                true => Err(Error::new(
                    ErrorCode::LOCK_TIMEOUT,
                    "Fsync lock timed out: writes are in progress; try again or pass a longer \
                     fsyncLockAcquisitionTimeoutMillis",
                )),
                false => Ok(()),
            }) {
                self.unlock();
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes one lock and returns how many remain; `None` if there was none.
    pub fn unlock(&self) -> Option<u64> {
        let mut locks = self.locks.lock();
        *locks = locks.checked_sub(1)?;
        if *locks == 0 {
            self.state.store(OPEN, Ordering::SeqCst);
            self.opened.notify_all();
        }
        Some(*locks)
    }

    /// Whether `fsync` holds a lock.
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OPEN
    }

    /// Whether the writes of users are blocked.
    pub fn blocks_users(&self) -> bool {
        self.is_blocked.load(Ordering::Acquire) != 0
    }

    /// Why the writes of users are blocked.
    pub fn user_block(&self) -> Option<BlockReason> {
        *self.user_block.lock()
    }

    /// Blocks the writes of users, or no longer.
    ///
    /// Errors: `IllegalOperation` while they are blocked for another reason.
    pub fn set_user_block(&self, block: bool, reason: BlockReason) -> Result<(), Error> {
        let mut current = self.user_block.lock();
        if let Some(other) = current.filter(|current| *current != reason) {
            let what = if block { "acquire" } else { "release" };
            return Err(Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                format!(
                    "Cannot {what} user writes critical section with different reason than the \
                     already-set reason: {}, not {}",
                    other.name(),
                    reason.name()
                ),
            ));
        }
        *current = block.then_some(reason);
        self.is_blocked.store(u8::from(block), Ordering::Release);
        Ok(())
    }
}

impl WritingMark {
    /// Whether the connection writes.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::SeqCst);
    }
}

impl Drop for BackgroundWriting<'_> {
    fn drop(&mut self) {
        self.0.background.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_waits_for_writers_and_keeps_new_ones_out() {
        let (gate, mark) = (WriteGate::default(), WritingMark::default());
        let op = OpContext::new();
        let writing = gate.enter(&mark, &op, false).unwrap();
        let refused = gate.lock(&op, Duration::from_millis(5), || !mark.is_set());
        assert_eq!(refused.unwrap_err().code(), ErrorCode::LOCK_TIMEOUT);
        assert!(!gate.is_locked());
        drop(writing);
        let lock = || gate.lock(&op, Duration::from_secs(5), || !mark.is_set());
        assert_eq!((lock().unwrap(), lock().unwrap()), (1, 2));
        assert!(gate.enter_background().is_none());
        let killed = OpContext::new();
        killed.kill(ErrorCode::INTERRUPTED);
        assert!(gate.enter(&mark, &killed, false).is_err());
        assert!(!mark.is_set());
        assert_eq!(
            (gate.unlock(), gate.unlock(), gate.unlock()),
            (Some(1), Some(0), None)
        );
        assert!(gate.enter(&mark, &op, false).is_ok());
        assert!(gate.enter_background().is_some());
    }

    #[test]
    fn the_block_of_users_has_one_reason() {
        let gate = WriteGate::default();
        gate.set_user_block(true, BlockReason::DiskUse).unwrap();
        gate.set_user_block(true, BlockReason::DiskUse).unwrap();
        let other = gate.set_user_block(false, BlockReason::Unspecified);
        assert_eq!(other.unwrap_err().code(), ErrorCode::ILLEGAL_OPERATION);
        assert!(gate.blocks_users());
        gate.set_user_block(false, BlockReason::DiskUse).unwrap();
        assert!(!gate.blocks_users());
    }
}
