//! Wildcard indexes, which have a key for every path, and their use in plans.
//!
//! ```text
//!   {"$**": 1}       {a: {b: 5, c: [1, {d: 2}]}}     "a.b"|5  "a.c"|1  "a.c.d"|2
//!
//!   query {"a.b": 5, x: 1}   the index becomes two:  {$_path: 1, "a.b": 1}
//!                                                    {$_path: 1, x: 1}
//!   {"a.b": 5}             $_path ["a.b", "a.b"]                  a.b [5, 5]
//!   {a: {$exists: true}}   $_path ["a", "a"], ["a.", "a/")        a   [MinKey, MaxKey]
//! ```
//!
//! Invariant: a document has a key for a path exactly if the path resolves to a scalar, an empty
//! document or array, or an array nested directly in an array (as a whole). A non-empty document
//! has the keys of its fields instead. Therefore the index cannot serve predicates that distinguish
//! a missing field from null, or that compare whole documents or arrays.
//!
//! Multikey information is stored per path, and [`expand`] reads it from the index while planning.
//! After an array, a numeric part of a path may be a position, which keys do not contain: such a
//! path is not expanded.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, DocBuilder, ElementType, Error, ErrorCode, RawDoc, RawValue, Value};

use super::assignment::SharedList;
use super::bounds::{BoundsTightness, Interval, OrderedIntervalList};
use super::bounds_builder::FieldBounds;
use super::index_entry::{IndexEntry, IndexField, IndexKind, WildcardField, WildcardView};
use super::predicate::{Base, Conjunction, Predicate};
use super::type_bracket::bracket_of;
use crate::matcher::{ComparisonOp, MatchExpression};

/// The name of the field that holds a key's path.
pub const PATH_FIELD: &str = "$_path";

/// Maximum number of paths of one query for which a wildcard index is considered.
const PATHS_MAX: usize = 512;
/// The same for partial indexes, whose filter is evaluated for each path.
const PARTIAL_PATHS_MAX: usize = 16;

/// The paths of a document for which a wildcard index has keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WildcardPaths {
    root: Node,
}

/// Whether an index includes a field and its descendants.
#[derive(Debug, Clone, Default, PartialEq)]
struct Node {
    /// Whether descendants are included, unless a child overrides it.
    included: bool,
    /// Whether a specified path ends here.
    is_end: bool,
    children: Vec<(String, Node)>,
}

/// The position of a traversal of a document within the paths.
#[derive(Debug, Clone, Copy)]
pub struct WildcardStep<'p> {
    node: Option<&'p Node>,
    included: bool,
}

impl WildcardPaths {
    /// All paths except `_id`.
    pub fn all() -> WildcardPaths {
        let mut root = Node {
            included: true,
            ..Node::default()
        };
        root.insert(["_id"].into_iter(), false);
        WildcardPaths { root }
    }

    /// A path and all its descendants.
    pub fn below(prefix: &str) -> WildcardPaths {
        let mut root = Node::default();
        root.insert(prefix.split('.'), true);
        WildcardPaths { root }
    }

    /// The paths that a `wildcardProjection` keeps. It has either inclusions or exclusions; only
    /// `_id` may differ from the rest. `_id` is excluded unless it is included explicitly.
    ///
    /// Errors: BadValue for an invalid projection, 31253 or 31254 for a mix of inclusions and
    /// exclusions.
    pub fn projected(projection: RawDoc<'_>) -> Result<WildcardPaths, Error> {
        let mut list = Vec::new();
        collect(projection, "", 0, &mut list)?;
        if list.is_empty() {
            return Err(Error::bad_value(
                "the 'wildcardProjection' field can't be an empty object",
            ));
        }
        let of_others = list.iter().find(|(path, _)| path != "_id");
        // {_id: 0} excludes, {_id: 1} includes.
        let includes = of_others.or(list.first()).is_some_and(|(_, on)| *on);
        let id = list.iter().find(|(path, _)| path == "_id");
        let mut root = Node {
            included: !includes,
            ..Node::default()
        };
        root.insert(["_id"].into_iter(), id.is_some_and(|(_, on)| *on));
        for (path, on) in list.iter().filter(|(path, _)| path != "_id") {
            if *on != includes {
                // The same codes as in query projections.
                let code = if *on { 31253 } else { 31254 };
                return Err(Error::new(
                    ErrorCode(code),
                    format!(
                        "Bad 'wildcardProjection': field '{path}' is {} among {}; only _id may \
                         differ from the rest",
                        if *on { "included" } else { "excluded" },
                        if includes { "inclusions" } else { "exclusions" },
                    ),
                ));
            }
            if !root.insert(path.split('.'), *on) {
                return Err(Error::bad_value(format!(
                    "Bad 'wildcardProjection': path collision at '{path}'"
                )));
            }
        }
        Ok(WildcardPaths { root })
    }

