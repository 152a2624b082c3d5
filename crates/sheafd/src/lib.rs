//! The server program: sockets, command line, configuration file, signals.
//!
//! `sheaf-server` carries out the requests.

pub mod config;
pub mod net;
pub mod process;
pub mod program;
pub mod service;
pub mod startup;
pub mod tls;

pub use sheaf_server::VERSION;

/// The output of `--version`.
///
/// The second line is in the form of `mongod`: test tools that start a server read the version
/// of MongoDB from it.
pub fn version_text() -> String {
    let compatible = sheaf_server::command::build_info::COMPATIBLE_VERSION;
    format!("sheafd version {VERSION}\ndb version v{compatible}")
}
