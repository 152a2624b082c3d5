//! A build of indexes in progress, as its collection and its writers know it.

pub(crate) mod side_writes;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sheaf_bson::{Error, RecordId, Result};
use sheaf_query::planner::index_entry::MultikeyPaths;
use sheaf_storage::{TableId, WriteUnitOfWork};

use crate::index::key_set::{Difference, EntryKey, KeySet};
use crate::index::wildcard_keys::array_entry;
use crate::index::{Index, IndexConstraints, merge_multikey_paths};
use crate::op_context::{OpContext, OperationProgress};

/// How long a wait for a build goes on before it looks whether the operation was killed.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// A build in progress, as the collection knows it.
#[derive(Debug)]
pub struct IndexBuild {
    indexes: Vec<Index>,
    side_table: TableId,
    /// The index whose place the built one takes.
    replaces: Option<TableId>,
    constraints: IndexConstraints,
    next_note: AtomicU64,
    /// By index, what its documents have been until now.
    multikey: Mutex<Vec<MultikeyPaths>>,
    /// Why the build is to end before its time.
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

    /// The same build under these constraints.
    pub(crate) fn with_constraints(self, constraints: IndexConstraints) -> IndexBuild {
        IndexBuild {
            constraints,
            ..self
        }
    }

    pub(crate) fn constraints(&self) -> IndexConstraints {
        self.constraints
    }

    /// Whether two documents with one key of this index end the build.
    pub(crate) fn enforces_unique(&self, index: &Index) -> bool {
        index.spec().enforces_unique() && self.constraints == IndexConstraints::Enforced
    }

    /// The indexes being built.
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// How far the build has come.
    pub fn progress(&self) -> &Arc<OperationProgress> {
        &self.progress
    }

    /// Where writers note what they do.
    pub(crate) fn side_table(&self) -> TableId {
        self.side_table
    }

    /// The index whose place the built one takes, which serves until then.
    pub(crate) fn replaces(&self) -> Option<TableId> {
        self.replaces
    }

    /// Asks the build to end; it does so soon, leaving nothing, and fails with this error.
    pub fn abort(&self, why: Error) {
        let _ = self.aborted.set(why);
    }

    /// Waits until the build has ended, well or not.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`, of the waiting operation.
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

    /// Fails when somebody has asked the build to end.
    pub fn check_aborted(&self) -> Result<()> {
        match self.aborted.get() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Notes in a writer's unit what a document's change does to index `number` of the build.
    pub(crate) fn note(
        &self,
        unit: &mut WriteUnitOfWork,
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

    /// The indexes with the multikey paths of all documents met: what they are when the build ends well.
    pub(crate) fn finished_indexes(&self) -> Vec<Index> {
        let multikey = self.multikey.lock();
        let finished = self.indexes.iter().zip(&*multikey);
        finished
            .map(|(index, paths)| index.with_multikey(paths).unwrap_or_else(|| index.clone()))
            .collect()
    }
}
