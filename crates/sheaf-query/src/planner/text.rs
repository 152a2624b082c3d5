//! Formats a plan as a text tree, for tests and debugging.
//!
//! ```text
//! LIMIT 10
//! └─ FETCH  {b: {$lt: 3}}
//!    └─ IXSCAN a_1_b_1 forward  a: [5, 5]  b: [MinKey, MaxKey]
//! ```

use std::fmt;

use sheaf_bson::collation::shown_key_value;
use sheaf_bson::{DocBuf, json};

use super::bounds::IndexBounds;
use super::collation::has_sort_keys;
use super::solution::{IndexScanNode, ProjectionKind, QuerySolution, SolutionNode};
use crate::matcher::MatchExpression;

impl fmt::Display for QuerySolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_node(f, &self.root, "", "")
    }
}

impl fmt::Display for SolutionNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_node(f, self, "", "")
    }
}

/// `first` is the prefix of the node's own line, `rest` that of the lines below it.
fn write_node(
    f: &mut fmt::Formatter<'_>,
    node: &SolutionNode,
    first: &str,
    rest: &str,
) -> fmt::Result {
    f.write_str(first)?;
    let children: &[SolutionNode] = match node.made() {
        SolutionNode::Eof => {
            f.write_str("EOF")?;
            &[]
        }
        SolutionNode::CollScan { direction, filter } => {
            write!(f, "COLLSCAN {}", direction_name(*direction))?;
            write_filter(f, filter.as_deref())?;
            &[]
        }
        SolutionNode::ClusteredScan(scan) => {
            let direction = direction_name(scan.direction);
            match scan.is_full() {
                true => write!(f, "COLLSCAN {direction} by _id")?,
                false => {
                    write!(f, "CLUSTERED_IXSCAN {direction}")?;
                    write_bounds(f, scan)?;
                }
            }
            write_filter(f, scan.filter.as_deref())?;
            &[]
        }
        SolutionNode::IndexScan(scan) => {
            write_scan(f, "IXSCAN", scan)?;
            &[]
        }
        SolutionNode::CountScan(scan) => {
            write_scan(f, "COUNT_SCAN", scan)?;
            &[]
        }
        SolutionNode::DistinctScan { scan, fields, .. } => {
            write_scan(f, "DISTINCT_SCAN", scan)?;
            write!(f, "  fields: {fields}")?;
            &[]
        }
        SolutionNode::Fetch { filter, child } => {
            f.write_str("FETCH")?;
            write_filter(f, filter.as_deref())?;
            std::slice::from_ref(child)
        }
        SolutionNode::Sort {
            pattern,
            limit,
            child,
        } => {
            write!(f, "SORT {}", json::shell_doc(pattern.serialize().as_raw()))?;
            if let Some(limit) = limit {
                write!(f, " limit {limit}")?;
            }
            std::slice::from_ref(child)
        }
        SolutionNode::SortMerge {
            pattern,
            dedup,
            children,
            prefixes,
        } => {
            write!(
                f,
                "SORT_MERGE {}",
                json::shell_doc(pattern.serialize().as_raw())
            )?;
            if *dedup {
                f.write_str(" dedup")?;
            }
            if let Some(prefixes) = prefixes {
                let fields = prefixes.fields.join(", ");
                write!(f, "  every {fields} of {}", prefixes.index_name)?;
            }
            children
        }
        SolutionNode::Or {
            dedup,
            filter,
            children,
        } => {
            f.write_str("OR")?;
            if *dedup {
                f.write_str(" dedup")?;
            }
            write_filter(f, filter.as_deref())?;
            children
        }
        SolutionNode::Limit { limit, child } => {
            write!(f, "LIMIT {limit}")?;
            std::slice::from_ref(child)
        }
        SolutionNode::Skip { skip, child } => {
            write!(f, "SKIP {skip}")?;
            std::slice::from_ref(child)
        }
        SolutionNode::Projection {
            kind,
            projection,
            child,
        } => {
            let name = match kind {
                ProjectionKind::Covered => "PROJECTION_COVERED",
                ProjectionKind::Simple => "PROJECTION_SIMPLE",
                ProjectionKind::Default => "PROJECTION_DEFAULT",
            };
            let spec = projection.transform_by().as_raw();
            write!(f, "{name} {}", json::shell_doc(spec))?;
            std::slice::from_ref(child)
        }
        SolutionNode::Subplan { child } => {
            f.write_str("SUBPLAN")?;
            std::slice::from_ref(child)
        }
        SolutionNode::ReturnKey { child } => {
            f.write_str("RETURN_KEY")?;
            std::slice::from_ref(child)
        }
        SolutionNode::AndSorted { children } => {
            f.write_str("AND_SORTED")?;
            children
        }
        SolutionNode::AndHash { children } => {
            f.write_str("AND_HASH")?;
            children
        }
        SolutionNode::Lazy(lazy) => lazy.node().children(),
    };
    for (at, child) in children.iter().enumerate() {
        f.write_str("\n")?;
        let last = at + 1 == children.len();
        let (branch, below) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        write_node(
            f,
            child,
            &format!("{rest}{branch}"),
            &format!("{rest}{below}"),
        )?;
    }
    Ok(())
}

fn direction_name(direction: i8) -> &'static str {
    if direction < 0 { "backward" } else { "forward" }
}

fn write_filter(f: &mut fmt::Formatter<'_>, filter: Option<&MatchExpression>) -> fmt::Result {
    match filter {
        None => Ok(()),
        Some(filter) => write!(f, "  {}", json::shell_doc(filter.serialize().as_raw())),
    }
}

fn write_scan(f: &mut fmt::Formatter<'_>, stage: &str, scan: &IndexScanNode) -> fmt::Result {
    let direction = direction_name(scan.direction);
    write!(f, "{stage} {} {direction}", scan.index.name)?;
    write_bounds(f, scan)?;
    write_filter(f, scan.filter.as_deref())?;
    if scan.dedup {
        f.write_str("  dedup")?;
    }
    if scan.skips > 0 {
        write!(f, "  skips: {}", scan.skips)?;
    }
    Ok(())
}

fn write_bounds(f: &mut fmt::Formatter<'_>, scan: &IndexScanNode) -> fmt::Result {
    match &scan.bounds {
        IndexBounds::Fields(lists) => {
            for (field, list) in lists.iter().enumerate() {
                f.write_str("  ")?;
                list.write(f, has_sort_keys(&scan.index, field))?;
            }
        }
        IndexBounds::KeyRange {
            start,
            end,
            start_inclusive,
            end_inclusive,
        } => {
            let open = if *start_inclusive { '[' } else { '(' };
            let close = if *end_inclusive { ']' } else { ')' };
            let key = |key: &Option<DocBuf>| match key {
                None => "end".to_owned(),
                Some(key) if scan.index.collator.is_some() => {
                    json::shell(shown_key_value(key.as_raw().into()).as_raw())
                }
                Some(key) => json::shell_doc(key.as_raw()),
            };
            write!(f, "  {open}{}, {}{close}", key(start), key(end))?;
        }
    }
    Ok(())
}
