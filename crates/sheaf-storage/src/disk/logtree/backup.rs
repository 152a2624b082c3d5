//! Online backup and verification of the newest state.
//!
//! ```text
//!   checkpoint ─> roots, pinned ─┬─> backup: a new tree in another folder, followed by an empty log
//!                                └─> verify: every page read and checked
//! ```
//!
//! Invariant: the backup's folder contains a marker file until the backup is complete. A folder
//! with the marker cannot be opened as a database.

use std::collections::HashMap;
use std::sync::Arc;

use super::log::{LogOptions, Replay};
use super::open::{TREE, UNFINISHED};
use super::tree::{Roots, Sink, TableOptions, TreeFile, copy_entries};
use super::{LogTreeOptions, Shared};
use crate::engine::{Finding, Snapshot, TableId};
use crate::error::{Result, StorageError};
use crate::folder::Folder;

/// Number of entries between two checks of whether to continue and of the free disk space.
const LOOK: u64 = 1024;

impl Shared {
    /// See [`crate::StorageEngine::backup`].
    pub(super) fn backup(
        self: &Arc<Self>,
        to: Arc<dyn Folder>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<u64> {
        self.check_open()?;
        let names = list(&to)?;
        if let Some(name) = names.first() {
            return Err(StorageError::Io {
                context: format!("back up to {}", to.display(name)),
                kind: std::io::ErrorKind::AlreadyExists,
                message: "the folder is not empty; choose an empty one".into(),
            });
        }
        let failed = |error| StorageError::io("begin a backup", &error);
        to.open(UNFINISHED, true).map_err(failed)?;
        let made = to.sync().map_err(failed).and_then(|()| {
            let _lock = to.lock()?;
            self.copy_to(&to, go_on)?;
            // The copy is complete.
            to.remove(UNFINISHED)
                .and_then(|()| to.sync())
                .map_err(|error| StorageError::io("end a backup", &error))
        });
        if let Err(error) = made {
            discard(&to);
            return Err(error);
        }
        let length = |name: &String| to.open(name, false).and_then(|file| file.len());
        let lengths: std::io::Result<Vec<u64>> = list(&to)?.iter().map(length).collect();
        let lengths = lengths.map_err(|error| StorageError::io("read the backup", &error))?;
        Ok(lengths.iter().sum())
    }

    /// Copies the current state into a tree, and begins a log after it: without a log, the copy
    /// could not be distinguished from a database whose log was lost.
    fn copy_to(
        self: &Arc<Self>,
        to: &Arc<dyn Folder>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let sequence = match self.checkpoint_now() {
            Ok(()) => {
                let roots = self.tree.roots();
                let tables = roots.table_options();
                let copy =
                    &mut |table, sink: &mut Sink<'_>| copy_entries(&mut roots.cursor(table)?, sink);
                self.copy_tables(to, roots.sequence(), &tables, copy, go_on)?;
                roots.sequence()
            }
            // A read-only engine holds writes in memory that will never be merged into its tree.
            Err(StorageError::ReadOnly { .. }) => {
                let last = self.log.head().last();
                self.sequencer.wait_visible(last);
                let snapshot = self.snapshot();
                let (view, _) = self.newest();
                let known: HashMap<_, _> = view.roots().table_options().into_iter().collect();
                let options = |table| known.get(&table).copied().unwrap_or(self.new_table);
                let tables = view.tables(last).into_iter();
                let tables: Vec<_> = tables.map(|table| (table, options(table))).collect();
                let copy = &mut |table, sink: &mut Sink<'_>| {
                    copy_entries(&mut *snapshot.cursor(table)?, sink)
                };
                self.copy_tables(to, last, &tables, copy, go_on)?;
                last
            }
            Err(error) => return Err(error),
        };
        Replay::at(to, sequence).begin(
            LogOptions {
                segment_bytes: LogTreeOptions::default().segment_bytes,
                buffer_bytes: 0,
                budget: self.budget.clone(),
            },
            (),
        )?;
        Ok(())
    }

    fn copy_tables(
        &self,
        to: &Arc<dyn Folder>,
        sequence: u64,
        tables: &[(TableId, TableOptions)],
        copy: &mut dyn FnMut(TableId, &mut Sink<'_>) -> Result<()>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let mut count = 0_u64;
        TreeFile::copy_tables(
            to,
            TREE,
            self.budget.clone(),
            sequence,
            tables,
            &mut |table, sink| {
                copy(table, &mut |key, value| {
                    if count.is_multiple_of(LOOK) {
                        self.check_open()?;
                        if !go_on() {
                            return Err(StorageError::Closed);
                        }
                        self.leave_space(to)?;
                    }
                    count += 1;
                    sink(key, value)
                })
            },
        )
    }

    /// A backup ends before either disk, the engine's or the target's, is so full that writers are
    /// refused.
    fn leave_space(&self, to: &Arc<dyn Folder>) -> Result<()> {
        match to.free_bytes() {
            Ok(Some(free)) if free < self.sizes.reserve_bytes => Err(StorageError::NoSpace {
                context: "back up: the free disk space has reached the reserve".into(),
            }),
            _ => Ok(()),
        }
    }

    /// See [`crate::StorageEngine::verify`].
    pub(super) fn verify(self: &Arc<Self>, progress: &mut dyn FnMut(f64)) -> Result<Vec<Finding>> {
        self.check_open()?;
        // Merge writes that are only in the log into the tree, so that they are verified, too.
        match self.checkpoint_now() {
            Ok(()) | Err(StorageError::ReadOnly { .. } | StorageError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        verify_tree(&self.tree, &self.tree.roots(), progress)
    }
}

fn list(folder: &Arc<dyn Folder>) -> Result<Vec<String>> {
    let listed = folder.list();
    listed.map_err(|error| StorageError::io("list the folder of the backup", &error))
}

/// Removes the files of a backup, the marker last. Failures are ignored: as long as the marker
/// exists, the remaining files cannot be opened.
fn discard(folder: &Arc<dyn Folder>) {
    let Ok(names) = folder.list() else {
        return;
    };
    let others = names.iter().filter(|name| *name != UNFINISHED);
    let gone = others
        .map(|name| folder.remove(name))
        .all(|gone| gone.is_ok());
    if gone && folder.sync().is_ok() {
        let _ = folder.remove(UNFINISHED);
    }
}

/// Walks over everything that is reachable from the roots.
pub(super) fn verify_tree(
    tree: &super::tree::TreeFile,
    roots: &Arc<Roots>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Finding>> {
    // Pages differ in size, so the progress is an estimate that ends at 1.
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
