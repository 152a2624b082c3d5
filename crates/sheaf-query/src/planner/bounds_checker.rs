//! Checks each key of an index scan against the bounds, and computes where the scan continues if
//! the key is outside.
//!
//! ```text
//!   bounds  r: (10, inf.0]  e: [42, 42]
//!
//!   (11, 99)  beyond e      seek past (11, ..)        MustAdvance keep 1, exclusive
//!   (20, 42)  within        return it                 Valid
//!   (30, 7)   before e      seek to (30, 42)          MustAdvance keep 1, then starts
//!   past the last interval of every field that could still move: Done
//! ```
//!
//! The checker is pure. [`ScanBounds`] holds the bounds in the form that is cheapest to compare
//! with keys (values, or pieces of KeyString). [`IndexBoundsChecker`] holds only the interval in
//! which each field was last seen: neighbouring keys are mostly in the same interval, so a typical
//! key costs at most two comparisons per field and no allocation. Leaving an interval costs a
//! binary search.
//!
//! Invariant: no key within the bounds lies between the key just checked and
//! the seek point returned for it.

use std::cmp::Ordering;

use sheaf_bson::{RawValue, Value, compare_values};
use smallvec::SmallVec;

use super::bounds::{IndexBounds, Interval, OrderedIntervalList};
use super::index_entry::IndexEntry;

/// A piece of a KeyString. Numbers, dates and ObjectIds are stored inline.
pub type EncodedEnd = SmallVec<[u8; 24]>;

/// A key, field by field.
pub trait IndexKey {
    /// The form in which interval ends are stored.
    type End;
    /// Compares the value of field `field` with an end, in the order of the form itself.
    /// [`FieldIntervals::reversed`] is set if the scan runs in the opposite order.
    fn compare(&self, field: usize, end: &Self::End) -> Ordering;
}

/// Decoded values in key-pattern order, compared in BSON order.
impl IndexKey for [RawValue<'_>] {
    type End = Value;
    #[inline]
    fn compare(&self, field: usize, end: &Value) -> Ordering {
        compare_values(self[field], end.as_raw())
    }
}

/// Encoded values in key-pattern order, compared as bytes.
impl IndexKey for [&[u8]] {
    type End = EncodedEnd;
    #[inline]
    fn compare(&self, field: usize, end: &EncodedEnd) -> Ordering {
        self[field].cmp(end.as_slice())
    }
}

/// One interval of one field, ready for comparing.
#[derive(Debug, Clone)]
pub struct ScanInterval<E> {
    /// The end at which the scan enters the interval.
    pub start: E,
    /// The end at which the scan leaves; `None` if equal to `start`.
    end: Option<E>,
    /// Whether a value equal to `start` is in the interval.
    pub start_inclusive: bool,
    /// Whether a value equal to `end` is in the interval.
    pub end_inclusive: bool,
    /// `[x, x]`: one comparison suffices.
    point: bool,
    /// `[MinKey, MaxKey]`: no comparison is needed.
    full: bool,
}

/// The intervals of one field, in scan order.
#[derive(Debug, Clone)]
pub struct FieldIntervals<E> {
    /// Disjoint, in scan order.
    pub intervals: Vec<ScanInterval<E>>,
    /// Whether the scan visits values in descending order of [`IndexKey::compare`].
    pub reversed: bool,
}

/// The intervals of all fields, in a form that is comparable with keys.
#[derive(Debug, Clone)]
pub struct ScanBounds<E> {
    /// In key-pattern order.
    pub fields: Vec<FieldIntervals<E>>,
}

/// The position of a value relative to an interval, in scan order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    Before,
    Within,
    After,
}

impl<E> ScanInterval<E> {
    /// The end at which the scan leaves the interval.
    #[inline]
    pub fn end(&self) -> &E {
        self.end.as_ref().unwrap_or(&self.start)
    }

    #[inline]
    fn locate<K: IndexKey<End = E> + ?Sized>(
        &self,
        key: &K,
        field: usize,
        reversed: bool,
    ) -> Location {
        if self.full {
            return Location::Within;
        }
        let order = along(key.compare(field, &self.start), reversed);
        if order.is_lt() || order.is_eq() && !self.start_inclusive {
            return Location::Before;
        }
        if self.point {
            return if order.is_eq() {
                Location::Within
            } else {
                Location::After
            };
        }
        let order = along(key.compare(field, self.end()), reversed);
        if order.is_gt() || order.is_eq() && !self.end_inclusive {
            return Location::After;
        }
        Location::Within
    }
}

