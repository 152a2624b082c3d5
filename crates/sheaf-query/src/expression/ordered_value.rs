//! A value with BSON's total order, usable as a key of sets and maps.

use std::cmp::Ordering;

use sheaf_bson::{Collator, RawValue, compare_values_with};

/// Compares by BSON's order of values, in which 1 and 1.0 are equal. Text compares by the collator,
/// which must be the same for all values of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedValue<'a>(pub(crate) RawValue<'a>, pub(crate) Option<&'a Collator>);

impl PartialEq for OrderedValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedValue<'_> {}

impl PartialOrd for OrderedValue<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedValue<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_values_with(self.0, other.0, self.1)
    }
}
