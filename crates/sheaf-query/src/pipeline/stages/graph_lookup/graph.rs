//! A cache of the part of a graph that searches have visited, and one search through it.
//!
//! Values to look up and found documents are numbered. The documents found for a value are cached
//! for later searches, because paths through a graph often share nodes:
//!
//! ```text
//!   value 7 {connectTo = "a"} ── found ──> node 3, node 9        or: not looked up yet
//!   node 3  {_id: .., ..}     ── next ───> value 12, value 7
//! ```
//!
//! Each value and `_id` is marked with the last search that visited it, so a search needs no sets,
//! and neither hashes nor copies while it traverses the cache.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::path::array_index;
use sheaf_bson::{Collator, DocBuf, RawDoc, RawValue, Value};

use crate::expression::location;
use crate::key_table::KeyTable;

use super::super::sub_pipeline::visit_values;

/// Memory limit of one search (found documents and values), in bytes.
const SEARCH_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Maximum size of the cache at the start of a search, in bytes.
const KNOWN_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The cached part of a graph.
pub(super) struct Graph {
    rules: Rules,
    value_keys: KeyTable,
    values: Vec<Sought>,
    id_keys: KeyTable,
    ids: Vec<Met>,
    nodes: Vec<Node>,
    /// Approximate size, in bytes.
    bytes: usize,
    /// The number of the current search.
    search: u32,
    /// The number of the last query on the collection.
    question: u32,
}

/// The connection between documents.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) collator: Option<Arc<Collator>>,
    pub(super) connect_from: Box<[Box<str>]>,
    /// `connectToField` in parts; `None` if a document does not show which value found it.
    pub(super) connect_to: Option<Box<[Box<str>]>>,
    pub(super) max_depth: Option<u64>,
}

impl Rules {
    /// The parts of `connectToField`, if they show which value found a document.
    pub(super) fn parts_of(connect_to: &str) -> Option<Box<[Box<str>]>> {
        let parts: Box<[Box<str>]> = connect_to.split('.').map(Box::from).collect();
        // A number may select an array element, but a filter also traverses the array.
        let has_position = parts.iter().any(|part| array_index(part).is_some());
        (!has_position).then_some(parts)
    }
}

/// A value to look up.
struct Sought {
    value: Value,
    /// The nodes that have it; `None` if unknown.
    found: Option<Vec<u32>>,
    looked_for_in: u32,
    asked_in: u32,
}

/// An `_id`. If several documents (of a view) have the same `_id`, a search uses the first.
struct Met {
    met_in: u32,
    /// The most recent node with this `_id`.
    last: u32,
}

/// A document.
struct Node {
    doc: DocBuf,
    id: u32,
    /// The numbers of the values to which it refers; `None` until needed.
    next: Option<Box<[u32]>>,
}

/// A document that a search has reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    node: u32,
    /// Minimum number of steps to it.
    pub(super) depth: u64,
}

/// One search. Its buffers are reused by later searches.
#[derive(Default)]
pub(super) struct Search {
    /// The documents reached, in order.
    pub(super) found: Vec<Found>,
    /// Numbers of the values to look up next.
    pub(super) frontier: Vec<u32>,
    bytes: usize,
}

/// The KeyString of a value.
fn key_of<'k>(
    key: &'k mut KeyStringBuilder,
    value: RawValue<'_>,
    collator: Option<&Collator>,
) -> &'k [u8] {
    key.reset();
    key.append_with(value, collator);
    key.as_bytes()
}

/// A buffer for building keys.
pub(super) struct KeyBuffer(KeyStringBuilder);

impl Default for KeyBuffer {
    fn default() -> KeyBuffer {
        KeyBuffer(KeyStringBuilder::new(Directions::default()))
    }
}

impl Graph {
    pub(super) fn new(rules: Rules) -> Graph {
        Graph {
            rules,
            value_keys: KeyTable::new(),
            values: Vec::new(),
            id_keys: KeyTable::new(),
            ids: Vec::new(),
            nodes: Vec::new(),
            bytes: 0,
            search: 0,
            question: 0,
        }
    }

