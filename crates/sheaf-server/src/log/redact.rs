//! Values that clients sent, replaced before they reach the log (`redactClientLogData`).
//!
//! ```text
//!   {find: "c", filter: {name: "Ann", tags: ["x"]}}
//!   {find: "###", filter: {name: "###", tags: ["###"]}}
//! ```

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

/// Replaces a value.
pub(super) const REDACTED: &str = "###";

/// The document with the same fields, and without its values.
pub(super) fn document(doc: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    append(&mut out, doc);
    out.finish()
}

fn append(out: &mut DocBuilder, doc: RawDoc<'_>) {
    for element in doc.iter() {
        match element.value() {
            RawValue::Document(inner) => append(out.begin_document(element.key()), inner),
            RawValue::Array(inner) => push_all(out.begin_array(element.key()), inner.as_doc()),
            _ => {
                out.append(element.key(), REDACTED);
                continue;
            }
        }
        out.end();
    }
}

fn push_all(out: &mut DocBuilder, array: RawDoc<'_>) {
    for element in array.iter() {
        match element.value() {
            RawValue::Document(inner) => append(out.push_begin_document(), inner),
            RawValue::Array(inner) => push_all(out.push_begin_array(), inner.as_doc()),
            _ => {
                out.push(REDACTED);
                continue;
            }
        }
        out.end();
    }
}
