//! Ordered byte keys with snapshots and atomic batches, and the engines behind that trait.
//!
//! ```text
//!   sheaf-db
//!      │  WriteUnitOfWork: snapshot + own writes + locks       unit.rs
//!      ▼
//!   Storage ── StorageEngine ──┬── MemoryEngine                memory.rs (the specification)
//!                              ├── RedbEngine                  disk/redb.rs (durable)
//!                              └── SheafEngine                 disk/sheaf.rs (our own: durable, concurrent)
//! ```
//!
//! For tests there are `checked.rs`, which watches any engine keep the contract, and `fault.rs`, a
//! disk that loses and tears what was not synced.
//!
//! Keys and values are bytes; what they mean is known above. An engine knows batches and snapshots
//! only; locks, conflicts and reading one's own writes are built once, above all engines.

mod batch;
pub mod checked;
mod disk;
mod engine;
mod error;
pub mod fault;
mod memory;
mod unit;

pub use batch::{KeyChange, KeyRanges, KeyWrite, Prior, TableFate, TableWrites, WriteBatch};
pub use disk::{
    Recovery, RedbEngine, RedbOptions, Repaired, SheafEngine, SheafOptions, TornTail, budget,
    files, repair, tree, verify_files,
};
pub use engine::{
    CommitSeq, Cursor, Durability, EngineStats, Finding, MemoryStats, MemoryUse, Snapshot,
    StorageEngine, TableId, TableStats,
};
pub use error::{Result, StorageError};
pub use memory::MemoryEngine;
pub use unit::{LockMode, LockStats, Savepoint, Storage, WriteUnitOfWork};
