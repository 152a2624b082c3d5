//! Rules for using indexes with collations.
//!
//! ```text
//!   index {a: 1}, "fr"         query with "fr"          query with "de" or without collation
//!   {a: "x"}                   sort key of "x"          not served
//!   {a: 5}                     [5, 5]                   [5, 5]
//!   {a: /^x/}                  all strings, FETCH       all strings, FETCH
//!   sort {a: 1}                in order                 only if the bounds hold no text
//!   {_id: 0, a: 1}             covered only if the bounds hold no text
//! ```
//!
//! An index with a collation stores sort keys instead of strings. Bounds over it consist of key
//! values, too, so code that works with bounds needs no knowledge of collations. See
//! [`sheaf_bson::collation`].

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::collation::is_collatable;
use sheaf_bson::{Collator, ElementType, Value, compare_values};

use super::bounds::{IndexBounds, Interval, OrderedIntervalList};
use super::index_entry::IndexEntry;

/// The collation whose sort keys an index stores in place of text; `None` if it stores text.
pub(super) type KeyCollator<'i> = Option<&'i Arc<Collator>>;

/// The operand in the form of the index's keys. `None` if the operand contains text and the
/// predicate and the index have different collations.
pub(super) fn operand<'v>(
    value: &'v Value,
    predicate: Option<&Arc<Collator>>,
    keys: KeyCollator<'_>,
) -> Option<Cow<'v, Value>> {
    if !is_collatable(value.element_type()) {
        return Some(Cow::Borrowed(value));
    }
    match (predicate, keys) {
        (None, None) => Some(Cow::Borrowed(value)),
        (Some(a), Some(b)) if a == b => Some(Cow::Owned(b.key_value(value.as_raw()))),
        _ => None,
    }
}

/// Whether the list may contain strings, or documents and arrays that contain strings. The list may
/// be ascending or descending.
pub(super) fn holds_text(list: &OrderedIntervalList) -> bool {
    list.intervals().iter().any(may_hold_text)
}

fn may_hold_text(interval: &Interval) -> bool {
    let ascends =
        compare_values(interval.start.as_raw(), interval.end.as_raw()) != Ordering::Greater;
    let (low, high, high_inclusive) = match ascends {
        true => (&interval.start, &interval.end, interval.end_inclusive),
        false => (&interval.end, &interval.start, interval.start_inclusive),
    };
    let rank = |t: ElementType| t.canonical_rank();
    let ends_before_text = rank(high.element_type()) < rank(ElementType::String)
        || !high_inclusive && matches!(high, Value::String(s) if s.is_empty());
    let begins_behind_text = rank(low.element_type()) > rank(ElementType::Array);
    !ends_before_text && !begins_behind_text
}

/// Whether a scan within the bounds may encounter text on this field.
pub(super) fn meets_text(bounds: &IndexBounds, field: usize) -> bool {
    match bounds {
        IndexBounds::Fields(lists) => lists.get(field).is_none_or(holds_text),
        IndexBounds::KeyRange { .. } => true,
    }
}

/// Whether strings on this field are sort keys, rather than text or wildcard paths. False for
/// hashed fields.
pub(super) fn has_sort_keys(index: &IndexEntry, field: usize) -> bool {
    index.collator.is_some() && index.holds_values_of(field)
}

/// Whether the keys within the bounds are ordered on this field as by `collator`.
pub(super) fn orders_as(
    index: &IndexEntry,
    bounds: &IndexBounds,
    field: usize,
    collator: Option<&Arc<Collator>>,
) -> bool {
    index.collator.as_ref() == collator
        || !index.holds_values_of(field)
        || !meets_text(bounds, field)
}
