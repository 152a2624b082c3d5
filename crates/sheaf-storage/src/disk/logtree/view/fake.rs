//! An engine for tests whose views are based on maps instead of trees: like the real engine, but
//! without files.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::{Base, LogTreeSnapshot, OpenSnapshots, View};
use crate::batch::WriteBatch;
use crate::disk::logtree::budget::MemoryBudget;
use crate::disk::logtree::memtable::{Generation, Retired, TableOutcome, changes};
use crate::disk::logtree::tree::{Change, Changes};
use crate::engine::{
    CommitSeq, Cursor, Durability, EngineStats, Snapshot, StorageEngine, TableId, TableStats,
};
use crate::error::{Result, StorageError};

type Rows = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Default)]
pub(super) struct MapRoots(
    pub(super) BTreeMap<TableId, Arc<Rows>>,
    /// Counts the moves of its cursors.
    pub(super) Arc<AtomicU64>,
);

impl Base for MapRoots {
    type Cursor = MapCursor;

    fn get(self: &Arc<Self>, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0.get(&table).and_then(|rows| rows.get(key).cloned()))
    }

    fn cursor(self: &Arc<Self>, table: TableId) -> Result<MapCursor> {
        Ok(MapCursor {
            rows: self.0[&table].clone(),
            moves: self.1.clone(),
            entry: None,
        })
    }

    fn table(&self, table: TableId) -> Option<TableStats> {
        let rows = self.0.get(&table)?;
        Some(TableStats {
            entries: rows.len() as u64,
            key_bytes: rows.keys().map(|key| key.len() as u64).sum(),
            value_bytes: rows.values().map(|value| value.len() as u64).sum(),
            disk_bytes: 0,
        })
    }

    fn tables(&self) -> Vec<TableId> {
        self.0.keys().copied().collect()
    }
}

pub(super) struct MapCursor {
    rows: Arc<Rows>,
    moves: Arc<AtomicU64>,
    entry: Option<(Bytes, Bytes)>,
}

impl MapCursor {
    fn find(&mut self, range: (Bound<&[u8]>, Bound<&[u8]>), forward: bool) -> Result<bool> {
        self.moves.fetch_add(1, Ordering::Relaxed);
        let mut rows = self.rows.range::<[u8], _>(range);
        let entry = if forward {
            rows.next()
        } else {
            rows.next_back()
        };
        self.entry = entry.map(|(key, value)| (key.clone(), value.clone()));
        Ok(self.entry.is_some())
    }
}

impl Cursor for MapCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.find((Bound::Included(key), Bound::Unbounded), true)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.find((Bound::Unbounded, Bound::Included(key)), false)
    }

    fn seek_first(&mut self) -> Result<bool> {
        self.find((Bound::Unbounded, Bound::Unbounded), true)
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.find((Bound::Unbounded, Bound::Unbounded), false)
    }

    fn next(&mut self) -> Result<bool> {
        match self.entry.take() {
            Some((key, _)) => self.find((Bound::Excluded(&key), Bound::Unbounded), true),
            None => Ok(false),
        }
    }

    fn prev(&mut self) -> Result<bool> {
        match self.entry.take() {
            Some((key, _)) => self.find((Bound::Unbounded, Bound::Excluded(&key)), false),
            None => Ok(false),
        }
    }

    fn key(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(key, _)| key)
    }

    fn value(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(_, value)| value)
    }

    fn value_bytes(&self) -> Bytes {
        self.entry
            .as_ref()
            .map_or_else(Bytes::new, |(_, value)| value.clone())
    }

    fn valid(&self) -> bool {
        self.entry.is_some()
    }
}

/// See the module's head. A batch is checked and inserted under one lock.
pub(super) struct FakeEngine {
    view: RwLock<Arc<View<MapRoots>>>,
    visible: AtomicU64,
    writing: Mutex<()>,
    pub(super) open: Arc<OpenSnapshots<MapRoots>>,
    pub(super) retired: Retired,
    pub(super) budget: Arc<MemoryBudget>,
}

impl FakeEngine {
    pub(super) fn new() -> FakeEngine {
        FakeEngine::new_sized(1 << 16)
    }

