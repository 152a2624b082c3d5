//! A signature describes a plan without its constants. The plan cache stores that of the winning
//! plan, to identify it among the candidates of another query of the same shape.
//!
//! ```text
//!   FETCH  {b: {$lt: 9}}                    FETCH{lt(1:b)}(IXSCAN 7 1;)
//!   └─ IXSCAN a_1 forward  a: (3, inf.0]
//! ```
//!
//! Two candidates on one index may differ only in which predicate bounds it and which is checked
//! (arrays), so the signature includes checks, by their shape. It does not include the number of
//! scans of a merge, which depends on the number of values in a list.

use std::collections::HashMap;
use std::fmt::Write;

use super::solution::{ProjectionKind, QuerySolution, SolutionNode};
use crate::matcher::MatchExpression;
use crate::shape;

/// The signatures of all candidates of one query, each unique: candidates that differ only in
/// constants (`{a: {$all: [1, 2]}}` on an array) are numbered in the order of the candidates, which
/// is the same for all queries of a shape.
pub fn signatures(solutions: &[QuerySolution]) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let signatures: Vec<String> = solutions
        .iter()
        .map(|solution| {
            let mut text = signature(&solution.root);
            let before = seen.entry(text.clone()).or_default();
            *before += 1;
            if *before > 1 {
                let _ = write!(text, "#{before}");
            }
            text
        })
        .collect();
    // A cached plan is found among the candidates by it.
    debug_assert!(
        signatures
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len()
            == solutions.len()
    );
    signatures
}

/// The signature of a plan: equal for plans that differ only in constants. Contains the
/// [`ident`](super::index_entry::IndexEntry::ident) of each index. Use it only for comparison and
/// hashing (`solutionHash`).
pub fn signature(root: &SolutionNode) -> String {
    let mut out = String::new();
    write_node(root, &mut out);
    out
}

fn write_node(node: &SolutionNode, out: &mut String) {
    let children: &[SolutionNode] = match node {
        SolutionNode::Eof => {
            out.push_str("EOF");
            &[]
        }
        SolutionNode::CollScan { direction, .. } => {
            let _ = write!(out, "COLLSCAN {direction}");
            &[]
        }
        SolutionNode::ClusteredScan(scan) => {
            let _ = write!(out, "CLUSTERED_IXSCAN {}", scan.direction);
            write_checks(scan.filter.as_deref(), out);
            &[]
        }
        SolutionNode::IndexScan(scan) => {
            let _ = write!(out, "IXSCAN {} {}", scan.index.ident, scan.direction);
            if let Some(wildcard) = scan.index.wildcard() {
                // The views of one index differ in the path.
                let path = scan.index.fields[wildcard.path_field + 1].path.dotted();
                let _ = write!(out, "({}:{path})", path.len());
            }
            if scan.skips > 0 {
                let _ = write!(out, " skips {}", scan.skips);
            }
            write_checks(scan.filter.as_deref(), out);
            &[]
        }
        SolutionNode::CountScan(scan) => {
            let _ = write!(out, "COUNT_SCAN {}", scan.index.ident);
            &[]
        }
        SolutionNode::DistinctScan { scan, fields, .. } => {
            let (ident, direction) = (scan.index.ident, scan.direction);
            let _ = write!(out, "DISTINCT_SCAN {ident} {direction} {fields}");
            &[]
        }
        SolutionNode::Fetch { filter, child } => {
            out.push_str("FETCH");
            write_checks(filter.as_deref(), out);
            std::slice::from_ref(child)
        }
        SolutionNode::Sort { child, .. } => {
            out.push_str("SORT");
            std::slice::from_ref(child)
        }
        SolutionNode::Limit { child, .. } => {
            out.push_str("LIMIT");
            std::slice::from_ref(child)
        }
        SolutionNode::Skip { child, .. } => {
            out.push_str("SKIP");
            std::slice::from_ref(child)
        }
        SolutionNode::Subplan { child } => {
            out.push_str("SUBPLAN");
            std::slice::from_ref(child)
        }
        SolutionNode::ReturnKey { child } => {
            out.push_str("RETURN_KEY");
            std::slice::from_ref(child)
        }
        SolutionNode::Projection { kind, child, .. } => {
            out.push_str(match kind {
                ProjectionKind::Covered => "PROJECTION_COVERED",
                ProjectionKind::Simple => "PROJECTION_SIMPLE",
                ProjectionKind::Default => "PROJECTION_DEFAULT",
            });
            std::slice::from_ref(child)
        }
        SolutionNode::Or { children, .. } => {
            out.push_str("OR");
            children
        }
        SolutionNode::SortMerge { children, .. } => {
            out.push_str("SORT_MERGE");
            children
        }
        SolutionNode::AndSorted { children } => {
            out.push_str("AND_SORTED");
            children
        }
        SolutionNode::AndHash { children } => {
            out.push_str("AND_HASH");
            children
        }
        SolutionNode::Lazy(lazy) => return write_node(lazy.node(), out),
    };
    if children.is_empty() {
        return;
    }
    out.push('(');
    let mut previous = String::new();
    for child in children {
        let text = signature(child);
        if text != previous {
            out.push_str(&text);
            out.push(';');
            previous = text;
        }
    }
    out.push(')');
}

fn write_checks(filter: Option<&MatchExpression>, out: &mut String) {
    if let Some(filter) = filter {
        out.push('{');
        shape::write_filter(filter, out);
        out.push('}');
    }
}
