//! Tells an index scan, key by key, whether a key lies within the bounds and
//! where to go on when it does not.
//!
//! ```text
//!   bounds  r: (10, inf.0]  e: [42, 42]
//!
//!   (11, 99)  beyond e      seek past (11, ..)        MustAdvance keep 1, exclusive
//!   (20, 42)  within        give it                   Valid
//!   (30, 7)   before e      seek to (30, 42)          MustAdvance keep 1, then starts
//!   past the last interval of every field that could still move: Done
//! ```
//!
//! The checker is pure. [`ScanBounds`] holds the bounds in whatever form keys
//! compare with best (values, or pieces of KeyString), [`IndexBoundsChecker`]
//! only the interval in which each field was last seen: neighbouring keys
//! mostly stay in it, so the usual key costs at most two comparisons a field
//! and allocates nothing. Leaving an interval costs a binary search.
//!
//! Invariant: no key within the bounds lies between the key just checked and
//! the seek point returned for it.

use std::cmp::Ordering;

use sheaf_bson::{RawValue, Value, compare_values};
use smallvec::SmallVec;

use super::bounds::{IndexBounds, Interval, OrderedIntervalList};
use super::index_entry::IndexEntry;

/// A piece of a KeyString. Numbers, dates and ObjectIds stay in place.
pub type EncodedEnd = SmallVec<[u8; 24]>;

/// A key, field by field.
pub trait IndexKey {
    /// The form in which ends of intervals are kept.
    type End;
    /// Compares the value of field `field` with an end. The order is that of
    /// the form itself; [`FieldIntervals::reversed`] says if the scan meets it
    /// the other way round.
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
    /// Where the scan enters.
    pub start: E,
    /// Where it leaves; `None`: where it entered.
    end: Option<E>,
    /// Whether a value equal to `start` is within.
    pub start_inclusive: bool,
    /// Whether a value equal to `end` is within.
    pub end_inclusive: bool,
    /// `[x, x]`: one comparison tells all.
    point: bool,
    /// `[MinKey, MaxKey]`: none is needed.
    full: bool,
}

/// The intervals of one field, in scan order.
#[derive(Debug, Clone)]
pub struct FieldIntervals<E> {
    /// Disjoint, in scan order.
    pub intervals: Vec<ScanInterval<E>>,
    /// The scan meets values in descending order of [`IndexKey::compare`].
    pub reversed: bool,
}

/// All fields' intervals in a form that keys compare with.
#[derive(Debug, Clone)]
pub struct ScanBounds<E> {
    /// In key-pattern order.
    pub fields: Vec<FieldIntervals<E>>,
}

/// Where a value lies, seen along the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    Before,
    Within,
    After,
}

impl<E> ScanInterval<E> {
    /// Where the scan leaves.
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
    /// The first interval among `from..` that the value has not left behind,
    /// and whether the value has reached it; `None` past the last.
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
    /// Bounds in any form: `reversed` says of a field (by position) whether the
    /// scan meets the form's order the other way round, `end` makes the form of
    /// one value. Complemented KeyStrings are reversed exactly when the scan
    /// runs backward.
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

    /// The bounds as one contiguous range of keys, if they are one: points,
    /// then at most one interval, then fields without bounds.
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
/// A key is within if its leading fields, as many as there are values, do not
/// come before `start` nor after `end` in scan order; keys that begin with the
/// very values are within if that side is inclusive. No values: the index's
/// end. A scan of such a range seeks once and examines only what it gives.
#[derive(Debug, Clone)]
pub struct SimpleRange<'a, E> {
    /// Where the scan enters.
    pub start: Vec<&'a E>,
    /// Where it leaves.
    pub end: Vec<&'a E>,
    /// Whether keys that begin with `start` are met.
    pub start_inclusive: bool,
    /// Whether keys that begin with `end` are met.
    pub end_inclusive: bool,
}

/// What to do after looking at a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// Within the bounds: give it.
    Valid,
    /// Outside; go on at the seek point.
    MustAdvance(SeekPoint),
    /// Nothing further along can be within.
    Done,
}

/// The first key that may lie within the bounds, relative to the key checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekPoint {
    /// How many leading fields keep the checked key's values.
    pub prefix_len: usize,
    /// Go past every key with that prefix; otherwise the fields after it begin
    /// at [`IndexBoundsChecker::suffix`].
    pub prefix_exclusive: bool,
}

/// Remembers in which interval each field was last seen.
#[derive(Debug, Clone, Default)]
pub struct IndexBoundsChecker {
    current: Vec<usize>,
}

impl IndexBoundsChecker {
    /// Starts over. The first seek has no prefix and goes to the suffix;
    /// `None` if the bounds hold nothing.
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

    /// Where the fields from `from` on begin, and whether a key that agrees so
    /// far is met. After an exclusive start the rest is of no account: the
    /// seek goes past every key with the values up to there.
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

    /// Looks at the next key of the scan. Keys come in scan order; keys between
    /// two calls may have been skipped.
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
        // Most keys stay where the last one was.
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
            // Before its interval: a field further left has moved on, so the
            // intervals passed earlier are open again.
            let from = match location {
                Location::After => self.current[at] + 1,
                _ => 0,
            };
            match field.find(key, at, from) {
                Some((interval, Location::Within)) => {
                    self.current[at] = interval;
                    at += 1;
                    // The fields to the right start over.
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

    /// Whether one of the first `len` fields can still take a later value.
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
