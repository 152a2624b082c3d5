//! Loads an index table from documents: extracts the keys, sorts them, bulk-loads them.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::{Error, ErrorCode, RawDoc, Result};
use sheaf_storage::{Snapshot, StorageError};

use crate::catalog::duplicate_key::duplicate_key;
use crate::catalog::namespace::Namespace;
use crate::collection::Collection;
use crate::collection::index_build::IndexBuild;
use crate::database::Db;
use crate::ddl::index_build::external_sort::ExternalSort;
use crate::events::DbEvent;
use crate::index::key_set::{EntryKey, Key, KeySet, damaged_key};
use crate::index::wildcard_keys::{array_entry, is_array_entry};
use crate::op_context::OpContext;
use crate::record_key::record_id_of;
use crate::storage_error::{IntoClientError, client_error};

/// Phases as currentOp shows them.
pub(super) const PHASE_SCAN: &str = "Index Build: scanning collection";
const PHASE_LOAD: &str = "Index Build: inserting keys from external sorter into index";

/// Interval between progress log messages.
const LOG_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of array paths that a scan remembers per index, to avoid writing them repeatedly.
const ARRAYS_KNOWN_MAX: usize = 10_000;
/// Maximum total size of suspected duplicate keys; a unique build that collects more fails
/// immediately.
const DOUBTFUL_BYTES_MAX: usize = 16 << 20;

/// Keys of a unique index that two records have shared at some point during the build.
#[derive(Debug, Default)]
pub(super) struct DoubtfulKeys {
    keys: Vec<(usize, Vec<u8>)>,
    bytes: usize,
}

impl DoubtfulKeys {
    /// Records a key of index `number` of the build. Returns false when there are too many.
    pub(super) fn add(&mut self, number: usize, key: &[u8]) -> bool {
        self.bytes += key.len() + std::mem::size_of::<(usize, Vec<u8>)>();
        self.keys.push((number, key.to_vec()));
        self.bytes <= DOUBTFUL_BYTES_MAX
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.keys.iter().map(|(number, key)| (*number, &**key))
    }
}

/// Logs progress periodically and checks whether the build must end.
pub(super) struct Watch<'a> {
    pub(super) db: &'a Db,
    pub(super) op: &'a OpContext,
    pub(super) build: &'a IndexBuild,
    pub(super) ns: &'a Namespace,
    logged: Instant,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        db: &'a Db,
        op: &'a OpContext,
        build: &'a IndexBuild,
        ns: &'a Namespace,
    ) -> Watch<'a> {
        Watch {
            db,
            op,
            build,
            ns,
            logged: Instant::now(),
        }
    }

    pub(super) fn advance(&mut self, n: u64) -> Result<()> {
        self.build.progress().advance(n);
        self.op.check_interrupt()?;
        self.build.check_aborted()?;
        if self.logged.elapsed() >= LOG_INTERVAL {
            self.logged = Instant::now();
            let progress = self.build.progress();
            let (done, total) = progress.done_of_total();
            self.db.events().send(DbEvent::IndexBuildProgress {
                ns: self.ns.clone(),
                phase: progress.phase(),
                done,
                total,
            });
        }
        Ok(())
    }
}

/// Fills the build's tables with the keys of a snapshot's documents. Returns the number of keys,
/// and records suspected duplicates of unique indexes in `doubtful`.
pub(super) fn load(
    watch: &mut Watch<'_>,
    collection: &Collection,
    snapshot: Arc<dyn Snapshot>,
    doubtful: &mut DoubtfulKeys,
) -> Result<u64> {
    let sorts = scan(watch, collection, &*snapshot)?;
    // The snapshot keeps the engine from reclaiming space, and is no longer needed.
    drop(snapshot);
    let keys = sorts.iter().map(ExternalSort::len).sum();
    watch.build.progress().enter(PHASE_LOAD, keys);
    for (number, sort) in sorts.into_iter().enumerate() {
        load_one(watch, number, sort, doubtful)?;
    }
    Ok(keys)
}

