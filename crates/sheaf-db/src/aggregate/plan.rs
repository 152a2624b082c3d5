//! A pipeline's prefix as a query, and the plan for it.

use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_bson::error_code::Error;
use sheaf_bson::path::FieldPath;
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::pipeline::{CursorPrefix, DistinctTake};
use sheaf_query::planner;
use sheaf_query::planner::solution::{ProjectionKind, QuerySolution, SolutionNode};
use sheaf_query::planner::statistics::Statistics;

use super::AggregateContext;
use crate::catalog::ReadView;
use crate::find;

/// The prefix as a query, and a plan that reads keys instead of documents if
/// the rest of the pipeline can live with that.
pub(super) fn plan(
    cx: &AggregateContext,
    view: &ReadView,
    prefix: &CursorPrefix,
    hint: Option<&Hint>,
) -> Result<(Arc<CanonicalQuery>, Option<QuerySolution>), Error> {
    let spec = |projection: Option<&DocBuf>| -> Result<CanonicalQuery, Error> {
        let spec = FindSpec {
            filter: Some(prefix.filter.as_raw()),
            sort: prefix.sort.as_ref().map(DocBuf::as_raw),
            projection: projection.map(DocBuf::as_raw),
            skip: prefix.skip,
            limit: prefix.limit,
            hint: hint.cloned(),
            ..Default::default()
        };
        CanonicalQuery::with_context(spec, cx.parse())
    };
    let plain = || spec(prefix.projection.as_ref()).map(|query| (Arc::new(query), None));
    if view.collection.is_none() || prefix.projection.is_some() {
        return plain();
    }
    let query = spec(None)?;
    let indexes = find::planning_indexes(view, &query)?;
    let statistics = find::statistics(view, cx.options())?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let params = find::params(&indexes, cx.options(), statistics);
    if prefix.counts_only() {
        if prefix.sort.is_none()
            && let Some(solution) = planner::plan_count(&query, &params)?
        {
            return Ok((Arc::new(query), Some(solution)));
        }
        return Ok((Arc::new(query), None));
    }
    let whole = prefix
        .dependencies
        .as_ref()
        .is_none_or(|dependencies| dependencies.whole_document);
    let Some(projection) = prefix.dependency_projection().filter(|_| !whole) else {
        return plain();
    };
    // Only an index can make it worth while to read fewer fields.
    if find::indexes(view).len() <= 1 && !prefix_reads_only_id(prefix) {
        return plain();
    }
    let reduced = spec(Some(&projection))?;
    if let Some(distinct) = &prefix.distinct
        && distinct.take == DistinctTake::Any
        && let Ok(path) = FieldPath::parse(&distinct.path)
        && let Some(solution) = planner::plan_distinct(&reduced, &path, &params)?
    {
        return Ok((Arc::new(reduced), Some(solution)));
    }
    // Fewer fields pay only where no document is read for them.
    let covered = planner::plan(&reduced, &params)?
        .iter()
        .any(|solution| is_covered(&solution.root));
    if covered {
        return Ok((Arc::new(reduced), None));
    }
    plain()
}

fn prefix_reads_only_id(prefix: &CursorPrefix) -> bool {
    prefix
        .dependencies
        .as_ref()
        .is_some_and(|d| d.paths.iter().all(|path| path == "_id"))
}

fn is_covered(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::Projection { kind, .. } => *kind == ProjectionKind::Covered,
        SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. } => is_covered(child),
        _ => false,
    }
}
