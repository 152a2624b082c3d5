//! Assigns predicates of a conjunction to the fields of one index, and combines their bounds.
//!
//! Without arrays, an index uses every predicate on its fields, and bounds on the same field are
//! intersected. With arrays, two predicates may be satisfied by different elements, while a key
//! contains one element of each array:
//!
//! ```text
//!   index {"a.b": 1, "a.c": 1}, a is an array
//!   {"a.b": 1, "a.c": 2}                       a.b: [1, 1]  a.c: [MinKey, MaxKey]
//!   {a: {$elemMatch: {b: 1, c: 2}}}            a.b: [1, 1]  a.c: [2, 2]
//!   {"a.b": {$gt: 3}, "a.b": {$lt: 5}}         a.b: (3, inf.0]   or   a.b: [-inf.0, 5)
//! ```
//!
//! Rule: two predicates are compatible if their paths share no array, or if both are within the
//! same `$elemMatch` on the deepest shared array (or on a path below it). The predicate on the
//! leading field is chosen first; if predicates on it exclude each other, each results in a
//! separate assignment, and a trial determines the best one. Each later field uses the predicates
//! that are compatible with all predicates chosen before, in order.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use super::bounds::{BoundsTightness, OrderedIntervalList};
use super::bounds_builder::{FieldBounds, FieldTraits, matches_missing};
use super::index_entry::{IndexEntry, IndexField, IndexKind, WildcardView};
use super::predicate::{Conjunction, Element, Predicate, shared_element_parts};
use super::wildcard;
use crate::matcher::MatchExpression;

/// A scan of one index that serves some predicates of a conjunction.
#[derive(Debug, Clone)]
pub(super) struct Assignment<'q> {
    pub index: Arc<IndexEntry>,
    /// Ascending lists, one for each field of the index, without field names.
    pub lists: Vec<SharedList>,
    /// The predicates used, and how exactly the bounds decide them.
    pub taken: Vec<Taken<'q>>,
    /// Number of leading fields that a skip scan skips; 0 otherwise.
    pub skips: usize,
}

/// A list that several candidates may share.
#[derive(Debug, Clone)]
pub(super) enum SharedList {
    /// No bounds.
    Full,
    /// The bounds of one predicate.
    One(Rc<FieldBounds>),
    /// The combined bounds of several predicates.
    Own(Rc<OrderedIntervalList>),
}

impl Deref for SharedList {
    type Target = OrderedIntervalList;
    fn deref(&self) -> &OrderedIntervalList {
        static FULL: LazyLock<OrderedIntervalList> = LazyLock::new(OrderedIntervalList::all);
        match self {
            SharedList::Full => &FULL,
            SharedList::One(bounds) => &bounds.list,
            SharedList::Own(list) => list,
        }
    }
}

/// A predicate from which bounds were built.
#[derive(Debug, Clone)]
pub(super) struct Taken<'q> {
    pub predicate: Predicate<'q>,
    pub tightness: BoundsTightness,
}

/// The traits of one field of an index.
pub(super) fn traits_of(index: &IndexEntry, field: usize) -> FieldTraits {
    let path = &index.fields[field].path;
    let in_wildcard = index
        .wildcard()
        .is_some_and(|wildcard| field == wildcard.path_field + 1);
    FieldTraits {
        multikey: is_multikey(index, field),
        // Views of a wildcard index have no paths with positions.
        positional: !in_wildcard && (1..path.len()).any(|part| path.part_index(part).is_some()),
        always_present: index.sparse && index.fields.len() == 1,
        hashed: matches!(index.kind, IndexKind::Hashed { field: hashed } if hashed == field),
        entangled: index.fields.iter().enumerate().any(|(other, f)| {
            other != field && (f.path.is_prefix_of(path) || path.is_prefix_of(&f.path))
        }),
    }
}

