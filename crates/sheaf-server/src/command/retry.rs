//! Retryable writes: which statements of a command were executed before, and their results.
//!
//! See [`sheaf_db::session_row`] for how results are stored.

use std::cell::RefCell;
use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Value};
use sheaf_db::session_row::SessionRow;

use super::context::CommandContext;
use super::failing;
use super::transaction::{append_retried, statement_ids};
use crate::server::Server;

/// Tracks the retryable statements of one command. A no-op if the command has no `txnNumber`.
pub struct Retry {
    row: Option<(Arc<SessionRow>, Vec<i32>)>,
    retried: RefCell<Vec<i32>>,
    /// Counts the command, if it is one that may be repeated.
    server: Option<Arc<Server>>,
}

impl Drop for Retry {
    fn drop(&mut self) {
        let statements = self.retried.borrow().len();
        if statements > 0
            && let Some(server) = &self.server
        {
            server.sessions.counts.retried(statements);
        }
    }
}

/// The stored result of a statement that was executed before.
pub struct Outcome(DocBuf);

impl Retry {
    /// Starts tracking a command of `statements` statements.
    /// Errors: `stmtId` or `stmtIds` have the wrong type or do not match the number of statements.
    pub fn begin(cx: &CommandContext<'_>, statements: usize) -> Result<Retry, Error> {
        let row = match cx.op.session_row() {
            Some(row) => Some((row.clone(), statement_ids(cx.body, statements)?)),
            None => None,
        };
        Ok(Retry {
            server: row.is_some().then(|| Arc::clone(cx.server)),
            row,
            retried: RefCell::default(),
        })
    }

    /// The statement id of the statement at index `at`.
    pub fn id(&self, at: usize) -> i32 {
        self.row.as_ref().map_or(at as i32, |(_, ids)| ids[at])
    }

    /// The stored result of the statement at index `at`, if it was executed before. Its id is then
    /// added to `retriedStmtIds`.
    pub fn outcome(&self, at: usize) -> Option<Outcome> {
        let (row, ids) = self.row.as_ref()?;
        let outcome = row.outcome(ids[at])?;
        self.retried.borrow_mut().push(ids[at]);
        Some(Outcome(outcome))
    }

    /// Whether the statement at index `at` was executed before; records its id as `outcome` does.
    pub fn is_done(&self, at: usize) -> bool {
        self.outcome(at).is_some()
    }

    /// Sets the statements that the following writes belong to, by index.
    /// Errors: those that `onPrimaryTransactionalWrite` configures.
    pub fn set_current(
        &self,
        cx: &mut CommandContext<'_>,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<(), Error> {
        let Some((row, ids)) = &self.row else {
            return Ok(());
        };
        let current: Vec<i32> = places.into_iter().map(|at| ids[at]).collect();
        if cx.server.fail_points.is_any_on() {
            failing::transactional_write(cx, current.len())?;
        }
        row.set_current(current);
        Ok(())
    }

    /// Rejects a multi-document statement in a retryable write.
    pub fn refuse_multi(&self, multi: bool) -> Result<(), Error> {
        match multi && self.row.is_some() {
            true => Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                "Cannot use retryable writes with multi=true or limit=0",
            )),
            false => Ok(()),
        }
    }

    /// Appends `retriedStmtIds`, the statements that had been executed before.
    pub fn append(&self, out: &mut DocBuilder) {
        append_retried(&self.retried.borrow(), out);
    }
}

impl Outcome {
    /// Documents changed.
    pub fn modified(&self) -> u64 {
        let n = self.0.get("nModified").and_then(|n| n.as_i64_exact());
        n.unwrap_or(0).unsigned_abs()
    }

    /// The `_id` of the document that an upsert inserted.
    pub fn upserted(&self) -> Option<Value> {
        self.0.get("upserted").map(RawValue::to_value)
    }

    /// The document that findAndModify returned.
    pub fn value(&self) -> Option<RawDoc<'_>> {
        match self.0.get("value") {
            Some(RawValue::Document(doc)) => Some(doc),
            _ => None,
        }
    }
}
