//! Index metadata for the planner: shape and options, never data.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, DocBuf, Error, RawDoc, RawValue};

use super::wildcard::{PATH_FIELD, WildcardPaths};
use crate::matcher::MatchExpression;
use crate::sort::KeyFields;

/// For each field of the key pattern, the positions within its dotted path
/// that are arrays in some document: for `a.b`, `{0}` means that `a` is an array, `{1}` that `a.b`
/// is. Sorted; empty for a field whose path never traversed an array.
pub type MultikeyPaths = Vec<Vec<usize>>;

/// One index, as described to the planner.
#[derive(Debug, Clone)]
pub struct IndexEntry {
    /// Unique within the collection.
    pub name: String,
    /// Identifies the index for the executor; opaque to the planner.
    pub ident: u64,
    /// `{a: 1, "b.c": -1}`, as specified by the user.
    pub key_pattern: DocBuf,
    /// The pattern's fields in order, parsed once.
    pub fields: Vec<IndexField>,
    /// The access method.
    pub kind: IndexKind,
    /// Its keys are the record ids of the collection: scans return documents without a fetch, and
    /// there is no separate key that could cover a query.
    pub clustered: bool,
    /// Whether some document has several keys.
    pub multikey: bool,
    /// Same length as `fields`.
    pub multikey_paths: MultikeyPaths,
    /// Whether each key belongs to at most one document.
    pub unique: bool,
    /// Whether documents without any of the fields have no key.
    pub sparse: bool,
    /// Only documents that match have keys; `None` if the index is not partial.
    pub partial_filter: Option<Arc<MatchExpression>>,
    /// The partial filter, as specified by the user.
    pub partial_filter_spec: Option<DocBuf>,
    /// The collation whose sort keys the index stores in place of text; `None` if it stores text.
    pub collator: Option<Arc<Collator>>,
    /// Maintained by writes, but not used by plans, even with a hint.
    pub hidden: bool,
    /// Index version; always 2.
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

/// Access methods. Further ones (text, 2dsphere) belong here.
#[derive(Debug, Clone)]
pub enum IndexKind {
    /// Ordered keys, with or without arrays.
    Btree,
    /// One field contains hashes of its values, which serve only equality.
    Hashed {
        /// Position of the hashed field.
        field: usize,
    },
    /// One key for every path below a prefix: the field `$_path`, followed by the value at the
    /// path.
    Wildcard(WildcardField),
}

/// The wildcard part of an index.
#[derive(Debug, Clone)]
pub struct WildcardField {
    /// Position of `$_path`; the value is the next field.
    pub path_field: usize,
    /// The paths that have keys.
    pub paths: Arc<WildcardPaths>,
    /// The part of the index that the entry represents.
    pub view: WildcardView,
}

/// The planner replaces a wildcard index by one entry for each path in the query (see
/// [`super::wildcard`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WildcardView {
    /// The index as stored in the catalog: hints refer to it, plans do not use it.
    Whole,
    /// The keys of one path.
    Path,
    /// All keys, for predicates on the fields before the wildcard.
    Prefix,
}

/// The fields of the keys of a key pattern, and the access method. The wildcard of `{a: 1, "$**":
/// 1}` is two fields, `$_path` and the value.
///
/// Errors: BadValue for an invalid path or `wildcardProjection`.
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

impl KeyFields for IndexEntry {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<(&Arc<FieldPath>, i8)> {
        let fields = self.fields.iter();
        fields.map(|field| (&field.path, field.direction)).collect()
    }
}

impl IndexEntry {
    /// The wildcard part; `None` for other kinds of index.
    pub fn wildcard(&self) -> Option<&WildcardField> {
        match &self.kind {
            IndexKind::Wildcard(wildcard) => Some(wildcard),
            _ => None,
        }
    }

    /// Whether keys contain the values of this field, rather than hashes or paths.
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
