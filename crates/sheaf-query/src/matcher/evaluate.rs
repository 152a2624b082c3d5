//! Evaluates a filter on a document or a single value.
//!
//! Reads raw bytes in place without allocation. Only regexes (limits) and `$expr` can fail.

use std::ops::ControlFlow;

use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{Error, RawArray, RawDoc, RawValue};

use super::MatchExpression;

/// Details of a match: the position of the matching array element, for the positional `$` of
/// projections and updates.
///
/// With several arrays in the filter, the last predicate that traversed an array decides, in
/// normalised order. On one path with two arrays, the outermost decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// Position in the array; `None` if no predicate matched an array element.
    pub array_index: Option<u32>,
}

/// The origin of the paths of a filter.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A document.
    Doc(RawDoc<'a>),
    /// A value without a name, treated as the value of a field: arrays are traversed. Paths are
    /// ignored.
    Field(RawValue<'a>),
    /// An element under `$elemMatch`: arrays are not traversed. Paths are ignored.
    Element(RawValue<'a>),
}

impl MatchExpression {
    /// Whether the document passes.
    ///
    /// Errors: a regex that exceeds its limits (51156), and errors of `$expr`.
    #[inline]
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool, Error> {
        self.eval(Source::Doc(doc), None)
    }

    /// Like [`MatchExpression::matches`]; on a match, also records the matching array element.
    /// Resets `details` first.
    pub fn matches_with_details(
        &self,
        doc: RawDoc<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool, Error> {
        *details = MatchDetails::default();
        self.eval(Source::Doc(doc), Some(details))
    }

    /// Whether a value without an enclosing document passes, as in `$pull`; for the result of
    /// [`parse_predicate`](super::parse_predicate). Operators test the value as they would test a
    /// field with this value. For a filter with paths, call [`MatchExpression::matches`] on a value
    /// that is a document.
    pub fn matches_value(&self, value: RawValue<'_>) -> Result<bool, Error> {
        self.eval(Source::Field(value), None)
    }

    /// Like [`MatchExpression::matches_value`]; on a match, also records the matching array
    /// element. Resets `details` first.
    pub fn matches_value_with_details(
        &self,
        value: RawValue<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool, Error> {
        *details = MatchDetails::default();
        self.eval(Source::Field(value), Some(details))
    }

    fn eval<'a>(
        &self,
        source: Source<'a>,
        mut details: Option<&mut MatchDetails>,
    ) -> Result<bool, Error> {
        match self {
            MatchExpression::And(children) => {
                for child in children {
                    if !child.eval(source, details.as_deref_mut())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            MatchExpression::Or(children) => {
                for child in children {
                    // As in MongoDB, a branch does not determine the matching element.
                    if child.eval(source, None)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            MatchExpression::Nor(children) => {
                for child in children {
                    if child.eval(source, None)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            MatchExpression::Not(child) => Ok(!child.eval(source, None)?),
            MatchExpression::Comparison(c) => {
                any(source, &c.path, LeafArrayBehavior::Traverse, details, |v| {
                    Ok(c.test(v))
                })
            }
            MatchExpression::In(i) => {
                any(source, &i.path, LeafArrayBehavior::Traverse, details, |v| {
                    i.test(v)
                })
            }
            MatchExpression::Regex(r) => {
                any(source, &r.path, LeafArrayBehavior::Traverse, details, |v| {
                    r.test(v)
                })
            }
            MatchExpression::Mod {
                path,
                divisor,
                remainder,
            } => any(source, path, LeafArrayBehavior::Traverse, details, |v| {
                Ok(v.and_then(truncated)
                    .is_some_and(|n| n.wrapping_rem(*divisor) == *remainder))
            }),
            MatchExpression::Exists { path } => {
                any(source, path, LeafArrayBehavior::NoTraverse, details, |v| {
                    Ok(v.is_some())
                })
            }
            MatchExpression::Type { path, types } => {
                any(source, path, LeafArrayBehavior::Traverse, details, |v| {
                    Ok(v.is_some_and(|v| types.test(v)))
                })
            }
            MatchExpression::Bits(bits) => any(
                source,
                &bits.path,
                LeafArrayBehavior::Traverse,
                details,
                |v| Ok(v.is_some_and(|v| bits.test(v))),
            ),
            MatchExpression::Size { path, size } => {
                any(source, path, LeafArrayBehavior::NoTraverse, details, |v| {
                    Ok(matches!(v, Some(RawValue::Array(a)) if has_size(a, *size)))
                })
            }
            MatchExpression::ElemMatchObject { path, child } => {
                elem_match(source, path, details, |element| match element {
                    RawValue::Document(doc) => child.eval(Source::Doc(doc), None),
                    // An array is a document whose fields are its positions.
                    RawValue::Array(array) => child.eval(Source::Doc(array.as_doc()), None),
                    _ => Ok(false),
                })
            }
            MatchExpression::ElemMatchValue { path, children } => {
                elem_match(source, path, details, |element| {
                    for child in children {
                        if !child.eval(Source::Element(element), None)? {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                })
            }
            MatchExpression::Expr(expression) => match source {
                Source::Doc(doc) => expression.matches(doc),
                // The parser rejects $expr here.
                Source::Field(_) | Source::Element(_) => Ok(false),
            },
            MatchExpression::ExprComparison(c) => Ok(match source {
                Source::Doc(doc) => match single(doc, &c.path) {
                    Some(value) => c.test(value),
                    // The path traverses an array: only the $expr can decide.
                    None => true,
                },
                Source::Field(_) | Source::Element(_) => true,
            }),
            MatchExpression::JsonSchema(schema) => match source {
                Source::Doc(doc) => schema.matches(doc),
                Source::Field(_) | Source::Element(_) => Ok(false),
            },
            MatchExpression::AlwaysTrue => Ok(true),
            MatchExpression::AlwaysFalse => Ok(false),
        }
    }
}

/// Calls `visit` for each value of `path` in `source`, until it returns true or fails.
#[inline]
fn visit_source<'a>(
    source: Source<'a>,
    path: &FieldPath,
    leaf: LeafArrayBehavior,
    mut visit: impl FnMut(Option<RawValue<'a>>, Option<u32>) -> Result<bool, Error>,
) -> Result<bool, Error> {
    match source {
        Source::Doc(doc) => {
            let flow = for_each_value(doc, path, leaf, |item| {
                match visit(item.value(), item.array_index) {
                    Ok(false) => ControlFlow::Continue(()),
                    found_or_failed => ControlFlow::Break(found_or_failed),
                }
            });
            match flow {
                ControlFlow::Break(result) => result,
                ControlFlow::Continue(()) => Ok(false),
            }
        }
        Source::Field(value) => {
            if let (RawValue::Array(array), LeafArrayBehavior::Traverse) = (value, leaf) {
                for (index, element) in array.iter().enumerate() {
                    if visit(Some(element), Some(index as u32))? {
                        return Ok(true);
                    }
                }
            }
            visit(Some(value), None)
        }
        Source::Element(value) => visit(Some(value), None),
    }
}

/// The single value of a path (inner `None`: the field is missing); outer `None` if the path
/// reaches an array.
#[inline]
fn single<'a>(doc: RawDoc<'a>, path: &FieldPath) -> Option<Option<RawValue<'a>>> {
    let mut doc = doc;
    let mut parts = path.parts();
    let mut value = None;
    while let Some(part) = parts.next() {
        value = doc.get(part);
        match value {
            Some(RawValue::Array(_)) => return None,
            Some(RawValue::Document(inner)) => doc = inner,
            Some(_) if parts.len() > 0 => return Some(None),
            Some(_) | None => break,
        }
    }
    Some(value)
}

/// Whether one of the values of `path` passes `test`.
#[inline]
fn any<'a>(
    source: Source<'a>,
    path: &FieldPath,
    leaf: LeafArrayBehavior,
    details: Option<&mut MatchDetails>,
    test: impl Fn(Option<RawValue<'a>>) -> Result<bool, Error>,
) -> Result<bool, Error> {
    // Usually the path reaches no array and has exactly one value.
    if let Source::Doc(doc) = source
        && let Some(value) = single(doc, path)
    {
        return test(value);
    }
    let mut found = None;
    let matched = visit_source(source, path, leaf, |value, index| {
        let passes = test(value)?;
        if passes {
            found = index;
        }
        Ok(passes)
    })?;
    if let (true, Some(_), Some(details)) = (matched, found, details) {
        details.array_index = found;
    }
    Ok(matched)
}

/// Whether one of the arrays at `path` has an element that passes `test`.
fn elem_match<'a>(
    source: Source<'a>,
    path: &FieldPath,
    details: Option<&mut MatchDetails>,
    test: impl Fn(RawValue<'a>) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let mut found = None;
    let matched = visit_source(
        source,
        path,
        LeafArrayBehavior::NoTraverse,
        |value, outer| {
            let Some(RawValue::Array(array)) = value else {
                return Ok(false);
            };
            for (index, element) in array.iter().enumerate() {
                if test(element)? {
                    found = outer.or(Some(index as u32));
                    return Ok(true);
                }
            }
            Ok(false)
        },
    )?;
    if let (true, Some(details)) = (matched, details) {
        details.array_index = found;
    }
    Ok(matched)
}

/// Whether the array has exactly `size` elements. Stops counting after `size` + 1.
fn has_size(array: RawArray<'_>, size: i64) -> bool {
    let Ok(size) = usize::try_from(size) else {
        return false;
    };
    let mut elements = array.elements();
    if size > 0 && elements.nth(size - 1).is_none() {
        return false;
    }
    elements.next().is_none()
}

/// A number truncated to an integer; `None` for other values, NaN, and numbers beyond 64 bits.
fn truncated(value: RawValue<'_>) -> Option<i64> {
    super::operators::truncated_i64(value)
}
