//! Projections: parsed once, analysed for the planner, applied to raw bytes.
//!
//! ```text
//!   {a: 1, "b.c": 1, d: {$slice: 2}}     inclusion of     {e: 0, "f.g": 0}   exclusion of
//!
//!     a ── whole                                            e ── drop
//!     b ─┬ c ── whole                                       f ─┬ g ── drop
//!     d ── first two                                        everything else is copied
//!     everything else is dropped
//! ```
//!
//! Elements are copied as bytes, in the document's order; computed fields are appended in the
//! projection's order. Paths traverse arrays: each document among the elements is projected; an
//! inclusion drops the other elements and an exclusion keeps them.
//!
//! | written | means |
//! |---|---|
//! | `a: 1`, `a: true` | keep `a` |
//! | `a: 0`, `a: false` | drop `a` |
//! | `a: {b: 1}` | the same as `"a.b": 1` |
//! | `a: {$slice: n}`, `a: {$slice: [skip, n]}` | part of an array |
//! | `a: {$elemMatch: {...}}` | the first matching element |
//! | `"a.$": 1` | the element that the filter matched |
//! | `a: {$meta: "recordId"}` | metadata of the document ([`MetaField`]) |
//! | `a: "$b"`, `a: {$add: [...]}`, `a: "text"` | computed |

use sheaf_bson::path::{FieldPath, is_path_prefix};
use sheaf_bson::{DocBuf, RawDoc};

use crate::key_table::KeyTable;
use crate::matcher::{Dependencies, MatchExpression};

mod apply;
mod covered;
mod parse;

pub use crate::metadata::{MetaField, Metadata};
pub use parse::{parse, parse_inclusion};

/// The projection of a find.
#[derive(Debug, Clone)]
pub struct Projection {
    spec: DocBuf,
    kind: Kind,
    root: Node,
    /// The path of `"path.$": 1`, without the `.$`.
    positional: Option<FieldPath>,
    meta: Vec<MetaField>,
    show_record_id: bool,
    has_computed: bool,
    has_operators: bool,
}

/// How fields that are not named are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They are dropped.
    Inclusion,
    /// They are kept.
    Exclusion,
}

/// The named fields at one level of the document, in the projection's order.
#[derive(Debug, Clone, Default)]
struct Node {
    fields: Vec<Field>,
    /// The names of `fields`, under the same numbers.
    names: KeyTable,
    /// Whether this level or a nested one has a computed field.
    has_computed: bool,
}

#[derive(Debug, Clone)]
struct Field {
    name: Box<str>,
    action: Action,
    /// Whether the path of the positional operator ends here or leads through here.
    positional: bool,
}

#[derive(Debug, Clone)]
enum Action {
    /// Keep the value.
    Include,
    /// Drop the field.
    Exclude,
    /// Project the value.
    Nested(Node),
    /// Keep part of an array; keep any other value.
    Slice(Slice),
    /// Keep the first matching element. The path has one component.
    ElemMatch(ElemMatch),
    /// Append metadata.
    Meta(MetaField),
    /// Append the value of an expression.
    Computed(Box<crate::expression::Expression>),
}

/// Both forms of `$slice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    /// Negative counts from the end; `None` for the form without skip.
    skip: Option<i64>,
    /// Negative (only without skip) means the last elements.
    limit: i64,
}

/// `$elemMatch` in a projection.
#[derive(Debug, Clone)]
struct ElemMatch {
    /// Evaluated with the array as the value of the field.
    filter: MatchExpression,
}

impl Node {
    /// The field with this name.
    fn find(&self, name: &[u8]) -> Option<&Field> {
        self.fields.get(self.place(name)?)
    }

    /// The position of the field with this name.
    fn place(&self, name: &[u8]) -> Option<usize> {
        self.names.find(name)
    }

    fn push(&mut self, field: Field) {
        self.names.insert(field.name.as_bytes());
        self.fields.push(field);
    }

    fn remove(&mut self, name: &str) {
        let fields = std::mem::take(&mut self.fields);
        self.names = KeyTable::new();
        let others = fields.into_iter().filter(|field| &*field.name != name);
        others.for_each(|field| self.push(field));
    }
}

impl Projection {
    /// The specification as the user wrote it; explain's `transformBy`.
    pub fn transform_by(&self) -> &DocBuf {
        &self.spec
    }

    /// Whether unnamed fields are dropped or kept.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the projection only keeps, or only drops, whole top-level fields
    /// (PROJECTION_SIMPLE).
    pub fn simple(&self) -> bool {
        let whole = |field: &Field| matches!(field.action, Action::Include | Action::Exclude);
        self.positional.is_none() && self.root.fields.iter().all(whole)
    }

