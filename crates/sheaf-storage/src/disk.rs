//! Engines that keep their data in files.

mod backend;
mod group;
mod redb;
mod redb_view;

pub use self::redb::{RedbEngine, RedbOptions};
