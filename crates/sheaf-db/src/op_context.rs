//! One operation as the database sees it: its time limit, whether it was killed, and its cost so
//! far.
//!
//! ```text
//!   session ──creates──> Arc<OpContext> <──reads── currentOp, slow-operation log
//!                            │   ▲
//!                 every stage│   │kill(code): killOp, client gone, shutdown
//!                            ▼   │
//!                     check_interrupt()
//! ```
//!
//! Invariant: every loop without a small known bound calls [`OpContext::check_interrupt`]. It costs
//! one relaxed load, plus a clock read now and then if there is a deadline: every fourth call where
//! iterations are short, every call where they take a millisecond.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::{Error, ErrorCode, Result, Value};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::interrupt::Interrupt;

/// Maximum number of `check_interrupt` calls between two clock reads.
const CHECKS_PER_CLOCK_READ: u32 = 4;
/// Time between two clock reads, in microseconds, above which they become more frequent.
const CLOCK_READ_EVERY_MICROS: u64 = 1000;

/// An operation in progress. Shared with threads that observe or kill it.
#[derive(Debug)]
pub struct OpContext {
    started: Instant,
    deadline: OnceLock<Instant>,
    comment: OnceLock<Value>,
    query: OnceLock<Arc<CanonicalQuery>>,
    /// 0 until the operation is killed, then the code to fail with.
    killed: AtomicI32,
    /// Calls of `check_interrupt` until the next clock read, and between two clock reads.
    checks_left: AtomicU32,
    checks_between: AtomicU32,
    /// Time of the last clock read, in microseconds since the operation began.
    clock_read: AtomicU64,
    counters: OpCounters,
    progress: Mutex<Option<Arc<OperationProgress>>>,
    waker: Mutex<Option<Waker>>,
}

/// Wakes an operation that is blocked, so that it notices a kill.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// Creates a waker that calls `wake`. The call must wake any waiter that has already checked
    /// for a kill.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker(Arc::new(wake))
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

impl Interrupt for OpContext {
    fn check(&self) -> Result<()> {
        self.check_interrupt_now()
    }
}

impl Default for OpContext {
    fn default() -> Self {
        OpContext::new()
    }
}

impl OpContext {
    /// Creates an operation without a time limit.
    pub fn new() -> OpContext {
        OpContext {
            started: Instant::now(),
            deadline: OnceLock::new(),
            comment: OnceLock::new(),
            query: OnceLock::new(),
            killed: AtomicI32::new(0),
            checks_left: AtomicU32::new(0),
            checks_between: AtomicU32::new(1),
            clock_read: AtomicU64::new(0),
            counters: OpCounters::default(),
            progress: Mutex::new(None),
            waker: Mutex::new(None),
        }
    }

    /// Sets `maxTimeMS`, counted from the start of the operation. Zero means no limit, as in
    /// MongoDB.
    pub fn with_max_time(self, limit: Duration) -> OpContext {
        self.limit_time(limit);
        self
    }

    /// Like [`OpContext::with_max_time`], for a running operation. Set-once: later calls are
    /// ignored.
    pub fn limit_time(&self, limit: Duration) {
        if let Some(deadline) = self.started.checked_add(limit)
            && !limit.is_zero()
        {
            let _ = self.deadline.set(deadline);
        }
    }

    /// Sets the client's `comment`.
    pub fn with_comment(self, comment: Value) -> OpContext {
        self.inherit_comment(comment);
        self
    }

    /// Like [`OpContext::with_comment`], for a running operation. Set-once: later calls are
    /// ignored.
    pub fn inherit_comment(&self, comment: Value) {
        let _ = self.comment.set(comment);
    }

    /// Records the query being planned. Set-once: later calls are ignored.
    pub(crate) fn record_query(&self, query: &Arc<CanonicalQuery>) {
        let _ = self.query.set(query.clone());
    }

    /// The first query planned for the operation, if any.
    pub fn query(&self) -> Option<&Arc<CanonicalQuery>> {
        self.query.get()
    }

