//! Enumerates access paths: every way in which indexes can produce a superset of the documents
//! that a filter matches, with the predicates that remain to be checked.
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
//! A conjunction is served by one index or by one of its disjunctions; a disjunction is served by
//! serving every alternative. An alternative may also use predicates of the enclosing conjunction
//! (`b` above) if its index uses a predicate of the alternative, too.
//!
//! The number of access paths is bounded: a disjunction multiplies the access paths of its
//! alternatives, so only the best of them are combined, and the total weight is limited to
//! [`WEIGHT_MAX`]. When the limit is exceeded, the most promising access paths are kept, and always
//! at least one.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::assignment::{Assignment, SharedList, Taken, assignments, rank, skipping};
use super::bounds::{BoundsTightness, OrderedIntervalList};
use super::implication::Implied;
use super::index_entry::IndexEntry;
use super::plan_builder;
use super::predicate::{Base, Conjunction, Disjunction, Predicate};
use super::statistics::{FETCH_COST, KEY_COST, SCAN_COST, SEEK_COST, Statistics};
use crate::matcher::MatchExpression;

/// Maximum total weight of all access paths: scans, checks, and intervals.
const WEIGHT_MAX: usize = 20_000;
/// Number of intervals that weigh as much as one scan.
const INTERVALS_PER_WEIGHT: usize = 8;
/// Maximum number of enclosing predicates that the alternatives of a disjunction consider.
const OUTER_MAX: usize = 32;
/// Maximum number of intervals of such a predicate.
const OUTER_INTERVALS_MAX: usize = 256;
/// Factor by which the estimated cost of a skip scan must be below that of a collection scan.
const SKIP_SCAN_GAIN: f64 = 2.0;

/// One access path.
#[derive(Debug)]
pub(super) struct Access<'q> {
    pub kind: AccessKind<'q>,
    /// Conjuncts that index keys decide, but bounds do not (scans only).
    pub covered: Vec<&'q MatchExpression>,
    /// Conjuncts that only the document decides, in normalised order.
    pub residual: Vec<&'q MatchExpression>,
    /// Conjuncts of enclosing conjunctions that need no further check.
    exact_outer: Vec<*const MatchExpression>,
    /// Number of leading fields that a skip scan skips; 0 for all other access paths.
    pub skips: usize,
    /// Scans, checks and intervals, including those of children.
    weight: usize,
    /// The inputs from which it was built.
    pub origin: Origin<'q>,
}

/// The inputs of an access path, sufficient to rebuild it with other constants.
#[derive(Debug, Clone)]
pub(super) enum Origin<'q> {
    /// Bounds of these predicates.
    Scan(Rc<Level<'q>>, Rc<[Taken<'q>]>),
    /// One access path for each alternative of a disjunction.
    Union(Vec<Rc<Access<'q>>>),
    /// A union within the conjunction that contains the disjunction: the conjunct to which the
    /// disjunction belongs, and whether the disjunction is the whole conjunct.
    Below(Rc<Level<'q>>, usize, bool, Vec<Rc<Access<'q>>>),
    /// Two scans.
    And(Rc<Level<'q>>, Rc<Access<'q>>, Rc<Access<'q>>),
}

/// The properties of a conjunction that its access paths share.
#[derive(Debug)]
pub(super) struct Level<'q> {
    /// In normalised order.
    pub conjuncts: Vec<&'q MatchExpression>,
    /// Whether conjuncts can be checked, that is, the conjunction is not inside `$elemMatch`.
    pub checks: bool,
}

/// See [`Access`].
#[derive(Debug)]
pub(super) enum AccessKind<'q> {
    /// A scan of an index, with one ascending list for each field, without field names.
    Scan(Arc<IndexEntry>, Vec<SharedList>),
    /// At least two.
    Or(Vec<Rc<Access<'q>>>),
    /// Two scans; the result is the records that both return. Sorted by record if all bounds are
    /// points.
    And(Vec<Rc<Access<'q>>>),
}

/// Enumerates access paths over a set of indexes, within limits.
pub(super) struct Enumerator<'a> {
    pub indexes: Vec<&'a Arc<IndexEntry>>,
    /// Maximum number of access paths of a filter.
    pub accesses_max: usize,
    /// Maximum number of combinations of a disjunction.
    pub or_paths_max: usize,
    /// Also enumerate intersections of two indexes.
    pub intersect: Option<Intersect>,
    /// For access paths that are worthwhile only with suitable data.
    pub statistics: Option<&'a dyn Statistics>,
    /// Set when a limit on combinations was reached.
    pub or_reached: Cell<bool>,
    /// Set when a limit on the access paths of a conjunction was reached.
    pub and_reached: Cell<bool>,
}