#[inline]
fn along(order: Ordering, reversed: bool) -> Ordering {
    if reversed { order.reverse() } else { order }
}

impl<E> FieldIntervals<E> {
    /// The first interval among `from..` that does not end before the value, and the position of
    /// the value relative to it; `None` if the value is after the last interval.
    fn find<K: IndexKey<End = E> + ?Sized>(
        &self,
        key: &K,
        field: usize,
        from: usize,
    ) -> Option<(usize, Location)> {
        debug_assert!(from <= self.intervals.len());
        let rest = &self.intervals[from..];
        let skipped = rest.partition_point(|interval| {
            interval.locate(key, field, self.reversed) == Location::After
        });
        let interval = rest.get(skipped)?;
        Some((from + skipped, interval.locate(key, field, self.reversed)))
    }
}

impl ScanBounds<Value> {
    /// Bounds over decoded values. `None` for a range of whole keys
    /// ([`IndexBounds::KeyRange`]), which needs no checker.
    pub fn from_bounds(
        bounds: &IndexBounds,
        index: &IndexEntry,
        direction: i8,
    ) -> Option<ScanBounds<Value>> {
        ScanBounds::compile(
            bounds,
            |field| (index.fields[field].direction < 0) != (direction < 0),
            |_, value| value.clone(),
        )
    }
}

impl<E> ScanBounds<E> {
    /// Bounds in any form. `reversed` returns whether the scan visits a field (given by position)
    /// in the opposite order of the form; `end` converts a value to the form. Complemented
    /// KeyStrings are reversed exactly if the scan runs backward.
    ///
    /// `None` for a range of whole keys ([`IndexBounds::KeyRange`]).
    pub fn compile(
        bounds: &IndexBounds,
        reversed: impl Fn(usize) -> bool,
        mut end: impl FnMut(usize, &Value) -> E,
    ) -> Option<ScanBounds<E>> {
        let IndexBounds::Fields(lists) = bounds else {
            return None;
        };
        let mut compile_list = |field: usize, list: &OrderedIntervalList| {
            if let Some(points) = list.shared_points() {
                let point = |value| ScanInterval {
                    start: end(field, value),
                    end: None,
                    start_inclusive: true,
                    end_inclusive: true,
                    point: true,
                    full: false,
                };
                return points.map(point).collect();
            }
            let of_interval = |interval: &Interval| {
                let point = interval.is_point();
                ScanInterval {
                    start: end(field, &interval.start),
                    end: (!point).then(|| end(field, &interval.end)),
                    start_inclusive: interval.start_inclusive,
                    end_inclusive: interval.end_inclusive,
                    point,
                    full: interval.is_full(),
                }
            };
            list.intervals().iter().map(of_interval).collect()
        };
        let fields = lists
            .iter()
            .enumerate()
            .map(|(field, list)| FieldIntervals {
                intervals: compile_list(field, list),
                reversed: reversed(field),
            })
            .collect();
        Some(ScanBounds { fields })
    }

    /// The bounds as one contiguous range of keys: points, then at most one interval, then fields
    /// without bounds. `None` if they are not contiguous.
    pub fn simple_range(&self) -> Option<SimpleRange<'_, E>> {
        let mut range = SimpleRange {
            start: Vec::new(),
            end: Vec::new(),
            start_inclusive: true,
            end_inclusive: true,
        };
        let mut fields = self.fields.iter();
        for field in fields.by_ref() {
            let [only] = field.intervals.as_slice() else {
                return None;
            };
            if only.full {
                break;
            }
            range.start.push(&only.start);
            range.end.push(only.end());
            range.start_inclusive = only.start_inclusive;
            range.end_inclusive = only.end_inclusive;
            if !only.point {
                break;
            }
        }
        for field in fields {
            if !matches!(field.intervals.as_slice(), [only] if only.full) {
                return None;
            }
        }
        Some(range)
    }
}

/// One contiguous range of keys, as values of the leading fields.
///
/// A key is within the range if its leading fields, one for each value, are neither before `start`
/// nor after `end` in scan order; a key whose leading fields equal the values is within if that
/// side is inclusive. A side without values is the end of the index. A scan of such a range seeks
/// once and examines only keys that it returns.
#[derive(Debug, Clone)]
pub struct SimpleRange<'a, E> {
    /// Values at which the scan enters the range.
    pub start: Vec<&'a E>,
    /// Values at which the scan leaves the range.
    pub end: Vec<&'a E>,
    /// Whether keys that begin with `start` are in the range.
    pub start_inclusive: bool,
    /// Whether keys that begin with `end` are in the range.
    pub end_inclusive: bool,
}

