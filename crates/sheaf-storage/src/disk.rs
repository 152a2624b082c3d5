//! Engines that keep their data in files.

mod group;
mod redb;
mod sheaf;

pub use self::redb::{RedbEngine, RedbOptions};
pub use self::sheaf::{
    Recovery, Repaired, SheafEngine, SheafOptions, TornTail, budget, files, repair, tree,
    verify_files,
};
