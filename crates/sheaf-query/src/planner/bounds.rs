//! Intervals of BSON values, and index bounds: one list of intervals per field.
//!
//! While bounds are built, lists are ascending and their algebra is that of sets of values. The
//! last step converts each list to scan order; after that, only scans and explain read it:
//!
//! ```text
//!   {a: {$gt: 5}}  index {a: -1} forward      (5, inf.0]  ──reverse──>  [inf.0, 5)
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, OnceLock};

use sheaf_bson::collation::{shown_key_value, text_of_sort_key};
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawValue, Value, compare_values};
use smallvec::{SmallVec, smallvec};

use crate::interrupt;

/// A range of values in BSON order. In a list of a descending field (or of a backward scan) `start`
/// is the greater end: intervals have the direction of the scan, as explain prints them.
#[derive(Debug, Clone)]
pub struct Interval {
    /// The end at which the scan enters.
    pub start: Value,
    /// The end at which the scan leaves.
    pub end: Value,
    /// Whether `start` is in the interval: `[` rather than `(`.
    pub start_inclusive: bool,
    /// Whether `end` is in the interval: `]` rather than `)`.
    pub end_inclusive: bool,
}

/// The intervals of one index field, disjoint, in scan order.
///
/// Most lists have one interval, which is stored inline. The list of a `$in` shares the values of
/// the filter, and builds intervals on first use.
#[derive(Debug, Clone, Default)]
pub struct OrderedIntervalList {
    /// The field of the key pattern; `None` while bounds are built.
    name: Option<Arc<FieldPath>>,
    intervals: Intervals,
}

#[derive(Debug, Clone)]
enum Intervals {
    Few(SmallVec<[Interval; 1]>),
    Points(Points),
}

impl Default for Intervals {
    fn default() -> Self {
        Intervals::Few(SmallVec::new())
    }
}

/// At least two point intervals.
#[derive(Debug)]
struct Points {
    /// Ascending, without duplicates.
    values: Arc<Vec<Value>>,
    /// Whether the scan order is descending.
    descending: bool,
    /// The intervals in scan order, built on first use.
    made: OnceLock<Vec<Interval>>,
}

impl Clone for Points {
    /// Does not copy the intervals, because they are rarely used, and rarely twice.
    fn clone(&self) -> Self {
        Points {
            values: self.values.clone(),
            descending: self.descending,
            made: OnceLock::new(),
        }
    }
}

/// How exactly bounds decide a predicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundsTightness {
    /// The bounds admit too much, and only the document decides.
    InexactFetch,
    /// The bounds admit too much, and the index key decides.
    InexactCovered,
    /// Every value within the bounds matches; the predicate needs no check.
    Exact,
}

/// The bounds of an index scan.
#[derive(Debug, Clone)]
pub enum IndexBounds {
    /// One list for every field of the key pattern, in its order.
    Fields(Vec<OrderedIntervalList>),
    /// `min()`/`max()`: one range between two whole keys, in scan order.
    KeyRange {
        /// Field values in key-pattern order; `None` is the start of the index.
        start: Option<DocBuf>,
        /// Field values in key-pattern order; `None` is the end of the index.
        end: Option<DocBuf>,
        /// Whether a key equal to `start` is in the range.
        start_inclusive: bool,
        /// Whether a key equal to `end` is in the range.
        end_inclusive: bool,
    },
}

fn cmp(a: &Value, b: &Value) -> Ordering {
    compare_values(a.as_raw(), b.as_raw())
}

impl Interval {
    /// A range with its brackets; may be empty.
    pub fn new(start: Value, start_inclusive: bool, end: Value, end_inclusive: bool) -> Interval {
        Interval {
            start,
            end,
            start_inclusive,
            end_inclusive,
        }
    }

    /// `[value, value]`.
    pub fn point(value: Value) -> Interval {
        Interval::new(value.clone(), true, value, true)
    }

    /// `[MinKey, MaxKey]`.
    pub fn all() -> Interval {
        Interval::new(Value::MinKey, true, Value::MaxKey, true)
    }

    /// Whether it contains exactly one value (1 and 1.0 are the same value).
    pub fn is_point(&self) -> bool {
        self.start_inclusive && self.end_inclusive && cmp(&self.start, &self.end).is_eq()
    }

    /// Whether it contains every value, in either direction.
    pub fn is_full(&self) -> bool {
        self.start_inclusive
            && self.end_inclusive
            && matches!(
                (&self.start, &self.end),
                (Value::MinKey, Value::MaxKey) | (Value::MaxKey, Value::MinKey)
            )
    }

