//! Dotted paths, and what a path means in a document with arrays.
//!
//! There are two interpretations. [`get_path`] descends embedded documents only. Queries use
//! [`for_each_value`], which also traverses arrays and passes every value the path reaches to a
//! visitor:
//!
//! ```text
//!  path   document                        the visitor sees
//!  a      {a: 5}                          5
//!  a      {}                              missing
//!  a      {a: [1, [2]]}                   1, [2], then the array [1, [2]] itself
//!  a.b    {a: {b: 1}}                     1
//!  a.b    {a: 5}, {a: {}}                 missing
//!  a.b    {a: [{b: 1}, {c: 2}, 3]}        1, missing            (3 is skipped)
//!  a.b    {a: [[{b: 1}]]}                 nothing               (nested arrays are not entered)
//!  a.b    {a: []}                         nothing
//!  a.0    {a: [7, 8]}                     7
//!  a.0    {a: [[7, 8]]}                   [7, 8]                (as a whole)
//!  a.0    {a: {"0": 7}}                   7
//!  a.0    {a: [{"0": 7}, 8]}              7, then {"0": 7}      (as name, then as position)
//!  a.0.b  {a: [[{b: 1}]]}                 1
//! ```
//!
//! The rules:
//!
//! - An array in the middle of a path applies the remaining path to each
//!   embedded document among its elements. Elements of other types are skipped
//!   and yield nothing, not even "missing". So {"a.b": null} does not match
//!   {a: []} or {a: [1]}.
//! - A numeric part is first a field name of those embedded documents (and
//!   yields "missing" where they lack it, as in MongoDB: {"a.0": null}
//!   matches {a: [{b: 1}]}), then a position in the array. Only canonical
//!   numbers are positions: "0", "12", not "01". The parts that follow may
//!   enter an array selected by position.
//! - At the end of the path an array yields its elements and then itself
//!   ([`LeafArrayBehavior::Traverse`]), or only itself
//!   ([`LeafArrayBehavior::NoTraverse`]). A value selected by position is
//!   yielded as a whole either way.
//! - If a document lacks a part, or a value that is neither document nor array
//!   is in the middle of the path, the path yields "missing".
//!
//! Traversal allocates nothing; recursion is bounded by the number of parts.

use std::fmt;
use std::ops::ControlFlow;

use crate::element_type::ElementType;
use crate::error::BsonError;
use crate::raw::{RawArray, RawDoc, RawElement};
use crate::raw_value::RawValue;

/// Maximum number of parts of a path.
pub const PARTS_MAX: usize = 200;

/// A parsed dotted path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath {
    dotted: String,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part {
    start: u32,
    end: u32,
    /// The array position this part can denote, if it is numeric.
    index: Option<u32>,
}

impl FieldPath {
    /// Parses a path. Errors: empty path, empty part, too many parts, a zero byte.
    pub fn parse(dotted: &str) -> Result<FieldPath, BsonError> {
        if dotted.is_empty() {
            return Err(BsonError::new("path is empty", 0));
        }
        let path = FieldPath::parse_lenient(dotted)?;
        match path.parts.iter().find(|p| p.start == p.end) {
            None => Ok(path),
            Some(part) => {
                let message = format!("path '{dotted}' contains an empty field name");
                Err(BsonError::new(message, part.start as usize))
            }
        }
    }

    /// Parses a path whose parts may be empty, as the query language allows: "" is the field with
    /// the empty name. Errors: too many parts, a zero byte.
    pub fn parse_lenient(dotted: &str) -> Result<FieldPath, BsonError> {
        if let Some(at) = dotted.bytes().position(|b| b == 0) {
            return Err(BsonError::new("path contains a zero byte", at));
        }
        let mut parts = Vec::new();
        let mut start = 0;
        for part in dotted.split('.') {
            if parts.len() == PARTS_MAX {
                let message = format!("path has more than {PARTS_MAX} parts");
                return Err(BsonError::new(message, start));
            }
            let end = start + part.len();
            parts.push(Part {
                start: start as u32,
                end: end as u32,
                index: array_index(part),
            });
            start = end + 1;
        }
        if u32::try_from(dotted.len()).is_err() {
            return Err(BsonError::new("path is too long", 0));
        }
        Ok(FieldPath {
            dotted: dotted.to_owned(),
            parts,
        })
    }

