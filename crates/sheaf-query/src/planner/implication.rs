//! Decides whether a filter implies the filter of a partial index, so that every match is in the
//! index.
//!
//! ```text
//!   partial filter            implied by                        not by
//!   {a: {$gt: 5}}             {a: 7}  {a: {$in: [6, 9]}}        {a: {$gt: 3}}
//!   {a: {$exists: true}}      {a: 7}  {a: {$ne: null}}          {a: null}
//!   {a: {$type: "objectId"}}  {a: ObjectId(..)}                 {a: {$ne: 1}}
//!   {$or: [{a: 1}, {b: 2}]}   {a: 1, c: 3}                      {c: 3}
//! ```
//!
//! A positive answer is proven; a negative answer only means that no proof was found. Comparisons
//! are sets of values on one path: the set of the filter must be a subset of the set of the index.
//! Other predicates must be equal.

use std::mem::discriminant;
use std::sync::Arc;

use sheaf_bson::Collator;
use smallvec::SmallVec;

use super::bounds::{BoundsTightness, OrderedIntervalList};
use super::bounds_builder::{matches_missing, value_bounds};
use super::collation::KeyCollator;
use super::index_entry::IndexEntry;
use crate::matcher::{ComparisonOp, MatchExpression};

/// The conjuncts of partial index filters that the known predicates imply. Each alternative of a
/// disjunction adds its own predicates to those of the enclosing conjunction.
#[derive(Debug, Clone, Default)]
pub(super) struct Implied {
    /// For each index, one answer for each conjunct of its filter; empty for indexes that are not
    /// partial.
    parts: Vec<SmallVec<[bool; 4]>>,
}

/// Maximum number of pairs of predicates to compare before the answer is negative.
const STEPS_MAX: u32 = 10_000;

