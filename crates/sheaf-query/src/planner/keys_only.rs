//! Plans of count and distinct that read index keys instead of documents.
//!
//! ```text
//!   count {a: {$gt: 5}}          COUNT_SCAN a: (5, inf.0]     one contiguous range
//!   count {a: {$in: [1, 2]}}     IXSCAN a: [1, 1], [2, 2]     several
//!   distinct a                   DISTINCT_SCAN                one seek per value
//!   distinct b, {a: 1}           DISTINCT_SCAN on {a: 1, b: 1}
//! ```

use std::sync::Arc;

use sheaf_bson::Error;
use sheaf_bson::path::FieldPath;

use super::PlannerParams;
use super::access::Access;
use super::assignment::{assignments, deepest_shared_array, is_multikey, traits_of};
use super::bounds::{BoundsTightness, IndexBounds, OrderedIntervalList};
use super::collation::orders_as;
use super::data_access::{covers, hides_text};
use super::hint::Hinted;
use super::implication::implies;
use super::index_entry::IndexEntry;
use super::plan_builder::{full_scan, scan, stages};
use super::predicate::{Base, Conjunction};
use super::solution::{IndexScanNode, ProjectionKind, QuerySolution, SolutionNode};
use crate::canonical::CanonicalQuery;

/// The plan of a count that reads no documents, including skip and limit. `None` if there is no
/// such plan; the caller then counts the results of a regular plan. Ignores sort and projection.
///
/// Errors: BadValue if the hint matches no index or more than one.
pub fn plan_count(
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
) -> Result<Option<QuerySolution>, Error> {
    let hinted = params.resolve(query)?;
    if query.min.is_some() || query.max.is_some() || query.filter.is_trivially_false() {
        return Ok(None);
    }
    let node = if query.filter.is_trivially_true() {
        match &hinted {
            Hinted::Index(index) if index.wildcard().is_none() && !index.clustered => {
                SolutionNode::IndexScan(full_scan(index))
            }
            _ => return Ok(None),
        }
    } else {
        let Some(enumerator) = params.enumerator(&hinted) else {
            return Ok(None);
        };
        let best = enumerator
            .accesses(&query.filter)
            .into_iter()
            .filter(|access| access.is_keys_only())
            .rev()
            .max_by_key(|access| access.rank());
        match best {
            Some(access) => stages(&access, &query.filter),
            None => return Ok(None),
        }
    };
    let node = match node {
        SolutionNode::IndexScan(scan) if scan.filter.is_none() && scan.bounds.is_contiguous() => {
            SolutionNode::CountScan(scan)
        }
        node => node,
    };
    Ok(Some(paged(query, node)))
}

fn paged(query: &CanonicalQuery, mut root: SolutionNode) -> QuerySolution {
    if query.skip > 0 {
        root = SolutionNode::Skip {
            skip: query.skip,
            child: Box::new(root),
        };
    }
    if let Some(limit) = query.limit {
        root = SolutionNode::Limit {
            limit,
            child: Box::new(root),
        };
    }
    QuerySolution {
        root,
        has_blocking_stage: false,
    }
}

