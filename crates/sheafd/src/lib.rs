//! The server: connections, commands, sessions, log.

pub mod command;
pub mod config;
pub mod engine;
pub mod log;
pub mod memory_monitor;
pub mod net;
pub mod observe;
pub mod open;
pub mod parameters;
pub mod passes;
pub mod process;
pub mod repl;
pub mod server;
pub mod session;
pub mod startup;
pub mod storage_monitor;
pub mod ttl_monitor;
pub mod vector_monitor;

/// The version of sheaf.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `--version` prints.
pub fn version_text() -> String {
    format!("sheafd version {VERSION}")
}
