//! `collStats`: sizes, counts and indexes of a collection.

use sheaf_bson::{DocBuilder, Error, RawValue};
use sheaf_db::catalog::kind::NamespaceKind;
use sheaf_db::{Collection, Db};

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "collStats";
    let namespace = cx.collection()?;
    let mut scale = 1;
    for element in cx.arguments() {
        match element.key() {
            "scale" => scale = positive_scale(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    out.append("ns", namespace.as_str());
    match cx.server.db.catalog().kind(&namespace) {
        NamespaceKind::TimeSeries(series, _) => {
            append_storage_stats(&cx.server.db, &series.buckets, scale, out)
        }
        NamespaceKind::Collection(collection) => {
            append_storage_stats(&cx.server.db, collection, scale, out)
        }
        NamespaceKind::Missing | NamespaceKind::View(_) => {
            append_no_storage_stats(scale, out);
            Ok(())
        }
    }
}

/// Parses `scale`, which must be at least 1.
pub fn positive_scale(command: &str, element: &sheaf_bson::RawElement<'_>) -> Result<i64, Error> {
    match fields::integer(command, element)? {
        scale if scale >= 1 => Ok(scale),
        scale => Err(Error::new(
            sheaf_bson::ErrorCode::BAD_VALUE,
            format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"),
        )),
    }
}

/// Appends the storage statistics of a collection, for collStats and `$collStats`.
/// Sizes are divided by `scale`.
pub fn append_storage_stats(
    db: &Db,
    collection: &Collection,
    scale: i64,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let scale = scale.max(1);
    let scaled = |bytes: u64| RawValue::int_or_long((bytes as i64) / scale);
    let stats = db.collection_stats(collection)?;
    let size = &stats.size;
    out.append("size", scaled(size.data_bytes));
    // The documents of a time-series collection are its buckets, which `timeseries` describes.
    let is_series = collection.options().timeseries().is_some();
    if !is_series {
        out.append("count", RawValue::int_or_long(size.count as i64));
    }
    if size.count > 0 && !is_series {
        out.append(
            "avgObjSize",
            RawValue::int_or_long(size.document_bytes_mean() as i64),
        );
    }
    out.append("numOrphanDocs", 0);
    out.append("storageSize", scaled(size.storage_bytes));
    // All tables share one file, and its free space is `sheaf.fileFreeBytes` of serverStatus. A
    // collection's storage consists of the pages that it uses, none of them free.
    out.append("freeStorageSize", 0);
    let capped = collection.options().capped();
    out.append("capped", capped.is_some());
    if let Some(limit) = capped {
        let documents = limit.documents.unwrap_or(0) as i64;
        out.append("max", RawValue::int_or_long(documents));
        out.append("maxSize", scaled(limit.bytes));
    }
    if collection.clustered().is_some() && !collection.ns().is_views() {
        out.append("clustered", true);
    }
    append_table("wiredTiger", collection.ident(), out);
    out.append("nindexes", stats.indexes.len() as i32);
    out.begin_document("indexDetails");
    for index in &stats.indexes {
        append_table(&index.name, &index.ident, out);
    }
    out.end();
    out.begin_array("indexBuilds");
    for build in collection.builds() {
        for index in build.indexes() {
            out.push(index.name());
        }
    }
    out.end();
    let index_bytes = stats.total_index_bytes();
    out.append("totalIndexSize", scaled(index_bytes));
    out.append("totalSize", scaled(index_bytes + size.storage_bytes));
    out.begin_document("indexSizes");
    for index in &stats.indexes {
        out.append(&index.name, scaled(index.storage_bytes));
    }
    out.end();
    if !stats.search_indexes.is_empty() {
        out.begin_document("searchIndexSizes");
        for index in &stats.search_indexes {
            out.append(&index.name, scaled(index.storage_bytes));
        }
        out.end();
    }
    out.append("scaleFactor", scale as i32);
    if collection.options().timeseries().is_some() {
        sheaf_db::timeseries::stats::append(db, collection, out)?;
    }
    Ok(())
}

/// Appends the statistics of a collection that does not exist.
fn append_no_storage_stats(scale: i64, out: &mut DocBuilder) {
    for name in ["size", "count", "numOrphanDocs", "storageSize", "totalSize"] {
        out.append(name, 0);
    }
    out.append("nindexes", 0);
    out.append("totalIndexSize", 0);
    for name in ["indexDetails", "indexSizes"] {
        out.begin_document(name);
        out.end();
    }
    out.append("scaleFactor", scale as i32);
}

/// Appends the document through which tools map a collection or index to its storage.
fn append_table(key: &str, ident: &str, out: &mut DocBuilder) {
    out.begin_document(key);
    out.append("uri", format!("statistics:table:{ident}").as_str());
    out.end();
}