    /// Whether an ascending interval contains no value.
    pub fn is_empty(&self) -> bool {
        match cmp(&self.start, &self.end) {
            Ordering::Less => false,
            Ordering::Equal => !(self.start_inclusive && self.end_inclusive),
            Ordering::Greater => true,
        }
    }

    /// Whether an ascending interval contains `value`.
    pub fn contains(&self, value: RawValue<'_>) -> bool {
        let from_start = compare_values(value, self.start.as_raw());
        let to_end = compare_values(value, self.end.as_raw());
        (from_start.is_gt() || from_start.is_eq() && self.start_inclusive)
            && (to_end.is_lt() || to_end.is_eq() && self.end_inclusive)
    }

    /// The same values in the opposite scan direction.
    pub fn reversed(mut self) -> Interval {
        self.reverse();
        self
    }

    fn reverse(&mut self) {
        std::mem::swap(&mut self.start, &mut self.end);
        std::mem::swap(&mut self.start_inclusive, &mut self.end_inclusive);
    }
}

/// Compares lower ends: for equal values, `[` is before `(`.
fn cmp_starts(a: &Interval, b: &Interval) -> Ordering {
    cmp(&a.start, &b.start).then(b.start_inclusive.cmp(&a.start_inclusive))
}

/// Compares upper ends: for equal values, `)` is before `]`.
fn cmp_ends(a: &Interval, b: &Interval) -> Ordering {
    cmp(&a.end, &b.end).then(a.end_inclusive.cmp(&b.end_inclusive))
}

impl OrderedIntervalList {
    /// A list of these intervals, which must be disjoint and in scan order.
    pub fn in_scan_order(intervals: Vec<Interval>) -> OrderedIntervalList {
        let list = OrderedIntervalList::of_disjoint(SmallVec::from_vec(intervals));
        debug_assert!(list.is_ascending() || list.clone().reversed().is_ascending());
        list
    }

    fn of_disjoint(intervals: SmallVec<[Interval; 1]>) -> OrderedIntervalList {
        OrderedIntervalList {
            name: None,
            intervals: Intervals::Few(intervals),
        }
    }

    /// Whether no interval is empty and each is after the previous one, without common values: the
    /// precondition and postcondition of the algebra.
    fn is_ascending(&self) -> bool {
        match &self.intervals {
            Intervals::Few(intervals) => {
                let is_before = |a: &Interval, b: &Interval| match cmp(&a.end, &b.start) {
                    Ordering::Less => true,
                    Ordering::Equal => !(a.end_inclusive && b.start_inclusive),
                    Ordering::Greater => false,
                };
                intervals.iter().all(|i| !i.is_empty())
                    && intervals.is_sorted_by(|a, b| is_before(a, b))
            }
            Intervals::Points(points) => !points.descending,
        }
    }

    /// The intervals in scan order; if empty, the scan returns nothing.
    pub fn intervals(&self) -> &[Interval] {
        match &self.intervals {
            Intervals::Few(intervals) => intervals,
            Intervals::Points(points) => points.made.get_or_init(|| {
                let make = |value: &Value| Interval::point(value.clone());
                match points.descending {
                    false => points.values.iter().map(make).collect(),
                    true => points.values.iter().rev().map(make).collect(),
                }
            }),
        }
    }

    /// Like [`OrderedIntervalList::intervals`], but by value; copies only lists of points.
    pub fn into_intervals(self) -> SmallVec<[Interval; 1]> {
        match self.intervals {
            Intervals::Few(intervals) => intervals,
            Intervals::Points(_) => self.intervals().into(),
        }
    }

    /// Number of intervals.
    pub fn len(&self) -> usize {
        match &self.intervals {
            Intervals::Few(intervals) => intervals.len(),
            Intervals::Points(points) => points.values.len(),
        }
    }

    /// Whether it contains no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values in scan order, if the list was built by [`OrderedIntervalList::points`]; cheaper
    /// than the intervals.
    pub fn shared_points(&self) -> Option<impl ExactSizeIterator<Item = &Value>> {
        let Intervals::Points(points) = &self.intervals else {
            return None;
        };
        let (count, descending) = (points.values.len(), points.descending);
        Some((0..count).map(move |at| &points.values[if descending { count - 1 - at } else { at }]))
    }

