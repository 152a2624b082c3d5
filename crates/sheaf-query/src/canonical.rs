//! The canonical query: a parsed and normalised find, shared by the planner, the plan cache and the
//! executor.
//!
//! ```text
//!   FindSpec (borrowed parts of the command)
//!      filter ──parse, normalize──> Arc<MatchExpression>
//!      sort ────parse─────────────> Arc<SortPattern>, or a $natural hint
//!      projection ──parse─────────> Arc<Projection>
//!      hint, min, max ────────────> checked for consistency
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::{CollationChoice, Collator, DateTime, DocBuf, Error, RawDoc, RawValue};

use crate::expression::VariableScope;
use crate::matcher::{self, MatchExpression, ParseContext};
use crate::projection::{MetaField, Projection, parse_inclusion};
use crate::sort::{SortPattern, SortSpec};

/// A find before normalisation: the borrowed parts of the command.
#[derive(Debug, Clone, Default)]
pub struct FindSpec<'a> {
    /// An empty filter matches everything.
    pub filter: Option<RawDoc<'a>>,
    /// An empty sort means no order.
    pub sort: Option<RawDoc<'a>>,
    /// An empty projection keeps whole documents.
    pub projection: Option<RawDoc<'a>>,
    /// Whether the projection is an inclusion that was derived from a pipeline, even if its fields
    /// do not show it.
    pub inclusion: bool,
    /// Whether the reader of the projected documents treats a missing field as null.
    pub null_serves: bool,
    /// The part of the query shape that the remaining stages of a pipeline add.
    pub follows: &'a str,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number of documents; `None` and 0 mean no limit.
    pub limit: Option<u64>,
    /// Index name, key pattern or `{$natural: ±1}`.
    pub hint: Option<Hint>,
    /// `min()`: inclusive lower index key.
    pub min: Option<RawDoc<'a>>,
    /// `max()`: exclusive upper index key.
    pub max: Option<RawDoc<'a>>,
    /// Return index keys instead of documents.
    pub return_key: bool,
    /// Add `$recordId`.
    pub show_record_id: bool,
    /// The `let` variables of the command: expressions without fields.
    pub let_vars: Option<RawDoc<'a>>,
    /// `collation`. The caller resolves it with the default collation of the collection.
    pub collation: CollationChoice,
}

/// The index that the user requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Hint {
    /// By name.
    Name(String),
    /// By key pattern.
    KeyPattern(DocBuf),
    /// `{$natural: 1}` or `-1`: a collection scan in that direction.
    Natural(i8),
}

impl Hint {
    /// Parses the `hint` of a command: an index name or a key pattern. `None` for an empty
    /// document, which means no hint.
    ///
    /// Errors: FailedToParse for another type, BadValue for an invalid `$natural`.
    pub fn parse(value: RawValue<'_>) -> Result<Option<Hint>, Error> {
        match value {
            RawValue::String(name) => Ok(Some(Hint::Name(name.to_owned()))),
            RawValue::Document(doc) if doc.is_empty() => Ok(None),
            RawValue::Document(doc) => match doc.get("$natural") {
                None => Ok(Some(Hint::KeyPattern(doc.to_buf()))),
                Some(direction) => match (direction.as_i64_exact(), doc.iter().nth(1)) {
                    (Some(n @ (1 | -1)), None) => Ok(Some(Hint::Natural(n as i8))),
                    (Some(1 | -1), Some(_)) => Err(Error::bad_value(
                        "a $natural hint cannot be combined with other fields",
                    )),
                    _ => Err(Error::bad_value(
                        "$natural hint cannot be set to a value other than -1 or 1.",
                    )),
                },
            },
            _ => Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                format!(
                    "hint must be an index name or a key pattern, not {}",
                    value.type_name()
                ),
            )),
        }
    }
}

