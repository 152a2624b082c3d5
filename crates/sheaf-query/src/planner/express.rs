//! The express path: queries so simple that planning would cost more than execution.
//!
//! ```text
//!   {_id: 5}                         the index on _id
//!   {email: "a@b.c"}                 a unique index on email alone
//!   {_id: 5, a: 1}  {email: null}    planned as usual
//! ```

use std::sync::Arc;

use sheaf_bson::collation::is_collatable;
use sheaf_bson::{RawValue, Value, compare_docs};

use super::index_entry::{IndexEntry, IndexKind};
use crate::canonical::{CanonicalQuery, Hint};
use crate::matcher::{Comparison, ComparisonOp, MatchExpression};
use crate::projection::{MetaField, Projection};

/// The single key that answers a query.
#[derive(Debug, Clone, Copy)]
pub struct ExpressKey<'a> {
    /// Unique, on one field.
    pub index: &'a Arc<IndexEntry>,
    /// The value that the field must equal.
    pub value: &'a Value,
}

/// The key of a query that is only an equality on a field with a unique index: without sort and
/// skip, and with at most a simple projection. The document is read directly through that index
/// (EXPRESS_IXSCAN).
///
/// `None` for values that do not match only themselves (arrays, regular expressions, undefined),
/// for text if the collations of the index and the query differ, and for null, which many documents
/// without the field may match; only `_id` is never missing.
pub fn express_key<'a>(
    query: &'a CanonicalQuery,
    indexes: &'a [Arc<IndexEntry>],
) -> Option<ExpressKey<'a>> {
    let equality = only_equality(query)?;
    // The express path provides neither a sort key nor the index key as a document.
    let asks = |p: &Projection| p.needs(MetaField::IndexKey) || p.needs(MetaField::SortKey);
    if query.projection.as_deref().is_some_and(asks) {
        return None;
    }
    let path = equality.path.dotted();
    let value = &*equality.value;
    let serves = |index: &&Arc<IndexEntry>| {
        index.unique
            && (index.collator == query.collator || !is_collatable(value.element_type()))
            && matches!(index.kind, IndexKind::Btree)
            && index.fields.len() == 1
            && index.fields[0].path.dotted() == path
            && !index.hidden
            && index.partial_filter.is_none()
            && match &query.hint {
                None => true,
                Some(Hint::Name(name)) => index.name == *name,
                Some(Hint::KeyPattern(pattern)) => {
                    compare_docs(index.key_pattern.as_raw(), pattern.as_raw()).is_eq()
                }
                Some(Hint::Natural(_)) => false,
            }
    };
    let index = indexes.iter().find(serves)?;
    let is_id = path == "_id";
    let positional = equality.path.has_numeric_part();
    (is_id || !positional && !matches!(value, Value::Null)).then_some(ExpressKey { index, value })
}

/// Whether the query is a lookup by `_id` alone: the express path serves it whatever the indexes.
pub fn is_id_lookup(query: &CanonicalQuery) -> bool {
    query.hint.is_none()
        && !query.show_record_id
        && only_equality(query).is_some_and(|equality| equality.path.dotted() == "_id")
}

/// The equality, if it is the whole query.
fn only_equality(query: &CanonicalQuery) -> Option<&Comparison> {
    let MatchExpression::Comparison(comparison) = &*query.filter else {
        return None;
    };
    let plain = comparison.op == ComparisonOp::Eq
        && query.sort.is_none()
        && query.skip == 0
        && query.min.is_none()
        && query.max.is_none()
        && !query.return_key
        && query.projection.as_ref().is_none_or(|p| p.simple());
    let stands_for_itself = !matches!(
        comparison.value.as_raw(),
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined
    );
    (plain && stands_for_itself).then_some(comparison)
}
