//! What lives longer than one command: client cursors, operations in
//! progress, logical sessions.

pub mod cursors;
pub mod leftovers;
pub mod logical;
pub mod operations;

/// Minutes that an idle logical session lives.
pub const SESSION_TIMEOUT_MINUTES: i32 = 30;
