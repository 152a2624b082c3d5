//! `dbStats`: sizes and counts of a database.

use sheaf_bson::{DocBuilder, Error};

use super::coll_stats::positive_scale;
use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "dbStats";
    sheaf_db::check_database_name(cx.db)?;
    let (mut scale, mut free_storage) = (1, false);
    for element in cx.arguments() {
        match element.key() {
            "scale" => scale = positive_scale(NAME, &element)?,
            "freeStorage" => free_storage = fields::boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let stats = cx.server.db.database_stats(cx.db)?;
    let size = &stats.size;
    let scaled = |bytes: u64| bytes as f64 / scale as f64;
    out.append("db", cx.db);
    out.append("collections", stats.collections as i64);
    let catalog = cx.server.db.catalog();
    let views = catalog.database(cx.db).map_or(0, |db| db.views().count());
    out.append("views", views as i64);
    out.append("objects", size.count as i64);
    out.append(
        "avgObjSize",
        if size.count == 0 {
            0.0
        } else {
            size.data_bytes as f64 / size.count as f64
        },
    );
    out.append("dataSize", scaled(size.data_bytes));
    out.append("storageSize", scaled(size.storage_bytes));
    // Free pages belong to the file, not to a collection or database: see collStats.
    let free = |out: &mut DocBuilder, name: &str| {
        if free_storage {
            out.append(name, 0.0);
        }
    };
    free(out, "freeStorageSize");
    out.append("indexes", stats.indexes as i64);
    out.append("indexSize", scaled(stats.index_bytes));
    free(out, "indexFreeStorageSize");
    out.append("totalSize", scaled(stats.total_bytes()));
    free(out, "totalFreeStorageSize");
    out.append("scaleFactor", scale);
    let (total, used) = cx.server.file_system();
    out.append("fsUsedSize", scaled(used));
    out.append("fsTotalSize", scaled(total));
    Ok(())
}
