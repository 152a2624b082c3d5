//! Turns one predicate over one index field into an interval list.
//!
//! Invariant: bounds may admit too much, never too little. If they admit too much, the tightness is
//! inexact and the predicate remains as a filter.
//!
//! ```text
//!   {a: {$gt: 3}}           (3, inf.0]                         Exact
//!   {a: /^ab/}              ["ab", "ac"), [/^ab/, /^ab/]       Exact
//!   {a: /b/}                ["", {}), [/b/, /b/]               InexactCovered
//!   {a: [1, 2]}             [1, 1], [[ 1, 2 ], [ 1, 2 ]]       InexactFetch
//!   {a: {$ne: 5}}           [MinKey, 5), (5, MaxKey]           Exact
//!   {a: {$exists: true}}    [MinKey, MaxKey]                   InexactFetch
//! ```
//!
//! A path with an array in it (multikey) widens what bounds admit:
//!
//! - A key is one element, so it cannot decide a negation: `{a: [5, 6]}` does not
//!   match `{$ne: 5}`, but its key 6 is within the bounds.
//! - null and undefined also represent arrays without elements, or without
//!   elements that are documents. Bounds with them are never exact, and a negation
//!   whose bounds exclude them could miss such a document: it uses no index.
//! - In comparisons with MinKey and MaxKey an array is one value, regardless of
//!   its elements.

use sheaf_bson::{ElementType, RawValue, Value};

use super::bounds::{BoundsTightness, Interval, OrderedIntervalList};
use super::collation::{KeyCollator, operand};
use super::hashed;
use super::type_bracket::{bracket_of, numbers_and_nan};
use crate::matcher::{
    Comparison, ComparisonOp, ExprComparison, In, MatchExpression, RegexMatch, TypeSet,
};

/// The properties of an index field that affect bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FieldTraits {
    /// Whether some part of the path is an array in some document.
    pub multikey: bool,
    /// Whether a part after the first is a number, which may be a position or a name.
    pub positional: bool,
    /// Whether every document in the index has the field.
    pub always_present: bool,
    /// Whether keys contain hashes of the values.
    pub hashed: bool,
    /// Whether the path of another field of the index is a prefix of this one, or the reverse, so
    /// that no document can be built from a key to check predicates.
    pub entangled: bool,
}

/// An ascending interval list and its tightness.
#[derive(Debug, Clone)]
pub(super) struct FieldBounds {
    pub list: OrderedIntervalList,
    pub tightness: BoundsTightness,
}

fn exact(list: OrderedIntervalList) -> FieldBounds {
    FieldBounds {
        list,
        tightness: BoundsTightness::Exact,
    }
}

fn inexact_fetch(list: OrderedIntervalList) -> FieldBounds {
    FieldBounds {
        list,
        tightness: BoundsTightness::InexactFetch,
    }
}

fn inexact_covered(list: OrderedIntervalList) -> FieldBounds {
    FieldBounds {
        list,
        tightness: BoundsTightness::InexactCovered,
    }
}

/// The bounds of a predicate (or its negation) on its field, in an index with the collation `keys`;
/// `None` if it cannot serve the predicate.
pub(super) fn bounds_of(
    expr: &MatchExpression,
    field: FieldTraits,
    keys: KeyCollator<'_>,
) -> Option<FieldBounds> {
    if field.hashed {
        return hashed::bounds_of(expr, keys).map(inexact_fetch);
    }
    let mut bounds = match expr {
        MatchExpression::Not(child) => return negation_of(child, field, keys),
        MatchExpression::Exists { .. } if field.positional => return None,
        MatchExpression::Exists { .. } => {
            if field.always_present && !field.multikey {
                exact(OrderedIntervalList::all())
            } else {
                inexact_fetch(OrderedIntervalList::all())
            }
        }
        MatchExpression::ElemMatchValue { children, .. } => {
            inexact_fetch(element_bounds(children, keys)?)
        }
        MatchExpression::Comparison(c) if field.multikey && meets_every_type(c) => {
            inexact_fetch(OrderedIntervalList::all())
        }
        // It compares an array as one value, but keys are the elements.
        MatchExpression::ExprComparison(_) if field.multikey || field.positional => return None,
        other => value_bounds(other, keys)?,
    };
    let null_like = holds_null_like(&bounds.list);
    if field.positional {
        // A position selects an array as a whole, but keys are the elements; and a missing name has
        // no separate key.
        if holds_null(&bounds.list) {
            return None;
        }
        bounds.tightness = BoundsTightness::InexactFetch;
    }
    let undecided = bounds.tightness == BoundsTightness::InexactCovered;
    if field.multikey && (null_like || undecided) || field.entangled && undecided {
        bounds.tightness = BoundsTightness::InexactFetch;
    }
    Some(bounds)
}

