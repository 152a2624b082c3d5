//! The server program: sockets, command line, configuration file, signals.
//!
//! What answers a request is in `sheaf-server`.

pub mod config;
pub mod net;
pub mod process;
pub mod service;
pub mod startup;

pub use sheaf_server::VERSION;

/// What `--version` prints.
pub fn version_text() -> String {
    format!("sheafd version {VERSION}")
}
