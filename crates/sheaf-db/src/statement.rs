//! A client's statement, as the database's reads and writes see it: the operation, and the
//! transaction and session write it belongs to.
//!
//! ```text
//!   OpContext                 deadline, kill, counters, progress     checked in every loop
//!      ▲ derefs to
//!   StatementContext          transaction, session's write           where data is opened,
//!                             bypassDocumentValidation               changed and committed
//! ```
//!
//! Code that only runs (plan stages, index builds, waits) takes an [`OpContext`]; code that opens a
//! collection or commits a change takes a [`StatementContext`].

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use sheaf_bson::{DateTime, Timestamp};

use crate::op_context::OpContext;
use crate::oplog::entry::WriteOrigin;
use crate::session_row::SessionRow;
use crate::txn::Transaction;

/// An operation in its role as a statement: of a transaction, of a session that retries its writes,
/// or of neither. A clone is the same statement.
#[derive(Debug, Clone, Default)]
pub struct StatementContext {
    op: Arc<OpContext>,
    transaction: Option<Arc<Transaction>>,
    session_write: Option<SessionWrite>,
    bypasses_validation: bool,
    keeps_empty_timestamps: bool,
    constants: Option<Arc<OnceLock<Constants>>>,
}

/// The constants of a statement that depend on time: `$$NOW` and `$$CLUSTER_TIME`.
pub type Constants = (DateTime, Option<Timestamp>);

/// Identifies a session's write, and the row that records it.
#[derive(Debug, Clone)]
pub struct SessionWrite {
    /// The session and the transaction number, for the oplog.
    pub origin: WriteOrigin,
    /// The session's row, which receives the statement's outcome.
    pub row: Arc<SessionRow>,
}

impl StatementContext {
    /// A statement with a new operation, outside of any transaction and session: the server's own
    /// work.
    pub fn new() -> StatementContext {
        StatementContext::default()
    }

    /// The same statement, writing documents even if the collection's validator rejects them:
    /// `bypassDocumentValidation`.
    pub fn with_validation_bypassed(self) -> StatementContext {
        StatementContext {
            bypasses_validation: true,
            ..self
        }
    }

    /// The same statement, storing empty timestamps as they are: `bypassEmptyTsReplacement`.
    pub fn with_empty_timestamps_kept(self) -> StatementContext {
        StatementContext {
            keeps_empty_timestamps: true,
            ..self
        }
    }

    /// One of several statements of a command, which share the constants of the first that needs
    /// them: those of clones of this context.
    pub fn with_shared_constants(self) -> StatementContext {
        StatementContext {
            constants: Some(Arc::default()),
            ..self
        }
    }

    /// The constants of the statement, for a view of this cluster time.
    pub(crate) fn constants(&self, cluster_time: Option<Timestamp>) -> Constants {
        match &self.constants {
            Some(shared) => *shared.get_or_init(|| (DateTime::now(), cluster_time)),
            None => (DateTime::now(), cluster_time),
        }
    }

    /// The same operation as a statement of this transaction.
    pub fn in_transaction(self, transaction: Arc<Transaction>) -> StatementContext {
        StatementContext {
            transaction: Some(transaction),
            ..self
        }
    }

    /// The same operation as this write of a session: a retryable write, or the commit of a
    /// transaction.
    pub fn as_session_write(self, write: SessionWrite) -> StatementContext {
        StatementContext {
            session_write: Some(write),
            ..self
        }
    }

    /// The operation.
    pub fn op(&self) -> &Arc<OpContext> {
        &self.op
    }

    /// The transaction the statement belongs to.
    pub fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.transaction.as_ref()
    }

    /// The session and number of its changes, for the oplog.
    pub fn write_origin(&self) -> Option<&WriteOrigin> {
        self.session_write.as_ref().map(|write| &write.origin)
    }

    /// The row in which its session records what it did.
    pub fn session_row(&self) -> Option<&Arc<SessionRow>> {
        self.session_write.as_ref().map(|write| &write.row)
    }

    /// Whether documents are written even if the collection's validator rejects them.
    pub fn bypasses_validation(&self) -> bool {
        self.bypasses_validation
    }

    /// Whether empty timestamps are stored as they are, not as the current time.
    pub fn keeps_empty_timestamps(&self) -> bool {
        self.keeps_empty_timestamps
    }
}

impl From<OpContext> for StatementContext {
    fn from(op: OpContext) -> Self {
        StatementContext::from(Arc::new(op))
    }
}

impl From<Arc<OpContext>> for StatementContext {
    fn from(op: Arc<OpContext>) -> Self {
        StatementContext {
            op,
            ..StatementContext::default()
        }
    }
}

impl Deref for StatementContext {
    type Target = OpContext;

    fn deref(&self) -> &OpContext {
        &self.op
    }
}
