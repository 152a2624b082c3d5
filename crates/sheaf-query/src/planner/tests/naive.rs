//! A naive model: a collection as a list of documents and lists of keys, and an executor of plans
//! that examines everything.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value, compare_values};

use crate::matcher::MatchExpression;
use crate::planner::bounds::{IndexBounds, Interval, OrderedIntervalList};
use crate::planner::bounds_checker::{IndexBoundsChecker, KeyState, ScanBounds};
use crate::planner::index_entry::IndexEntry;
use crate::planner::solution::{IndexScanNode, SolutionNode};
use crate::planner::statistics::{KeyEstimate, Prefixes, Statistics};
use crate::sort::{SortKeyGenerator, SortPattern};

/// Documents, identified by position, and their indexes.
#[derive(Debug)]
pub(super) struct Collection {
    pub docs: Vec<DocBuf>,
    pub indexes: Vec<Arc<IndexEntry>>,
    /// The entries of each index, in index order.
    entries: Vec<Vec<Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    key: Vec<Value>,
    doc: usize,
}

/// A result of a stage.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub doc: usize,
    /// The index key; `None` if the document has been fetched.
    pub key: Option<(Arc<IndexEntry>, Vec<Value>)>,
}

/// The error for a document with two arrays in one key.
struct Parallel;

impl Collection {
    /// Builds the indexes; drops documents with parallel arrays on some index.
    pub fn new(mut docs: Vec<DocBuf>, mut indexes: Vec<IndexEntry>) -> Collection {
        docs.retain(|doc| indexes.iter().all(|index| keys_of(doc, index).is_ok()));
        let mut all = Vec::new();
        for (ident, index) in indexes.iter_mut().enumerate() {
            index.ident = ident as u64;
            let mut entries = Vec::new();
            let mut arrays = vec![BTreeSet::new(); index.fields.len()];
            for (at, doc) in docs.iter().enumerate() {
                let partial = index.partial_filter.as_deref();
                if partial.is_some_and(|p| !p.matches(doc.as_raw()).unwrap())
                    || index.sparse && !has_some_field(doc, index)
                {
                    continue;
                }
                let Ok((keys, positions)) = keys_of(doc, index) else {
                    continue;
                };
                for (all, these) in arrays.iter_mut().zip(positions) {
                    all.extend(these);
                }
                entries.extend(keys.into_iter().map(|key| Entry { key, doc: at }));
            }
            index.multikey_paths = arrays
                .into_iter()
                .map(|positions| positions.into_iter().collect())
                .collect();
            index.multikey = index.multikey_paths.iter().any(|p| !p.is_empty());
            entries.sort_by(|a: &Entry, b: &Entry| {
                compare_keys(index, &a.key, &b.key).then(a.doc.cmp(&b.doc))
            });
            all.push(entries);
        }
        Collection {
            docs,
            indexes: indexes.into_iter().map(Arc::new).collect(),
            entries: all,
        }
    }

    /// The matching documents, by testing each.
    pub fn matching(&self, filter: &MatchExpression) -> Vec<usize> {
        (0..self.docs.len())
            .filter(|&at| filter.matches(self.docs[at].as_raw()).unwrap())
            .collect()
    }

