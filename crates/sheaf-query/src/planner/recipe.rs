//! A recipe describes how a plan was built, without constants. It rebuilds the plan for another
//! query of the same shape without a search for alternatives.
//!
//! ```text
//!   {a: 5, b: {$gt: 3}}          recipe: index a_1_b_1, field 0 takes node 1, field 1 takes node 2
//!   ├─ 0 And                     {a: 7, b: {$gt: 9}}  ──>  a: [7, 7]  b: (9, inf.0]
//!   ├─ 1 a $eq 5
//!   └─ 2 b $gt 3                 nodes are numbered in preorder
//! ```
//!
//! Invariant: a recipe builds the plan that the planner would have built. Everything that depends
//! on constants is decided again by the same functions: bounds, tightness and thereby the remaining
//! checks, the union of scans, order, projection. Plans whose constants decide more than that
//! (whether a sparse or partial index serves at all) have no recipe; neither have plans over hashed
//! or wildcard indexes, or indexes with a collation.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use sheaf_bson::Error;
use smallvec::{SmallVec, smallvec};

use super::access::{Access, AccessKind, Level, Origin};
use super::assignment::traits_of;
use super::bounds::{BoundsTightness, Interval, OrderedIntervalList};
use super::bounds_builder::{FieldTraits, bounds_of};
use super::data_access::Finisher;
use super::index_entry::{IndexEntry, IndexKind};
use super::lazy::{Branch, LazyNode};
use super::plan_builder::{conjunction, full_scan, scan as scan_within, scan_stage};
use super::signature::signatures;
use super::solution::{IndexScanNode, QuerySolution, SolutionNode};
use super::{PlannerParams, Source, candidates, checked};
use crate::canonical::CanonicalQuery;
use crate::matcher::MatchExpression;

/// Maximum number of nodes of a filter with a recipe, which keeps recipes small.
const NODES_MAX: usize = 4096;

/// See the module. Small, and shared by all users of the cached plan.
#[derive(Debug, Clone)]
pub struct Recipe {
    step: Step,
    /// Number of nodes of the filter.
    nodes: usize,
    /// Set if the plan is that of a rooted `$or`, planned branch by branch.
    branches: Option<Branches>,
}

/// The alternatives of a rooted `$or`, each built separately.
#[derive(Debug, Clone)]
struct Branches {
    steps: Arc<[Step]>,
    /// The branch of each step; `None` for a step that spans several branches.
    of_steps: Arc<[Option<Branch>]>,
}

impl Recipe {
    /// Approximate memory usage, in bytes.
    pub fn bytes(&self) -> usize {
        fn of(step: &Step) -> usize {
            size_of::<Step>()
                + match step {
                    Step::Scan { taken, level, .. } => {
                        size_of_val(taken.as_slice()) + size_of_val(level.conjuncts.as_slice())
                    }
                    Step::Union(picked) => picked.iter().map(of).sum(),
                    Step::Below { picked, .. } => picked.iter().map(of).sum(),
                    Step::And { both, .. } => both.iter().map(of).sum(),
                    Step::FullScan { .. } => 0,
                }
        }
        let of_steps = self.branches.as_ref().map_or(0, |b| b.of_steps.len());
        of(&self.step) + of_steps * size_of::<Option<Branch>>()
    }

