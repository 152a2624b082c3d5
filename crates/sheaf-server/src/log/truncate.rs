//! Attributes cut to their limit, in a line that stays JSON.
//!
//! An attribute whose text would exceed the limit ends before the element that
//! goes past it. The line then reports what was left out:
//!
//! ```text
//! "attr":{"command":{"find":"c","filter":{"a":{"$in":[0,1,2]}}}},
//! "truncated":{"command":{"truncated":{"filter":{"truncated":{"a":{"truncated":
//!     {"$in":{"truncated":{"3":{"type":"int","size":4}},"omitted":996}}}}}},"omitted":1}},
//! "size":{"command":21692}
//! ```
//!
//! where `omitted` counts the elements after the one that was cut, and `size` is that of the whole
//! attribute in BSON.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue, doc, json};

/// What is missing from a line.
pub(super) struct Truncated {
    /// By attribute: where it was cut.
    pub what: DocBuf,
    /// By attribute: its bytes in BSON.
    pub sizes: DocBuf,
}

/// A value of at most this many bytes is written without a check if eight times as many are left:
/// its text is not longer than that.
const SURELY_SHORT_BYTES: usize = 256;

/// Writes the attributes as a JSON object, none longer than `max` bytes.
pub(super) fn write_attributes(
    out: &mut String,
    attr: RawDoc<'_>,
    max: usize,
) -> Option<Truncated> {
    let mut what = DocBuilder::new();
    let mut sizes = DocBuilder::new();
    let mut any = false;
    out.push('{');
    for (i, element) in attr.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        key(out, element.key());
        let limit = out.len().saturating_add(max);
        if let Some(cut) = write_value(out, element, limit) {
            any = true;
            what.append_bson(element.key(), &cut);
            sizes.append(element.key(), element.raw_value_bytes().len() as i64);
        }
    }
    out.push('}');
    any.then(|| Truncated {
        what: what.finish(),
        sizes: sizes.finish(),
    })
}

/// Writes a value, up to the length `limit` of `out`. Returns where it was cut;
/// a value that is cut away whole leaves `null`.
fn write_value(out: &mut String, element: RawElement<'_>, limit: usize) -> Option<DocBuf> {
    let size = element.raw_value_bytes().len();
    if size <= SURELY_SHORT_BYTES && out.len() + 8 * SURELY_SHORT_BYTES < limit {
        json::write_relaxed(out, element.value());
        return None;
    }
    match element.value() {
        RawValue::Document(inner) => write_elements(out, inner, true, limit),
        RawValue::Array(inner) => write_elements(out, inner.as_doc(), false, limit),
        scalar => {
            let start = out.len();
            // The text of a scalar is never shorter than its bytes, except for a few bytes of
            // lengths and types.
            if start.saturating_add(size) <= limit.saturating_add(64) {
                json::write_relaxed(out, scalar);
            }
            if out.len() > start && out.len() <= limit {
                return None;
            }
            out.truncate(start);
            out.push_str("null");
            Some(doc! {
                "type": scalar.type_name(),
                "size": size as i64,
            })
        }
    }
}

fn write_elements(
    out: &mut String,
    inner: RawDoc<'_>,
    named: bool,
    limit: usize,
) -> Option<DocBuf> {
    out.push(if named { '{' } else { '[' });
    let mut elements = inner.iter().enumerate();
    let mut cut_at = None;
    for (i, element) in elements.by_ref() {
        let before = out.len();
        if i > 0 {
            out.push(',');
        }
        if named {
            key(out, element.key());
        }
        let value = out.len();
        if let Some(cut) = write_value(out, element, limit) {
            if &out[value..] == "null" {
                out.truncate(before);
            }
            cut_at = Some((element, cut));
            break;
        }
    }
    out.push(if named { '}' } else { ']' });
    let (element, cut) = cut_at?;
    let omitted = elements.count() as i64;
    let mut truncated = DocBuilder::new();
    truncated.begin_document("truncated");
    truncated.append_bson(element.key(), &cut);
    truncated.end();
    if omitted > 0 {
        truncated.append("omitted", omitted);
    }
    Some(truncated.finish())
}

fn key(out: &mut String, name: &str) {
    json::write_relaxed(out, RawValue::String(name));
    out.push(':');
}
