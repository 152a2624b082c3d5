//! Rebuilds indexes from the documents after damage: the last phase of `--repair`, once the storage
//! engine has salvaged what is readable.
//!
//! ```text
//!   missing tables that rows name             created, empty         before the catalog is opened
//!   records that are not documents            removed, counted
//!   clustered records under a wrong key       moved to the key of their `_id`, removed if that is taken
//!   every index                               built into a new table ── row changed ── old table dropped
//! ```
//!
//! An index that the remaining documents violate (a duplicate unique key, since deleted documents
//! may have reappeared) is dropped and reported; of two documents with one `_id` the newer is kept.
//!
//! No other operation uses the database during a rebuild. A crash leaves each collection with its
//! old indexes or its new ones.

use std::sync::Arc;

use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::record_id::RecordKeyBytes;
use sheaf_bson::validate::{ValidateOptions, validate};
use sheaf_bson::{RawDoc, Result};
use sheaf_storage::{Durability, StorageEngine, TableId, WriteBatch};

use crate::catalog::clustered::record_id_of_id;
use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::collection::Collection;
use crate::collection::index_build::IndexBuild;
use crate::database::Db;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::index_build::load::{DoubtfulKeys, PHASE_SCAN, Watch, load};
use crate::ddl::index_build::run::refuse_duplicates;
use crate::ddl::indexes::ns_not_found;
use crate::index::Index;
use crate::op_context::{OpContext, OperationProgress};
use crate::record_key::{record_id_of, record_key};
use crate::storage_error::IntoClientError;

/// Maximum number of records removed in one batch.
const REMOVED_AT_ONCE: u64 = 1000;

/// The result of rebuilding the indexes of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltCollection {
    /// Name of the collection.
    pub ns: Namespace,
    /// Number of documents.
    pub records: u64,
    /// Number of records removed: not documents, or with an `_id` that a newer document has.
    pub removed: u64,
    /// Names of the rebuilt indexes.
    pub indexes: Vec<String>,
    /// Names of the indexes that could not be rebuilt and were dropped, with the errors.
    pub dropped: Vec<(String, String)>,
}

/// Creates the tables that the catalog names and the engine lacks, empty, so that the catalog can
/// be opened. Returns their number.
///
/// Errors: `DataCorruptionDetected` for an unreadable catalog, `MustUpgrade`, those of the engine.
pub fn make_missing_tables(engine: &Arc<dyn StorageEngine>) -> Result<u64> {
    let rows = rows::read_all(&*engine.snapshot().into_client_error()?)?;
    let present = engine.tables().into_client_error()?;
    let mut batch = WriteBatch::new();
    let mut made = 0;
    for row in &rows.collections {
        let collection = &row.collection;
        let indexes = collection.index_list().iter().map(Index::table);
        for table in indexes.chain([collection.table()]) {
            if present.binary_search(&table).is_err() && batch.table(table).is_none() {
                batch.create_table(table);
                made += 1;
            }
        }
    }
    engine
        .apply(batch, Durability::Synced)
        .into_client_error()?;
    Ok(made)
}

impl Db {
    /// Rebuilds all indexes of all collections; see the module.
    ///
    /// Errors: `Interrupted`, those of the engine. Problems with documents are reported in the
    /// result.
    pub fn rebuild_indexes(self: &Arc<Self>, op: &OpContext) -> Result<Vec<RebuiltCollection>> {
        let catalog = self.catalog();
        let mut all = Vec::new();
        for collection in catalog.collections() {
            all.push(self.rebuild(op, collection)?);
        }
        Ok(all)
    }

    /// Rebuilds the indexes of one collection while the server runs; its writers wait. With
    /// `repair`, removes records that are not documents and drops indexes that the documents
    /// violate; otherwise such an index fails the rebuild and leaves all as they were.
    ///
    /// Errors: `NamespaceNotFound`, `BackgroundOperationInProgressForNamespace`, those of builds.
    pub fn rebuild_indexes_of(
        self: &Arc<Self>,
        op: &OpContext,
        ns: &Namespace,
        repair: bool,
    ) -> Result<RebuiltCollection> {
        let writer = self.catalog_writer();
        let _database = writer.lock_database(op, ns.db())?;
        let catalog = self.catalog();
        let Some(collection) = catalog.collection(ns) else {
            return Err(ns_not_found(ns));
        };
        let (_intent, collection) = self.exclusive_on(op, collection, BuildsMeet::Refuse)?;
        self.rebuild_locked(op, &collection, repair)
    }