/// Whether some part of a field's path is an array in some document.
pub(super) fn is_multikey(index: &IndexEntry, field: usize) -> bool {
    index
        .multikey_paths
        .get(field)
        .is_some_and(|positions| !positions.is_empty())
}

/// The deepest array (as a number of path parts) on the common path prefix of two fields; `None` if
/// there is no array.
pub(super) fn deepest_shared_array(index: &IndexEntry, f: usize, g: usize) -> Option<usize> {
    let (a, b) = (&index.fields[f].path, &index.fields[g].path);
    let shared = if f == g {
        a.len()
    } else {
        a.parts().zip(b.parts()).take_while(|(x, y)| x == y).count()
    };
    let positions = |field: usize| index.multikey_paths.get(field).into_iter().flatten();
    positions(f)
        .chain(positions(g))
        .filter(|position| **position < shared)
        .max()
        .map(|position| position + 1)
}

struct Candidate<'c, 'q> {
    predicate: &'c Predicate<'q>,
    bounds: Rc<FieldBounds>,
    /// Whether keys of paths below the field must be scanned as well (wildcard indexes).
    and_below: bool,
}

/// The assignments with which an index can serve a conjunction, at most `max`; empty if there is no
/// predicate on its leading field. Omits assignments that only use predicates of enclosing
/// conjunctions.
pub(super) fn assignments<'q>(
    index: &Arc<IndexEntry>,
    all: &Conjunction<'q>,
    max: usize,
) -> Vec<Assignment<'q>> {
    assignments_from(index, all, max, true)
}

/// The assignment for a conjunction without predicates on the leading fields of the index: a skip
/// scan skips their values.
pub(super) fn skipping<'q>(
    index: &Arc<IndexEntry>,
    all: &Conjunction<'q>,
) -> Option<Assignment<'q>> {
    let is_free = |field: &IndexField| all.over(field.path.dotted()).is_empty();
    if !matches!(index.kind, IndexKind::Btree) {
        return None;
    }
    let free = index.fields.iter().take_while(|f| is_free(f)).count();
    if free == 0 || free == index.fields.len() {
        return None;
    }
    let mut found = assignments_from(index, all, 1, false).pop()?;
    found.skips = found.lists.iter().take_while(|l| l.is_full()).count();
    (found.skips < found.lists.len()).then_some(found)
}

/// `leads`: only assignments with bounds on the leading field.
fn assignments_from<'q>(
    index: &Arc<IndexEntry>,
    all: &Conjunction<'q>,
    max: usize,
    leads: bool,
) -> Vec<Assignment<'q>> {
    let wildcard = index.wildcard();
    let candidates_of = |field: usize| -> Vec<Candidate<'_, 'q>> {
        if wildcard.is_some() && !index.holds_values_of(field) {
            return Vec::new();
        }
        let traits = traits_of(index, field);
        let lacks_keys = lacks_keys_of_elements(index, field);
        all.over(index.fields[field].path.dotted())
            .iter()
            .filter(|p| !(traits.positional && p.element.is_some()))
            .filter(|p| !(lacks_keys && may_ask_for_missing(p)))
            .filter_map(|predicate| {
                let bounds = predicate.bounds(traits, index.collator.as_ref())?;
                let (bounds, and_below) = match wildcard {
                    Some(wildcard) if field == wildcard.path_field + 1 => {
                        wildcard::value_bounds(predicate, &bounds, traits.multikey)?
                    }
                    _ => (bounds, false),
                };
                Some(Candidate {
                    predicate,
                    bounds,
                    and_below,
                })
            })
            .collect()
    };
    // `$_path` needs no predicate: the path of the value determines it.
    let leading_field = usize::from(wildcard.is_some_and(|w| w.path_field == 0));
    let has_predicates = |field: &IndexField| !all.over(field.path.dotted()).is_empty();
    if leads && !index.fields.get(leading_field).is_some_and(has_predicates) {
        return Vec::new();
    }
    if index.sparse && !some_field_is_present(index, all) {
        return Vec::new();
    }
    let candidates: Vec<_> = (0..=leading_field).map(candidates_of).collect();
    if leads && candidates[leading_field].is_empty() {
        return Vec::new();
    }
    let mut candidates = candidates;
    candidates.extend((leading_field + 1..index.fields.len()).map(candidates_of));
    // On this field the choice of the first predicate matters if it excludes others.
    let first_field = match wildcard {
        Some(wildcard) if wildcard.view == WildcardView::Path => {
            if candidates[wildcard.path_field + 1].is_empty() {
                return Vec::new();
            }
            wildcard.path_field + 1
        }
        _ => 0,
    };
    let choices = if leads && is_multikey(index, first_field) {
        candidates[first_field].len()
    } else {
        1
    };
    let width = index.fields.len();
    let shared_arrays: Vec<Option<usize>> = if index.multikey {
        (0..width * width)
            .map(|at| deepest_shared_array(index, at / width, at % width))
            .collect()
    } else {
        vec![None; width * width]
    };
    let mut found: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut out = Vec::new();
    for first in 0..choices {
        if out.len() >= max {
            break;
        }
        let mut chosen = choose(&shared_arrays, &candidates, (first_field, first));
        chosen.sort_unstable();
        if found.contains(&chosen) {
            continue;
        }
        let takes_own = chosen
            .iter()
            .any(|&(field, at)| candidates[field][at].predicate.conjunct.is_some());
        if takes_own {
            out.push(assignment_of(index, &candidates, &chosen));
        }
        found.push(chosen);
    }
    out
}

