//! Statistics for collStats, dbStats and listDatabases.

use sheaf_bson::Result;
use sheaf_storage::TableId;

use crate::collection::Collection;
use crate::counters::{CollectionSize, storage_bytes};
use crate::database::Db;
use crate::storage_error::IntoClientError;

/// Statistics of one collection at its newest committed state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// Number and size of documents.
    pub size: CollectionSize,
    /// Per index, the one on `_id` first.
    pub indexes: Vec<IndexStats>,
    /// Search indexes, whose names are in a separate namespace.
    pub search_indexes: Vec<IndexStats>,
}

/// Statistics of one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexStats {
    /// Its name.
    pub name: String,
    /// Its stable identifier.
    pub ident: String,
    /// Entries.
    pub keys: u64,
    /// Bytes on disk, estimated by the engine.
    pub storage_bytes: u64,
}

impl CollectionStats {
    /// Bytes on disk of all indexes, including search indexes.
    pub fn total_index_bytes(&self) -> u64 {
        let all = self.indexes.iter().chain(&self.search_indexes);
        all.map(|index| index.storage_bytes).sum()
    }
}

/// Statistics of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// Number of collections.
    pub collections: u64,
    /// Number of indexes of all collections.
    pub indexes: u64,
    /// Number and size of documents.
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
    /// Returns the statistics of a collection.
    /// Errors: `QueryPlanKilled` if it was dropped concurrently.
    pub fn collection_stats(&self, collection: &Collection) -> Result<CollectionStats> {
        let (mut indexes, mut search_indexes) = (Vec::new(), Vec::new());
        for index in collection.index_list() {
            let stats = self
                .engine()
                .table_stats(index.table())
                .into_client_error()?;
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

    /// Returns the statistics of a database; zeros if it does not exist. Collections dropped
    /// concurrently are not counted.
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
