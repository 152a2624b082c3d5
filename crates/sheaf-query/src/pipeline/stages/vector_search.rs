//! `$vectorSearch`: the documents whose vectors are most similar to the query vector, most similar
//! first.
//!
//! ```text
//!   {$vectorSearch: {index, path, queryVector, numCandidates | exact: true, limit, filter}}
//!        │ parse                                                            │ only what indexes can decide
//!        ▼                                                                  ▼
//!   VectorSearch, a pipeline's source                      $and $or $nor $not $eq $ne $gt.. $in $nin $exists
//! ```
//!
//! It is a source: the caller that runs the pipeline resolves the index and produces the documents.
//! It is not allowed within `$lookup` and `$facet`, and in the definition of a view.
//!
//! Source: the manual's page on `$vectorSearch`.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, RawElement, RawValue, Value};

use crate::matcher::{self, MatchExpression};
use crate::pipeline::PipelineSource;
use crate::pipeline::stage::{ParsedStage, StageContext};
use crate::vector::{DIMENSIONS_MAX, QueryVector};

/// The stage's name.
pub const NAME: &str = "$vectorSearch";

/// Maximum number of candidates of an approximate search.
const CANDIDATES_MAX: i64 = 10_000;

/// A parsed `$vectorSearch`.
#[derive(Debug, Clone)]
pub struct VectorSearch {
    /// Name of the index.
    pub index: Box<str>,
    /// The field whose vectors are compared.
    pub path: Box<str>,
    /// The vector to compare with.
    pub query: QueryVector,
    /// Maximum number of results; at least 1.
    pub limit: usize,
    /// Number of neighbours that an approximate search considers, at least `limit`; `None` for an
    /// exact search, which considers all.
    pub candidates: Option<usize>,
    /// Only matching documents are considered; `None` considers all.
    pub filter: Option<Arc<MatchExpression>>,
    /// The operand as specified by the user.
    pub spec: DocBuf,
}

impl VectorSearch {
    /// The paths that the filter tests, possibly with duplicates.
    pub fn filter_paths(&self) -> Vec<Arc<FieldPath>> {
        let mut found = Vec::new();
        let mut left: Vec<&MatchExpression> = self.filter.iter().map(|filter| &**filter).collect();
        while let Some(node) = left.pop() {
            found.extend(node.path().cloned());
            match node {
                MatchExpression::And(children)
                | MatchExpression::Or(children)
                | MatchExpression::Nor(children) => left.extend(children),
                MatchExpression::Not(child) => left.push(child),
                _ => {}
            }
        }
        found
    }
}

/// Parses the operand.
///
/// Errors: TypeMismatch, BadValue, 40414 for a missing option, 40415 for an unknown option, those
/// of filters; NotImplemented for operators and options that MongoDB supports but sheaf does not.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("{NAME} takes an object, not {}", value.type_name()),
        ));
    };
    let (mut index, mut path, mut query, mut limit) = (None, None, None, None);
    let (mut candidates, mut exact, mut filter) = (None, false, None);
    for element in spec {
        match element.key() {
            "index" => index = Some(text(&element)?),
            "path" => path = Some(text(&element)?),
            "queryVector" => {
                query = Some(QueryVector::of(element.value()).ok_or_else(|| {
                    Error::bad_value(format!(
                        "'{NAME}.queryVector' must be an array of 1 to {DIMENSIONS_MAX} finite numbers, or \
                         such a vector as binary data of subtype 9"
                    ))
                })?);
            }
            "limit" => limit = Some(positive(&element)?),
            "numCandidates" => candidates = Some(positive(&element)?),
            "exact" => match element.value() {
                RawValue::Boolean(value) => exact = value,
                _ => return Err(wrong_type(&element, "bool")),
            },
            "filter" => match element.value() {
                RawValue::Document(spec) => {
                    let parsed = matcher::parse(spec, context.parse)
                        .map_err(|e| e.with_context(format_args!("{NAME}.filter")))?;
                    check_filter(&parsed)?;
                    filter = Some(Arc::new(parsed.normalize()));
                }
                _ => return Err(wrong_type(&element, "object")),
            },
            known @ ("query"
            | "model"
            | "explainOptions"
            | "searchNodePreference"
            | "returnStoredSource"
            | "parentFilter"
            | "nestedOptions") => {
                return Err(Error::new(
                    ErrorCode::NOT_IMPLEMENTED,
                    format!("'{NAME}.{known}' is not supported"),
                ));
            }
            other => {
                return Err(fields::unknown_field(format_args!("{NAME}.{other}")));
            }
        }
    }
    let limit = limit.ok_or_else(|| missing("limit"))?;
    let candidates = match (exact, candidates) {
        (true, None) => None,
        (true, Some(_)) => {
            return Err(Error::bad_value(format!(
                "'{NAME}.numCandidates' must be left out where 'exact' is true: every vector is a candidate"
            )));
        }
        (false, None) => {
            return Err(Error::bad_value(format!(
                "'{NAME}' needs 'numCandidates', or 'exact: true'"
            )));
        }
        (false, Some(n)) if n > CANDIDATES_MAX => {
            return Err(Error::bad_value(format!(
                "'{NAME}.numCandidates' can be {CANDIDATES_MAX} at most, not {n}"
            )));
        }
        (false, Some(n)) if n < limit => {
            return Err(Error::bad_value(format!(
                "'{NAME}.numCandidates' ({n}) must not be less than 'limit' ({limit})"
            )));
        }
        (false, Some(n)) => Some(n as usize),
    };
    let search = VectorSearch {
        index: index.ok_or_else(|| missing("index"))?,
        path: path.ok_or_else(|| missing("path"))?,
        query: query.ok_or_else(|| missing("queryVector"))?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        candidates,
        filter,
        spec: spec.to_buf(),
    };
    Ok(ParsedStage::Source(PipelineSource::VectorSearch {
        search: Arc::new(search),
        with_score: false,
    }))
}

