//! How a plan was made, without the constants: to make it again for another
//! query of the shape without looking for alternatives.
//!
//! ```text
//!   {a: 5, b: {$gt: 3}}          recipe: index a_1_b_1, field 0 takes node 1, field 1 takes node 2
//!   ├─ 0 And                     {a: 7, b: {$gt: 9}}  ──>  a: [7, 7]  b: (9, inf.0]
//!   ├─ 1 a $eq 5
//!   └─ 2 b $gt 3                 nodes are numbered in preorder
//! ```
//!
//! Invariant: what is made is what the planner would have made. Everything that
//! constants decide is decided anew, by the same functions: bounds, tightness
//! and with it what is left to check, the union of scans, order, projection.
//! What they may decide beyond that (whether a sparse or partial index serves at
//! all) has no recipe; nor have indexes with a collation, and those that are
//! planned with as several.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sheaf_bson::Error;

use super::access::{Access, AccessKind, Level, Origin, below, intersection, scan, union};
use super::assignment::{Assignment, SharedList, Taken, traits_of};
use super::bounds_builder::FieldTraits;
use super::data_access::Finisher;
use super::index_entry::{IndexEntry, IndexKind};
use super::plan_builder::{full_scan, scan_stage, stages};
use super::predicate::Predicate;
use super::signature::signatures;
use super::solution::{QuerySolution, SolutionNode};
use super::{PlannerParams, Source, candidates, checked};
use crate::canonical::CanonicalQuery;
use crate::matcher::MatchExpression;

/// Nodes of a filter that has recipes; one for more would not be small.
const NODES_MAX: usize = 4096;

/// See the module. Small, and shared by whoever has the plan cached.
#[derive(Debug, Clone)]
pub struct Recipe {
    step: Step,
    /// Nodes of the filter.
    nodes: usize,
    /// The plan is one of a rooted `$or`, made branch by branch.
    subplan: bool,
}

impl Recipe {
    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        fn of(step: &Step) -> usize {
            size_of::<Step>()
                + match step {
                    Step::Scan { taken, level, .. } => {
                        size_of_val(taken.as_slice()) + size_of_val(level.conjuncts.as_slice())
                    }
                    Step::Union(picked) | Step::Below { picked, .. } => picked.iter().map(of).sum(),
                    Step::And { both, .. } => both.iter().map(of).sum(),
                    Step::FullScan { .. } => 0,
                }
        }
        of(&self.step)
    }

    /// Of a plan made branch by branch.
    pub(super) fn of_branches(self) -> Recipe {
        Recipe {
            subplan: true,
            ..self
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Scan {
        index: Arc<IndexEntry>,
        level: Arc<LevelAt>,
        taken: Vec<TakenAt>,
        skips: usize,
    },
    Union(Vec<Step>),
    Below {
        level: Arc<LevelAt>,
        conjunct: usize,
        whole: bool,
        picked: Vec<Step>,
    },
    And {
        level: Arc<LevelAt>,
        both: Box<[Step; 2]>,
    },
    FullScan {
        index: Arc<IndexEntry>,
        sorts: bool,
    },
}

/// See [`Level`]; only levels that have checks have recipes.
#[derive(Debug)]
struct LevelAt {
    conjuncts: Vec<usize>,
}

/// A predicate over a field.
#[derive(Debug, Clone, Copy)]
struct TakenAt {
    field: usize,
    node: usize,
    traits: FieldTraits,
    conjunct: Option<usize>,
    whole: bool,
}

/// The recipe of the candidate of this signature; `None` if it has none.
///
/// Errors: those of planning.
pub fn recipe_of(
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
    signature: &str,
) -> Result<Option<Recipe>, Error> {
    let (found, _) = candidates(query, params)?;
    let (solutions, sources): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let at = signatures(&solutions).iter().position(|s| s == signature);
    Ok(match at.map(|at| &sources[at]) {
        Some(Source::Access(access)) => of_access(query, access),
        Some(Source::FullScan { index, sorts }) if is_plain(index) => Some(Recipe {
            step: Step::FullScan {
                index: index.clone(),
                sorts: *sorts,
            },
            nodes: 0,
            subplan: false,
        }),
        _ => None,
    })
}

/// The recipe of a way of a query's filter.
pub(super) fn of_access(query: &CanonicalQuery, access: &Access<'_>) -> Option<Recipe> {
    let nodes = preorder(&query.filter)?;
    let places = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| (&raw const **node, at));
    let mut writer = Writer {
        places: places.collect(),
        levels: HashMap::new(),
    };
    Some(Recipe {
        step: writer.step(access)?,
        nodes: nodes.len(),
        subplan: false,
    })
}

