//! Bounds on hashed fields: an equality is a point, and other predicates have no bounds.
//!
//! ```text
//!   {a: 5}               [hash of 5, hash of 5]
//!   {a: {$in: [1, 2]}}   two points, in the order of the hashes
//!   {a: null}            one point: a missing field hashes like null
//!   {a: {$gt: 5}}        no bounds
//! ```
//!
//! With a collation, the sort key is hashed. Hashes may collide (5 and 5.2 always do, because
//! fractions are truncated), so the document is always checked. Arrays have no hash, and a hashed
//! index contains none: equality to an array is left to other plans.

use sheaf_bson::{ElementType, Value};

use super::bounds::{Interval, OrderedIntervalList};
use super::collation::{KeyCollator, operand};
use crate::matcher::{ComparisonOp, MatchExpression};

/// The hashes of the values that satisfy a predicate; `None` if the predicate does not list its
/// values.
pub(super) fn bounds_of(
    expr: &MatchExpression,
    keys: KeyCollator<'_>,
) -> Option<OrderedIntervalList> {
    let (values, collator) = match expr {
        MatchExpression::Comparison(c) if c.op == ComparisonOp::Eq => {
            (std::slice::from_ref(&*c.value), c.collator.as_ref())
        }
        MatchExpression::ExprComparison(c) if c.op == ComparisonOp::Eq => {
            (std::slice::from_ref(&*c.value), c.collator.as_ref())
        }
        MatchExpression::In(list) if list.regexes.is_empty() => {
            (list.equalities.as_slice(), list.collator.as_ref())
        }
        // A missing field hashes like null.
        MatchExpression::Not(child) if matches!(**child, MatchExpression::Exists { .. }) => {
            (&[Value::Null] as &[Value], None)
        }
        _ => return None,
    };
    let hashes = values.iter().map(|value| {
        if value.element_type() == ElementType::Array {
            return None;
        }
        let value = operand(value, collator, keys)?;
        let hash = sheaf_bson::hash64::hash64(value.as_raw());
        Some(Interval::point(Value::Int64(hash)))
    });
    Some(OrderedIntervalList::union_of(
        hashes.collect::<Option<Vec<_>>>()?,
    ))
}
