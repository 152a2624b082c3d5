//! The crate's integration tests: one binary.

mod contract;
mod crash;
mod differential;
mod durable;
mod engines;
mod format;
mod loading;
mod model;
mod sheaf_crash;
mod sheaf_engine;
mod sheaf_kill;
mod sheaf_threads;
mod tree;
mod tree_cut;
mod tree_faults;
mod tree_space;
mod unit;
mod versions;
