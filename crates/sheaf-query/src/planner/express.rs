//! Queries so simple that planning them would cost more than running them.

use sheaf_bson::{RawValue, Value, compare_docs, doc};

use crate::canonical::{CanonicalQuery, Hint};
use crate::matcher::{ComparisonOp, MatchExpression};

/// The `_id` that a query asks for, if that is all it asks: an equality on
/// `_id`, no order, nothing skipped, at most a simple projection. The one
/// document comes straight from the `_id` index (EXPRESS_IXSCAN).
///
/// `None` for values that no `_id` has, or that do not stand for themselves:
/// arrays, regular expressions, undefined.
pub fn express_id(query: &CanonicalQuery) -> Option<&Value> {
    let MatchExpression::Comparison(comparison) = &*query.filter else {
        return None;
    };
    let plain = comparison.op == ComparisonOp::Eq
        && comparison.path.dotted() == "_id"
        && query.sort.is_none()
        && query.skip == 0
        && query.min.is_none()
        && query.max.is_none()
        && !query.return_key
        && query.projection.as_ref().is_none_or(|p| p.simple())
        && query.hint.as_ref().is_none_or(is_id_index);
    let value = &*comparison.value;
    let stands_for_itself = !matches!(
        value.as_raw(),
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined
    );
    (plain && stands_for_itself).then_some(value)
}

fn is_id_index(hint: &Hint) -> bool {
    match hint {
        Hint::Name(name) => name == "_id_",
        Hint::KeyPattern(pattern) => {
            compare_docs(pattern.as_raw(), doc! {"_id": 1}.as_raw()).is_eq()
        }
        Hint::Natural(_) => false,
    }
}
