//! Vector indexes: the vectors of a collection's documents, in lists of such as are near each other.
//!
//! ```text
//!   key    1 | field | list, 4 bytes | record id          of documents that have a vector there
//!   value  packing | length, f32 | filter size, u32 | filter fields, BSON | components
//!
//!   key    0 | "v" | field | ...                          what the lists are about ([`lists`])
//! ```
//!
//! To which list a vector belongs is a function of the vector and of centroids that never change in the life of
//! the table. So the entries of a document follow from the document alone, as those of any index do, and all
//! that keeps indexes true (writes, builds beside writes, `validate`, repair) keeps these true. When a collection
//! has outgrown its centroids, the index is built anew, beside reads and writes ([`crate::ddl::search_indexes`]).
//!
//! A search reads the lists whose centroids are nearest; what filters test stands beside the vector, so of the
//! documents only those are read that are results ([`search`]).
//!
//! Which list it is follows from sums of 32-bit floats, whose order is part of the format
//! ([`sheaf_query::vector::kernels`]).

pub mod lists;
pub mod search;
pub mod training;

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result};
use sheaf_query::vector::{Packed, Packing, Similarity, VectorIndexDefinition, kernels, pack};

use self::lists::Lists;
use crate::index::key_set::damaged_key;

/// What every key begins with; behind all rows about lists.
const KEY_PREFIX: u8 = 1;
/// Bytes of a key: prefix, field, list.
pub(crate) const KEY_BYTES: usize = 6;
/// Bytes of a value before the filter fields.
const HEAD_BYTES: usize = 9;
/// What the filter fields of one document may take.
const FILTER_BYTES_MAX: usize = 1 << 20;

/// A vector index as asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSpec {
    /// Its identifier through all versions, 24 hexadecimal digits.
    pub id: String,
    /// Which definition it is, from 0.
    pub version: i64,
    /// What it was asked to be.
    pub definition: Arc<VectorIndexDefinition>,
}

impl VectorSpec {
    /// Errors: those of definitions; `DataCorruptionDetected` for a row that is none.
    pub(crate) fn from_row(row: RawDoc<'_>) -> Result<VectorSpec> {
        let damaged = || {
            Error::new(
                ErrorCode::DATA_CORRUPTION_DETECTED,
                "the catalog's row of a vector index is damaged",
            )
        };
        let definition = row.get("definition").and_then(|d| d.as_document());
        Ok(VectorSpec {
            id: row
                .get("id")
                .and_then(|v| v.as_str())
                .ok_or_else(damaged)?
                .to_owned(),
            version: row
                .get("version")
                .and_then(|v| v.as_i64_exact())
                .ok_or_else(damaged)?,
            definition: Arc::new(VectorIndexDefinition::parse(
                definition.ok_or_else(damaged)?,
            )?),
        })
    }

    /// The inverse of [`VectorSpec::from_row`].
    pub(crate) fn to_row(&self) -> DocBuf {
        let mut row = DocBuilder::new();
        row.append("id", self.id.as_str());
        row.append("version", self.version);
        row.append_bson("definition", self.definition.spec());
        row.finish()
    }

    /// A key pattern for those who want one: `{embedding: "vector"}`.
    pub(crate) fn key_pattern(&self) -> DocBuf {
        let mut key = DocBuilder::new();
        for field in self.definition.vectors() {
            key.append(field.path.dotted(), "vector");
        }
        key.finish()
    }
}

/// How a document's entries are made.
#[derive(Debug, Clone)]
pub(crate) struct VectorKeys {
    definition: Arc<VectorIndexDefinition>,
    lists: Arc<[Lists]>,
    filters: FilterTree,
}

/// The paths that filters test, as a tree.
#[derive(Debug, Clone, Default)]
struct FilterTree {
    /// All that is here is kept.
    whole: bool,
    below: Vec<(Box<str>, FilterTree)>,
}

impl FilterTree {
    fn add(&mut self, path: &FieldPath) {
        let mut node = self;
        for part in path.parts() {
            let at = match node.below.iter().position(|(name, _)| **name == *part) {
                Some(at) => at,
                None => {
                    node.below.push((part.into(), FilterTree::default()));
                    node.below.len() - 1
                }
            };
            node = &mut node.below[at].1;
        }
        node.whole = true;
    }

    /// The part of a document that decides about these paths as the whole does. What is no document on the
    /// way to a path is kept as it is: an array decides by all of its elements.
    fn copy(&self, doc: RawDoc<'_>, out: &mut DocBuilder) {
        for element in doc {
            let Some((_, node)) = self.below.iter().find(|(name, _)| **name == *element.key())
            else {
                continue;
            };
            match element.value() {
                RawValue::Document(inner) if !node.whole => {
                    out.begin_document(element.key());
                    node.copy(inner, out);
                    out.end();
                }
                _ => {
                    out.append_raw_element(element);
                }
            }
        }
    }
}

