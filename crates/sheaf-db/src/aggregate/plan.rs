//! Plans the prefix of a pipeline as a query.

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, DocBuilder};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::pipeline::{CursorPrefix, DistinctLike, DistinctTake};
use sheaf_query::planner::bounds::{IndexBounds, OrderedIntervalList};
use sheaf_query::planner::index_entry::{IndexEntry, IndexKind};
use sheaf_query::planner::solution::{ProjectionKind, QuerySolution, SolutionNode};
use sheaf_query::planner::statistics::{FETCH_COST, SCAN_COST, SEEK_COST, Statistics};
use sheaf_query::planner::{self, PlannerParams};

use super::AggregateContext;
use crate::catalog::ReadView;
use crate::planning;

/// A sort that keeps at most this many documents holds them whole.
const FEW: u64 = 100;

/// Converts the prefix to a query, with a plan that reads keys instead of documents if the rest of
/// the pipeline permits.
pub(super) fn plan(
    cx: &AggregateContext,
    view: &ReadView,
    prefix: &CursorPrefix,
    hint: Option<&Hint>,
) -> Result<(Arc<CanonicalQuery>, Option<QuerySolution>), Error> {
    let spec = |projection: Option<&DocBuf>| -> Result<CanonicalQuery, Error> {
        let spec = FindSpec {
            projection: projection.map(DocBuf::as_raw),
            hint: hint.cloned(),
            ..prefix.find_spec()
        };
        CanonicalQuery::with_context(spec, cx.parse())
    };
    if view.collection.is_none() || prefix.projection.is_some() {
        return Ok((Arc::new(spec(prefix.projection.as_ref())?), None));
    }
    let query = Arc::new(spec(None)?);
    let indexes = planning::planning_indexes(view, &query, cx.options())?;
    let statistics = cx.options().statistics(view)?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let params = cx.options().params(&indexes, statistics);
    if prefix.counts_only() {
        if prefix.sort.is_none()
            && let Some(solution) = planner::plan_count(&query, &params)?
        {
            return Ok((query, Some(solution)));
        }
        return Ok((query, None));
    }
    let whole = prefix
        .dependencies
        .as_ref()
        .is_none_or(|dependencies| dependencies.whole_document);
    let dependencies = prefix.dependency_projection().filter(|_| !whole);
    if let Some(distinct) = prefix.distinct.as_ref().filter(|_| hint.is_none()) {
        for order in orders_of(distinct, prefix) {
            // First try a plan that reads keys alone, then one that fetches documents.
            for projection in dependencies.iter().map(Some).chain([None]) {
                let query = sorted_query(cx, prefix, &order, projection)?;
                if let Some(solution) = one_of_each(distinct, &query, &params)? {
                    return Ok((Arc::new(query), Some(solution)));
                }
            }
        }
    }
    let Some(projection) = dependencies else {
        return Ok((query, None));
    };
    // A blocking sort of many documents holds them: without the fields that no stage reads. To keep
    // a few of all, narrowing each costs more than it saves.
    let has_indexes = planning::indexes_of(view).len() > 1;
    if prefix.sort.is_some()
        && prefix.limit.is_none_or(|limit| limit > FEW)
        && (prefix.distinct.is_none() || !has_indexes)
        && let Ok(reduced) = spec(Some(&projection))
    {
        let solutions = planner::plan(&reduced, &params)?;
        if solutions.iter().all(|solution| solution.has_blocking_stage) {
            return Ok((Arc::new(reduced), None));
        }
    }
    // Otherwise reading fewer fields can only pay off with an index.
    if !has_indexes && !prefix_reads_only_id(prefix) {
        return Ok((query, None));
    }
    if let Some(distinct) = &prefix.distinct
        && distinct.take == DistinctTake::Any
        && let Ok(path) = FieldPath::parse(&distinct.path)
    {
        // Groups have no order: a preceding sort is useless.
        let unsorted = CanonicalQuery {
            sort: None,
            sort_spec: DocBuf::default(),
            ..spec(Some(&projection))?
        };
        // Documents without the path form a group too, and some indexes lack them.
        let mut whole = Vec::new();
        let mut params = params.clone();
        if unsorted.filter.is_trivially_true() {
            let is_whole = |i: &&Arc<IndexEntry>| !i.sparse && i.wildcard().is_none();
            whole.extend(indexes.iter().filter(is_whole).cloned());
            params.indexes = &whole;
        }
        let hinted_away = hint.is_some() && params.indexes.len() < indexes.len();
        if !hinted_away && let Some(solution) = planner::plan_distinct(&unsorted, &path, &params)? {
            return Ok((Arc::new(unsorted), Some(solution)));
        }
    }
    let reduced = spec(Some(&projection))?;
    // Reading fewer fields pays off only if no document is fetched.
    let covered = planner::plan(&reduced, &params)?
        .iter()
        .any(|solution| is_covered(&solution.root));
    if covered {
        return Ok((Arc::new(reduced), None));
    }
    Ok((query, None))
}

