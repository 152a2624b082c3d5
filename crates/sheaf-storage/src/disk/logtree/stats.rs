//! The engine's statistics: those common to all engines, and those that only this engine has.

use std::sync::atomic::{AtomicU64, Ordering};

use super::budget::{MemoryKind, MemoryUse};
use super::{LogTreeEngine, Shared};
use crate::batch::WriteBatch;
use crate::engine::EngineStats;

/// Statistics of the log, the memtables and the tree: counters since the engine was opened, and
/// sizes as of now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogTreeStats {
    /// Memtable generations, the active one included.
    pub generations: u64,
    /// Versions of keys in them.
    pub versions: u64,
    /// Memory that they hold, in bytes.
    pub memtable_bytes: u64,
    /// Memory of generations that only snapshots still hold, in bytes.
    pub retired_bytes: u64,
    /// Bytes of frozen generations, which wait for a checkpoint.
    pub checkpoint_debt_bytes: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Total duration of those checkpoints.
    pub checkpoint_micros: u64,
    /// Bytes of records written to the log.
    pub log_bytes: u64,
    /// Bytes of zeros written ahead of them, once for each log file.
    pub log_bytes_filled: u64,
    /// Values logged as the difference from the previous value.
    pub log_deltas: u64,
    /// Log files in use.
    pub log_segments: u64,
    /// How often writers were slowed down.
    pub stalls: u64,
    /// Total duration of those stalls.
    pub stalled_micros: u64,
    /// Pages read from the file.
    pub pages_read: u64,
    /// Pages found in the cache.
    pub pages_hit: u64,
    /// Pages evicted from the cache.
    pub pages_evicted: u64,
    /// Pages written to the file.
    pub pages_written: u64,
    /// Memory by kind.
    pub memory: MemoryStats,
}

/// Memory that the engine holds, by kind, and its limit in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// The budget.
    pub limit: u64,
    /// All kinds together.
    pub total: MemoryUse,
    /// Memtables, including those that only snapshots still hold.
    pub generations: MemoryUse,
    /// Pages and large values, in the cache or held by readers.
    pub pages: MemoryUse,
    /// The mapped part of the files.
    pub mapped: MemoryUse,
    /// Records that are not yet written to the log.
    pub log: MemoryUse,
    /// Large batches being committed.
    pub batches: MemoryUse,
    /// Snapshots whose view was moved from memory to temporary pages.
    pub snapshots_spilled: u64,
}

/// Counters that every commit updates. They share cache lines: separate ones would cost readers
/// more than they save writers.
#[derive(Default)]
pub(super) struct Counters {
    commits: AtomicU64,
    operations: AtomicU64,
    bytes: AtomicU64,
    deltas: AtomicU64,
}

impl Counters {
    /// Bytes of keys and values of all batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a batch, `deltas` of whose values were logged as deltas.
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

impl LogTreeEngine {
    /// Statistics that only this engine has; [`StorageEngine::report`] names them as `serverStatus`
    /// does.
    ///
    /// [`StorageEngine::report`]: crate::StorageEngine::report
    pub fn detail(&self) -> LogTreeStats {
        self.shared.detail()
    }
}

impl LogTreeStats {
    /// See [`StorageEngine::report`](crate::StorageEngine::report).
    pub(super) fn report(&self, out: &mut dyn FnMut(&str, u64)) {
        for (name, value) in [
            ("generations", self.generations),
            ("versions", self.versions),
            ("memtableBytes", self.memtable_bytes),
            ("retiredBytes", self.retired_bytes),
            ("checkpointDebtBytes", self.checkpoint_debt_bytes),
            ("checkpoints", self.checkpoints),
            ("checkpointMicros", self.checkpoint_micros),
            ("logBytes", self.log_bytes),
            ("logSegments", self.log_segments),
            ("logDeltas", self.log_deltas),
            ("logBytesFilled", self.log_bytes_filled),
            ("stalls", self.stalls),
            ("stalledMicros", self.stalled_micros),
            ("pagesRead", self.pages_read),
            ("pagesHit", self.pages_hit),
            ("pagesEvicted", self.pages_evicted),
        ] {
            out(name, value);
        }
        let memory = &self.memory;
        out("memory.limitBytes", memory.limit);
        out("memory.snapshotsSpilled", memory.snapshots_spilled);
        for (kind, used) in [
            ("total", memory.total),
            ("generations", memory.generations),
            ("pages", memory.pages),
            ("mapped", memory.mapped),
            ("log", memory.log),
            ("batches", memory.batches),
        ] {
            out(&format!("memory.{kind}.bytes"), used.bytes);
            out(&format!("memory.{kind}.bytesMax"), used.bytes_max);
        }
    }
}

impl Shared {
    pub(super) fn stats(&self) -> EngineStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = self.log.stats();
        let tree = self.tree.stats();
        let (open_snapshots, oldest_snapshot_age) = self.snapshots.count_and_oldest();
        let memory = self.memory();
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
            heap_bytes: Some(memory.total.bytes.saturating_sub(memory.mapped.bytes)),
            open_snapshots,
            oldest_snapshot_age,
            refuses_writes: self.log.failure(),
            checkpoint_failure: self.checkpointer.failure(),
        }
    }

    pub(super) fn detail(&self) -> LogTreeStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = self.log.stats();
        let tree = self.tree.stats();
        let view = self.views.load();
        let generations = || std::iter::once(view.active()).chain(view.frozen());
        let (stalls, stalled_micros) = self.throttle.stalls();
        LogTreeStats {
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
            memory: self.memory(),
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
