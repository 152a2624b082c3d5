//! The sort key of a document: one value per field, as comparable bytes.
//!
//! A document without arrays on the sort paths has one tuple of values. An array yields one tuple
//! for each of its elements; all fields along the array take their values from the same element.
//! The document sorts by the first tuple in the sort order:
//!
//! ```text
//!   sort {"a.x": 1, "a.y": -1}     {a: [{x: 2, y: 9}, {x: 1, y: 3}, {x: 1, y: 5}]}
//!   tuples (2, 9)  (1, 3)  (1, 5)   ──>  (1, 5)
//! ```
//!
//! The tuples are the keys of an index on the same pattern.

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::keystring::{Directions, KeyStringBuilder, field_end, prefix_end};
use sheaf_bson::path::FieldPath;
use sheaf_bson::{Error, RawArray, RawDoc, RawValue, compare_values_with};

use super::{SortPart, SortPattern};

/// Comparable bytes: the document with the smaller key sorts first.
pub type SortKey = Vec<u8>;

/// Maximum nesting depth of arrays; exceeds that of any valid document.
const DEPTH_MAX: usize = 250;

/// What an index's keys hold, field by field.
pub trait KeyFields: std::fmt::Debug + Send + Sync {
    /// The index's name, for errors.
    fn name(&self) -> &str;

    /// Paths and directions (1 ascending, -1 descending).
    fn fields(&self) -> Vec<(&Arc<FieldPath>, i8)>;
}

/// Generates sort keys for one pattern. Reuses its buffers, so a plan should have a single
/// generator.
#[derive(Debug)]
pub struct SortKeyGenerator {
    pattern: SortPattern,
    builder: KeyStringBuilder,
    /// The layout of the most recently used index.
    layout: Option<(Arc<dyn KeyFields>, IndexLayout)>,
}

/// The layout of an index, for extracting encoded values from its keys.
#[derive(Debug)]
struct IndexLayout {
    directions: Directions,
    /// For each part of the pattern: the index field, and whether its direction is the opposite.
    parts: Vec<(usize, bool)>,
}

impl SortKeyGenerator {
    /// A generator for `pattern`.
    pub fn new(pattern: &SortPattern) -> SortKeyGenerator {
        let signs = pattern
            .parts
            .iter()
            .map(|part| if part.ascending { 1 } else { -1 });
        SortKeyGenerator {
            builder: KeyStringBuilder::new(Directions::from_signs(signs)),
            pattern: pattern.clone(),
            layout: None,
        }
    }

    /// The pattern.
    pub fn pattern(&self) -> &SortPattern {
        &self.pattern
    }

    /// Appends the document's sort key to `out`, as comparable bytes.
    ///
    /// Errors: BadValue if two fields traverse different arrays.
    pub fn key_of_document(&mut self, doc: RawDoc<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.builder.reset();
        for part in &self.pattern.parts {
            let Some(value) = scalar(doc, &part.path) else {
                // The path reaches an array, which is rare: start over.
                self.builder.reset();
                for value in tuple_of(&self.pattern, doc)? {
                    self.builder
                        .append_with(value, self.pattern.collator.as_deref());
                }
                break;
            };
            self.builder
                .append_with(value, self.pattern.collator.as_deref());
        }
        out.extend_from_slice(self.builder.as_bytes());
        Ok(())
    }

