//! Splits a pipeline into a prefix for the find layer and the other stages in a better order.
//!
//! ```text
//!   stages ── rules on neighbours, until none applies (`rules`)
//!          ── the longest prefix that a find can execute becomes the CursorPrefix (`prefix`)
//!          ── limits move into the sorts before them
//! ```
//!
//! Invariant: every rewrite preserves the resulting documents and their order. Each rule states the
//! condition under which it does, and has a property test that compares the results. Errors are not
//! preserved: a filter that is applied earlier may exclude a document on which an expression would
//! have failed.

use std::sync::Arc;

use crate::expression::projection_exec::ProjectionExec;
use crate::pipeline::{Pipeline, PipelineSource, Stage};

mod prefix;
mod push_match;
mod reads;
mod rules;

pub use prefix::{CursorPrefix, DistinctLike, DistinctTake};
pub(in crate::pipeline) use reads::dependencies;

/// An optimised pipeline.
#[derive(Debug, Clone)]
pub struct OptimizedPipeline {
    /// The part that the find layer executes. Empty unless the source is the collection.
    pub prefix: CursorPrefix,
    /// The remaining stages.
    pub rest: Pipeline,
}

impl Pipeline {
    /// Reorders the stages and splits off the prefix for the find layer.
    pub fn optimize(self) -> OptimizedPipeline {
        let Pipeline {
            source,
            stages,
            sink,
        } = self;
        let mut stages = rewrite(stages);
        narrow(&mut stages);
        let mut prefix = CursorPrefix::default();
        if matches!(source, PipelineSource::Collection) {
            let taken = prefix::take_prefix(&stages, &mut prefix);
            stages.drain(..taken);
            if prefix.projection.is_none() {
                prefix.dependencies = dependencies(&stages);
            }
            prefix.distinct = prefix::distinct_like(&stages, &prefix);
            prefix.null_serves = prefix::null_serves(&stages);
            prefix.follows = prefix::follows(&stages, prefix.dependencies.as_ref());
        }
        limit_sorts(&mut stages);
        OptimizedPipeline {
            prefix,
            rest: Pipeline {
                source,
                stages,
                sink,
            },
        }
    }
}

/// The stages in a better order, without a prefix for the find layer.
pub(super) fn reorder(stages: Vec<Stage>) -> Vec<Stage> {
    let mut stages = rewrite(stages);
    narrow(&mut stages);
    limit_sorts(&mut stages);
    stages
}

/// Narrows each stage to the output fields that later stages read: a `$sort` holds no others.
///
/// Condition: what later stages read is known, because one of them computes its documents.
fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        if !matches!(stages[at], Stage::Sort { .. } | Stage::Other(_)) {
            continue;
        }
        let Some(wanted) = dependencies(&stages[at + 1..]) else {
            continue;
        };
        match &mut stages[at] {
            Stage::Sort { keeps, .. } => *keeps = ProjectionExec::keeping(&wanted).map(Arc::new),
            Stage::Other(stage) => {
                if let Some(narrowed) = stage.giving(&wanted) {
                    stages[at] = narrowed;
                }
            }
            _ => {}
        }
    }
}

/// Applies [`rules::RULES`] to adjacent stages until none applies.
fn rewrite(mut stages: Vec<Stage>) -> Vec<Stage> {
    for stage in &mut stages {
        if let Stage::Other(other) = stage
            && let Some(optimized) = other.optimized()
        {
            *stage = optimized;
        }
    }
    let mut at = 0;
    while at + 1 < stages.len() {
        let (first, second) = (&stages[at], &stages[at + 1]);
        let changed = rules::RULES
            .iter()
            .find_map(|rule| (rule.apply)(first, second));
        match changed {
            Some(together) => {
                stages.splice(at..at + 2, together);
                // A stage that moved forward may form a pair with the previous one.
                at = at.saturating_sub(1);
            }
            None => at += 1,
        }
    }
    stages
}

/// Moves limits after a sort into the sort, which then keeps only that number of documents.
///
/// Condition: only `$skip`s are between the two; the limit of the sort includes the skipped
/// documents.
fn limit_sorts(stages: &mut Vec<Stage>) {
    let mut at = 0;
    while at < stages.len() {
        if let Stage::Sort {
            pattern,
            limit,
            keeps,
        } = &stages[at]
        {
            let mut skipped: u64 = 0;
            let mut next = at + 1;
            while let Some(Stage::Skip(n)) = stages.get(next) {
                skipped = skipped.saturating_add(*n);
                next += 1;
            }
            if let Some(Stage::Limit(n)) = stages.get(next) {
                let all = skipped.saturating_add(*n);
                let limit = limit.map_or(all, |limit| limit.min(all));
                stages[at] = Stage::Sort {
                    pattern: pattern.clone(),
                    limit: Some(limit),
                    keeps: keeps.clone(),
                };
                // The skips leave at most `n` of the documents of the sort.
                stages.remove(next);
                // There may be another limit.
                continue;
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests;
