//! Searches one field of a vector index for the records most similar to a query vector.
//!
//! ```text
//!   exact         every entry of the field                                            ─┐ filter? ─ compare ─ the best `limit`
//!   approximate   lists, nearest centroids first, until enough entries were read       ─┘
//! ```
//!
//! "Enough" follows from `numCandidates`: a search that must consider n neighbours compares
//! [`COMPARED_PER_CANDIDATE`] times n vectors and at least [`COMPARED_MIN`], so small collections
//! are searched exactly. Only vectors that pass the filter count: a selective filter makes a search
//! read further, up to all lists, and its result is then exact.
//!
//! Ties go to the record that was inserted first.

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
use crate::storage_error::IntoClientError;

/// Minimum number of vectors an approximate search compares, if there are that many.
pub const COMPARED_MIN: usize = 2000;
/// Vectors compared per neighbour that the search must consider.
pub const COMPARED_PER_CANDIDATE: usize = 20;

/// A search of one field of an index.
pub struct Search<'a> {
    /// The vector index.
    pub index: &'a Index,
    /// Number of the field within the index.
    pub number: usize,
    /// The field.
    pub field: &'a VectorField,
    /// A vector of the field's dimensions.
    pub query: &'a QueryVector,
    /// Tests only the index's filter paths.
    pub filter: Option<&'a MatchExpression>,
    /// Number of neighbours to consider; `None` for all (exact search).
    pub candidates: Option<usize>,
    /// Maximum number of hits.
    pub limit: usize,
}

/// A search result.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The score as `$meta` returns it.
    pub score: f64,
    /// The matching record.
    pub id: RecordId,
}

/// Work done by a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchStats {
    /// Entries read.
    pub keys_examined: u64,
    /// Vectors compared: those of entries that passed the filter.
    pub vectors_compared: u64,
    /// Lists read, whole or in part.
    pub lists_read: u64,
    /// Lists in the index.
    pub lists: u64,
}

impl SearchStats {
    /// Whether the search read every list.
    pub fn is_exact(&self) -> bool {
        self.lists_read == self.lists
    }
}

/// One of the best hits so far; the heap's maximum is the next to be evicted.
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
    /// Returns the hits, the most similar first.
    /// Errors: those of the storage engine, `DataCorruptionDetected`, an interruption, those of the
    /// filter.
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

    /// Compares every entry whose key begins with `prefix`.
    fn read(
        &self,
        snapshot: &dyn Snapshot,
        op: &OpContext,
        prefix: &[u8],
        best: &mut BinaryHeap<Kept>,
        stats: &mut SearchStats,
    ) -> Result<()> {
        let mut cursor = snapshot.cursor(self.index.table()).into_client_error()?;
        let mut on = cursor.seek(prefix).into_client_error()?;
        while on && cursor.key().starts_with(prefix) {
            op.check_interrupt()?;
            stats.keys_examined += 1;
            let entry = EntryValue::parse(cursor.value(), self.field.dimensions)?;
            let passes = match self.filter {
                None => true,
                Some(filter) => {
                    let fields = RawDoc::parse(entry.filter)
                        .map_err(|_| damaged_key("its filter fields are not a document"))?;
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
            on = cursor.next().into_client_error()?;
        }
        Ok(())
    }
}