/// Errors: NotImplemented for an operator or operand that is not supported in the filter of a
/// search.
fn check_filter(filter: &MatchExpression) -> Result<()> {
    let mut left = vec![filter];
    while let Some(node) = left.pop() {
        let refused = match node {
            MatchExpression::And(children)
            | MatchExpression::Or(children)
            | MatchExpression::Nor(children) => {
                left.extend(children);
                continue;
            }
            MatchExpression::Not(child) => {
                left.push(child);
                continue;
            }
            MatchExpression::Comparison(comparison) => {
                check_value(&comparison.value)?;
                continue;
            }
            MatchExpression::In(list) if list.regexes.is_empty() => {
                list.equalities.iter().try_for_each(check_value)?;
                continue;
            }
            MatchExpression::Exists { .. }
            | MatchExpression::AlwaysTrue
            | MatchExpression::AlwaysFalse => continue,
            MatchExpression::In(_) | MatchExpression::Regex(_) => "$regex",
            MatchExpression::Mod { .. } => "$mod",
            MatchExpression::Type { .. } => "$type",
            MatchExpression::Size { .. } => "$size",
            MatchExpression::ElemMatchObject { .. } | MatchExpression::ElemMatchValue { .. } => {
                "$elemMatch"
            }
            MatchExpression::Bits(_) => "the $bits operators",
            MatchExpression::Expr(_) | MatchExpression::ExprComparison(_) => "$expr",
            MatchExpression::JsonSchema(_) => "$jsonSchema",
        };
        return Err(Error::new(
            ErrorCode::NOT_IMPLEMENTED,
            format!(
                "'{NAME}.filter' does not support {refused}; it can have $eq, $ne, $gt, $gte, $lt, $lte, \
                 $in, $nin, $exists, $and, $or, $nor and $not. Use a $match after the stage for other conditions"
            ),
        ));
    }
    Ok(())
}

fn check_value(value: &Value) -> Result<()> {
    let value = value.as_raw();
    let fits = value.is_number()
        || matches!(
            value,
            RawValue::Boolean(_)
                | RawValue::DateTime(_)
                | RawValue::ObjectId(_)
                | RawValue::String(_)
                | RawValue::Null
                | RawValue::Binary { subtype: 4, .. }
        );
    if fits {
        return Ok(());
    }
    Err(Error::bad_value(format!(
        "'{NAME}.filter' compares with numbers, strings, booleans, dates, object ids, UUIDs and null, not \
         with {}",
        value.type_name()
    )))
}

fn text(element: &RawElement<'_>) -> Result<Box<str>> {
    match element.value() {
        RawValue::String("") => Err(Error::bad_value(format!(
            "'{NAME}.{}' must not be empty",
            element.key()
        ))),
        RawValue::String(text) => Ok(text.into()),
        _ => Err(wrong_type(element, "string")),
    }
}

/// A positive 32-bit integer, of any numeric type that represents it exactly.
fn positive(element: &RawElement<'_>) -> Result<i64> {
    if !element.value().is_number() {
        return Err(wrong_type(element, "int"));
    }
    let fits = |n: &i64| (1..=i64::from(i32::MAX)).contains(n);
    element.value().as_i64_exact().filter(fits).ok_or_else(|| {
        Error::bad_value(format!(
            "'{NAME}.{}' must be a whole number from 1 to {}",
            element.key(),
            i32::MAX
        ))
    })
}

fn wrong_type(element: &RawElement<'_>, expected: &str) -> Error {
    let field = format_args!("{NAME}.{}", element.key());
    fields::wrong_type(field, element.value(), expected)
}

fn missing(option: &str) -> Error {
    fields::missing_field(format_args!("{NAME}.{option}"))
}