    /// Whether some interval is a point for which `is_it` returns true.
    pub fn has_point(&self, is_it: impl Fn(&Value) -> bool) -> bool {
        match &self.intervals {
            Intervals::Few(intervals) => intervals.iter().any(|i| is_it(&i.start) && i.is_point()),
            Intervals::Points(points) => points.values.iter().any(is_it),
        }
    }
}

/// Algebra of ascending, disjoint lists.
impl OrderedIntervalList {
    /// A list of one interval; empty if the interval is.
    pub fn of(interval: Interval) -> OrderedIntervalList {
        OrderedIntervalList::of_disjoint(if interval.is_empty() {
            SmallVec::new()
        } else {
            smallvec![interval]
        })
    }

    /// An empty list.
    pub fn nothing() -> OrderedIntervalList {
        OrderedIntervalList::default()
    }

    /// A list with every value.
    pub fn all() -> OrderedIntervalList {
        OrderedIntervalList::of_disjoint(smallvec![Interval::all()])
    }

    /// A list with one value.
    pub fn point(value: Value) -> OrderedIntervalList {
        OrderedIntervalList::of_disjoint(smallvec![Interval::point(value)])
    }

    /// A list with these values, which must be ascending, without duplicates.
    pub fn points(values: Arc<Vec<Value>>) -> OrderedIntervalList {
        debug_assert!(
            values
                .windows(2)
                .all(|pair| cmp(&pair[0], &pair[1]).is_lt())
        );
        if values.len() < 2 {
            return OrderedIntervalList::of_disjoint(
                values.iter().cloned().map(Interval::point).collect(),
            );
        }
        OrderedIntervalList {
            name: None,
            intervals: Intervals::Points(Points {
                values,
                descending: false,
                made: OnceLock::new(),
            }),
        }
    }

    /// The union of `intervals`, which may be in any order. `n log n`; linear if they are sorted.
    pub fn union_of(mut intervals: Vec<Interval>) -> OrderedIntervalList {
        intervals.retain(|i| !i.is_empty());
        intervals.sort_by(cmp_starts);
        let mut merged: SmallVec<[Interval; 1]> = SmallVec::with_capacity(intervals.len());
        for next in intervals {
            match merged.last_mut() {
                Some(last) if touches(last, &next) => {
                    if cmp_ends(last, &next).is_lt() {
                        last.end = next.end;
                        last.end_inclusive = next.end_inclusive;
                    }
                }
                _ => merged.push(next),
            }
        }
        let union = OrderedIntervalList::of_disjoint(merged);
        debug_assert!(union.is_ascending(), "{union:?}");
        union
    }

    /// The union of two lists.
    pub fn union(mut self, other: OrderedIntervalList) -> OrderedIntervalList {
        let name = self.name.take();
        let mut intervals = self.into_intervals().into_vec();
        intervals.extend(other.into_intervals());
        OrderedIntervalList {
            name,
            ..OrderedIntervalList::union_of(intervals)
        }
    }

    /// The intersection of two lists.
    pub fn intersect(&self, other: &OrderedIntervalList) -> OrderedIntervalList {
        debug_assert!(self.is_ascending(), "{self:?}");
        debug_assert!(other.is_ascending(), "{other:?}");
        let mut out = SmallVec::new();
        let (mine, others) = (self.intervals(), other.intervals());
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (mine.get(i), others.get(j)) {
            interrupt::count(1);
            let start = if cmp_starts(a, b).is_ge() { a } else { b };
            let a_ends_first = cmp_ends(a, b).is_le();
            let end = if a_ends_first { a } else { b };
            // Compare before cloning: most pairs of two long lists do not overlap.
            let order = cmp(&start.start, &end.end);
            if order.is_lt() || order.is_eq() && start.start_inclusive && end.end_inclusive {
                out.push(Interval::new(
                    start.start.clone(),
                    start.start_inclusive,
                    end.end.clone(),
                    end.end_inclusive,
                ));
            }
            if a_ends_first {
                i += 1;
            } else {
                j += 1;
            }
        }
        let both = OrderedIntervalList {
            name: self.name.clone(),
            ..OrderedIntervalList::of_disjoint(out)
        };
        debug_assert!(both.is_ascending(), "{both:?}");
        both
    }

