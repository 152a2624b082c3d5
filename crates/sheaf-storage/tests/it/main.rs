//! The crate's integration tests: one binary.

mod contract;
mod crash;
mod differential;
mod engines;
mod model;
mod unit;
