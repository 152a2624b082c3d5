//! Tests of the server in this process: no socket, no child process.

mod administration;
mod arguments;
mod bad_commands;
mod bad_writes;
mod borders;
mod causal;
mod client;
mod command_table;
mod compact;
mod differential;
pub mod explained;
mod fail_points;
mod idle_cursors;
mod in_process;
mod javascript;
mod logins;
mod manual;
mod privileges;
mod query_settings;
mod query_stats;
mod refusals;
mod server;
mod session_codes;
mod time_series;
mod transaction_memory;
mod transactions;
mod write_cost;
