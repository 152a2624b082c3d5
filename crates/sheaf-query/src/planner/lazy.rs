//! Alternatives of a cached `$or` that are made when they are first looked at.
//!
//! ```text
//!   {$or: [{a: 5, b: 7}, {a: 6, b: 8}, ...]}       recipe: OR [step 0, step 1, ...]
//!
//!   OR ─┬─ made    FETCH ─ IXSCAN a: [5, 5]         while its results are read
//!       ├─ lazy    step 1, branch {a: 6, b: 8}      has neither bounds nor a cursor yet
//!       └─ lazy    ...
//! ```
//!
//! A page may be full long before the last alternative is reached, and making
//! forty scans costs more than reading one document.
//!
//! Invariant: of a lazy alternative is known what the plan around it depends on:
//! that it can be made, that it gives documents or does not, and that it becomes
//! one scan with none beside it. So it stands for comparisons with plain values
//! only, of which bounds are exact whatever the value. Whoever shows a plan makes
//! all of it.

use std::sync::{Arc, OnceLock};

use super::index_entry::IndexEntry;
use super::recipe::{LevelAt, Maker, Step, TakenAt, preorder};
use super::solution::SolutionNode;
use crate::matcher::{ComparisonOp, MatchExpression};
use sheaf_bson::Value;

/// See the module. Small, and cheap to copy while it is not made.
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
    /// Which.
    pub at: usize,
    /// Its place in the preorder of the whole filter.
    pub first: usize,
}

impl LazyNode {
    /// The step at this place, lazily; `None` if what it becomes is known only
    /// when it is made. `nodes` is the preorder of the filter.
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

    /// What it becomes, made now if it was not yet.
    pub fn node(&self) -> &SolutionNode {
        self.made.get_or_init(|| {
            // By the invariant there is one; a plan without results is no way out.
            let node = self.make().unwrap_or_else(|| {
                unreachable!("an alternative of plain comparisons has no plan: {self:?}")
            });
            Box::new(node)
        })
    }

    /// Whether it has been made.
    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// Whether what comes out of it carries its document.
    pub fn gives_document(&self) -> bool {
        self.gives_document
    }

    /// Visits the indexes that it walks, without making it.
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

/// Whether what the step becomes carries documents; `None` if constants decide
/// that, or whether it is merged with others.
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
            // Scans of a leading field and nothing else become one.
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

/// Whether some conjunct is left to check when all that is taken is exact;
/// `None` if there are very many.
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

/// Whether the bounds are exact, neither empty nor full, and not of several values.
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
