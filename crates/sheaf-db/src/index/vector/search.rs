//! A search of one field of a vector index: which records are most like a vector.
//!
//! ```text
//!   exact         every entry of the field                                            ─┐ filter? ─ compare ─ the best `limit`
//!   approximate   lists in the order of their promise, until enough entries were met  ─┘
//! ```
//!
//! "Enough" follows from `numCandidates`: a search that is to consider n neighbours compares with some times n
//! vectors, and never with fewer than [`COMPARED_MIN`], so small collections are searched exactly. Only vectors
//! that pass the filter count: a filter that lets few pass makes a search read further, up to all lists, and what
//! it finds then is exact.
//!
//! Of equally alike records the one that was inserted first comes first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::{RawDoc, RecordId, Result};
use sheaf_query::matcher::MatchExpression;
use sheaf_query::vector::{QueryVector, VectorField};
use sheaf_storage::Snapshot;

use super::{EntryValue, entry_prefix, field_prefix};
use crate::index::Index;
use crate::index::key_set::damaged_key;
use crate::op_context::OpContext;
use crate::storage_error::Coded;

/// An approximate search compares with so many vectors, where there are as many.
pub const COMPARED_MIN: usize = 2000;
/// With how many vectors it compares for each neighbour that it is to consider.
pub const COMPARED_PER_CANDIDATE: usize = 20;

/// What is looked for, in one field of an index.
pub struct Search<'a> {
    /// A vector index.
    pub index: &'a Index,
    /// The number of the field.
    pub number: usize,
    /// The field.
    pub field: &'a VectorField,
    /// A vector of the field's dimensions.
    pub query: &'a QueryVector,
    /// Of the index's filter paths only.
    pub filter: Option<&'a MatchExpression>,
    /// How many neighbours to consider; `None`: all.
    pub candidates: Option<usize>,
    /// How many to give.
    pub limit: usize,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// As `$meta` shows it.
    pub score: f64,
    /// Of which record.
    pub id: RecordId,
}

/// What a search did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchStats {
    /// Entries read.
    pub keys_examined: u64,
    /// Vectors compared with: of entries that passed the filter.
    pub vectors_compared: u64,
    /// Lists read, all or in part.
    pub lists_read: u64,
    /// Lists there are.
    pub lists: u64,
}

impl SearchStats {
    /// Whether no vector was left out.
    pub fn is_exact(&self) -> bool {
        self.lists_read == self.lists
    }
}

/// One of the best so far; the least of a heap is the one to go first.
struct Kept {
    rank: f32,
    id: RecordId,
}

impl Ord for Kept {
    /// Greater is worse.
    fn cmp(&self, other: &Kept) -> Ordering {
        other
            .rank
            .total_cmp(&self.rank)
            .then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Kept) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kept {}

impl Search<'_> {
    /// The hits, the most alike first.
    /// Errors: the engine's, `DataCorruptionDetected`, an interruption, those of the filter.
    pub fn run(&self, snapshot: &dyn Snapshot, op: &OpContext) -> Result<(Vec<Hit>, SearchStats)> {
        let mut best = BinaryHeap::new();
        let lists = self.index.vector_lists(self.number);
        let mut stats = SearchStats {
            lists: lists.map_or(1, |lists| lists.count() as u64),
            ..SearchStats::default()
        };
        match (self.candidates, lists) {
            (Some(candidates), Some(lists)) if lists.count() > 1 => {
                let enough = candidates
                    .saturating_mul(COMPARED_PER_CANDIDATE)
                    .max(COMPARED_MIN) as u64;
                for list in lists.ranked(self.query) {
                    op.check_interrupt()?;
                    if stats.vectors_compared >= enough {
                        break;
                    }
                    stats.lists_read += 1;
                    let prefix = entry_prefix(self.number, list);
                    self.read(snapshot, op, &prefix, &mut best, &mut stats)?;
                }
            }
            _ => {
                stats.lists_read = stats.lists;
                let prefix = field_prefix(self.number);
                self.read(snapshot, op, &prefix, &mut best, &mut stats)?;
            }
        }
        let hits = best.into_sorted_vec().into_iter().map(|kept| Hit {
            score: self.field.similarity.score(kept.rank),
            id: kept.id,
        });
        Ok((hits.collect(), stats))
    }

    /// Compares with every entry whose key begins with `prefix`.
    fn read(
        &self,
        snapshot: &dyn Snapshot,
        op: &OpContext,
        prefix: &[u8],
        best: &mut BinaryHeap<Kept>,
        stats: &mut SearchStats,
    ) -> Result<()> {
        let mut cursor = snapshot.cursor(self.index.table()).coded()?;
        let mut on = cursor.seek(prefix).coded()?;
        while on && cursor.key().starts_with(prefix) {
            op.check_interrupt()?;
            stats.keys_examined += 1;
            let entry = EntryValue::parse(cursor.value(), self.field.dimensions)?;
            let passes = match self.filter {
                None => true,
                Some(filter) => {
                    let fields = RawDoc::parse(entry.filter)
                        .map_err(|_| damaged_key("its filter fields are no document"))?;
                    filter.matches(fields)?
                }
            };
            if passes {
                stats.vectors_compared += 1;
                let rank = self
                    .field
                    .similarity
                    .rank(self.query, entry.packed, entry.norm);
                let full = best.len() >= self.limit;
                if !full || best.peek().is_some_and(|worst| rank >= worst.rank) {
                    let Some((id, _)) = decode_record_id(cursor.key()) else {
                        return Err(damaged_key("it does not end with a record id"));
                    };
                    best.push(Kept { rank, id });
                    if full {
                        best.pop();
                    }
                }
            }
            on = cursor.next().coded()?;
        }
        Ok(())
    }
}
