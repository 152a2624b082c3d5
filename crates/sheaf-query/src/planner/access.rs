//! Access paths: every way in which indexes can bring up a superset of what a
//! filter matches, with what remains to be checked.
//!
//! ```text
//!   {a: 1, b: 2, $or: [{c: 3}, {d: 4}]}       indexes a, {b, c}, c, d
//!
//!   scan a              check b, $or
//!   scan {b, c} b only  check a, $or
//!   or(scan {b, c} both, scan d)   check a, b
//!   or(scan c, scan d)             check a, b
//! ```
//!
//! A conjunction is served by one index or by one of its disjunctions, a
//! disjunction by serving every alternative. An alternative may use what holds
//! around it (`b` above), if its index takes something of the alternative too.
//!
//! The number of ways is bounded everywhere: a disjunction multiplies its
//! alternatives' ways, so of those only the best are combined, and the whole
//! of all ways may not weigh more than [`WEIGHT_MAX`] nodes beyond the first.

use std::rc::Rc;
use std::sync::Arc;

use super::assignment::{Assignment, assignments};
use super::bounds::{BoundsTightness, OrderedIntervalList};
use super::implication::{Context, implies};
use super::index_entry::IndexEntry;
use super::predicate::{Base, Conjunction, Disjunction, Predicate};
use crate::matcher::MatchExpression;

/// How many nodes (scans and checks) all ways together may have.
const WEIGHT_MAX: usize = 20_000;
/// How many predicates from around a disjunction its alternatives look at.
const OUTER_MAX: usize = 32;

/// One way.
#[derive(Debug)]
pub(super) struct Access<'q> {
    pub kind: AccessKind<'q>,
    /// Decided by index keys, though not by bounds (scans only).
    pub covered: Vec<&'q MatchExpression>,
    /// Decided by the document alone, in normalised order.
    pub residual: Vec<&'q MatchExpression>,
    /// Conjuncts from around that need no check any more.
    exact_outer: Vec<*const MatchExpression>,
    /// Scans and checks, those below included.
    pub weight: usize,
}

/// See [`Access`].
#[derive(Debug)]
pub(super) enum AccessKind<'q> {
    /// Lists are ascending, one for each field of the index.
    Scan(Arc<IndexEntry>, Vec<OrderedIntervalList>),
    /// At least two.
    Or(Vec<Rc<Access<'q>>>),
    /// Two scans whose records both have; sorted by record if all are points.
    And(Vec<Rc<Access<'q>>>),
}

/// The limits of the search, and the indexes it may use.
pub(super) struct Enumerator<'a> {
    pub indexes: Vec<&'a Arc<IndexEntry>>,
    /// Ways of a whole filter.
    pub max_accesses: usize,
    /// Combinations of a disjunction.
    pub max_or: usize,
    /// Pairs of indexes instead of single ones.
    pub intersect: Option<Intersect>,
}

/// Which intersections are asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intersect {
    /// Also scans that do not come in record order.
    pub hash: bool,
}

/// What holds around an expression.
struct Scope<'q, 's> {
    base: Base,
    outer: &'s [Predicate<'q>],
    context: Context<'s>,
}

