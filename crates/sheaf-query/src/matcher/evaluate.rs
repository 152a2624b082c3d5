//! Whether a document, or a single value, passes a filter.
//!
//! Reads raw bytes in place and allocates nothing. Only regexes (limits) and
//! `$expr` can fail.

use std::ops::ControlFlow;

use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{Error, RawArray, RawDoc, RawValue};

use super::MatchExpression;

/// What a match learned by the way: which array element it was that matched,
/// for the positional `$` of projections and updates.
///
/// With several arrays in the filter the last predicate that ran over one
/// decides, in normalised order; under one path with two arrays, the outermost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// Position in the array; `None` when no predicate matched through one.
    pub array_index: Option<u32>,
}

/// What the paths of a filter start from.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A document.
    Doc(RawDoc<'a>),
    /// A value without a name, as if it were a field's: an array is entered.
    /// Paths do not matter.
    Field(RawValue<'a>),
    /// An element under `$elemMatch`: an array is itself. Paths do not matter.
    Element(RawValue<'a>),
}

impl MatchExpression {
    /// Whether the document passes.
    ///
    /// Errors: a regex beyond its limits (51156), and whatever `$expr` raises.
    #[inline]
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool, Error> {
        self.eval(Source::Doc(doc), None)
    }

    /// As [`MatchExpression::matches`]; when the answer is true, also says which
    /// array element it was. `details` is reset first.
    pub fn matches_with_details(
        &self,
        doc: RawDoc<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool, Error> {
        *details = MatchDetails::default();
        self.eval(Source::Doc(doc), Some(details))
    }

    /// Whether a value passes that has no document around it, as `$pull` asks:
    /// for what [`parse_predicate`](super::parse_predicate) gave. Operators test
    /// the value as they would test a field that holds it. For a filter with
    /// paths, match the document that the value is.
    pub fn matches_value(&self, value: RawValue<'_>) -> Result<bool, Error> {
        self.eval(Source::Field(value), None)
    }

    /// As [`MatchExpression::matches_value`]; when the answer is true, also says
    /// which array element it was. `details` is reset first.
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
                    if child.eval(source, details.as_deref_mut())? {
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
                // The parser lets no $expr in here.
                Source::Field(_) | Source::Element(_) => Ok(false),
            },
            MatchExpression::ExprComparison(c) => Ok(match source {
                Source::Doc(doc) => match single(doc, &c.path) {
                    Some(value) => c.test(value),
                    // Which array an expression makes of this is for the $expr to say.
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

/// Runs `visit` over what `path` means in `source`, until it answers true or fails.
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

/// The one value of a path (`None`: it is missing); `None` when the path meets
/// an array.
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
    // Mostly there is no array on the path, and so exactly one value.
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

/// Counts no further than needed.
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

/// A number without its fraction; `None` for what is no number, NaN, or beyond 64 bits.
fn truncated(value: RawValue<'_>) -> Option<i64> {
    super::operators::truncated_i64(value)
}