    /// Whether the value at this path has keys in the index.
    pub fn covers(&self, path: &str) -> bool {
        let mut step = self.root();
        for part in path.split('.') {
            step = step.into_field(part);
        }
        step.included()
    }

    /// Whether this path or one below it may have keys.
    pub fn touches(&self, path: &FieldPath) -> bool {
        let mut step = self.root();
        for part in path.parts() {
            step = step.into_field(part);
        }
        step.included() || step.leads_on()
    }

    /// The start of a traversal.
    pub fn root(&self) -> WildcardStep<'_> {
        WildcardStep {
            node: Some(&self.root),
            included: self.root.included,
        }
    }
}

impl<'p> WildcardStep<'p> {
    /// Descends into a field.
    pub fn into_field(self, name: &str) -> WildcardStep<'p> {
        let child = self
            .node
            .and_then(|node| node.children.iter().find(|(child, _)| child == name));
        match child {
            None => WildcardStep { node: None, ..self },
            Some((_, node)) => WildcardStep {
                node: Some(node),
                included: node.included,
            },
        }
    }

    /// Whether a value at this position has keys.
    pub fn included(self) -> bool {
        self.included
    }

    /// Whether this position or one below it may have keys.
    pub fn leads_on(self) -> bool {
        self.included || self.node.is_some_and(Node::includes_some)
    }
}

impl Node {
    /// Inserts a path. Returns false if the path, an ancestor or a descendant is already present.
    fn insert<'s>(&mut self, mut path: impl Iterator<Item = &'s str>, on: bool) -> bool {
        if self.is_end {
            return false;
        }
        let Some(name) = path.next() else {
            self.included = on;
            self.is_end = true;
            return self.children.is_empty();
        };
        let at = match self.children.iter().position(|(child, _)| child == name) {
            Some(at) => at,
            None => {
                let node = Node {
                    included: self.included,
                    ..Node::default()
                };
                self.children.push((name.to_owned(), node));
                self.children.len() - 1
            }
        };
        self.children[at].1.insert(path, on)
    }

    fn includes_some(&self) -> bool {
        self.included || self.children.iter().any(|(_, child)| child.includes_some())
    }
}

/// Maximum nesting depth of a projection.
const PROJECTION_DEPTH_MAX: usize = 100;

fn collect(
    doc: RawDoc<'_>,
    prefix: &str,
    depth: usize,
    out: &mut Vec<(String, bool)>,
) -> Result<(), Error> {
    for element in doc {
        let path = match prefix {
            "" => element.key().to_owned(),
            prefix => format!("{prefix}.{}", element.key()),
        };
        if path
            .split('.')
            .any(|part| part.is_empty() || part.starts_with('$'))
        {
            return Err(Error::bad_value(format!(
                "Bad 'wildcardProjection': '{path}' is not a valid field path"
            )));
        }
        match element.value() {
            RawValue::Document(inner) if depth < PROJECTION_DEPTH_MAX && !inner.is_empty() => {
                collect(inner, &path, depth + 1, out)?;
            }
            value if value.is_number() || matches!(value, RawValue::Boolean(_)) => {
                out.push((path, value.is_truthy()));
            }
            value => {
                return Err(Error::bad_value(format!(
                    "Bad 'wildcardProjection': '{path}: {value}' neither includes (1) nor excludes \
                     (0); computed fields are not allowed"
                )));
            }
        }
    }
    Ok(())
}

