//! A value that sets and maps can hold: ordered and equal as BSON has it.

use std::cmp::Ordering;

use sheaf_bson::{RawValue, compare_values, values_equal};

/// Ordered by BSON's order of values; 1 and 1.0 are equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedValue<'a>(pub(crate) RawValue<'a>);

impl PartialEq for OrderedValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        values_equal(self.0, other.0)
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
        compare_values(self.0, other.0)
    }
}
