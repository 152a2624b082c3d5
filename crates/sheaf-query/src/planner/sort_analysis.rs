//! Whether scans give their results in the order asked for.
//!
//! ```text
//!   index {e: 1, s: -1, r: 1}
//!   e: [42, 42]                sort {s: -1}         forward (e is the same everywhere)
//!   e: [42, 42]                sort {s: 1, r: -1}   backward
//!   e: [42, 42]                sort {e: -1, s: -1}  forward
//!   e: [1, 1], [2, 2]          sort {s: -1}         no; two scans merged: yes
//!   e: (1, 9)                  sort {s: -1}         no
//! ```
//!
//! A field that is an array somewhere is harder: a document sorts by its least
//! (descending: greatest) element, and bounds may hide that element from the
//! scan. Such a field gives the order only if its own bounds are full and no
//! other field along the same array is bounded; and a point on it is the same
//! everywhere for the scan, but not for the sort.
//!
//! **Explode for sort.** Where points stand before the sort fields, one scan
//! for each combination of them is ordered, and merging them gives the order
//! without a blocking sort, as long as there are not too many.

use std::sync::Arc;

use super::assignment::{deepest_shared_array, is_multikey, traits_of};
use super::bounds::{IndexBounds, OrderedIntervalList};
use super::index_entry::IndexEntry;
use super::solution::{IndexScanNode, SolutionNode};
use crate::matcher::MatchExpression;
use crate::sort::SortPattern;

/// Intervals of all scans of one merge, those behind the fields taken apart;
/// each scan has them all.
const INTERVALS_MAX: usize = 100_000;

/// In which direction a scan gives an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provides {
    /// As it runs.
    AsIs,
    /// Run the other way.
    Reversed,
}

/// How an index field bears on an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldRole {
    /// One value for the whole scan.
    Point,
    /// Every value.
    Full,
    /// Something between.
    Part,
}

fn role_of(list: &OrderedIntervalList) -> FieldRole {
    if list.is_full() {
        FieldRole::Full
    } else if list.is_point() {
        FieldRole::Point
    } else {
        FieldRole::Part
    }
}

/// Whether a scan with these roles gives the order, walking in `direction`.
fn provides(
    index: &IndexEntry,
    roles: &[FieldRole],
    direction: i8,
    pattern: &SortPattern,
) -> Option<Provides> {
    let single_valued = |field: usize| !is_multikey(index, field);
    let constant = |path: &str| {
        (0..roles.len()).any(|f| {
            roles[f] == FieldRole::Point
                && single_valued(f)
                && index.holds_values_of(f)
                && index.fields[f].path.dotted() == path
        })
    };
    let mut found: Option<Provides> = None;
    let mut field = 0;
    for part in &pattern.parts {
        let path = part.path.dotted();
        if constant(path) {
            continue;
        }
        while field < roles.len()
            && roles[field] == FieldRole::Point
            && index.fields[field].path.dotted() != path
        {
            field += 1;
        }
        if field == roles.len()
            || index.fields[field].path.dotted() != path
            || !orders_documents(index, roles, field)
        {
            return None;
        }
        let ascends = (index.fields[field].direction > 0) == (direction > 0);
        let this = if ascends == part.ascending {
            Provides::AsIs
        } else {
            Provides::Reversed
        };
        if *found.get_or_insert(this) != this {
            return None;
        }
        field += 1;
    }
    Some(found.unwrap_or(Provides::AsIs))
}

/// Whether meeting a document first by this field is meeting it in its place.
fn orders_documents(index: &IndexEntry, roles: &[FieldRole], field: usize) -> bool {
    if traits_of(index, field).positional || !index.holds_values_of(field) {
        return false;
    }
    if !is_multikey(index, field) {
        return true;
    }
    roles[field] == FieldRole::Full
        && (0..roles.len()).all(|other| {
            roles[other] == FieldRole::Full || deepest_shared_array(index, field, other).is_none()
        })
}

fn roles_of(scan: &IndexScanNode) -> Vec<FieldRole> {
    match &scan.bounds {
        IndexBounds::Fields(lists) => lists.iter().map(role_of).collect(),
        IndexBounds::KeyRange { .. } => vec![FieldRole::Part; scan.index.fields.len()],
    }
}

/// The scan that meets the same keys from the other side.
fn reversed(scan: IndexScanNode) -> IndexScanNode {
    IndexScanNode {
        bounds: scan.bounds.reversed(),
        direction: -scan.direction,
        ..scan
    }
}

