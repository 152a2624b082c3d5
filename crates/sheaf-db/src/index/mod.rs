//! Indexes: their definitions ([`definition`]), the keys of a document ([`key_generation`]), the
//! encoding of entries ([`key_set`]), and which indexes an update may affect ([`modified`]).
//!
//! Nothing here opens a collection: `write/index_maintenance.rs` keeps entries up to date on
//! writes, `ddl/index_build/` fills new indexes, and `validate.rs` checks them.
//!
//! ```text
//!   entry of an index:   key   = KeyString of the fields, then the RecordId
//!                        value = TypeBits (type information that the KeyString loses)
//! ```
//!
//! Unique indexes have the same form: the write path checks uniqueness, the format does not enforce
//! it.

pub mod definition;
pub mod key_generation;
pub mod key_set;
pub mod modified;
pub mod partial_filter;
pub mod vector;
pub mod wildcard_keys;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DateTime, RawDoc, Result};
use sheaf_query::planner::index_entry::{IndexEntry, IndexKind, MultikeyPaths, fields_of};
use sheaf_storage::TableId;

use definition::{IndexSpec, cannot_create};
use key_generation::KeyGenerator;
use key_set::{KeyEncoder, KeySet};
use partial_filter::PartialFilter;
use vector::VectorKeys;
use vector::lists::Lists;
use wildcard_keys::WildcardKeys;

/// Whether writes and builds enforce the guarantees of indexes: unique keys, no parallel arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexConstraints {
    /// Rejects a document that violates a guarantee.
    #[default]
    Enforced,
    /// Stores duplicates, and no keys for a document whose keys cannot be generated. For
    /// re-applying oplog entries: later entries restore the guarantees.
    Relaxed,
}

/// One index of a collection at one catalog version. Clones share everything but the planner's
/// entry.
#[derive(Clone)]
pub struct Index {
    shape: Arc<IndexShape>,
    /// The planner's view of the index. A document that makes a further path multikey leads to a
    /// new `Index` in a new catalog, *before* that document becomes visible.
    entry: Arc<IndexEntry>,
}

/// How often plans have used an index since the server opened or created it.
#[derive(Debug)]
pub struct IndexUsage {
    operations: AtomicU64,
    since: DateTime,
}

impl Default for IndexUsage {
    fn default() -> Self {
        IndexUsage {
            operations: AtomicU64::new(0),
            since: DateTime::now(),
        }
    }
}

impl IndexUsage {
    /// Counts one use.
    pub fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of uses counted.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// When counting began.
    pub fn since(&self) -> DateTime {
        self.since
    }
}

/// The part of an index that documents cannot change.
struct IndexShape {
    spec: IndexSpec,
    ident: Arc<str>,
    table: TableId,
    keys: Keys,
    encoder: KeyEncoder,
    partial_filter: Option<PartialFilter>,
    usage: IndexUsage,
    /// The catalog row lacks multikey paths that the entry has.
    multikey_unsaved: AtomicBool,
}

/// How a document's keys are generated.
#[derive(Debug, Clone)]
pub(crate) enum Keys {
    /// From the document's values.
    Plain(KeyGenerator),
    /// From the document's values, with the values of the field at this position hashed.
    Hashed(KeyGenerator, usize),
    /// From the document's paths.
    Wildcard(WildcardKeys),
    /// From the document's vectors.
    Vector(VectorKeys),
}

