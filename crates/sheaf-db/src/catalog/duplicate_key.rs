//! The duplicate key error, E11000.

use sheaf_bson::json::shell_doc;
use sheaf_bson::{Collator, DocBuf, DocBuilder, Error, ErrorCode};

use crate::catalog::namespace::Namespace;
use crate::index::Index;
use crate::index::key_set::Key;

/// Longer keys are truncated in the message.
const SHOWN_BYTES_MAX: usize = 1024;
/// Longer keys are omitted from `keyValue`: a reply with a thousand errors must still fit.
const KEY_VALUE_BYTES_MAX: usize = 16 << 10;

/// `E11000 duplicate key error collection: db.c index: a_1 dup key: { a: 1 }`, with `keyPattern`
/// and `keyValue` for the driver.
pub fn duplicate_key(ns: &Namespace, index: &Index, key: Key<'_>) -> Error {
    DuplicateKey {
        ns,
        index: index.name(),
        key_pattern: &index.spec().key,
        collator: index.spec().collator().map(|collator| &**collator),
        values: index.encoder().decode_shown(key.key, key.type_bits).ok(),
    }
    .error()
}

/// The parts of a duplicate key error.
pub(crate) struct DuplicateKey<'a> {
    pub(crate) ns: &'a Namespace,
    /// Name of the index.
    pub(crate) index: &'a str,
    pub(crate) key_pattern: &'a DocBuf,
    pub(crate) collator: Option<&'a Collator>,
    /// Values by field name, sort keys in readable form; `None` if the key cannot be decoded.
    pub(crate) values: Option<DocBuf>,
}

impl DuplicateKey<'_> {
    pub(crate) fn error(self) -> Error {
        let mut extra = DocBuilder::new();
        extra.append_bson("keyPattern", self.key_pattern);
        let mut shown = match &self.values {
            Some(values) => {
                if values.len_bytes() <= KEY_VALUE_BYTES_MAX {
                    extra.append_bson("keyValue", values);
                }
                shell_doc(values.as_raw())
            }
            None => String::from("{}"),
        };
        if shown.len() > SHOWN_BYTES_MAX {
            let cut = (0..=SHOWN_BYTES_MAX).rev();
            let end = cut.into_iter().find(|&at| shown.is_char_boundary(at));
            shown.truncate(end.unwrap_or(0));
            shown.push_str("...");
        }
        // With a collation, keys may be equal only under it: name it, and show sort keys in place
        // of text.
        let collation = match self.collator {
            Some(collator) => format!(" collation: {}", collator.collation().to_doc()),
            None => String::new(),
        };
        Error::new(
            ErrorCode::DUPLICATE_KEY,
            format!(
                "E11000 duplicate key error collection: {} index: {}{collation} dup key: {shown}",
                self.ns, self.index
            ),
        )
        .with_extra(extra.finish())
    }
}
