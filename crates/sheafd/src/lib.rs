//! The server program: sockets, command line, configuration file, signals.
//!
//! `sheaf-server` carries out the requests.

pub mod config;
pub mod net;
pub mod process;
pub mod service;
pub mod startup;

pub use sheaf_server::VERSION;

/// The output of `--version`.
pub fn version_text() -> String {
    format!("sheafd version {VERSION}")
}