impl Index {
    /// Creates an index over `table`, from a catalog row or a new spec.
    /// Errors: `CannotCreateIndex` for a partial filter that indexes do not support.
    pub fn new(
        spec: IndexSpec,
        ident: Arc<str>,
        table: TableId,
        multikey_paths: MultikeyPaths,
    ) -> Result<Index> {
        if let Some(vector) = &spec.vector {
            let lists = vector.definition.vectors().iter().map(Lists::one).collect();
            return Ok(Index::of_vectors(spec, ident, table, lists));
        }
        let projection = spec.wildcard_projection.as_ref().map(|doc| doc.as_raw());
        let (fields, kind) =
            fields_of(spec.key.as_raw(), projection).map_err(|e| cannot_create(e.message()))?;
        let partial_filter = match &spec.partial_filter {
            Some(filter) => Some(PartialFilter::parse(
                filter.as_raw(),
                spec.collator().cloned(),
            )?),
            None => None,
        };
        let plain =
            || KeyGenerator::new(fields.iter().map(|f| f.path.clone()).collect(), spec.sparse);
        let keys = match &kind {
            IndexKind::Btree => Keys::Plain(plain()),
            IndexKind::Hashed { field } => Keys::Hashed(plain(), *field),
            IndexKind::Wildcard(wildcard) => Keys::Wildcard(WildcardKeys::new(&fields, wildcard)),
        };
        let encoder = KeyEncoder::new(&fields, &kind, spec.collator().cloned());
        let mut multikey_paths = multikey_paths;
        multikey_paths.resize(fields.len(), Vec::new());
        let entry = IndexEntry {
            name: spec.name.clone(),
            ident: table.0,
            key_pattern: spec.key.clone(),
            fields,
            kind,
            clustered: false,
            multikey: multikey_paths.iter().any(|field| !field.is_empty()),
            multikey_paths,
            unique: spec.enforces_unique(),
            sparse: spec.sparse,
            partial_filter: partial_filter.as_ref().map(|f| f.expression().clone()),
            partial_filter_spec: spec.partial_filter.clone(),
            collator: spec.collator().cloned(),
            hidden: spec.hidden,
            version: spec.version,
        };
        Ok(Index {
            shape: Arc::new(IndexShape {
                keys,
                encoder,
                partial_filter,
                usage: IndexUsage::default(),
                multikey_unsaved: AtomicBool::new(false),
                spec,
                ident,
                table,
            }),
            entry: Arc::new(entry),
        })
    }

    /// Creates a vector index over `table` with these lists, one set per vector field.
    pub(crate) fn of_vectors(
        spec: IndexSpec,
        ident: Arc<str>,
        table: TableId,
        lists: Arc<[Lists]>,
    ) -> Index {
        let keys = match &spec.vector {
            Some(vector) => Keys::Vector(VectorKeys::new(vector, lists)),
            None => Keys::Plain(KeyGenerator::new(Vec::new(), false)),
        };
        let entry = IndexEntry {
            name: spec.name.clone(),
            ident: table.0,
            key_pattern: spec.key.clone(),
            fields: Vec::new(),
            kind: IndexKind::Btree,
            clustered: false,
            multikey: false,
            multikey_paths: MultikeyPaths::new(),
            unique: false,
            sparse: true,
            partial_filter: None,
            partial_filter_spec: None,
            collator: None,
            hidden: true,
            version: spec.version,
        };
        Index {
            shape: Arc::new(IndexShape {
                keys,
                encoder: KeyEncoder::new(&[], &IndexKind::Btree, None),
                partial_filter: None,
                usage: IndexUsage::default(),
                multikey_unsaved: AtomicBool::new(false),
                spec,
                ident,
                table,
            }),
            entry: Arc::new(entry),
        }
    }

    /// The same index over another, empty table.
    pub(crate) fn over_table(&self, ident: Arc<str>, table: TableId) -> Result<Index> {
        match self.all_lists() {
            Some(lists) => Ok(Index::of_vectors(
                self.spec().clone(),
                ident,
                table,
                lists.clone(),
            )),
            None => Index::new(self.spec().clone(), ident, table, Vec::new()),
        }
    }