/// Sort orders in which the first (or last) document of each group is the wanted one.
fn orders_of(distinct: &DistinctLike, prefix: &CursorPrefix) -> Vec<DocBuf> {
    match &distinct.take {
        DistinctTake::Any => Vec::new(),
        DistinctTake::First | DistinctTake::Last => prefix.sort.clone().into_iter().collect(),
        // Value and group path are the same: there is nothing to search.
        DistinctTake::Least(value) | DistinctTake::Greatest(value) if *value == distinct.path => {
            Vec::new()
        }
        // The order of groups does not matter.
        DistinctTake::Least(value) | DistinctTake::Greatest(value) => {
            let order = |groups: i32| {
                let mut order = DocBuilder::new();
                order.append(&distinct.path, groups);
                order.append(value, 1);
                order.finish()
            };
            vec![order(1), order(-1)]
        }
    }
}

/// A query for the fields that the group reads, in the order that puts the wanted document first or
/// last.
fn sorted_query(
    cx: &AggregateContext,
    prefix: &CursorPrefix,
    order: &DocBuf,
    projection: Option<&DocBuf>,
) -> Result<CanonicalQuery, Error> {
    let spec = FindSpec {
        sort: Some(order.as_raw()),
        projection: projection.map(DocBuf::as_raw),
        skip: 0,
        limit: None,
        ..prefix.find_spec()
    };
    CanonicalQuery::with_context(spec, cx.parse())
}

/// Plans a scan of one key per value of the path, if an index holds the matching documents in the
/// order whose first or last the group takes.
///
/// ```text
///   $sort {a: 1, b: 1}, $group by a, $first      index {a: 1, b: 1}   forward, the first key of each a
///                                  $last                              backward
///                       $group by a, $min of b                        forward, the first b but null
///   $match {x: 1}, the same                      index {x: 1, a: 1, b: 1}
/// ```
fn one_of_each(
    distinct: &DistinctLike,
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
) -> Result<Option<QuerySolution>, Error> {
    let (backward, value) = match &distinct.take {
        DistinctTake::First => (false, None),
        DistinctTake::Last => (true, None),
        DistinctTake::Least(value) => (false, Some(value)),
        DistinctTake::Greatest(value) => (true, Some(value)),
        DistinctTake::Any => return Ok(None),
    };
    // Keys with a collation have lost the text.
    if query.collator.is_some() {
        return Ok(None);
    }
    let solutions = planner::plan(query, params)?;
    Ok(solutions.iter().find_map(|solution| {
        let (scan, covered) = match (&solution.root, &query.projection) {
            (SolutionNode::Projection { child, .. }, Some(projection)) => match &**child {
                SolutionNode::IndexScan(scan) => (scan, Some(projection)),
                _ => return None,
            },
            (SolutionNode::Fetch { filter, child }, None) if filter.is_none() => match &**child {
                SolutionNode::IndexScan(scan) => (scan, None),
                _ => return None,
            },
            _ => return None,
        };
        let index = &scan.index;
        let IndexBounds::Fields(lists) = &scan.bounds else {
            return None;
        };
        let is_over = |at: usize, path: &str| {
            index
                .fields
                .get(at)
                .is_some_and(|f| f.path.dotted() == path)
        };
        let field = (0..index.fields.len()).find(|&at| is_over(at, &distinct.path))?;
        let behind_points = lists[..field].iter().all(OrderedIntervalList::is_point);
        let has_value = value.is_none_or(|value| is_over(field + 1, value));
        // No arrays in the group and value fields: a document must belong to a single group, and
        // `$min` compares an array as a whole, not by its least element.
        let single_keyed = field + usize::from(value.is_some());
        let fits = matches!(index.kind, IndexKind::Btree)
            // In a clustered collection `_id` is unique per record and there is no separate index
            // key.
            && !index.clustered
            && index.multikey_paths.iter().take(single_keyed + 1).all(|arrays| arrays.is_empty())
            && index.collator.is_none()
            && scan.filter.is_none()
            && scan.skips == 0;
        if !(fits && behind_points && has_value) {
            return None;
        }
        // No order was requested: if most groups have one document, reading everything is cheaper.
        let fetch_cost = if covered.is_some() { 0 } else { FETCH_COST };
        if value.is_some()
            && let Some(statistics) = params.statistics
            && let Some(groups) = statistics.distinct_prefixes(index, field + 1)
            && groups * (SEEK_COST + fetch_cost) > statistics.records() * SCAN_COST
        {
            return None;
        }
        let mut scan = scan.clone();
        scan.dedup = false;
        if backward {
            scan.bounds = scan.bounds.reversed();
            scan.direction = -scan.direction;
        }
        let distinct = Box::new(SolutionNode::DistinctScan {
            scan,
            fields: field + 1,
            passes_null: value.is_some(),
        });
        Some(QuerySolution {
            root: match covered {
                Some(projection) => SolutionNode::Projection {
                    kind: ProjectionKind::Covered,
                    projection: projection.clone(),
                    child: distinct,
                },
                None => SolutionNode::Fetch {
                    filter: None,
                    child: distinct,
                },
            },
            has_blocking_stage: false,
        })
    }))
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
