//! A query solution: a plan as data, which the executor converts to stages and explain prints.

use std::sync::Arc;

use crate::matcher::MatchExpression;
use crate::planner::bounds::IndexBounds;
use crate::planner::index_entry::IndexEntry;
use crate::planner::lazy::LazyNode;
use crate::projection::Projection;
use crate::sort::SortPattern;

/// One complete candidate plan.
#[derive(Debug, Clone)]
pub struct QuerySolution {
    /// The stage that returns the results.
    pub root: SolutionNode,
    /// Whether some stage reads all of its input before it returns its first result.
    pub has_blocking_stage: bool,
}

/// A stage of a plan. The variant's name is its explain name.
#[derive(Debug, Clone)]
pub enum SolutionNode {
    /// Nothing can match.
    Eof,
    /// COLLSCAN: every record, in record order.
    CollScan {
        /// 1 or -1.
        direction: i8,
        /// Applied to every record.
        filter: Option<Arc<MatchExpression>>,
    },
    /// CLUSTERED_IXSCAN: records within bounds on `_id`, in `_id` order. Explain names it COLLSCAN
    /// if the bounds are full. Its filter applies to documents.
    ClusteredScan(IndexScanNode),
    /// IXSCAN: returns record ids and keys in key order.
    IndexScan(IndexScanNode),
    /// FETCH: reads the record, then filters.
    Fetch {
        /// The predicates that the bounds below do not decide; `None` passes every record.
        filter: Option<Arc<MatchExpression>>,
        /// Input: record ids.
        child: Box<SolutionNode>,
    },
    /// SORT: blocking; keeps at most `limit` entries (the query's limit + skip).
    Sort {
        /// The sort order.
        pattern: Arc<SortPattern>,
        /// Number of entries of a top-k sort; `None` sorts everything.
        limit: Option<u64>,
        /// Input; the SORT may be below FETCH if keys contain the sort fields.
        child: Box<SolutionNode>,
    },
    /// SORT_MERGE: merges children that are sorted by `pattern`.
    SortMerge {
        /// Order of every child.
        pattern: Arc<SortPattern>,
        /// Drop record ids seen before.
        dedup: bool,
        /// In scan order.
        children: Vec<SolutionNode>,
        /// Set if the points of the children were read from the index.
        prefixes: Option<PrefixProbe>,
    },
    /// SUBPLAN: a rooted `$or` that was planned branch by branch.
    Subplan {
        /// The plan combined from the plans of the branches.
        child: Box<SolutionNode>,
    },
    /// OR: union of children, deduplicated by record id.
    Or {
        /// Drop record ids seen before.
        dedup: bool,
        /// Applied to the results (to keys if the children are scans).
        filter: Option<Arc<MatchExpression>>,
        /// One per branch.
        children: Vec<SolutionNode>,
    },
    /// LIMIT.
    Limit {
        /// At least 1.
        limit: u64,
        /// Input.
        child: Box<SolutionNode>,
    },
    /// SKIP.
    Skip {
        /// Number of results to drop.
        skip: u64,
        /// Input.
        child: Box<SolutionNode>,
    },
    /// PROJECTION_COVERED, PROJECTION_SIMPLE or PROJECTION_DEFAULT.
    Projection {
        /// Which of the three.
        kind: ProjectionKind,
        /// The projection, shared with the query.
        projection: Arc<Projection>,
        /// Input.
        child: Box<SolutionNode>,
    },
    /// RETURN_KEY: returns the index key instead of the document.
    ReturnKey {
        /// Input.
        child: Box<SolutionNode>,
    },
    /// COUNT_SCAN: counts the keys of one contiguous range.
    CountScan(IndexScanNode),
    /// DISTINCT_SCAN: one key for each distinct prefix of `fields` fields. The key undefined
    /// represents an empty array, which has no value. The key null is a null value or a missing
    /// field; only the documents of that key show which.
    DistinctScan {
        /// Range and direction.
        scan: IndexScanNode,
        /// Number of leading fields in the prefix.
        fields: usize,
        /// For each prefix, return the first key whose next field is not null, if there is one.
        passes_null: bool,
    },
    /// AND_SORTED: intersection of children in record order.
    AndSorted {
        /// Index scans.
        children: Vec<SolutionNode>,
    },
    /// AND_HASH: intersection of children in any order, blocking.
    AndHash {
        /// Index scans.
        children: Vec<SolutionNode>,
    },
    /// An alternative below OR that is built on first use; not a separate stage.
    Lazy(LazyNode),
}

