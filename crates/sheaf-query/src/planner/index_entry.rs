//! What the planner knows of an index: its shape and options, never its data.

use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_bson::path::FieldPath;

use crate::matcher::MatchExpression;

/// For each field of the key pattern, the positions within its dotted path
/// that are arrays in some document: for `a.b`, `{0}` says `a` is one, `{1}`
/// says `a.b` is. Sorted; empty for a field that never met an array.
pub type MultikeyPaths = Vec<Vec<usize>>;

/// One index as planning sees it.
#[derive(Debug, Clone)]
pub struct IndexEntry {
    /// Unique within the collection.
    pub name: String,
    /// Opaque to the planner; the executor finds the index by it.
    pub ident: u64,
    /// `{a: 1, "b.c": -1}` as the user gave it.
    pub key_pattern: DocBuf,
    /// The pattern's fields in order, parsed once.
    pub fields: Vec<IndexField>,
    /// Which access method.
    pub kind: IndexKind,
    /// Some document gave several keys.
    pub multikey: bool,
    /// Same length as `fields`.
    pub multikey_paths: MultikeyPaths,
    /// At most one document a key.
    pub unique: bool,
    /// Documents without any of the fields are absent.
    pub sparse: bool,
    /// Only documents that match are present.
    pub partial_filter: Option<Arc<MatchExpression>>,
    /// The partial filter as the user gave it.
    pub partial_filter_spec: Option<DocBuf>,
    /// Kept up to date, used by no plan (not even by a hint).
    pub hidden: bool,
    /// Index version, 2.
    pub version: i32,
}

/// One field of an index's key pattern.
#[derive(Debug, Clone)]
pub struct IndexField {
    /// The dotted path.
    pub path: Arc<FieldPath>,
    /// 1 ascending, -1 descending.
    pub direction: i8,
}

/// Access methods. Others (hashed, wildcard, text, 2dsphere) come here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexKind {
    /// Ordered keys, with or without arrays.
    Btree,
}
