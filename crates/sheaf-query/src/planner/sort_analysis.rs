//! Decides whether scans return their results in the requested sort order.
//!
//! ```text
//!   index {e: 1, s: -1, r: 1}
//!   e: [42, 42]                sort {s: -1}         forward (e is constant)
//!   e: [42, 42]                sort {s: 1, r: -1}   backward
//!   e: [42, 42]                sort {e: -1, s: -1}  forward
//!   e: [1, 1], [2, 2]          sort {s: -1}         no; two scans merged: yes
//!   e: (1, 9)                  sort {s: -1}         no
//! ```
//!
//! Multikey fields are harder: a document sorts by its least (descending: greatest) element, and
//! bounds may exclude that element from the scan. Such a field provides the order only if its own
//! bounds are full and no other field along the same array has bounds. A point on it is constant
//! for the scan, but not for the sort.
//!
//! **Explode for sort.** If the fields before the sort fields have point bounds, the scan of each
//! combination of points is ordered, and merging the scans provides the order without a blocking
//! sort, unless there are too many. If those fields have other bounds, statistics may provide their
//! values, if there are few (sorted pages over everything: the newest ten of all categories).

use std::cell::Cell;
use std::sync::Arc;

use sheaf_bson::Value;

use super::assignment::{deepest_shared_array, is_multikey, traits_of};
use super::bounds::{IndexBounds, Interval, OrderedIntervalList};
use super::collation::orders_as;
use super::index_entry::{IndexEntry, IndexKind};
use super::solution::{IndexScanNode, PrefixProbe, SolutionNode};
use super::statistics::{Prefixes, Statistics};
use crate::matcher::MatchExpression;
use crate::sort::SortPattern;

/// Maximum number of intervals of all scans of one merge, counting the fields after the exploded
/// ones; each scan has a copy of those.
const INTERVALS_MAX: usize = 100_000;
/// Allowed overestimate of the distinct-value count, as a factor.
const DISTINCT_SLACK: u64 = 4;

/// The scan direction that provides an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provides {
    /// The current direction.
    AsIs,
    /// The opposite direction.
    Reversed,
}

/// The role of an index field in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldRole {
    /// The bounds are one value.
    Point,
    /// The bounds contain every value.
    Full,
    /// Other bounds.
    Part,
    /// The bounds may contain text, which the index orders by another collation than the sort.
    OtherText,
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

/// The direction, relative to `direction`, in which a scan with these roles provides the order;
/// `None` if it does not.
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

