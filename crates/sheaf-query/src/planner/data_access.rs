//! Converts an access path to a complete plan: order, documents, projection, paging.
//!
//! ```text
//!   LIMIT                        unless a top-k SORT applies the limit
//!   └─ PROJECTION_SIMPLE         below a SORT that has no limit, if it keeps the sort fields
//!      └─ FETCH                  as late as possible: when a check, the order or the
//!         └─ SKIP                projection needs what keys do not hold
//!            └─ SORT | SORT_MERGE | IXSCAN
//! ```
//!
//! Documents are fetched late: a sort by fields of the key sorts keys, and only the remaining
//! documents are fetched.

use std::cell::Cell;
use std::sync::Arc;

use sheaf_bson::Value;

use super::PlannerParams;
use super::assignment::traits_of;
use super::bounds::{IndexBounds, Interval};
use super::collation::{meets_text, orders_as};
use super::solution::{IndexScanNode, ProjectionKind, QuerySolution, SolutionNode};
use super::sort_analysis::{Exploder, ordered};
use crate::canonical::CanonicalQuery;
use crate::matcher::MatchExpression;
use crate::projection::Projection;
use crate::sort::SortPattern;

/// Makes complete plans for one query.
pub(super) struct Finisher<'a> {
    query: &'a CanonicalQuery,
    /// Restricts plans to those of MongoDB.
    published: bool,
    /// Makes merges; `None` if the query has no sort.
    pub exploder: Option<Exploder<'a>>,
}

impl<'a> Finisher<'a> {
    pub fn new(query: &'a CanonicalQuery, params: &PlannerParams<'a>) -> Finisher<'a> {
        let exploder = query.sort.as_ref().map(|pattern| Exploder {
            pattern,
            max: params.options.scans_to_explode_max,
            // Seeks for every prefix are worthwhile only if not all results are read.
            statistics: params.statistics.filter(|_| query.limit.is_some()),
            reached: Cell::new(false),
        });
        Finisher {
            query,
            published: params.statistics.is_none(),
            exploder,
        }
    }

    /// For plans over every key of an index. With a filter, which must be checked on documents,
    /// filling a page may read all of them in the worst order, so the plans use no prefixes from
    /// statistics.
    pub fn for_full_scan(query: &'a CanonicalQuery, params: &PlannerParams<'a>) -> Finisher<'a> {
        let mut finisher = Finisher::new(query, params);
        if let Some(exploder) = &mut finisher.exploder
            && !query.filter.is_trivially_true()
        {
            exploder.statistics = None;
        }
        finisher
    }

    /// The complete plan of an access path. `None` if it needs a blocking sort and `may_sort` is
    /// false.
    pub fn finish(&self, access: SolutionNode, may_sort: bool) -> Option<QuerySolution> {
        let query = self.query;
        let mut node = match self.published {
            true => in_one_stretch(access, &query.filter),
            false => access,
        };
        let mut sort_limits = false;
        if let Some(pattern) = &query.sort {
            node = match ordered(node, pattern) {
                Ok(in_order) => in_order,
                Err(node) => match self.exploder.as_ref().and_then(|e| e.merged(&node)) {
                    Some(in_order) => in_order,
                    None if !may_sort => return None,
                    None => {
                        let limit = query.limit.and_then(|limit| limit.checked_add(query.skip));
                        sort_limits = limit.is_some();
                        let child = if keys_hold(&node, pattern) {
                            node
                        } else {
                            fetched(node)
                        };
                        SolutionNode::Sort {
                            pattern: pattern.clone(),
                            limit,
                            child: Box::new(child),
                        }
                    }
                },
            };
        }
        let mut skip = query.skip;
        let mut skipped = |node: SolutionNode| match std::mem::take(&mut skip) {
            0 => node,
            skip => SolutionNode::Skip {
                skip,
                child: Box::new(node),
            },
        };
        match &query.projection {
            _ if query.return_key => {
                node = SolutionNode::ReturnKey {
                    child: Box::new(skipped(node)),
                };
            }
            Some(projection) => {
                let kind = match covering_scans(&node, projection) {
                    Some(1) => ProjectionKind::Covered,
                    // Several indexes, or several scans of one index: keys suffice as well.
                    Some(_) => ProjectionKind::Default,
                    None => {
                        if !holds_document(&node) {
                            node = fetched(skipped(node));
                        }
                        if projection.simple() || projection.is_plain_inclusion() {
                            ProjectionKind::Simple
                        } else {
                            ProjectionKind::Default
                        }
                    }
                };
                node = self.projected(node, projection, kind, &mut skipped);
            }
            None => {
                if !holds_document(&node) {
                    node = fetched(skipped(node));
                }
            }
        }
        node = skipped(node);
        if let Some(limit) = query.limit
            && !sort_limits
        {
            node = SolutionNode::Limit {
                limit,
                child: Box::new(node),
            };
        }
        Some(QuerySolution {
            has_blocking_stage: blocks(&node),
            root: node,
        })
    }

    /// Adds the projection above the node, or directly below a SORT without a limit, so that the
    /// sort needs less memory. Below a top-k SORT it would project results that the sort discards.
    fn projected(
        &self,
        node: SolutionNode,
        projection: &Arc<Projection>,
        kind: ProjectionKind,
        skipped: &mut impl FnMut(SolutionNode) -> SolutionNode,
    ) -> SolutionNode {
        let above = |child: SolutionNode| SolutionNode::Projection {
            kind,
            projection: projection.clone(),
            child: Box::new(child),
        };
        match node {
            SolutionNode::Sort {
                pattern,
                limit: None,
                child,
            } if kind != ProjectionKind::Default
                && pattern
                    .parts
                    .iter()
                    .all(|part| projection.keeps_order_by(&part.path)) =>
            {
                SolutionNode::Sort {
                    pattern,
                    limit: None,
                    child: Box::new(above(*child)),
                }
            }
            node => above(skipped(node)),
        }
    }
}