/// The node with its scan turned such that it gives the order, if it can
/// without merging or sorting; else the node as it was.
pub(super) fn ordered(
    node: SolutionNode,
    pattern: &SortPattern,
) -> Result<SolutionNode, SolutionNode> {
    match node {
        SolutionNode::IndexScan(scan) => {
            match provides(&scan.index, &roles_of(&scan), scan.direction, pattern) {
                None => Err(SolutionNode::IndexScan(scan)),
                Some(Provides::AsIs) => Ok(SolutionNode::IndexScan(scan)),
                Some(Provides::Reversed) => Ok(SolutionNode::IndexScan(reversed(scan))),
            }
        }
        SolutionNode::Fetch { filter, child } => {
            let above = |child: SolutionNode| SolutionNode::Fetch {
                filter,
                child: Box::new(child),
            };
            match ordered(*child, pattern) {
                Ok(child) => Ok(above(child)),
                Err(child) => Err(above(child)),
            }
        }
        other => Err(other),
    }
}

/// The node as a merge of ordered scans, at most `max` of them.
pub(super) fn merged(
    node: &SolutionNode,
    pattern: &Arc<SortPattern>,
    max: usize,
) -> Option<SolutionNode> {
    match node {
        // What is checked on the document is checked after the merge: so
        // documents are read in the order asked for, and no more than needed.
        SolutionNode::Fetch { filter, child } => Some(SolutionNode::Fetch {
            filter: filter.clone(),
            child: Box::new(merged(child, pattern, max)?),
        }),
        SolutionNode::Or { children, .. } => {
            let mut parts = Vec::new();
            for child in children {
                explode(child, pattern, max, &mut parts)?;
            }
            merge(parts, pattern, true)
        }
        SolutionNode::IndexScan(scan) => {
            let mut parts = Vec::new();
            explode(node, pattern, max, &mut parts)?;
            merge(parts, pattern, scan.dedup)
        }
        _ => None,
    }
}

fn merge(
    children: Vec<SolutionNode>,
    pattern: &Arc<SortPattern>,
    dedup: bool,
) -> Option<SolutionNode> {
    (children.len() > 1).then(|| SolutionNode::SortMerge {
        pattern: pattern.clone(),
        dedup,
        children,
    })
}

/// Adds the scans that `node` (a scan, or a FETCH above one) becomes.
fn explode(
    node: &SolutionNode,
    pattern: &SortPattern,
    max: usize,
    out: &mut Vec<SolutionNode>,
) -> Option<()> {
    let (scan, filter): (_, Option<&Option<Arc<MatchExpression>>>) = match node {
        SolutionNode::IndexScan(scan) => (scan, None),
        SolutionNode::Fetch { filter, child } => match child.as_ref() {
            SolutionNode::IndexScan(scan) => (scan, Some(filter)),
            _ => return None,
        },
        _ => return None,
    };
    let IndexBounds::Fields(lists) = &scan.bounds else {
        return None;
    };
    let mut roles = roles_of(scan);
    let mut count = 1usize;
    let mut leading = 0;
    let provides = loop {
        if let Some(provides) = provides(&scan.index, &roles, scan.direction, pattern) {
            break provides;
        }
        // One more field has to be taken apart.
        let list = lists.get(leading)?;
        if !list.is_union_of_points() {
            return None;
        }
        count = count.checked_mul(list.intervals.len())?;
        roles[leading] = FieldRole::Point;
        leading += 1;
        if count.checked_add(out.len())? > max {
            return None;
        }
    };
    let trailing: usize = lists[leading..].iter().map(|l| l.intervals.len()).sum();
    if count.checked_add(out.len())? > max || count.checked_mul(trailing)? > INTERVALS_MAX {
        return None;
    }
    let turned = match provides {
        Provides::AsIs => scan.clone(),
        Provides::Reversed => reversed(scan.clone()),
    };
    let IndexBounds::Fields(lists) = &turned.bounds else {
        return None;
    };
    for combination in 0..count {
        // The last of the leading fields varies fastest, as in the index.
        let mut rest = combination;
        let mut picked: Vec<OrderedIntervalList> = lists[..leading]
            .iter()
            .rev()
            .map(|list| {
                let pick = rest % list.intervals.len();
                rest /= list.intervals.len();
                OrderedIntervalList {
                    name: list.name.clone(),
                    intervals: vec![list.intervals[pick].clone()],
                }
            })
            .collect();
        picked.reverse();
        picked.extend_from_slice(&lists[leading..]);
        let one = SolutionNode::IndexScan(IndexScanNode {
            index: turned.index.clone(),
            bounds: IndexBounds::Fields(picked),
            direction: turned.direction,
            filter: turned.filter.clone(),
            dedup: turned.dedup,
        });
        out.push(match filter {
            None => one,
            Some(filter) => SolutionNode::Fetch {
                filter: filter.clone(),
                child: Box::new(one),
            },
        });
    }
    Some(())
}
