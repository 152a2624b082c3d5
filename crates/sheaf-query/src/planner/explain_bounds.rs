//! Bounds as explain shows them.
//!
//! ```text
//!   {e: ["[42, 42]"], s: ["[MinKey, MaxKey]"], r: ["(10, inf.0]"]}
//!   {startKey: {a: 1}, startKeyInclusive: true, endKey: {a: 9}, endKeyInclusive: false}
//! ```

use sheaf_bson::{DocBuf, DocBuilder};

use super::bounds::IndexBounds;
use super::index_entry::IndexEntry;

/// How many bytes of intervals are written out for one scan; an explain must
/// fit a reply.
const BYTES_MAX: usize = 1 << 20;

/// `indexBounds` of a scan. What is too long is cut, and says by how much.
pub fn to_doc(bounds: &IndexBounds, index: &IndexEntry) -> DocBuf {
    let mut out = DocBuilder::new();
    match bounds {
        IndexBounds::Fields(lists) => {
            for (list, field) in lists.iter().zip(&index.fields) {
                out.begin_array(field.path.dotted());
                for (shown, interval) in list.intervals.iter().enumerate() {
                    if out.current_len() > BYTES_MAX {
                        let rest = list.intervals.len() - shown;
                        out.push(format!("... {rest} more").as_str());
                        break;
                    }
                    out.push(interval.to_string().as_str());
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
                    out.append(name, key.as_raw());
                    out.append(inclusive_name, *inclusive);
                }
            }
        }
    }
    out.finish()
}
