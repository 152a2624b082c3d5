//! Writes: store documents as records and index entries, in units of work.
//!
//! ```text
//!   insert ─┐                                             ┌─ record put / deleted
//!   update ─┼─> WriteUnitOfWork (unit.rs) ─ lock record ──┼─ index entries (index_maintenance.rs)
//!   delete ─┘     commit, or retry                        └─ counters of the operation
//! ```
//!
//! [`insert`], [`update`] and [`delete`] execute single statements: many documents per unit, of
//! bounded size; each document is written whole or not at all. [`retry`] handles all conflicts with
//! other writers.

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
    /// Id of the record.
    pub id: RecordId,
    /// The document as of the match.
    pub document: Bytes,
}

/// A source of a statement's matches: a plan on a separate snapshot.
pub trait RecordSource {
    /// Returns the next match; `None` at the end.
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>>;
}

impl<F: FnMut(&OpContext) -> Result<Option<MatchedRecord>>> RecordSource for F {
    fn next(&mut self, op: &OpContext) -> Result<Option<MatchedRecord>> {
        self(op)
    }
}

/// Maximum number of documents per unit of work.
pub(crate) const UNIT_DOCUMENTS_MAX: usize = 1000;
/// Maximum number of bytes per unit of work.
pub(crate) const UNIT_BYTES_MAX: u64 = 4 << 20;

/// Matches collected before any of them is written, so that no lock is held while a plan searches,
/// which may take long.
struct Gathered {
    records: Vec<MatchedRecord>,
    /// Set if the plan ended, or failed with an error to report once these are written.
    end: Option<Result<()>>,
}

/// Maximum time for collecting matches before they are written.
const GATHER_TIME_MAX: Duration = Duration::from_millis(20);

impl Gathered {
    /// Collects matches from the plan: one, or with `multi` as many as fit a unit of work.
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

/// Whether an error ends the whole operation rather than the write of one document.
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