    /// Converts the recipe to one of a plan made branch by branch. `filter` is that of any query of
    /// the shape.
    pub(super) fn of_branches(self, filter: &MatchExpression) -> Recipe {
        let steps: Arc<[Step]> = match &self.step {
            Step::Union(steps) => steps.clone(),
            _ => Arc::default(),
        };
        // The start of each branch in the preorder, and the end of the last one.
        let mut begins = vec![1];
        if let MatchExpression::Or(branches) = filter {
            for branch in branches {
                let nodes = preorder(branch, 8).map_or(0, |nodes| nodes.len());
                begins.push(begins.last().copied().unwrap_or(0) + nodes);
            }
        }
        let branch_of = |step: &Step| {
            let (low, high) = step.nodes()?;
            let at = begins
                .partition_point(|begin| *begin <= low)
                .checked_sub(1)?;
            let is_within = begins.get(at + 1).is_some_and(|end| high < *end);
            is_within.then(|| Branch {
                at,
                first: begins[at],
            })
        };
        Recipe {
            branches: Some(Branches {
                of_steps: steps.iter().map(branch_of).collect(),
                steps,
            }),
            ..self
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Scan {
        index: Arc<IndexEntry>,
        level: Arc<LevelAt>,
        taken: Vec<TakenAt>,
        skips: usize,
    },
    Union(Arc<[Step]>),
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

impl Step {
    /// The lowest and the highest number of the nodes that it reads.
    fn nodes(&self) -> Option<(usize, usize)> {
        fn add(node: usize, range: &mut Option<(usize, usize)>) {
            let (low, high) = range.unwrap_or((node, node));
            *range = Some((low.min(node), high.max(node)));
        }
        fn of(step: &Step, range: &mut Option<(usize, usize)>) {
            let mut of_level =
                |level: &LevelAt| level.conjuncts.iter().for_each(|node| add(*node, range));
            match step {
                Step::Scan { level, taken, .. } => {
                    of_level(level);
                    taken.iter().for_each(|taken| add(taken.node, range));
                }
                Step::Below { level, picked, .. } => {
                    of_level(level);
                    picked.iter().for_each(|step| of(step, range));
                }
                Step::And { level, both } => {
                    of_level(level);
                    both.iter().for_each(|step| of(step, range));
                }
                Step::Union(steps) => steps.iter().for_each(|step| of(step, range)),
                Step::FullScan { .. } => {}
            }
        }
        let mut range = None;
        of(self, &mut range);
        range
    }

    /// Visits the indexes of its scans.
    pub fn for_each_index(&self, visit: &mut dyn FnMut(&Arc<IndexEntry>)) {
        match self {
            Step::Scan { index, .. } | Step::FullScan { index, .. } => visit(index),
            Step::Union(steps) => steps.iter().for_each(|step| step.for_each_index(visit)),
            Step::Below { picked, .. } => {
                picked.iter().for_each(|step| step.for_each_index(visit));
            }
            Step::And { both, .. } => both.iter().for_each(|step| step.for_each_index(visit)),
        }
    }
}

/// See [`Level`]; only levels with checks have recipes.
#[derive(Debug)]
pub(super) struct LevelAt {
    pub conjuncts: Vec<usize>,
}

/// A predicate that bounds an index field.
#[derive(Debug, Clone, Copy)]
pub(super) struct TakenAt {
    pub field: usize,
    pub node: usize,
    pub traits: FieldTraits,
    pub conjunct: Option<usize>,
    pub whole: bool,
}

/// The recipe of the candidate with this signature; `None` if it has no recipe.
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
            branches: None,
        }),
        _ => None,
    })
}

/// The recipe of an access path of a query's filter.
pub(super) fn of_access(query: &CanonicalQuery, access: &Access<'_>) -> Option<Recipe> {
    let nodes = preorder(&query.filter, 16)?;
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
        branches: None,
    })
}

/// Whether the shape of the query alone decides if the index serves it.
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
            Origin::Union(picked) => Step::Union(self.steps(picked)?.into()),
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

/// All nodes of a filter in preorder; `None` if there are more than [`NODES_MAX`]. `about` is the
/// expected number.
pub(super) fn preorder(filter: &MatchExpression, about: usize) -> Option<Vec<&MatchExpression>> {
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
    let mut out = Vec::with_capacity(about);
    visit(filter, &mut out).then_some(out)
}

/// The plan of a recipe for a query of its shape. `None` if the constants of this query do not
/// allow the plan; the query must then be planned.
///
/// With statistics in `params`, a sort order may be produced by plans that need them; without, as
/// in MongoDB.
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
    let nodes = preorder(&query.filter, recipe.nodes)?;
    if nodes.len() != recipe.nodes {
        return None;
    }
    let maker = Maker { nodes, first: 0 };
    let way = match &recipe.branches {
        // Providing a sort order requires all branches to be built.
        Some(branches) if query.sort.is_none() => union(maker.branches(branches, &query.filter)?),
        _ => maker.way(&recipe.step)?,
    };
    let solution = finisher.finish(way.stages(&query.filter), true)?;
    Some(match recipe.branches {
        None => solution,
        Some(_) => QuerySolution {
            root: SolutionNode::Subplan {
                child: Box::new(solution.root),
            },
            ..solution
        },
    })
}

/// An [`Access`] built from a recipe: without the data for comparing candidates, and owned by a
/// single plan.
pub(super) struct Way<'q> {
    kind: WayKind<'q>,
    covered: Checks<'q>,
    residual: Checks<'q>,
    /// See [`Access`].
    exact_outer: SmallVec<[*const MatchExpression; 2]>,
    skips: usize,
}

type Checks<'q> = SmallVec<[&'q MatchExpression; 4]>;

