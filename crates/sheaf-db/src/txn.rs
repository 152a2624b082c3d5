//! A multi-document transaction: one unit of work that persists across statements.
//!
//! ```text
//!   statement ── enter ──> WriteUnitOfWork ── commit of the statement ──> parked again
//!                  │            └─ dropped (an error): nothing is parked, the transaction is lost
//!                  └─ reads: read_view = the unit's snapshot overlaid with its own writes
//!   commit ── the parked unit commits, once        abort, or the time limit ── it is dropped
//! ```
//!
//! The layers above see no difference: [`Db::begin_write`] hands a statement inside a transaction
//! the transaction's unit, and the unit's commit parks it again. Reads call [`Db::view`], which
//! checks whether the statement is part of a transaction.
//!
//! Invariant: a unit is either parked here or held by the one statement that is executing. If it is
//! neither, a statement has failed, and nothing of the transaction may be committed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::error_code::label;
use sheaf_bson::{Error, ErrorCode, Result};

use crate::catalog::ReadView;
use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::op_context::OpContext;
use crate::statement::StatementContext;
use crate::write::unit::{Slot, WriteStats, WriteUnitOfWork};

/// The isolation level of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Excludes seeing others' writes, and overwriting concurrent writes. Permits write skew.
    #[default]
    Snapshot,
    /// Excludes everything that could not happen in some serial order.
    Serializable,
}

/// A transaction in progress or ended.
pub struct Transaction {
    state: Mutex<State>,
    begun: Instant,
    /// Maximum wait of a statement for a collection whose shape is being changed.
    lock_wait: Duration,
}

enum State {
    /// Between two statements.
    Parked(Box<WriteUnitOfWork>),
    /// A statement has the unit.
    Lent,
    /// Committed, aborted or failed.
    Ended,
}

impl Transaction {
    /// Begins a transaction with a current snapshot. `lock_wait` is
    /// `maxTransactionLockRequestTimeoutMillis`.
    ///
    pub fn begin(
        db: &Arc<Db>,
        lock_wait: Duration,
        isolation: Isolation,
    ) -> Result<Arc<Transaction>> {
        Ok(Arc::new(Transaction {
            state: Mutex::new(State::Parked(Box::new(db.begin_unit(isolation)?))),
            begun: Instant::now(),
            lock_wait,
        }))
    }

    /// Time at which the transaction began.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Whether the transaction has not ended.
    pub fn is_open(&self) -> bool {
        !matches!(*self.state.lock(), State::Ended)
    }

    /// Takes the unit, with the collection opened for one statement's writes; `None` if the
    /// collection does not exist.
    pub(crate) fn enter(
        self: &Arc<Self>,
        op: &OpContext,
        ns: &Namespace,
    ) -> Result<Option<(WriteUnitOfWork, Slot)>> {
        let mut unit = self.take()?;
        match unit.open(op, ns, Some(self.lock_wait)) {
            Ok(Some(slot)) => {
                unit.lend(self.clone());
                Ok(Some((unit, slot)))
            }
            Ok(None) => {
                self.park(unit);
                Ok(None)
            }
            Err(error) => {
                self.abort();
                Err(error)
            }
        }
    }

    /// The collection and its data as the transaction sees them.
    pub(crate) fn read_view(&self, op: &OpContext, ns: &Namespace) -> Result<ReadView> {
        let mut unit = self.take()?;
        match unit.open(op, ns, Some(self.lock_wait)) {
            Ok(slot) => {
                let view = match slot {
                    Some(slot) => unit.read_view(slot),
                    None => unit.empty_view(),
                };
                self.park(unit);
                Ok(view)
            }
            Err(error) => {
                self.abort();
                Err(error)
            }
        }
    }

    /// Runs `work` on the transaction's unit outside a statement's writes; an error ends the
    /// transaction.
    pub(crate) fn with_unit<T>(
        &self,
        work: impl FnOnce(&mut WriteUnitOfWork) -> Result<T>,
    ) -> Result<T> {
        let mut unit = self.take()?;
        match work(&mut unit) {
            Ok(done) => {
                self.park(unit);
                Ok(done)
            }
            Err(error) => {
                self.abort();
                Err(error)
            }
        }
    }

    /// Commits the transaction. Its statements have already counted their work.
    ///
    /// Errors: `NoSuchTransaction` if a statement failed or it was aborted, `WriteConflict`, those
    /// of the engine; in each case nothing is committed and the transaction has ended.
    pub fn commit(&self, op: &StatementContext) -> Result<()> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Ended);
        match state {
            State::Parked(unit) => unit.commit_transaction(op),
            State::Lent | State::Ended => Err(gone()),
        }
    }

    /// Aborts the transaction, undoing its writes. An executing statement notices when it ends.
    pub fn abort(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Ended);
        // Drops the unit, and with it its locks, outside the mutex.
        drop(state);
    }

    fn take(&self) -> Result<WriteUnitOfWork> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Lent) {
            State::Parked(unit) => Ok(*unit),
            State::Lent | State::Ended => {
                *state = State::Ended;
                Err(gone())
            }
        }
    }

    /// Parks the unit after a statement; drops it if the transaction was aborted meanwhile.
    pub(crate) fn park(&self, unit: WriteUnitOfWork) {
        let mut state = self.state.lock();
        let refused = match *state {
            State::Lent => {
                *state = State::Parked(Box::new(unit));
                None
            }
            State::Parked(_) | State::Ended => Some(unit),
        };
        drop(state);
        drop(refused);
    }
}

impl Db {
    /// The view an operation reads: the newest committed state, or inside a transaction what that
    /// sees.
    /// Errors: inside a transaction, `NoSuchTransaction`, `WriteConflict`, `LockTimeout`.
    pub fn view(&self, op: &StatementContext, ns: &Namespace) -> Result<ReadView> {
        match op.transaction() {
            Some(transaction) => transaction.read_view(op, ns),
            None => self.read_view(ns),
        }
    }
}

fn gone() -> Error {
    Error::new(
        ErrorCode::NO_SUCH_TRANSACTION,
        "Transaction has been aborted: one of its statements failed, or it was open for too long",
    )
    .with_label(label::TRANSIENT_TRANSACTION)
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

/// The difference of two counts: the work of one statement of a transaction, for its report.
pub(crate) fn since(now: &WriteStats, then: &WriteStats) -> WriteStats {
    WriteStats {
        keys_inserted: now.keys_inserted - then.keys_inserted,
        keys_deleted: now.keys_deleted - then.keys_deleted,
        docs_inserted: now.docs_inserted - then.docs_inserted,
        docs_modified: now.docs_modified - then.docs_modified,
        docs_deleted: now.docs_deleted - then.docs_deleted,
    }
}
