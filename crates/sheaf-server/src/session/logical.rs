//! Logical sessions and the transactions in them.
//!
//! A session is an id that a client generates (`lsid`). Most sessions are implicit and only mark
//! cursors; a session may carry a multi-document transaction, whose number the client increments.
//!
//! ```text
//!   txnNumber        n     n     n        n          n + 1
//!   command        find  update commit   commit      insert (startTransaction)
//!   state      ──> InProgress ──────> Committed ──┬─> InProgress of n + 1
//!                      │  error, abort, time     (the same commit again: fine)
//!                      └────────────> Aborted ────┘
//! ```
//!
//! Invariant: one statement of a session's transaction runs at a time: it holds
//! [`LogicalSession::record`]. To end a transaction that a statement is working on, another thread
//! ends the transaction's unit first, then interrupts the statement: what the statement writes
//! afterwards is discarded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::oplog::entry::WriteOrigin;
use sheaf_db::session_row::SessionRow;
use sheaf_db::statement::SessionWrite;
use sheaf_db::txn::{Isolation, Transaction};
use sheaf_db::{Db, OpContext, StatementContext};

/// Number of shards of the session table, which reduce lock contention between connections.
const SHARDS: usize = 16;

/// How long a statement waits for another one of its session before it checks for a kill.
const WAIT_SLICE: Duration = Duration::from_millis(20);

/// Identifies a session: the client's id and the user who owns it.
///
/// Two users that choose the same id have two sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    /// `lsid.id`.
    pub id: [u8; 16],
    /// `lsid.uid`, the digest of the user's name; `None` without a user.
    pub uid: Option<[u8; 32]>,
}

/// Parses an lsid; `None` if `id` is missing or a part has the wrong type.
pub fn session_id(lsid: RawDoc<'_>) -> Option<SessionId> {
    let id = match lsid.get("id")? {
        RawValue::Binary { subtype: 4, bytes } => bytes.try_into().ok()?,
        _ => return None,
    };
    let uid = match lsid.get("uid") {
        None => None,
        Some(RawValue::Binary { subtype: 0, bytes }) => Some(bytes.try_into().ok()?),
        Some(_) => return None,
    };
    Some(SessionId { id, uid })
}

/// `txnNumber`, `autocommit: false` and `startTransaction` of a command inside a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionArguments {
    /// `txnNumber`.
    pub number: i64,
    /// `startTransaction: true`.
    pub starts: bool,
}

/// One session.
pub struct LogicalSession {
    id: SessionId,
    lsid: DocBuf,
    /// Milliseconds since the table was created, or [`GONE`].
    last_use: AtomicU64,
    record: Mutex<TransactionRecord>,
    /// The statement that holds `record`.
    running: Mutex<Option<StatementContext>>,
}

/// The newest transaction of a session.
pub struct TransactionRecord {
    number: i64,
    state: TransactionState,
    /// The stored session record; `None` until the first retryable write, transaction statement or
    /// commit loads it.
    row: Option<Arc<SessionRow>>,
}

enum TransactionState {
    None,
    InProgress(Arc<Transaction>),
    Committed,
    Aborted,
}

/// All recently used sessions.
pub struct SessionTable {
    shards: [Mutex<HashMap<SessionId, Arc<LogicalSession>>>; SHARDS],
    /// Sessions with a transaction in progress.
    open: Mutex<HashMap<SessionId, Arc<LogicalSession>>>,
    made: Instant,
    /// Transactions begun, committed, aborted since the start.
    pub counts: TransactionCounts,
}

/// For `serverStatus.transactions`.
#[derive(Default)]
pub struct TransactionCounts {
    started: AtomicU64,
    committed: AtomicU64,
    aborted: AtomicU64,
    /// Microseconds of the transactions that have ended.
    micros: AtomicU64,
    retried_commands: AtomicU64,
    retried_statements: AtomicU64,
}

impl TransactionCounts {
    /// Counts a command that found these many of its statements already executed.
    pub fn retried(&self, statements: usize) {
        self.retried_commands.fetch_add(1, Relaxed);
        self.retried_statements
            .fetch_add(statements as u64, Relaxed);
    }

    /// Microseconds that the ended transactions took, and their number.
    pub fn latency(&self) -> (u64, u64) {
        let ended = self.committed.load(Relaxed) + self.aborted.load(Relaxed);
        (self.micros.load(Relaxed), ended)
    }

    fn ended(&self, transaction: &Transaction) {
        let micros = transaction.begun().elapsed().as_micros();
        self.micros
            .fetch_add(micros.try_into().unwrap_or(u64::MAX), Relaxed);
    }
}