    fn rebuild(
        self: &Arc<Self>,
        op: &OpContext,
        collection: &Arc<Collection>,
    ) -> Result<RebuiltCollection> {
        let _intent = collection.state.intents.exclusive(op)?;
        self.rebuild_locked(op, collection, true)
    }

    fn rebuild_locked(
        self: &Arc<Self>,
        op: &OpContext,
        collection: &Arc<Collection>,
        repair: bool,
    ) -> Result<RebuiltCollection> {
        let mut rebuilt = RebuiltCollection {
            ns: collection.ns().clone(),
            records: 0,
            removed: match repair {
                true => self.remove_invalid_records(op, collection)?,
                false => 0,
            },
            indexes: Vec::new(),
            dropped: Vec::new(),
        };
        if collection.kept_indexes().is_empty() {
            // A clustered collection without secondary indexes, or the oplog: nothing to rebuild.
            rebuilt.records = self.record_count(collection.ns())?;
            return Ok(rebuilt);
        }
        let mut ready = Vec::new();
        for index in collection.index_list() {
            match self.rebuild_one(op, collection, index, &mut rebuilt.removed) {
                Ok(index) => {
                    rebuilt.indexes.push(index.name().to_owned());
                    ready.push(index);
                }
                Err(error) if repair && !index.spec().is_id_index() && is_of_documents(&error) => {
                    let name = index.name().to_owned();
                    rebuilt.dropped.push((name, error.to_string()));
                }
                Err(error) => {
                    self.drop_tables_of(&ready)?;
                    return Err(error);
                }
            }
        }
        let mut unit = self.storage().begin().into_client_error()?;
        for index in collection.index_list() {
            unit.drop_table(index.table());
        }
        let changed = collection.with_indexes(ready)?;
        rows::put_collection(&mut unit, &changed);
        let change = CatalogChange {
            removed: Vec::new(),
            added: vec![changed],
            ..Default::default()
        };
        self.catalog_writer().commit_then_publish(unit, &change)?;
        self.engine().sync().into_client_error()?;
        rebuilt.records = self.record_count(collection.ns())?;
        Ok(rebuilt)
    }

    /// Drops the tables of indexes that were built and are not used.
    fn drop_tables_of(&self, indexes: &[Index]) -> Result<()> {
        let mut unit = self.storage().begin().into_client_error()?;
        for index in indexes {
            unit.drop_table(index.table());
        }
        unit.commit(Durability::Buffered).into_client_error()?;
        Ok(())
    }

    /// Removes records that no command could read, and moves records of a clustered collection to
    /// their proper keys. Returns the number removed.
    fn remove_invalid_records(&self, op: &OpContext, collection: &Collection) -> Result<u64> {
        let table = collection.table();
        let snapshot = self.engine().snapshot().into_client_error()?;
        let mut cursor = snapshot.cursor(table).into_client_error()?;
        let mut removing = Removing::new(self, table);
        let mut on = cursor.seek_first().into_client_error()?;
        while on {
            op.check_interrupt()?;
            let is_document = record_id_of(cursor.key()).is_some()
                && validate(cursor.value(), &ValidateOptions::STORED).is_ok();
            if !is_document {
                removing.remove(cursor.key())?;
            } else if let Some(place) = place_of(collection, cursor.value())
                && place[..] != *cursor.key()
            {
                removing.remove(cursor.key())?;
                if snapshot.get(table, &place).into_client_error()?.is_none() {
                    removing.put_back(&place, cursor.value());
                }
            }
            on = cursor.next().into_client_error()?;
        }
        removing.finish()
    }

