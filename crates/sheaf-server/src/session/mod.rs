//! State that outlives one command: client cursors, operations in progress, logical sessions.

pub mod cursors;
pub mod deferred_drops;
pub mod logical;
pub mod operations;

/// Minutes after which an idle logical session ends.
pub const SESSION_TIMEOUT_MINUTES: i32 = 30;
