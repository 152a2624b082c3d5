//! Figures for collStats, dbStats and listDatabases.

use sheaf_bson::Result;
use sheaf_storage::TableId;

use crate::collection::Collection;
use crate::counters::{CollectionSize, storage_bytes};
use crate::database::Db;
use crate::storage_error::Coded;

/// Figures of one collection, of the newest committed state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// Documents and their bytes.
    pub size: CollectionSize,
    /// By index, that on `_id` first.
    pub indexes: Vec<IndexStats>,
    /// Search indexes, whose names are of another kind.
    pub search_indexes: Vec<IndexStats>,
}

/// Figures of one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStats {
    /// Its name.
    pub name: String,
    /// Its stable identifier.
    pub ident: String,
    /// Entries.
    pub keys: u64,
    /// Bytes on disk, as the engine estimates.
    pub storage_bytes: u64,
}

impl CollectionStats {
    /// Sum over all indexes.
    pub fn total_index_bytes(&self) -> u64 {
        let all = self.indexes.iter().chain(&self.search_indexes);
        all.map(|index| index.storage_bytes).sum()
    }
}

/// Figures of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// Collections.
    pub collections: u64,
    /// Indexes of all collections.
    pub indexes: u64,
    /// Documents, and their bytes.
    pub size: CollectionSize,
    /// Bytes on disk of all indexes.
    pub index_bytes: u64,
}

impl DatabaseStats {
    /// Bytes on disk of documents and indexes: `sizeOnDisk`.
    pub fn total_bytes(&self) -> u64 {
        self.size.storage_bytes + self.index_bytes
    }
}

impl Db {
    /// Figures of a collection.
    /// Errors: `QueryPlanKilled` when it was dropped meanwhile.
    pub fn collection_stats(&self, collection: &Collection) -> Result<CollectionStats> {
        let (mut indexes, mut search_indexes) = (Vec::new(), Vec::new());
        for index in collection.index_list() {
            let stats = self.engine().table_stats(index.table()).coded()?;
            let list = match index.is_vector() {
                true => &mut search_indexes,
                false => &mut indexes,
            };
            list.push(IndexStats {
                name: index.name().to_owned(),
                ident: index.ident().to_owned(),
                keys: stats.entries,
                storage_bytes: storage_bytes(&stats),
            });
        }
        Ok(CollectionStats {
            size: CollectionSize::of(self.storage(), collection.table())?,
            indexes,
            search_indexes,
        })
    }

    /// Figures of a database; zeros when there is none of this name. A collection that is dropped
    /// meanwhile counts as gone.
    pub fn database_stats(&self, name: &str) -> Result<DatabaseStats> {
        let mut total = DatabaseStats::default();
        let catalog = self.catalog();
        let Some(database) = catalog.database(name) else {
            return Ok(total);
        };
        let exists = |table: TableId| self.engine().table_stats(table).is_ok();
        for collection in database.collections() {
            let stats = match self.collection_stats(collection) {
                Ok(stats) => stats,
                Err(_) if !exists(collection.table()) => continue,
                Err(error) => return Err(error),
            };
            total.collections += 1;
            total.indexes += stats.indexes.len() as u64;
            total.index_bytes += stats.total_index_bytes();
            total.size.count += stats.size.count;
            total.size.data_bytes += stats.size.data_bytes;
            total.size.storage_bytes += stats.size.storage_bytes;
        }
        Ok(total)
    }
}