/// Scans the documents once, for all indexes.
fn scan(
    watch: &mut Watch<'_>,
    collection: &Collection,
    snapshot: &dyn Snapshot,
) -> Result<Vec<ExternalSort>> {
    let build = watch.build;
    let memory = (watch.db.index_build_memory_mb() as usize) << 20;
    let share = memory / build.indexes().len().max(1);
    let dir = watch.db.temp_dir();
    let mut sorts: Vec<ExternalSort> = build
        .indexes()
        .iter()
        .map(|_| ExternalSort::new(dir.clone(), share))
        .collect();
    for (index, sort) in build.indexes().iter().zip(&mut sorts) {
        for (key, value) in index.first_rows() {
            sort.push(&key, &value)?;
        }
    }
    let mut keys = KeySet::new();
    let mut entry = EntryKey::default();
    // Documents of a collection tend to have arrays at the same paths.
    let mut arrays = vec![HashSet::new(); sorts.len()];
    let mut cursor = snapshot.cursor(collection.table()).into_client_error()?;
    let mut on = cursor.seek_first().into_client_error()?;
    while on {
        let id = record_id_of(cursor.key()).ok_or_else(|| {
            Error::new(
                ErrorCode::DATA_CORRUPTION_DETECTED,
                "a record's key is not a record id; run validate on the collection",
            )
        })?;
        let bytes = cursor.value_bytes();
        let doc = RawDoc::stored(&bytes)?;
        for (number, (index, sort)) in build.indexes().iter().zip(&mut sorts).enumerate() {
            index.keys_under(build.constraints(), doc, &mut keys)?;
            build.add_multikey(number, keys.multikey_paths());
            for key in keys.iter() {
                sort.push(entry.of(key.key, &id), key.type_bits)?;
            }
            for path in keys.array_paths() {
                let known = &mut arrays[number];
                if !known.contains(path) {
                    sort.push(&array_entry(path), &[])?;
                    if known.len() < ARRAYS_KNOWN_MAX {
                        known.insert(path.clone());
                    }
                }
            }
        }
        watch.advance(1)?;
        on = cursor.next().into_client_error()?;
    }
    Ok(sorts)
}

fn load_one(
    watch: &mut Watch<'_>,
    number: usize,
    sort: ExternalSort,
    doubtful: &mut DoubtfulKeys,
) -> Result<()> {
    let engine = watch.db.engine().clone();
    let (build, ns) = (watch.build, watch.ns);
    let index = &build.indexes()[number];
    let unique = build.enforces_unique(index);
    let mut sorted = sort.finish()?;
    let mut last_key: Vec<u8> = Vec::new();
    // The iterator that the engine reads can return only engine errors; another error is kept here.
    let failure: RefCell<Option<Error>> = RefCell::new(None);
    let mut last_array: Vec<u8> = Vec::new();
    let mut next = || -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (entry, type_bits) = loop {
            let Some((entry, type_bits)) = sorted.next_pair()? else {
                return Ok(None);
            };
            if is_array_entry(&entry) {
                if entry == last_array {
                    continue;
                }
                last_array.clone_from(&entry);
            }
            break (entry, type_bits);
        };
        watch.advance(1)?;
        if unique {
            let Some((_, key_len)) = decode_record_id(&entry) else {
                return Err(damaged_key("it does not end with a record id"));
            };
            if entry[..key_len] == last_key && !doubtful.add(number, &last_key) {
                let key = Key {
                    key: &last_key,
                    type_bits: &type_bits,
                };
                return Err(duplicate_key(ns, index, key));
            }
            last_key.clear();
            last_key.extend_from_slice(&entry[..key_len]);
        }
        Ok(Some((entry, type_bits)))
    };
    let mut entries = std::iter::from_fn(|| match next() {
        Ok(pair) => pair.map(Ok),
        Err(error) => {
            *failure.borrow_mut() = Some(error);
            Some(Err(StorageError::Closed))
        }
    });
    let loaded = engine.bulk_load(index.table(), &mut entries);
    match (failure.into_inner(), loaded) {
        (Some(error), _) => Err(error),
        (None, loaded) => loaded.map(|_| ()).map_err(client_error),
    }
}
