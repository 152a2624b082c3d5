//! Catalog changes: collections, views, indexes, and their options.
//!
//! ```text
//!   command ─> database lock ─ checks ─ exclusive intent ─ unit: rows + tables ─ commit, publish   (catalog/)
//! ```
//!
//! Invariant: nothing outside this folder changes a collection's shape, except collections that a
//! transaction creates, and multikey paths.

pub mod capped_copy;
pub mod clustered;
pub mod coll_mod;
pub mod create;
pub mod drop;
pub mod index_build;
pub mod indexes;
pub mod rename;
pub mod search_indexes;
pub mod timeseries;
pub mod views;
