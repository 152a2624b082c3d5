//! One operation as the database sees it: how long it may run, whether it was
//! killed, and what it has cost so far.
//!
//! ```text
//!   session ──creates──> Arc<OpContext> <──reads── currentOp, slow-operation log
//!                            │   ▲
//!                 every stage│   │kill(code): killOp, client gone, shutdown
//!                            ▼   │
//!                     check_interrupt()
//! ```
//!
//! Invariant: whatever loops without a bound known to be small calls
//! [`OpContext::check_interrupt`] in the loop. It costs one relaxed load, and a
//! look at the clock now and then when there is a deadline: every fourth time
//! where rounds are short, every time where they take a millisecond.

use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::{Error, ErrorCode, Result, Value};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::interrupt::Interrupt;

/// How many calls of `check_interrupt` go by at most between two looks at the clock.
const CHECKS_PER_CLOCK_READ: u32 = 4;
/// What may go by between two looks at the clock before they become more frequent.
const CLOCK_READ_EVERY_MICROS: u64 = 1000;

/// An operation in progress. Shared with whoever watches or kills it.
#[derive(Debug)]
pub struct OpContext {
    started: Instant,
    deadline: OnceLock<Instant>,
    comment: OnceLock<Value>,
    query: OnceLock<Arc<CanonicalQuery>>,
    /// 0 while nobody has killed the operation, else the code to fail with.
    killed: AtomicI32,
    /// Calls of `check_interrupt` until the next look at the clock, and how many there are between two.
    checks_left: AtomicU32,
    checks_between: AtomicU32,
    /// When the clock was looked at, in microseconds since the operation began.
    clock_read: AtomicU64,
    counters: OpCounters,
    progress: Mutex<Option<Arc<OperationProgress>>>,
    waker: Mutex<Option<Waker>>,
}

/// Wakes an operation that waits for something else, so that it finds itself killed.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// One that does this. It must reach whoever waits after having looked for a kill.
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
    /// An operation that may run for ever.
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

    /// Sets `maxTimeMS`, counted from when the operation began. Zero means no limit, as in MongoDB.
    pub fn with_max_time(self, limit: Duration) -> OpContext {
        self.limit_time(limit);
        self
    }

    /// As [`OpContext::with_max_time`], for an operation that has begun. The first limit stays.
    pub fn limit_time(&self, limit: Duration) {
        if let Some(deadline) = self.started.checked_add(limit)
            && !limit.is_zero()
        {
            let _ = self.deadline.set(deadline);
        }
    }

    /// Sets the user's `comment`.
    pub fn with_comment(self, comment: Value) -> OpContext {
        self.inherit_comment(comment);
        self
    }

    /// As [`OpContext::with_comment`], for an operation that has begun. The first comment stays.
    pub fn inherit_comment(&self, comment: Value) {
        let _ = self.comment.set(comment);
    }

    /// Says which query is planned for the operation. The first one stays.
    pub(crate) fn note_query(&self, query: &Arc<CanonicalQuery>) {
        let _ = self.query.set(query.clone());
    }

    /// The first query that was planned for it, if one was.
    pub fn query(&self) -> Option<&Arc<CanonicalQuery>> {
        self.query.get()
    }

    /// When the operation began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When `maxTimeMS` ends it, if it has a limit.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// How long it may still run; `None` without a limit, zero when the limit is past.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline()
            .map(|d| d.saturating_duration_since(Instant::now()))
    }

    /// The user's `comment`.
    pub fn comment(&self) -> Option<&Value> {
        self.comment.get()
    }

    /// Ends the operation at its next check. The first code stays:
    /// `Interrupted` for killOp, `ClientDisconnect` for a client that is gone,
    /// `InterruptedAtShutdown`, `MaxTimeMSExpired`...
    pub fn kill(&self, code: ErrorCode) {
        let first = self.killed.compare_exchange(0, code.0, Relaxed, Relaxed);
        if first.is_ok()
            && let Some(Waker(wake)) = self.waker.lock().clone()
        {
            wake();
        }
    }

    /// Begins (`Some`) or ends a wait from which a kill is to wake the operation. Whoever waits looks for a kill
    /// after this.
    pub fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock() = waker;
    }

    /// Whether [`OpContext::kill`] was called.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed) != 0
    }

    /// Fails when the operation was killed, or (looking at the clock now and then) has outrun its time.
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

    /// Looks at the clock, and decides by what has gone by when to look again.
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

    /// As [`OpContext::check_interrupt`], always looking at the clock: for loops with long rounds.
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

    /// What the operation has cost so far.
    pub fn counters(&self) -> &OpCounters {
        &self.counters
    }

    /// The progress of the long part it is in, if it is in one.
    pub fn progress(&self) -> Option<Arc<OperationProgress>> {
        self.progress.lock().clone()
    }

    /// Begins (`Some`) or ends (`None`) a long part.
    pub fn set_progress(&self, progress: Option<Arc<OperationProgress>>) {
        *self.progress.lock() = progress;
    }
}

macro_rules! op_counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What an operation has cost so far. Written by the operation's thread, read by anyone.
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
            /// All counts as of now.
            pub fn counts(&self) -> OpCounts {
                OpCounts { $($name: self.$name.get(),)* }
            }
        }
    };
}

op_counters! {
    /// Index keys looked at.
    keys_examined,
    /// Documents looked at.
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
    /// Units of work begun again because another writer came first.
    write_conflicts,
    /// Bytes that the storage engine logged: of a transaction, when it commits.
    bytes_logged,
    /// Storage transactions committed.
    commits,
}

/// A count that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Not atomic against another writer: an operation runs on one thread at a time.
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

/// How far a long part of an operation has come, for currentOp and the log.
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

    /// What is worked upon.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// MongoDB's text of the phase, such as `Index Build: scanning collection`.
    pub fn phase(&self) -> &'static str {
        *self.phase.lock()
    }

    /// Units done in this phase, and how many there are in all (an estimate while others write).
    pub fn done_of_total(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.total.load(Relaxed))
    }

    /// Enters the next phase with nothing done.
    pub fn enter(&self, phase: &'static str, total: u64) {
        *self.phase.lock() = phase;
        self.total.store(total, Relaxed);
        self.done.store(0, Relaxed);
    }

    /// Counts units done.
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

    /// Where a round takes milliseconds, the first check behind the deadline finds it.
    #[test]
    fn long_rounds_look_at_the_clock_every_time() {
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
