//! Summarizes a plan in one line, for the log, the profiler and explain's `planSummary`.

use sheaf_bson::json;

use super::solution::{IndexScanNode, SolutionNode};

/// Maximum number of scans in a summary; more would make a log line unreadable.
const SCANS_MAX: usize = 64;

/// `IXSCAN { a: 1, b: -1 }`, `COLLSCAN`, `EOF`; several scans are joined by ", ".
/// The express path has no plan: it is `EXPRESS_IXSCAN { _id: 1 }`.
pub fn plan_summary(root: &SolutionNode) -> String {
    let mut parts = Vec::new();
    let more = collect(root, &mut parts);
    let mut out = parts.join(", ");
    if more {
        out.push_str(", ...");
    }
    out
}

/// Whether a leaf of the plan reads the whole collection in the order of its records.
pub fn scans_collection(root: &SolutionNode) -> bool {
    match root.made() {
        SolutionNode::CollScan { .. } => true,
        SolutionNode::ClusteredScan(scan) => scan.is_full(),
        node => node.children().iter().any(scans_collection),
    }
}

/// Appends the names of the leaves, first to last. Returns whether some were omitted.
fn collect(node: &SolutionNode, out: &mut Vec<String>) -> bool {
    let scan = |stage: &str, scan: &IndexScanNode| {
        format!(
            "{stage} {}",
            json::shell_doc(scan.index.key_pattern.as_raw())
        )
    };
    let leaf = match node {
        SolutionNode::Eof => "EOF".to_owned(),
        SolutionNode::CollScan { .. } => "COLLSCAN".to_owned(),
        SolutionNode::ClusteredScan(s) if s.is_full() => "COLLSCAN".to_owned(),
        SolutionNode::ClusteredScan(_) => "CLUSTERED_IXSCAN".to_owned(),
        SolutionNode::IndexScan(s) => scan("IXSCAN", s),
        SolutionNode::CountScan(s) => scan("COUNT_SCAN", s),
        SolutionNode::DistinctScan { scan: s, .. } => scan("DISTINCT_SCAN", s),
        SolutionNode::Fetch { child, .. }
        | SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. }
        | SolutionNode::Projection { child, .. }
        | SolutionNode::Subplan { child }
        | SolutionNode::ReturnKey { child } => return collect(child, out),
        SolutionNode::Or { children, .. }
        | SolutionNode::SortMerge { children, .. }
        | SolutionNode::AndSorted { children }
        | SolutionNode::AndHash { children } => {
            return children.iter().any(|child| collect(child, out));
        }
        SolutionNode::Lazy(lazy) => return collect(lazy.node(), out),
    };
    if out.len() >= SCANS_MAX {
        return true;
    }
    out.push(leaf);
    false
}
