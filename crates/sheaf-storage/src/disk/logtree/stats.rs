//! The engine's numbers: its own counters, and those of its parts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Shared;
use super::budget::MemoryKind;
use crate::batch::WriteBatch;
use crate::engine::{EngineStats, MemoryStats};

/// Counted by every commit; apart from each other's cache lines they would cost more to read than they save.
#[derive(Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    operations: AtomicU64,
    bytes: AtomicU64,
    deltas: AtomicU64,
}

impl Counters {
    /// Bytes of all batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a batch, of which so many values were logged as deltas.
    pub(super) fn count(&self, batch: &WriteBatch, deltas: u64) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.operations
            .fetch_add(batch.operations(), Ordering::Relaxed);
        self.bytes.fetch_add(batch.bytes(), Ordering::Relaxed);
        if deltas > 0 {
            self.deltas.fetch_add(deltas, Ordering::Relaxed);
        }
    }
}

impl Shared {
    pub(super) fn stats(&self) -> EngineStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = self.log.stats();
        let tree = self.tree.stats();
        let (open_snapshots, oldest_snapshot_age) = self.snapshots.count_and_oldest();
        let view = self.views.load();
        let generations = || std::iter::once(view.active()).chain(view.frozen());
        let (stalls, stalled_micros) = self.pace.stalls();
        EngineStats {
            commits: load(&self.counters.commits),
            operations: load(&self.counters.operations),
            bytes_logged: load(&self.counters.bytes),
            bytes_written: log.bytes + log.filled + tree.bytes_written,
            bytes_read: tree.bytes_read,
            syncs: log.syncs + tree.syncs,
            groups: log.groups,
            group_max: log.group_max,
            file_bytes: Some(log.file_bytes + tree.file_bytes),
            file_free_bytes: Some(tree.free_bytes),
            cache_bytes: Some(self.budget.used()),
            open_snapshots,
            oldest_snapshot_age,
            refuses_writes: self.log.failure(),
            generations: generations().count() as u64,
            versions: generations().map(|g| g.versions()).sum(),
            memtable_bytes: generations().map(|g| g.bytes()).sum(),
            retired_bytes: self.retired.bytes(),
            checkpoint_debt_bytes: load(&self.checkpointer.debt),
            checkpoints: load(&self.checkpointer.done),
            checkpoint_micros: load(&self.checkpointer.micros),
            log_bytes: log.bytes,
            log_bytes_filled: log.filled,
            log_deltas: load(&self.counters.deltas),
            log_segments: log.segments,
            stalls,
            stalled_micros,
            pages_read: tree.pages_read,
            pages_hit: tree.hits,
            pages_evicted: tree.evicted,
            pages_written: tree.pages_written,
            memory: Some(self.memory()),
        }
    }

    fn memory(&self) -> MemoryStats {
        let of = |kind| self.budget.of(kind);
        MemoryStats {
            limit: self.budget.limit(),
            total: self.budget.total(),
            generations: of(MemoryKind::Generations),
            pages: of(MemoryKind::Pages),
            mapped: of(MemoryKind::Mapped),
            log: of(MemoryKind::Log),
            batches: of(MemoryKind::Batches),
            snapshots_spilled: self.spilled.load(Ordering::Relaxed),
        }
    }
}
