//! Collations: string comparison by the rules of a language instead of byte order.
//!
//! ```text
//!   {locale: "fr", strength: 2} ──Collation::parse──> all fields, defaults filled in
//!                                      │
//!                                  Collator ─ compare("cote", "Côte")
//!                                      └───── sort key: bytes, memcmp == compare
//! ```
//!
//! A collation changes only the comparison of strings and symbols, including those inside documents
//! and arrays. The order of types, numbers, field names, code and regular expressions is unchanged.
//!
//! An index with a collation holds sort keys in place of strings. A sort key is stored as *text*
//! ([`Collator::key_text`]): each byte becomes the character with that code point, which preserves
//! the order and makes the key an ordinary string. Bounds, keys and seeks are therefore independent
//! of collations: they see a value whose strings were replaced ([`Collator::key_value`]).
//!
//! Invariant: for any two values, comparing them with a collator equals comparing their key values
//! without one.
//!
//! No collator (`None`) is the simple collation, comparison by bytes. It costs one null check.

mod collator;
mod locale;
mod spec;

use std::sync::Arc;

pub use collator::{Collator, is_collatable, shown_key_value, text_of_sort_key};
pub use spec::{Alternate, CaseFirst, Collation, MaxVariable};

use crate::error_code::Result;
use crate::raw::RawDoc;

/// Version of the data that sort keys are built from. Keys from different versions are not
/// comparable, so an index records its version.
pub const SORT_KEY_DATA: &str = "icu4x 2.4.0";

/// The `collation` argument of an operation, an index or a new collection.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum CollationChoice {
    /// Absent: the collection's default applies.
    #[default]
    Unsaid,
    /// `{locale: "simple"}`: comparison by bytes, regardless of the collection's default.
    Simple,
    /// This collation.
    Of(Arc<Collator>),
}

impl CollationChoice {
    /// Parses a collation document; an empty document is `Unsaid`.
    ///
    /// Errors: 40414 without `locale`, 40415 for an unknown field, TypeMismatch, BadValue for an
    /// invalid value, IncompatibleCollationVersion.
    pub fn parse(spec: RawDoc<'_>) -> Result<CollationChoice> {
        if spec.is_empty() {
            return Ok(CollationChoice::Unsaid);
        }
        Ok(match Collation::parse(spec)? {
            None => CollationChoice::Simple,
            Some(collation) => CollationChoice::Of(Arc::new(Collator::new(collation)?)),
        })
    }

    /// The collator to use; `default` applies if the choice is `Unsaid`.
    pub fn resolve(&self, default: Option<&Arc<Collator>>) -> Option<Arc<Collator>> {
        match self {
            CollationChoice::Unsaid => default.cloned(),
            CollationChoice::Simple => None,
            CollationChoice::Of(collator) => Some(collator.clone()),
        }
    }

    /// The collator named here; `None` for the simple collation and for `Unsaid`.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        match self {
            CollationChoice::Of(collator) => Some(collator),
            CollationChoice::Unsaid | CollationChoice::Simple => None,
        }
    }
}

impl From<Option<Arc<Collator>>> for CollationChoice {
    /// `None` is the simple collation.
    fn from(collator: Option<Arc<Collator>>) -> CollationChoice {
        collator.map_or(CollationChoice::Simple, CollationChoice::Of)
    }
}

// Threads share collators: a different thread may resume an operation's cursor.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Collator>();
};