/// Replaces the bounds of clustered scans by one interval from the first start to the last end, as
/// MongoDB does, and applies the whole filter to the documents.
fn in_one_stretch(node: SolutionNode, filter: &Arc<MatchExpression>) -> SolutionNode {
    match node {
        SolutionNode::ClusteredScan(mut scan) => {
            if let IndexBounds::Fields(lists) = &mut scan.bounds
                && let [list] = lists.as_mut_slice()
                && let [first, .., last] = list.intervals()
            {
                let stretch = Interval {
                    end: last.end.clone(),
                    end_inclusive: last.end_inclusive,
                    ..first.clone()
                };
                *list = list.with(stretch);
                scan.filter = Some(filter.clone());
            }
            SolutionNode::ClusteredScan(scan)
        }
        SolutionNode::Or {
            dedup,
            filter: check,
            children,
        } => SolutionNode::Or {
            dedup,
            filter: check,
            children: children
                .into_iter()
                .map(|child| in_one_stretch(child, filter))
                .collect(),
        },
        node => node,
    }
}

/// Whether some stage reads all of its input before it returns its first result.
fn blocks(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::Sort { .. } | SolutionNode::AndHash { .. } => true,
        SolutionNode::Fetch { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. }
        | SolutionNode::Projection { child, .. }
        | SolutionNode::Subplan { child }
        | SolutionNode::ReturnKey { child } => blocks(child),
        SolutionNode::Or { children, .. }
        | SolutionNode::SortMerge { children, .. }
        | SolutionNode::AndSorted { children } => children.iter().any(blocks),
        SolutionNode::Eof
        | SolutionNode::CollScan { .. }
        | SolutionNode::ClusteredScan(_)
        | SolutionNode::IndexScan(_)
        | SolutionNode::CountScan(_)
        | SolutionNode::DistinctScan { .. }
        | SolutionNode::Lazy(_) => false,
    }
}

/// Adds a FETCH above the node unless its results already have documents.
pub(super) fn fetched(node: SolutionNode) -> SolutionNode {
    if holds_document(&node) {
        return node;
    }
    SolutionNode::Fetch {
        filter: None,
        child: Box::new(node),
    }
}