impl Enumerator<'_> {
    /// The ways of a whole filter; none if no index serves it.
    pub fn accesses<'q>(&self, filter: &'q MatchExpression) -> Vec<Rc<Access<'q>>> {
        let scope = Scope {
            base: Base::default(),
            outer: &[],
            context: Context::new(filter, None),
        };
        let mut ways = self.conjunction(filter, &scope, self.max_accesses);
        // A key that can hold one document leaves nothing to compare.
        if let Some(at) = ways.iter().position(|w| w.is_unique_point()) {
            return vec![ways.swap_remove(at)];
        }
        let mut weight = 0;
        let mut kept = 0;
        for way in &ways {
            weight += way.weight;
            if kept > 0 && weight > WEIGHT_MAX {
                break;
            }
            kept += 1;
        }
        ways.truncate(kept);
        ways
    }

    fn conjunction<'q>(
        &self,
        expr: &'q MatchExpression,
        scope: &Scope<'q, '_>,
        max: usize,
    ) -> Vec<Rc<Access<'q>>> {
        let all = Conjunction::new(expr, &scope.base, scope.outer);
        // Inside $elemMatch a check has no document to look at: that is left to
        // the whole $elemMatch further up.
        let checks = scope.base.element.is_none();
        let mut ways: Vec<Rc<Access<'q>>> = Vec::new();
        for index in &self.indexes {
            let partial = index.partial_filter.as_deref();
            if partial.is_some_and(|p| !implies(&scope.context, p)) {
                continue;
            }
            for assignment in assignments(index, &all, max.saturating_sub(ways.len())) {
                ways.push(Rc::new(scan(assignment, &all, checks)));
            }
        }
        if let Some(intersect) = self.intersect
            && checks
        {
            let pairs = self.intersections(&ways, &all, intersect, max);
            if !pairs.is_empty() {
                return pairs;
            }
        }
        for disjunction in &all.disjunctions {
            if ways.len() >= max {
                break;
            }
            let combinations = self.disjunction(disjunction, &all, scope);
            let room = max - ways.len();
            ways.extend(
                combinations
                    .into_iter()
                    .take(room)
                    .map(|way| Rc::new(below(way, disjunction, &all, checks))),
            );
        }
        ways
    }

    /// The ways of a disjunction that is a conjunct of `all`.
    fn disjunction<'q>(
        &self,
        disjunction: &Disjunction<'q>,
        all: &Conjunction<'q>,
        scope: &Scope<'q, '_>,
    ) -> Vec<Access<'q>> {
        let children = disjunction.children;
        let outer: Vec<Predicate<'q>> = all
            .predicates
            .iter()
            .filter(|p| self.is_indexed(&p.path))
            .take(OUTER_MAX)
            .cloned()
            .collect();
        let max = self.max_or.min((WEIGHT_MAX / children.len().max(1)).max(1));
        let mut choices = Vec::with_capacity(children.len());
        for child in children {
            let inner = Scope {
                base: disjunction.base.clone(),
                outer: &outer,
                context: match disjunction.base.element {
                    // Paths inside an element are not paths of the document.
                    Some(_) => scope.context,
                    None => Context::new(child, Some(&scope.context)),
                },
            };
            let mut ways = self.conjunction(child, &inner, self.max_accesses);
            if ways.is_empty() {
                return Vec::new();
            }
            // No trial compares the ways of one alternative: the likely best first.
            ways.sort_by_key(|way| std::cmp::Reverse(way.rank()));
            ways.truncate(max);
            choices.push(ways);
        }
        combinations(&choices, max)
            .into_iter()
            .map(|picks| {
                let picked = picks
                    .iter()
                    .zip(&choices)
                    .map(|(&pick, ways)| ways[pick].clone())
                    .collect();
                union(picked)
            })
            .collect()
    }

    fn is_indexed(&self, path: &str) -> bool {
        self.indexes
            .iter()
            .any(|index| index.fields.iter().any(|f| f.path.dotted() == path))
    }

    /// Pairs of single scans that take different conjuncts.
    fn intersections<'q>(
        &self,
        ways: &[Rc<Access<'q>>],
        all: &Conjunction<'q>,
        intersect: Intersect,
        max: usize,
    ) -> Vec<Rc<Access<'q>>> {
        let mut pairs = Vec::new();
        for (i, a) in ways.iter().enumerate() {
            for b in &ways[i + 1..] {
                let (AccessKind::Scan(x, of_x), AccessKind::Scan(y, of_y)) = (&a.kind, &b.kind)
                else {
                    continue;
                };
                let sorted = [of_x, of_y]
                    .into_iter()
                    .flatten()
                    .all(OrderedIntervalList::is_point);
                let bounded = |lists: &[OrderedIntervalList], index: &IndexEntry| -> Vec<String> {
                    let bounded = lists
                        .iter()
                        .zip(&index.fields)
                        .filter(|(l, _)| !l.is_full());
                    bounded.map(|(_, f)| f.path.dotted().to_owned()).collect()
                };
                let (fx, fy) = (bounded(of_x, x), bounded(of_y, y));
                if (!sorted && !intersect.hash) || fx.iter().any(|f| fy.contains(f)) {
                    continue;
                }
                if pairs.len() >= max {
                    return pairs;
                }
                // Two index entries may be seen at different moments of a
                // record's life, so the document is checked in full.
                pairs.push(Rc::new(Access {
                    kind: AccessKind::And(vec![a.clone(), b.clone()]),
                    covered: Vec::new(),
                    residual: all.conjuncts.clone(),
                    exact_outer: Vec::new(),
                    weight: a.weight + b.weight,
                }));
            }
        }
        pairs
    }
}