    /// Builds one index into a new table. For `_id`, removes and counts conflicting documents.
    fn rebuild_one(
        self: &Arc<Self>,
        op: &OpContext,
        collection: &Collection,
        index: &Index,
        removed: &mut u64,
    ) -> Result<Index> {
        let mut unit = self.storage().begin().into_client_error()?;
        let (table, ident) = self.catalog_writer().allocate("index", &mut unit);
        unit.create_table(table);
        let made = index.over_table(ident, table)?;
        // There are no writers, so it needs no table for side writes.
        let subject = format!("{} [{}]", collection.ns(), made.name());
        let count = self.record_count(collection.ns())?;
        let progress = OperationProgress::new(PHASE_SCAN, subject, count);
        let build = IndexBuild::new(vec![made], TableId::CATALOG, None, progress);
        unit.commit(Durability::Buffered).into_client_error()?;
        let built = self.fill(op, collection, &build, removed);
        if built.is_err() {
            let mut unit = self.storage().begin().into_client_error()?;
            unit.drop_table(table);
            unit.commit(Durability::Buffered).into_client_error()?;
        }
        built
    }

    fn fill(
        &self,
        op: &OpContext,
        collection: &Collection,
        build: &IndexBuild,
        removed: &mut u64,
    ) -> Result<Index> {
        let mut watch = Watch::new(self, op, build, collection.ns());
        let mut doubtful = DoubtfulKeys::default();
        let snapshot = self.storage().snapshot().into_client_error()?;
        load(&mut watch, collection, snapshot, &mut doubtful)?;
        let index = build.finished_indexes().swap_remove(0);
        if index.spec().is_id_index() {
            let mut removing = Removing::new(self, collection.table());
            for (_, key) in doubtful.iter() {
                self.keep_the_newest(&index, key, &mut removing)?;
            }
            *removed += removing.finish()?;
        }
        refuse_duplicates(self, collection.ns(), build, &doubtful)?;
        Ok(index)
    }

    /// Removes all documents with the same `_id` except the newest.
    fn keep_the_newest(
        &self,
        index: &Index,
        key: &[u8],
        removing: &mut Removing<'_>,
    ) -> Result<()> {
        let snapshot = self.engine().snapshot().into_client_error()?;
        let mut cursor = snapshot.cursor(index.table()).into_client_error()?;
        let mut entries: Vec<Vec<u8>> = Vec::new();
        let mut on = cursor.seek(key).into_client_error()?;
        while on && cursor.key().starts_with(key) {
            entries.push(cursor.key().to_vec());
            on = cursor.next().into_client_error()?;
        }
        // Record ids ascend over time, and so do the entries of one key.
        entries.pop();
        let mut unit = self.storage().begin().into_client_error()?;
        for entry in &entries {
            unit.delete(index.table(), entry);
            if let Some((id, _)) = decode_record_id(entry) {
                removing.remove(&record_key(&id))?;
            }
        }
        unit.commit(Durability::Buffered).into_client_error()?;
        Ok(())
    }
}

/// The record key that a document of a clustered collection must have.
fn place_of(collection: &Collection, document: &[u8]) -> Option<RecordKeyBytes> {
    collection.clustered()?;
    let id = RawDoc::parse(document).ok()?.get("_id")?;
    let collator = collection.collator().map(|collator| &**collator);
    Some(record_key(&record_id_of_id(id, collator)))
}

/// Whether an index failed because of the documents' contents rather than the environment.
fn is_of_documents(error: &sheaf_bson::Error) -> bool {
    use sheaf_bson::ErrorCode as Code;
    [
        Code::DUPLICATE_KEY,
        Code::CANNOT_INDEX_PARALLEL_ARRAYS,
        Code::CANNOT_BUILD_INDEX_KEYS,
        Code::CANNOT_CREATE_INDEX,
    ]
    .contains(&error.code())
}

/// Removes records in batches.
struct Removing<'a> {
    db: &'a Db,
    table: TableId,
    batch: WriteBatch,
    count: u64,
}

impl<'a> Removing<'a> {
    fn new(db: &'a Db, table: TableId) -> Removing<'a> {
        Removing {
            db,
            table,
            batch: WriteBatch::new(),
            count: 0,
        }
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.batch.delete(self.table, key);
        self.count += 1;
        if self.batch.operations() >= REMOVED_AT_ONCE {
            self.write()?;
        }
        Ok(())
    }

    /// Stores a record just removed under another key.
    fn put_back(&mut self, key: &[u8], document: &[u8]) {
        self.batch.put(self.table, key, document.to_vec());
        self.count -= 1;
    }

    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let applied = self.db.engine().apply(batch, Durability::Buffered);
        applied.map(drop).into_client_error()
    }

    fn finish(mut self) -> Result<u64> {
        self.write()?;
        Ok(self.count)
    }
}