/// Which intersections to enumerate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intersect {
    /// Include scans that do not return records in record order.
    pub hash: bool,
    /// Return only intersections, if there are any, instead of single indexes.
    pub forced: bool,
    /// Maximum number of pairs of one conjunction.
    pub max: usize,
}

/// The context of an expression.
struct Scope<'q, 's> {
    base: Base,
    outer: &'s [Predicate<'q>],
    /// What is known of the document, including the expression itself.
    implied: Implied,
    /// Whether the expression is the whole filter.
    whole: bool,
}

impl Enumerator<'_> {
    /// The access paths of a whole filter; empty if no index serves it.
    pub fn accesses<'q>(&self, filter: &'q MatchExpression) -> Vec<Rc<Access<'q>>> {
        let scope = Scope {
            base: Base::default(),
            outer: &[],
            implied: Implied::nothing(&self.indexes).with(filter, &self.indexes),
            whole: true,
        };
        let mut ways = self.conjunction(filter, &scope, self.accesses_max);
        // A key that at most one document has cannot be beaten.
        if let Some(at) = ways.iter().position(|w| w.is_unique_point()) {
            return vec![ways.swap_remove(at)];
        }
        keep_light(&mut ways);
        ways
    }

    /// Skip scans that decide the whole filter, regardless of their cost: a sorted page becomes one
    /// scan for each value of the leading fields, and each scan can stop early.
    pub fn skips<'q>(&self, filter: &'q MatchExpression) -> Vec<Rc<Access<'q>>> {
        let all = Conjunction::new(filter, &Base::default(), &[]);
        let implied = Implied::nothing(&self.indexes).with(filter, &self.indexes);
        let level = Rc::new(Level {
            conjuncts: all.conjuncts.clone(),
            checks: true,
        });
        let of_index = |(at, index): (usize, &&Arc<IndexEntry>)| {
            let assignment = skipping(index, &all).filter(|_| implied.holds_for(at))?;
            let way = scan(assignment, &level);
            way.residual.is_empty().then(|| Rc::new(way))
        };
        let indexes = self.indexes.iter().enumerate();
        indexes
            .filter_map(of_index)
            .take(self.accesses_max)
            .collect()
    }

    fn conjunction<'q>(
        &self,
        expr: &'q MatchExpression,
        scope: &Scope<'q, '_>,
        max: usize,
    ) -> Vec<Rc<Access<'q>>> {
        let all = Conjunction::new(expr, &scope.base, scope.outer);
        // Inside $elemMatch a conjunct cannot be checked on the document; the enclosing $elemMatch
        // is checked as a whole.
        let checks = scope.base.element.is_none();
        let mut taken: Vec<Assignment<'q>> = Vec::new();
        for (at, index) in self.indexes.iter().enumerate() {
            if scope.implied.holds_for(at) {
                taken.extend(assignments(index, &all, max.saturating_sub(taken.len())));
            }
        }
        if checks && let Some(statistics) = self.statistics {
            for (at, index) in self.indexes.iter().enumerate() {
                if taken.len() < max
                    && scope.implied.holds_for(at)
                    && let Some(skips) = skip_scan(index, &all, statistics)
                {
                    taken.push(skips);
                }
            }
        }
        if taken.len() >= max {
            self.and_reached.set(true);
        }
        // Each access path lists the conjuncts that remain to be checked.
        let room = (WEIGHT_MAX / all.conjuncts.len().max(1)).max(1);
        if taken.len() > room {
            taken.sort_by_key(|assignment| std::cmp::Reverse(assignment.rank()));
            taken.truncate(room);
            self.and_reached.set(true);
        }
        let level = Rc::new(Level {
            conjuncts: all.conjuncts.clone(),
            checks,
        });
        let mut ways: Vec<Rc<Access<'q>>> = taken
            .into_iter()
            .map(|assignment| Rc::new(scan(assignment, &level)))
            .collect();
        if let Some(intersect) = self.intersect
            && checks
        {
            if intersect.forced {
                let pairs = self.intersections(&ways, &level, intersect);
                if !pairs.is_empty() {
                    return pairs;
                }
            } else if scope.whole && !ways.iter().any(|way| way.is_unique_point()) {
                let pairs = self.intersections(&ways, &level, intersect);
                ways.extend(pairs.into_iter().take(max.saturating_sub(ways.len())));
            }
        }
        if all.disjunctions.is_empty() {
            return ways;
        }
        let outer = self.outer_of(&all);
        let mut weight: usize = ways.iter().map(|way| way.weight).sum();
        for disjunction in &all.disjunctions {
            if ways.len() >= max || !ways.is_empty() && weight > WEIGHT_MAX {
                break;
            }
            for way in self.disjunction(disjunction, &outer, scope) {
                if ways.len() >= max {
                    break;
                }
                let (conjunct, whole) = (disjunction.conjunct, disjunction.whole);
                let way = Rc::new(below(way, conjunct, whole, &level));
                weight += way.weight;
                ways.push(way);
            }
        }
        ways
    }

    /// The predicates of the enclosing conjunction that alternatives of a disjunction may use.
    fn outer_of<'q>(&self, all: &Conjunction<'q>) -> Vec<Predicate<'q>> {
        let is_short = |p: &&Predicate<'q>| match p.expr {
            MatchExpression::In(i) => i.equalities.len() <= OUTER_INTERVALS_MAX,
            MatchExpression::Not(child) => match &**child {
                MatchExpression::In(i) => i.equalities.len() <= OUTER_INTERVALS_MAX,
                _ => true,
            },
            MatchExpression::ElemMatchValue { .. } => false,
            _ => true,
        };
        all.predicates
            .iter()
            .filter(is_short)
            .filter(|p| self.is_indexed(&p.path))
            .take(OUTER_MAX)
            .cloned()
            .collect()
    }

    /// The access paths of a disjunction that is a conjunct, or inside one.
    fn disjunction<'q>(
        &self,
        disjunction: &Disjunction<'q>,
        outer: &[Predicate<'q>],
        scope: &Scope<'q, '_>,
    ) -> Vec<Access<'q>> {
        let children = disjunction.children;
        let max = self
            .or_paths_max
            .min((WEIGHT_MAX / children.len().max(1)).max(1));
        let mut choices = Vec::with_capacity(children.len());
        for child in children {
            let inner = Scope {
                base: disjunction.base.clone(),
                outer,
                implied: match disjunction.base.element {
                    // Paths inside an element are not paths of the document.
                    Some(_) => scope.implied.clone(),
                    None => scope.implied.with(child, &self.indexes),
                },
                whole: false,
            };
            let mut ways = self.conjunction(child, &inner, self.accesses_max);
            if ways.is_empty() {
                return Vec::new();
            }
            // No trial compares the access paths of one alternative, so the most promising come
            // first.
            ways.sort_by_key(|way| std::cmp::Reverse(way.rank()));
            ways.truncate(max);
            choices.push(ways);
        }
        let found = combinations(&choices, max);
        let all = choices
            .iter()
            .try_fold(1usize, |n, ways| n.checked_mul(ways.len()));
        if all.is_none_or(|all| all > found.len()) {
            self.or_reached.set(true);
        }
        found
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
        level: &Rc<Level<'q>>,
        intersect: Intersect,
    ) -> Vec<Rc<Access<'q>>> {
        // For each scan, the paths that it bounds and whether it covers a single key.
        let bounded: Vec<Option<(Vec<&str>, bool)>> = ways
            .iter()
            .map(|way| match &way.kind {
                AccessKind::Scan(index, lists) => {
                    let fields = lists.iter().zip(&index.fields);
                    let bounded = fields.filter(|(list, _)| !list.is_full());
                    let paths = bounded.map(|(_, field)| field.path.dotted()).collect();
                    // A clustered scan reads the records anyway: checking the remaining conjuncts
                    // on them is cheaper.
                    let is_point = lists.iter().all(|list| list.is_point());
                    (!index.clustered).then_some((paths, is_point))
                }
                _ => None,
            })
            .collect();
        let scans = || ways.iter().zip(&bounded);
        let mut pairs = Vec::new();
        for (i, (a, of_a)) in scans().enumerate() {
            let Some((fx, a_is_point)) = of_a else {
                continue;
            };
            for (b, of_b) in scans().skip(i + 1) {
                let Some((fy, b_is_point)) = of_b else {
                    continue;
                };
                let sorted = *a_is_point && *b_is_point;
                if (!sorted && !intersect.hash) || fx.iter().any(|f| fy.contains(f)) {
                    continue;
                }
                // A single index that bounds all of these fields is more selective.
                let served = || {
                    let mut known = bounded.iter().flatten();
                    known.any(|(both, _)| fx.iter().chain(fy).all(|f| both.contains(f)))
                };
                if !intersect.forced && served() {
                    continue;
                }
                if pairs.len() >= intersect.max {
                    self.and_reached.set(true);
                    return pairs;
                }
                pairs.push(Rc::new(intersection(a.clone(), b.clone(), level)));
            }
        }
        pairs
    }
}

