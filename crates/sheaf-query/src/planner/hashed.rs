//! Bounds on hashes: an equality is a point, and nothing else has any.
//!
//! ```text
//!   {a: 5}               [hash of 5, hash of 5]
//!   {a: {$in: [1, 2]}}   two points, in the order of the hashes
//!   {a: null}            one: a missing field hashes as null does
//!   {a: {$gt: 5}}        no bounds
//! ```
//!
//! By a collation it is the sort key that is hashed. Hashes may meet (5 and 5.2 always do: fractions are cut off), so the document
//! is always checked. Arrays have no hash, and no such index holds one: equality
//! to an array is left to other plans.

use sheaf_bson::{ElementType, Value};

use super::bounds::{Interval, OrderedIntervalList};
use super::collation::{KeyCollator, operand};
use crate::matcher::{ComparisonOp, MatchExpression};

/// The hashes of the values that satisfy a predicate; `None` if they are not listed.
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
        // A missing field hashes as null.
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
