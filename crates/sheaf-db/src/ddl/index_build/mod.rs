//! Index builds, beside reads and writes.
//!
//! ```text
//!   begin   exclusive intent: rows say `ready: false`, tables made, writers told of the build
//!   scan    a snapshot's documents ── keys ──> external sort ──> bulk load
//!   drain   what writers noted meanwhile is applied, until little is left
//!   end     exclusive intent: the rest applied, unique keys looked at again, rows say ready
//! ```
//!
//! From `begin` on, a writer's unit notes in the build's scratch table which keys its documents lose and
//! gain: in the same unit, so a note is there exactly when the write is. Per record the notes are in the
//! order of the writes, since a record's writers exclude each other; so applying them to the keys of any
//! snapshot taken after `begin` gives the keys of now.
//!
//! A build that fails, is killed or dies with the server leaves nothing: tables and rows go, then or when
//! the server starts again.
//!
//! A document that the new index refuses (parallel arrays) is refused from `begin` on. Uniqueness is
//! different: writers meet no error while a build is on, and duplicates that are still there at its end
//! fail it.

mod create;
pub(crate) mod external_sort;
mod load;
mod rebuild;
pub(crate) mod run;
pub(crate) mod vector_training;

pub use create::{ALL_INDEXES_EXIST, CreateIndexesResult};
pub use rebuild::{RebuiltCollection, make_missing_tables};
