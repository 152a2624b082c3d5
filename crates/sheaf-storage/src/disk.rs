//! Engines that keep their data in files.

mod group;
mod redb;
mod sheaf;

pub use self::redb::{RedbEngine, RedbOptions};
pub use self::sheaf::{budget, files, tree};
