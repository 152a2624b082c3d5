//! Replays the log into generations, before there are readers or writers.
//!
//! ```text
//!   42 ┐ values ─────────────────────────> gathered ─ enough ─> active ─ full ─> frozen ─ too many ─> tree
//!   43 ┤                                      ▲
//!   44 ┘ deltas ─> waiting, by key ─ bases ───┘
//! ```
//!
//! No reader sees an intermediate state, so many batches are gathered into one: only the newest
//! value of a key is inserted, and keys are inserted in order. A delta whose base is not gathered
//! waits for others; then all are looked up concurrently, in the order of their keys, so that
//! several reads of a tree that is not in memory are in flight.
//!
//! The generations that were in memory before the crash fit into memory again, so the tree is
//! rarely written before the engine is open. The checkpointer merges them later, concurrently with
//! readers and writers.
//!
//! Invariants:
//!
//! - The base of a waiting delta precedes everything that is gathered: no gathered write has its
//!   key.
//! - The view holds exactly the batches up to some sequence; gathered writes and waiting deltas
//!   have later sequences.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use super::Sizes;
use super::budget::MemoryBudget;
use super::checkpoint::merge;
use super::log::{KeptDelta, KeyDelta, Record, baseless};
use super::memtable::Generation;
use super::tree::{Roots, TableOptions, TreeFile};
use super::view::View;
use crate::batch::{KeyWrite, Prior, TableFate, WriteBatch};
use crate::engine::TableId;
use crate::error::{Result, StorageError};

/// Maximum size of gathered writes, in bytes.
const GATHERED_MAX: u64 = 16 << 20;
/// Bytes charged for an operation in addition to its key and value.
const OPERATION: u64 = 128;
/// Maximum number of threads that look up bases, and the minimum number of keys per thread.
const SIDE_BY_SIDE: usize = 8;
const KEYS_EACH: usize = 256;

/// See the module's head.
pub(super) struct Loading<'a> {
    tree: &'a TreeFile,
    new_table: TableOptions,
    sizes: &'a Sizes,
    budget: &'a Arc<MemoryBudget>,
    view: Arc<View<Roots>>,
    /// The last batch that was read.
    last: u64,
    /// The last batch that is in a frozen generation or in the tree.
    frozen_to: u64,
    gathered: WriteBatch,
    waiting: BTreeMap<TableId, BTreeMap<Box<[u8]>, Vec<Waiting>>>,
    waiting_bytes: u64,
    /// The segment being read.
    file: Arc<str>,
}

/// A delta whose base must be looked up, or is the result of the delta waiting before it.
struct Waiting {
    delta: KeptDelta,
    file: Arc<str>,
    offset: u64,
}

/// A key, and the deltas that lead to its value.
type Chain = (TableId, Box<[u8]>, Vec<Waiting>);