impl Default for SessionTable {
    fn default() -> Self {
        SessionTable {
            shards: Default::default(),
            open: Mutex::default(),
            made: Instant::now(),
            counts: TransactionCounts::default(),
        }
    }
}

impl SessionTable {
    fn shard(&self, id: &SessionId) -> &Mutex<HashMap<SessionId, Arc<LogicalSession>>> {
        &self.shards[usize::from(id.id[15]) % SHARDS]
    }

    fn now(&self) -> u64 {
        self.made.elapsed().as_millis() as u64
    }

    /// Returns the session of an lsid, creates it if needed, and records its use. `known` is the
    /// session that the connection used last. `None` if the lsid is malformed.
    pub fn get(
        &self,
        lsid: RawDoc<'_>,
        known: Option<&Arc<LogicalSession>>,
    ) -> Option<Arc<LogicalSession>> {
        let id = session_id(lsid)?;
        let now = self.now();
        if let Some(known) = known
            && known.id == id
            && known.last_use.load(Relaxed) != GONE
        {
            known.last_use.store(now, Relaxed);
            return Some(known.clone());
        }
        let mut shard = self.shard(&id).lock();
        let session = shard.entry(id).or_insert_with(|| {
            Arc::new(LogicalSession {
                id,
                lsid: lsid.to_buf(),
                last_use: AtomicU64::new(now),
                record: Mutex::new(TransactionRecord {
                    number: -1,
                    state: TransactionState::None,
                    row: None,
                }),
                running: Mutex::default(),
            })
        });
        session.last_use.store(now, Relaxed);
        Some(session.clone())
    }

    /// Ends the sessions that satisfy `which` and aborts their transactions. Returns their ids.
    pub fn end(&self, which: impl Fn(&LogicalSession) -> bool) -> Vec<SessionId> {
        let mut ended = Vec::new();
        for shard in &self.shards {
            let gone: Vec<_> = {
                let mut shard = shard.lock();
                let gone: Vec<_> = shard.values().filter(|s| which(s)).cloned().collect();
                for session in &gone {
                    session.last_use.store(GONE, Relaxed);
                    shard.remove(&session.id);
                }
                gone
            };
            for session in gone {
                self.abort_from_outside(&session, ErrorCode::INTERRUPTED);
                ended.push(session.id);
            }
        }
        ended
    }

    /// Ends sessions unused for longer than `limit`, except those whose record is locked.
    pub fn expire(&self, limit: Duration) -> Vec<SessionId> {
        let now = self.now();
        self.end(|session| {
            let used = session.last_use.load(Relaxed);
            now.saturating_sub(used) > limit.as_millis() as u64
                && session.record.try_lock().is_some()
        })
    }

    /// Aborts transactions older than `limit`; returns how many.
    pub fn expire_transactions(&self, limit: Duration) -> usize {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        let mut count = 0;
        for session in open {
            if session.transaction_age().is_some_and(|age| age > limit) {
                let code = ErrorCode::TRANSACTION_EXCEEDED_LIFETIME_LIMIT_SECONDS;
                count += usize::from(self.abort_from_outside(&session, code));
            }
        }
        count
    }

    /// Whether a transaction is in progress.
    pub fn has_open_transactions(&self) -> bool {
        !self.open.lock().is_empty()
    }

    /// Aborts every open transaction: one with a silent client would keep its locks, and operations
    /// that wait for them would not end.
    pub fn abort_all(&self, code: ErrorCode) {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        for session in open {
            self.abort_from_outside(&session, code);
        }
    }

    /// Every session, as `$listLocalSessions` shows it.
    pub fn list(&self) -> Vec<DocBuf> {
        let now = self.now();
        let mut docs = Vec::new();
        for shard in &self.shards {
            for session in shard.lock().values() {
                let idle = now.saturating_sub(session.last_use.load(Relaxed));
                let used = sheaf_bson::DateTime::now().0 - idle as i64;
                let mut out = DocBuilder::new();
                out.append_bson("_id", &session.lsid);
                out.append("lastUse", sheaf_bson::DateTime(used));
                docs.push(out.finish());
            }
        }
        docs
    }