/// Only what the query's shape says decides whether the index serves.
fn is_plain(index: &IndexEntry) -> bool {
    matches!(index.kind, IndexKind::Btree)
        && !index.sparse
        && index.partial_filter.is_none()
        && index.collator.is_none()
}

struct Writer {
    places: HashMap<*const MatchExpression, usize>,
    levels: HashMap<*const Level<'static>, Arc<LevelAt>>,
}

impl Writer {
    fn step(&mut self, access: &Access<'_>) -> Option<Step> {
        Some(match &access.origin {
            Origin::Scan(level, taken) => {
                let AccessKind::Scan(index, _) = &access.kind else {
                    return None;
                };
                if !is_plain(index) {
                    return None;
                }
                let taken = taken.iter().map(|taken| {
                    let predicate = &taken.predicate;
                    let is_over =
                        |f: &super::index_entry::IndexField| f.path.dotted() == &*predicate.path;
                    let field = index.fields.iter().position(is_over)?;
                    Some(TakenAt {
                        field,
                        node: *self.places.get(&(&raw const *predicate.expr))?,
                        traits: traits_of(index, field),
                        conjunct: predicate.conjunct,
                        whole: predicate.whole,
                    })
                });
                Step::Scan {
                    taken: taken.collect::<Option<Vec<_>>>()?,
                    index: index.clone(),
                    level: self.level(level)?,
                    skips: access.skips,
                }
            }
            Origin::Union(picked) => Step::Union(self.steps(picked)?),
            Origin::Below(level, conjunct, whole, picked) => Step::Below {
                level: self.level(level)?,
                conjunct: *conjunct,
                whole: *whole,
                picked: self.steps(picked)?,
            },
            Origin::And(level, a, b) => Step::And {
                level: self.level(level)?,
                both: Box::new([self.step(a)?, self.step(b)?]),
            },
        })
    }

    fn steps(&mut self, accesses: &[Rc<Access<'_>>]) -> Option<Vec<Step>> {
        accesses.iter().map(|access| self.step(access)).collect()
    }

    fn level(&mut self, level: &Rc<Level<'_>>) -> Option<Arc<LevelAt>> {
        if !level.checks {
            return None;
        }
        let id = Rc::as_ptr(level).cast();
        if let Some(known) = self.levels.get(&id) {
            return Some(known.clone());
        }
        let conjuncts = level.conjuncts.iter();
        let places = conjuncts.map(|expr| self.places.get(&(&raw const **expr)).copied());
        let level = Arc::new(LevelAt {
            conjuncts: places.collect::<Option<_>>()?,
        });
        self.levels.insert(id, level.clone());
        Some(level)
    }
}

/// All nodes of a filter, each before those below it; `None` if they are many.
fn preorder(filter: &MatchExpression) -> Option<Vec<&MatchExpression>> {
    fn visit<'q>(node: &'q MatchExpression, out: &mut Vec<&'q MatchExpression>) -> bool {
        out.push(node);
        if out.len() > NODES_MAX {
            return false;
        }
        match node {
            MatchExpression::And(children)
            | MatchExpression::Or(children)
            | MatchExpression::Nor(children)
            | MatchExpression::ElemMatchValue { children, .. } => {
                children.iter().all(|child| visit(child, out))
            }
            MatchExpression::Not(child) | MatchExpression::ElemMatchObject { child, .. } => {
                visit(child, out)
            }
            _ => true,
        }
    }
    let mut out = Vec::with_capacity(16);
    visit(filter, &mut out).then_some(out)
}

