//! The in-memory engine: the executable specification of the trait.
//!
//! Every key has a chain of versions, oldest first, each with the sequence of the batch that wrote
//! it. A snapshot is a sequence number, and sees the last version of each chain that is not newer
//! than itself.
//!
//! ```text
//!   table 7, alive since 3
//!     "a"  ── 4: Put ── 9: Put            snapshot at 5 sees 4, snapshot at 9 sees 9
//!     "b"  ── 4: Put ── 8: gone           snapshot at 8 sees nothing
//! ```
//!
//! Versions that no snapshot can see are trimmed: every superseded version is queued with the
//! sequence that superseded it, and once no open snapshot is older than that, its chain is trimmed.
//! The queue is processed by the next batch, or when the last snapshot is dropped.
//!
//! Invariant: a chain is never empty, its sequences strictly increase, and no two adjacent versions
//! are both "gone". One lock guards everything; readers share it, and hold it for at most one step,
//! so that an idle cursor does not block others.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::batch::{KeyWrite, TableFate, TableWrites, WriteBatch};
use crate::engine::{
    CommitSeq, Cursor, Durability, EngineStats, Snapshot, StorageEngine, TableId, TableStats,
};
use crate::error::{Result, StorageError};

/// The in-memory engine. Its data is lost when it is dropped.
pub struct MemoryEngine {
    shared: Arc<Shared>,
}

struct Shared {
    state: RwLock<State>,
    /// Open snapshots: the sequence, and when each was taken.
    open: Mutex<BTreeMap<u64, Vec<Instant>>>,
}

#[derive(Default)]
struct State {
    /// Sequence of the last batch; 0 before the first.
    seq: u64,
    closed: bool,
    tables: BTreeMap<TableId, Vec<Incarnation>>,
    /// (superseding sequence, table, key; no key for a dropped table), in order of sequence.
    garbage: VecDeque<(u64, TableId, Option<Bytes>)>,
    stats: EngineStats,
}

/// A table from its creation to its drop. A number may be reused: then there are several, oldest
/// first, of which only the last may still exist.
struct Incarnation {
    created: u64,
    dropped: Option<u64>,
    rows: BTreeMap<Bytes, Chain>,
    /// The size after each batch that changed it, oldest first; trimmed like the chains.
    sizes: VecDeque<(u64, TableStats)>,
}

/// Versions of one key, oldest first; `None` is "gone".
type Chain = Vec<(u64, Option<Bytes>)>;

impl Incarnation {
    fn new(created: u64) -> Incarnation {
        Incarnation {
            created,
            dropped: None,
            rows: BTreeMap::new(),
            sizes: VecDeque::from([(created, TableStats::default())]),
        }
    }

    fn alive_at(&self, seq: u64) -> bool {
        self.created <= seq && self.dropped.is_none_or(|dropped| dropped > seq)
    }

    /// The size that `seq` sees.
    fn size_at(&self, seq: u64) -> TableStats {
        let seen = self.sizes.partition_point(|(at, _)| *at <= seq);
        match seen.checked_sub(1).and_then(|last| self.sizes.get(last)) {
            Some((_, size)) => *size,
            None => TableStats::default(),
        }
    }

    /// The current size, for a change by the batch `seq`; `oldest` is the oldest open snapshot.
    fn size_mut(&mut self, seq: u64, oldest: u64) -> &mut TableStats {
        // Keep the last size that `oldest` sees, and all after it.
        while self.sizes.len() > 1 && self.sizes[1].0 <= oldest {
            self.sizes.pop_front();
        }
        let last = self.sizes.back().copied().unwrap_or_default();
        if last.0 != seq {
            self.sizes.push_back((seq, last.1));
        }
        let index = self.sizes.len() - 1;
        &mut self.sizes[index].1
    }