/// Drops the least promising access paths until the total weight is at most [`WEIGHT_MAX`]. Keeps
/// the order of the others.
fn keep_light(ways: &mut Vec<Rc<Access<'_>>>) {
    if ways.iter().map(|way| way.weight).sum::<usize>() <= WEIGHT_MAX {
        return;
    }
    let mut order: Vec<usize> = (0..ways.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(ways[at].rank()));
    let mut weight = 0;
    let mut kept = vec![false; ways.len()];
    for (place, at) in order.into_iter().enumerate() {
        weight += ways[at].weight;
        if place > 0 && weight > WEIGHT_MAX {
            break;
        }
        kept[at] = true;
    }
    let mut keep = kept.into_iter();
    ways.retain(|_| keep.next().unwrap_or(false));
}

/// A scan that skips leading fields without predicates, if its estimated cost is clearly below
/// that of reading every document.
fn skip_scan<'q>(
    index: &Arc<IndexEntry>,
    all: &Conjunction<'q>,
    statistics: &dyn Statistics,
) -> Option<Assignment<'q>> {
    let assignment = skipping(index, all)?;
    let prefixes = statistics.distinct_prefixes(index, assignment.skips)? as f64;
    let lists = assignment.lists.iter().map(|list| (**list).clone());
    let keys = statistics
        .keys_within(&plan_builder::scan(index, lists))?
        .keys;
    // Each prefix costs one seek to enter and one to leave.
    let cost = prefixes * (2 * SEEK_COST) as f64 + keys * (KEY_COST + FETCH_COST) as f64;
    let whole = (statistics.records() * SCAN_COST) as f64;
    (cost * SKIP_SCAN_GAIN <= whole).then_some(assignment)
}

