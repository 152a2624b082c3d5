//! Splits events larger than the maximum document size into fragments, on request.
//!
//! ```text
//!   {_id: token, operationType, ns, .., fullDocument: 16 MB, fullDocumentBeforeChange: 16 MB}
//!     ──> {_id: token + 1, splitEvent: {fragment: 1, of: 2}, operationType, ns, .., fullDocument}
//!         {_id: token + 2, splitEvent: {fragment: 2, of: 2}, fullDocumentBeforeChange}
//! ```
//!
//! Splits only between top-level fields, smallest first, so that the first fragment carries as many
//! fields as possible. See the manual, "$changeStreamSplitLargeEvent".

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, Result};

use super::token::ResumeToken;

/// Maximum size of an event or fragment, in bytes: the largest document plus room for the event's
/// own fields.
const EVENT_BYTES_MAX: usize = (16 << 20) + (16 << 10);

/// Maximum size of `_id` and `splitEvent`, in bytes.
const HEAD_BYTES: usize = 256;

/// Whether an event exceeds the maximum size.
pub(super) fn is_too_large(event: RawDoc<'_>) -> bool {
    event.len_bytes() > EVENT_BYTES_MAX
}

/// The error for a too large event that is not split.
pub(super) fn too_large(bytes: usize) -> Error {
    Error::new(
        ErrorCode::BSON_OBJECT_TOO_LARGE,
        format!(
            "an event of {bytes} bytes exceeds the limit of {EVENT_BYTES_MAX} bytes; add \
             $changeStreamSplitLargeEvent, or project fields out"
        ),
    )
}

/// Splits an event into fragments, each with its token.
/// Errors: `BSONObjectTooLarge` when one field is too large for a fragment.
pub(super) fn split(event: RawDoc<'_>, token: ResumeToken) -> Result<Vec<(ResumeToken, DocBuf)>> {
    let room = EVENT_BYTES_MAX - HEAD_BYTES;
    let mut fields: Vec<RawElement<'_>> = event.iter().filter(|e| e.key() != "_id").collect();
    fields.sort_by_key(|field| field.as_bytes().len());
    let mut fragments: Vec<Vec<RawElement<'_>>> = vec![Vec::new()];
    let mut bytes = 0;
    for field in fields {
        let len = field.as_bytes().len();
        if len > room {
            return Err(too_large(len));
        }
        if bytes + len > room {
            fragments.push(Vec::new());
            bytes = 0;
        }
        bytes += len;
        if let Some(fragment) = fragments.last_mut() {
            fragment.push(field);
        }
    }
    let of = fragments.len() as i32;
    let numbered = (1..).zip(fragments);
    Ok(numbered
        .map(|(fragment, fields)| {
            let token = ResumeToken { fragment, ..token };
            let mut out = DocBuilder::new();
            out.append_bson("_id", &token.to_doc());
            out.begin_document("splitEvent");
            out.append("fragment", fragment as i32);
            out.append("of", of);
            out.end();
            for field in fields {
                out.append_raw_element(field);
            }
            (token, out.finish())
        })
        .collect())
}
