//! Normalizes filters: many equivalent filters have the same form.
//!
//! ```text
//!   {a: 1, $and: [{b: 2}, {c: 3}]}     And[a = 1, b = 2, c = 3]      flat, sorted
//!   {$or: [{a: 2}, {a: 1}]}            a in [1, 2]
//!   {a: {$in: [5]}}                    a = 5
//!   {a: {$in: []}}                     false
//!   {a: {$not: {$not: {$gt: 3}}}}      a > 3
//!   {$or: [{a: 1}]}                    a = 1
//!   {$nor: [{a: 1}]}                   not a = 1
//! ```
//!
//! Children are sorted by kind, then by path, then by operand, and duplicates are removed. The
//! order of kinds puts predicates that indexes serve best first, and explain prints it: `{r: {$gt:
//! 10}, e: 42}` is printed as `{$and: [{e: {$eq: 42}}, {r: {$gt: 10}}]}`.
//!
//! Invariant: a document passes the result exactly if it passes the original.

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::{
    Collator, DocBuilder, RawValue, Value, compare_docs, compare_values, compare_values_with,
    values_equal_with,
};

use super::{Comparison, ComparisonOp, In, MatchExpression, RegexMatch, expr_comparison};
use crate::expression::BoundExpression;

impl MatchExpression {
    /// Converts the predicate to normal form; see the module.
    pub fn normalize(self) -> MatchExpression {
        match self {
            MatchExpression::And(children) => normalize_and(children),
            MatchExpression::Or(children) => normalize_or(children),
            MatchExpression::Nor(children) => normalize_nor(children),
            MatchExpression::Not(child) => normalize_not(*child),
            MatchExpression::In(list) => normalize_in(list),
            MatchExpression::ElemMatchObject { path, child } => match child.normalize() {
                MatchExpression::AlwaysFalse => MatchExpression::AlwaysFalse,
                // {$elemMatch: {}} matches any element that is a document.
                MatchExpression::AlwaysTrue => MatchExpression::ElemMatchObject {
                    path,
                    child: Box::new(MatchExpression::all()),
                },
                child => MatchExpression::ElemMatchObject {
                    path,
                    child: Box::new(child),
                },
            },
            MatchExpression::ElemMatchValue { path, children } => match normalize_and(children) {
                MatchExpression::AlwaysFalse => MatchExpression::AlwaysFalse,
                MatchExpression::And(children) => {
                    MatchExpression::ElemMatchValue { path, children }
                }
                only => MatchExpression::ElemMatchValue {
                    path,
                    children: vec![only],
                },
            },
            MatchExpression::Expr(expression) => with_implied(normalize_expr(expression)),
            leaf => leaf,
        }
    }
}

fn normalize_expr(expression: Arc<BoundExpression>) -> MatchExpression {
    match expression.constant_answer() {
        Some(true) => MatchExpression::AlwaysTrue,
        Some(false) => MatchExpression::AlwaysFalse,
        None => MatchExpression::Expr(expression),
    }
}

/// Adds to a `$expr` the predicates on single fields that it implies, for indexes. Below a negation
/// they would not be implied.
fn with_implied(expression: MatchExpression) -> MatchExpression {
    let MatchExpression::Expr(bound) = &expression else {
        return expression;
    };
    let mut flat = match expr_comparison::implied_by(bound).map(MatchExpression::normalize) {
        Some(MatchExpression::And(all)) => all,
        Some(one) => vec![one],
        None => return expression,
    };
    flat.push(expression);
    sort_and_dedup(&mut flat);
    super::parse::conjunction(flat)
}

/// Like [`MatchExpression::normalize`], for the child of a negation.
fn normalize_negated(child: MatchExpression) -> MatchExpression {
    match child {
        MatchExpression::Expr(expression) => normalize_expr(expression),
        child => child.normalize(),
    }
}

fn normalize_and(children: Vec<MatchExpression>) -> MatchExpression {
    let mut flat = Vec::with_capacity(children.len());
    for child in children {
        match child.normalize() {
            MatchExpression::And(inner) => flat.extend(inner),
            MatchExpression::AlwaysTrue => {}
            MatchExpression::AlwaysFalse => return MatchExpression::AlwaysFalse,
            child => flat.push(child),
        }
    }
    sort_and_dedup(&mut flat);
    super::parse::conjunction(flat)
}

fn normalize_or(children: Vec<MatchExpression>) -> MatchExpression {
    let Some(mut flat) = disjuncts(children, MatchExpression::normalize) else {
        return MatchExpression::AlwaysTrue;
    };
    merge_equalities(&mut flat);
    sort_and_dedup(&mut flat);
    match (flat.len(), flat.pop()) {
        (_, None) => MatchExpression::AlwaysFalse,
        (1, Some(only)) => only,
        (_, Some(last)) => {
            flat.push(last);
            MatchExpression::Or(flat)
        }
    }
}