/// Whether some predicate implies that a field of the index exists. A sparse index lacks documents
/// without any of its fields, so it can only serve such queries. On a dotted path a negation does
/// not imply it: it is true for an empty array.
pub(super) fn some_field_is_present(index: &IndexEntry, all: &Conjunction<'_>) -> bool {
    index.fields.iter().any(|field| {
        all.over(field.path.dotted()).iter().any(|p| {
            let by_presence = !matches!(p.expr, MatchExpression::Not(_)) || field.path.len() == 1;
            by_presence && matches_missing(p.expr) == Some(false)
        })
    })
}

/// Whether documents in the index may have array elements without the field that have no key: a
/// sparse index has no keys in which all fields are missing.
fn lacks_keys_of_elements(index: &IndexEntry, field: usize) -> bool {
    let last = index.fields[field].path.len() - 1;
    index.sparse
        && index
            .multikey_paths
            .get(field)
            .is_some_and(|arrays| arrays.iter().any(|&position| position < last))
}

/// Whether the predicate may be true because of an element without the field. A negation on the
/// whole document may not: it is a condition on every key.
fn may_ask_for_missing(predicate: &Predicate<'_>) -> bool {
    let negation = matches!(predicate.expr, MatchExpression::Not(_));
    (predicate.element.is_some() || !negation) && matches_missing(predicate.expr) != Some(false)
}

/// The compatible predicates, as (field, candidate), beginning with this field and candidate.
/// `shared_arrays` contains [`deepest_shared_array`] of every pair of fields.
fn choose(
    shared_arrays: &[Option<usize>],
    candidates: &[Vec<Candidate<'_, '_>>],
    (first_field, first): (usize, usize),
) -> Vec<(usize, usize)> {
    let mut chosen = Vec::new();
    // Later choices must be compatible with these: one per field and element.
    let mut anchors: Vec<(usize, Option<Rc<Element>>)> = Vec::new();
    for (field, list) in candidates.iter().enumerate() {
        let start = if field == first_field { first } else { 0 };
        let order = (start..list.len()).chain(0..start);
        for at in order {
            let element = &list[at].predicate.element;
            let goes_together = anchors.iter().all(|(other, anchor)| {
                match shared_arrays[field * candidates.len() + other] {
                    None => true,
                    Some(array) => shared_element_parts(element.as_ref(), anchor.as_ref()) >= array,
                }
            });
            if !goes_together {
                continue;
            }
            chosen.push((field, at));
            let known = anchors.iter().any(|(other, anchor)| {
                *other == field
                    && match (anchor, element) {
                        (None, None) => true,
                        (Some(a), Some(b)) => Rc::ptr_eq(a, b),
                        _ => false,
                    }
            });
            let excludes = shared_arrays[field * candidates.len()..]
                .iter()
                .take(candidates.len())
                .any(Option::is_some);
            if excludes && !known {
                anchors.push((field, element.clone()));
            }
        }
    }
    chosen
}

