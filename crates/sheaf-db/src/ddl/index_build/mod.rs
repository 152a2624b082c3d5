//! Index builds, concurrent with reads and writes.
//!
//! ```text
//!   begin   exclusive intent: rows say `ready: false`, tables created, writers see the build
//!   scan    a snapshot's documents ── keys ──> external sort ──> bulk load
//!   drain   side writes recorded meanwhile are applied, until few are left
//!   end     exclusive intent: the rest applied, suspected duplicates rechecked, rows say ready
//! ```
//!
//! From `begin` on, a writer's unit records in the build's scratch table which keys its documents
//! lose and gain: in the same unit, so a side write exists exactly when the write does. Per record,
//! side writes are in the order of the writes, since writers of one record exclude each other.
//! Applying them to the keys of any snapshot taken after `begin` therefore produces the current
//! keys.
//!
//! A build that fails, is killed or dies with the server leaves nothing: its tables and rows are
//! removed, immediately or at the next start.
//!
//! A document that the new index rejects (parallel arrays) is rejected from `begin` on. Uniqueness
//! is different: writers see no error during a build, and duplicates that remain at its end fail
//! it.

mod create;
pub(crate) mod external_sort;
mod load;
mod rebuild;
pub(crate) mod run;
pub(crate) mod vector_training;

pub use create::{ALL_INDEXES_EXIST, CreateIndexesResult};
pub use rebuild::{RebuiltCollection, make_missing_tables};
