//! A copy of the newest state, and a walk through all of it, while the engine goes on.
//!
//! ```text
//!   checkpoint ─> roots, pinned ─┬─> backup: a tree of its own in another folder, and an empty log behind it
//!                                └─> verify: every page read and checked
//! ```

use std::sync::Arc;

use super::files::Folder;
use super::log::{LogOptions, Replay};
use super::open::TREE;
use super::tree::Roots;
use super::{Shared, SheafOptions};
use crate::engine::Finding;
use crate::error::{Result, StorageError};

impl Shared {
    /// See [`crate::StorageEngine::backup`].
    pub(super) fn backup(self: &Arc<Self>, to: Arc<dyn Folder>) -> Result<u64> {
        self.check_open()?;
        let names = to
            .list()
            .map_err(|error| StorageError::io("list the folder of the backup", &error))?;
        if let Some(name) = names.first() {
            return Err(StorageError::Io {
                context: format!("back up to {}", to.display(name)),
                kind: std::io::ErrorKind::AlreadyExists,
                message: "the folder is not empty; choose an empty one".into(),
            });
        }
        let _lock = to.lock()?;
        // An engine that writes no more is copied as of its last checkpoint.
        match self.checkpoint_now() {
            Ok(()) | Err(StorageError::ReadOnly { .. }) => {}
            Err(error) => return Err(error),
        }
        let roots = self.tree.roots();
        self.tree.backup(&roots, &to, TREE)?;
        // A log that begins behind the copy: without one the copy would pass for one whose log is lost.
        Replay::at(&to, roots.sequence()).begin(
            LogOptions {
                segment_bytes: SheafOptions::default().segment_bytes,
                buffer_bytes: 0,
                budget: self.budget.clone(),
            },
            (),
        )?;
        let names = to
            .list()
            .map_err(|error| StorageError::io("list the folder of the backup", &error))?;
        let length = |name: &String| to.open(name, false).and_then(|file| file.len());
        let lengths: std::io::Result<Vec<u64>> = names.iter().map(length).collect();
        let lengths = lengths.map_err(|error| StorageError::io("read the backup", &error))?;
        Ok(lengths.iter().sum())
    }

    /// See [`crate::StorageEngine::verify`].
    pub(super) fn verify(self: &Arc<Self>, progress: &mut dyn FnMut(f64)) -> Result<Vec<Finding>> {
        self.check_open()?;
        // What is only in the log is read again when the tree has it.
        match self.checkpoint_now() {
            Ok(()) | Err(StorageError::ReadOnly { .. } | StorageError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        verify_tree(&self.tree, &self.tree.roots(), progress)
    }
}

/// Walks through everything that the roots reach.
pub(super) fn verify_tree(
    tree: &super::tree::TreeFile,
    roots: &Arc<Roots>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Finding>> {
    // Pages differ in size; the part that is done is an estimate that ends with all.
    let disk: u64 = roots
        .tables()
        .filter_map(|table| roots.table(table))
        .map(|stats| stats.disk_bytes)
        .sum();
    let pages = (disk / 4096).max(1) as f64;
    let verified = tree.verify(roots, &mut |read| progress((read as f64 / pages).min(0.99)))?;
    progress(1.0);
    let findings = verified.findings.into_iter().map(|finding| Finding {
        file: finding.file,
        offset: Some(finding.offset),
        table: finding.table,
        detail: finding.detail,
    });
    Ok(findings.collect())
}