impl SolutionNode {
    /// The input stages of this stage.
    pub fn children(&self) -> &[SolutionNode] {
        match self {
            SolutionNode::Eof
            | SolutionNode::CollScan { .. }
            | SolutionNode::ClusteredScan(_)
            | SolutionNode::IndexScan(_)
            | SolutionNode::CountScan(_)
            | SolutionNode::DistinctScan { .. } => &[],
            SolutionNode::Fetch { child, .. }
            | SolutionNode::Sort { child, .. }
            | SolutionNode::Limit { child, .. }
            | SolutionNode::Skip { child, .. }
            | SolutionNode::Projection { child, .. }
            | SolutionNode::Subplan { child }
            | SolutionNode::ReturnKey { child } => std::slice::from_ref(&**child),
            SolutionNode::SortMerge { children, .. }
            | SolutionNode::Or { children, .. }
            | SolutionNode::AndSorted { children }
            | SolutionNode::AndHash { children } => children,
            SolutionNode::Lazy(lazy) => lazy.node().children(),
        }
    }

    /// The stage itself, or the stage that a lazy alternative becomes; builds it if necessary.
    pub fn made(&self) -> &SolutionNode {
        match self {
            SolutionNode::Lazy(lazy) => lazy.node(),
            node => node,
        }
    }

    /// Visits this stage and all stages below it. Builds lazy alternatives.
    pub fn for_each(&self, visit: &mut dyn FnMut(&SolutionNode)) {
        visit(self.made());
        for child in self.children() {
            child.for_each(visit);
        }
    }

    /// Visits the index of every scan of the plan, once per scan. Does not build lazy alternatives.
    pub fn for_each_index(&self, visit: &mut dyn FnMut(&Arc<IndexEntry>)) {
        match self {
            SolutionNode::IndexScan(scan)
            | SolutionNode::ClusteredScan(scan)
            | SolutionNode::CountScan(scan)
            | SolutionNode::DistinctScan { scan, .. } => visit(&scan.index),
            SolutionNode::Lazy(lazy) => lazy.for_each_index(visit),
            node => {
                for child in node.children() {
                    child.for_each_index(visit);
                }
            }
        }
    }

    /// Visits the IXSCAN or CLUSTERED_IXSCAN at the leaf of a plan without branches. Does nothing
    /// if the plan branches.
    pub fn for_each_scan_mut(&mut self, visit: &mut dyn FnMut(&mut IndexScanNode)) {
        match self {
            SolutionNode::IndexScan(scan) | SolutionNode::ClusteredScan(scan) => visit(scan),
            SolutionNode::Fetch { child, .. }
            | SolutionNode::Sort { child, .. }
            | SolutionNode::Limit { child, .. }
            | SolutionNode::Skip { child, .. }
            | SolutionNode::Projection { child, .. } => child.for_each_scan_mut(visit),
            _ => {}
        }
    }
}

/// A scan of one index.
#[derive(Debug, Clone)]
pub struct IndexScanNode {
    /// The index to scan.
    pub index: Arc<IndexEntry>,
    /// The bounds, in scan order.
    pub bounds: IndexBounds,
    /// 1 forward, -1 backward.
    pub direction: i8,
    /// Predicates to check on the key (tightness InexactCovered).
    pub filter: Option<Arc<MatchExpression>>,
    /// Return every record once (the index is multikey, or the scan covers several wildcard paths).
    pub dedup: bool,
    /// Number of leading fields without bounds that a skip scan skips because a later field has
    /// bounds. 0 if the scan begins with bounds, or has none.
    pub skips: usize,
}

impl IndexScanNode {
    /// Whether the bounds exclude no key.
    pub fn is_full(&self) -> bool {
        match &self.bounds {
            IndexBounds::Fields(lists) => lists.iter().all(|list| list.is_full()),
            IndexBounds::KeyRange { start, end, .. } => start.is_none() && end.is_none(),
        }
    }
}

/// How the prefixes of a merge were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixProbe {
    /// Name of the index.
    pub index_name: String,
    /// Paths of its leading fields; each combination of their values has a scan.
    pub fields: Vec<String>,
    /// Keys examined while planning.
    pub keys_examined: u64,
    /// Seeks while planning.
    pub seeks: u64,
}

/// The implementation of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProjectionKind {
    /// Built from the index key without reading the document. A null key may also represent a
    /// missing field: if the key of a projected field is null, the document must be read.
    Covered,
    /// Inclusion or exclusion of top-level fields.
    Simple,
    /// Everything else; also a plain inclusion over the keys of several scans, to which the same
    /// rule applies as to `Covered`.
    Default,
}