    /// Writes one key at `seq`. Returns whether an older version is now superseded.
    fn write(&mut self, seq: u64, oldest: u64, key: &Bytes, value: Option<Bytes>) -> bool {
        let key_len = key.len() as u64;
        let new_len = value.as_ref().map(|value| value.len() as u64);
        let newest = self.rows.get_mut(key);
        let old_len = newest
            .as_ref()
            .and_then(|chain| chain.last()?.1.as_ref())
            .map(|value| value.len() as u64);
        if new_len.is_none() && old_len.is_none() {
            return false;
        }
        let superseded = newest.is_some();
        match newest {
            Some(chain) => match chain.last_mut() {
                // The same batch has written it already (a range, then the key): no snapshot has
                // seen that.
                Some(last) if last.0 == seq => last.1 = value,
                last => {
                    debug_assert!(last.is_none_or(|last| last.0 < seq), "sequences ascend");
                    chain.push((seq, value));
                }
            },
            None => {
                self.rows.insert(key.clone(), vec![(seq, value)]);
            }
        }
        let size = self.size_mut(seq, oldest);
        if let Some(old_len) = old_len {
            size.entries -= 1;
            size.key_bytes -= key_len;
            size.value_bytes -= old_len;
        }
        if let Some(new_len) = new_len {
            size.entries += 1;
            size.key_bytes += key_len;
            size.value_bytes += new_len;
        }
        superseded
    }

    /// Removes the versions of `key` that no snapshot at `oldest` or later sees.
    fn trim(&mut self, key: &Bytes, oldest: u64) {
        let Some(chain) = self.rows.get_mut(key) else {
            return;
        };
        let seen = chain.partition_point(|(seq, _)| *seq <= oldest);
        let mut cut = seen.saturating_sub(1);
        // "Gone" as the oldest version is equivalent to no version.
        if seen > 0 && chain[cut].1.is_none() {
            cut = seen;
        }
        chain.drain(..cut);
        if chain.is_empty() {
            self.rows.remove(key);
        }
    }
}

/// The version of a chain that `seq` sees; `None` if the key does not exist.
fn version_at(chain: &Chain, seq: u64) -> Option<&Bytes> {
    let seen = chain.partition_point(|(at, _)| *at <= seq);
    chain.get(seen.checked_sub(1)?)?.1.as_ref()
}

impl State {
    fn table_at(&self, table: TableId, seq: u64) -> Option<&Incarnation> {
        self.tables
            .get(&table)?
            .iter()
            .rev()
            .find(|incarnation| incarnation.alive_at(seq))
    }

    fn alive(&mut self, table: TableId) -> Option<&mut Incarnation> {
        self.tables
            .get_mut(&table)?
            .last_mut()
            .filter(|incarnation| incarnation.dropped.is_none())
    }

    fn apply(&mut self, batch: &WriteBatch, oldest: u64) -> Result<CommitSeq> {
        if self.closed {
            return Err(StorageError::Closed);
        }
        if batch.is_empty() {
            return Ok(CommitSeq(self.seq));
        }
        let now = self.seq;
        batch.check(&mut |table| self.table_at(table, now).is_some())?;
        let seq = self.seq + 1;
        for (table, writes) in batch.tables() {
            self.apply_table(seq, oldest, table, writes);
        }
        self.seq = seq;
        self.stats.commits += 1;
        self.stats.groups += 1;
        self.stats.group_max = 1;
        self.stats.operations += batch.operations();
        self.stats.bytes_logged += batch.bytes();
        Ok(CommitSeq(seq))
    }

    fn apply_table(&mut self, seq: u64, oldest: u64, table: TableId, writes: &TableWrites) {
        if matches!(writes.fate(), TableFate::Dropped | TableFate::Replaced)
            && let Some(incarnation) = self.alive(table)
        {
            incarnation.dropped = Some(seq);
            self.garbage.push_back((seq, table, None));
        }
        if matches!(writes.fate(), TableFate::Created | TableFate::Replaced) {
            self.tables
                .entry(table)
                .or_default()
                .push(Incarnation::new(seq));
        }
        let mut superseded = Vec::new();
        let Some(incarnation) = self.alive(table) else {
            return;
        };
        for (lo, hi) in writes.ranges().iter() {
            let upper = hi.map_or(Bound::Unbounded, |hi| Bound::Excluded(&hi[..]));
            let covered: Vec<Bytes> = incarnation
                .rows
                .range::<[u8], _>((Bound::Included(&lo[..]), upper))
                .map(|(key, _)| key.clone())
                .collect();
            for key in covered {
                if incarnation.write(seq, oldest, &key, None) {
                    superseded.push(key);
                }
            }
        }
        for (key, change) in writes.keys() {
            let value = match &change.write {
                KeyWrite::Put(value) => Some(value.clone()),
                KeyWrite::Delete => None,
            };
            if incarnation.write(seq, oldest, key, value) {
                superseded.push(key.clone());
            }
        }
        let garbage = superseded.into_iter().map(|key| (seq, table, Some(key)));
        self.garbage.extend(garbage);
    }