    /// When the operation began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The time at which `maxTimeMS` ends the operation; `None` without a limit.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Remaining time; `None` without a limit, zero after the deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline()
            .map(|d| d.saturating_duration_since(Instant::now()))
    }

    /// The client's `comment`.
    pub fn comment(&self) -> Option<&Value> {
        self.comment.get()
    }

    /// Ends the operation at its next check with `code`: `Interrupted` for killOp,
    /// `ClientDisconnect` for a closed connection, `InterruptedAtShutdown`, `MaxTimeMSExpired`...
    /// The first code wins.
    pub fn kill(&self, code: ErrorCode) {
        let first = self.killed.compare_exchange(0, code.0, Relaxed, Relaxed);
        if first.is_ok()
            && let Some(Waker(wake)) = self.waker.lock().clone()
        {
            wake();
        }
    }

    /// Begins (`Some`) or ends (`None`) a wait that a kill must interrupt. The waiter must check
    /// for a kill after this call.
    pub fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock() = waker;
    }

    /// Whether [`OpContext::kill`] was called.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed) != 0
    }

    /// Fails if the operation was killed or its deadline has passed. Does not read the clock on
    /// every call.
    #[inline]
    pub fn check_interrupt(&self) -> Result<()> {
        if self.killed.load(Relaxed) != 0 {
            return Err(self.interrupted());
        }
        if self.deadline.get().is_some() {
            match self.checks_left.load(Relaxed).checked_sub(1) {
                None => return self.check_clock(),
                Some(left) => self.checks_left.store(left, Relaxed),
            }
        }
        Ok(())
    }

    /// Reads the clock and adapts the interval to the next read.
    fn check_clock(&self) -> Result<()> {
        let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let gone_by = now.saturating_sub(self.clock_read.swap(now, Relaxed));
        let between = self.checks_between.load(Relaxed);
        let between = match gone_by > CLOCK_READ_EVERY_MICROS {
            true => between / 4,
            false => (between * 2).clamp(1, CHECKS_PER_CLOCK_READ),
        };
        self.checks_between.store(between, Relaxed);
        self.checks_left.store(between.saturating_sub(1), Relaxed);
        self.check_interrupt_now()
    }

    /// Like [`OpContext::check_interrupt`], but always reads the clock: for loops with long
    /// iterations.
    pub fn check_interrupt_now(&self) -> Result<()> {
        if self.killed.load(Relaxed) != 0 {
            return Err(self.interrupted());
        }
        match self.deadline() {
            Some(deadline) if Instant::now() >= deadline => {
                self.kill(ErrorCode::MAX_TIME_MS_EXPIRED);
                Err(self.interrupted())
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn interrupted(&self) -> Error {
        let code = ErrorCode(self.killed.load(Relaxed));
        let message = match code {
            ErrorCode::MAX_TIME_MS_EXPIRED => "operation exceeded time limit",
            ErrorCode::CLIENT_DISCONNECT => "the client disconnected",
            ErrorCode::INTERRUPTED_AT_SHUTDOWN => "interrupted at shutdown",
            _ => "operation was interrupted",
        };
        Error::new(code, message)
    }

    /// The cost of the operation so far.
    pub fn counters(&self) -> &OpCounters {
        &self.counters
    }

    /// Progress of the current long-running phase, if any.
    pub fn progress(&self) -> Option<Arc<OperationProgress>> {
        self.progress.lock().clone()
    }

    /// Begins (`Some`) or ends (`None`) a long-running phase.
    pub fn set_progress(&self, progress: Option<Arc<OperationProgress>>) {
        *self.progress.lock() = progress;
    }
}

macro_rules! op_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The cost of an operation so far. Written by the operation's thread, readable by any
        /// thread.
        #[derive(Debug, Default)]
        pub struct OpCounters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// [`OpCounters`] at one moment.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct OpCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl OpCounters {
            /// A snapshot of all counters.
            pub fn counts(&self) -> OpCounts {
                OpCounts { $($name: self.$name.get(),)* }
            }
        }
    };
}

