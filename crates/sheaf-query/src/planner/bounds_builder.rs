//! Turns one predicate over one index field into an interval list.
//!
//! Invariant: bounds may admit too much, never too little. When they admit
//! too much, tightness says so and the predicate stays as a filter.
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
//! - A key is one element, so a negation cannot be decided by it: `{a: [5, 6]}`
//!   is not `{$ne: 5}`, yet its key 6 lies within.
//! - null and undefined also stand for arrays that have no element, or none
//!   that is a document. Bounds with them are never exact, and a negation
//!   whose bounds lack them could lose such a document: it uses no index.
//! - Compared with MinKey and MaxKey an array counts as a whole, whatever its
//!   elements are.

use sheaf_bson::{ElementType, RawValue, Value};

use super::bounds::{BoundsTightness, Interval, OrderedIntervalList};
use super::collation::{KeyCollator, operand};
use super::hashed;
use super::type_bracket::{bracket_of, numbers_and_nan};
use crate::matcher::{
    Comparison, ComparisonOp, ExprComparison, In, MatchExpression, RegexMatch, TypeSet,
};

/// What the index knows of the field that the bounds are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FieldTraits {
    /// Some part of the path is an array in some document.
    pub multikey: bool,
    /// A part after the first is a number, which is a position or a name.
    pub positional: bool,
    /// Every document in the index has the field.
    pub always_present: bool,
    /// Keys hold the value's hash.
    pub hashed: bool,
    /// Another field of the index lies within this one or around it, so that
    /// no document can be made of a key to check predicates on.
    pub entangled: bool,
}

/// An ascending interval list and how far to trust it.
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

/// The bounds of a predicate (or its negation) on the field it names, in an
/// index with keys of `keys`; `None` if it cannot serve the predicate.
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
        // An array is one value to it, of which keys are the elements.
        MatchExpression::ExprComparison(_) if field.multikey || field.positional => return None,
        other => value_bounds(other, keys)?,
    };
    let null_like = holds_null_like(&bounds.list);
    if field.positional {
        // A position picks an array as a whole, of which keys are the elements;
        // and a missing name leaves no key of its own.
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

/// `$gt: MinKey` and its like compare with values of every type.
fn meets_every_type(c: &Comparison) -> bool {
    matches!(*c.value, Value::MinKey | Value::MaxKey) && c.test(Some(RawValue::Null))
}

/// `$not`, `$ne`, `$nin`, `$exists: false`.
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

/// The exact bounds of a predicate whose negation has bounds too.
fn complementable(child: &MatchExpression, keys: KeyCollator<'_>) -> Option<OrderedIntervalList> {
    match child {
        MatchExpression::Comparison(_) | MatchExpression::In(_) => {
            let bounds = value_bounds(child, keys)?;
            (bounds.tightness == BoundsTightness::Exact).then_some(bounds.list)
        }
        _ => None,
    }
}

/// `$elemMatch` over values: one element lies within the bounds of every
/// child. Children without bounds are left to the filter.
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

/// The keys of values that satisfy a predicate, looked at one by one.
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
        // A size is no property of a key.
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
        // A whole array is met by its first element; compared by order, it may
        // stand anywhere.
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

/// A part of the whole order of values. A missing field has the key null, but is below everything.
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

/// The strings that can match, and the stored regex equal to this one.
fn push_regex(
    regex: &RegexMatch,
    out: &mut Vec<Interval>,
    keys: KeyCollator<'_>,
) -> BoundsTightness {
    let strings = bracket_of(ElementType::String);
    let tightness = match regex.compiled.prefix() {
        // A sort key neither begins as its text does nor can be matched.
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

/// The least string that is greater than all that begin with `prefix`.
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
    // An array is known by its elements only.
    if types.contains(ElementType::Array) {
        return inexact_fetch(OrderedIntervalList::all());
    }
    let mut tightness = BoundsTightness::Exact;
    let mut intervals = Vec::new();
    for element_type in types.types() {
        tightness = tightness.min(match element_type {
            // Absent fields have the key null, empty arrays undefined.
            ElementType::Null | ElementType::Undefined => BoundsTightness::InexactFetch,
            // Types that share a bracket are told apart by the key's own type.
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

/// Whether a document without the field passes; `None` when that cannot be
/// said of the predicate alone.
pub(super) fn matches_missing(expr: &MatchExpression) -> Option<bool> {
    match expr {
        MatchExpression::Comparison(c) => Some(c.test(None)),
        // Of an array without elements a path below it makes an array, which an equality excludes.
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
