//! Sizes of collections and databases, in the shape of collStats and dbStats.

use sheaf_bson::{DocBuilder, Error};

use crate::catalog::collection::Collection;
use crate::counters::CollectionSize;
use crate::database::Db;
use crate::storage_error::Coded;

/// Appends `storageStats` of a collection: what collStats and `$collStats` show.
/// Sizes are divided by `scale`.
pub fn append_storage_stats(
    db: &Db,
    collection: &Collection,
    scale: i64,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let scale = scale.max(1);
    let scaled = |bytes: u64| (bytes as i64) / scale;
    let size = CollectionSize::of(db.storage(), collection.table())?;
    out.append("size", scaled(size.data_bytes));
    out.append("count", size.count as i64);
    if size.count > 0 {
        out.append("avgObjSize", size.document_bytes_mean() as i64);
    }
    out.append("numOrphanDocs", 0);
    out.append("storageSize", scaled(size.storage_bytes));
    out.append("freeStorageSize", 0);
    out.append("capped", false);
    append_table("wiredTiger", collection.ident(), out);
    out.append("nindexes", collection.index_list().len() as i32);
    out.begin_document("indexDetails");
    for index in collection.index_list() {
        append_table(index.name(), index.ident(), out);
    }
    out.end();
    out.begin_array("indexBuilds");
    for build in collection.builds() {
        for name in build.indexes() {
            out.push(name.as_str());
        }
    }
    out.end();
    let mut total = 0;
    let mut sizes = DocBuilder::new();
    for index in collection.index_list() {
        let bytes = db
            .engine()
            .table_stats(index.table())
            .coded()?
            .disk_bytes;
        total += bytes;
        sizes.append(index.name(), scaled(bytes));
    }
    out.append("totalIndexSize", scaled(total));
    out.append("totalSize", scaled(total + size.storage_bytes));
    out.append_bson("indexSizes", &sizes.finish());
    out.append("scaleFactor", scale as i32);
    Ok(())
}

/// What a collection without documents and indexes would say: collStats of a name that is not there.
pub fn append_no_storage_stats(scale: i64, out: &mut DocBuilder) {
    for name in ["size", "count", "numOrphanDocs", "storageSize", "totalSize"] {
        out.append(name, 0);
    }
    out.append("nindexes", 0);
    out.append("totalIndexSize", 0);
    out.begin_document("indexDetails");
    out.end();
    out.begin_document("indexSizes");
    out.end();
    out.append("scaleFactor", scale.max(1) as i32);
}

/// Tools map collections and indexes to storage through this document.
fn append_table(key: &str, ident: &str, out: &mut DocBuilder) {
    out.begin_document(key);
    out.append("uri", format!("statistics:table:{ident}").as_str());
    out.end();
}

/// Sums over the collections of one database.
#[derive(Debug, Default, Clone, Copy)]
pub struct DatabaseSize {
    /// Collections.
    pub collections: u64,
    /// Indexes.
    pub indexes: u64,
    /// Documents.
    pub objects: u64,
    /// Bytes of documents.
    pub data_bytes: u64,
    /// Bytes on disk for documents.
    pub storage_bytes: u64,
    /// Bytes on disk for indexes.
    pub index_bytes: u64,
}

/// Sizes of a database; zeros when it does not exist.
pub fn database_size(db: &Db, name: &str) -> Result<DatabaseSize, Error> {
    let mut sum = DatabaseSize::default();
    let catalog = db.catalog();
    let Some(database) = catalog.database(name) else {
        return Ok(sum);
    };
    for collection in database.collections() {
        let size = CollectionSize::of(db.storage(), collection.table())?;
        sum.collections += 1;
        sum.objects += size.count;
        sum.data_bytes += size.data_bytes;
        sum.storage_bytes += size.storage_bytes;
        for index in collection.index_list() {
            sum.indexes += 1;
            sum.index_bytes += db
                .engine()
                .table_stats(index.table())
                .coded()?
                .disk_bytes;
        }
    }
    Ok(sum)
}
