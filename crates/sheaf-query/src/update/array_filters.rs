//! `arrayFilters`: the conditions of `$[identifier]`.
//!
//! Each filter is a query on one field, the identifier. An element is accepted if the query matches
//! a document in which the identifier has the element as its value.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuilder, RawArray, RawDoc, RawValue};

use crate::matcher::{self, MatchExpression, ParseContext};

#[derive(Debug, Clone)]
struct ArrayFilter {
    identifier: Box<str>,
    filter: MatchExpression,
    used: bool,
}

/// The array filters of one update.
#[derive(Debug, Clone, Default)]
pub(super) struct ArrayFilters {
    filters: Vec<ArrayFilter>,
}

impl ArrayFilters {
    /// Parses `arrayFilters`. Errors: a filter that is not a document, that does not name exactly
    /// one field, or that repeats an identifier.
    pub(super) fn parse(specs: RawArray<'_>, context: &ParseContext) -> Result<ArrayFilters> {
        let mut filters: Vec<ArrayFilter> = Vec::new();
        for spec in specs {
            let RawValue::Document(spec) = spec else {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!(
                        "each of 'arrayFilters' must be an object, not {}",
                        spec.type_name()
                    ),
                ));
            };
            refuse_expr(spec)?;
            let filter = matcher::parse(spec, context)
                .map_err(|e| e.with_context("Error parsing array filter"))?;
            let mut identifier = None;
            find_identifier(spec, &mut identifier)?;
            let Some(identifier) = identifier else {
                return Err(failed(
                    "an array filter must name a field: it tests nothing as it is".into(),
                ));
            };
            check_identifier(identifier)?;
            if filters.iter().any(|f| &*f.identifier == identifier) {
                return Err(failed(format!(
                    "found multiple array filters with the same top-level field name {identifier}"
                )));
            }
            filters.push(ArrayFilter {
                identifier: identifier.into(),
                filter,
                used: false,
            });
        }
        Ok(ArrayFilters { filters })
    }

    /// The position of the filter with this identifier, which is marked as used; `None` if there is
    /// none.
    pub(super) fn take(&mut self, identifier: &str) -> Option<usize> {
        let at = self
            .filters
            .iter()
            .position(|f| &*f.identifier == identifier)?;
        self.filters[at].used = true;
        Some(at)
    }

    /// Errors: a filter that no path of the update uses.
    pub(super) fn check_all_used(&self, update: RawDoc<'_>) -> Result<()> {
        match self.filters.iter().find(|f| !f.used) {
            None => Ok(()),
            Some(unused) => Err(failed(format!(
                "the array filter for identifier '{}' was not used in the update {}",
                unused.identifier,
                shell(update)
            ))),
        }
    }

    /// Whether the filter at position `filter` accepts an element.
    pub(super) fn matches(&self, filter: usize, element: RawValue<'_>) -> Result<bool> {
        let Some(filter) = self.filters.get(filter) else {
            return Ok(false);
        };
        let mut wrapped = DocBuilder::new();
        wrapped.append(&filter.identifier, element);
        filter.filter.matches(wrapped.finish().as_raw())
    }
}

/// Errors: QueryFeatureNotAllowed for `$expr`, which tests documents and not elements.
fn refuse_expr(spec: RawDoc<'_>) -> Result<()> {
    for element in spec {
        match (element.key(), element.value()) {
            ("$expr", _) => {
                return Err(Error::new(
                    ErrorCode::QUERY_FEATURE_NOT_ALLOWED,
                    "$expr is not allowed in the query predicate for an array filter",
                ));
            }
            ("$and" | "$or" | "$nor", RawValue::Array(branches)) => {
                let mut branches = branches.iter().filter_map(|branch| branch.as_document());
                branches.try_for_each(refuse_expr)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn failed(message: String) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

/// Finds the single field of all predicates, including those below `$and`, `$or` and `$nor`.
fn find_identifier<'a>(spec: RawDoc<'a>, found: &mut Option<&'a str>) -> Result<()> {
    for element in spec {
        let key = element.key();
        if let RawValue::Array(branches) = element.value()
            && matches!(key, "$and" | "$or" | "$nor")
        {
            for branch in branches {
                if let RawValue::Document(branch) = branch {
                    find_identifier(branch, found)?;
                }
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        let identifier = key.split('.').next().unwrap_or(key);
        match found {
            Some(before) if *before != identifier => {
                return Err(failed(format!(
                    "Error parsing array filter :: caused by :: Expected a single top-level field name, found '{before}' and '{identifier}'"
                )));
            }
            _ => *found = Some(identifier),
        }
    }
    Ok(())
}

fn check_identifier(identifier: &str) -> Result<()> {
    let mut letters = identifier.bytes();
    let valid = letters.next().is_some_and(|b| b.is_ascii_lowercase())
        && letters.all(|b| b.is_ascii_alphanumeric());
    if valid {
        return Ok(());
    }
    Err(Error::bad_value(format!(
        "the top-level field name of an array filter must be an alphanumeric string beginning with a lowercase letter, found '{identifier}'"
    )))
}
