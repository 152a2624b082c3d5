//! `dbStats`: sizes and counts of a database.

use sheaf_bson::{DocBuilder, Error};

use super::coll_stats::positive_scale;
use super::context::CommandContext;
use super::fields;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "dbStats";
    sheaf_db::check_database_name(cx.db)?;
    let mut scale = 1;
    for element in cx.arguments() {
        match element.key() {
            "scale" => scale = positive_scale(NAME, &element)?,
            "freeStorage" => {
                fields::integer(NAME, &element)?;
            }
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    let stats = cx.server.db.database_stats(cx.db)?;
    let size = &stats.size;
    let scaled = |bytes: u64| bytes as f64 / scale as f64;
    out.append("db", cx.db);
    out.append("collections", stats.collections as i64);
    out.append("views", 0i64);
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
    out.append("indexes", stats.indexes as i64);
    out.append("indexSize", scaled(stats.index_bytes));
    out.append("totalSize", scaled(stats.total_bytes()));
    out.append("scaleFactor", scale);
    let (total, used) = cx.server.file_system();
    out.append("fsUsedSize", scaled(used));
    out.append("fsTotalSize", scaled(total));
    Ok(())
}
