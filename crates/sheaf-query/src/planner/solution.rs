//! A plan as data: what the executor turns into stages and explain prints.

use std::sync::Arc;

use crate::matcher::MatchExpression;
use crate::planner::bounds::IndexBounds;
use crate::planner::index_entry::IndexEntry;
use crate::planner::lazy::LazyNode;
use crate::projection::Projection;
use crate::sort::SortPattern;

/// One candidate plan, whole.
#[derive(Debug, Clone)]
pub struct QuerySolution {
    /// The stage that gives results.
    pub root: SolutionNode,
    /// A stage reads all its input before its first result.
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
    /// CLUSTERED_IXSCAN: records between two places, in their order, which is that
    /// of `_id`; with bounds that leave nothing out it is called COLLSCAN. Its filter is
    /// applied to documents.
    ClusteredScan(IndexScanNode),
    /// IXSCAN: gives record ids and keys in key order.
    IndexScan(IndexScanNode),
    /// FETCH: reads the record, then filters.
    Fetch {
        /// What the bounds below could not decide.
        filter: Option<Arc<MatchExpression>>,
        /// Gives record ids.
        child: Box<SolutionNode>,
    },
    /// SORT: blocking; keeps `limit` (limit + skip) entries when that is known.
    Sort {
        /// By what.
        pattern: Arc<SortPattern>,
        /// Top-k when given.
        limit: Option<u64>,
        /// Input; may lie below FETCH when the key holds the sort fields.
        child: Box<SolutionNode>,
    },
    /// SORT_MERGE: children sorted by `pattern`, merged.
    SortMerge {
        /// Order of every child.
        pattern: Arc<SortPattern>,
        /// Drop record ids seen before.
        dedup: bool,
        /// In scan order.
        children: Vec<SolutionNode>,
        /// Set if the children's points were taken from the index.
        prefixes: Option<PrefixProbe>,
    },
    /// SUBPLAN: a rooted `$or` that was planned branch by branch.
    Subplan {
        /// The plan made of the branches' plans.
        child: Box<SolutionNode>,
    },
    /// OR: union of children, de-duplicated by record id.
    Or {
        /// Drop record ids seen before.
        dedup: bool,
        /// Applied to what passes (on keys when the children are scans).
        filter: Option<Arc<MatchExpression>>,
        /// One a branch.
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
        /// How many are dropped.
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
    /// RETURN_KEY: the index key instead of the document.
    ReturnKey {
        /// Input.
        child: Box<SolutionNode>,
    },
    /// COUNT_SCAN: counts the keys of one contiguous range.
    CountScan(IndexScanNode),
    /// DISTINCT_SCAN: one key for each distinct prefix of `fields` fields. The
    /// key undefined is an empty array, which has no value; null may be one or
    /// stand for a missing field, which only the documents of that key tell.
    DistinctScan {
        /// Range and direction.
        scan: IndexScanNode,
        /// How many leading fields make the prefix.
        fields: usize,
        /// Of each prefix the first key whose next field is not null, if it has one.
        passes_null: bool,
    },
    /// AND_SORTED: children in record order.
    AndSorted {
        /// All scans.
        children: Vec<SolutionNode>,
    },
    /// AND_HASH.
    AndHash {
        /// All scans.
        children: Vec<SolutionNode>,
    },
    /// An alternative below OR that is made when it is first looked at; no stage
    /// of its own.
    Lazy(LazyNode),
}

impl SolutionNode {
    /// The stages that feed this one.
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

    /// The stage: of a lazy one what it becomes.
    pub fn made(&self) -> &SolutionNode {
        match self {
            SolutionNode::Lazy(lazy) => lazy.node(),
            node => node,
        }
    }

    /// Visits this stage and all below it; what was not made yet is made.
    pub fn for_each(&self, visit: &mut dyn FnMut(&SolutionNode)) {
        visit(self.made());
        for child in self.children() {
            child.for_each(visit);
        }
    }

    /// Visits every index that the plan walks, as often as it does, and makes nothing that
    /// was not made yet.
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

    /// Visits the IXSCAN or CLUSTERED_IXSCAN at the end of a plan without branches; nothing where the plan
    /// branches.
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

/// A walk over one index.
#[derive(Debug, Clone)]
pub struct IndexScanNode {
    /// Which index.
    pub index: Arc<IndexEntry>,
    /// What to walk, in scan order.
    pub bounds: IndexBounds,
    /// 1 forward, -1 backward.
    pub direction: i8,
    /// What the key decides beyond the bounds (tightness InexactCovered).
    pub filter: Option<Arc<MatchExpression>>,
    /// Give every record once (the index is multikey).
    pub dedup: bool,
    /// How many leading fields have no bounds, though a field behind them has:
    /// the scan hops over their values. 0 if it begins with bounds, or has none.
    pub skips: usize,
}

impl IndexScanNode {
    /// Whether the bounds leave nothing out.
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
    /// Of which index.
    pub index_name: String,
    /// Its leading fields, of which every combination has a scan.
    pub fields: Vec<String>,
    /// Keys examined while planning.
    pub keys_examined: u64,
    /// Seeks while planning.
    pub seeks: u64,
}

/// How a projection is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProjectionKind {
    /// Built from the index key; no document is read. Yet the key null also
    /// stands for a missing field: where a projected field's key is null, only
    /// the document tells.
    Covered,
    /// Inclusion or exclusion of top-level fields.
    Simple,
    /// Everything else; also a plain inclusion over the keys of several scans,
    /// to which the same applies as to `Covered`.
    Default,
}
