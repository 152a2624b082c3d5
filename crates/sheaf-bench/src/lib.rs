//! Workloads and comparisons; the only place that knows another engine.

pub mod load;
pub mod null_server;
