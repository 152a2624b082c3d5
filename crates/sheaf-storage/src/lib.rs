//! Ordered byte keys with snapshots and atomic batches, and the storage engines that implement
//! them.
//!
//! ```text
//!   sheaf-db
//!      │  StorageTransaction: snapshot + own writes + locks       unit/
//!      ▼
//!   Storage ── StorageEngine ──┬── MemoryEngine                memory.rs (the specification)
//!                              ├── RedbEngine                  disk/redb/ (durable)
//!                              └── LogTreeEngine               disk/logtree/ (durable, concurrent; the default)
//! ```
//!
//! `registry.rs` opens an engine by location. An engine that keeps files reaches them through the
//! traits of `folder.rs`. The feature `testing` adds `testing/`: an engine that checks another one
//! against the contract, and a simulated disk that fails and loses unsynced writes.
//!
//! Keys and values are bytes; their meaning is known only to the caller. An engine implements
//! batches and snapshots; locks, conflicts and reading one's own writes are built once, on top of
//! all engines.

mod batch;
mod disk;
mod engine;
mod error;
pub mod folder;
mod memory;
pub mod registry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unit;

pub use batch::{KeyChange, KeyRanges, KeyWrite, Prior, TableFate, TableWrites, WriteBatch};
pub use disk::logtree::{
    LogTreeEngine, LogTreeOptions, LogTreeStats, MemoryStats, MemoryUse, Recovery, Repaired,
    TornTail, budget, repair, tree, verify_files,
};
pub use disk::redb::{RedbEngine, RedbOptions};
pub use engine::{
    CommitSeq, Cursor, Durability, EngineStats, Finding, Snapshot, StorageEngine, TableId,
    TableStats,
};
pub use error::{Result, StorageError};
pub use memory::MemoryEngine;
pub use unit::{LockMode, LockStats, Savepoint, Storage, StorageTransaction};
