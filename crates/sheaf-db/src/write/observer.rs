//! Reports changes from the write path and DDL to observers.
//!
//! ```text
//!   unit of work   changed(Change) ─┐
//!                  ddl(DdlChange) ──┼─> OpObserver ─ prepare ─> Ticket ─ commit ─ committed(CommitSeq)
//!                  outcome(..) ─────┘    │     │
//!   DDL            observe_ddl ──────────┘     └─ added to the same batch: oplog entries, session row
//! ```
//!
//! There are two observers: the oplog ([`crate::oplog::observer`]) and the session's row
//! ([`crate::write::session_row`]). The rest of the write path and DDL depend on neither. The
//! oplog's representation of a commit can therefore change, for instance from entries in a table to
//! a part of the engine's log.
//!
//! While the oplog is off, a change costs one branch.

use std::sync::Arc;

use sheaf_bson::{DocBuf, Result, Value};
use sheaf_storage::{CommitSeq, StorageTransaction};

use crate::change::{Change, DdlChange};
use crate::collection::Collection;
use crate::database::Db;
use crate::oplog::Reservation;
use crate::oplog::observer::{OplogMark, OplogNotes};
use crate::session_row::upsert_outcome;
use crate::statement::StatementContext;
use crate::write::session_row::{RowWritten, SessionNotes};
use crate::write::unit::WriteUnitOfWork;

/// The effect of a statement on a document, recorded for a session that may retry.
#[derive(Clone, Copy)]
pub(crate) enum StatementOutcome<'a> {
    /// The document at this position of the statement was inserted.
    Inserted(usize),
    /// A document was changed or deleted (then `modified` is false); with the document to return.
    Wrote {
        modified: bool,
        returned: Option<&'a DocBuf>,
    },
}

/// Changes of one unit of work that are reported and not yet committed.
pub(crate) struct OpObserver {
    oplog: OplogNotes,
    session: SessionNotes,
}

/// A point in a unit's reports to which it can roll back.
#[derive(Clone, Copy)]
pub(crate) struct ObserverMark(OplogMark);

impl OpObserver {
    /// Must be called before the unit's snapshot is taken.
    pub(crate) fn begin(db: &Arc<Db>) -> OpObserver {
        OpObserver {
            oplog: OplogNotes::begin(db),
            session: SessionNotes::default(),
        }
    }

    /// Reports a change of a document.
    #[inline]
    pub(crate) fn changed(&mut self, collection: &Collection, change: Change<'_>) {
        if self.oplog.is_on() {
            self.oplog.changed(collection, change);
        }
    }

    /// Reports a catalog change that takes effect when the unit commits.
    pub(crate) fn ddl(&mut self, db: &Db, change: DdlChange<'_>) -> Result<()> {
        if self.oplog.is_on() {
            self.oplog.ddl(db, change)?;
        }
        Ok(())
    }

    /// Memory held by the reports, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.oplog.bytes()
    }

    pub(crate) fn mark(&self) -> ObserverMark {
        ObserverMark(self.oplog.mark())
    }

    /// Discards the reports since `mark`.
    pub(crate) fn rollback_to(&mut self, mark: ObserverMark) {
        self.oplog.rollback_to(mark.0);
    }

    pub(crate) fn session(&mut self) -> &mut SessionNotes {
        &mut self.session
    }
}

/// What observers added to a commit. If dropped without [`Ticket::committed`], the commit failed or
/// its outcome does not matter to a session.
#[must_use]
pub(crate) struct Ticket<'d> {
    row: Option<RowWritten>,
    /// Blocks readers of the oplog from passing it. Dropped last.
    reservation: Option<Reservation<'d>>,
}

impl Ticket<'_> {
    /// Called when the commit is visible, as the engine's batch `seq`.
    pub(crate) fn committed(self, _seq: CommitSeq) {
        if let Some(row) = self.row {
            row.committed();
        }
        drop(self.reservation);
    }
}

impl WriteUnitOfWork {
    /// Records the outcome of the statement for its session, effective when the unit commits.
    #[inline]
    pub(crate) fn record_outcome(&mut self, op: &StatementContext, outcome: StatementOutcome<'_>) {
        if let Some(row) = op.session_row() {
            self.observer.session().record(row, outcome);
        }
    }

    /// Adds the observers' data to the unit's batch. The unit must not be written to afterwards.
    pub(crate) fn prepare<'d>(
        &mut self,
        db: &'d Db,
        op: &StatementContext,
        transaction: bool,
    ) -> Result<Ticket<'d>> {
        let row = self.put_session_row(op)?;
        let reservation =
            self.observer
                .oplog
                .prepare(db, &mut self.storage, op.write_origin(), transaction);
        if reservation.is_none() && !self.storage.is_empty() {
            db.tick_without_entry();
        }
        Ok(Ticket { row, reservation })
    }
}

impl Db {
    /// Adds the observers' data on DDL to the unit that executes it. `changes` is consumed only
    /// while the oplog is on.
    pub(crate) fn observe_ddl<'c>(
        &self,
        unit: &mut StorageTransaction,
        changes: impl IntoIterator<Item = DdlChange<'c>>,
    ) -> Result<Ticket<'_>> {
        let reservation = match self.oplog().is_on() {
            true => self.log_ddl(unit, &mut changes.into_iter())?,
            false => {
                self.tick_without_entry();
                None
            }
        };
        Ok(Ticket {
            row: None,
            reservation,
        })
    }
}

/// Announces that the statement is about to insert the document of an upsert (`Some`: its `_id`,
/// and the document to return), or has done so (`None`).
pub(crate) fn set_upserting(op: &StatementContext, upsert: Option<(&Value, Option<&DocBuf>)>) {
    if let Some(row) = op.session_row() {
        row.set_upserting(upsert.map(|(id, returned)| upsert_outcome(id, returned)));
    }
}
