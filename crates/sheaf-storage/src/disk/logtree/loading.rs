//! The generations that the log is read into, before anybody reads or writes.
//!
//! ```text
//!   42 ┐ values ─────────────────────────> gathered ─ enough ─> active ─ full ─> frozen ─ too many ─> tree
//!   43 ┤                                      ▲
//!   44 ┘ deltas ─> waiting, by key ─ bases ───┘
//! ```
//!
//! Nobody sees a state between. So what many batches do is gathered in one: of a key only the newest value is
//! inserted, and keys are inserted in their order. A delta whose base is not gathered waits for others, and all are then
//! looked up side by side in the order of their keys: a tree that is not in memory is read in many places at a time.
//!
//! What was in memory at the crash fits there again. So the tree is hardly ever written before the engine is open: that
//! is left to the checkpointer, beside readers and writers, as it was before the crash.
//!
//! Invariants:
//!
//! - The base of a delta that waits is below what is gathered: nothing that is gathered concerns its key.
//! - The view holds exactly the batches up to some sequence, what is gathered and what waits all behind it.

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

/// How much is gathered at most, in bytes.
const GATHERED_MAX: u64 = 16 << 20;
/// What an operation is counted as beside its bytes.
const OPERATION: u64 = 128;
/// How many look up bases at once, at most, and how many keys are worth one more.
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
    /// The last that is in a frozen generation, or in the tree.
    frozen_to: u64,
    gathered: WriteBatch,
    waiting: BTreeMap<TableId, BTreeMap<Box<[u8]>, Vec<Waiting>>>,
    waiting_bytes: u64,
    /// The segment that is read.
    file: Arc<str>,
}

/// A delta whose base is to be looked up, or is made by the one that waits before it.
struct Waiting {
    delta: KeptDelta,
    file: Arc<str>,
    offset: u64,
}

/// A key, and the deltas that lead to its value.
type Chain = (TableId, Box<[u8]>, Vec<Waiting>);

impl<'a> Loading<'a> {
    /// Begins with what the tree holds.
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

    /// Takes the next batch of the log.
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

    /// The view with everything that was read, the last sequence in it, and the last one in a frozen generation.
    /// Errors: as [`Loading::apply`].
    pub(super) fn finish(mut self) -> Result<(Arc<View<Roots>>, u64, u64)> {
        self.insert()?;
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

    /// Whether the batch does something to a key that waits.
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

    /// Makes the values of what waits, and gathers them.
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

    /// Inserts what is gathered and what waits.
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
                detail: format!("a batch up to {seq} contradicts what is before it: {error}"),
            })?;
        view.insert(seq, &batch);
        if view.active().bytes() >= self.sizes.full_at(view.frozen().len()) {
            self.rotate();
            let waiting = self.view.frozen();
            let bytes: u64 = waiting.iter().map(|generation| generation.bytes()).sum();
            // With the next one, writers would be held up as soon as they are let in. Generations are a little larger than
            // what they are full at.
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

/// The values that the chains lead to, in their order.
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
                // Without a thread it is done here, in its turn.
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
