//! Sort patterns, and the sort key of a document.
//!
//! Arrays sort by their lowest element ascending and by their highest
//! descending; an empty array sorts as undefined (below null), a missing field
//! as null. Several sort fields must not run along two different arrays
//! (BadValue, "cannot sort with keys that are parallel arrays").

use std::sync::Arc;

use sheaf_bson::path::FieldPath;

/// `{a: 1, "b.c": -1}`, parsed.
#[derive(Debug, Clone)]
pub struct SortPattern {
    /// In order; never empty.
    pub parts: Vec<SortPart>,
}

/// One field of a sort pattern.
#[derive(Debug, Clone)]
pub struct SortPart {
    /// The dotted path.
    pub path: Arc<FieldPath>,
    /// 1 rather than -1.
    pub ascending: bool,
}