    /// Transactions without a running statement: session, number, age.
    pub fn idle_transactions(&self) -> Vec<(DocBuf, i64, Duration)> {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        let idle = open.iter().filter_map(|session| {
            let record = session.record.try_lock()?;
            match &record.state {
                TransactionState::InProgress(transaction) => {
                    let age = transaction.begun().elapsed();
                    Some((session.lsid.clone(), record.number, age))
                }
                _ => None,
            }
        });
        idle.collect()
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `transactions` of serverStatus.
    pub fn append_status(&self, out: &mut DocBuilder) {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        let active = open.iter().filter(|s| s.running.lock().is_some()).count();
        out.append("currentActive", active as i64);
        out.append("currentInactive", (open.len() - active) as i64);
        out.append("currentOpen", open.len() as i64);
        out.append("totalAborted", self.counts.aborted.load(Relaxed) as i64);
        out.append("totalCommitted", self.counts.committed.load(Relaxed) as i64);
        out.append("totalStarted", self.counts.started.load(Relaxed) as i64);
        for (name, counter) in [
            ("retriedCommandsCount", &self.counts.retried_commands),
            ("retriedStatementsCount", &self.counts.retried_statements),
        ] {
            out.append(name, counter.load(Relaxed) as i64);
        }
    }

    /// Aborts a session's transaction, even one that a statement is working on. Returns whether
    /// there was one.
    fn abort_from_outside(&self, session: &Arc<LogicalSession>, code: ErrorCode) -> bool {
        if let Some(mut record) = session.record.try_lock() {
            return self.abort(session, &mut record);
        }
        let Some(transaction) = session.working_on() else {
            return false;
        };
        // The statement finds its unit ended; it marks the record when it returns.
        transaction.abort();
        if let Some(op) = &*session.running.lock() {
            op.kill(code);
        }
        true
    }

    /// Aborts the transaction in progress, if there is one.
    pub fn abort(&self, session: &Arc<LogicalSession>, record: &mut TransactionRecord) -> bool {
        let TransactionState::InProgress(transaction) = &record.state else {
            return false;
        };
        transaction.abort();
        self.counts.ended(transaction);
        record.state = TransactionState::Aborted;
        self.open.lock().remove(&session.id);
        self.counts.aborted.fetch_add(1, Relaxed);
        true
    }

    /// Begins a retryable write. Returns the session record, which lists earlier attempts.
    ///
    /// Errors: `TransactionTooOld`, `IncompleteTransactionHistory` (the number is a transaction's),
    /// the engine's.
    pub fn begin_retryable(
        &self,
        db: &Arc<Db>,
        session: &Arc<LogicalSession>,
        record: &mut TransactionRecord,
        op: &OpContext,
        number: i64,
    ) -> Result<Arc<SessionRow>, Error> {
        let row = record.load(db, session, op)?;
        if number < record.number {
            return Err(too_old(session, number, record.number));
        }
        if number == record.number && !matches!(record.state, TransactionState::None) {
            return Err(Error::new(
                ErrorCode::INCOMPLETE_TRANSACTION_HISTORY,
                format!("transaction number {number} is that of a multi-document transaction"),
            ));
        }
        if number > record.number {
            self.abort(session, record);
            record.number = number;
            record.state = TransactionState::None;
            row.advance(number);
        }
        Ok(row)
    }

    /// Begins a statement of a transaction; its first statement also begins the transaction.
    ///
    /// Errors: `TransactionTooOld`, `NoSuchTransaction`, `TransactionCommitted`,
    /// `ConflictingOperationInProgress`, the engine's.
    pub fn begin_statement(
        &self,
        db: &Arc<Db>,
        session: &Arc<LogicalSession>,
        record: &mut TransactionRecord,
        arguments: TransactionArguments,
        op: &OpContext,
        (lock_wait, isolation): (Duration, Isolation),
    ) -> Result<Arc<Transaction>, Error> {
        let number = arguments.number;
        let row = record.load(db, session, op)?;
        if !arguments.starts {
            record.check_current(session, number)?;
            return match &record.state {
                TransactionState::InProgress(transaction) => Ok(transaction.clone()),
                TransactionState::Committed => Err(committed(number)),
                TransactionState::None | TransactionState::Aborted => Err(aborted(number)),
            };
        }
        if number < record.number {
            return Err(too_old(session, number, record.number));
        }
        if number == record.number {
            return Err(Error::new(
                ErrorCode::CONFLICTING_OPERATION_IN_PROGRESS,
                format!(
                    "Cannot start a transaction at given transaction number {number} as a transaction or a \
                     retryable write with the same number is already in progress or has ended"
                ),
            ));
        }
        self.abort(session, record);
        let transaction = Transaction::begin(db, lock_wait, isolation)?;
        record.number = number;
        row.advance(number);
        record.state = TransactionState::InProgress(transaction.clone());
        self.open.lock().insert(session.id, session.clone());
        self.counts.started.fetch_add(1, Relaxed);
        Ok(transaction)
    }

    /// Commits the transaction. Has no effect if it is already committed.
    ///
    /// Errors: `NoSuchTransaction`, `TransactionTooOld`, `WriteConflict`, the engine's.
    pub fn commit(
        &self,
        db: &Arc<Db>,
        session: &Arc<LogicalSession>,
        op: &StatementContext,
        number: i64,
    ) -> Result<(), Error> {
        let mut record = session.lock(op)?;
        let row = record.load(db, session, op)?;
        record.check_current(session, number)?;
        let origin = session.origin(number);
        let op = op.clone().as_session_write(SessionWrite { origin, row });
        let transaction = match &record.state {
            TransactionState::InProgress(transaction) => transaction.clone(),
            TransactionState::Committed => return Ok(()),
            TransactionState::None | TransactionState::Aborted => return Err(aborted(number)),
        };
        match transaction.commit(&op) {
            Ok(()) => {
                record.state = TransactionState::Committed;
                self.open.lock().remove(&session.id);
                self.counts.ended(&transaction);
                self.counts.committed.fetch_add(1, Relaxed);
                Ok(())
            }
            Err(error) => {
                self.abort(session, &mut record);
                Err(error)
            }
        }
    }

    /// Aborts the transaction at the client's request.
    /// Errors: `NoSuchTransaction` (there is none, or no longer), `TransactionCommitted`,
    /// `TransactionTooOld`.
    pub fn abort_by_client(
        &self,
        session: &Arc<LogicalSession>,
        op: &OpContext,
        number: i64,
    ) -> Result<(), Error> {
        let mut record = session.lock(op)?;
        record.check_current(session, number)?;
        match record.state {
            TransactionState::InProgress(_) => {
                self.abort(session, &mut record);
                Ok(())
            }
            TransactionState::Committed => Err(committed(number)),
            TransactionState::None | TransactionState::Aborted => Err(aborted(number)),
        }
    }
}

/// `last_use` of an ended session: a connection that still holds it must look in the table.
const GONE: u64 = u64::MAX;

impl LogicalSession {
    /// The id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Waits until no other statement of the session runs.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    pub fn lock(&self, op: &OpContext) -> Result<MutexGuard<'_, TransactionRecord>, Error> {
        loop {
            if let Some(record) = self.record.try_lock_for(WAIT_SLICE) {
                return Ok(record);
            }
            op.check_interrupt_now()?;
        }
    }