/// The indexes for planning a query: each wildcard index is followed by its views for the paths of
/// the query. `None` if there is no wildcard index.
///
/// `is_array` returns whether a path is an array in some document of the index.
///
/// Errors: those of `is_array`.
pub fn expand(
    filter: &MatchExpression,
    indexes: &[Arc<IndexEntry>],
    is_array: &mut dyn FnMut(&IndexEntry, &str) -> Result<bool, Error>,
) -> Result<Option<Vec<Arc<IndexEntry>>>, Error> {
    if indexes.iter().all(|index| index.wildcard().is_none()) {
        return Ok(None);
    }
    let mut paths = BTreeSet::new();
    paths_of(filter, &Base::default(), &mut paths);
    let mut all = Vec::with_capacity(indexes.len() + paths.len());
    for index in indexes {
        all.push(index.clone());
        let Some(wildcard) = index.wildcard() else {
            continue;
        };
        if index.hidden {
            continue;
        }
        let leading = index.fields[0].path.dotted();
        if wildcard.path_field > 0 && !paths.contains(leading) {
            continue;
        }
        let max = match index.partial_filter {
            None => PATHS_MAX,
            Some(_) => PARTIAL_PATHS_MAX,
        };
        let covered = paths.iter().filter(|path| wildcard.paths.covers(path));
        for path in covered.take(max) {
            all.extend(path_view(index, wildcard, path, is_array)?.map(Arc::new));
        }
        if wildcard.path_field > 0 {
            all.push(Arc::new(prefix_view(index, wildcard)));
        }
    }
    Ok(Some(all))
}

/// Collects the paths of all predicates, including those inside `$elemMatch` and `$or`.
fn paths_of(expr: &MatchExpression, base: &Base, out: &mut BTreeSet<String>) {
    let all = Conjunction::new(expr, base, &[]);
    out.extend(all.predicates.iter().map(|p| p.path.clone().into_owned()));
    for disjunction in &all.disjunctions {
        for child in disjunction.children {
            paths_of(child, &disjunction.base, out);
        }
    }
}

fn key_pattern(index: &IndexEntry, wildcard: &WildcardField, path: Option<&str>) -> DocBuf {
    let mut out = DocBuilder::new();
    for (at, field) in index.fields.iter().enumerate() {
        let direction = i32::from(field.direction);
        if at != wildcard.path_field + 1 {
            out.append(field.path.dotted(), direction);
        } else if let Some(path) = path {
            out.append(path, direction);
        }
    }
    out.finish()
}

fn view(index: &IndexEntry, wildcard: &WildcardField, view: WildcardView) -> IndexKind {
    debug_assert_eq!(index.fields.len(), index.multikey_paths.len());
    IndexKind::Wildcard(WildcardField {
        view,
        ..wildcard.clone()
    })
}

fn prefix_view(index: &IndexEntry, wildcard: &WildcardField) -> IndexEntry {
    IndexEntry {
        kind: view(index, wildcard, WildcardView::Prefix),
        key_pattern: key_pattern(index, wildcard, None),
        multikey: false,
        multikey_paths: vec![Vec::new(); index.fields.len()],
        ..index.clone()
    }
}

/// The view of one path; `None` if a numeric part of it may be an array position.
fn path_view(
    index: &IndexEntry,
    wildcard: &WildcardField,
    dotted: &str,
    is_array: &mut dyn FnMut(&IndexEntry, &str) -> Result<bool, Error>,
) -> Result<Option<IndexEntry>, Error> {
    let Ok(path) = FieldPath::parse(dotted) else {
        return Ok(None);
    };
    if path.part(0) == Some(PATH_FIELD) {
        return Ok(None);
    }
    let mut arrays = Vec::new();
    for position in 0..path.len() {
        if !arrays.is_empty() && path.part_index(position).is_some() {
            return Ok(None);
        }
        if is_array(index, path.prefix(position + 1))? {
            arrays.push(position);
        }
    }
    let value_field = wildcard.path_field + 1;
    let mut fields = index.fields.clone();
    fields[value_field] = IndexField {
        path: Arc::new(path),
        direction: index.fields[value_field].direction,
    };
    let mut multikey_paths = vec![Vec::new(); fields.len()];
    multikey_paths[value_field] = arrays;
    Ok(Some(IndexEntry {
        kind: view(index, wildcard, WildcardView::Path),
        key_pattern: key_pattern(index, wildcard, Some(dotted)),
        multikey: !multikey_paths[value_field].is_empty(),
        multikey_paths,
        fields,
        ..index.clone()
    }))
}

