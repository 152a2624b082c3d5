//! Statistics for the planner. The caller implements them on a snapshot of the data; the planner
//! queries them while planning.
//!
//! MongoDB's published rules need no statistics, so without a [`Statistics`] the plans are those of
//! MongoDB. With statistics there are additional plans ("extensions"): skip scans, explosion over
//! prefixes from the index, and intersections; candidates that cannot win are not tried. Statistics
//! only affect the choice among correct plans, never the results of a plan.

use std::fmt;

use sheaf_bson::Value;

use super::index_entry::IndexEntry;
use super::solution::{IndexScanNode, QuerySolution, SolutionNode};
use crate::canonical::CanonicalQuery;

/// Cost of one step of a plan by itself, such as comparing the record ids of an intersection. All
/// costs share one arbitrary unit.
pub const STEP_COST: u64 = 1;
/// Cost of advancing to the next index entry.
pub const KEY_COST: u64 = 10;
/// Cost of the next document of a collection scan.
pub const SCAN_COST: u64 = 20;
/// Cost of a seek in an index.
pub const SEEK_COST: u64 = 40;
/// Cost of fetching a document from a random position.
pub const FETCH_COST: u64 = 50;

/// Estimated number of keys within bounds, from a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyEstimate {
    /// The most likely number.
    pub keys: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
}

/// Distinct prefixes of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct Prefixes {
    /// The prefixes; each has one value per leading field.
    pub values: Vec<Vec<Value>>,
    /// Number of index keys examined to find them.
    pub keys_examined: u64,
    /// Number of seeks to find them.
    pub seeks: u64,
}

/// See the module.
pub trait Statistics: fmt::Debug {
    /// Number of records in the collection.
    fn records(&self) -> u64;

    /// Estimates the number of keys within the bounds of the scan; `None` if unknown.
    fn keys_within(&self, scan: &IndexScanNode) -> Option<KeyEstimate>;

    /// Estimates the number of distinct combinations of values of the first `fields` fields; rather
    /// too high than too low. `None` if unknown.
    fn distinct_prefixes(&self, index: &IndexEntry, fields: usize) -> Option<u64>;

    /// The exact combinations of values of the first `fields` fields among the keys within the
    /// bounds of the scan; `None` if there are more than `max`.
    fn prefixes(&self, scan: &IndexScanNode, fields: usize, max: usize) -> Option<Prefixes>;
}

/// Why a candidate is not worth a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pruned {
    /// Estimated number of keys that it would examine.
    pub keys: f64,
    /// Estimated number of keys that the best candidate would examine.
    pub best: f64,
}

/// Minimum number of records; in smaller collections no candidate is excluded.
pub const PRUNING_RECORDS_MIN: u64 = 10_000;
/// A candidate is pruned if the lower end of its estimate exceeds the upper end of the best
/// candidate's estimate by this factor.
const PRUNING_RATIO: f64 = 10.0;

/// Marks candidates that would examine many times more keys than the best one, in the order of
/// `solutions`; at least one stays unmarked. A candidate that provides the sort order and can stop
/// at a limit is never marked: only a trial can determine how far it must scan.
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

/// The total estimate of all scans of a plan; `None` if the estimate of one is unknown.
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