    /// Begins a search. Clears the cache, and thereby all numbers, if it is too large.
    pub(super) fn begin(&mut self, search: &mut Search) {
        search.found.clear();
        search.frontier.clear();
        search.bytes = 0;
        if self.bytes > KNOWN_BYTES_MAX || self.search == u32::MAX || self.question > u32::MAX / 2 {
            *self = Graph::new(self.rules.clone());
        }
        self.search += 1;
    }

    /// Adds a value to the search, unless this search has looked it up before.
    pub(super) fn look_for(
        &mut self,
        value: RawValue<'_>,
        search: &mut Search,
        buffer: &mut KeyBuffer,
    ) {
        let number = self.number_of(value, buffer);
        self.follow(number, search);
    }

    fn number_of(&mut self, value: RawValue<'_>, buffer: &mut KeyBuffer) -> u32 {
        let key = key_of(&mut buffer.0, value, self.rules.collator.as_deref());
        let (number, is_new) = self.value_keys.insert(key);
        if is_new {
            self.bytes += 2 * key.len() + 128;
            self.values.push(Sought {
                value: value.to_value(),
                found: None,
                looked_for_in: 0,
                asked_in: 0,
            });
        }
        number as u32
    }

    fn follow(&mut self, number: u32, search: &mut Search) {
        let sought = &mut self.values[number as usize];
        if sought.looked_for_in != self.search {
            sought.looked_for_in = self.search;
            search.bytes += 2 * self.value_keys.key(number as usize).len() + 96;
            search.frontier.push(number);
        }
    }

    /// Adds the cached documents of a value to the search. Returns false if they are unknown.
    ///
    /// Errors: 40099 if the search exceeds its memory limit.
    pub(super) fn recall(
        &mut self,
        number: u32,
        depth: u64,
        search: &mut Search,
        buffer: &mut KeyBuffer,
    ) -> Result<bool> {
        let count = match &self.values[number as usize].found {
            Some(found) => found.len(),
            None => return Ok(false),
        };
        for at in 0..count {
            let found = self.values[number as usize].found.as_deref();
            if let Some(&node) = found.and_then(|found| found.get(at)) {
                self.meet(node, depth, search, buffer)?;
            }
        }
        Ok(true)
    }

