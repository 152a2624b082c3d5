//! Tests that speak to a server over a socket, all in one binary.
//!
//! Most start the real `sheafd` (see [`server`]); those of the network layer
//! alone run it in this process with a service of their own (see [`echo`]).

mod bad_commands;
mod bad_writes;
mod bombs;
mod bulk_write;
mod causal;
mod client;
mod compact;
mod compat;
mod differential;
mod durable_definitions;
mod echo;
mod histories;
mod idle_cursors;
mod manual;
mod net;
mod observed;
mod operations;
mod process;
mod refusals;
mod register_histories;
mod repair;
mod server;
mod session_codes;
mod transaction_memory;
mod transactions;
mod wire;
mod write_commands;
mod write_cost;