    /// The results of a stage.
    pub fn run(&self, node: &SolutionNode) -> Vec<Row> {
        match node {
            SolutionNode::Eof => Vec::new(),
            SolutionNode::CollScan { direction, filter } => {
                let mut rows: Vec<Row> = (0..self.docs.len())
                    .map(|doc| Row { doc, key: None })
                    .filter(|row| self.passes(row, filter.as_deref()))
                    .collect();
                if *direction < 0 {
                    rows.reverse();
                }
                rows
            }
            SolutionNode::IndexScan(scan) | SolutionNode::CountScan(scan) => self.scan(scan),
            SolutionNode::ClusteredScan(scan) => {
                let bare = IndexScanNode {
                    filter: None,
                    ..scan.clone()
                };
                let rows = self.scan(&bare).into_iter();
                rows.map(|row| Row { key: None, ..row })
                    .filter(|row| self.passes(row, scan.filter.as_deref()))
                    .collect()
            }
            SolutionNode::DistinctScan { scan, fields, .. } => {
                let mut rows = self.scan(scan);
                let lead = |row: &Row| row.key.as_ref().unwrap().1[..*fields].to_vec();
                let same = |a: &[Value], b: &[Value]| {
                    a.iter()
                        .zip(b)
                        .all(|(x, y)| compare_values(x.as_raw(), y.as_raw()).is_eq())
                };
                rows.dedup_by(|a, b| same(&lead(a), &lead(b)));
                rows
            }
            SolutionNode::Fetch { filter, child } => self
                .run(child)
                .into_iter()
                .map(|row| Row { key: None, ..row })
                .filter(|row| self.passes(row, filter.as_deref()))
                .collect(),
            SolutionNode::Sort {
                pattern,
                limit,
                child,
            } => {
                let mut rows = self.run(child);
                rows.sort_by_cached_key(|row| self.sort_key(row, pattern));
                rows.truncate(limit.map_or(usize::MAX, |l| l as usize));
                rows
            }
            SolutionNode::SortMerge {
                pattern,
                dedup,
                children,
                ..
            } => {
                let mut rows = Vec::new();
                for child in children {
                    let sorted = self.run(child);
                    let keys: Vec<_> = sorted.iter().map(|r| self.sort_key(r, pattern)).collect();
                    assert!(
                        keys.is_sorted(),
                        "child of SORT_MERGE is not in order: {child}"
                    );
                    rows.extend(sorted);
                }
                rows.sort_by_cached_key(|row| self.sort_key(row, pattern));
                if *dedup {
                    drop_seen(&mut rows);
                }
                rows
            }
            SolutionNode::Lazy(lazy) => self.run(lazy.node()),
            SolutionNode::Or {
                dedup,
                filter,
                children,
            } => {
                let mut rows: Vec<Row> = children.iter().flat_map(|c| self.run(c)).collect();
                if *dedup {
                    drop_seen(&mut rows);
                }
                rows.retain(|row| self.passes(row, filter.as_deref()));
                rows
            }
            SolutionNode::Limit { limit, child } => {
                let mut rows = self.run(child);
                rows.truncate(*limit as usize);
                rows
            }
            SolutionNode::Skip { skip, child } => {
                self.run(child).into_iter().skip(*skip as usize).collect()
            }
            SolutionNode::Projection { child, .. }
            | SolutionNode::Subplan { child }
            | SolutionNode::ReturnKey { child } => self.run(child),
            SolutionNode::AndSorted { children } | SolutionNode::AndHash { children } => {
                let mut children = children.iter().map(|child| self.run(child));
                let mut rows = children.next().unwrap_or_default();
                for other in children {
                    rows.retain(|row| other.iter().any(|o| o.doc == row.doc));
                }
                rows
            }
        }
    }

    fn passes(&self, row: &Row, filter: Option<&MatchExpression>) -> bool {
        filter.is_none_or(|filter| match &row.key {
            None => filter.matches(self.docs[row.doc].as_raw()).unwrap(),
            Some((index, key)) => filter.matches(key_document(index, key).as_raw()).unwrap(),
        })
    }

    /// The sort key of a row, from its index key if there is one: a plan must not sort keys without
    /// the sort fields.
    pub fn sort_key(&self, row: &Row, pattern: &SortPattern) -> Vec<u8> {
        let mut generator = SortKeyGenerator::new(pattern);
        let mut out = Vec::new();
        match &row.key {
            None => generator
                .key_of_document(self.docs[row.doc].as_raw(), &mut out)
                .unwrap(),
            Some((index, key)) => {
                let values = pattern.parts.iter().map(|part| {
                    let field = index.fields.iter().position(|f| f.path == part.path);
                    key[field.expect("the key holds the sort fields")].as_raw()
                });
                out = generator.key_of_values(values);
            }
        }
        out
    }

    fn scan(&self, scan: &IndexScanNode) -> Vec<Row> {
        let entries = &self.entries[scan.index.ident as usize];
        let mut rows: Vec<Row> = entries
            .iter()
            .filter(|entry| within(&scan.bounds, &scan.index, scan.direction, &entry.key))
            .map(|entry| Row {
                doc: entry.doc,
                key: Some((scan.index.clone(), entry.key.clone())),
            })
            .collect();
        if scan.direction < 0 {
            rows.reverse();
        }
        self.check_by_seeks(scan, entries, &rows);
        rows.retain(|row| self.passes(row, scan.filter.as_deref()));
        if scan.dedup {
            drop_seen(&mut rows);
        }
        rows
    }

