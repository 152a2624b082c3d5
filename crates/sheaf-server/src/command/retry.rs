//! A write command that may have been carried out before: which of its statements were, and what they answered.
//!
//! See [`sheaf_db::session_row`] for how that is remembered.

use std::cell::RefCell;
use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Value};
use sheaf_db::session_row::SessionRow;

use super::context::CommandContext;
use super::transaction::{append_retried, statement_ids};

/// The statements of one command; without a transaction number there is nothing to it.
pub struct Retry {
    row: Option<(Arc<SessionRow>, Vec<i32>)>,
    retried: RefCell<Vec<i32>>,
}

/// What a statement answered when it was carried out.
pub struct Outcome(DocBuf);

impl Retry {
    /// For a command of so many statements.
    /// Errors: `stmtId` or `stmtIds` do not fit them.
    pub fn begin(cx: &CommandContext<'_>, statements: usize) -> Result<Retry, Error> {
        let row = match cx.op.session_row() {
            Some(row) => Some((row.clone(), statement_ids(cx.body, statements)?)),
            None => None,
        };
        Ok(Retry {
            row,
            retried: RefCell::default(),
        })
    }

    /// The number of the statement at this place.
    pub fn id(&self, at: usize) -> i32 {
        self.row.as_ref().map_or(at as i32, |(_, ids)| ids[at])
    }

    /// What the statement at this place answered, if it was carried out before.
    pub fn outcome(&self, at: usize) -> Option<Outcome> {
        let (row, ids) = self.row.as_ref()?;
        let outcome = row.outcome(ids[at])?;
        self.retried.borrow_mut().push(ids[at]);
        Some(Outcome(outcome))
    }

    /// Whether the statement at this place was carried out before.
    pub fn is_done(&self, at: usize) -> bool {
        self.outcome(at).is_some()
    }

    /// Says which statements the writes to come are.
    pub fn set_current(&self, places: impl IntoIterator<Item = usize>) {
        if let Some((row, ids)) = &self.row {
            row.set_current(places.into_iter().map(|at| ids[at]).collect());
        }
    }

    /// What changes many documents cannot be asked for again.
    pub fn refuse_multi(&self, multi: bool) -> Result<(), Error> {
        match multi && self.row.is_some() {
            true => Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                "Cannot use retryable writes with multi=true or limit=0",
            )),
            false => Ok(()),
        }
    }

    /// Appends which statements had been carried out before.
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

    /// The document that findAndModify answered with.
    pub fn value(&self) -> Option<RawDoc<'_>> {
        match self.0.get("value") {
            Some(RawValue::Document(doc)) => Some(doc),
            _ => None,
        }
    }
}
