//! A join without an index: the foreign collection is read once into a hash table keyed by value.
//!
//! ```text
//!   probe 1   a scan for the value          there may be no second probe
//!   probe 2   all documents into a table    value -> documents that hold it
//!   probe 3.. a lookup in the table
//! ```
//!
//! A table that outgrows the stage's memory is dropped; every later probe then scans.

use std::ops::ControlFlow;

use sheaf_bson::error_code::Result;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{Collator, RawValue};
use sheaf_query::key_table::KeyTable;

use crate::exec::Doc;

/// Documents, indexed by the values they hold at a path.
pub(super) struct HashTable {
    path: FieldPath,
    docs: Vec<Doc>,
    values: KeyTable,
    /// Per value: its first and last link.
    ends: Vec<(u32, u32)>,
    links: Vec<Link>,
    bytes: usize,
    key: KeyStringBuilder,
}

/// A document that holds a value, linked to the next document with the same value.
struct Link {
    doc: u32,
    /// Index into `links`; [`NO_LINK`] after the last.
    next: u32,
}

const NO_LINK: u32 = u32::MAX;

impl HashTable {
    /// `None` if `path` is not a valid field path.
    pub(super) fn new(path: &str) -> Option<HashTable> {
        Some(HashTable {
            path: FieldPath::parse(path).ok()?,
            docs: Vec::new(),
            values: KeyTable::new(),
            ends: Vec::new(),
            links: Vec::new(),
            bytes: 0,
            key: KeyStringBuilder::new(Directions::ascending()),
        })
    }

    /// Adds a document under each value by which an equality would find it. Returns false once the
    /// table exceeds `bytes_max`.
    pub(super) fn add(&mut self, doc: Doc, collator: Option<&Collator>, bytes_max: usize) -> bool {
        let place = self.docs.len() as u32;
        let raw = doc.as_raw();
        let (key, values, bytes) = (&mut self.key, &mut self.values, &mut self.bytes);
        let (ends, links) = (&mut self.ends, &mut self.links);
        let _ = for_each_value::<(), _>(raw, &self.path, LeafArrayBehavior::Traverse, |item| {
            if let Some(value) = item.value() {
                key.reset();
                key.append_with(value, collator);
                let (at, is_new) = values.insert(key.as_bytes());
                let link = links.len() as u32;
                if is_new {
                    *bytes += key.as_bytes().len() + 64;
                    ends.push((link, link));
                } else if links[ends[at].1 as usize].doc == place {
                    return ControlFlow::Continue(());
                } else {
                    *bytes += size_of::<Link>();
                    links[ends[at].1 as usize].next = link;
                    ends[at].1 = link;
                }
                links.push(Link {
                    doc: place,
                    next: NO_LINK,
                });
            }
            ControlFlow::Continue(())
        });
        self.bytes += doc.len() + size_of::<Doc>();
        self.docs.push(doc);
        self.bytes <= bytes_max && self.links.len() < NO_LINK as usize / 2
    }

    /// Returns the documents that hold one of the values, each once, in insertion order.
    pub(super) fn find(
        &mut self,
        values: &[RawValue<'_>],
        collator: Option<&Collator>,
    ) -> Result<Vec<Doc>> {
        let mut found: Vec<u32> = Vec::new();
        for value in values {
            self.key.reset();
            self.key.append_with(*value, collator);
            let first = self.values.find(self.key.as_bytes());
            let mut next = first.map_or(NO_LINK, |at| self.ends[at].0);
            while let Some(link) = self.links.get(next as usize) {
                found.push(link.doc);
                next = link.next;
            }
        }
        if values.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        Ok(found
            .into_iter()
            .filter_map(|at| self.docs.get(at as usize).cloned())
            .collect())
    }
}