    /// Asserts that the bounds checker accepts exactly the keys within the bounds, and that its
    /// seeks skip none of them.
    fn check_by_seeks(&self, scan: &IndexScanNode, entries: &[Entry], within: &[Row]) {
        let Some(bounds) = ScanBounds::from_bounds(&scan.bounds, &scan.index, scan.direction)
        else {
            return;
        };
        let mut checker = IndexBoundsChecker::default();
        if checker.start(&bounds).is_none() {
            assert!(within.is_empty());
            return;
        }
        let mut valid = 0;
        let mut keys: Vec<&Entry> = entries.iter().collect();
        if scan.direction < 0 {
            keys.reverse();
        }
        for entry in keys {
            let raw: Vec<RawValue<'_>> = entry.key.iter().map(Value::as_raw).collect();
            match checker.check_key(&bounds, raw.as_slice()) {
                KeyState::Valid => valid += 1,
                KeyState::MustAdvance(_) => {}
                KeyState::Done => break,
            }
        }
        assert_eq!(valid, within.len(), "{:?}", scan.bounds);
    }
}

/// Statistics with exact key counts that make every extension worthwhile: the collection is huge
/// and has few distinct values.
#[derive(Debug)]
pub(super) struct Encouraging<'c>(pub &'c Collection);

impl Statistics for Encouraging<'_> {
    fn records(&self) -> u64 {
        1 << 40
    }

    fn keys_within(&self, scan: &IndexScanNode) -> Option<KeyEstimate> {
        let keys = self.0.scan(scan).len() as f64;
        Some(KeyEstimate {
            keys,
            low: keys,
            high: keys,
        })
    }

    fn distinct_prefixes(&self, _: &IndexEntry, _: usize) -> Option<u64> {
        Some(1)
    }

    fn prefixes(&self, scan: &IndexScanNode, fields: usize, max: usize) -> Option<Prefixes> {
        let all = IndexScanNode {
            filter: None,
            dedup: false,
            ..scan.clone()
        };
        let rows = self.0.scan(&all);
        let mut values: Vec<Vec<Value>> = rows
            .into_iter()
            .map(|row| row.key.unwrap().1[..fields].to_vec())
            .collect();
        values.dedup_by(|a, b| compare_keys(&scan.index, a, b).is_eq());
        (values.len() <= max).then_some(Prefixes {
            keys_examined: values.len() as u64,
            seeks: values.len() as u64,
            values,
        })
    }
}

fn drop_seen(rows: &mut Vec<Row>) {
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(row.doc));
}