/// A single scan for a conjunction.
fn scan<'q>(assignment: Assignment<'q>, all: &Conjunction<'q>, checks: bool) -> Access<'q> {
    let mut covered = Vec::new();
    let mut residual = Vec::new();
    if checks {
        for (at, conjunct) in all.conjuncts.iter().enumerate() {
            match assignment.tightness_of(at) {
                Some(BoundsTightness::Exact) => {}
                Some(BoundsTightness::InexactCovered) => covered.push(*conjunct),
                Some(BoundsTightness::InexactFetch) | None => residual.push(*conjunct),
            }
        }
    }
    let exact_outer = if checks {
        assignment.exact_outer().collect()
    } else {
        Vec::new()
    };
    Access {
        weight: 1 + covered.len() + residual.len(),
        kind: AccessKind::Scan(assignment.index, assignment.lists),
        covered,
        residual,
        exact_outer,
    }
}

/// A way of a disjunction as a way of the conjunction that it is part of.
fn below<'q>(
    mut way: Access<'q>,
    disjunction: &Disjunction<'q>,
    all: &Conjunction<'q>,
    checks: bool,
) -> Access<'q> {
    if !checks {
        return way;
    }
    let decided = |at: usize, conjunct: &MatchExpression| {
        at == disjunction.conjunct && disjunction.whole
            || way.exact_outer.contains(&(&raw const *conjunct))
    };
    let residual: Vec<_> = all
        .conjuncts
        .iter()
        .enumerate()
        .filter(|(at, conjunct)| !decided(*at, conjunct))
        .map(|(_, conjunct)| *conjunct)
        .collect();
    way.weight += residual.len();
    // A single scan may carry checks of its alternative already.
    way.residual.extend(residual);
    way
}

/// Positions of choices, at most `max` combinations: all first choices, all
/// second ones, ..., then single deviations from the first.
fn combinations<T>(choices: &[Vec<T>], max: usize) -> Vec<Vec<usize>> {
    let longest = choices.iter().map(Vec::len).max().unwrap_or(0);
    let mut out: Vec<Vec<usize>> = Vec::new();
    for step in 0..longest {
        if out.len() >= max {
            return out;
        }
        out.push(choices.iter().map(|c| step.min(c.len() - 1)).collect());
    }
    for (at, ways) in choices.iter().enumerate() {
        for pick in 1..ways.len() {
            if out.len() >= max {
                return out;
            }
            let mut one = vec![0; choices.len()];
            one[at] = pick;
            if !out.contains(&one) {
                out.push(one);
            }
        }
    }
    out
}

