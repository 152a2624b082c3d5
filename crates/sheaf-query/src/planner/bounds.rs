//! Intervals over BSON values, and what a scan walks: one list a field.

use sheaf_bson::{DocBuf, Value};

/// A range of values in BSON order. In a list of a descending field (or a
/// backward scan) `start` is the greater end: intervals are written in the
/// direction in which the scan meets them, as explain prints them.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Where the scan enters.
    pub start: Value,
    /// Where it leaves.
    pub end: Value,
    /// `[` rather than `(`.
    pub start_inclusive: bool,
    /// `]` rather than `)`.
    pub end_inclusive: bool,
}

/// The intervals of one index field, disjoint, in scan order.
#[derive(Debug, Clone, Default)]
pub struct OrderedIntervalList {
    /// The field's path in the key pattern.
    pub name: String,
    /// Empty: the scan returns nothing.
    pub intervals: Vec<Interval>,
}

/// How far bounds can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundsTightness {
    /// The bounds admit too much, and only the document can tell.
    InexactFetch,
    /// The bounds admit too much, and the index key can tell.
    InexactCovered,
    /// What lies within the bounds matches; the predicate is done.
    Exact,
}

/// What an index scan walks.
#[derive(Debug, Clone)]
pub enum IndexBounds {
    /// One list for every field of the key pattern, in its order.
    Fields(Vec<OrderedIntervalList>),
    /// `min()`/`max()`: one range between two whole keys, in scan order.
    KeyRange {
        /// Field values in key-pattern order; `None` is the index's end.
        start: Option<DocBuf>,
        /// As `start`.
        end: Option<DocBuf>,
        /// Whether a key equal to `start` is met.
        start_inclusive: bool,
        /// Whether a key equal to `end` is met.
        end_inclusive: bool,
    },
}