/// The plan that returns each value of `key` among the matching documents with few keys and without
/// documents; `None` if no index allows it.
///
/// The keys of an array are its elements, as distinct requires; the key of an empty array is
/// undefined. A null key may represent a missing field: the caller must read the documents of that
/// key. The index must cover the projection, if there is one.
///
/// Errors: BadValue if the hint matches no index or more than one.
pub fn plan_distinct(
    query: &CanonicalQuery,
    key: &FieldPath,
    params: &PlannerParams<'_>,
) -> Result<Option<QuerySolution>, Error> {
    let hinted = params.resolve(query)?;
    if query.min.is_some()
        || query.max.is_some()
        || query.sort.is_some()
        || query.filter.is_trivially_false()
    {
        return Ok(None);
    }
    let Some(enumerator) = params.enumerator(&hinted) else {
        return Ok(None);
    };
    let best = enumerator
        .indexes
        .into_iter()
        .filter(|index| !index.clustered)
        .filter(|index| {
            index
                .partial_filter
                .as_deref()
                .is_none_or(|partial| implies(&query.filter, partial))
        })
        .filter_map(|index| {
            let field = index.fields.iter().position(|f| *f.path == *key)?;
            let scan = distinct_scan(index, field, query)?;
            // The index and the query must agree on which values are equal.
            let as_asked =
                (0..=field).all(|f| orders_as(index, &scan.bounds, f, query.collator.as_ref()));
            if !as_asked {
                return None;
            }
            let covered = query
                .projection
                .as_ref()
                .is_none_or(|projection| covers(&scan, projection));
            covered.then_some((field, scan))
        })
        .min_by_key(|(field, scan)| (*field, scan.index.fields.len()));
    Ok(best.map(|(field, scan)| {
        let hidden = hides_text(&scan, field);
        let mut root = SolutionNode::DistinctScan {
            scan,
            fields: field + 1,
            passes_null: false,
        };
        if hidden {
            // One document per value provides the text.
            root = SolutionNode::Fetch {
                filter: None,
                child: Box::new(root),
            };
        }
        if let Some(projection) = &query.projection {
            root = SolutionNode::Projection {
                kind: ProjectionKind::Covered,
                projection: projection.clone(),
                child: Box::new(root),
            };
        }
        QuerySolution {
            root,
            has_blocking_stage: false,
        }
    }))
}

/// A scan whose bounds decide the whole filter and exclude no value of the field in matching
/// documents.
fn distinct_scan(
    index: &Arc<IndexEntry>,
    field: usize,
    query: &CanonicalQuery,
) -> Option<IndexScanNode> {
    if traits_of(index, field).positional || !index.holds_values_of(field) {
        return None;
    }
    if query.filter.is_trivially_true() {
        return (field == 0).then(|| IndexScanNode {
            dedup: false,
            ..full_scan(index)
        });
    }
    let all = Conjunction::new(&query.filter, &Base::default(), &[]);
    assignments(index, &all, 1)
        .into_iter()
        .find_map(|assignment| {
            let decided = assignment
                .tightness(all.conjuncts.len())
                .iter()
                .all(|tightness| *tightness == Some(BoundsTightness::Exact));
            let lists = assignment.lists;
            // The fields before it must be points: each combination is a separate range.
            let few_walks = lists[..field].iter().all(|list| list.is_union_of_points());
            // A matching document contributes all its values, including those outside the bounds
            // and those in other elements than the one that satisfies the bounds.
            let shows_all = !is_multikey(index, field)
                || (0..lists.len()).all(|other| {
                    lists[other].is_full() || deepest_shared_array(index, field, other).is_none()
                });
            (decided && few_walks && shows_all).then(|| IndexScanNode {
                dedup: false,
                ..scan(&assignment.index, lists.iter().map(|list| (**list).clone()))
            })
        })
}

impl Access<'_> {
    /// Whether keys alone decide all conjuncts.
    fn is_keys_only(&self) -> bool {
        use super::access::AccessKind;
        self.residual.is_empty()
            && match &self.kind {
                AccessKind::Scan(index, _) => !index.clustered,
                AccessKind::Or(children) => children.iter().all(|child| child.is_keys_only()),
                AccessKind::And(_) => false,
            }
    }
}

impl IndexBounds {
    /// Whether the keys within the bounds are contiguous in the index: points, then at most one
    /// range, then fields without bounds.
    pub fn is_contiguous(&self) -> bool {
        match self {
            IndexBounds::KeyRange { .. } => true,
            IndexBounds::Fields(lists) => {
                let mut rest = lists.iter().skip_while(|list| list.is_point());
                rest.next().is_none_or(|list| list.len() == 1)
                    && rest.all(OrderedIntervalList::is_full)
            }
        }
    }
}