fn holds_null(list: &OrderedIntervalList) -> bool {
    list.contains(RawValue::Null)
}

fn holds_null_like(list: &OrderedIntervalList) -> bool {
    holds_null(list) || list.contains(RawValue::Undefined)
}

/// Whether the comparison includes values of every type, like `$gt: MinKey`.
fn meets_every_type(c: &Comparison) -> bool {
    matches!(*c.value, Value::MinKey | Value::MaxKey) && c.test(Some(RawValue::Null))
}

/// The bounds of a negation: `$not`, `$ne`, `$nin`, `$exists: false`.
fn negation_of(
    child: &MatchExpression,
    field: FieldTraits,
    keys: KeyCollator<'_>,
) -> Option<FieldBounds> {
    if field.positional {
        return None;
    }
    if let MatchExpression::Exists { .. } = child {
        return Some(inexact_fetch(OrderedIntervalList::point(Value::Null)));
    }
    let positive = complementable(child, keys)?;
    let list = positive.complement();
    if !field.multikey {
        return Some(exact(list));
    }
    (holds_null(&list) && list.contains(RawValue::Undefined)).then(|| inexact_fetch(list))
}

/// The exact bounds of a predicate whose negation has bounds, too; `None` for other predicates.
fn complementable(child: &MatchExpression, keys: KeyCollator<'_>) -> Option<OrderedIntervalList> {
    match child {
        MatchExpression::Comparison(_) | MatchExpression::In(_) => {
            let bounds = value_bounds(child, keys)?;
            (bounds.tightness == BoundsTightness::Exact).then_some(bounds.list)
        }
        _ => None,
    }
}

/// The bounds of `$elemMatch` over values: one element is within the bounds of every child. The
/// filter checks children without bounds.
fn element_bounds(
    children: &[MatchExpression],
    keys: KeyCollator<'_>,
) -> Option<OrderedIntervalList> {
    let mut all = Vec::with_capacity(children.len());
    for child in children {
        let list = match child {
            MatchExpression::Not(inner) => complementable(inner, keys).map(|l| l.complement()),
            MatchExpression::Exists { .. } => Some(OrderedIntervalList::all()),
            MatchExpression::And(inner) => element_bounds(inner, keys),
            other => value_bounds(other, keys).map(|b| b.list),
        };
        all.extend(list);
    }
    OrderedIntervalList::intersect_all(all)
}

/// The bounds of the individual values that satisfy a predicate, without regard to arrays.
pub(super) fn value_bounds(expr: &MatchExpression, keys: KeyCollator<'_>) -> Option<FieldBounds> {
    Some(match expr {
        MatchExpression::Comparison(c) => {
            comparison_bounds(c.op, &*operand(&c.value, c.collator.as_ref(), keys)?)
        }
        MatchExpression::ExprComparison(c) => expr_bounds(c, keys)?,
        MatchExpression::In(i) => in_bounds(i, keys)?,
        MatchExpression::Regex(r) => {
            let mut intervals = Vec::with_capacity(2);
            let tightness = push_regex(r, &mut intervals, keys);
            FieldBounds {
                list: OrderedIntervalList::union_of(intervals),
                tightness,
            }
        }
        MatchExpression::Mod { .. } => inexact_covered(OrderedIntervalList::of(numbers_and_nan())),
        MatchExpression::Bits(_) => inexact_covered(OrderedIntervalList::union_of(vec![
            numbers_and_nan(),
            bracket_of(ElementType::Binary),
        ])),
        MatchExpression::Type { types, .. } => type_bounds(types),
        // The key of an element does not depend on the size of the array.
        MatchExpression::Size { .. }
        | MatchExpression::And(_)
        | MatchExpression::Or(_)
        | MatchExpression::Nor(_)
        | MatchExpression::Not(_)
        | MatchExpression::Exists { .. }
        | MatchExpression::ElemMatchObject { .. }
        | MatchExpression::ElemMatchValue { .. }
        | MatchExpression::Expr(_)
        | MatchExpression::JsonSchema(_)
        | MatchExpression::AlwaysTrue
        | MatchExpression::AlwaysFalse => return None,
    })
}

