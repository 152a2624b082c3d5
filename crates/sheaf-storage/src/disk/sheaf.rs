//! The engine of our own: a log, memtables, and a copy-on-write tree of pages in one file.
//!
//! ```text
//!  writers ──> log (group commit) ──> memtable ── ack
//!                                        │  full or old
//!                                        v
//!                frozen generations ──> checkpointer ──> page tree
//!  readers ──> snapshot = (visible sequence, [memtable, frozen..., roots of the tree])
//! ```

pub mod budget;
pub mod files;
mod log;
#[allow(dead_code, unused_imports, reason = "for the engine above them")]
mod memtable;
mod random;
pub mod tree;
#[allow(dead_code, unused_imports, reason = "for the engine above them")]
mod view;