fn parts_of(filter: &MatchExpression) -> &[MatchExpression] {
    match filter {
        MatchExpression::And(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

impl Implied {
    /// The state without known predicates.
    pub fn nothing(indexes: &[&Arc<IndexEntry>]) -> Implied {
        if indexes.iter().all(|index| index.partial_filter.is_none()) {
            return Implied::default();
        }
        let parts = |index: &&Arc<IndexEntry>| match &index.partial_filter {
            None => SmallVec::new(),
            Some(filter) => SmallVec::from_elem(false, parts_of(filter).len()),
        };
        Implied {
            parts: indexes.iter().map(parts).collect(),
        }
    }

    /// Adds a known expression.
    pub fn with(&self, known: &MatchExpression, indexes: &[&Arc<IndexEntry>]) -> Implied {
        let mut all = self.clone();
        for (index, answers) in indexes.iter().zip(&mut all.parts) {
            let Some(filter) = &index.partial_filter else {
                continue;
            };
            for (part, answer) in parts_of(filter).iter().zip(answers) {
                *answer = *answer || Proof { steps: 0 }.implies(known, part);
            }
        }
        all
    }

    /// Whether every match is in the index at this position.
    pub fn holds_for(&self, index: usize) -> bool {
        self.parts
            .get(index)
            .is_none_or(|parts| parts.iter().all(|part| *part))
    }
}

/// Whether the filter `known` implies `wanted`, the filter of a partial index.
pub(super) fn implies(known: &MatchExpression, wanted: &MatchExpression) -> bool {
    Proof { steps: 0 }.implies(known, wanted)
}

struct Proof {
    steps: u32,
}

impl Proof {
    fn implies(&mut self, known: &MatchExpression, wanted: &MatchExpression) -> bool {
        use MatchExpression::{AlwaysFalse, AlwaysTrue, And, Or};
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return false;
        }
        match (known, wanted) {
            (AlwaysFalse, _) | (_, AlwaysTrue) => true,
            (_, And(parts)) => parts.iter().all(|part| self.implies(known, part)),
            (Or(cases), _) => cases.iter().all(|case| self.implies(case, wanted)),
            (And(parts), Or(cases)) => {
                parts.iter().any(|part| self.implies(part, wanted))
                    || cases.iter().any(|case| self.implies(known, case))
            }
            (And(parts), _) => parts.iter().any(|part| self.implies(part, wanted)),
            (_, Or(cases)) => cases.iter().any(|case| self.implies(known, case)),
            _ => leaf_implies(known, wanted),
        }
    }
}

fn leaf_implies(known: &MatchExpression, wanted: &MatchExpression) -> bool {
    if same(known, wanted) {
        return true;
    }
    if path_of(known) != path_of(wanted) {
        return false;
    }
    if let MatchExpression::ExprComparison(c) = known
        && c.path.len() > 1
        && c.op != ComparisonOp::Eq
    {
        // If the path traverses an array, the expression compares an array of values.
        return false;
    }
    match wanted {
        MatchExpression::Exists { path } => {
            // If the path traverses an empty array, a negation holds although the field does not
            // exist.
            let by_presence = !matches!(known, MatchExpression::Not(_)) || path.len() == 1;
            by_presence && matches_missing(known) == Some(false)
        }
        MatchExpression::Comparison(_) | MatchExpression::In(_) | MatchExpression::Type { .. } => {
            let keys = collator_of(wanted).or_else(|| collator_of(known));
            match (exact_values(known, keys), exact_values(wanted, keys)) {
                (Some(known), Some(wanted)) => known.is_subset_of(&wanted),
                _ => false,
            }
        }
        MatchExpression::Regex(pattern) => {
            let passes =
                |value: &sheaf_bson::Value| pattern.test(Some(value.as_raw())).is_ok_and(|yes| yes);
            match known {
                // With a collation, other strings are equal to the known one.
                _ if collator_of(known).is_some() => false,
                MatchExpression::Comparison(c) => c.op == ComparisonOp::Eq && passes(&c.value),
                MatchExpression::In(i) => i.regexes.is_empty() && i.equalities.iter().all(passes),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The collation by which the predicate compares text, if any.
fn collator_of(expr: &MatchExpression) -> Option<&Arc<Collator>> {
    match expr {
        MatchExpression::Comparison(c) => c.collator.as_ref(),
        MatchExpression::ExprComparison(c) => c.collator.as_ref(),
        MatchExpression::In(i) => i.collator.as_ref(),
        _ => None,
    }
}

/// The keys of the values that satisfy a predicate. `None` if bounds are not exact, or if the
/// predicate compares text by another collation.
fn exact_values(expr: &MatchExpression, keys: KeyCollator<'_>) -> Option<OrderedIntervalList> {
    let bounds = value_bounds(expr, keys)?;
    (bounds.tightness == BoundsTightness::Exact).then_some(bounds.list)
}

fn path_of(expr: &MatchExpression) -> Option<&str> {
    match expr {
        MatchExpression::Not(child) => child.path(),
        other => other.path(),
    }
    .map(|path| path.dotted())
}

/// The collations of all parts that can compare text, in order.
fn collations(expr: &MatchExpression) -> Vec<Option<&Arc<Collator>>> {
    let mut found = Vec::new();
    add_collations(expr, &mut found);
    found
}

fn add_collations<'m>(expr: &'m MatchExpression, found: &mut Vec<Option<&'m Arc<Collator>>>) {
    match expr {
        MatchExpression::Comparison(_)
        | MatchExpression::ExprComparison(_)
        | MatchExpression::In(_) => found.push(collator_of(expr)),
        MatchExpression::And(children)
        | MatchExpression::Or(children)
        | MatchExpression::Nor(children)
        | MatchExpression::ElemMatchValue { children, .. } => {
            children
                .iter()
                .for_each(|child| add_collations(child, found));
        }
        MatchExpression::Not(child) | MatchExpression::ElemMatchObject { child, .. } => {
            add_collations(child, found);
        }
        MatchExpression::Expr(bound) => found.push(bound.collator()),
        _ => {}
    }
}

/// Whether the predicates are equal, including their collations.
fn same(a: &MatchExpression, b: &MatchExpression) -> bool {
    discriminant(a) == discriminant(b)
        && path_of(a) == path_of(b)
        && collations(a) == collations(b)
        && a.serialize().as_bytes() == b.serialize().as_bytes()
}