fn is_nan(value: &Value) -> bool {
    match value {
        Value::Double(x) => x.is_nan(),
        Value::Decimal128(d) => d.is_nan(),
        _ => false,
    }
}

fn comparison_bounds(op: ComparisonOp, value: &Value) -> FieldBounds {
    use ComparisonOp::*;
    if let Value::Array(array) = value {
        // A whole array has the key of its first element; in the order of values it may be
        // anywhere.
        return inexact_fetch(match op {
            Eq => {
                let first = array.as_raw().iter().next();
                let first = first.map_or(Value::Undefined, Value::from);
                OrderedIntervalList::union_of(vec![
                    Interval::point(first),
                    Interval::point(value.clone()),
                ])
            }
            _ => OrderedIntervalList::all(),
        });
    }
    let point = || OrderedIntervalList::point(value.clone());
    if op == Eq {
        return exact(point());
    }
    if is_nan(value) {
        return exact(match op {
            Gte | Lte => point(),
            _ => OrderedIntervalList::nothing(),
        });
    }
    let bracket = match value {
        Value::MinKey | Value::MaxKey => Interval::all(),
        other => bracket_of(other.element_type()),
    };
    let interval = match op {
        Gt | Gte => Interval {
            start: value.clone(),
            start_inclusive: op == Gte,
            ..bracket
        },
        _ => Interval {
            end: value.clone(),
            end_inclusive: op == Lte,
            ..bracket
        },
    };
    exact(OrderedIntervalList::of(interval))
}

/// The bounds of an `$expr` comparison: a range in the order of all values. A missing field has the
/// key null, but is below all values.
fn expr_bounds(c: &ExprComparison, keys: KeyCollator<'_>) -> Option<FieldBounds> {
    use ComparisonOp::*;
    let value = operand(&c.value, c.collator.as_ref(), keys)?.into_owned();
    let interval = match c.op {
        Eq => Interval::point(value),
        Gt | Gte => Interval::new(value, c.op == Gte, Value::MaxKey, true),
        Lt | Lte => Interval::new(Value::MinKey, true, value, c.op == Lte),
    };
    let list = OrderedIntervalList::of(interval);
    Some(match (c.test(None), holds_null(&list)) {
        (true, false) => inexact_fetch(list.union(OrderedIntervalList::point(Value::Null))),
        (false, true) => inexact_fetch(list),
        _ => exact(list),
    })
}

fn in_bounds(i: &In, keys: KeyCollator<'_>) -> Option<FieldBounds> {
    let by_bytes = keys.is_none() && i.collator.is_none();
    let is_array = |value: &Value| matches!(value, Value::Array(_));
    if by_bytes && i.regexes.is_empty() && !i.equalities.iter().any(is_array) {
        return Some(exact(OrderedIntervalList::points(i.equalities.clone())));
    }
    let mut tightness = BoundsTightness::Exact;
    let mut intervals = Vec::with_capacity(i.equalities.len() + 2 * i.regexes.len());
    for value in i.equalities.iter() {
        let value = operand(value, i.collator.as_ref(), keys)?;
        if let Value::Array(_) = *value {
            let bounds = comparison_bounds(ComparisonOp::Eq, &value);
            tightness = tightness.min(bounds.tightness);
            intervals.extend(bounds.list.into_intervals());
        } else {
            intervals.push(Interval::point(value.into_owned()));
        }
    }
    for regex in &i.regexes {
        tightness = tightness.min(push_regex(regex, &mut intervals, keys));
    }
    Some(FieldBounds {
        list: OrderedIntervalList::union_of(intervals),
        tightness,
    })
}

