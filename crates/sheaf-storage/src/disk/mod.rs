//! Engines that keep their data in files.

pub mod logtree;
pub mod redb;
