//! Splits a pipeline into what the find layer can do and a better order of the other stages.
//!
//! ```text
//!   stages ── rules on neighbours, until none applies (`rules`)
//!          ── the longest beginning that a find can do becomes the CursorPrefix (`prefix`)
//!          ── limits move into the sorts before them
//! ```
//!
//! Invariant: every rewrite gives the documents, and their order, that the stages give one after
//! the other. Each rule states the condition under which it does, and has a property test that
//! compares the two. Errors are not preserved: a filter that is applied earlier may keep
//! a document from an expression that would have failed on it.

use crate::pipeline::{Pipeline, PipelineSource, Stage};

mod prefix;
mod push_match;
mod reads;
mod rules;

pub use prefix::{CursorPrefix, DistinctLike, DistinctTake};
pub(in crate::pipeline) use reads::dependencies;

/// A pipeline, split.
#[derive(Debug, Clone)]
pub struct OptimizedPipeline {
    /// What the find layer does. Empty unless documents come from the collection.
    pub prefix: CursorPrefix,
    /// What is left.
    pub rest: Pipeline,
}

impl Pipeline {
    /// Reorders the stages and splits off what the find layer can do.
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

/// The stages in a better order, none of them done by the find layer.
pub(super) fn reorder(stages: Vec<Stage>) -> Vec<Stage> {
    let mut stages = rewrite(stages);
    narrow(&mut stages);
    limit_sorts(&mut stages);
    stages
}

/// Tells stages which fields of what they give are read.
fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        if let Stage::Other(stage) = &stages[at]
            && let Some(wanted) = dependencies(&stages[at + 1..])
            && let Some(narrowed) = stage.giving(&wanted)
        {
            stages[at] = narrowed;
        }
    }
}

/// Applies [`rules::RULES`] to neighbours until none applies.
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
                // A stage that moved forward may now meet one that another rule knows.
                at = at.saturating_sub(1);
            }
            None => at += 1,
        }
    }
    stages
}

/// Moves limits after a sort into the sort, which then keeps no more than they let through.
///
/// Condition: only `$skip`s are between the two; the sort keeps as many documents as these skip, too.
fn limit_sorts(stages: &mut Vec<Stage>) {
    let mut at = 0;
    while at < stages.len() {
        if let Stage::Sort { pattern, limit } = &stages[at] {
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
                };
                // Of what the sort gives, the skips leave at most `n`.
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