/// The plan of a recipe for a query of the shape that it was made for. `None` if
/// this query's constants allow no such plan; then it has to be planned.
///
/// With statistics in `params` the order is given as they allow it; without,
/// as MongoDB gives it.
pub fn make(
    recipe: &Recipe,
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
) -> Option<QuerySolution> {
    if let Step::FullScan { index, sorts } = &recipe.step {
        let finisher = Finisher::for_full_scan(query, params);
        let scan = scan_stage(full_scan(index));
        return finisher.finish(checked(scan, query), *sorts);
    }
    let finisher = Finisher::new(query, params);
    let nodes = preorder(&query.filter)?;
    if nodes.len() != recipe.nodes {
        return None;
    }
    let mut maker = Maker {
        nodes,
        levels: Vec::new(),
    };
    let access = maker.access(&recipe.step)?;
    let solution = finisher.finish(stages(&access, &query.filter), true)?;
    Some(match recipe.subplan {
        false => solution,
        true => QuerySolution {
            root: SolutionNode::Subplan {
                child: Box::new(solution.root),
            },
            ..solution
        },
    })
}

struct Maker<'q> {
    nodes: Vec<&'q MatchExpression>,
    /// Those made so far; few, mostly the last is wanted again.
    levels: Vec<(*const LevelAt, Rc<Level<'q>>)>,
}

impl<'q> Maker<'q> {
    fn access(&mut self, step: &Step) -> Option<Access<'q>> {
        Some(match step {
            Step::Scan {
                index,
                level,
                taken,
                skips,
            } => {
                let mut assignment = self.assignment(index, taken)?;
                assignment.skips = *skips;
                scan(assignment, &self.level(level)?)
            }
            Step::Union(picked) => union(self.accesses(picked)?),
            Step::Below {
                level,
                conjunct,
                whole,
                picked,
            } => below(
                union(self.accesses(picked)?),
                *conjunct,
                *whole,
                &self.level(level)?,
            ),
            Step::And { level, both } => {
                let [a, b] = &**both;
                let (a, b) = (self.access(a)?, self.access(b)?);
                // By hash it would be another plan.
                if !a.is_point() || !b.is_point() {
                    return None;
                }
                intersection(Rc::new(a), Rc::new(b), &self.level(level)?)
            }
            Step::FullScan { .. } => return None,
        })
    }

    fn accesses(&mut self, steps: &[Step]) -> Option<Vec<Rc<Access<'q>>>> {
        let made = steps.iter().map(|step| self.access(step).map(Rc::new));
        made.collect()
    }

    fn assignment(&self, index: &Arc<IndexEntry>, taken: &[TakenAt]) -> Option<Assignment<'q>> {
        let mut lists = vec![SharedList::Full; index.fields.len()];
        let mut out = Vec::with_capacity(taken.len());
        for at in taken {
            let expr = *self.nodes.get(at.node)?;
            let predicate = Predicate::again(expr, at.conjunct, at.whole);
            let bounds = predicate.bounds(at.traits, None)?;
            out.push(Taken {
                predicate,
                tightness: bounds.tightness,
            });
            lists[at.field] = match &lists[at.field] {
                SharedList::Full => SharedList::One(bounds),
                before => SharedList::Own(Rc::new(before.intersect(&bounds.list))),
            };
        }
        Some(Assignment {
            index: index.clone(),
            lists,
            taken: out,
            skips: 0,
        })
    }

    fn level(&mut self, level: &Arc<LevelAt>) -> Option<Rc<Level<'q>>> {
        let id = Arc::as_ptr(level);
        let known = self.levels.iter().rev().find(|(known, _)| *known == id);
        if let Some((_, known)) = known {
            return Some(known.clone());
        }
        let conjuncts = level
            .conjuncts
            .iter()
            .map(|&at| self.nodes.get(at).copied());
        let made = Rc::new(Level {
            conjuncts: conjuncts.collect::<Option<_>>()?,
            checks: true,
        });
        // A disjunction has a level for each alternative, each used once.
        self.levels.truncate(8);
        self.levels.push((id, made.clone()));
        Some(made)
    }
}
