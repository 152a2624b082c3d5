//! The changes that generations make to the trees below them, table by table: the input of a
//! checkpoint.
//!
//! ```text
//!   generation 2   b@9 Put          d@8 gone   [e, h)@7   g@9 Put
//!   generation 1   b@4 Put   c@3 Put                 f@5 Put
//!   changes        Put b     Put c     Delete d    DeleteRange [e, g)  Put g  DeleteRange [g\0, h)
//! ```
//!
//! Only the newest version of a key counts. A range is emitted in parts around the keys in it that
//! were put later, so that no two changes concern the same key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Generation;
use super::node::NodeRef;
use super::source::Source;
use super::table::{Fate, TableMem};
use crate::batch::KeyRanges;
use crate::disk::logtree::tree::{Change, Changes};
use crate::engine::TableId;
use crate::error::Result;

/// What happens to a table's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::disk::logtree) enum TableOutcome {
    /// The changes apply to the existing tree.
    Kept,
    /// The tree, if there is one, is dropped; the changes build a new one.
    Fresh,
    /// The tree, if there is one, is dropped. There are no changes.
    Dropped,
}

/// A change; the rest of it is in a node.
#[derive(Clone, Copy)]
enum Step<'g> {
    Put(NodeRef<'g>),
    Delete(NodeRef<'g>),
    /// [`TableChanges::range`].
    DeleteRange,
}

/// The changes to one table, ascending by key.
pub(in crate::disk::logtree) struct TableChanges<'g> {
    pub(in crate::disk::logtree) table: TableId,
    pub(in crate::disk::logtree) outcome: TableOutcome,
    /// Newest generation first.
    sources: Vec<Source<'g>>,
    /// Ranges still to be deleted, the next one last.
    ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The current change, if it is a range.
    range: (Vec<u8>, Option<Vec<u8>>),
    at: Option<Step<'g>>,
    /// A put that follows once the part of a range before it is done.
    waiting: Option<NodeRef<'g>>,
}

/// The changes that the generations (newest first, without batches in flight) make after the
/// sequence `after` and up to `up_to`; tables ascending.
pub(in crate::disk::logtree) fn changes(
    generations: &[Arc<Generation>],
    after: u64,
    up_to: u64,
) -> Vec<TableChanges<'_>> {
    let mut tables: BTreeMap<TableId, Vec<&TableMem>> = BTreeMap::new();
    for generation in generations {
        for mem in generation.tables() {
            tables.entry(mem.table).or_default().push(mem);
        }
    }
    tables
        .into_iter()
        .map(|(table, mems)| TableChanges::new(table, &mems, after, up_to))
        .collect()
}

impl<'g> TableChanges<'g> {
    fn new(table: TableId, mems: &[&'g TableMem], after: u64, up_to: u64) -> TableChanges<'g> {
        let mut sources = Vec::new();
        let mut ranges = KeyRanges::default();
        let mut outcome = TableOutcome::Kept;
        for mem in mems {
            let fate = mem.fate(up_to).filter(|fate| fate.seq > after);
            let floor = fate.map_or(after + 1, |fate| fate.seq);
            if let Some(mut source) = Source::new(mem, floor, up_to) {
                source.seek_first();
                sources.push(source);
            }
            mem.collect_ranges(floor, up_to, &mut ranges);
            outcome = match fate {
                None => continue,
                Some(Fate { exists: true, .. }) => TableOutcome::Fresh,
                Some(Fate { exists: false, .. }) => TableOutcome::Dropped,
            };
            break;
        }
        if outcome == TableOutcome::Dropped {
            sources.clear();
        }
        let mut ranges: Vec<_> = match outcome {
            TableOutcome::Kept => ranges
                .iter()
                .map(|(lo, hi)| (lo.to_vec(), hi.map(|hi| hi.to_vec())))
                .collect(),
            TableOutcome::Fresh | TableOutcome::Dropped => Vec::new(),
        };
        ranges.reverse();
        TableChanges {
            table,
            outcome,
            sources,
            ranges,
            range: Default::default(),
            at: None,
            waiting: None,
        }
        .begun()
    }

    fn begun(mut self) -> TableChanges<'g> {
        self.at = self.step();
        self
    }

    fn step(&mut self) -> Option<Step<'g>> {
        if let Some(put) = self.waiting.take() {
            return Some(Step::Put(put));
        }
        loop {
            let Some((node, dead)) = self.newest() else {
                // The remaining ranges.
                self.range = self.ranges.pop()?;
                return Some(Step::DeleteRange);
            };
            // Ranges that end before the key.
            if let Some((lo, hi)) = self.ranges.last()
                && &lo[..] <= node.key()
            {
                let inside = hi.as_ref().is_none_or(|hi| node.key() < &hi[..]);
                if !inside {
                    self.range = self.ranges.pop()?;
                    return Some(Step::DeleteRange);
                }
                self.pass(node);
                if dead {
                    continue;
                }
                // Split the range around the key.
                let (lo, hi) = self.ranges.pop()?;
                let after = [node.key(), &[0]].concat();
                if hi.as_ref().is_none_or(|hi| after < *hi) {
                    self.ranges.push((after, hi));
                }
                if &lo[..] < node.key() {
                    self.range = (lo, Some(node.key().to_vec()));
                    self.waiting = Some(node);
                    return Some(Step::DeleteRange);
                }
            } else {
                self.pass(node);
            }
            if !dead {
                return Some(Step::Put(node));
            }
            if self.outcome == TableOutcome::Kept {
                return Some(Step::Delete(node));
            }
        }
    }

    /// The newest version of the smallest remaining key, and whether the key is deleted.
    fn newest(&self) -> Option<(NodeRef<'g>, bool)> {
        let mut nearest: Option<(usize, NodeRef<'g>)> = None;
        for (place, source) in self.sources.iter().enumerate() {
            if let Some(at) = source.at
                && nearest.is_none_or(|(_, best)| at.compare_node_key(best).is_lt())
            {
                nearest = Some((place, at));
            }
        }
        let (place, node) = nearest?;
        let covered = || {
            self.sources[..=place]
                .iter()
                .filter_map(|source| source.cover(node.key()))
                .any(|cover| cover.seq > node.seq())
        };
        Some((node, node.is_deleted() || covered()))
    }

    /// Moves all sources past the key.
    fn pass(&mut self, node: NodeRef<'g>) {
        for source in &mut self.sources {
            if source.at.is_some_and(|at| at.same_key(node)) {
                source.next();
            }
        }
    }
}

impl Changes for TableChanges<'_> {
    fn current(&self) -> Option<Change<'_>> {
        Some(match self.at? {
            Step::Put(node) => Change::Put(node.key(), node.value()),
            Step::Delete(node) => Change::Delete(node.key()),
            Step::DeleteRange => Change::DeleteRange(&self.range.0, self.range.1.as_deref()),
        })
    }

    fn advance(&mut self) -> Result<()> {
        self.at = self.step();
        Ok(())
    }
}
