//! A pipeline's prefix as a query, and the plan for it.

use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_bson::error_code::Error;
use sheaf_bson::path::FieldPath;
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::pipeline::{CursorPrefix, DistinctLike, DistinctTake};
use sheaf_query::planner;
use sheaf_query::planner::bounds::{IndexBounds, OrderedIntervalList};
use sheaf_query::planner::index_entry::{IndexEntry, IndexKind};
use sheaf_query::planner::solution::{IndexScanNode, ProjectionKind, QuerySolution, SolutionNode};
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
            inclusion: prefix.inclusion,
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
    if let Some(distinct) = &prefix.distinct
        && let Some(solution) = one_of_each(prefix, distinct, &query, &indexes)
    {
        return Ok((Arc::new(query), Some(solution)));
    }
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

/// A scan of one key for each value of the path, when an index has the documents in the order of which
/// the group wants the first or the last.
///
/// ```text
///   $sort {a: 1, b: 1}, $group by a, $first      index {a: 1, b: 1}   forward, the first key of each a
///                                  $last                              backward
/// ```
fn one_of_each(
    prefix: &CursorPrefix,
    distinct: &DistinctLike,
    query: &CanonicalQuery,
    indexes: &[Arc<IndexEntry>],
) -> Option<QuerySolution> {
    let backward = match distinct.take {
        DistinctTake::First => false,
        DistinctTake::Last => true,
        DistinctTake::Any => return None,
    };
    let sort = query.sort.as_ref()?;
    if !prefix.filter.is_empty() || query.hint.is_some() {
        return None;
    }
    let spec = sort.serialize();
    let wanted: Vec<(&str, i64)> = spec
        .iter()
        .map(|field| Some((field.key(), field.value().as_i64_exact()?)))
        .collect::<Option<_>>()?;
    indexes.iter().find_map(|index| {
        let fits = matches!(index.kind, IndexKind::Btree)
            // Of a clustered index every record is the only one of its `_id`, and has no key beside it.
            && !index.clustered
            && !index.multikey
            && !index.sparse
            && !index.hidden
            && index.partial_filter.is_none()
            // Keys by a collation have lost the text.
            && index.collator.is_none()
            && query.collator.is_none()
            && wanted.len() <= index.fields.len();
        if !fits {
            return None;
        }
        let pairs = index.fields.iter().zip(&wanted);
        let same = |sign: i64| {
            pairs.clone().all(|(field, (path, direction))| {
                field.path.dotted() == *path && i64::from(field.direction) == sign * direction
            })
        };
        let along = match (same(1), same(-1)) {
            (true, _) => true,
            (_, true) => false,
            _ => return None,
        };
        let fields = index.fields.iter();
        let all = fields.map(|f| OrderedIntervalList::all().named(f.path.dotted()));
        let all = IndexBounds::Fields(all.collect());
        let forward = along != backward;
        // Lists stand in the order in which the scan meets them.
        let bounds = in_scan_order(all, index, forward);
        let scan = IndexScanNode {
            index: index.clone(),
            bounds,
            direction: if forward { 1 } else { -1 },
            filter: None,
            dedup: false,
            skips: Default::default(),
        };
        let root = SolutionNode::Fetch {
            filter: None,
            child: Box::new(SolutionNode::DistinctScan { scan, fields: 1 }),
        };
        Some(QuerySolution {
            root,
            has_blocking_stage: false,
        })
    })
}

fn in_scan_order(bounds: IndexBounds, index: &IndexEntry, forward: bool) -> IndexBounds {
    let IndexBounds::Fields(lists) = bounds else {
        return bounds;
    };
    let lists = lists.into_iter().zip(&index.fields);
    IndexBounds::Fields(
        lists
            .map(|(list, field)| match (field.direction > 0) == forward {
                true => list,
                false => list.reversed(),
            })
            .collect(),
    )
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