    /// Removes the versions that no snapshot at `oldest` or later sees.
    fn collect(&mut self, oldest: u64) {
        while let Some((superseded_at, _, _)) = self.garbage.front()
            && *superseded_at <= oldest
            && let Some((_, table, key)) = self.garbage.pop_front()
        {
            let Some(incarnations) = self.tables.get_mut(&table) else {
                continue;
            };
            match key {
                Some(key) => {
                    for incarnation in incarnations.iter_mut() {
                        incarnation.trim(&key, oldest);
                    }
                }
                None => incarnations
                    .retain(|incarnation| incarnation.dropped.is_none_or(|at| at > oldest)),
            }
            if incarnations.is_empty() {
                self.tables.remove(&table);
            }
        }
    }
}

impl Shared {
    /// The oldest sequence that a snapshot still sees; `now` if none is open.
    fn oldest(&self, now: u64) -> u64 {
        self.open.lock().keys().next().copied().unwrap_or(now)
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        MemoryEngine::new()
    }
}

impl MemoryEngine {
    /// An engine that holds only the empty catalog table.
    pub fn new() -> MemoryEngine {
        let mut state = State::default();
        state
            .tables
            .insert(TableId::CATALOG, vec![Incarnation::new(0)]);
        MemoryEngine {
            shared: Arc::new(Shared {
                state: RwLock::new(state),
                open: Mutex::new(BTreeMap::new()),
            }),
        }
    }

    /// Number of versions in all chains together, for tests of garbage collection.
    pub fn versions(&self) -> usize {
        let state = self.shared.state.read();
        state
            .tables
            .values()
            .flatten()
            .flat_map(|incarnation| incarnation.rows.values())
            .map(Vec::len)
            .sum()
    }
}

impl StorageEngine for MemoryEngine {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        // The state's lock is held while the snapshot is registered: no batch in between may trim
        // what the snapshot is about to see.
        let state = self.shared.state.read();
        if state.closed {
            return Err(StorageError::Closed);
        }
        let seq = state.seq;
        self.shared
            .open
            .lock()
            .entry(seq)
            .or_default()
            .push(Instant::now());
        drop(state);
        Ok(Arc::new(MemorySnapshot {
            hold: Arc::new(Hold {
                seq,
                shared: self.shared.clone(),
            }),
        }))
    }

    fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        let mut state = self.shared.state.write();
        let oldest = self.shared.oldest(state.seq);
        let seq = state.apply(&batch, oldest)?;
        if durability == Durability::Synced {
            state.stats.syncs += 1;
        }
        let oldest = self.shared.oldest(state.seq);
        state.collect(oldest);
        Ok(seq)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.shared.state.write();
        if state.closed {
            return Err(StorageError::Closed);
        }
        state.stats.syncs += 1;
        Ok(())
    }

    fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        if self.table_stats(table)?.entries > 0 {
            return Err(StorageError::TableNotEmpty(table));
        }
        let mut batch = WriteBatch::new();
        let mut last: Option<Vec<u8>> = None;
        let mut count = 0;
        for entry in entries {
            let (key, value) = entry?;
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(StorageError::OutOfOrder { position: count });
            }
            batch.put(table, &key, value);
            last = Some(key);
            count += 1;
        }
        self.apply(batch, Durability::Synced)?;
        Ok(count)
    }

    fn checkpoint(&self) -> Result<()> {
        self.sync()
    }

    fn compact(&self) -> Result<u64> {
        self.sync()?;
        Ok(0)
    }

    fn stats(&self) -> EngineStats {
        let open = self.shared.open.lock();
        let open_snapshots = open.values().map(|taken| taken.len() as u64).sum();
        let oldest_snapshot_age = open.values().flatten().min().map(Instant::elapsed);
        drop(open);
        EngineStats {
            open_snapshots,
            oldest_snapshot_age,
            ..self.shared.state.read().stats.clone()
        }
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        let state = self.shared.state.read();
        if state.closed {
            return Err(StorageError::Closed);
        }
        let seq = state.seq;
        state
            .table_at(table, seq)
            .map(|incarnation| incarnation.size_at(seq))
            .ok_or(StorageError::NoSuchTable(table))
    }

    fn tables(&self) -> Result<Vec<TableId>> {
        let state = self.shared.state.read();
        if state.closed {
            return Err(StorageError::Closed);
        }
        Ok(state
            .tables
            .iter()
            .filter(|(_, incarnations)| incarnations.iter().any(|i| i.alive_at(state.seq)))
            .map(|(table, _)| *table)
            .collect())
    }

    fn close(&self) -> Result<()> {
        self.shared.state.write().closed = true;
        Ok(())
    }
}