    /// Rows other than document entries that a new table of this index starts with, ascending.
    pub(crate) fn first_rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let fields = self.all_lists().into_iter().flat_map(|lists| lists.iter());
        let rows = fields.enumerate();
        rows.flat_map(|(number, lists)| lists.rows(number))
            .collect()
    }

    /// Whether this is a vector index. No plan uses it, and index commands do not show it.
    pub fn is_vector(&self) -> bool {
        matches!(self.shape.keys, Keys::Vector(_))
    }

    /// The lists of a vector field; `None` if there is no field of this number.
    pub fn vector_lists(&self, field: usize) -> Option<&Lists> {
        self.all_lists()?.get(field)
    }

    /// The lists of all vector fields; `None` if this is not a vector index.
    pub(crate) fn all_lists(&self) -> Option<&Arc<[Lists]>> {
        match &self.shape.keys {
            Keys::Vector(keys) => Some(keys.lists()),
            _ => None,
        }
    }

    /// Generates the keys of a document; under relaxed constraints, no keys where generation fails.
    /// Errors: those of [`Index::keys_of`], if constraints are enforced.
    pub(crate) fn keys_under(
        &self,
        constraints: IndexConstraints,
        doc: RawDoc<'_>,
        keys: &mut KeySet,
    ) -> Result<()> {
        match self.keys_of(doc, keys) {
            Err(_) if constraints == IndexConstraints::Relaxed => {
                keys.clear();
                Ok(())
            }
            made => made,
        }
    }

    /// The same index with a changed spec (hidden, expireAfterSeconds). Only while there are no
    /// writers.
    pub(crate) fn with_spec(&self, spec: IndexSpec) -> Result<Index> {
        Index::new(
            spec,
            self.shape.ident.clone(),
            self.shape.table,
            self.entry.multikey_paths.clone(),
        )
    }

    /// The same index with these multikey paths added; `None` if it has them all.
    pub(crate) fn with_multikey(&self, paths: &MultikeyPaths) -> Option<Index> {
        if covers(&self.entry.multikey_paths, paths) {
            return None;
        }
        let mut entry = IndexEntry::clone(&self.entry);
        merge_multikey_paths(&mut entry.multikey_paths, paths);
        entry.multikey = true;
        Some(Index {
            shape: self.shape.clone(),
            entry: Arc::new(entry),
        })
    }

    /// Usage counter.
    pub fn usage(&self) -> &IndexUsage {
        &self.shape.usage
    }

    /// The definition.
    pub fn spec(&self) -> &IndexSpec {
        &self.shape.spec
    }

    /// Its name, unique within the collection.
    pub fn name(&self) -> &str {
        &self.shape.spec.name
    }

    /// The stable identifier of its table, `index-<n>-<hex>`.
    pub fn ident(&self) -> &str {
        &self.shape.ident
    }

    /// The table of its entries.
    pub fn table(&self) -> TableId {
        self.shape.table
    }

    /// The planner's view of the index.
    pub fn entry(&self) -> &Arc<IndexEntry> {
        &self.entry
    }

    /// Encodes key values into entries.
    pub fn encoder(&self) -> &KeyEncoder {
        &self.shape.encoder
    }

    /// Whether the partial filter, if any, admits the document.
    pub fn includes(&self, doc: RawDoc<'_>) -> Result<bool> {
        match &self.shape.partial_filter {
            None => Ok(true),
            Some(filter) => filter.matches(doc),
        }
    }

    /// Generates the keys of a document into `keys`, which is cleared first; none if the partial
    /// filter excludes the document.
    /// Errors: `CannotIndexParallelArrays`, `CannotBuildIndexKeys`, ambiguous names (16746), arrays
    /// in a hashed field (16766).
    pub fn keys_of(&self, doc: RawDoc<'_>, keys: &mut KeySet) -> Result<()> {
        keys.clear();
        if !self.includes(doc)? {
            return Ok(());
        }
        keys.generate(&self.shape.keys, &self.shape.encoder, doc)
    }

    /// Whether a document's keys depend on some path for which `path` returns true.
    pub fn depends_on(&self, path: &dyn Fn(&FieldPath) -> bool) -> bool {
        let plain = match &self.shape.keys {
            Keys::Plain(generator) | Keys::Hashed(generator, _) => generator.paths(),
            // Any changed path may have keys.
            Keys::Wildcard(_) => return true,
            Keys::Vector(keys) => return keys.paths().any(path),
        };
        let filter = self.shape.partial_filter.iter().flat_map(|f| f.reads());
        plain.iter().map(|p| &**p).chain(filter).any(path)
    }

    /// Whether all of these multikey paths are visible to planners.
    pub(crate) fn has_multikey_paths(&self, paths: &MultikeyPaths) -> bool {
        covers(&self.entry.multikey_paths, paths)
    }

    pub(crate) fn multikey_unsaved(&self) -> &AtomicBool {
        &self.shape.multikey_unsaved
    }
}

/// Whether `known` includes every path of `paths`.
fn covers(known: &MultikeyPaths, paths: &MultikeyPaths) -> bool {
    paths
        .iter()
        .zip(known)
        .all(|(paths, known)| paths.iter().all(|part| known.binary_search(part).is_ok()))
}

/// Adds `more` to `paths`, field by field.
pub(crate) fn merge_multikey_paths(paths: &mut MultikeyPaths, more: &MultikeyPaths) {
    paths.resize(paths.len().max(more.len()), Vec::new());
    for (field, more) in paths.iter_mut().zip(more) {
        for part in more {
            if let Err(at) = field.binary_search(part) {
                field.insert(at, *part);
            }
        }
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("spec", &self.spec().to_doc())
            .field("ident", &self.ident())
            .finish_non_exhaustive()
    }
}