/// The next action of the scan after checking a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// The key is within the bounds: return it.
    Valid,
    /// The key is outside: continue at the seek point.
    MustAdvance(SeekPoint),
    /// No later key can be within the bounds.
    Done,
}

/// The first key that may lie within the bounds, relative to the key checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekPoint {
    /// Number of leading fields that keep the values of the checked key.
    pub prefix_len: usize,
    /// Skip every key with that prefix. Otherwise the fields after the prefix begin at
    /// [`IndexBoundsChecker::suffix`].
    pub prefix_exclusive: bool,
}

/// Checks keys; stores the interval in which each field was last seen.
#[derive(Debug, Clone, Default)]
pub struct IndexBoundsChecker {
    current: Vec<usize>,
}

impl IndexBoundsChecker {
    /// Resets the checker for a new scan. The first seek has no prefix and goes to the suffix;
    /// `None` if the bounds are empty.
    pub fn start<E>(&mut self, bounds: &ScanBounds<E>) -> Option<SeekPoint> {
        self.current.clear();
        self.current.resize(bounds.fields.len(), 0);
        if bounds.fields.iter().any(|f| f.intervals.is_empty()) {
            return None;
        }
        Some(SeekPoint {
            prefix_len: 0,
            prefix_exclusive: false,
        })
    }

    /// The start of the current interval of each field from `from` on, and whether it is inclusive.
    /// After an exclusive start the remaining fields are ignored: the seek skips every key with
    /// this prefix.
    pub fn suffix<'b, E>(
        &'b self,
        bounds: &'b ScanBounds<E>,
        from: usize,
    ) -> impl Iterator<Item = (&'b E, bool)> + 'b {
        bounds.fields[from..]
            .iter()
            .zip(&self.current[from..])
            .map(|(field, &current)| {
                let interval = &field.intervals[current];
                (&interval.start, interval.start_inclusive)
            })
    }

    /// Checks the next key of the scan. Keys must be in scan order; keys between two calls may have
    /// been skipped.
    pub fn check_key<K: IndexKey + ?Sized>(
        &mut self,
        bounds: &ScanBounds<K::End>,
        key: &K,
    ) -> KeyState {
        let fields = bounds.fields.as_slice();
        debug_assert_eq!(fields.len(), self.current.len());
        debug_assert!(
            (fields.iter().zip(&self.current)).all(|(field, at)| *at < field.intervals.len())
        );
        // Most keys are in the same intervals as the previous key.
        let mut at = 0;
        let mut location = loop {
            let Some(field) = fields.get(at) else {
                return KeyState::Valid;
            };
            match field.intervals[self.current[at]].locate(key, at, field.reversed) {
                Location::Within => at += 1,
                outside => break outside,
            }
        };
        while let Some(field) = fields.get(at) {
            // Before its interval: an earlier field has changed, so the intervals already passed
            // are valid again.
            let from = match location {
                Location::After => self.current[at] + 1,
                _ => 0,
            };
            match field.find(key, at, from) {
                Some((interval, Location::Within)) => {
                    self.current[at] = interval;
                    at += 1;
                    // The later fields start over.
                    location = Location::Before;
                }
                Some((interval, _)) => {
                    self.current[at] = interval;
                    self.current[at + 1..].fill(0);
                    return KeyState::MustAdvance(SeekPoint {
                        prefix_len: at,
                        prefix_exclusive: false,
                    });
                }
                None => {
                    if !self.can_move(fields, key, at) {
                        return KeyState::Done;
                    }
                    self.current[at..].fill(0);
                    return KeyState::MustAdvance(SeekPoint {
                        prefix_len: at,
                        prefix_exclusive: true,
                    });
                }
            }
        }
        KeyState::Valid
    }

    /// Whether one of the first `len` fields can still have a later value within the bounds.
    fn can_move<K: IndexKey + ?Sized>(
        &self,
        fields: &[FieldIntervals<K::End>],
        key: &K,
        len: usize,
    ) -> bool {
        (0..len).any(|i| {
            let field = &fields[i];
            let interval = &field.intervals[self.current[i]];
            self.current[i] + 1 < field.intervals.len()
                || along(key.compare(i, interval.end()), field.reversed).is_lt()
        })
    }
}

#[cfg(test)]
mod tests;