/// Whether the filter contains `$expr`.
fn uses_expr(filter: &MatchExpression) -> bool {
    match filter {
        MatchExpression::And(children)
        | MatchExpression::Or(children)
        | MatchExpression::Nor(children) => children.iter().any(uses_expr),
        MatchExpression::Not(child) => uses_expr(child),
        MatchExpression::Expr(_) => true,
        _ => false,
    }
}

/// A find in normal form. Immutable, shared by all candidate plans.
#[derive(Debug, Clone)]
pub struct CanonicalQuery {
    /// The normalised filter.
    pub filter: Arc<MatchExpression>,
    /// `None` means no order; `{$natural: n}` is converted to a hint.
    pub sort: Option<Arc<SortPattern>>,
    /// The sort as specified by the user (for shapes and messages).
    pub sort_spec: DocBuf,
    /// `None` keeps whole documents.
    pub projection: Option<Arc<Projection>>,
    /// The projection as specified by the user.
    pub projection_spec: DocBuf,
    /// Whether a projection may return null for a missing field, so that index keys suffice.
    pub null_serves: bool,
    /// The part of the query shape that the remaining stages of a pipeline add; empty for a find.
    pub follows: String,
    /// The filter as specified by the user.
    pub filter_spec: DocBuf,
    /// Number of documents to skip.
    pub skip: u64,
    /// Maximum number of documents; `None` means no limit; never `Some(0)`.
    pub limit: Option<u64>,
    /// The requested index, if any.
    pub hint: Option<Hint>,
    /// `min()`.
    pub min: Option<DocBuf>,
    /// `max()`.
    pub max: Option<DocBuf>,
    /// Return index keys instead of documents.
    pub return_key: bool,
    /// Add `$recordId`.
    pub show_record_id: bool,
    /// The collation for text; `None` to compare by bytes. Filter, sort and projection hold the
    /// same collator.
    pub collator: Option<Arc<Collator>>,
}

impl CanonicalQuery {
    /// Parses and normalises a find on a collection without a default collation. `$$NOW` is `now`.
    ///
    /// Errors: those of filter, sort and projection; BadValue for contradictory `$natural`s; 51173,
    /// 51176 and BadValue for an invalid `min` or `max`.
    pub fn new(now: DateTime, spec: FindSpec<'_>) -> Result<CanonicalQuery, Error> {
        let collator = spec.collation.resolve(None);
        let context = ParseContext {
            variables: VariableScope::new(now).with_collator(collator),
        };
        CanonicalQuery::with_context(spec, &context)
    }

    /// Like [`CanonicalQuery::new`]; `context` provides the time and the variables for `$expr` and
    /// computed fields, to which [`FindSpec::let_vars`] are added, and the collation.
    pub fn with_context(
        spec: FindSpec<'_>,
        context: &ParseContext,
    ) -> Result<CanonicalQuery, Error> {
        let with_let;
        let context = match spec.let_vars {
            Some(vars) if !vars.is_empty() => {
                with_let = ParseContext {
                    variables: context.variables.clone().with_let(vars)?,
                };
                &with_let
            }
            _ => context,
        };
        let filter_doc = spec.filter.unwrap_or(RawDoc::EMPTY);
        let filter = matcher::parse(filter_doc, context)?.normalize();
        let sort_doc = spec.sort.unwrap_or(RawDoc::EMPTY);
        let (sort, hint) = sort_and_hint(SortSpec::parse(sort_doc)?, spec.hint)?;
        let projection_doc = spec.projection.unwrap_or(RawDoc::EMPTY);
        let projection = match projection_doc.is_empty() {
            true => None,
            false if spec.inclusion => Some(parse_inclusion(projection_doc, context)?),
            false => Some(Projection::parse(projection_doc, context)?),
        };
        if projection
            .as_ref()
            .is_some_and(Projection::needs_match_details)
            && uses_expr(&filter)
        {
            return Err(Error::new(
                ErrorCode::QUERY_FEATURE_NOT_ALLOWED,
                "$expr is not allowed with a positional projection: it does not determine an element",
            ));
        }
        let projection = match projection {
            Some(projection) if spec.show_record_id => Some(projection.with_record_id()),
            other => other,
        };
        if sort.is_none()
            && projection
                .as_ref()
                .is_some_and(|p| p.needs(MetaField::SortKey))
        {
            return Err(Error::bad_value(
                "cannot use sortKey $meta projection without a sort",
            ));
        }
        let min = spec.min.filter(|doc| !doc.is_empty());
        let max = spec.max.filter(|doc| !doc.is_empty());
        check_min_max(min, max, hint.as_ref())?;
        Ok(CanonicalQuery {
            filter: Arc::new(filter),
            sort: sort.map(|pattern| Arc::new(pattern.with_collator(context.collator().cloned()))),
            sort_spec: sort_doc.to_buf(),
            projection: projection.map(Arc::new),
            projection_spec: projection_doc.to_buf(),
            null_serves: spec.null_serves,
            follows: spec.follows.to_owned(),
            filter_spec: filter_doc.to_buf(),
            skip: spec.skip,
            limit: spec.limit.filter(|&limit| limit > 0),
            hint,
            min: min.map(RawDoc::to_buf),
            max: max.map(RawDoc::to_buf),
            return_key: spec.return_key,
            show_record_id: spec.show_record_id,
            collator: context.collator().cloned(),
        })
    }