/// The intersection of two scans. The two index entries may be read from different versions of a
/// record, so all conjuncts are checked on the document.
pub(super) fn intersection<'q>(
    a: Rc<Access<'q>>,
    b: Rc<Access<'q>>,
    level: &Rc<Level<'q>>,
) -> Access<'q> {
    Access {
        weight: a.weight + b.weight,
        origin: Origin::And(level.clone(), a.clone(), b.clone()),
        kind: AccessKind::And(vec![a, b]),
        covered: Vec::new(),
        residual: level.conjuncts.clone(),
        exact_outer: Vec::new(),
        skips: 0,
    }
}

/// A single scan for a conjunction.
pub(super) fn scan<'q>(assignment: Assignment<'q>, level: &Rc<Level<'q>>) -> Access<'q> {
    let mut covered = Vec::new();
    let mut residual = Vec::new();
    if level.checks {
        let tightness = assignment.tightness(level.conjuncts.len());
        for (conjunct, tightness) in level.conjuncts.iter().zip(tightness) {
            match tightness {
                Some(BoundsTightness::Exact) => {}
                Some(BoundsTightness::InexactCovered) => covered.push(*conjunct),
                Some(BoundsTightness::InexactFetch) | None => residual.push(*conjunct),
            }
        }
    }
    let exact_outer = if level.checks {
        assignment.exact_outer().collect()
    } else {
        Vec::new()
    };
    Access {
        weight: 1 + covered.len() + residual.len() + weight_of(&assignment.lists),
        skips: assignment.skips,
        origin: Origin::Scan(level.clone(), assignment.taken.into()),
        kind: AccessKind::Scan(assignment.index, assignment.lists),
        covered,
        residual,
        exact_outer,
    }
}

