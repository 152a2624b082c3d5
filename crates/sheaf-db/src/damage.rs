//! Damage found in stored data: the operation fails, and the log names the collection once.
//!
//! ```text
//!   bytes of a record that are not a document   RawDoc::stored ──────┐
//!   an index entry whose record does not exist  [`missing_record`] ──┼─> Collection::report_damage
//!   a key in a collection's table that is not   [`not_a_record_id`] ─┘     ├─ "<ns> :: caused by :: .." to the client
//!     a record id, an index entry that is not                              └─ DbEvent::DamageFound, once
//!     a key
//! ```
//!
//! Invariant: damage never reads as an empty document or as a record that does not exist. An index
//! and the records are read through one snapshot, so an entry without its record cannot come from a
//! concurrent delete.

use std::sync::atomic::AtomicBool;

use sheaf_bson::{Error, ErrorCode, RecordId};

use crate::events::Events;

/// Whether damage of one collection was logged, and where to log it.
#[derive(Debug, Default)]
pub struct DamageReports {
    pub(crate) events: Events,
    pub(crate) logged: AtomicBool,
}

impl DamageReports {
    /// Nothing was logged yet; the first damage is sent to `events`.
    pub(crate) fn to(events: &Events) -> DamageReports {
        DamageReports {
            events: events.clone(),
            logged: AtomicBool::new(false),
        }
    }
}

/// The error of an entry of `index` that refers to a record which does not exist.
#[cold]
pub(crate) fn missing_record(index: &str, id: &RecordId) -> Error {
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!(
            "{index} has an entry for record {id}, which does not exist; run validate on the collection"
        ),
    )
}

/// The error of a key in a collection's table that is not a record id.
#[cold]
pub(crate) fn not_a_record_id(key: &[u8]) -> Error {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!("the key {hex} of a record is not a record id; run validate on the collection"),
    )
}

/// `error`, of the record with this id.
#[cold]
pub(crate) fn in_record(error: Error, id: &RecordId) -> Error {
    error.with_context(format_args!("record {id}"))
}