/// Whether the first key of each document in a scan by this field is its position in the sort.
fn orders_documents(index: &IndexEntry, roles: &[FieldRole], field: usize) -> bool {
    if traits_of(index, field).positional
        || roles[field] == FieldRole::OtherText
        || !index.holds_values_of(field)
    {
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

fn roles_of(scan: &IndexScanNode, pattern: &SortPattern) -> Vec<FieldRole> {
    let mut roles: Vec<FieldRole> = match &scan.bounds {
        IndexBounds::Fields(lists) => lists.iter().map(role_of).collect(),
        IndexBounds::KeyRange { .. } => vec![FieldRole::Part; scan.index.fields.len()],
    };
    for (field, role) in roles.iter_mut().enumerate() {
        if !orders_as(&scan.index, &scan.bounds, field, pattern.collator.as_ref()) {
            *role = FieldRole::OtherText;
        }
    }
    roles
}

/// The same scan in the opposite direction.
fn reversed(scan: IndexScanNode) -> IndexScanNode {
    IndexScanNode {
        bounds: scan.bounds.reversed(),
        direction: -scan.direction,
        ..scan
    }
}

/// The node with its scan in the direction that provides the order, without a merge or a sort.
/// `Err` returns the node unchanged if no direction does.
pub(super) fn ordered(
    node: SolutionNode,
    pattern: &SortPattern,
) -> Result<SolutionNode, SolutionNode> {
    match node {
        SolutionNode::IndexScan(scan) => {
            match provides(
                &scan.index,
                &roles_of(&scan, pattern),
                scan.direction,
                pattern,
            ) {
                None => Err(SolutionNode::IndexScan(scan)),
                Some(Provides::AsIs) => Ok(SolutionNode::IndexScan(scan)),
                Some(Provides::Reversed) => Ok(SolutionNode::IndexScan(reversed(scan))),
            }
        }
        SolutionNode::ClusteredScan(scan) => {
            let roles = roles_of(&scan, pattern);
            match provides(&scan.index, &roles, scan.direction, pattern) {
                None => Err(SolutionNode::ClusteredScan(scan)),
                Some(Provides::AsIs) => Ok(SolutionNode::ClusteredScan(scan)),
                Some(Provides::Reversed) => Ok(SolutionNode::ClusteredScan(reversed(scan))),
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

/// Makes merges of ordered scans.
pub(super) struct Exploder<'a> {
    /// The order of every scan.
    pub pattern: &'a Arc<SortPattern>,
    /// Maximum number of scans of one merge.
    pub max: usize,
    /// Provides the values of leading fields without point bounds.
    pub statistics: Option<&'a dyn Statistics>,
    /// Set if a merge was rejected because it has too many scans.
    pub reached: Cell<bool>,
}

impl Exploder<'_> {
    /// The node as a merge of ordered scans; `None` if that is not possible.
    pub fn merged(&self, node: &SolutionNode) -> Option<SolutionNode> {
        let mut parts = Parts::default();
        let dedup = match node {
            // Checks on documents follow the merge, so that documents are fetched in sort order,
            // and only as many as needed.
            SolutionNode::Fetch { filter, child } => {
                return Some(SolutionNode::Fetch {
                    filter: filter.clone(),
                    child: Box::new(self.merged(child)?),
                });
            }
            SolutionNode::Or { children, .. } => {
                for child in children {
                    self.explode(child, &mut parts)?;
                }
                true
            }
            SolutionNode::IndexScan(scan) => {
                self.explode(node, &mut parts)?;
                scan.dedup
            }
            _ => return None,
        };
        // The number of prefixes may change to one or zero with the data; the plan remains a merge.
        (parts.scans.len() > 1 || parts.prefixes.is_some()).then(|| SolutionNode::SortMerge {
            pattern: self.pattern.clone(),
            dedup,
            children: parts.scans,
            prefixes: parts.prefixes,
        })
    }

    /// Appends to `out` the ordered scans of `node`, which is a scan or a FETCH above one. `None`
    /// if that is not possible.
    fn explode(&self, node: &SolutionNode, out: &mut Parts) -> Option<()> {
        if let SolutionNode::ClusteredScan(_) = node {
            if out.scans.len() >= self.max {
                self.reached.set(true);
                return None;
            }
            out.scans.push(ordered(node.clone(), self.pattern).ok()?);
            return Some(());
        }
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
        let (leading, provides) = self.leading(scan)?;
        let turned = match provides {
            Provides::AsIs => scan.clone(),
            Provides::Reversed => reversed(scan.clone()),
        };
        let room = self.max.saturating_sub(out.scans.len());
        let points = lists[..leading]
            .iter()
            .all(OrderedIntervalList::is_union_of_points);
        let count = lists[..leading]
            .iter()
            .try_fold(1usize, |count, list| count.checked_mul(list.len()))
            .filter(|_| points);
        let trailing: usize = lists[leading..].iter().map(OrderedIntervalList::len).sum();
        let fits = |scans: usize| {
            scans
                .checked_mul(trailing)
                .is_some_and(|n| n <= INTERVALS_MAX)
        };
        let IndexBounds::Fields(of_turned) = &turned.bounds else {
            return None;
        };
        let prefixes = match count {
            Some(count) if count <= room && fits(count) => {
                combinations(&of_turned[..leading], count)
            }
            _ => {
                if points {
                    self.reached.set(true);
                }
                let found = self.prefixes(scan, leading, room)?;
                if !fits(found.values.len()) {
                    return None;
                }
                out.add_probe(scan, leading, &found);
                let points = |values: Vec<Value>| {
                    let lists = values.into_iter().zip(of_turned);
                    lists
                        .map(|(value, list)| list.with(Interval::point(value)))
                        .collect()
                };
                found.values.into_iter().map(points).collect()
            }
        };
        for mut picked in prefixes {
            picked.extend_from_slice(&of_turned[leading..]);
            let one = SolutionNode::IndexScan(IndexScanNode {
                bounds: IndexBounds::Fields(picked),
                skips: 0,
                index: turned.index.clone(),
                direction: turned.direction,
                filter: turned.filter.clone(),
                dedup: turned.dedup,
            });
            out.scans.push(match filter {
                None => one,
                Some(filter) => SolutionNode::Fetch {
                    filter: filter.clone(),
                    child: Box::new(one),
                },
            });
        }
        Some(())
    }

    /// Number of leading fields to explode into points so that each scan provides the order.
    fn leading(&self, scan: &IndexScanNode) -> Option<(usize, Provides)> {
        let mut roles = roles_of(scan, self.pattern);
        for leading in 0..=roles.len() {
            if let Some(provides) = provides(&scan.index, &roles, scan.direction, self.pattern) {
                return Some((leading, provides));
            }
            let role = roles.get_mut(leading)?;
            let path = &scan.index.fields[leading].path;
            // Several strings that the sort distinguishes may share a key.
            if *role == FieldRole::OtherText && self.pattern.parts.iter().any(|p| p.path == *path) {
                return None;
            }
            *role = FieldRole::Point;
        }
        None
    }

    /// The distinct values of the leading fields, if there are at most `room`.
    fn prefixes(&self, scan: &IndexScanNode, leading: usize, room: usize) -> Option<Prefixes> {
        let statistics = self.statistics?;
        if !matches!(scan.index.kind, IndexKind::Btree) || scan.index.collator.is_some() {
            return None;
        }
        let about = statistics.distinct_prefixes(&scan.index, leading)?;
        if about > room as u64 * DISTINCT_SLACK {
            return None;
        }
        statistics.prefixes(scan, leading, room)
    }
}

/// The scans of a merge under construction.
#[derive(Default)]
struct Parts {
    scans: Vec<SolutionNode>,
    prefixes: Option<PrefixProbe>,
}

impl Parts {
    fn add_probe(&mut self, scan: &IndexScanNode, leading: usize, found: &Prefixes) {
        let fields = scan.index.fields[..leading].iter();
        let probe = self.prefixes.get_or_insert_with(|| PrefixProbe {
            index_name: scan.index.name.clone(),
            fields: fields.map(|f| f.path.dotted().to_owned()).collect(),
            keys_examined: 0,
            seeks: 0,
        });
        probe.keys_examined += found.keys_examined;
        probe.seeks += found.seeks;
    }
}

/// Every combination of one interval from each list. The last list varies fastest, as in the index.
fn combinations(lists: &[OrderedIntervalList], count: usize) -> Vec<Vec<OrderedIntervalList>> {
    (0..count)
        .map(|combination| {
            let mut rest = combination;
            let mut picked: Vec<OrderedIntervalList> = lists
                .iter()
                .rev()
                .map(|list| {
                    let pick = rest % list.len();
                    rest /= list.len();
                    list.with(list.intervals()[pick].clone())
                })
                .collect();
            picked.reverse();
            picked
        })
        .collect()
}