/// All alternatives' ways together; scans that differ in the leading field's
/// bounds only become one.
fn union(picked: Vec<Rc<Access<'_>>>) -> Access<'_> {
    let mut children: Vec<Rc<Access<'_>>> = Vec::with_capacity(picked.len());
    let mut merged: Vec<Merging<'_>> = Vec::new();
    for way in picked {
        let AccessKind::Scan(index, lists) = &way.kind else {
            children.push(way);
            continue;
        };
        // Where one alternative's bounds admit too much, its check must not
        // refuse what another's bounds decided: those stay apart.
        let alone = !way.residual.is_empty()
            || !way.covered.is_empty()
            || lists.iter().skip(1).any(|list| !list.is_full());
        if alone {
            children.push(way);
            continue;
        }
        match merged.iter_mut().find(|m| Arc::ptr_eq(&m.index, index)) {
            Some(same) => same.ways.push(way.clone()),
            None => {
                merged.push(Merging {
                    at: children.len(),
                    index: index.clone(),
                    ways: vec![way.clone()],
                });
                children.push(way);
            }
        }
    }
    for merging in merged {
        let at = merging.at;
        if let Some(one) = merging.finish() {
            children[at] = Rc::new(one);
        }
    }
    let exact_outer = match children.split_first() {
        None => Vec::new(),
        Some((first, rest)) => first
            .exact_outer
            .iter()
            .filter(|p| rest.iter().all(|way| way.exact_outer.contains(p)))
            .copied()
            .collect(),
    };
    if let [only] = children.as_slice() {
        return Access {
            exact_outer,
            ..only.copy()
        };
    }
    Access {
        weight: children.iter().map(|way| way.weight).sum(),
        kind: AccessKind::Or(children),
        covered: Vec::new(),
        residual: Vec::new(),
        exact_outer,
    }
}

struct Merging<'q> {
    at: usize,
    index: Arc<IndexEntry>,
    ways: Vec<Rc<Access<'q>>>,
}

impl<'q> Merging<'q> {
    /// One scan over the union of the bounds; `None` if there is one already.
    fn finish(self) -> Option<Access<'q>> {
        if self.ways.len() < 2 {
            return None;
        }
        let mut intervals = Vec::new();
        let mut rest = Vec::new();
        let mut name = String::new();
        for way in &self.ways {
            if let AccessKind::Scan(_, lists) = &way.kind
                && let Some((leading, others)) = lists.split_first()
            {
                intervals.extend(leading.intervals.iter().cloned());
                name.clone_from(&leading.name);
                rest = others.to_vec();
            }
        }
        let leading = OrderedIntervalList::union_of(intervals).named(&name);
        let mut lists = vec![leading];
        lists.extend(rest);
        Some(Access {
            kind: AccessKind::Scan(self.index, lists),
            covered: Vec::new(),
            residual: Vec::new(),
            exact_outer: Vec::new(),
            weight: 1,
        })
    }
}

impl<'q> Access<'q> {
    fn copy(&self) -> Access<'q> {
        Access {
            kind: match &self.kind {
                AccessKind::Scan(index, lists) => AccessKind::Scan(index.clone(), lists.clone()),
                AccessKind::Or(children) => AccessKind::Or(children.clone()),
                AccessKind::And(children) => AccessKind::And(children.clone()),
            },
            covered: self.covered.clone(),
            residual: self.residual.clone(),
            exact_outer: self.exact_outer.clone(),
            weight: self.weight,
        }
    }

    fn is_unique_point(&self) -> bool {
        match &self.kind {
            AccessKind::Scan(index, lists) => {
                index.unique && lists.iter().all(OrderedIntervalList::is_point)
            }
            _ => false,
        }
    }

    /// How much a way promises: points that lead, fields with bounds, few checks.
    pub fn rank(&self) -> (usize, usize, std::cmp::Reverse<usize>) {
        let checks = std::cmp::Reverse(self.residual.len());
        match &self.kind {
            AccessKind::Scan(_, lists) => {
                let points = lists.iter().take_while(|l| l.is_point()).count();
                let bounded = lists.iter().filter(|l| !l.is_full()).count();
                (points, bounded, checks)
            }
            AccessKind::Or(children) | AccessKind::And(children) => {
                let worst = children.iter().map(|c| c.rank()).min();
                worst.map_or((0, 0, checks), |(p, b, _)| (p, b, checks))
            }
        }
    }
}
