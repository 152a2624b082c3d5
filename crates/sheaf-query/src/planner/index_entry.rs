//! What the planner knows of an index: its shape and options, never its data.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, DocBuf, Error, RawDoc, RawValue};

use super::wildcard::{PATH_FIELD, WildcardPaths};
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
    /// Its keys are where the records stand: there is nothing to fetch, and no key
    /// beside the document that could cover anything.
    pub clustered: bool,
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
    /// Keys hold sort keys of this collation in place of text; `None`: text.
    pub collator: Option<Arc<Collator>>,
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

/// Access methods. Others (text, 2dsphere) come here.
#[derive(Debug, Clone)]
pub enum IndexKind {
    /// Ordered keys, with or without arrays.
    Btree,
    /// One field's values are hashes: equality only.
    Hashed {
        /// Which of the fields.
        field: usize,
    },
    /// One key for every path below a prefix: the field `$_path`, and right
    /// behind it the value found there.
    Wildcard(WildcardField),
}

/// The wildcard part of an index.
#[derive(Debug, Clone)]
pub struct WildcardField {
    /// The position of `$_path`; the value's is the next.
    pub path_field: usize,
    /// Which paths have keys.
    pub paths: Arc<WildcardPaths>,
    /// What the entry stands for.
    pub view: WildcardView,
}

/// An index with a wildcard is planned with as one index for each path that the
/// query names (see [`super::wildcard`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WildcardView {
    /// The index as the catalog has it: hints name it, no plan uses it.
    Whole,
    /// The keys of one path.
    Path,
    /// All keys, for predicates on the fields before the wildcard.
    Prefix,
}

/// What keys of a pattern hold, field by field, and the access method. The
/// wildcard of `{a: 1, "$**": 1}` is two fields, `$_path` and the value.
///
/// Errors: BadValue for a path or a `wildcardProjection` that cannot be.
pub fn fields_of(
    key: RawDoc<'_>,
    wildcard_projection: Option<RawDoc<'_>>,
) -> Result<(Vec<IndexField>, IndexKind), Error> {
    let mut fields = Vec::new();
    let mut kind = IndexKind::Btree;
    for element in key {
        let (path, value) = (element.key(), element.value());
        let descending = value.as_f64().is_some_and(|d| d < 0.0);
        let direction = if descending { -1 } else { 1 };
        let below = match path {
            "$**" => Some(""),
            path => path.strip_suffix(".$**"),
        };
        if let Some(below) = below {
            let paths = match (below, wildcard_projection) {
                ("", Some(projection)) => WildcardPaths::projected(projection)?,
                ("", None) => WildcardPaths::all(),
                (below, _) => WildcardPaths::below(below),
            };
            kind = IndexKind::Wildcard(WildcardField {
                path_field: fields.len(),
                paths: Arc::new(paths),
                view: WildcardView::Whole,
            });
            fields.push(IndexField {
                path: Arc::new(parsed(PATH_FIELD)?),
                direction: 1,
            });
        } else if matches!(value, RawValue::String("hashed")) {
            kind = IndexKind::Hashed {
                field: fields.len(),
            };
        }
        fields.push(IndexField {
            path: Arc::new(parsed(path)?),
            direction,
        });
    }
    Ok((fields, kind))
}

fn parsed(path: &str) -> Result<FieldPath, Error> {
    FieldPath::parse(path).map_err(|e| Error::bad_value(e.message()))
}

impl IndexEntry {
    /// The wildcard part, if there is one.
    pub fn wildcard(&self) -> Option<&WildcardField> {
        match &self.kind {
            IndexKind::Wildcard(wildcard) => Some(wildcard),
            _ => None,
        }
    }

    /// Whether keys hold this field's values (rather than hashes of them, or paths).
    pub fn holds_values_of(&self, field: usize) -> bool {
        match &self.kind {
            IndexKind::Btree => true,
            IndexKind::Hashed { field: hashed } => *hashed != field,
            IndexKind::Wildcard(wildcard) => match wildcard.view {
                WildcardView::Path => field != wildcard.path_field,
                _ => field < wildcard.path_field || field > wildcard.path_field + 1,
            },
        }
    }
}