    /// Number of results that a blocking sort must keep: limit plus skip. `None` means all.
    pub fn sort_limit(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_add(self.skip))
    }

    /// The dotted paths that filter, sort and projection read; `None` if the whole document is
    /// needed.
    pub fn required_fields(&self) -> Option<matcher::Dependencies> {
        let mut found = self.projection.as_ref()?.dependencies()?;
        self.filter.add_dependencies(&mut found);
        if let Some(sort) = &self.sort {
            sort.paths().for_each(|path| found.insert(path));
        }
        (!found.whole_document).then_some(found)
    }
}

/// Converts `sort({$natural: n})` to a hint. Errors: BadValue if it contradicts another hint.
fn sort_and_hint(
    sort: SortSpec,
    hint: Option<Hint>,
) -> Result<(Option<SortPattern>, Option<Hint>), Error> {
    match (sort, hint) {
        (SortSpec::None, hint) => Ok((None, hint)),
        (SortSpec::Pattern(pattern), hint) => Ok((Some(pattern), hint)),
        (SortSpec::Natural(direction), None) => Ok((None, Some(Hint::Natural(direction)))),
        (SortSpec::Natural(wanted), Some(Hint::Natural(hinted))) if wanted == hinted => {
            Ok((None, Some(Hint::Natural(wanted))))
        }
        (SortSpec::Natural(_), Some(_)) => Err(Error::bad_value(
            "a $natural sort cannot be combined with a hint that says otherwise",
        )),
    }
}

/// Checks `min` and `max` as far as possible without the index: both have the same fields, they
/// require a hint, and they contain values.
fn check_min_max(
    min: Option<RawDoc<'_>>,
    max: Option<RawDoc<'_>>,
    hint: Option<&Hint>,
) -> Result<(), Error> {
    if min.is_none() && max.is_none() {
        return Ok(());
    }
    match hint {
        Some(Hint::Name(_) | Hint::KeyPattern(_)) => {}
        Some(Hint::Natural(_)) => {
            return Err(Error::new(
                ErrorCode::NO_QUERY_EXECUTION_PLANS,
                "min and max are incompatible with $natural",
            ));
        }
        None => {
            return Err(Error::new(
                ErrorCode(51173),
                "When using min()/max() a hint of which index to use must be provided",
            ));
        }
    }
    if let (Some(min), Some(max)) = (min, max) {
        let same_fields = min
            .iter()
            .map(|e| e.key_bytes())
            .eq(max.iter().map(|e| e.key_bytes()));
        if !same_fields {
            return Err(Error::new(
                ErrorCode(51176),
                "min and max must have the same field names, in the same order",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