fn compare_keys(index: &IndexEntry, a: &[Value], b: &[Value]) -> Ordering {
    a.iter()
        .zip(b)
        .zip(&index.fields)
        .map(|((x, y), field)| {
            let order = compare_values(x.as_raw(), y.as_raw());
            if field.direction < 0 {
                order.reverse()
            } else {
                order
            }
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn within(bounds: &IndexBounds, index: &IndexEntry, direction: i8, key: &[Value]) -> bool {
    match bounds {
        IndexBounds::Fields(lists) => lists
            .iter()
            .zip(key)
            .all(|(list, value)| holds(list, value.as_raw())),
        IndexBounds::KeyRange {
            start,
            end,
            start_inclusive,
            end_inclusive,
        } => {
            let along = |other: &DocBuf| {
                let other: Vec<Value> = other.iter().map(|e| Value::from(e.value())).collect();
                let order = compare_keys(index, key, &other);
                if direction < 0 {
                    order.reverse()
                } else {
                    order
                }
            };
            start.as_ref().is_none_or(|start| match along(start) {
                Ordering::Equal => *start_inclusive,
                order => order.is_gt(),
            }) && end.as_ref().is_none_or(|end| match along(end) {
                Ordering::Equal => *end_inclusive,
                order => order.is_lt(),
            })
        }
    }
}

/// Whether a list in either direction contains a value.
fn holds(list: &OrderedIntervalList, value: RawValue<'_>) -> bool {
    list.intervals().iter().any(|interval| {
        let descends = compare_values(interval.start.as_raw(), interval.end.as_raw()).is_gt();
        let ascending: Interval = if descends {
            interval.clone().reversed()
        } else {
            interval.clone()
        };
        ascending.contains(value)
    })
}

/// The nested document with the values of a key.
pub(super) fn key_document(index: &IndexEntry, key: &[Value]) -> DocBuf {
    fn append(fields: &[(Vec<&str>, &Value)], out: &mut DocBuilder) {
        let mut done: Vec<&str> = Vec::new();
        for (parts, value) in fields {
            let Some((first, rest)) = parts.split_first() else {
                continue;
            };
            if done.contains(first) {
                continue;
            }
            done.push(first);
            if rest.is_empty() {
                out.append_value(first, value);
                continue;
            }
            let inner: Vec<(Vec<&str>, &Value)> = fields
                .iter()
                .filter(|(parts, _)| parts.first() == Some(first))
                .map(|(parts, value)| (parts[1..].to_vec(), *value))
                .collect();
            out.begin_document(first);
            append(&inner, out);
            out.end();
        }
    }
    let fields: Vec<(Vec<&str>, &Value)> = index
        .fields
        .iter()
        .zip(key)
        .map(|(field, value)| (field.path.parts().collect(), value))
        .collect();
    let mut out = DocBuilder::new();
    append(&fields, &mut out);
    out.finish()
}

fn has_some_field(doc: &DocBuf, index: &IndexEntry) -> bool {
    index.fields.iter().any(|field| {
        let mut found = false;
        let _ = for_each_value(
            doc.as_raw(),
            &field.path,
            LeafArrayBehavior::NoTraverse,
            |item| {
                found |= item.value().is_some();
                std::ops::ControlFlow::<()>::Continue(())
            },
        );
        found
    })
}

/// The state of the traversal of one field's path.
#[derive(Clone)]
struct Walk<'a> {
    path: &'a FieldPath,
    /// `None` for a missing field.
    value: Option<Value>,
    /// Number of path parts traversed.
    parts: usize,
    done: bool,
}

type Keys = (Vec<Vec<Value>>, Vec<BTreeSet<usize>>);

/// The keys of a document, without duplicates, and for each field the positions of arrays in its
/// path.
fn keys_of(doc: &DocBuf, index: &IndexEntry) -> Result<Keys, Parallel> {
    let walks: Vec<Walk<'_>> = index
        .fields
        .iter()
        .map(|field| Walk {
            path: &field.path,
            value: Some(Value::Document(doc.clone())),
            parts: 0,
            done: false,
        })
        .collect();
    let mut keys = Vec::new();
    let mut arrays = vec![BTreeSet::new(); walks.len()];
    walk(walks, &mut keys, &mut arrays)?;
    let order = |a: &Vec<Value>, b: &Vec<Value>| compare_keys(index, a, b);
    keys.sort_by(order);
    keys.dedup_by(|a, b| order(a, b).is_eq());
    Ok((keys, arrays))
}

fn walk(
    mut walks: Vec<Walk<'_>>,
    keys: &mut Vec<Vec<Value>>,
    arrays: &mut [BTreeSet<usize>],
) -> Result<(), Parallel> {
    let mut array: Option<(String, Vec<Value>)> = None;
    let mut at_array = Vec::new();
    for (i, w) in walks.iter_mut().enumerate() {
        while !w.done {
            match (&w.value, w.path.part(w.parts)) {
                (Some(Value::Array(elements)), _) => {
                    let here = w.path.prefix(w.parts).to_owned();
                    match &array {
                        None => {
                            let elements = elements.as_raw().iter().map(Value::from).collect();
                            array = Some((here, elements));
                        }
                        Some((other, _)) if *other == here => {}
                        Some(_) => return Err(Parallel),
                    }
                    arrays[i].insert(w.parts - 1);
                    at_array.push(i);
                    break;
                }
                (_, None) => w.done = true,
                (Some(Value::Document(doc)), Some(part)) => {
                    w.value = doc.get(part).map(Value::from);
                    w.parts += 1;
                }
                _ => {
                    w.value = None;
                    w.done = true;
                }
            }
        }
    }
    let Some((_, elements)) = array else {
        keys.push(
            walks
                .into_iter()
                .map(|w| w.value.unwrap_or(Value::Null))
                .collect(),
        );
        return Ok(());
    };
    let none = [None];
    let some: Vec<Option<Value>> = elements.into_iter().map(Some).collect();
    for element in if some.is_empty() { &none[..] } else { &some } {
        let mut below = walks.clone();
        for &i in &at_array {
            let w = &mut below[i];
            match (element, w.path.part(w.parts)) {
                (None, None) => (w.value, w.done) = (Some(Value::Undefined), true),
                (Some(element), None) => (w.value, w.done) = (Some(element.clone()), true),
                (Some(Value::Document(doc)), Some(part)) => {
                    w.value = doc.get(part).map(Value::from);
                    w.parts += 1;
                }
                _ => (w.value, w.done) = (None, true),
            }
        }
        walk(below, keys, arrays)?;
    }
    Ok(())
}