    /// Whether the projection only keeps fields, including nested ones: an index with these fields
    /// can cover it.
    pub fn is_plain_inclusion(&self) -> bool {
        self.kind == Kind::Inclusion
            && self.positional.is_none()
            && !self.has_operators
            && !self.has_computed
            && self.meta.is_empty()
    }

    /// The paths that the projection reads, including `_id` unless it is dropped; `None` if it
    /// needs the whole document.
    pub fn required_paths(&self) -> Option<Vec<FieldPath>> {
        let found = self.dependencies()?;
        let parse = |path: &String| FieldPath::parse_lenient(path).ok();
        found.paths.iter().map(parse).collect()
    }

    /// Like [`Projection::required_paths`], as a set.
    pub fn dependencies(&self) -> Option<Dependencies> {
        if self.kind == Kind::Exclusion {
            return None;
        }
        let mut found = Dependencies::default();
        add_required(&self.root, "", &mut found);
        (!found.whole_document).then_some(found)
    }

    /// Whether the result contains every value at `path`.
    pub fn keeps_path(&self, path: &str) -> bool {
        match self.kind {
            Kind::Inclusion => self
                .included_paths()
                .iter()
                .any(|kept| is_path_prefix(kept, path)),
            Kind::Exclusion => keeps_all_of(&self.root, path),
        }
    }

    /// Whether the result sorts by `path` as the document does. An inclusion of `a.b` drops the
    /// scalars of an array `a`, which sort as null by `a.b`.
    pub fn keeps_order_by(&self, path: &FieldPath) -> bool {
        match self.kind {
            Kind::Inclusion => self.keeps_path(path.prefix(1)),
            Kind::Exclusion => self.keeps_path(path.dotted()),
        }
    }

    /// The paths kept as a whole, in the projection's order (inclusions only).
    pub fn included_paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        add_included(&self.root, "", &mut found);
        found
    }

    /// Whether the match must provide the array element that matched
    /// ([`MatchDetails`](crate::matcher::MatchDetails)).
    pub fn needs_match_details(&self) -> bool {
        self.positional.is_some()
    }

    /// Whether the projection returns the record id: `{$meta: "recordId"}` or `showRecordId`.
    pub fn needs_record_id(&self) -> bool {
        self.needs(MetaField::RecordId) || self.show_record_id
    }

    /// Whether the projection returns this metadata.
    pub fn needs(&self, field: MetaField) -> bool {
        self.meta.contains(&field)
    }

    /// The same projection with `$recordId` after the other fields.
    pub fn with_record_id(mut self) -> Projection {
        self.show_record_id = true;
        self
    }

    /// Whether a field is computed by an expression.
    pub fn has_computed(&self) -> bool {
        self.has_computed
    }

    /// Parses the projection of a find; see [`mod@parse`]. `{}` keeps everything.
    pub fn parse(
        spec: RawDoc<'_>,
        context: &crate::matcher::ParseContext,
    ) -> Result<Projection, sheaf_bson::Error> {
        parse(spec, context)
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

fn add_required(node: &Node, prefix: &str, found: &mut Dependencies) {
    for field in &node.fields {
        let path = join(prefix, &field.name);
        match &field.action {
            Action::Include | Action::Slice(_) | Action::ElemMatch(_) => found.insert(&path),
            Action::Nested(node) => add_required(node, &path, found),
            Action::Exclude | Action::Meta(_) => {}
            Action::Computed(expression) => {
                // Arrays on the path determine where results are written.
                if !prefix.is_empty() {
                    found.insert(prefix);
                }
                expression.add_dependencies(found);
            }
        }
    }
}

fn add_included(node: &Node, prefix: &str, found: &mut Vec<String>) {
    for field in &node.fields {
        let path = join(prefix, &field.name);
        match &field.action {
            Action::Include if !field.positional => found.push(path),
            Action::Nested(node) => add_included(node, &path, found),
            _ => {}
        }
    }
}

/// Whether an exclusion keeps everything at and below `path`.
fn keeps_all_of(node: &Node, path: &str) -> bool {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    match (node.find(name.as_bytes()).map(|f| &f.action), rest) {
        (None, _) => true,
        (Some(Action::Nested(node)), Some(rest)) => keeps_all_of(node, rest),
        (Some(_), _) => false,
    }
}

#[cfg(test)]
mod tests;