    /// The intersection of all lists; `None` if there are no lists. `n log n` in the total number
    /// of intervals: lists are intersected in pairs, then the results in pairs.
    pub fn intersect_all(mut lists: Vec<OrderedIntervalList>) -> Option<OrderedIntervalList> {
        while lists.len() > 1 {
            let pairs = lists.chunks(2).map(|pair| match pair {
                [a, b] => a.intersect(b),
                [a, ..] => a.clone(),
                [] => OrderedIntervalList::all(),
            });
            lists = pairs.collect();
        }
        lists.pop()
    }

    /// The complement of the list.
    pub fn complement(&self) -> OrderedIntervalList {
        debug_assert!(self.is_ascending(), "{self:?}");
        let mut out = SmallVec::with_capacity(self.len() + 1);
        let mut start = Value::MinKey;
        let mut start_inclusive = true;
        for interval in self.intervals() {
            let gap = Interval::new(
                start,
                start_inclusive,
                interval.start.clone(),
                !interval.start_inclusive,
            );
            if !gap.is_empty() {
                out.push(gap);
            }
            start = interval.end.clone();
            start_inclusive = !interval.end_inclusive;
        }
        let rest = Interval::new(start, start_inclusive, Value::MaxKey, true);
        if !rest.is_empty() {
            out.push(rest);
        }
        let others = OrderedIntervalList {
            name: self.name.clone(),
            ..OrderedIntervalList::of_disjoint(out)
        };
        debug_assert!(others.is_ascending(), "{others:?}");
        others
    }

    /// Whether the other list contains all values of this one.
    pub fn is_subset_of(&self, other: &OrderedIntervalList) -> bool {
        debug_assert!(self.is_ascending() && other.is_ascending());
        let mut rest = other.intervals().iter().peekable();
        self.intervals().iter().all(|interval| {
            while rest.next_if(|o| cmp_ends(o, interval).is_lt()).is_some() {}
            rest.peek().is_some_and(|o| cmp_starts(o, interval).is_le())
        })
    }

    /// Whether an ascending list contains `value`.
    pub fn contains(&self, value: RawValue<'_>) -> bool {
        debug_assert!(self.is_ascending(), "{self:?}");
        match &self.intervals {
            Intervals::Few(intervals) => {
                let after =
                    intervals.partition_point(|i| compare_values(i.start.as_raw(), value).is_le());
                after > 0 && intervals[after - 1].contains(value)
            }
            Intervals::Points(points) => {
                let by_value = |point: &Value| compare_values(point.as_raw(), value);
                points.values.binary_search_by(by_value).is_ok()
            }
        }
    }

    /// Sets the field name and converts the ascending list to scan order for a field with this
    /// direction.
    pub(super) fn name_and_turn(&mut self, name: &Arc<FieldPath>, direction: i8) {
        debug_assert!(self.is_ascending(), "{self:?}");
        debug_assert_ne!(direction, 0);
        self.name = Some(name.clone());
        if direction < 0 {
            self.reverse();
        }
    }

    /// The same values in the opposite scan direction.
    pub fn reversed(mut self) -> OrderedIntervalList {
        self.reverse();
        self
    }

    fn reverse(&mut self) {
        match &mut self.intervals {
            Intervals::Few(intervals) => {
                intervals.reverse();
                intervals.iter_mut().for_each(Interval::reverse);
            }
            Intervals::Points(points) => {
                points.descending = !points.descending;
                points.made = OnceLock::new();
            }
        }
    }
}

/// Whether an interval starts within the previous one, or adjacent to its end.
fn touches(before: &Interval, next: &Interval) -> bool {
    match cmp(&next.start, &before.end) {
        Ordering::Less => true,
        Ordering::Equal => next.start_inclusive || before.end_inclusive,
        Ordering::Greater => false,
    }
}

/// Operations that do not depend on the direction.
impl OrderedIntervalList {
    /// Sets the field name of the list.
    pub fn named(mut self, name: &Arc<FieldPath>) -> OrderedIntervalList {
        self.name = Some(name.clone());
        self
    }

    /// Whether the list is for the field `path`.
    pub fn is_over(&self, path: &str) -> bool {
        self.name.as_ref().is_some_and(|name| name.dotted() == path)
    }

    /// A list for the same field with only this interval, which must not be empty.
    pub fn with(&self, interval: Interval) -> OrderedIntervalList {
        debug_assert!(!interval.is_empty() || !interval.clone().reversed().is_empty());
        OrderedIntervalList {
            name: self.name.clone(),
            intervals: Intervals::Few(smallvec![interval]),
        }
    }