fn assignment_of<'q>(
    index: &Arc<IndexEntry>,
    candidates: &[Vec<Candidate<'_, 'q>>],
    chosen: &[(usize, usize)],
) -> Assignment<'q> {
    let mut bounds = vec![Vec::new(); index.fields.len()];
    let mut taken = Vec::with_capacity(chosen.len());
    for &(field, at) in chosen {
        let candidate = &candidates[field][at];
        bounds[field].push(&candidate.bounds);
        taken.push(Taken {
            predicate: candidate.predicate.clone(),
            tightness: candidate.bounds.tightness,
        });
    }
    let mut lists: Vec<SharedList> = bounds
        .into_iter()
        .map(|bounds| match bounds[..] {
            [] => SharedList::Full,
            [only] => SharedList::One(only.clone()),
            _ => {
                let lists = bounds.iter().map(|bounds| bounds.list.clone()).collect();
                let all = OrderedIntervalList::intersect_all(lists);
                SharedList::Own(Rc::new(all.unwrap_or_else(OrderedIntervalList::all)))
            }
        })
        .collect();
    if let Some(wildcard) = index.wildcard() {
        // A predicate on the value itself excludes keys of paths below.
        let and_below = chosen
            .iter()
            .filter(|(field, _)| *field == wildcard.path_field + 1)
            .all(|&(field, at)| candidates[field][at].and_below);
        lists[wildcard.path_field] = wildcard::path_bounds(index, wildcard, and_below);
    }
    Assignment {
        index: index.clone(),
        lists,
        taken,
        skips: 0,
    }
}

impl Assignment<'_> {
    /// Ranks the bounds, to order alternatives that no trial compares: number of leading points,
    /// then number of fields with bounds.
    pub fn rank(&self) -> (usize, usize) {
        rank(&self.index, &self.lists)
    }

    /// For each of `n` conjuncts, how exactly the bounds decide it; `None` if they do not depend on
    /// it.
    pub fn tightness(&self, n: usize) -> Vec<Option<BoundsTightness>> {
        let mut all = vec![None; n];
        for taken in self.taken.iter().filter(|t| t.predicate.whole) {
            if let Some(conjunct) = taken.predicate.conjunct {
                all[conjunct] = Some(taken.tightness);
            }
        }
        all
    }

    /// The predicates of enclosing conjunctions that the bounds decide exactly.
    pub fn exact_outer(&self) -> impl Iterator<Item = *const MatchExpression> {
        self.taken
            .iter()
            .filter(|t| {
                t.predicate.conjunct.is_none()
                    && t.predicate.whole
                    && t.tightness == BoundsTightness::Exact
            })
            .map(|t| &raw const *t.predicate.expr)
    }
}

/// See [`Assignment::rank`]. Ignores the `$_path` field of a wildcard index.
pub(super) fn rank(index: &IndexEntry, lists: &[SharedList]) -> (usize, usize) {
    let path_field = index.wildcard().map(|wildcard| wildcard.path_field);
    let values = || {
        let all = lists.iter().enumerate();
        all.filter(|(field, _)| Some(*field) != path_field)
            .map(|(_, list)| list)
    };
    let points = values().take_while(|list| list.is_point()).count();
    let bounded = values().filter(|list| !list.is_full()).count();
    (points, bounded)
}
