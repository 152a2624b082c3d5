//! What data tells the planner: asked while planning, answered by whoever has
//! the data, from a snapshot.
//!
//! MongoDB's published rules need no answers, so without a [`Statistics`] the
//! plans are theirs. With one there are further plans ("extensions"): skip
//! scans, explosions over prefixes taken from the index, intersections; and
//! candidates that cannot win are not tried. An answer decides only which of
//! several right plans runs, never what a plan gives.

use std::fmt;

use sheaf_bson::Value;

use super::index_entry::IndexEntry;
use super::solution::{IndexScanNode, QuerySolution, SolutionNode};
use crate::canonical::CanonicalQuery;

/// What one step of a plan costs by itself, such as comparing the record ids of
/// an intersection.
pub const STEP_COST: u64 = 1;
/// What stepping to the neighbouring index entry costs.
pub const KEY_COST: u64 = 10;
/// What the next document of a collection scan costs.
pub const SCAN_COST: u64 = 20;
/// What a seek within an index costs.
pub const SEEK_COST: u64 = 40;
/// What fetching a document costs that lies anywhere.
pub const FETCH_COST: u64 = 50;

/// How many keys some bounds hold, known from a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyEstimate {
    /// The likeliest number.
    pub keys: f64,
    /// Hardly fewer than this.
    pub low: f64,
    /// Hardly more than this.
    pub high: f64,
}

/// Different values at the front of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct Prefixes {
    /// One value for each of the leading fields.
    pub values: Vec<Vec<Value>>,
    /// Index keys looked at to find them.
    pub keys_examined: u64,
    /// Seeks that took.
    pub seeks: u64,
}

/// See the module.
pub trait Statistics: fmt::Debug {
    /// Records of the collection.
    fn records(&self) -> u64;

    /// How many keys lie within the scan's bounds; `None` if nothing is known.
    fn keys_within(&self, scan: &IndexScanNode) -> Option<KeyEstimate>;

    /// About how many combinations of values the first `fields` fields have;
    /// rather too many than too few. `None` if nothing is known.
    fn distinct_prefixes(&self, index: &IndexEntry, fields: usize) -> Option<u64>;

    /// Exactly the combinations of the first `fields` fields of the keys within
    /// the scan's bounds; `None` if there are more than `max`.
    fn prefixes(&self, scan: &IndexScanNode, fields: usize, max: usize) -> Option<Prefixes>;
}

/// Why a candidate is not worth a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pruned {
    /// Keys that it would examine.
    pub keys: f64,
    /// Keys that the best candidate would.
    pub best: f64,
}

/// Collections of fewer records are tried as they are.
pub const PRUNING_RECORDS_MIN: u64 = 10_000;
/// A candidate is pruned that needs more than this many times the keys of the best one, by the lower estimate of
/// its own keys and the upper estimate of the best one's.
const PRUNING_RATIO: f64 = 10.0;

/// Which of the candidates would examine many times the keys of another, in
/// their order; at least one would not. One that gives the order asked for and
/// may stop at a limit is kept: how far it has to go is for a trial to find out.
pub fn pruned(
    solutions: &[QuerySolution],
    query: &CanonicalQuery,
    statistics: &dyn Statistics,
    records_min: u64,
) -> Vec<Option<Pruned>> {
    if solutions.len() < 2 || statistics.records() < records_min {
        return vec![None; solutions.len()];
    }
    let stops_early = |solution: &QuerySolution| {
        query.limit.is_some() && query.sort.is_some() && !solution.has_blocking_stage
    };
    let estimates: Vec<Option<KeyEstimate>> = solutions
        .iter()
        .map(|solution| keys_of(&solution.root, statistics))
        .collect();
    let known = estimates.iter().flatten();
    let Some(best) = known.min_by(|a, b| a.high.total_cmp(&b.high)).copied() else {
        return vec![None; solutions.len()];
    };
    debug_assert!(
        estimates.iter().flatten().all(|e| e.low <= e.high),
        "{estimates:?}"
    );
    let pruned: Vec<_> = (solutions.iter().zip(estimates))
        .map(|(solution, estimate)| {
            let estimate = estimate.filter(|e| e.low > best.high * PRUNING_RATIO)?;
            (!stops_early(solution)).then_some(Pruned {
                keys: estimate.keys,
                best: best.keys,
            })
        })
        .collect();
    debug_assert!(pruned.iter().any(Option::is_none), "no candidate is left");
    pruned
}

/// The keys of all scans of a plan; `None` if those of one are not known.
fn keys_of(node: &SolutionNode, statistics: &dyn Statistics) -> Option<KeyEstimate> {
    let node = node.made();
    match node {
        SolutionNode::IndexScan(scan)
        | SolutionNode::ClusteredScan(scan)
        | SolutionNode::CountScan(scan) => {
            return statistics.keys_within(scan);
        }
        SolutionNode::Eof | SolutionNode::CollScan { .. } | SolutionNode::DistinctScan { .. } => {
            return None;
        }
        _ => {}
    }
    let mut sum = KeyEstimate {
        keys: 0.0,
        low: 0.0,
        high: 0.0,
    };
    for child in node.children() {
        let one = keys_of(child, statistics)?;
        sum.keys += one.keys;
        sum.low += one.low;
        sum.high += one.high;
    }
    Some(sum)
}
