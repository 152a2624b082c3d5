//! The crate's integration tests: one binary.

mod contract;
mod crash;
mod differential;
mod durable;
mod engines;
mod format;
mod loading;
mod logtree_crash;
mod logtree_engine;
mod logtree_kill;
mod logtree_threads;
mod model;
mod tree;
mod tree_cut;
mod tree_faults;
mod tree_space;
mod unit;
mod versions;