impl VectorKeys {
    pub(crate) fn new(spec: &VectorSpec, lists: Arc<[Lists]>) -> VectorKeys {
        let mut filters = FilterTree::default();
        for path in spec.definition.filters() {
            filters.add(path);
        }
        VectorKeys {
            definition: spec.definition.clone(),
            lists,
            filters,
        }
    }

    /// What the lists of each field of vectors are about, in the definition's order.
    pub(crate) fn lists(&self) -> &Arc<[Lists]> {
        &self.lists
    }

    /// The paths that entries depend on.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        let vectors = self.definition.vectors().iter().map(|field| &*field.path);
        vectors.chain(self.definition.filters().iter().map(|path| &**path))
    }

    /// Hands over key and value of each entry of a document, keys ascending.
    /// Errors: `CannotBuildIndexKeys` for filter fields that are too large.
    pub(crate) fn for_each_entry(
        &self,
        doc: RawDoc<'_>,
        add: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut filter = None;
        let (mut value, mut floats) = (Vec::new(), Vec::new());
        for (number, field) in self.definition.vectors().iter().enumerate() {
            let Some(found) = value_at(doc, &field.path) else {
                continue;
            };
            let filter = match &mut filter {
                Some(filter) => filter,
                none => none.insert(self.filter_fields(doc)?),
            };
            value.clear();
            value.resize(HEAD_BYTES, 0);
            value.extend_from_slice(filter);
            let components_at = value.len();
            let Some(packing) = pack(found, field.dimensions, &mut value) else {
                continue;
            };
            let packed = Packed {
                packing,
                bytes: &value[components_at..],
            };
            kernels::unpack(packed, field.dimensions, &mut floats);
            let norm = kernels::norm(&floats);
            // A vector without length has no angle to any other.
            if !norm.is_finite() || norm == 0.0 && field.similarity == Similarity::Cosine {
                continue;
            }
            value[0] = packing as u8;
            value[1..5].copy_from_slice(&norm.to_le_bytes());
            value[5..HEAD_BYTES].copy_from_slice(&(filter.len() as u32).to_le_bytes());
            let list = self.lists[number].list_of(&floats);
            add(&entry_prefix(number, list), &value)?;
        }
        Ok(())
    }

    fn filter_fields(&self, doc: RawDoc<'_>) -> Result<Vec<u8>> {
        if self.definition.filters().is_empty() {
            return Ok(Vec::new());
        }
        let mut out = DocBuilder::new();
        self.filters.copy(doc, &mut out);
        let fields = out.finish().into_vec();
        if fields.len() > FILTER_BYTES_MAX {
            return Err(Error::new(
                ErrorCode::CANNOT_BUILD_INDEX_KEYS,
                format!(
                    "the fields that a vectorSearch index filters by take {} bytes, more than the \
                     {FILTER_BYTES_MAX} that they may",
                    fields.len()
                ),
            ));
        }
        Ok(fields)
    }
}

/// The value at a path; documents within arrays are not looked into.
pub(crate) fn value_at<'a>(doc: RawDoc<'a>, path: &FieldPath) -> Option<RawValue<'a>> {
    let mut parts = path.parts();
    let mut value = doc.get(parts.next()?)?;
    for part in parts {
        value = value.as_document()?.get(part)?;
    }
    Some(value)
}

/// What the keys of a list begin with.
pub(crate) fn entry_prefix(field: usize, list: u32) -> [u8; KEY_BYTES] {
    let list = list.to_be_bytes();
    [KEY_PREFIX, field as u8, list[0], list[1], list[2], list[3]]
}

/// What the keys of a field begin with.
pub(crate) fn field_prefix(field: usize) -> [u8; 2] {
    [KEY_PREFIX, field as u8]
}

/// An entry's value, taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryValue<'a> {
    pub(crate) norm: f32,
    /// Empty where the index filters by nothing.
    pub(crate) filter: &'a [u8],
    pub(crate) packed: Packed<'a>,
}

impl<'a> EntryValue<'a> {
    /// Errors: `DataCorruptionDetected`.
    #[inline]
    pub(crate) fn parse(value: &'a [u8], dimensions: usize) -> Result<EntryValue<'a>> {
        let parsed = || {
            let (head, rest) = value.split_first_chunk::<HEAD_BYTES>()?;
            let packing = Packing::from_byte(head[0])?;
            let filter_len = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
            let (filter, bytes) = rest.split_at_checked(filter_len as usize)?;
            (bytes.len() == packing.bytes_of(dimensions)).then_some(EntryValue {
                norm: f32::from_le_bytes([head[1], head[2], head[3], head[4]]),
                filter,
                packed: Packed { packing, bytes },
            })
        };
        parsed().ok_or_else(|| damaged_key("its value is not a vector"))
    }
}