    /// The whole path, dots included.
    pub fn dotted(&self) -> &str {
        &self.dotted
    }

    /// The parts, first to last.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.parts
            .iter()
            .map(|p| &self.dotted[p.start as usize..p.end as usize])
    }

    /// One part; `None` past the end.
    #[inline]
    pub fn part(&self, i: usize) -> Option<&str> {
        let part = self.parts.get(i)?;
        self.dotted.get(part.start as usize..part.end as usize)
    }

    /// The array position that part `i` can denote; `None` if it is not numeric or past the end.
    #[inline]
    pub fn part_index(&self, i: usize) -> Option<u32> {
        self.parts.get(i)?.index
    }

    /// Number of parts; never 0.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether a part other than the first can be an array position.
    pub fn has_numeric_part(&self) -> bool {
        self.parts.iter().skip(1).any(|p| p.index.is_some())
    }

    /// The first `n` parts with their dots; the whole path if there are fewer.
    pub fn prefix(&self, n: usize) -> &str {
        match n.checked_sub(1) {
            None => "",
            Some(last) => match self.parts.get(last) {
                Some(part) => &self.dotted[..part.end as usize],
                None => &self.dotted,
            },
        }
    }

    /// Whether `self` equals `other` or is an ancestor of it: "a.b" of "a.b.c", not "a.b" of
    /// "a.bc".
    pub fn is_prefix_of(&self, other: &FieldPath) -> bool {
        is_path_prefix(&self.dotted, &other.dotted)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dotted)
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dotted)
    }
}

impl std::str::FromStr for FieldPath {
    type Err = BsonError;
    fn from_str(dotted: &str) -> Result<FieldPath, BsonError> {
        FieldPath::parse(dotted)
    }
}

/// Whether the dotted path `prefix` equals `path` or is an ancestor of it.
pub fn is_path_prefix(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The array position that a path part denotes: digits without a leading zero.
pub fn array_index(part: &str) -> Option<u32> {
    let canonical = part == "0" || !part.starts_with('0');
    (canonical && part.bytes().all(|b| b.is_ascii_digit()))
        .then(|| part.parse().ok())
        .flatten()
}

/// What an array at the end of a path yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafArrayBehavior {
    /// Its elements, then the array itself.
    Traverse,
    /// Only the array itself.
    NoTraverse,
}

/// A value that a path reached, or "missing".
#[derive(Clone, Copy, Debug)]
pub struct PathItem<'a> {
    /// The element, with the key it has in its parent. `None` is "missing".
    pub element: Option<RawElement<'a>>,
    /// The position in the outermost array that was traversed, if any; a position that the path
    /// names does not count. The positional operator `$` refers to it.
    pub array_index: Option<u32>,
}

impl<'a> PathItem<'a> {
    /// The value; `None` is "missing".
    #[inline]
    pub fn value(&self) -> Option<RawValue<'a>> {
        self.element.map(|e| e.value())
    }
}

/// Passes everything `path` reaches in `doc` to `visit`, until it breaks.
pub fn for_each_value<'a, B, F>(
    doc: RawDoc<'a>,
    path: &FieldPath,
    leaf: LeafArrayBehavior,
    mut visit: F,
) -> ControlFlow<B>
where
    F: FnMut(PathItem<'a>) -> ControlFlow<B>,
{
    Traversal { path, leaf }.document(doc, 0, None, &mut visit)
}

/// Like [`for_each_value`], for the remaining parts of `path` starting at `first`. For callers such
/// as `$elemMatch` and expressions, which resolve the first parts themselves. Visits nothing if
/// `first` is past the last part.
pub fn for_each_value_from<'a, B, F>(
    doc: RawDoc<'a>,
    path: &FieldPath,
    first: usize,
    leaf: LeafArrayBehavior,
    mut visit: F,
) -> ControlFlow<B>
where
    F: FnMut(PathItem<'a>) -> ControlFlow<B>,
{
    if first >= path.len() {
        return ControlFlow::Continue(());
    }
    Traversal { path, leaf }.document(doc, first, None, &mut visit)
}

#[derive(Clone, Copy)]
struct Traversal<'p> {
    path: &'p FieldPath,
    leaf: LeafArrayBehavior,
}