    /// With a first generation sized for `expected_bytes`.
    pub(super) fn new_sized(expected_bytes: u64) -> FakeEngine {
        let budget = MemoryBudget::new(u64::MAX);
        let roots = MapRoots(
            BTreeMap::from([(TableId::CATALOG, Arc::default())]),
            Arc::default(),
        );
        let active = Arc::new(Generation::new(expected_bytes, budget.clone()));
        FakeEngine {
            view: RwLock::new(Arc::new(View::new(active, Vec::new(), Arc::new(roots)))),
            visible: AtomicU64::new(0),
            writing: Mutex::default(),
            open: Arc::default(),
            retired: Retired::default(),
            budget,
        }
    }

    pub(super) fn view(&self) -> Arc<View<MapRoots>> {
        self.view.read().clone()
    }

    pub(super) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// A snapshot as of an earlier sequence that the view still holds.
    pub(super) fn snapshot_at(&self, visible: u64) -> LogTreeSnapshot<MapRoots> {
        self.open.take_of(self.view(), visible)
    }

    pub(super) fn freeze(&self) {
        let _writing = self.writing.lock();
        let mut view = self.view.write();
        let fresh = Arc::new(Generation::new(1 << 16, self.budget.clone()));
        *view = Arc::new(view.rotated(fresh));
    }

    /// Merges the `count` oldest frozen generations into the maps.
    pub(super) fn merge(&self, count: usize) {
        let _writing = self.writing.lock();
        let view = self.view();
        let count = count.min(view.frozen().len());
        let oldest = &view.frozen()[view.frozen().len() - count..];
        let mut roots = (**view.roots()).clone();
        for mut table in changes(oldest, 0, u64::MAX) {
            match table.outcome {
                TableOutcome::Kept => {}
                TableOutcome::Fresh => {
                    roots.0.insert(table.table, Arc::default());
                }
                TableOutcome::Dropped => {
                    roots.0.remove(&table.table);
                }
            }
            // Changes ascend, and no two have the same key.
            let mut done: Option<Vec<u8>> = None;
            let Some(rows) = roots.0.get_mut(&table.table).map(Arc::make_mut) else {
                assert!(table.current().is_none());
                continue;
            };
            while let Some(change) = table.current() {
                let (first, end) = match change {
                    Change::Put(key, value) => {
                        rows.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                        (key, Some([key, &[0]].concat()))
                    }
                    Change::Delete(key) => {
                        rows.remove(key);
                        (key, Some([key, &[0]].concat()))
                    }
                    Change::DeleteRange(lo, hi) => {
                        rows.retain(|key, _| key < lo || hi.is_some_and(|hi| key >= hi));
                        (lo, hi.map(<[u8]>::to_vec))
                    }
                };
                assert!(done.is_none_or(|done| &done[..] <= first), "{change:?}");
                done = end.or(Some(vec![0xff; 64]));
                table.advance().unwrap();
            }
        }
        *self.view.write() = Arc::new(view.checkpointed(Arc::new(roots), count));
        for generation in oldest {
            self.retired.add(generation.clone());
        }
        drop(view);
        self.retired.sweep();
    }
}

impl StorageEngine for FakeEngine {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let view = self.view.read();
        let visible = self.visible();
        Ok(Arc::new(self.open.take_of(view.clone(), visible)))
    }

    fn apply(&self, batch: WriteBatch, _: Durability) -> Result<CommitSeq> {
        let _writing = self.writing.lock();
        if batch.is_empty() {
            return Ok(CommitSeq(self.visible()));
        }
        let view = self.view();
        batch.check(&mut |table| view.contains_table(table, u64::MAX))?;
        let seq = self.visible() + 1;
        view.insert(seq, &batch);
        self.visible.store(seq, Ordering::Release);
        Ok(CommitSeq(seq))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        let mut batch = WriteBatch::new();
        for entry in entries {
            let (key, value) = entry?;
            batch.insert_new(table, &key, value);
        }
        let count = batch.operations();
        self.apply(batch, Durability::Synced).map(|_| count)
    }

    fn checkpoint(&self) -> Result<()> {
        self.freeze();
        self.merge(usize::MAX);
        Ok(())
    }

    fn stats(&self) -> EngineStats {
        let (open_snapshots, oldest_snapshot_age) = self.open.count_and_oldest();
        EngineStats {
            open_snapshots,
            oldest_snapshot_age,
            ..EngineStats::default()
        }
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        let stats = self.view().table_stats(table);
        stats.ok_or(StorageError::NoSuchTable(table))
    }

    fn tables(&self) -> Result<Vec<TableId>> {
        Ok(self.view().tables(u64::MAX))
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
