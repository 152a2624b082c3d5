//! Workloads, and comparisons with other engines.
//!
//! ```text
//!   engines         one interface to our engines, redb and LMDB, and the documents they store
//!   load            requests to a server over TCP, measured in server CPU time
//!   null_server     a minimal server, the baseline of `load`
//!   sheafd          starts a server and runs commands on it
//!   control_group   limits a child process's memory
//!   measure         CPU time, memory, I/O; median and percentiles
//! ```
//!
//! The programs in `bin/`, by what they measure:
//!
//! ```text
//!   server          workloads, transactions, endings, memory_limit, threading
//!   database        clustered, examined, planning, time_series, write_cost
//!   storage engine  engines, engine_life, storage_bench, tree_bench
//! ```
//!
//! `aggregation/compare.py` compares pipelines on a server with PostgreSQL and DuckDB.

pub mod control_group;
pub mod engines;
pub mod load;
pub mod measure;
pub mod null_server;
pub mod sheafd;