    /// The values with these numbers, for a query on the collection.
    pub(super) fn ask(&mut self, numbers: &[u32]) -> Vec<RawValue<'_>> {
        self.question += 1;
        for number in numbers {
            self.values[*number as usize].asked_in = self.question;
        }
        let values = numbers.iter();
        values
            .map(|number| self.values[*number as usize].value.as_raw())
            .collect()
    }

    /// Adds a document that the last query returned.
    ///
    /// Errors: 40099 if the search exceeds its memory limit.
    pub(super) fn answer(
        &mut self,
        doc: RawDoc<'_>,
        depth: u64,
        search: &mut Search,
        buffer: &mut KeyBuffer,
    ) -> Result<u32> {
        let node = self.node_of(doc, buffer);
        self.meet(node, depth, search, buffer)?;
        Ok(node)
    }

    fn node_of(&mut self, doc: RawDoc<'_>, buffer: &mut KeyBuffer) -> u32 {
        let id = doc.get("_id").unwrap_or(RawValue::Null);
        // `_id`s are compared without the collation.
        let key = key_of(&mut buffer.0, id, None);
        let (id, is_new) = self.id_keys.insert(key);
        let key_len = key.len();
        let node = self.nodes.len() as u32;
        if is_new {
            self.bytes += key_len + 64;
            self.ids.push(Met {
                met_in: 0,
                last: node,
            });
        } else {
            let last = self.ids[id].last;
            if self.nodes[last as usize].doc.as_bytes() == doc.as_bytes() {
                return last;
            }
            self.ids[id].last = node;
        }
        self.bytes += doc.len_bytes() + size_of::<Node>();
        self.nodes.push(Node {
            doc: doc.to_buf(),
            id: id as u32,
            next: None,
        });
        node
    }

    /// Caches that the values of the last query found exactly these nodes.
    pub(super) fn learn(&mut self, asked: &[u32], nodes: &[u32], buffer: &mut KeyBuffer) {
        let Some(path) = &self.rules.connect_to else {
            return;
        };
        // For other values, a document does not show which one found it: null also matches a
        // missing field.
        let is_plain = |number: &u32| {
            !matches!(
                self.values[*number as usize].value,
                Value::Null | Value::Undefined | Value::Array(_) | Value::Regex { .. }
            )
        };
        if !asked.iter().all(is_plain) {
            return;
        }
        let mut found: Vec<(u32, u32)> = Vec::new();
        if let [only] = asked {
            found.extend(nodes.iter().map(|node| (*only, *node)));
        } else {
            for node in nodes {
                let first = found.len();
                visit_values(
                    self.nodes[*node as usize].doc.as_raw(),
                    path,
                    &mut |value| {
                        let key = key_of(&mut buffer.0, value, self.rules.collator.as_deref());
                        if let Some(number) = self.value_keys.find(key)
                            && self.values[number].asked_in == self.question
                            && !found[first..].contains(&(number as u32, *node))
                        {
                            found.push((number as u32, *node));
                        }
                    },
                );
            }
        }
        self.bytes += 24 * asked.len() + 8 * found.len();
        for number in asked {
            self.values[*number as usize].found = Some(Vec::new());
        }
        for (number, node) in found {
            if let Some(nodes) = &mut self.values[number as usize].found {
                nodes.push(node);
            }
        }
    }

    /// Adds a document to the search, unless the search has visited it before.
    fn meet(
        &mut self,
        number: u32,
        depth: u64,
        search: &mut Search,
        buffer: &mut KeyBuffer,
    ) -> Result<()> {
        let node = &self.nodes[number as usize];
        let id = node.id as usize;
        if self.ids[id].met_in == self.search {
            return Ok(());
        }
        self.ids[id].met_in = self.search;
        search.bytes += self.id_keys.key(id).len() + 64 + node.doc.len_bytes();
        // References at the maximum depth are not followed.
        if self.rules.max_depth.is_none_or(|max| depth < max) {
            self.follow_all(number, search, buffer);
        }
        if search.bytes > SEARCH_BYTES_MAX {
            return Err(location(
                40099,
                format!(
                    "$graphLookup reached maximum memory consumption of {SEARCH_BYTES_MAX} bytes; restrict the search by maxDepth or restrictSearchWithMatch"
                ),
            ));
        }
        search.found.push(Found {
            node: number,
            depth,
        });
        Ok(())
    }

    /// Adds all values to which a node refers to the search.
    fn follow_all(&mut self, number: u32, search: &mut Search, buffer: &mut KeyBuffer) {
        let next = match self.nodes[number as usize].next.take() {
            Some(next) => next,
            None => {
                // Moved out while the values are numbered.
                let doc = std::mem::take(&mut self.nodes[number as usize].doc);
                let path = std::mem::take(&mut self.rules.connect_from);
                let mut next = Vec::new();
                visit_values(doc.as_raw(), &path, &mut |value| {
                    next.push(self.number_of(value, buffer));
                });
                self.nodes[number as usize].doc = doc;
                self.rules.connect_from = path;
                self.bytes += 4 * next.len();
                next.into()
            }
        };
        for value in &next {
            self.follow(*value, search);
        }
        self.nodes[number as usize].next = Some(next);
    }

    /// The document that was found.
    pub(super) fn doc(&self, found: Found) -> RawDoc<'_> {
        self.nodes[found.node as usize].doc.as_raw()
    }
}
