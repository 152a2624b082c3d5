//! Index bounds in explain output.
//!
//! ```text
//!   {e: ["[42, 42]"], s: ["[MinKey, MaxKey]"], r: ["(10, inf.0]"]}
//!   {e: ["[CollationKey(0x2a01), CollationKey(0x2a01)]"]}
//!   {startKey: {a: 1}, startKeyInclusive: true, endKey: {a: 9}, endKeyInclusive: false}
//! ```

use sheaf_bson::collation::shown_key_value;
use sheaf_bson::{DocBuf, DocBuilder};

use super::bounds::{IndexBounds, OrderedIntervalList, Shown};
use super::collation::has_sort_keys;
use super::index_entry::IndexEntry;

/// Maximum size of the intervals of one scan, in bytes; an explain must fit into a reply.
const BYTES_MAX: usize = 1 << 20;

/// `indexBounds` of a COUNT_SCAN: the two ends of its one range, as documents. Bounds that are not
/// one range are shown as those of other scans.
///
/// ```text
///   {a: ["[1, 1]"], b: ["(5, inf.0]"], c: ["[MinKey, MaxKey]"]}
///     startKey: {a: 1, b: 5, c: MaxKey}, startKeyInclusive: false
///     endKey: {a: 1, b: inf, c: MaxKey}, endKeyInclusive: true
/// ```
pub fn one_range(bounds: &IndexBounds, index: &IndexEntry) -> DocBuf {
    let IndexBounds::Fields(lists) = bounds else {
        return to_doc(bounds, index);
    };
    let points = lists.iter().take_while(|list| list.is_point()).count();
    let ranges = &lists[points..];
    let is_one_range = !has_sort_keys_in(index)
        && ranges.first().is_none_or(|list| list.len() == 1)
        && ranges.iter().skip(1).all(OrderedIntervalList::is_full);
    if !is_one_range {
        return to_doc(bounds, index);
    }
    let inclusive = ranges.first().and_then(|list| list.intervals().first());
    let inclusive = inclusive.map_or((true, true), |i| (i.start_inclusive, i.end_inclusive));
    let (mut start, mut end) = (DocBuilder::new(), DocBuilder::new());
    for (at, (list, field)) in lists.iter().zip(&index.fields).enumerate() {
        let Some(interval) = list.intervals().first() else {
            return to_doc(bounds, index);
        };
        let name = field.path.dotted();
        // After an exclusive end, all keys with that value are excluded, or none.
        let (from, to) = match at > points {
            true => (
                if inclusive.0 {
                    &interval.start
                } else {
                    &interval.end
                },
                if inclusive.1 {
                    &interval.end
                } else {
                    &interval.start
                },
            ),
            false => (&interval.start, &interval.end),
        };
        start.append_value(name, from);
        end.append_value(name, to);
    }
    let mut out = DocBuilder::new();
    out.append_bson("startKey", &start.finish());
    out.append("startKeyInclusive", inclusive.0);
    out.append_bson("endKey", &end.finish());
    out.append("endKeyInclusive", inclusive.1);
    out.finish()
}

fn has_sort_keys_in(index: &IndexEntry) -> bool {
    (0..index.fields.len()).any(|at| has_sort_keys(index, at))
}

/// `indexBounds` of a scan. Output over the size limit is truncated, with the number of omitted
/// intervals.
pub fn to_doc(bounds: &IndexBounds, index: &IndexEntry) -> DocBuf {
    let mut out = DocBuilder::new();
    match bounds {
        IndexBounds::Fields(lists) => {
            for (at, (list, field)) in lists.iter().zip(&index.fields).enumerate() {
                out.begin_array(field.path.dotted());
                for (shown, interval) in list.intervals().iter().enumerate() {
                    if out.current_len() > BYTES_MAX {
                        let rest = list.len() - shown;
                        out.push(format!("... {rest} more").as_str());
                        break;
                    }
                    let sort_keys = has_sort_keys(index, at);
                    let shown = Shown {
                        interval,
                        sort_keys,
                    };
                    out.push(shown.to_string().as_str());
                }
                out.end();
            }
        }
        IndexBounds::KeyRange {
            start,
            end,
            start_inclusive,
            end_inclusive,
        } => {
            for (name, inclusive_name, key, inclusive) in [
                ("startKey", "startKeyInclusive", start, start_inclusive),
                ("endKey", "endKeyInclusive", end, end_inclusive),
            ] {
                if let Some(key) = key {
                    match index.collator.is_some() {
                        true => out.append(name, &shown_key_value(key.as_raw().into())),
                        false => out.append(name, key.as_raw()),
                    };
                    out.append(inclusive_name, *inclusive);
                }
            }
        }
    }
    out.finish()
}
