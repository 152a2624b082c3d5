//! Engines that store their data in files.

pub mod logtree;
pub mod redb;