impl Traversal<'_> {
    /// Applies the parts from `at` on to a document. `outer` is the position in the outermost
    /// array.
    #[inline]
    fn document<'a, B, F>(
        self,
        doc: RawDoc<'a>,
        at: usize,
        outer: Option<u32>,
        visit: &mut F,
    ) -> ControlFlow<B>
    where
        F: FnMut(PathItem<'a>) -> ControlFlow<B>,
    {
        let missing = PathItem {
            element: None,
            array_index: outer,
        };
        let Some(element) = self.path.part(at).and_then(|part| doc.get_element(part)) else {
            return visit(missing);
        };
        let last = at + 1 == self.path.len();
        match element.element_type() {
            ElementType::Array => self.array_field(element, at, outer, visit),
            _ if last => visit(PathItem {
                element: Some(element),
                array_index: outer,
            }),
            ElementType::Document => match element.value() {
                RawValue::Document(inner) => self.document(inner, at + 1, outer, visit),
                _ => ControlFlow::Continue(()),
            },
            _ => visit(missing),
        }
    }

    /// Handles an array that is the value of part `at`.
    fn array_field<'a, B, F>(
        self,
        element: RawElement<'a>,
        at: usize,
        outer: Option<u32>,
        visit: &mut F,
    ) -> ControlFlow<B>
    where
        F: FnMut(PathItem<'a>) -> ControlFlow<B>,
    {
        let RawValue::Array(array) = element.value() else {
            return ControlFlow::Continue(());
        };
        if at + 1 < self.path.len() {
            return self.array(array, at + 1, outer, visit);
        }
        if self.leaf == LeafArrayBehavior::Traverse {
            for (i, item) in array.elements().enumerate() {
                let array_index = outer.or(Some(i as u32));
                visit(PathItem {
                    element: Some(item),
                    array_index,
                })?;
            }
        }
        visit(PathItem {
            element: Some(element),
            array_index: outer,
        })
    }

    /// Applies the parts from `at` on to an array in the middle of the path.
    fn array<'a, B, F>(
        self,
        array: RawArray<'a>,
        at: usize,
        outer: Option<u32>,
        visit: &mut F,
    ) -> ControlFlow<B>
    where
        F: FnMut(PathItem<'a>) -> ControlFlow<B>,
    {
        let position = self.path.part_index(at);
        for (i, item) in array.elements().enumerate() {
            // A position that the path itself names is not one that was found.
            let named = outer;
            let outer = outer.or(Some(i as u32));
            let document = match item.element_type() {
                ElementType::Document => item.value().as_document(),
                _ => None,
            };
            if let Some(inner) = document {
                self.document(inner, at, outer, visit)?;
            }
            if position != Some(i as u32) {
                continue;
            }
            if at + 1 == self.path.len() {
                visit(PathItem {
                    element: Some(item),
                    array_index: named,
                })?;
            } else if let Some(inner) = document {
                self.document(inner, at + 1, named, visit)?;
            } else if item.element_type() == ElementType::Array
                && let RawValue::Array(inner) = item.value()
            {
                self.array(inner, at + 1, named, visit)?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The value at a path of embedded documents; arrays are not traversed.
pub fn get_path<'a>(doc: RawDoc<'a>, path: &FieldPath) -> Option<RawValue<'a>> {
    get_parts(doc, path.parts())
}

/// [`get_path`] for a path that is used once and not worth parsing.
pub fn get_dotted<'a>(doc: RawDoc<'a>, dotted: &str) -> Option<RawValue<'a>> {
    get_parts(doc, dotted.split('.'))
}

fn get_parts<'a, 'p>(
    doc: RawDoc<'a>,
    parts: impl Iterator<Item = &'p str>,
) -> Option<RawValue<'a>> {
    let mut value = RawValue::Document(doc);
    for part in parts {
        value = value.as_document()?.get(part)?;
    }
    Some(value)
}