/// Whether all results of the node have their documents.
fn holds_document(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::CollScan { .. }
        | SolutionNode::ClusteredScan(_)
        | SolutionNode::Fetch { .. }
        | SolutionNode::Eof => true,
        SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. }
        | SolutionNode::Subplan { child }
        | SolutionNode::Projection { child, .. } => holds_document(child),
        SolutionNode::Or { children, .. } | SolutionNode::SortMerge { children, .. } => {
            children.iter().all(holds_document)
        }
        SolutionNode::Lazy(lazy) => lazy.gives_document(),
        _ => false,
    }
}

/// Appends the scans of a node to `out`. Returns whether the node passes on keys from all of them.
fn key_scans<'n>(node: &'n SolutionNode, out: &mut Vec<&'n IndexScanNode>) -> bool {
    match node {
        SolutionNode::IndexScan(scan) => {
            out.push(scan);
            true
        }
        SolutionNode::Sort { child, .. } | SolutionNode::Skip { child, .. } => {
            key_scans(child, out)
        }
        SolutionNode::Or { children, .. } | SolutionNode::SortMerge { children, .. } => {
            children.iter().all(|child| key_scans(child, out))
        }
        SolutionNode::Lazy(lazy) if !lazy.gives_document() => key_scans(lazy.node(), out),
        _ => false,
    }
}

/// Whether the keys that the node returns contain the sort fields, in the order of the sort's
/// collation.
fn keys_hold(node: &SolutionNode, pattern: &SortPattern) -> bool {
    let mut scans = Vec::new();
    key_scans(node, &mut scans)
        && scans.iter().all(|scan| {
            pattern.parts.iter().all(|part| {
                field_with_value(scan, part.path.dotted()).is_some_and(|field| {
                    let collator = pattern.collator.as_ref();
                    orders_as(&scan.index, &scan.bounds, field, collator)
                })
            })
        })
}

/// Number of scans if the keys of all of them contain every field of the projection; `None` if
/// documents are needed.
fn covering_scans(node: &SolutionNode, projection: &Projection) -> Option<usize> {
    let mut scans = Vec::new();
    if !key_scans(node, &mut scans) || scans.is_empty() {
        return None;
    }
    scans
        .iter()
        .all(|scan| covers(scan, projection))
        .then_some(scans.len())
}

/// Whether the keys of the scan contain every field of the projection.
pub(super) fn covers(scan: &IndexScanNode, projection: &Projection) -> bool {
    projection.is_plain_inclusion()
        && projection.required_paths().is_some_and(|paths| {
            paths.iter().all(|path| {
                field_with_value(scan, path.dotted())
                    .is_some_and(|field| !asks_for_null(scan, field) && !hides_text(scan, field))
            })
        })
}

/// The position of the index field whose value is that of `path` in every key.
fn field_with_value(scan: &IndexScanNode, path: &str) -> Option<usize> {
    let index = &scan.index;
    (0..index.fields.len()).find(|&field| {
        let traits = traits_of(index, field);
        index.fields[field].path.dotted() == path
            && index.holds_values_of(field)
            && !(several_paths(scan) && index.wildcard().is_some_and(|w| field == w.path_field + 1))
            && !traits.multikey
            && !traits.positional
            && !traits.entangled
    })
}

/// Whether the scan covers several paths of a wildcard index.
fn several_paths(scan: &IndexScanNode) -> bool {
    match (scan.index.wildcard(), &scan.bounds) {
        (Some(wildcard), IndexBounds::Fields(lists)) => !lists[wildcard.path_field].is_point(),
        _ => false,
    }
}

/// Whether keys within the bounds may have sort keys on this field, from which the text cannot be
/// restored.
pub(super) fn hides_text(scan: &IndexScanNode, field: usize) -> bool {
    scan.index.collator.is_some() && meets_text(&scan.bounds, field)
}

/// Whether the bounds contain null as a point. A null key does not show whether the field exists,
/// so every such document would have to be fetched.
fn asks_for_null(scan: &IndexScanNode, field: usize) -> bool {
    let is_null = |value: &Value| matches!(value, Value::Null);
    match &scan.bounds {
        IndexBounds::Fields(lists) => lists[field].has_point(is_null),
        IndexBounds::KeyRange { .. } => false,
    }
}
