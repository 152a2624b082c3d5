//! Collations: how text is compared where a user asks for the rules of a
//! language instead of the order of bytes.
//!
//! ```text
//!   {locale: "fr", strength: 2} ──Collation::parse──> all fields, defaults filled in
//!                                      │
//!                                  Collator ─ compare("cote", "Côte")
//!                                      └───── sort key: bytes, memcmp == compare
//! ```
//!
//! Nothing but the comparison of strings (and symbols) changes: the order of
//! types, numbers, names of fields, code and regular expressions stay as they
//! are. Strings inside documents and arrays are compared by the collation too.
//!
//! An index with a collation holds sort keys in place of strings. A sort key is
//! kept as *text* ([`Collator::key_text`]): each byte is the character of that
//! number, which keeps the order and makes it a string like any other. So
//! bounds, keys and seeks know nothing of collations: they see a value whose
//! strings were replaced ([`Collator::key_value`]).
//!
//! Invariant: for any two values, comparing them with a collator equals
//! comparing their key values without one.
//!
//! No collator (`None`) is the simple collation, comparison by bytes, and costs
//! a test of a pointer.

mod collator;
mod locale;
mod spec;

use std::sync::Arc;

pub use collator::{Collator, is_collatable, shown_key_value, text_of_sort_key};
pub use spec::{Alternate, CaseFirst, Collation, MaxVariable};

use crate::error_code::Result;
use crate::raw::RawDoc;

/// Which data sort keys are made from. Keys of one are nothing to another: an
/// index remembers it.
pub const SORT_KEY_DATA: &str = "icu4x 2.4.0";

/// What is said of a collation where one can be said: of an operation, an
/// index or a new collection.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum CollationChoice {
    /// Nothing: the collection's own applies.
    #[default]
    Unsaid,
    /// `{locale: "simple"}`: by bytes, whatever the collection says.
    Simple,
    /// This one.
    Of(Arc<Collator>),
}

impl CollationChoice {
    /// Reads a collation document; an empty one says nothing.
    ///
    /// Errors: 40414 without `locale`, 40415 for an unknown field,
    /// TypeMismatch, BadValue for values that cannot be,
    /// IncompatibleCollationVersion.
    pub fn parse(spec: RawDoc<'_>) -> Result<CollationChoice> {
        if spec.is_empty() {
            return Ok(CollationChoice::Unsaid);
        }
        Ok(match Collation::parse(spec)? {
            None => CollationChoice::Simple,
            Some(collation) => CollationChoice::Of(Arc::new(Collator::new(collation)?)),
        })
    }

    /// The collator that applies, where `default` does if nothing is said.
    pub fn resolve(&self, default: Option<&Arc<Collator>>) -> Option<Arc<Collator>> {
        match self {
            CollationChoice::Unsaid => default.cloned(),
            CollationChoice::Simple => None,
            CollationChoice::Of(collator) => Some(collator.clone()),
        }
    }

    /// The collator named here; `None` for the simple collation and where nothing is said.
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

// Collators are shared by threads: an operation's cursor may move on in another.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Collator>();
};
