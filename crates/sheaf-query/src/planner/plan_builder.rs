//! Converts an access path to plan stages.

use std::sync::Arc;

use super::access::{Access, AccessKind};
use super::bounds::{IndexBounds, OrderedIntervalList};
use super::index_entry::IndexEntry;
use super::solution::{IndexScanNode, SolutionNode};
use crate::matcher::MatchExpression;

/// The stages of an access path of a filter: scans, and a FETCH where checks need the document.
pub(super) fn stages(access: &Access<'_>, filter: &Arc<MatchExpression>) -> SolutionNode {
    let children = |children: &[std::rc::Rc<Access<'_>>]| -> Vec<SolutionNode> {
        children.iter().map(|child| stages(child, filter)).collect()
    };
    let node = match &access.kind {
        AccessKind::Scan(index, lists) if index.clustered => {
            // Checks on keys become checks on documents: a clustered scan has no keys.
            let checks: Vec<_> = [&access.covered[..], &access.residual].concat();
            return SolutionNode::ClusteredScan(IndexScanNode {
                filter: conjunction(&checks, filter),
                ..scan(index, lists.iter().map(|list| (**list).clone()))
            });
        }
        AccessKind::Scan(index, lists) => SolutionNode::IndexScan(IndexScanNode {
            filter: conjunction(&access.covered, filter),
            skips: access.skips,
            ..scan(index, lists.iter().map(|list| (**list).clone()))
        }),
        AccessKind::Or(parts) => SolutionNode::Or {
            dedup: true,
            filter: None,
            children: children(parts),
        },
        AccessKind::And(parts) => {
            let in_record_order = parts.iter().all(|part| match &part.kind {
                AccessKind::Scan(_, lists) => lists.iter().all(|list| list.is_point()),
                _ => false,
            });
            // Checks are deferred until the document is fetched.
            let scans = parts.iter().filter_map(|part| match &part.kind {
                AccessKind::Scan(index, lists) => {
                    let lists = lists.iter().map(|list| (**list).clone());
                    Some(SolutionNode::IndexScan(scan(index, lists)))
                }
                _ => None,
            });
            let children = scans.collect();
            if in_record_order {
                SolutionNode::AndSorted { children }
            } else {
                SolutionNode::AndHash { children }
            }
        }
    };
    match conjunction(&access.residual, filter) {
        None => node,
        filter => SolutionNode::Fetch {
            filter,
            child: Box::new(node),
        },
    }
}

/// A forward scan of an index, within one ascending list for each field.
pub fn index_scan(
    index: &Arc<IndexEntry>,
    lists: impl IntoIterator<Item = OrderedIntervalList>,
) -> IndexScanNode {
    scan(index, lists)
}

/// A forward scan; the ascending lists are converted to scan order.
pub(super) fn scan(
    index: &Arc<IndexEntry>,
    lists: impl IntoIterator<Item = OrderedIntervalList>,
) -> IndexScanNode {
    let mut lists: Vec<OrderedIntervalList> = lists.into_iter().collect();
    debug_assert_eq!(
        lists.len(),
        index.fields.len(),
        "one list a field of {}",
        index.name
    );
    debug_assert_eq!(index.multikey_paths.len(), index.fields.len());
    debug_assert!(
        index.multikey
            || index.multikey_paths.iter().all(Vec::is_empty)
            || index.wildcard().is_some(),
        "{} has paths of arrays and is not multikey",
        index.name
    );
    // All paths, or all paths below one: a document may have several such keys.
    let several_paths = index
        .wildcard()
        .is_some_and(|wildcard| !lists[wildcard.path_field].is_point());
    for (list, field) in lists.iter_mut().zip(&index.fields) {
        list.name_and_turn(&field.path, field.direction);
    }
    IndexScanNode {
        index: index.clone(),
        bounds: IndexBounds::Fields(lists),
        direction: 1,
        filter: None,
        dedup: index.multikey || several_paths,
        skips: 0,
    }
}

/// A forward scan of every key.
pub(super) fn full_scan(index: &Arc<IndexEntry>) -> IndexScanNode {
    scan(
        index,
        index.fields.iter().map(|_| OrderedIntervalList::all()),
    )
}

/// The stage of a scan: CLUSTERED_IXSCAN, which returns documents, or IXSCAN, which returns keys.
pub(super) fn scan_stage(scan: IndexScanNode) -> SolutionNode {
    match scan.index.clustered {
        true => SolutionNode::ClusteredScan(scan),
        false => SolutionNode::IndexScan(scan),
    }
}

/// The checks as one filter; shares `whole` if the checks are all of its conjuncts. `None` without
/// checks.
pub(super) fn conjunction(
    checks: &[&MatchExpression],
    whole: &Arc<MatchExpression>,
) -> Option<Arc<MatchExpression>> {
    let is_whole = match &**whole {
        MatchExpression::And(all) => {
            all.len() == checks.len() && all.iter().zip(checks).all(|(a, b)| std::ptr::eq(a, *b))
        }
        only => matches!(checks, [check] if std::ptr::eq(*check, only)),
    };
    debug_assert!(!is_whole || !checks.is_empty());
    match checks {
        [] => None,
        _ if is_whole => Some(whole.clone()),
        [only] => Some(Arc::new((*only).clone())),
        several => Some(Arc::new(MatchExpression::And(
            several.iter().map(|check| (*check).clone()).collect(),
        ))),
    }
}
