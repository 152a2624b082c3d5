//! An index build in progress, as its collection and its writers see it.

pub(crate) mod side_writes;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sheaf_bson::{Error, RecordId, Result};
use sheaf_query::planner::index_entry::MultikeyPaths;
use sheaf_storage::{StorageTransaction, TableId};

use crate::index::key_set::{Difference, EntryKey, KeySet};
use crate::index::wildcard_keys::array_entry;
use crate::index::{Index, IndexConstraints, merge_multikey_paths};
use crate::op_context::{OpContext, OperationProgress};

/// Interval at which a wait for a build checks whether the operation was killed.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// An index build in progress.
#[derive(Debug)]
pub struct IndexBuild {
    indexes: Vec<Index>,
    side_table: TableId,
    /// The index that the new one replaces.
    replaces: Option<TableId>,
    constraints: IndexConstraints,
    next_note: AtomicU64,
    /// Per index, the multikey paths of all documents seen so far.
    multikey: Mutex<Vec<MultikeyPaths>>,
    /// The error that an aborted build must fail with.
    aborted: OnceLock<Error>,
    progress: Arc<OperationProgress>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl IndexBuild {
    pub(crate) fn new(
        indexes: Vec<Index>,
        side_table: TableId,
        replaces: Option<TableId>,
        progress: Arc<OperationProgress>,
    ) -> IndexBuild {
        IndexBuild {
            multikey: Mutex::new(vec![MultikeyPaths::new(); indexes.len()]),
            indexes,
            side_table,
            replaces,
            constraints: IndexConstraints::Enforced,
            next_note: AtomicU64::new(0),
            aborted: OnceLock::new(),
            progress,
            ended: Mutex::new(false),
            end: Condvar::new(),
        }
    }

    /// The same build with these constraints.
    pub(crate) fn with_constraints(self, constraints: IndexConstraints) -> IndexBuild {
        IndexBuild {
            constraints,
            ..self
        }
    }

    pub(crate) fn constraints(&self) -> IndexConstraints {
        self.constraints
    }

    /// Whether two documents with the same key of this index fail the build.
    pub(crate) fn enforces_unique(&self, index: &Index) -> bool {
        index.spec().enforces_unique() && self.constraints == IndexConstraints::Enforced
    }

    /// The indexes being built.
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// Progress of the build.
    pub fn progress(&self) -> &Arc<OperationProgress> {
        &self.progress
    }

    /// The table in which writers record side writes.
    pub(crate) fn side_table(&self) -> TableId {
        self.side_table
    }

    /// The index that the new one replaces, which stays in use until then.
    pub(crate) fn replaces(&self) -> Option<TableId> {
        self.replaces
    }

    /// Requests that the build end; it soon stops, removes what it wrote, and fails with `why`.
    pub fn abort(&self, why: Error) {
        let _ = self.aborted.set(why);
    }

    /// Waits until the build has succeeded or failed.
    /// Errors: `Interrupted`, `MaxTimeMSExpired` of the waiting operation.
    pub fn wait_ended(&self, op: &OpContext) -> Result<()> {
        let mut ended = self.ended.lock();
        while !*ended {
            op.check_interrupt_now()?;
            self.end.wait_for(&mut ended, WAIT_SLICE);
        }
        Ok(())
    }

    pub(crate) fn set_ended(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }

    /// Fails with the abort reason if an abort was requested.
    pub fn check_aborted(&self) -> Result<()> {
        match self.aborted.get() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Records in a writer's unit how a document's change affects index `number` of the build.
    pub(crate) fn note(
        &self,
        unit: &mut StorageTransaction,
        number: usize,
        old: &KeySet,
        new: &KeySet,
        id: &RecordId,
        entry: &mut EntryKey,
    ) -> Result<()> {
        self.add_multikey(number, new.multikey_paths());
        for path in new.array_paths() {
            let note = side_writes::Note {
                index: number as u8,
                present: true,
                entry: &array_entry(path),
                type_bits: &[],
            };
            let at = self.next_note.fetch_add(1, Ordering::Relaxed);
            unit.insert_new(self.side_table, &at.to_be_bytes(), note.to_bytes());
        }
        KeySet::differences(old, new, |difference| {
            let (key, present) = match difference {
                Difference::Removed(key) => (key, false),
                Difference::Added(key) | Difference::Retyped(key) => (key, true),
            };
            let note = side_writes::Note {
                index: number as u8,
                present,
                entry: entry.of(key.key, id),
                type_bits: key.type_bits,
            };
            let at = self.next_note.fetch_add(1, Ordering::Relaxed);
            unit.insert_new(self.side_table, &at.to_be_bytes(), note.to_bytes());
            Ok(())
        })
    }

    pub(crate) fn add_multikey(&self, number: usize, paths: &MultikeyPaths) {
        if paths.iter().any(|field| !field.is_empty()) {
            merge_multikey_paths(&mut self.multikey.lock()[number], paths);
        }
    }

    /// The indexes as they will be if the build succeeds: with the multikey paths of all documents
    /// seen.
    pub(crate) fn finished_indexes(&self) -> Vec<Index> {
        let multikey = self.multikey.lock();
        let finished = self.indexes.iter().zip(&*multikey);
        finished
            .map(|(index, paths)| index.with_multikey(paths).unwrap_or_else(|| index.clone()))
            .collect()
    }
}