    /// The session and the number, as oplog entries record them.
    pub fn origin(&self, number: i64) -> WriteOrigin {
        WriteOrigin {
            lsid: self.lsid.clone(),
            txn_number: number,
        }
    }

    /// Sets the statement that holds the record.
    pub fn set_running(&self, op: Option<StatementContext>) {
        *self.running.lock() = op;
    }

    fn working_on(&self) -> Option<Arc<Transaction>> {
        let running = self.running.lock();
        running.as_ref()?.transaction().cloned()
    }

    fn transaction_age(&self) -> Option<Duration> {
        match self.record.try_lock() {
            Some(record) => match &record.state {
                TransactionState::InProgress(transaction) => Some(transaction.begun().elapsed()),
                _ => None,
            },
            None => Some(self.working_on()?.begun().elapsed()),
        }
    }
}

impl TransactionRecord {
    /// Returns the stored session record; reads it on the first call.
    fn load(
        &mut self,
        db: &Arc<Db>,
        session: &LogicalSession,
        op: &OpContext,
    ) -> Result<Arc<SessionRow>, Error> {
        if let Some(row) = &self.row {
            return Ok(row.clone());
        }
        let row = SessionRow::load(db, op, session.lsid.as_raw())?;
        if row.number() > self.number {
            self.number = row.number();
            self.state = match row.is_committed() {
                true => TransactionState::Committed,
                false => TransactionState::None,
            };
        }
        self.row = Some(row.clone());
        Ok(row)
    }

    fn check_current(&self, session: &LogicalSession, number: i64) -> Result<(), Error> {
        if number < self.number {
            return Err(too_old(session, number, self.number));
        }
        if number > self.number {
            return Err(Error::new(
                ErrorCode::NO_SUCH_TRANSACTION,
                format!(
                    "Given transaction number {number} does not match any in-progress transactions. The \
                     active transaction number is {}",
                    self.number
                ),
            )
            .with_label(label::TRANSIENT_TRANSACTION));
        }
        Ok(())
    }
}

fn too_old(session: &LogicalSession, number: i64, newer: i64) -> Error {
    Error::new(
        ErrorCode::TRANSACTION_TOO_OLD,
        format!(
            "Cannot use transaction number {number} on session {} because a newer transaction with \
             number {newer} has already started",
            session.lsid
        ),
    )
}

fn committed(number: i64) -> Error {
    Error::new(
        ErrorCode::TRANSACTION_COMMITTED,
        format!("Transaction with txnNumber {number} has been committed."),
    )
}

fn aborted(number: i64) -> Error {
    Error::new(
        ErrorCode::NO_SUCH_TRANSACTION,
        format!("Transaction with txnNumber {number} has been aborted."),
    )
    .with_label(label::TRANSIENT_TRANSACTION)
}
