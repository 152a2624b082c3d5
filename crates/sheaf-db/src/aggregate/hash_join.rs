//! A join without an index: the other collection is read once, into a table by value.
//!
//! ```text
//!   probe 1   a scan for the value          there may be no second document
//!   probe 2   all documents into a table    value -> places of the documents that hold it
//!   probe 3.. a look into the table
//! ```
//!
//! A table that outgrows the memory of a stage is given up: then every probe scans.

use std::collections::HashMap;
use std::ops::ControlFlow;

use sheaf_bson::error_code::Result;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{Collator, RawValue};

use crate::exec::Doc;

/// Documents by the values that they hold at a path.
pub(super) struct HashTable {
    path: FieldPath,
    docs: Vec<Doc>,
    places: HashMap<Box<[u8]>, Vec<u32>>,
    bytes: usize,
    key: KeyStringBuilder,
}

impl HashTable {
    /// `None` for a path that is no path.
    pub(super) fn new(path: &str) -> Option<HashTable> {
        Some(HashTable {
            path: FieldPath::parse(path).ok()?,
            docs: Vec::new(),
            places: HashMap::new(),
            bytes: 0,
            key: KeyStringBuilder::new(Directions::ascending()),
        })
    }

    /// Adds a document under each value that an equality would find it by. False when it has outgrown
    /// `bytes_max`.
    pub(super) fn add(&mut self, doc: Doc, collator: Option<&Collator>, bytes_max: usize) -> bool {
        let place = self.docs.len() as u32;
        let raw = doc.as_raw();
        let (key, places, bytes) = (&mut self.key, &mut self.places, &mut self.bytes);
        let _ = for_each_value::<(), _>(raw, &self.path, LeafArrayBehavior::Traverse, |item| {
            if let Some(value) = item.value() {
                key.reset();
                key.append_with(value, collator);
                match places.get_mut(key.as_bytes()) {
                    Some(list) if list.last() == Some(&place) => {}
                    Some(list) => {
                        list.push(place);
                        *bytes += 4;
                    }
                    None => {
                        *bytes += key.as_bytes().len() + 64;
                        places.insert(key.as_bytes().into(), vec![place]);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        self.bytes += doc.len() + size_of::<Doc>();
        self.docs.push(doc);
        self.bytes <= bytes_max && self.docs.len() < u32::MAX as usize
    }

    /// The documents that hold one of the values, each once, in the order in which they were added.
    pub(super) fn find(
        &mut self,
        values: &[RawValue<'_>],
        collator: Option<&Collator>,
    ) -> Result<Vec<Doc>> {
        let mut found: Vec<u32> = Vec::new();
        for value in values {
            self.key.reset();
            self.key.append_with(*value, collator);
            if let Some(places) = self.places.get(self.key.as_bytes()) {
                found.extend(places);
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