op_counters! {
    /// Index keys examined.
    keys_examined,
    /// Documents examined.
    docs_examined,
    /// Index keys added by writes.
    keys_inserted,
    /// Index keys removed by writes.
    keys_deleted,
    /// Documents inserted.
    docs_inserted,
    /// Documents changed.
    docs_modified,
    /// Documents deleted.
    docs_deleted,
    /// Units of work retried after a write conflict.
    write_conflicts,
    /// Bytes that the storage engine logged; for a transaction, counted at commit.
    bytes_logged,
    /// Storage transactions committed.
    commits,
}

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Not atomic with respect to other writers: an operation runs on one thread at a
    /// time.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Progress of a long-running phase of an operation, for currentOp and the log.
#[derive(Debug)]
pub struct OperationProgress {
    phase: Mutex<&'static str>,
    subject: String,
    done: AtomicU64,
    total: AtomicU64,
}

impl OperationProgress {
    /// Progress of work on `subject` (a namespace, index names), in its first phase.
    pub fn new(phase: &'static str, subject: impl Into<String>, total: u64) -> Arc<Self> {
        Arc::new(OperationProgress {
            phase: Mutex::new(phase),
            subject: subject.into(),
            done: AtomicU64::new(0),
            total: AtomicU64::new(total),
        })
    }

    /// The object of the work, such as a namespace.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// MongoDB's text of the phase, such as `Index Build: scanning collection`.
    pub fn phase(&self) -> &'static str {
        *self.phase.lock()
    }

    /// Units done in this phase, and the total (an estimate while there are concurrent writes).
    pub fn done_of_total(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.total.load(Relaxed))
    }

    /// Starts the next phase, with nothing done.
    pub fn enter(&self, phase: &'static str, total: u64) {
        *self.phase.lock() = phase;
        self.total.store(total, Relaxed);
        self.done.store(0, Relaxed);
    }

    /// Adds `n` units done.
    pub fn advance(&self, n: u64) {
        self.done.fetch_add(n, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_with_the_first_code() {
        let op = OpContext::new();
        assert!(op.check_interrupt().is_ok());
        op.kill(ErrorCode::INTERRUPTED);
        op.kill(ErrorCode::CLIENT_DISCONNECT);
        assert_eq!(
            op.check_interrupt().unwrap_err().code(),
            ErrorCode::INTERRUPTED
        );
        assert_eq!(
            op.check_interrupt_now().unwrap_err().code(),
            ErrorCode::INTERRUPTED
        );
    }

    /// Where an iteration takes milliseconds, the first check after the deadline detects it.
    #[test]
    fn long_rounds_check_the_time_every_time() {
        let limit = Duration::from_millis(25);
        let op = OpContext::new().with_max_time(limit);
        for _ in 0..100 {
            let _ = op.check_interrupt();
            if op.is_killed() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
            if op.started().elapsed() > limit {
                assert!(op.check_interrupt().is_err());
            }
        }
        assert!(op.is_killed());
    }

    #[test]
    fn a_deadline_in_the_past_is_found_at_the_first_check() {
        let mut op = OpContext::new().with_max_time(Duration::from_secs(3600));
        assert!(op.check_interrupt().is_ok());
        op = OpContext::new().with_max_time(Duration::from_nanos(1));
        while Instant::now() <= op.deadline().unwrap() {}
        assert_eq!(
            op.check_interrupt().unwrap_err().code(),
            ErrorCode::MAX_TIME_MS_EXPIRED
        );
        assert_eq!(op.remaining(), Some(Duration::ZERO));
    }

    #[test]
    fn zero_is_no_limit() {
        let op = OpContext::new().with_max_time(Duration::ZERO);
        assert_eq!(op.deadline(), None);
        assert!(op.check_interrupt_now().is_ok());
    }

    #[test]
    fn counting_and_progress() {
        let op = OpContext::new();
        op.counters().keys_inserted.add(2);
        op.counters().keys_inserted.add(3);
        assert_eq!(op.counters().counts().keys_inserted, 5);
        assert!(op.progress().is_none());
        let progress = OperationProgress::new("first", "db.c", 10);
        op.set_progress(Some(progress.clone()));
        progress.advance(4);
        assert_eq!(op.progress().unwrap().done_of_total(), (4, 10));
        progress.enter("second", 7);
        assert_eq!(
            (progress.phase(), progress.done_of_total()),
            ("second", (0, 7))
        );
    }
}