/// Keeps a sequence from being trimmed while a snapshot or a cursor needs it.
struct Hold {
    seq: u64,
    shared: Arc<Shared>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let last = {
            let mut open = self.shared.open.lock();
            if let Some(taken) = open.get_mut(&self.seq) {
                taken.pop();
                if taken.is_empty() {
                    open.remove(&self.seq);
                }
            }
            open.is_empty()
        };
        // The last snapshot trims, unless a writer holds the lock: the writer trims then.
        if last && let Some(mut state) = self.shared.state.try_write() {
            let oldest = self.shared.oldest(state.seq);
            state.collect(oldest);
        }
    }
}

struct MemorySnapshot {
    hold: Arc<Hold>,
}

impl MemorySnapshot {
    fn with_table<T>(&self, table: TableId, f: impl FnOnce(&Incarnation) -> T) -> Result<T> {
        let state = self.hold.shared.state.read();
        state
            .table_at(table, self.hold.seq)
            .map(f)
            .ok_or(StorageError::NoSuchTable(table))
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        self.with_table(table, |incarnation| {
            incarnation
                .rows
                .get(key)
                .and_then(|chain| version_at(chain, self.hold.seq))
                .cloned()
        })
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        let created = self.with_table(table, |incarnation| incarnation.created)?;
        Ok(Box::new(MemoryCursor {
            hold: self.hold.clone(),
            table,
            created,
            entry: None,
        }))
    }

    fn len(&self, table: TableId) -> Result<u64> {
        self.with_table(table, |incarnation| {
            incarnation.size_at(self.hold.seq).entries
        })
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        let state = self.hold.shared.state.read();
        Ok(state.table_at(table, self.hold.seq).is_some())
    }
}

/// Holds its entry (shared with the table), but neither a lock nor a position in the tree: every
/// move searches again from the current key.
struct MemoryCursor {
    hold: Arc<Hold>,
    table: TableId,
    created: u64,
    entry: Option<(Bytes, Bytes)>,
}

impl MemoryCursor {
    /// Moves to the first (`forward`) or last visible entry within the bounds.
    fn find(&mut self, range: (Bound<&[u8]>, Bound<&[u8]>), forward: bool) -> bool {
        let state = self.hold.shared.state.read();
        let seq = self.hold.seq;
        // The hold keeps the incarnation from being collected.
        let entry = state
            .tables
            .get(&self.table)
            .and_then(|all| all.iter().find(|i| i.created == self.created))
            .and_then(|incarnation| {
                let mut rows = incarnation.rows.range::<[u8], _>(range);
                loop {
                    let (key, chain) = if forward {
                        rows.next()
                    } else {
                        rows.next_back()
                    }?;
                    if let Some(value) = version_at(chain, seq) {
                        return Some((key.clone(), value.clone()));
                    }
                }
            });
        drop(state);
        self.entry = entry;
        self.entry.is_some()
    }
}

impl Cursor for MemoryCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.find((Bound::Included(key), Bound::Unbounded), true))
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.find((Bound::Unbounded, Bound::Included(key)), false))
    }

    fn seek_first(&mut self) -> Result<bool> {
        Ok(self.find((Bound::Unbounded, Bound::Unbounded), true))
    }

    fn seek_last(&mut self) -> Result<bool> {
        Ok(self.find((Bound::Unbounded, Bound::Unbounded), false))
    }

    fn next(&mut self) -> Result<bool> {
        let Some((key, _)) = self.entry.take() else {
            return Ok(false);
        };
        Ok(self.find((Bound::Excluded(&key), Bound::Unbounded), true))
    }

    fn prev(&mut self) -> Result<bool> {
        let Some((key, _)) = self.entry.take() else {
            return Ok(false);
        };
        Ok(self.find((Bound::Unbounded, Bound::Excluded(&key)), false))
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
