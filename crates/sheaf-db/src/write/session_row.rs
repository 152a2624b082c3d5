//! Writes the outcome of a session's statement to the session's row, within the unit of work.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, Error, ErrorCode, RecordId, Result};

use crate::catalog::namespace::Namespace;
use crate::index::modified::Modified;
use crate::session_row::{Remembered, SessionRow, update_outcome};
use crate::statement::StatementContext;
use crate::system_names::TRANSACTIONS_NAMESPACE;
use crate::write::observer::StatementOutcome;
use crate::write::unit::WriteUnitOfWork;

/// Maximum size of a session's row, in bytes. Outcomes hold the `_id` of upserted documents and the
/// documents that findAndModify returns, so a row may be larger than a client's document.
const ROW_BYTES_MAX: usize = 48_000_000;

impl WriteUnitOfWork {
    /// Writes the recorded outcomes of the unit to its session's row. The caller passes the result
    /// to the session after the commit.
    pub(crate) fn put_session_row(&mut self, op: &StatementContext) -> Result<Option<RowWritten>> {
        let remembered = self.observer.session().take();
        let Some(row) = op.session_row().filter(|_| !remembered.is_empty()) else {
            return Ok(None);
        };
        let ns = Namespace::parse(TRANSACTIONS_NAMESPACE)?;
        let Some(slot) = self.open(op, &ns, None)? else {
            return Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("{TRANSACTIONS_NAMESPACE} was dropped while a session was writing"),
            ));
        };
        let (doc, stored) = row.row_with(&remembered);
        if doc.as_bytes().len() > ROW_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::BSON_OBJECT_TOO_LARGE,
                format!(
                    "the outcomes of the statements with one txnNumber exceed {ROW_BYTES_MAX} bytes; \
                     send fewer statements in one retryable write"
                ),
            ));
        }
        // The row does not count towards the statement's documents.
        let stats = self.stats;
        let id = match stored {
            Some((id, old)) if self.document(slot, &id)?.is_some() => {
                let unchanged = |_: &FieldPath| false;
                let modified = Modified::Paths(&unchanged);
                // No base: the row is not locked.
                let new = doc.as_bytes().to_vec().into();
                self.update_of_any_size(op, slot, &id, old.as_raw(), None, &new, modified)?;
                id
            }
            _ => self.insert(op, slot, Bytes::copy_from_slice(doc.as_bytes()))?,
        };
        self.stats = stats;
        Ok(Some(RowWritten {
            row: row.clone(),
            remembered,
            stored: (id, doc),
        }))
    }
}

/// Outcomes that a unit of work records for the session when it commits.
#[derive(Default)]
pub(crate) struct SessionNotes(Vec<Remembered>);

impl SessionNotes {
    /// Records that a statement of the session wrote a document.
    pub(crate) fn record(&mut self, row: &SessionRow, outcome: StatementOutcome<'_>) {
        let remembered = match outcome {
            StatementOutcome::Inserted(at) => row.remembered_insert(at),
            StatementOutcome::Wrote { modified, returned } => row
                .current(0)
                .map(|id| Remembered::Outcome(id, update_outcome(modified, returned))),
        };
        self.0.extend(remembered);
    }

    /// Records that the unit commits a transaction of the session.
    pub(crate) fn transaction_commits(&mut self) {
        self.0.push(Remembered::Committed);
    }

    fn take(&mut self) -> Vec<Remembered> {
        std::mem::take(&mut self.0)
    }
}

/// A session's row, in a unit about to commit.
pub(crate) struct RowWritten {
    row: Arc<SessionRow>,
    remembered: Vec<Remembered>,
    stored: (RecordId, DocBuf),
}

impl RowWritten {
    /// Called when the unit has committed.
    pub(crate) fn committed(self) {
        self.row.committed(&self.remembered, self.stored);
    }
}