    fn only(&self) -> Option<&Interval> {
        match &self.intervals {
            Intervals::Few(intervals) => match intervals.as_slice() {
                [only] => Some(only),
                _ => None,
            },
            Intervals::Points(_) => None,
        }
    }

    /// Whether it contains exactly one value.
    pub fn is_point(&self) -> bool {
        self.only().is_some_and(Interval::is_point)
    }

    /// Whether all its intervals are points, at least one.
    pub fn is_union_of_points(&self) -> bool {
        match &self.intervals {
            Intervals::Few(all) => !all.is_empty() && all.iter().all(Interval::is_point),
            Intervals::Points(_) => true,
        }
    }

    /// Whether it contains every value.
    pub fn is_full(&self) -> bool {
        self.only().is_some_and(Interval::is_full)
    }
}

impl IndexBounds {
    /// Whether the bounds are empty, so that the scan returns nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            IndexBounds::Fields(fields) => fields.iter().any(OrderedIntervalList::is_empty),
            IndexBounds::KeyRange { .. } => false,
        }
    }

    /// The same keys in the opposite scan direction.
    pub fn reversed(self) -> IndexBounds {
        match self {
            IndexBounds::Fields(fields) => IndexBounds::Fields(
                fields
                    .into_iter()
                    .map(OrderedIntervalList::reversed)
                    .collect(),
            ),
            IndexBounds::KeyRange {
                start,
                end,
                start_inclusive,
                end_inclusive,
            } => IndexBounds::KeyRange {
                start: end,
                end: start,
                start_inclusive: end_inclusive,
                end_inclusive: start_inclusive,
            },
        }
    }
}

/// Maximum length of a printed string, in bytes; longer ones are truncated, so that an explain of
/// huge operands stays readable.
const STRING_BYTES_MAX: usize = 160;
const STRING_BYTES_SHOWN: usize = 70;

/// An end of an interval for printing, and whether its strings are sort keys.
struct End<'a>(&'a Value, bool);

impl fmt::Display for End<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(key) if self.1 => {
                let mut shown = text_of_sort_key(key);
                if shown.len() > STRING_BYTES_MAX {
                    shown.truncate(STRING_BYTES_SHOWN);
                    shown.push_str("...");
                }
                write!(f, "CollationKey({shown})")
            }
            Value::Document(_) | Value::Array(_) if self.1 => {
                fmt::Display::fmt(&shown_key_value(self.0.as_raw()), f)
            }
            Value::String(s) if s.len() > STRING_BYTES_MAX => {
                let mut cut = STRING_BYTES_SHOWN;
                while !s.is_char_boundary(cut) {
                    cut -= 1;
                }
                let shown = RawValue::String(&s[..cut]).to_string();
                write!(f, "{}...\"", shown.strip_suffix('"').unwrap_or(&shown))
            }
            // Bounds print strings verbatim: quotes and backslashes are not escaped.
            Value::String(s) => write!(f, "\"{s}\""),
            Value::Regex { pattern, options } => write!(f, "/{pattern}/{options}"),
            other => fmt::Display::fmt(other, f),
        }
    }
}

/// An interval as explain prints it: `(10, inf.0]`.
pub struct Shown<'a> {
    /// The interval to print.
    pub interval: &'a Interval,
    /// Whether its strings are sort keys: `[CollationKey(0x2a), {})`.
    pub sort_keys: bool,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.interval.start_inclusive {
            '['
        } else {
            '('
        };
        let close = if self.interval.end_inclusive {
            ']'
        } else {
            ')'
        };
        let start = End(&self.interval.start, self.sort_keys);
        let end = End(&self.interval.end, self.sort_keys);
        write!(f, "{open}{start}, {end}{close}")
    }
}

impl fmt::Display for Interval {
    /// MongoDB's notation: `(10, inf.0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sort_keys = false;
        let interval = self;
        Shown {
            interval,
            sort_keys,
        }
        .fmt(f)
    }
}

impl OrderedIntervalList {
    /// Writes `a: [1, 1], (5, 9)`, or `a: nothing` if empty. `sort_keys` is as in [`Shown`].
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, sort_keys: bool) -> fmt::Result {
        let name = self.name.as_ref().map_or("", |path| path.dotted());
        write!(f, "{name}: ")?;
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (i, interval) in self.intervals().iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(
                f,
                "{}",
                Shown {
                    interval,
                    sort_keys
                }
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for OrderedIntervalList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}
