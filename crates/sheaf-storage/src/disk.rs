//! Engines that keep their data in files.

mod group;
mod redb;

pub use self::redb::{RedbEngine, RedbOptions};