/// Appends the bounds of the strings that can match, and of the stored regex equal to this one.
fn push_regex(
    regex: &RegexMatch,
    out: &mut Vec<Interval>,
    keys: KeyCollator<'_>,
) -> BoundsTightness {
    let strings = bracket_of(ElementType::String);
    let tightness = match regex.compiled.prefix() {
        // A sort key does not preserve prefixes of its text and cannot be matched.
        _ if keys.is_some() => {
            out.push(strings);
            BoundsTightness::InexactFetch
        }
        Some(found) => {
            let (end, end_inclusive) = match successor(&found.prefix) {
                Some(next) => (Value::String(next), false),
                None => (strings.end, strings.end_inclusive),
            };
            out.push(Interval::new(
                Value::String(found.prefix),
                true,
                end,
                end_inclusive,
            ));
            if found.exact {
                BoundsTightness::Exact
            } else {
                BoundsTightness::InexactCovered
            }
        }
        None => {
            out.push(strings);
            BoundsTightness::InexactCovered
        }
    };
    out.push(Interval::point(Value::Regex {
        pattern: regex.pattern.as_ref().to_owned(),
        options: regex.options.as_ref().to_owned(),
    }));
    tightness
}

/// The least string that is greater than all strings with the prefix `prefix`; `None` if there is
/// none.
fn successor(prefix: &str) -> Option<String> {
    let mut next = prefix.to_owned();
    while let Some(last) = next.pop() {
        let after = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            other => char::from_u32(other as u32 + 1),
        };
        if let Some(after) = after {
            next.push(after);
            return Some(next);
        }
    }
    None
}

fn type_bounds(types: &TypeSet) -> FieldBounds {
    // Keys contain only the elements of an array.
    if types.contains(ElementType::Array) {
        return inexact_fetch(OrderedIntervalList::all());
    }
    let mut tightness = BoundsTightness::Exact;
    let mut intervals = Vec::new();
    for element_type in types.types() {
        tightness = tightness.min(match element_type {
            // Absent fields have the key null, empty arrays undefined.
            ElementType::Null | ElementType::Undefined => BoundsTightness::InexactFetch,
            // The type of the key distinguishes types that share a bracket.
            t if shares_bracket_with_others(t, types) => BoundsTightness::InexactCovered,
            _ => BoundsTightness::Exact,
        });
        intervals.push(if element_type.is_number() {
            numbers_and_nan()
        } else {
            bracket_of(element_type)
        });
    }
    FieldBounds {
        list: OrderedIntervalList::union_of(intervals),
        tightness,
    }
}

fn shares_bracket_with_others(element_type: ElementType, wanted: &TypeSet) -> bool {
    ElementType::ALL
        .iter()
        .any(|t| t.canonical_rank() == element_type.canonical_rank() && !wanted.contains(*t))
}

/// Whether a document without the field passes; `None` if the predicate alone does not decide that.
pub(super) fn matches_missing(expr: &MatchExpression) -> Option<bool> {
    match expr {
        MatchExpression::Comparison(c) => Some(c.test(None)),
        // For an empty array, a path below it evaluates to an array, which an equality excludes.
        MatchExpression::ExprComparison(c) => {
            (c.op == ComparisonOp::Eq || c.path.len() == 1).then(|| c.test(None))
        }
        MatchExpression::In(i) => Some(i.equalities.iter().any(|v| matches!(v, Value::Null))),
        MatchExpression::Not(child) => matches_missing(child).map(|m| !m),
        MatchExpression::Regex(_)
        | MatchExpression::Mod { .. }
        | MatchExpression::Exists { .. }
        | MatchExpression::Type { .. }
        | MatchExpression::Size { .. }
        | MatchExpression::ElemMatchObject { .. }
        | MatchExpression::ElemMatchValue { .. }
        | MatchExpression::Bits(_) => Some(false),
        _ => None,
    }
}
