//! Indexes: what they are ([`definition`]), which keys a document has ([`key_generation`]), how entries
//! look ([`key_set`]), and which of them an update may touch ([`modified`]).
//!
//! Nothing here opens a collection: writes keep the entries true in `write/index_maintenance.rs`,
//! `ddl/index_build/` fills new indexes, and `validate.rs` checks them.
//!
//! ```text
//!   entry of an index:   key   = KeyString of the fields, then the RecordId
//!                        value = TypeBits (what the KeyString does not tell of the exact types)
//! ```
//!
//! Unique indexes have the same form: uniqueness is checked, not built in.

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

/// Whether writes and builds keep what indexes promise: unique keys, no parallel arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexConstraints {
    /// A document that breaks a promise is refused.
    #[default]
    Enforced,
    /// Duplicates are stored, and a document whose keys cannot be made has none. For entries of an oplog that
    /// are applied again: later ones restore what the indexes promise.
    Relaxed,
}

/// One index of a collection, as of one moment. A clone shares all but the planner's entry.
#[derive(Clone)]
pub struct Index {
    shape: Arc<IndexShape>,
    /// What the planner sees. A document that makes a further path multikey leads to a new `Index`
    /// in a new catalog, *before* that document can be seen.
    entry: Arc<IndexEntry>,
}

/// How often plans have used an index since the server knows it.
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

    /// Uses counted.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Since when they are counted.
    pub fn since(&self) -> DateTime {
        self.since
    }
}

/// What documents cannot change.
struct IndexShape {
    spec: IndexSpec,
    ident: Arc<str>,
    table: TableId,
    keys: Keys,
    encoder: KeyEncoder,
    partial_filter: Option<PartialFilter>,
    usage: IndexUsage,
    /// The catalog's row lacks multikey paths that the entry has.
    multikey_unsaved: AtomicBool,
}

/// How a document's keys are made.
#[derive(Debug, Clone)]
pub(crate) enum Keys {
    /// Of its values.
    Plain(KeyGenerator),
    /// The same, but one field's values are hashed.
    Hashed(KeyGenerator, usize),
    /// Of its paths.
    Wildcard(WildcardKeys),
    /// Of its vectors.
    Vector(VectorKeys),
}

impl Index {
    /// An index with its table, as the catalog row or a new spec has it.
    /// Errors: `CannotCreateIndex` for a partial filter that an index cannot have.
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

    /// An index of vectors with its table, in which vectors stand in these lists, one set for each field.
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

    /// The same index in another table, still empty.
    pub(crate) fn anew(&self, ident: Arc<str>, table: TableId) -> Result<Index> {
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

    /// What its table has besides entries of documents from the beginning on, ascending.
    pub(crate) fn first_rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let fields = self.all_lists().into_iter().flat_map(|lists| lists.iter());
        let rows = fields.enumerate();
        rows.flat_map(|(number, lists)| lists.rows(number))
            .collect()
    }

    /// Whether it is an index of vectors: no plan uses it, and commands on indexes do not show it.
    pub fn is_vector(&self) -> bool {
        matches!(self.shape.keys, Keys::Vector(_))
    }

    /// What the lists of a field of vectors are about; `None`: it has no such field.
    pub fn vector_lists(&self, field: usize) -> Option<&Lists> {
        self.all_lists()?.get(field)
    }

    /// What the lists of all fields of vectors are about.
    pub(crate) fn all_lists(&self) -> Option<&Arc<[Lists]>> {
        match &self.shape.keys {
            Keys::Vector(keys) => Some(keys.lists()),
            _ => None,
        }
    }

    /// The keys of a document; with relaxed constraints none where they cannot be made.
    /// Errors: those of [`Index::keys_of`], where constraints are enforced.
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

    /// The same index under a changed spec (hidden, expireAfterSeconds). Only while nobody writes.
    pub(crate) fn with_spec(&self, spec: IndexSpec) -> Result<Index> {
        Index::new(
            spec,
            self.shape.ident.clone(),
            self.shape.table,
            self.entry.multikey_paths.clone(),
        )
    }

    /// The same index with these multikey paths too; `None` when it has them.
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

    /// How often it was used.
    pub fn usage(&self) -> &IndexUsage {
        &self.shape.usage
    }

    /// What it was asked to be.
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

    /// Where its entries are.
    pub fn table(&self) -> TableId {
        self.shape.table
    }

    /// What the planner sees.
    pub fn entry(&self) -> &Arc<IndexEntry> {
        &self.entry
    }

    /// How key values become entries.
    pub fn encoder(&self) -> &KeyEncoder {
        &self.shape.encoder
    }

    /// Whether a partial index has the document, as far as its filter says.
    pub fn includes(&self, doc: RawDoc<'_>) -> Result<bool> {
        match &self.shape.partial_filter {
            None => Ok(true),
            Some(filter) => filter.matches(doc),
        }
    }

    /// The keys of a document, into `keys` (cleared first): none when the partial filter leaves it out.
    /// Errors: `CannotIndexParallelArrays`, `CannotBuildIndexKeys`, ambiguous names (16746), arrays in a
    /// hashed field (16766).
    pub fn keys_of(&self, doc: RawDoc<'_>, keys: &mut KeySet) -> Result<()> {
        keys.clear();
        if !self.includes(doc)? {
            return Ok(());
        }
        keys.generate(&self.shape.keys, &self.shape.encoder, doc)
    }

    /// Whether which keys a document has depends on some path of which this holds.
    pub fn depends_on(&self, path: &dyn Fn(&FieldPath) -> bool) -> bool {
        let plain = match &self.shape.keys {
            Keys::Plain(generator) | Keys::Hashed(generator, _) => generator.paths(),
            // Whatever changed may have keys.
            Keys::Wildcard(_) => return true,
            Keys::Vector(keys) => return keys.paths().any(path),
        };
        let filter = self.shape.partial_filter.iter().flat_map(|f| f.reads());
        plain.iter().map(|p| &**p).chain(filter).any(path)
    }

    /// Whether planners know of all these multikey paths.
    pub(crate) fn knows_multikey(&self, paths: &MultikeyPaths) -> bool {
        covers(&self.entry.multikey_paths, paths)
    }

    pub(crate) fn multikey_unsaved(&self) -> &AtomicBool {
        &self.shape.multikey_unsaved
    }
}

/// Whether `paths` says nothing that `known` does not say.
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