    /// Appends to `out` the sort key of the document of an index key: its encoded values, copied,
    /// or complemented if the directions differ. The index must contain every field of the pattern,
    /// without arrays on them, and text by the collation of the pattern.
    ///
    /// Errors: InternalError if a field is missing, or if the key is invalid.
    pub fn key_of_index_key(
        &mut self,
        index: &Arc<impl KeyFields + 'static>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let layout = match &mut self.layout {
            Some((known, layout)) if std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(index)) => {
                layout
            }
            slot => {
                let layout = IndexLayout::new(&self.pattern, &**index)?;
                let index: Arc<dyn KeyFields> = index.clone();
                &slot.insert((index, layout)).1
            }
        };
        let broken = || Error::new(ErrorCode::INTERNAL_ERROR, "an index key ends too early");
        for &(field, reversed) in &layout.parts {
            let start = prefix_end(key, field, layout.directions).ok_or_else(broken)?;
            let descending = layout.directions.is_descending(field);
            let end = field_end(key, start, descending).ok_or_else(broken)?;
            let value = &key[start..end];
            if reversed {
                out.extend(value.iter().map(|byte| !byte));
            } else {
                out.extend_from_slice(value);
            }
        }
        Ok(())
    }

    /// The sort key of known values, one per field in the pattern's order; null for a missing
    /// field.
    pub fn key_of_values<'v>(&mut self, values: impl IntoIterator<Item = RawValue<'v>>) -> SortKey {
        self.builder.reset();
        for value in values {
            self.builder
                .append_with(value, self.pattern.collator.as_deref());
        }
        self.builder.as_bytes().to_vec()
    }

    /// The values by which the document sorts, one per field.
    ///
    /// Errors: BadValue if two fields traverse different arrays.
    pub fn values<'d>(&self, doc: RawDoc<'d>) -> Result<Vec<RawValue<'d>>, Error> {
        tuple_of(&self.pattern, doc)
    }
}

impl IndexLayout {
    fn new(pattern: &SortPattern, index: &dyn KeyFields) -> Result<IndexLayout, Error> {
        let fields = index.fields();
        let part = |part: &SortPart| {
            let field = fields.iter().position(|(path, _)| **path == part.path)?;
            let ascending = fields[field].1 > 0;
            Some((field, ascending != part.ascending))
        };
        let parts: Option<Vec<_>> = pattern.parts.iter().map(part).collect();
        Ok(IndexLayout {
            directions: Directions::from_signs(fields.iter().map(|(_, sign)| (*sign).into())),
            parts: parts.ok_or_else(|| {
                Error::new(
                    ErrorCode::INTERNAL_ERROR,
                    format!("the index {} does not hold the sort's fields", index.name()),
                )
            })?,
        })
    }
}

/// The first tuple of values in the pattern's order.
fn tuple_of<'d>(pattern: &SortPattern, doc: RawDoc<'d>) -> Result<Vec<RawValue<'d>>, Error> {
    let start = pattern.parts.iter().map(|part| Cursor::At {
        path: &part.path,
        next: 0,
        value: RawValue::Document(doc),
    });
    let mut search = Search {
        pattern,
        best: None,
    };
    search.expand(start.collect(), 0)?;
    // Every expansion ends in a tuple, except for unvalidated bytes that nest too deeply.
    Ok(search
        .best
        .unwrap_or_else(|| vec![RawValue::Null; pattern.parts.len()]))
}

/// Searches for the first tuple of a document with arrays.
struct Search<'d, 'p> {
    pattern: &'p SortPattern,
    best: Option<Vec<RawValue<'d>>>,
}

impl<'d, 'p> Search<'d, 'p> {
    /// Advances all fields to the next array, and recurses for each of its elements.
    fn expand(&mut self, mut cursors: Vec<Cursor<'d, 'p>>, depth: usize) -> Result<(), Error> {
        let mut array: Option<RawArray<'d>> = None;
        for cursor in &mut cursors {
            let Some(found) = cursor.advance() else {
                continue;
            };
            match array {
                None => array = Some(found),
                Some(first) if std::ptr::eq(first.as_bytes(), found.as_bytes()) => {}
                Some(_) => {
                    return Err(Error::bad_value(
                        "cannot sort with keys that are parallel arrays",
                    ));
                }
            }
        }
        let Some(array) = array else {
            self.offer(cursors);
            return Ok(());
        };
        if depth > DEPTH_MAX {
            return Ok(());
        }
        if array.is_empty() {
            for cursor in &mut cursors {
                if let Cursor::At { path, next, .. } = cursor {
                    *cursor = Cursor::Done(if *next == path.len() {
                        RawValue::Undefined
                    } else {
                        RawValue::Null
                    });
                }
            }
            self.offer(cursors);
            return Ok(());
        }
        // Fields that name a position refer to that element, independently of the element of the
        // others.
        for cursor in &mut cursors {
            cursor.enter_position(array);
        }
        let by_element = |cursor: &Cursor<'_, '_>| {
            matches!(cursor, Cursor::At { value: RawValue::Array(a), .. }
                if std::ptr::eq(a.as_bytes(), array.as_bytes()))
        };
        if !cursors.iter().any(by_element) {
            return self.expand(cursors, depth + 1);
        }
        for element in array.iter() {
            let next = cursors.iter().map(|cursor| {
                if by_element(cursor) {
                    cursor.within(element)
                } else {
                    *cursor
                }
            });
            self.expand(next.collect(), depth + 1)?;
        }
        Ok(())
    }

