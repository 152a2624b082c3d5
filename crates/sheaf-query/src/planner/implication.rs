//! Whether a filter implies a partial index's filter, so that every match is
//! in the index.
//!
//! ```text
//!   partial filter            implied by                        not by
//!   {a: {$gt: 5}}             {a: 7}  {a: {$in: [6, 9]}}        {a: {$gt: 3}}
//!   {a: {$exists: true}}      {a: 7}  {a: {$ne: null}}          {a: null}
//!   {a: {$type: "objectId"}}  {a: ObjectId(..)}                 {a: {$ne: 1}}
//!   {$or: [{a: 1}, {b: 2}]}   {a: 1, c: 3}                      {c: 3}
//! ```
//!
//! "Yes" is a proof, "no" only the lack of one. Comparisons are sets of values
//! on one path: whatever value satisfies the filter's satisfies the index's.
//! Other predicates must be the same.

use std::mem::discriminant;

use super::bounds::{BoundsTightness, OrderedIntervalList};
use super::bounds_builder::{matches_missing, value_bounds};
use crate::matcher::MatchExpression;

/// What is known to hold of the documents looked for: an expression, and all
/// that holds around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'s> {
    expr: &'s MatchExpression,
    around: Option<&'s Context<'s>>,
}

impl<'s> Context<'s> {
    pub fn new(expr: &'s MatchExpression, around: Option<&'s Context<'s>>) -> Context<'s> {
        Context { expr, around }
    }
}

/// How many pairs of predicates are compared before the answer is "no".
const STEPS_MAX: u32 = 10_000;

/// Whether what is known implies `wanted`.
pub(crate) fn implies(known: &Context<'_>, wanted: &MatchExpression) -> bool {
    let mut proof = Proof { steps: 0 };
    if let MatchExpression::And(parts) = wanted {
        return parts.iter().all(|part| implies(known, part));
    }
    let mut next = Some(known);
    while let Some(context) = next {
        if proof.implies(context.expr, wanted) {
            return true;
        }
        next = context.around;
    }
    false
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
    match wanted {
        MatchExpression::Exists { path } => {
            // Where the path leads through an array without elements a negation
            // holds although nothing is there.
            let by_presence = !matches!(known, MatchExpression::Not(_)) || path.len() == 1;
            by_presence && matches_missing(known) == Some(false)
        }
        MatchExpression::Comparison(_) | MatchExpression::In(_) | MatchExpression::Type { .. } => {
            match (exact_values(known), exact_values(wanted)) {
                (Some(known), Some(wanted)) => known.is_subset_of(&wanted),
                _ => false,
            }
        }
        MatchExpression::Regex(pattern) => {
            let passes =
                |value: &sheaf_bson::Value| pattern.test(Some(value.as_raw())).is_ok_and(|yes| yes);
            match known {
                MatchExpression::Comparison(c) => {
                    c.op == crate::matcher::ComparisonOp::Eq && passes(&c.value)
                }
                MatchExpression::In(i) => i.regexes.is_empty() && i.equalities.iter().all(passes),
                _ => false,
            }
        }
        _ => false,
    }
}

/// The values that satisfy a predicate, if they are just those.
fn exact_values(expr: &MatchExpression) -> Option<OrderedIntervalList> {
    let bounds = value_bounds(expr)?;
    (bounds.tightness == BoundsTightness::Exact).then_some(bounds.list)
}

fn path_of(expr: &MatchExpression) -> Option<&str> {
    match expr {
        MatchExpression::Not(child) => child.path(),
        other => other.path(),
    }
    .map(|path| path.dotted())
}

/// Whether both are one predicate.
fn same(a: &MatchExpression, b: &MatchExpression) -> bool {
    discriminant(a) == discriminant(b)
        && path_of(a) == path_of(b)
        && a.serialize().as_bytes() == b.serialize().as_bytes()
}
