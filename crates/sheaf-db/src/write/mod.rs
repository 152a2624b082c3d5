//! Writes: documents in, records and index entries out, in units of work.
//!
//! ```text
//!   insert ─┐                                       ┌─ record put / deleted
//!   update ─┼─> WriteUnitOfWork (unit.rs) ─ lock record ──┼─ index entries (index_maintenance.rs)
//!   delete ─┘     commit, or begin again            └─ counters of the operation
//! ```
//!
//! [`insert`], [`update`] and [`delete`] are the loops for single statements: many documents a unit, of bounded
//! size, each document all or nothing. Conflicts with other writers are met in one place, [`retry`].

pub(crate) mod capped;
pub mod delete;
pub mod document_rules;
pub(crate) mod index_maintenance;
pub mod insert;
pub(crate) mod observer;
mod record;
pub mod retry;
mod session_row;
pub mod unit;
pub mod update;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sheaf_bson::{Error, ErrorCode, RecordId, Result};

use crate::op_context::OpContext;

/// A document that a statement's filter matched.
#[derive(Debug, Clone)]
pub struct MatchedRecord {
    /// Its record.
    pub id: RecordId,
    /// The document as it was when it matched.
    pub document: Bytes,
}

/// Where a statement's matches come from: a plan that runs on a snapshot of its own.
pub trait RecordSource {
    /// The next match; `None` at the end.
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>>;
}

impl<F: FnMut(&OpContext) -> Result<Option<MatchedRecord>>> RecordSource for F {
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>> {
        self(op)
    }
}

/// Documents a unit of work takes before it is committed.
pub(crate) const UNIT_DOCUMENTS_MAX: usize = 1000;
/// Bytes a unit of work takes before it is committed.
pub(crate) const UNIT_BYTES_MAX: u64 = 4 << 20;

/// Matches that were looked for before any of them is written: so that no lock is held while a plan
/// searches, which may take long.
struct Gathered {
    records: Vec<MatchedRecord>,
    /// The plan has no more, or ended in an error that is to be told when these are written.
    end: Option<Result<()>>,
}

/// How long matches are gathered before they are written.
const GATHER_TIME_MAX: Duration = Duration::from_millis(20);

impl Gathered {
    /// Takes matches from the plan: one, or for `multi` as many as a unit of work takes.
    fn from(records: &mut dyn RecordSource, op: &OpContext, multi: bool) -> Gathered {
        let began = Instant::now();
        let (documents_max, mut bytes) = (if multi { UNIT_DOCUMENTS_MAX } else { 1 }, 0);
        let mut gathered = Gathered {
            records: Vec::new(),
            end: None,
        };
        while gathered.records.len() < documents_max
            && bytes < UNIT_BYTES_MAX
            && (gathered.records.is_empty() || began.elapsed() < GATHER_TIME_MAX)
        {
            match records.next(op) {
                Ok(Some(record)) => {
                    bytes += record.document.len() as u64;
                    gathered.records.push(record);
                }
                end => {
                    gathered.end = Some(end.map(|_| ()));
                    break;
                }
            }
        }
        gathered
    }
}

/// Whether an error says that the whole operation must end, not only the write of one document.
pub fn ends_operation(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::INTERRUPTED
            | ErrorCode::INTERRUPTED_AT_SHUTDOWN
            | ErrorCode::MAX_TIME_MS_EXPIRED
            | ErrorCode::CLIENT_DISCONNECT
            | ErrorCode::SHUTDOWN_IN_PROGRESS
            | ErrorCode::OUT_OF_DISK_SPACE
            | ErrorCode::OPERATION_FAILED
            | ErrorCode::DATA_CORRUPTION_DETECTED
            | ErrorCode::QUERY_PLAN_KILLED
            | ErrorCode::INTERNAL_ERROR
    )
}
