//! Index bounds in explain output.
//!
//! ```text
//!   {e: ["[42, 42]"], s: ["[MinKey, MaxKey]"], r: ["(10, inf.0]"]}
//!   {e: ["[CollationKey(0x2a01), CollationKey(0x2a01)]"]}
//!   {startKey: {a: 1}, startKeyInclusive: true, endKey: {a: 9}, endKeyInclusive: false}
//! ```

use sheaf_bson::collation::shown_key_value;
use sheaf_bson::{DocBuf, DocBuilder};

use super::bounds::{IndexBounds, Shown};
use super::collation::has_sort_keys;
use super::index_entry::IndexEntry;

/// Maximum size of the intervals of one scan, in bytes; an explain must fit into a reply.
const BYTES_MAX: usize = 1 << 20;

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
