//! The filter of a partial index: the supported operators, and the fields they read.
//!
//! An index filter is limited to operators for which the planner can prove that a query implies it:
//! equality, `$in`, the four comparisons, `$exists: true`, `$type`, combined by `$and` and `$or`.

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, Error, ErrorCode, RawDoc, RawValue, Result};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::{MatchExpression, ParseContext, parse};

use crate::index::definition::cannot_create;

/// Levels of `$and` and `$or` in a filter.
const LEVELS_MAX: usize = 4;

/// A partial index's filter, and the fields it reads.
#[derive(Debug, Clone)]
pub struct PartialFilter {
    expression: Arc<MatchExpression>,
    reads: Vec<FieldPath>,
}

impl PartialFilter {
    /// Parses and checks the filter of an index that compares text by this collation. Errors:
    /// `QueryFeatureNotAllowed` for `$expr`, `CannotCreateIndex` for another operator that index
    /// filters do not support, and those of parsing.
    pub fn parse(filter: RawDoc<'_>, collator: Option<Arc<Collator>>) -> Result<PartialFilter> {
        if has_expr(filter) {
            return Err(Error::new(
                ErrorCode::QUERY_FEATURE_NOT_ALLOWED,
                "$expr is not allowed in the filter of a partial index",
            ));
        }
        let context = ParseContext {
            variables: VariableScope::default().with_collator(collator),
        };
        let parsed = parse(filter, &context)
            .map_err(|e| e.with_context("unsupported expression in partial index"))?;
        check(&parsed, 0)?;
        let mut reads = Vec::new();
        for path in &parsed.dependencies().paths {
            reads.push(FieldPath::parse_lenient(path).map_err(|e| cannot_create(e.message()))?);
        }
        Ok(PartialFilter {
            expression: Arc::new(parsed.normalize()),
            reads,
        })
    }

    /// The normalised filter, as the planner compares it with queries.
    pub fn expression(&self) -> &Arc<MatchExpression> {
        &self.expression
    }

    /// Whether the document belongs to the index.
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool> {
        self.expression.matches(doc)
    }

    /// The fields that the filter reads.
    pub fn reads(&self) -> &[FieldPath] {
        &self.reads
    }
}

/// Whether the filter, or one that it combines by `$and` and its relatives, has an `$expr`.
/// Recursion is bounded by the nesting limit of documents.
fn has_expr(filter: RawDoc<'_>) -> bool {
    filter.iter().any(|element| match element.value() {
        _ if element.key() == "$expr" => true,
        RawValue::Array(filters) if element.key().starts_with('$') => {
            filters.iter().filter_map(|f| f.as_document()).any(has_expr)
        }
        _ => false,
    })
}

/// Errors: `CannotCreateIndex` for an operator that index filters do not support, or below
/// [`LEVELS_MAX`] levels of `$and` and `$or`.
fn check(expression: &MatchExpression, level: usize) -> Result<()> {
    if level > LEVELS_MAX {
        return Err(cannot_create(format!(
            "the filter of a partial index may have {LEVELS_MAX} levels of $and and $or"
        )));
    }
    match expression {
        MatchExpression::And(children) | MatchExpression::Or(children) => children
            .iter()
            .try_for_each(|child| check(child, level + 1)),
        MatchExpression::Comparison(_)
        | MatchExpression::Exists { .. }
        | MatchExpression::Type { .. } => Ok(()),
        MatchExpression::In(list) if list.regexes.is_empty() => Ok(()),
        MatchExpression::AlwaysFalse | MatchExpression::AlwaysTrue => Ok(()),
        other => Err(cannot_create(format!(
            "unsupported expression in partial index: {}; use equality, $in, $gt, $gte, $lt, $lte, \
             $exists: true, $type, $and, $or",
            other.serialize()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn a_filter_has_few_levels() {
        let nested = |levels: usize| {
            (0..levels).fold(doc! {"a": 1}, |inner, _| {
                doc! {"$or": [inner, doc! {"b": 1}]}
            })
        };
        assert!(PartialFilter::parse(nested(4).as_raw(), None).is_ok());
        let refused = PartialFilter::parse(nested(5).as_raw(), None).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::CANNOT_CREATE_INDEX);
    }

    #[test]
    fn which_filters_an_index_can_have() {
        for taken in [
            doc! {},
            doc! {"a": 1},
            doc! {"a": {"$gt": 1, "$lte": 5}, "b": {"$exists": true}},
            doc! {"$and": [{"a": {"$type": "string"}}, {"$or": [{"b": 1}, {"c": {"$in": [1, 2]}}]}]},
        ] {
            assert!(
                PartialFilter::parse(taken.as_raw(), None).is_ok(),
                "{taken}"
            );
        }
        for refused in [
            doc! {"a": {"$ne": 1}},
            doc! {"a": {"$exists": false}},
            doc! {"$nor": [{"a": 1}]},
            doc! {"a": {"$mod": [2, 0]}},
            doc! {"a": {"$size": 1}},
            doc! {"a": {"$elemMatch": {"b": 1}}},
            doc! {"a": {"$regex": "x"}},
            doc! {"$or": [{"a": {"$not": {"$gt": 1}}}]},
        ] {
            let error = PartialFilter::parse(refused.as_raw(), None).unwrap_err();
            assert_eq!(error.code().0, 67, "{refused}");
        }
        for refused in [
            doc! {"$expr": {"$eq": ["$a", 1]}},
            doc! {"$and": [{"a": 1}, {"$expr": {"$lt": ["$a", "$$NOW"]}}]},
        ] {
            let found = PartialFilter::parse(refused.as_raw(), None);
            let code = found.unwrap_err().code();
            assert_eq!(code, ErrorCode::QUERY_FEATURE_NOT_ALLOWED, "{refused}");
        }
    }

    #[test]
    fn what_a_filter_reads() {
        let filter = PartialFilter::parse(doc! {"a.b": 1, "c": {"$gt": 2}}.as_raw(), None).unwrap();
        let reads: Vec<&str> = filter.reads().iter().map(FieldPath::dotted).collect();
        assert_eq!(reads, ["a.b", "c"]);
        let matches = |doc: sheaf_bson::DocBuf| filter.matches(doc.as_raw()).unwrap();
        assert!(matches(doc! {"a": [{"b": 1}], "c": 3}));
        assert!(!matches(doc! {"a": [{"b": 1}], "c": 2}));
    }
}
