//! Workloads and comparisons; the only place that knows another engine.

pub mod control_group;
pub mod engines;
pub mod load;
pub mod measure;
pub mod null_server;
pub mod sheafd;
