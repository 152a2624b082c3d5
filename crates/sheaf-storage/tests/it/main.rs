//! The crate's integration tests: one binary.

mod contract;
mod engines;
mod unit;