fn normalize_nor(children: Vec<MatchExpression>) -> MatchExpression {
    let Some(mut flat) = disjuncts(children, normalize_negated) else {
        return MatchExpression::AlwaysFalse;
    };
    sort_and_dedup(&mut flat);
    match (flat.len(), flat.pop()) {
        (_, None) => MatchExpression::AlwaysTrue,
        (1, Some(only)) => negation(only),
        (_, Some(last)) => {
            flat.push(last);
            MatchExpression::Nor(flat)
        }
    }
}

/// The normalised alternatives, with nested `$or`s flattened; `None` if one of them is always true.
fn disjuncts(
    children: Vec<MatchExpression>,
    normalize: fn(MatchExpression) -> MatchExpression,
) -> Option<Vec<MatchExpression>> {
    let mut flat = Vec::with_capacity(children.len());
    for child in children {
        match normalize(child) {
            MatchExpression::Or(inner) => flat.extend(inner),
            MatchExpression::AlwaysFalse => {}
            child if child.is_trivially_true() => return None,
            child => flat.push(child),
        }
    }
    Some(flat)
}

fn normalize_not(child: MatchExpression) -> MatchExpression {
    negation(normalize_negated(child))
}

/// The negation of a normalised predicate.
fn negation(child: MatchExpression) -> MatchExpression {
    match child {
        MatchExpression::Not(inner) => *inner,
        MatchExpression::AlwaysFalse => MatchExpression::AlwaysTrue,
        child if child.is_trivially_true() => MatchExpression::AlwaysFalse,
        MatchExpression::Or(children) => MatchExpression::Nor(children),
        // Children that are normalised for Nor may not be flat for Or.
        MatchExpression::Nor(children) => normalize_or(children),
        child => MatchExpression::Not(Box::new(child)),
    }
}

fn normalize_in(list: In) -> MatchExpression {
    match (list.equalities.as_slice(), list.regexes.as_slice()) {
        ([], []) => MatchExpression::AlwaysFalse,
        ([value], []) => MatchExpression::Comparison(Comparison {
            path: list.path,
            op: ComparisonOp::Eq,
            value: Arc::new(value.clone()),
            collator: list.collator,
        }),
        ([], [regex]) => MatchExpression::Regex(RegexMatch {
            path: list.path,
            ..regex.clone()
        }),
        _ => MatchExpression::In(list),
    }
}

/// Joins the equalities and `$in`s of one path into one `$in`.
///
/// An equality with a regex value is not joined: within `$in` a regex is a pattern.
fn merge_equalities(children: &mut Vec<MatchExpression>) {
    let joins = |child: &MatchExpression| match child {
        MatchExpression::Comparison(c) => {
            c.op == ComparisonOp::Eq && !matches!(*c.value, Value::Regex { .. })
        }
        MatchExpression::In(_) => true,
        _ => false,
    };
    let (mut lists, rest): (Vec<_>, Vec<_>) = children.drain(..).partition(joins);
    *children = rest;
    // A stable sort keeps the user's order of regexes within a path.
    lists.sort_by(|a, b| a.path().cmp(&b.path()));
    let mut lists = lists.into_iter().peekable();
    while let Some(first) = lists.next() {
        let path = first.path().cloned();
        let same_path = |next: &MatchExpression| next.path() == path.as_ref();
        if lists.peek().is_none_or(|next| !same_path(next)) {
            children.push(first);
            continue;
        }
        let mut equalities: Vec<Value> = Vec::new();
        let mut regexes: Vec<RegexMatch> = Vec::new();
        let mut collator: Option<Arc<Collator>> = None;
        let mut add = |child: MatchExpression| match child {
            MatchExpression::Comparison(c) => {
                equalities.push((*c.value).clone());
                collator = collator.take().or(c.collator);
            }
            MatchExpression::In(i) => {
                collator = collator.take().or(i.collator);
                equalities.extend(i.equalities.iter().cloned());
                regexes.extend(i.regexes);
            }
            _ => {}
        };
        add(first);
        while let Some(next) = lists.next_if(|next| same_path(next)) {
            add(next);
        }
        let by = collator.as_deref();
        equalities.sort_by(|a, b| compare_exactly(a.as_raw(), b.as_raw(), by));
        equalities.dedup_by(|a, b| values_equal_with(a.as_raw(), b.as_raw(), by));
        if let Some(path) = path {
            children.push(normalize_in(In {
                path,
                equalities: Arc::new(equalities),
                regexes,
                collator,
            }));
        }
    }
}

fn sort_and_dedup(children: &mut Vec<MatchExpression>) {
    // Equal operands are not necessarily identical: 1 and 1.0 are equal.
    children.sort_by(|a, b| {
        compare_expressions(a, b)
            .then_with(|| a.serialize().as_bytes().cmp(b.serialize().as_bytes()))
    });
    children.dedup_by(|a, b| {
        compare_expressions(a, b).is_eq() && a.serialize().as_bytes() == b.serialize().as_bytes()
    });
}

