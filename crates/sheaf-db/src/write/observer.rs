//! What the write path and DDL report of their changes.
//!
//! ```text
//!   unit of work   changed(Change) ─┐
//!                  ddl(DdlChange) ──┼─> OpObserver ─ prepare ─> Ticket ─ commit ─ committed(CommitSeq)
//!                  outcome(..) ─────┘    │     │
//!   DDL            observe_ddl ──────────┘     └─ into the same batch: entries of the oplog,
//!                                                 the session's row
//! ```
//!
//! Two parts listen: the oplog ([`crate::oplog::observer`]) and the session's row
//! ([`crate::write::session_row`]). The rest of the write path and DDL name neither. What the oplog keeps of a commit can
//! so change from an entry in a table to a part of the engine's log.
//!
//! While the oplog is off a change costs one branch.

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

/// What a statement did to a document, for a session that may ask again.
#[derive(Clone, Copy)]
pub(crate) enum StatementOutcome<'a> {
    /// The document at this place of the statement was inserted.
    Inserted(usize),
    /// A document was changed, or deleted (`modified` is false); with the document to return.
    Wrote {
        modified: bool,
        returned: Option<&'a DocBuf>,
    },
}

/// What one unit of work has reported and not committed.
pub(crate) struct OpObserver {
    oplog: OplogNotes,
    session: SessionNotes,
}

/// A point within a unit's reports to go back to.
#[derive(Clone, Copy)]
pub(crate) struct ObserverMark(OplogMark);

impl OpObserver {
    /// Before the unit's snapshot is taken.
    pub(crate) fn begin(db: &Arc<Db>) -> OpObserver {
        OpObserver {
            oplog: OplogNotes::begin(db),
            session: SessionNotes::default(),
        }
    }

    /// A document of a collection changes in the unit.
    #[inline]
    pub(crate) fn changed(&mut self, collection: &Collection, change: Change<'_>) {
        if self.oplog.is_on() {
            self.oplog.changed(collection, change);
        }
    }

    /// The unit changes the catalog when it commits.
    pub(crate) fn ddl(&mut self, db: &Db, change: DdlChange<'_>) -> Result<()> {
        if self.oplog.is_on() {
            self.oplog.ddl(db, change)?;
        }
        Ok(())
    }

    /// Bytes that the reports take in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.oplog.bytes()
    }

    pub(crate) fn mark(&self) -> ObserverMark {
        ObserverMark(self.oplog.mark())
    }

    /// Forgets what was reported since.
    pub(crate) fn rollback_to(&mut self, mark: ObserverMark) {
        self.oplog.rollback_to(mark.0);
    }

    pub(crate) fn session(&mut self) -> &mut SessionNotes {
        &mut self.session
    }
}

/// What observers have put into a commit. Dropped without [`Ticket::committed`], the commit failed or
/// its outcome does not matter to a session.
#[must_use]
pub(crate) struct Ticket<'d> {
    row: Option<RowWritten>,
    /// Readers of the oplog wait for it. Dropped last.
    reservation: Option<Reservation<'d>>,
}

impl Ticket<'_> {
    /// The commit is visible, as the engine's batch of this number.
    pub(crate) fn committed(self, _seq: CommitSeq) {
        if let Some(row) = self.row {
            row.committed();
        }
        drop(self.reservation);
    }
}

impl WriteUnitOfWork {
    /// Has the session record, when the unit commits, what the statement did.
    #[inline]
    pub(crate) fn record_outcome(&mut self, op: &StatementContext, outcome: StatementOutcome<'_>) {
        if let Some(row) = op.session_row() {
            self.observer.session().record(row, outcome);
        }
    }

    /// Puts what observers keep of the unit into its batch. Nothing may be written after that.
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
    /// Puts what observers keep of DDL into the unit that carries it out. The changes are only looked at
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

/// The statement is about to insert the document of an upsert (`Some`: its `_id`, and the document to
/// return), or has done so.
pub(crate) fn set_upserting(op: &StatementContext, upsert: Option<(&Value, Option<&DocBuf>)>) {
    if let Some(row) = op.session_row() {
        row.set_upserting(upsert.map(|(id, returned)| upsert_outcome(id, returned)));
    }
}