enum WayKind<'q> {
    /// An index and one ascending list for each field.
    Scan(Arc<IndexEntry>, Vec<OrderedIntervalList>),
    Or(Vec<Way<'q>>),
    And(Vec<Way<'q>>),
    /// Never merged with other scans.
    Lazy(LazyNode),
}

pub(super) struct Maker<'q> {
    /// In preorder.
    pub nodes: Vec<&'q MatchExpression>,
    /// Number of the first node in the whole filter.
    pub first: usize,
}

impl<'q> Maker<'q> {
    /// The node with this number in the whole filter.
    fn node(&self, number: usize) -> Option<&'q MatchExpression> {
        let at = number.checked_sub(self.first)?;
        self.nodes.get(at).copied()
    }

    /// The alternatives of a rooted `$or`, lazy if possible.
    fn branches(&self, branches: &Branches, filter: &Arc<MatchExpression>) -> Option<Vec<Way<'q>>> {
        let mut made = Vec::with_capacity(branches.steps.len());
        for (at, step) in branches.steps.iter().enumerate() {
            let branch = branches.of_steps.get(at).copied().flatten();
            let lazy = branch
                .and_then(|branch| LazyNode::of(&branches.steps, at, branch, filter, &self.nodes));
            made.push(match lazy {
                Some(lazy) => Way::new(WayKind::Lazy(lazy)),
                None => self.way(step)?,
            });
        }
        Some(made)
    }

    pub fn way(&self, step: &Step) -> Option<Way<'q>> {
        Some(match step {
            Step::Scan {
                index,
                level,
                taken,
                skips,
            } => self.scan(index, level, taken, *skips)?,
            Step::Union(picked) => union(self.ways(picked)?),
            Step::Below {
                level,
                conjunct,
                whole,
                picked,
            } => {
                let mut way = union(self.ways(picked)?);
                for (at, &node) in level.conjuncts.iter().enumerate() {
                    let expr = self.node(node)?;
                    let decided =
                        at == *conjunct && *whole || way.exact_outer.contains(&(&raw const *expr));
                    if !decided {
                        way.residual.push(expr);
                    }
                }
                way
            }
            Step::And { level, both } => {
                let both = self.ways(&**both)?;
                // Otherwise the plan would be AND_HASH, which is a different one.
                if !both.iter().all(Way::is_point) {
                    return None;
                }
                let conjuncts = level.conjuncts.iter();
                let conjuncts = conjuncts.map(|&node| self.node(node));
                Way {
                    residual: conjuncts.collect::<Option<_>>()?,
                    ..Way::new(WayKind::And(both))
                }
            }
            Step::FullScan { .. } => return None,
        })
    }

    fn ways(&self, steps: &[Step]) -> Option<Vec<Way<'q>>> {
        let mut made = Vec::with_capacity(steps.len());
        for step in steps {
            made.push(self.way(step)?);
        }
        Some(made)
    }

    fn scan(
        &self,
        index: &Arc<IndexEntry>,
        level: &LevelAt,
        taken: &[TakenAt],
        skips: usize,
    ) -> Option<Way<'q>> {
        let mut lists: SmallVec<[Option<OrderedIntervalList>; 4]> =
            smallvec![None; index.fields.len()];
        let mut decided: SmallVec<[Option<BoundsTightness>; 8]> =
            smallvec![None; level.conjuncts.len()];
        let mut exact_outer = SmallVec::new();
        for at in taken {
            let expr = self.node(at.node)?;
            let bounds = bounds_of(expr, at.traits, None)?;
            match at.conjunct.filter(|_| at.whole) {
                Some(conjunct) => *decided.get_mut(conjunct)? = Some(bounds.tightness),
                None if at.whole && bounds.tightness == BoundsTightness::Exact => {
                    exact_outer.push(&raw const *expr);
                }
                None => {}
            }
            let list = lists.get_mut(at.field)?;
            *list = Some(match list.take() {
                None => bounds.list,
                Some(before) => before.intersect(&bounds.list),
            });
        }
        let lists = lists.into_iter();
        let lists = lists.map(|list| list.unwrap_or_else(OrderedIntervalList::all));
        let mut way = Way::new(WayKind::Scan(index.clone(), lists.collect()));
        for (&node, decided) in level.conjuncts.iter().zip(decided) {
            let expr = self.node(node)?;
            match decided {
                Some(BoundsTightness::Exact) => {}
                Some(BoundsTightness::InexactCovered) => way.covered.push(expr),
                Some(BoundsTightness::InexactFetch) | None => way.residual.push(expr),
            }
        }
        Some(Way {
            exact_outer,
            skips,
            ..way
        })
    }
}

