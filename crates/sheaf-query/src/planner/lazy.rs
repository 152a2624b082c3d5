//! Alternatives of a cached `$or` that are built on first use.
//!
//! ```text
//!   {$or: [{a: 5, b: 7}, {a: 6, b: 8}, ...]}       recipe: OR [step 0, step 1, ...]
//!
//!   OR ─┬─ built   FETCH ─ IXSCAN a: [5, 5]         its results are being read
//!       ├─ lazy    step 1, branch {a: 6, b: 8}      has neither bounds nor a cursor yet
//!       └─ lazy    ...
//! ```
//!
//! A page may be full long before the last alternative is reached, and building forty scans costs
//! more than reading one document.
//!
//! Invariant: everything that the enclosing plan depends on is known of a lazy alternative: that it
//! can be built, whether its results have documents, and that it is not merged with other scans.
//! Therefore only comparisons with plain values, whose bounds are exact for every value, are lazy.
//! Printing a plan builds all alternatives.

use std::sync::{Arc, OnceLock};

use super::index_entry::IndexEntry;
use super::recipe::{LevelAt, Maker, Step, TakenAt, preorder};
use super::solution::SolutionNode;
use crate::matcher::{ComparisonOp, MatchExpression};
use sheaf_bson::Value;

/// See the module. Small, and cheap to copy until it is built.
#[derive(Debug, Clone)]
pub struct LazyNode {
    steps: Arc<[Step]>,
    at: usize,
    /// The whole filter, a rooted `$or`.
    filter: Arc<MatchExpression>,
    branch: Branch,
    gives_document: bool,
    made: OnceLock<Box<SolutionNode>>,
}

/// A branch of a rooted `$or`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch {
    /// Position among the branches.
    pub at: usize,
    /// Position of its first node in the preorder of the whole filter.
    pub first: usize,
}

impl LazyNode {
    /// The lazy form of the step at position `at`; `None` if its result must be built to know what
    /// the enclosing plan depends on. `nodes` is the preorder of the filter.
    pub(super) fn of(
        steps: &Arc<[Step]>,
        at: usize,
        branch: Branch,
        filter: &Arc<MatchExpression>,
        nodes: &[&MatchExpression],
    ) -> Option<LazyNode> {
        let gives_document = gives_document(steps.get(at)?, nodes)?;
        Some(LazyNode {
            steps: steps.clone(),
            at,
            filter: filter.clone(),
            branch,
            gives_document,
            made: OnceLock::new(),
        })
    }

    /// The plan of the alternative, built on the first call.
    pub fn node(&self) -> &SolutionNode {
        self.made.get_or_init(|| {
            // The invariant guarantees a plan; an empty plan would lose results.
            let node = self.make().unwrap_or_else(|| {
                unreachable!("an alternative of plain comparisons has no plan: {self:?}")
            });
            Box::new(node)
        })
    }

    /// Whether the plan has been built.
    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// Whether its results have their documents.
    pub fn gives_document(&self) -> bool {
        self.gives_document
    }

    /// Visits the indexes that it scans, without building it.
    pub fn for_each_index(&self, visit: &mut dyn FnMut(&Arc<IndexEntry>)) {
        if let Some(step) = self.steps.get(self.at) {
            step.for_each_index(visit);
        }
    }

    fn make(&self) -> Option<SolutionNode> {
        let MatchExpression::Or(branches) = &*self.filter else {
            return None;
        };
        let maker = Maker {
            nodes: preorder(branches.get(self.branch.at)?, 8)?,
            first: self.branch.first,
        };
        let way = maker.way(self.steps.get(self.at)?)?;
        Some(way.stages(&self.filter))
    }
}

/// Whether the results of the step have documents. `None` if constants decide that, or decide
/// whether the step is merged with others.
fn gives_document(step: &Step, nodes: &[&MatchExpression]) -> Option<bool> {
    match step {
        Step::Scan {
            index,
            level,
            taken,
            ..
        } => {
            if index.clustered || !taken.iter().all(|t| is_plain(t, nodes)) {
                return None;
            }
            let checks = has_checks(level, taken)?;
            // Scans with bounds on the leading field only are merged.
            (checks || taken.iter().any(|t| t.field > 0)).then_some(checks)
        }
        Step::And { level, both } => {
            let are_points = both.iter().all(|step| match step {
                Step::Scan { index, taken, .. } => {
                    taken.len() == index.fields.len()
                        && (0..taken.len()).all(|field| taken.iter().any(|t| t.field == field))
                        && taken
                            .iter()
                            .all(|t| is_plain(t, nodes) && is_equality(nodes[t.node]))
                }
                _ => false,
            });
            (are_points && !level.conjuncts.is_empty()).then_some(true)
        }
        _ => None,
    }
}

/// Whether a conjunct remains to be checked if all used bounds are exact; `None` if there are more
/// than 64 conjuncts.
fn has_checks(level: &LevelAt, taken: &[TakenAt]) -> Option<bool> {
    if level.conjuncts.len() > 64 {
        return None;
    }
    let mut decided = 0u64;
    for conjunct in taken.iter().filter(|t| t.whole).filter_map(|t| t.conjunct) {
        decided |= 1 << (conjunct & 63);
    }
    Some(decided.count_ones() as usize != level.conjuncts.len())
}

fn is_equality(expr: &MatchExpression) -> bool {
    matches!(expr, MatchExpression::Comparison(c) if c.op == ComparisonOp::Eq)
}

/// Whether the bounds are exact for every constant: neither empty nor full, and a single interval.
fn is_plain(taken: &TakenAt, nodes: &[&MatchExpression]) -> bool {
    let Some(MatchExpression::Comparison(c)) = nodes.get(taken.node) else {
        return false;
    };
    !taken.traits.positional
        && !taken.traits.hashed
        && c.collator.is_none()
        && match &*c.value {
            Value::Int32(_)
            | Value::Int64(_)
            | Value::String(_)
            | Value::ObjectId(_)
            | Value::DateTime(_)
            | Value::Boolean(_) => true,
            Value::Double(x) => !x.is_nan(),
            _ => false,
        }
}
