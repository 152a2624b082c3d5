//! The server: connections, commands, sessions, log.