impl<'a> Loading<'a> {
    /// Begins with the state of the tree.
    pub(super) fn new(
        tree: &'a TreeFile,
        new_table: TableOptions,
        sizes: &'a Sizes,
        budget: &'a Arc<MemoryBudget>,
    ) -> Loading<'a> {
        let roots = tree.roots();
        let tree_seq = roots.sequence();
        let active = Generation::new(sizes.generation_bytes, budget.clone());
        Loading {
            tree,
            new_table,
            sizes,
            budget,
            view: Arc::new(View::new(Arc::new(active), Vec::new(), roots)),
            last: tree_seq,
            frozen_to: tree_seq,
            gathered: WriteBatch::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            file: "".into(),
        }
    }

    /// Adds the next batch of the log.
    /// Errors: `Corrupt`, and those of the tree.
    pub(super) fn apply(&mut self, record: Record<'_>) -> Result<()> {
        let Record {
            seq,
            file,
            offset,
            decoded,
        } = record;
        let mut batch = decoded.batch;
        if self.concerns_waiting(&batch) {
            self.make_waiting()?;
        }
        for found in &decoded.deltas {
            let writes = self.gathered.table(found.table);
            let gathered = writes.and_then(|writes| writes.keys().get(found.key));
            let gone = || baseless(file, offset, found);
            match gathered.map(|change| &change.write) {
                Some(KeyWrite::Put(base)) => {
                    let value = found.delta.apply(base).ok_or_else(gone)?;
                    let value_len = found.delta.base_len;
                    let prior = Prior::Present { value_len };
                    batch.put_with(found.table, found.key, value, prior);
                }
                Some(KeyWrite::Delete) => return Err(gone()),
                None if writes.is_some_and(|writes| !writes.keeps(found.key)) => return Err(gone()),
                None => self.wait(found, file, offset),
            }
        }
        self.gathered.then(batch);
        self.last = seq;
        let bytes = self.gathered.bytes() + self.gathered.operations() * OPERATION;
        let enough = GATHERED_MAX.min(self.sizes.generation_bytes / 4);
        match bytes + self.waiting_bytes > enough {
            true => self.insert(),
            false => Ok(()),
        }
    }

    /// The view with everything that was read, its last sequence, and the last sequence in a frozen
    /// generation. Errors: as [`Loading::apply`].
    pub(super) fn finish(mut self) -> Result<(Arc<View<Roots>>, u64, u64)> {
        self.insert()?;
        debug_assert!(self.gathered.is_empty() && self.waiting.is_empty());
        debug_assert!(
            self.view.roots().sequence() <= self.frozen_to && self.frozen_to <= self.last
        );
        Ok((self.view, self.last, self.frozen_to))
    }

    fn wait(&mut self, found: &KeyDelta<'_>, file: &str, offset: u64) {
        if *self.file != *file {
            self.file = file.into();
        }
        let waiting = Waiting {
            delta: found.delta.kept(),
            file: self.file.clone(),
            offset,
        };
        let bytes = found.key.len() as u64 + u64::from(found.delta.new_len);
        self.waiting_bytes += bytes + OPERATION;
        let keys = self.waiting.entry(found.table).or_default();
        match keys.get_mut(found.key) {
            Some(chain) => chain.push(waiting),
            None => {
                keys.insert(found.key.into(), vec![waiting]);
            }
        }
    }

    /// Whether the batch writes the key of a waiting delta.
    fn concerns_waiting(&self, batch: &WriteBatch) -> bool {
        !self.waiting.is_empty()
            && batch.tables().any(|(table, writes)| {
                self.waiting.get(&table).is_some_and(|keys| {
                    writes.fate() != TableFate::Kept
                        || !writes.ranges().is_empty()
                        || writes.keys().keys().any(|key| keys.contains_key(&key[..]))
                })
            })
    }

    /// Computes the values of the waiting deltas, and gathers them.
    fn make_waiting(&mut self) -> Result<()> {
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let chains: Vec<Chain> = waiting
            .flat_map(|(table, keys)| {
                keys.into_iter()
                    .map(move |(key, deltas)| (table, key, deltas))
            })
            .collect();
        let values = made_side_by_side(&self.view, &chains)?;
        for ((table, key, deltas), value) in chains.iter().zip(values) {
            let prior = match deltas.first() {
                Some(first) => Prior::Present {
                    value_len: first.delta.base_len,
                },
                None => Prior::Unknown,
            };
            self.gathered.put_with(*table, key, value, prior);
        }
        Ok(())
    }

    /// Inserts the gathered writes and the waiting deltas.
    fn insert(&mut self) -> Result<()> {
        self.make_waiting()?;
        let batch = std::mem::take(&mut self.gathered);
        if batch.is_empty() {
            return Ok(());
        }
        let (view, seq) = (&self.view, self.last);
        batch
            .check(&mut |table| view.contains_table(table, u64::MAX))
            .map_err(|error| StorageError::Corrupt {
                file: "log".into(),
                detail: format!("a batch up to {seq} contradicts the preceding state: {error}"),
            })?;
        view.insert(seq, &batch);
        if view.active().bytes() >= self.sizes.full_at(view.frozen().len()) {
            self.rotate();
            let waiting = self.view.frozen();
            let bytes: u64 = waiting.iter().map(|generation| generation.bytes()).sum();
            // With one more frozen generation, writers would be stalled as soon as they are
            // admitted. A generation is a little larger than the size at which it is full.
            let most = self.sizes.debt_hard + self.sizes.generation_bytes / 2;
            if bytes + self.sizes.full_at(waiting.len()) > most {
                self.merge()?;
            }
        }
        Ok(())
    }

    fn rotate(&mut self) {
        let bytes = self.sizes.full_at(self.view.frozen().len() + 1);
        let fresh = Generation::new(bytes, self.budget.clone());
        self.view = Arc::new(self.view.rotated(Arc::new(fresh)));
        self.frozen_to = self.last;
    }

    fn merge(&mut self) -> Result<()> {
        let mut writer = self.tree.writer()?;
        merge(
            &mut writer,
            self.view.frozen(),
            self.frozen_to,
            self.new_table,
        )?;
        let roots = writer.commit(self.frozen_to)?;
        let merged = self.view.frozen().len();
        self.view = Arc::new(self.view.checkpointed(roots, merged));
        Ok(())
    }
}

/// The final values of the chains, in order, computed in parallel.
fn made_side_by_side(view: &View<Roots>, chains: &[Chain]) -> Result<Vec<Vec<u8>>> {
    let each = chains.len().div_ceil(SIDE_BY_SIDE).max(KEYS_EACH);
    let mut parts = chains.chunks(each);
    let Some(first) = parts.next() else {
        return Ok(Vec::new());
    };
    thread::scope(|scope| {
        let others: Vec<_> = parts
            .map(|part| {
                let thread = thread::Builder::new().name("replay".into());
                let spawned = thread.spawn_scoped(scope, || made(view, part));
                // If no thread can be started, this thread does the part itself.
                spawned.map_err(|_| part)
            })
            .collect();
        let mut values = made(view, first)?;
        for other in others {
            values.append(&mut match other {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic))?,
                Err(part) => made(view, part)?,
            });
        }
        Ok(values)
    })
}

fn made(view: &View<Roots>, chains: &[Chain]) -> Result<Vec<Vec<u8>>> {
    chains
        .iter()
        .map(|(table, key, deltas)| {
            let base = match view.get(*table, key, u64::MAX) {
                Ok(base) => base,
                Err(StorageError::NoSuchTable(_)) => None,
                Err(error) => return Err(error),
            };
            let mut value = None;
            for waiting in deltas {
                let delta = waiting.delta.as_delta();
                let base = value.as_deref().or(base.as_deref());
                value = base.and_then(|base| delta.apply(base));
                if value.is_none() {
                    let (table, key) = (*table, &key[..]);
                    let found = KeyDelta { table, key, delta };
                    return Err(baseless(&waiting.file, waiting.offset, &found));
                }
            }
            Ok(value.unwrap_or_default())
        })
        .collect()
}
