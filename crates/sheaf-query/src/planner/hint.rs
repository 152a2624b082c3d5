//! Resolves the hint of a query.

use std::sync::Arc;

use sheaf_bson::{Error, compare_docs, json};

use super::index_entry::{IndexEntry, WildcardView};
use crate::canonical::Hint;

/// A hint, resolved against the indexes of the collection.
#[derive(Debug, Clone)]
pub(super) enum Hinted {
    /// The query has no hint.
    No,
    /// Only this index.
    Index(Arc<IndexEntry>),
    /// A collection scan in this direction.
    Natural(i8),
}

/// Resolves a hint. Hidden indexes cannot be hinted.
///
/// Errors: BadValue if the hint matches no index or more than one.
pub(super) fn resolve(hint: Option<&Hint>, indexes: &[Arc<IndexEntry>]) -> Result<Hinted, Error> {
    // The views of a wildcard index share its name and ident.
    let is_whole = |index: &IndexEntry| {
        index
            .wildcard()
            .is_none_or(|wildcard| wildcard.view == WildcardView::Whole)
    };
    let mut visible = indexes
        .iter()
        .filter(|index| !index.hidden && is_whole(index));
    match hint {
        None => Ok(Hinted::No),
        Some(Hint::Natural(direction)) => Ok(Hinted::Natural(*direction)),
        Some(Hint::Name(name)) => match visible.find(|index| index.name == *name) {
            Some(index) => Ok(Hinted::Index(index.clone())),
            None => Err(unknown(name)),
        },
        Some(Hint::KeyPattern(pattern)) => {
            let mut matching = visible
                .filter(|index| compare_docs(index.key_pattern.as_raw(), pattern.as_raw()).is_eq());
            match (matching.next(), matching.next()) {
                (None, _) => Err(unknown(&json::shell_doc(pattern.as_raw()))),
                (Some(index), None) => Ok(Hinted::Index(index.clone())),
                (Some(_), Some(_)) => Err(Error::bad_value(format!(
                    "hint {} matched multiple indexes, must hint by index name",
                    json::shell_doc(pattern.as_raw())
                ))),
            }
        }
    }
}

fn unknown(hint: &str) -> Error {
    Error::bad_value(format!(
        "error processing query: hint provided does not correspond to an existing index: {hint}"
    ))
}
