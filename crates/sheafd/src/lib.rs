//! The server: connections, commands, sessions, log.

pub mod log;
pub mod net;