    /// Keeps the tuple if it sorts before the best so far.
    fn offer(&mut self, cursors: Vec<Cursor<'d, 'p>>) {
        let tuple = cursors.into_iter().map(|cursor| match cursor {
            Cursor::Done(value) | Cursor::At { value, .. } => value,
        });
        let tuple: Vec<RawValue<'d>> = tuple.collect();
        let first = |best| self.pattern.compare(&tuple, best).is_lt();
        if self.best.as_deref().is_none_or(first) {
            self.best = Some(tuple);
        }
    }
}

impl SortPattern {
    /// Compares two tuples of values, one value per field, in the pattern's order.
    pub fn compare(&self, a: &[RawValue<'_>], b: &[RawValue<'_>]) -> Ordering {
        for (part, (a, b)) in self.parts.iter().zip(a.iter().zip(b)) {
            let order = compare_values_with(*a, *b, self.collator.as_deref());
            let order = if part.ascending {
                order
            } else {
                order.reverse()
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// The value of a path without arrays, null if missing; `None` if the path reaches an array.
fn scalar<'d>(doc: RawDoc<'d>, path: &FieldPath) -> Option<RawValue<'d>> {
    let mut value = RawValue::Document(doc);
    for part in path.parts() {
        value = match value {
            RawValue::Document(doc) => doc.get(part).unwrap_or(RawValue::Null),
            RawValue::Array(_) => return None,
            _ => RawValue::Null,
        };
    }
    (!matches!(value, RawValue::Array(_))).then_some(value)
}

/// The progress of the traversal of one field's path.
#[derive(Clone, Copy)]
enum Cursor<'d, 'p> {
    /// The parts from `next` on remain to be resolved within `value`.
    At {
        path: &'p FieldPath,
        next: usize,
        value: RawValue<'d>,
    },
    /// The path is resolved.
    Done(RawValue<'d>),
}

impl<'d, 'p> Cursor<'d, 'p> {
    /// Advances to the end or to an array, which is returned.
    fn advance(&mut self) -> Option<RawArray<'d>> {
        while let Cursor::At { path, next, value } = *self {
            match value {
                RawValue::Array(array) => return Some(array),
                _ if next == path.len() => *self = Cursor::Done(value),
                RawValue::Document(doc) => {
                    *self = match path.part(next).and_then(|part| doc.get(part)) {
                        Some(value) => Cursor::At {
                            path,
                            next: next + 1,
                            value,
                        },
                        None => Cursor::Done(RawValue::Null),
                    }
                }
                _ => *self = Cursor::Done(RawValue::Null),
            }
        }
        None
    }

    /// Descends into the element if the next part is a position in this array and no element has a
    /// field of that name.
    fn enter_position(&mut self, array: RawArray<'d>) {
        let Cursor::At {
            path,
            next,
            value: RawValue::Array(own),
        } = *self
        else {
            return;
        };
        if !std::ptr::eq(own.as_bytes(), array.as_bytes()) {
            return;
        }
        let Some((position, name)) = path.part_index(next).zip(path.part(next)) else {
            return;
        };
        let is_field = |element: RawValue<'_>| {
            element
                .as_document()
                .is_some_and(|doc| doc.get(name).is_some())
        };
        if let Some(value) = array.get(position as usize)
            && !array.iter().any(is_field)
        {
            *self = Cursor::At {
                path,
                next: next + 1,
                value,
            };
        }
    }

    /// Continues the field in one element of the array that it reached.
    fn within(self, element: RawValue<'d>) -> Cursor<'d, 'p> {
        match self {
            // The path ends here: the element is the value, arrays included.
            Cursor::At { path, next, .. } if next == path.len() => Cursor::Done(element),
            Cursor::At { path, next, .. } => match element {
                RawValue::Document(_) => Cursor::At {
                    path,
                    next,
                    value: element,
                },
                _ => Cursor::Done(RawValue::Null),
            },
            done => done,
        }
    }
}