impl<'q> Way<'q> {
    fn new(kind: WayKind<'q>) -> Way<'q> {
        Way {
            kind,
            covered: SmallVec::new(),
            residual: SmallVec::new(),
            exact_outer: SmallVec::new(),
            skips: 0,
        }
    }

    /// Whether it is a scan of a single key.
    fn is_point(&self) -> bool {
        match &self.kind {
            WayKind::Scan(_, lists) => lists.iter().all(OrderedIntervalList::is_point),
            _ => false,
        }
    }

    /// The index, if it is a scan that may be merged with others: see [`super::access::union`].
    fn merges(&self) -> Option<&Arc<IndexEntry>> {
        match &self.kind {
            WayKind::Scan(index, lists) => {
                let alone = !self.residual.is_empty()
                    || !self.covered.is_empty()
                    || lists.iter().skip(1).any(|list| !list.is_full());
                (!alone).then_some(index)
            }
            _ => None,
        }
    }

    /// Converts to stages, like [`stages`](super::plan_builder::stages) of an access path.
    pub fn stages(self, filter: &Arc<MatchExpression>) -> SolutionNode {
        let node = match self.kind {
            WayKind::Lazy(lazy) => SolutionNode::Lazy(lazy),
            WayKind::Scan(index, lists) if index.clustered => {
                // Checks on keys become checks on documents: a clustered scan has no keys.
                let mut checks = self.covered;
                checks.extend(self.residual);
                return SolutionNode::ClusteredScan(IndexScanNode {
                    filter: conjunction(&checks, filter),
                    ..scan_within(&index, lists)
                });
            }
            WayKind::Scan(index, lists) => SolutionNode::IndexScan(IndexScanNode {
                filter: conjunction(&self.covered, filter),
                skips: self.skips,
                ..scan_within(&index, lists)
            }),
            WayKind::Or(parts) => SolutionNode::Or {
                dedup: true,
                filter: None,
                children: parts.into_iter().map(|part| part.stages(filter)).collect(),
            },
            // All bounds are points: results are in record order. Checks are deferred until the
            // document is fetched.
            WayKind::And(parts) => SolutionNode::AndSorted {
                children: parts.into_iter().filter_map(Way::into_scan).collect(),
            },
        };
        match conjunction(&self.residual, filter) {
            None => node,
            filter => SolutionNode::Fetch {
                filter,
                child: Box::new(node),
            },
        }
    }

    fn into_scan(self) -> Option<SolutionNode> {
        match self.kind {
            WayKind::Scan(index, lists) => {
                Some(SolutionNode::IndexScan(scan_within(&index, lists)))
            }
            _ => None,
        }
    }
}

/// Like [`super::access::union`].
fn union(picked: Vec<Way<'_>>) -> Way<'_> {
    let mut children: Vec<Way<'_>> = Vec::with_capacity(picked.len());
    // Position of the first scan of an index, and the bounds of all merged scans, if any.
    let mut joined: SmallVec<[(usize, Option<Vec<Interval>>); 4]> = SmallVec::new();
    for mut way in picked {
        let Some(index) = way.merges() else {
            children.push(way);
            continue;
        };
        let is_same = |at: usize| children[at].merges().is_some_and(|i| Arc::ptr_eq(i, index));
        match joined.iter().position(|(at, _)| is_same(*at)) {
            Some(place) => {
                let others = joined[place].1.get_or_insert_default();
                others.extend(way.take_leading());
            }
            None => {
                joined.push((children.len(), None));
                children.push(way);
            }
        }
    }
    for (at, others) in joined {
        let Some(mut intervals) = others else {
            continue;
        };
        intervals.extend(children[at].take_leading());
        if let WayKind::Scan(_, lists) = &mut children[at].kind
            && let Some(leading) = lists.first_mut()
        {
            *leading = OrderedIntervalList::union_of(intervals);
        }
        children[at].exact_outer.clear();
    }
    let exact_outer = match children.split_first() {
        None => SmallVec::new(),
        Some((first, rest)) => {
            let of_all =
                |p: &&*const MatchExpression| rest.iter().all(|way| way.exact_outer.contains(*p));
            first.exact_outer.iter().filter(of_all).copied().collect()
        }
    };
    match children.len() {
        1 => children.swap_remove(0),
        _ => Way {
            exact_outer,
            ..Way::new(WayKind::Or(children))
        },
    }
}

impl Way<'_> {
    /// Takes the intervals of the leading field.
    fn take_leading(&mut self) -> Vec<Interval> {
        match &mut self.kind {
            WayKind::Scan(_, lists) => match lists.first_mut() {
                Some(list) => std::mem::take(list).into_intervals().into_vec(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}