/// Compares by value, then by bytes, so that 1 and 1.0 sort the same way regardless of their
/// original order.
pub(super) fn compare_exactly(
    a: RawValue<'_>,
    b: RawValue<'_>,
    collator: Option<&Collator>,
) -> Ordering {
    let bytes = |value| {
        let mut builder = DocBuilder::new();
        builder.append("", value);
        builder.finish().into_vec()
    };
    compare_values_with(a, b, collator).then_with(|| bytes(a).cmp(&bytes(b)))
}

/// The sort rank of a node's kind among its siblings.
fn kind(expression: &MatchExpression) -> u8 {
    match expression {
        MatchExpression::And(_) => 0,
        MatchExpression::Or(_) => 1,
        MatchExpression::ElemMatchObject { .. } => 2,
        MatchExpression::ElemMatchValue { .. } => 3,
        MatchExpression::Size { .. } => 4,
        MatchExpression::Comparison(c) => 5 + c.op as u8,
        MatchExpression::Regex(_) => 10,
        MatchExpression::Mod { .. } => 11,
        MatchExpression::Exists { .. } => 12,
        MatchExpression::In(_) => 13,
        MatchExpression::Bits(_) => 14,
        MatchExpression::Not(_) => 15,
        MatchExpression::Nor(_) => 16,
        MatchExpression::Type { .. } => 17,
        MatchExpression::AlwaysFalse => 18,
        MatchExpression::AlwaysTrue => 19,
        MatchExpression::Expr(_) => 20,
        MatchExpression::ExprComparison(c) => 21 + c.op as u8,
        MatchExpression::JsonSchema(_) => 30,
    }
}

/// A total order on predicates: kind, path, operands, children.
pub(super) fn compare_expressions(a: &MatchExpression, b: &MatchExpression) -> Ordering {
    kind(a)
        .cmp(&kind(b))
        .then_with(|| a.path().cmp(&b.path()))
        .then_with(|| compare_operands(a, b))
}

fn compare_operands(a: &MatchExpression, b: &MatchExpression) -> Ordering {
    use MatchExpression::*;
    match (a, b) {
        (And(a), And(b)) | (Or(a), Or(b)) | (Nor(a), Nor(b)) => compare_lists(a, b),
        (ElemMatchValue { children: a, .. }, ElemMatchValue { children: b, .. }) => {
            compare_lists(a, b)
        }
        (Not(a), Not(b)) => compare_expressions(a, b),
        (ElemMatchObject { child: a, .. }, ElemMatchObject { child: b, .. }) => {
            compare_expressions(a, b)
        }
        (Comparison(a), Comparison(b)) => compare_values(a.value.as_raw(), b.value.as_raw()),
        (ExprComparison(a), ExprComparison(b)) => {
            compare_values(a.value.as_raw(), b.value.as_raw())
        }
        (In(a), In(b)) => {
            let values = |i: &'_ super::In| -> Vec<Value> { i.equalities.to_vec() };
            let by_value = values(a)
                .iter()
                .map(Value::as_raw)
                .map(Ordered)
                .cmp(values(b).iter().map(Value::as_raw).map(Ordered));
            by_value.then_with(|| {
                let patterns = |i: &super::In| -> Vec<(Arc<str>, Arc<str>)> {
                    let of = |r: &RegexMatch| (Arc::clone(&r.pattern), Arc::clone(&r.options));
                    i.regexes.iter().map(of).collect()
                };
                patterns(a).cmp(&patterns(b))
            })
        }
        (Regex(a), Regex(b)) => (&a.pattern, &a.options).cmp(&(&b.pattern, &b.options)),
        (
            Mod {
                divisor: ad,
                remainder: ar,
                ..
            },
            Mod {
                divisor: bd,
                remainder: br,
                ..
            },
        ) => (ad, ar).cmp(&(bd, br)),
        (Type { types: a, .. }, Type { types: b, .. }) => a.cmp(b),
        (Size { size: a, .. }, Size { size: b, .. }) => a.cmp(b),
        (Bits(a), Bits(b)) => (a.op, &a.positions).cmp(&(b.op, &b.positions)),
        (Expr(a), Expr(b)) => compare_values(a.spec(), b.spec()),
        (JsonSchema(a), JsonSchema(b)) => compare_docs(a.spec(), b.spec()),
        _ => Ordering::Equal,
    }
}

fn compare_lists(a: &[MatchExpression], b: &[MatchExpression]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        let order = compare_expressions(a, b);
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// A value with [`Ord`] in BSON order.
struct Ordered<'a>(RawValue<'a>);

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_values(self.0, other.0)
    }
}
impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ordered<'_> {}
