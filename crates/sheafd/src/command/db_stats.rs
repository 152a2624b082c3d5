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
    let size = sheaf_db::stats::database_size(&cx.server.db, cx.db)?;
    let scaled = |bytes: u64| bytes as f64 / scale as f64;
    out.append("db", cx.db);
    out.append("collections", size.collections as i64);
    out.append("views", 0i64);
    out.append("objects", size.objects as i64);
    out.append(
        "avgObjSize",
        if size.objects == 0 {
            0.0
        } else {
            size.data_bytes as f64 / size.objects as f64
        },
    );
    out.append("dataSize", scaled(size.data_bytes));
    out.append("storageSize", scaled(size.storage_bytes));
    out.append("indexes", size.indexes as i64);
    out.append("indexSize", scaled(size.index_bytes));
    out.append("totalSize", scaled(size.storage_bytes + size.index_bytes));
    out.append("scaleFactor", scale);
    let (total, used) = cx.server.file_system();
    out.append("fsUsedSize", scaled(used));
    out.append("fsTotalSize", scaled(total));
    Ok(())
}