fn weight_of(lists: &[SharedList]) -> usize {
    let intervals: usize = lists.iter().map(|list| list.len()).sum();
    intervals / INTERVALS_PER_WEIGHT
}

/// Converts an access path of a disjunction to one of the enclosing conjunction. The disjunction
/// belongs to `conjunct`, and is all of it if `whole`.
pub(super) fn below<'q>(
    mut way: Access<'q>,
    conjunct: usize,
    whole: bool,
    level: &Rc<Level<'q>>,
) -> Access<'q> {
    if let Origin::Union(picked) = &way.origin {
        way.origin = Origin::Below(level.clone(), conjunct, whole, picked.clone());
    }
    if !level.checks {
        return way;
    }
    let decided = |at: usize, expr: &MatchExpression| {
        at == conjunct && whole || way.exact_outer.contains(&(&raw const *expr))
    };
    let residual: Vec<_> = level
        .conjuncts
        .iter()
        .enumerate()
        .filter(|(at, expr)| !decided(*at, expr))
        .map(|(_, expr)| *expr)
        .collect();
    way.weight += residual.len();
    // A single scan may already have checks of its alternative.
    way.residual.extend(residual);
    way
}

/// At most `max` combinations, as positions in `choices`: all first choices, all second choices,
/// and so on, then combinations that differ from the first in one position.
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

/// The union of one access path per alternative. Scans that differ only in the bounds of the
/// leading field are merged into one.
pub(super) fn union(picked: Vec<Rc<Access<'_>>>) -> Access<'_> {
    let origin = Origin::Union(picked.clone());
    let mut children: Vec<Rc<Access<'_>>> = Vec::with_capacity(picked.len());
    let mut merged: Vec<Merging<'_>> = Vec::new();
    for way in picked {
        let AccessKind::Scan(index, lists) = &way.kind else {
            children.push(way);
            continue;
        };
        // An alternative with inexact bounds has a check, which must not reject what the bounds of
        // another alternative decided: such scans stay separate.
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
            origin,
            ..only.copy()
        };
    }
    Access {
        weight: children.iter().map(|way| way.weight).sum(),
        skips: 0,
        origin,
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
    /// One scan over the union of the bounds; `None` if there is only one scan.
    fn finish(self) -> Option<Access<'q>> {
        if self.ways.len() < 2 {
            return None;
        }
        let mut intervals = Vec::new();
        let mut fields = 0;
        for way in &self.ways {
            if let AccessKind::Scan(_, lists) = &way.kind
                && let Some(leading) = lists.first()
            {
                intervals.extend(leading.intervals().iter().cloned());
                fields = lists.len();
            }
        }
        let mut lists = vec![SharedList::Full; fields];
        *lists.first_mut()? = SharedList::Own(Rc::new(OrderedIntervalList::union_of(intervals)));
        Some(Access {
            weight: 1 + weight_of(&lists),
            kind: AccessKind::Scan(self.index, lists),
            covered: Vec::new(),
            residual: Vec::new(),
            exact_outer: Vec::new(),
            skips: 0,
            origin: Origin::Union(self.ways),
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
            skips: self.skips,
            weight: self.weight,
            origin: self.origin.clone(),
        }
    }

    fn is_unique_point(&self) -> bool {
        match &self.kind {
            AccessKind::Scan(index, lists) => {
                index.unique && lists.iter().all(|list| list.is_point())
            }
            _ => false,
        }
    }

    /// Ranks the access path: leading points, then fields with bounds, then few checks.
    pub fn rank(&self) -> (usize, usize, std::cmp::Reverse<usize>) {
        let checks = std::cmp::Reverse(self.residual.len());
        match &self.kind {
            AccessKind::Scan(index, lists) => {
                let (points, bounded) = rank(index, lists);
                (points, bounded, checks)
            }
            AccessKind::Or(children) | AccessKind::And(children) => {
                let worst = children.iter().map(|c| c.rank()).min();
                worst.map_or((0, 0, checks), |(p, b, _)| (p, b, checks))
            }
        }
    }
}
