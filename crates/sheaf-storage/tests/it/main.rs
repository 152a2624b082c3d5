//! The crate's integration tests: one binary.

mod contract;
mod unit;
