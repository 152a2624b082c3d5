//! The server without sockets: commands, sessions, cursors, background jobs, metrics, the log.
//!
//! ```text
//!   sheafd: sockets, signals, options          a program: Session::run(db, command)
//!               │  Client, Traffic, Control               │
//!               └───────────────┬─────────────────────────┘
//!                            Server ── dispatch ──> command/ ──> sheaf-db
//!                               └── jobs::start: background jobs
//! ```
//!
//! Invariant: nothing here opens a socket, reads the command line or handles a signal, and no
//! thread starts before [`jobs::start`], except the log's writer.

pub mod access;
pub mod api_parameters;
mod assemble;
pub mod auto_compact;
pub mod client;
pub mod client_session;
pub mod cluster_parameters;
pub mod command;
pub mod command_facts;
pub mod connection;
pub mod control;
pub mod engine;
pub mod fail_points;
pub mod feature_compatibility;
pub mod guard;
pub mod host;
mod javascript;
pub mod jobs;
pub mod log;
pub mod observe;
pub mod op_report;
pub mod open;
pub mod parameters;
mod query_settings;
mod query_stats;
pub mod repl;
pub mod rw_concern_defaults;
pub mod server;
pub mod session;
pub mod settings;
mod stored;
pub mod traffic;
mod user_write_block;
pub mod write_concern;
pub mod write_gate;

pub use client::{Client, ClientState};
pub use client_session::Session;
pub use server::Server;
pub use settings::Settings;

/// The version of sheaf.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
