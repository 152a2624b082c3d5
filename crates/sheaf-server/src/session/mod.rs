//! What lives longer than one command: client cursors, operations in
//! progress, logical sessions.

pub mod cursors;
pub mod leftovers;
pub mod logical;
pub mod operations;
