//! Tests that connect to a server over a socket, in one binary.
//!
//! Most start the real `sheafd` (see [`server`]); those of the network layer run it in this process
//! with a test service (see [`echo`]).

mod access;
mod bombs;
mod bulk_write;
mod certificates;
mod client;
mod compat;
mod durable_definitions;
mod echo;
mod histories;
mod manual;
mod net;
mod observed;
mod operations;
mod process;
mod redaction;
mod register_histories;
mod repair;
mod server;
mod tls;
mod tls_handshakes;
mod tls_server;
mod wire;
mod write_commands;