/// The bounds of a predicate on the values of one path, and whether keys of descendant paths must
/// be scanned as well; `None` if keys cannot serve the predicate.
pub(super) fn value_bounds(
    predicate: &Predicate<'_>,
    bounds: &std::rc::Rc<FieldBounds>,
    multikey: bool,
) -> Option<(std::rc::Rc<FieldBounds>, bool)> {
    let whole_path = |tightness| {
        let list = OrderedIntervalList::all();
        Some((std::rc::Rc::new(FieldBounds { list, tightness }), true))
    };
    match predicate.expr {
        // A key at or below the path exists exactly if the field exists.
        MatchExpression::Exists { .. } => return whole_path(BoundsTightness::Exact),
        MatchExpression::Not(child) if !multikey && is_null(child) => {
            return whole_path(BoundsTightness::InexactFetch);
        }
        _ => {}
    }
    let empty = Value::Document(DocBuf::new());
    let is_served = bounds.list.intervals().iter().all(|interval| {
        let one = OrderedIntervalList::of(interval.clone());
        let apart = |bracket: Interval| one.intersect(&OrderedIntervalList::of(bracket)).is_empty();
        let is_empty_document = || {
            interval.is_point() && sheaf_bson::values_equal(interval.start.as_raw(), empty.as_raw())
        };
        !interval.contains(RawValue::Null)
            && apart(bracket_of(ElementType::Array))
            && (apart(bracket_of(ElementType::Document)) || is_empty_document())
    });
    is_served.then(|| (bounds.clone(), false))
}

fn is_null(expr: &MatchExpression) -> bool {
    match expr {
        MatchExpression::Comparison(c) => {
            c.op == ComparisonOp::Eq && matches!(*c.value, Value::Null)
        }
        _ => false,
    }
}

/// The bounds on `$_path`.
pub(super) fn path_bounds(
    index: &IndexEntry,
    wildcard: &WildcardField,
    and_below: bool,
) -> SharedList {
    let text = |text: String| Value::String(text);
    let intervals = match wildcard.view {
        WildcardView::Path => {
            let path = index.fields[wildcard.path_field + 1].path.dotted();
            let mut intervals = vec![Interval::point(text(path.to_owned()))];
            if and_below {
                // '/' immediately follows '.' in ASCII.
                intervals.push(Interval::new(
                    text(format!("{path}.")),
                    true,
                    text(format!("{path}/")),
                    false,
                ));
            }
            intervals
        }
        // Documents without any indexed path have the key MinKey.
        _ => vec![
            Interval::point(Value::MinKey),
            bracket_of(ElementType::String),
        ],
    };
    SharedList::Own(std::rc::Rc::new(OrderedIntervalList::union_of(intervals)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn which_paths_are_covered() {
        let projected = |doc: DocBuf| WildcardPaths::projected(doc.as_raw()).unwrap();
        let shown = |paths: WildcardPaths| {
            ["a", "a.b", "a.b.c", "a.x", "b", "_id", "_id.x"]
                .into_iter()
                .filter(|path| paths.covers(path))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(shown(WildcardPaths::all()), "a a.b a.b.c a.x b");
        assert_eq!(shown(WildcardPaths::below("a")), "a a.b a.b.c a.x");
        assert_eq!(shown(WildcardPaths::below("a.b")), "a.b a.b.c");
        for (projection, covered) in [
            (doc! {"a": 1}, "a a.b a.b.c a.x"),
            (doc! {"a": {"b": true}}, "a.b a.b.c"),
            (doc! {"a.b": 1, "_id": 1}, "a.b a.b.c _id _id.x"),
            (doc! {"_id": 1}, "_id _id.x"),
            (doc! {"a.b": 0}, "a a.x b"),
            (doc! {"a": false, "_id": 1}, "b _id _id.x"),
            (doc! {"_id": 0}, "a a.b a.b.c a.x b"),
        ] {
            assert_eq!(
                shown(projected(projection.clone())),
                covered,
                "{projection}"
            );
        }
        for refused in [
            doc! {},
            doc! {"a": 1, "b": 0},
            doc! {"a": "x"},
            doc! {"a": {"$slice": 1}},
            doc! {"a": 1, "a.b": 1},
            doc! {"a.b": 1, "a": 1},
            doc! {"a..b": 1},
        ] {
            assert!(
                WildcardPaths::projected(refused.as_raw()).is_err(),
                "{refused}"
            );
        }
    }

    #[test]
    fn which_changes_matter() {
        let touches =
            |paths: &WildcardPaths, path: &str| paths.touches(&FieldPath::parse(path).unwrap());
        let below = WildcardPaths::below("a.b");
        assert!(touches(&below, "a") && touches(&below, "a.b") && touches(&below, "a.b.c"));
        assert!(!touches(&below, "a.c") && !touches(&below, "b"));
    }
}
