//! Vector indexes: the vectors of a collection's documents, partitioned into lists of near
//! neighbours.
//!
//! ```text
//!   key    1 | field | list, 4 bytes | record id          for each document with a vector in the field
//!   value  packing | length, f32 | filter size, u32 | filter fields, BSON | components
//!
//!   key    0 | "v" | field | ...                          the lists' centroids ([`lists`])
//! ```
//!
//! The list of a vector is a function of the vector and of centroids that never change during the
//! life of the table. A document's entries therefore follow from the document alone, as in any
//! index, and everything that keeps indexes consistent (writes, builds concurrent with writes,
//! `validate`, repair) works unchanged. When a collection outgrows its centroids, the index is
//! rebuilt concurrently with reads and writes ([`crate::ddl::search_indexes`]).
//!
//! A search reads the lists with the nearest centroids. Entries hold the fields that filters test
//! next to the vector, so a search fetches only the documents it returns ([`search`]).
//!
//! The choice of list depends on sums of 32-bit floats, whose order is part of the format
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

/// First byte of every entry; sorts after all rows about lists.
const KEY_PREFIX: u8 = 1;
/// Length of a key without the record id: prefix, field, list.
pub(crate) const KEY_BYTES: usize = 6;
/// Length of a value before the filter fields.
const HEAD_BYTES: usize = 9;
/// Maximum size of the filter fields of one document, in bytes.
const FILTER_BYTES_MAX: usize = 1 << 20;

/// The definition of a vector index.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSpec {
    /// Identifier that all versions share, 24 hexadecimal digits.
    pub id: String,
    /// Version of the definition, from 0.
    pub version: i64,
    /// The requested definition.
    pub definition: Arc<VectorIndexDefinition>,
}

impl VectorSpec {
    /// Errors: those of definitions; `DataCorruptionDetected` for a malformed row.
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

    /// A key pattern for display: `{embedding: "vector"}`.
    pub(crate) fn key_pattern(&self) -> DocBuf {
        let mut key = DocBuilder::new();
        for field in self.definition.vectors() {
            key.append(field.path.dotted(), "vector");
        }
        key.finish()
    }
}

/// Generates the entries of a document.
#[derive(Debug, Clone)]
pub(crate) struct VectorKeys {
    definition: Arc<VectorIndexDefinition>,
    lists: Arc<[Lists]>,
    filters: FilterTree,
}

/// The paths that filters test, as a prefix tree.
#[derive(Debug, Clone, Default)]
struct FilterTree {
    /// A filter tests this path itself: keep the whole value.
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

    /// Copies the part of a document on which these paths evaluate as on the whole. A value other
    /// than a document on the way to a path is copied whole: all elements of an array count.
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

    /// The lists of each vector field, in the definition's order.
    pub(crate) fn lists(&self) -> &Arc<[Lists]> {
        &self.lists
    }

    /// The paths that entries depend on.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        let vectors = self.definition.vectors().iter().map(|field| &*field.path);
        vectors.chain(self.definition.filters().iter().map(|path| &**path))
    }

    /// Calls `add` with key and value of each entry of a document, keys ascending.
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
            // A vector of length zero has no angle to any other.
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
                    "the filter fields of a vectorSearch index take {} bytes, which exceeds the \
                     limit of {FILTER_BYTES_MAX}",
                    fields.len()
                ),
            ));
        }
        Ok(fields)
    }
}

/// The value at a path; arrays are not traversed.
pub(crate) fn value_at<'a>(doc: RawDoc<'a>, path: &FieldPath) -> Option<RawValue<'a>> {
    let mut parts = path.parts();
    let mut value = doc.get(parts.next()?)?;
    for part in parts {
        value = value.as_document()?.get(part)?;
    }
    Some(value)
}

/// Common prefix of the keys of a list.
pub(crate) fn entry_prefix(field: usize, list: u32) -> [u8; KEY_BYTES] {
    let list = list.to_be_bytes();
    [KEY_PREFIX, field as u8, list[0], list[1], list[2], list[3]]
}

/// Common prefix of the keys of a field.
pub(crate) fn field_prefix(field: usize) -> [u8; 2] {
    [KEY_PREFIX, field as u8]
}

/// A parsed entry value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryValue<'a> {
    pub(crate) norm: f32,
    /// Empty if the index has no filter fields.
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
