//! `collStats`: sizes, counts and indexes of a collection.

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::stats;

use super::context::CommandContext;
use super::fields;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "collStats";
    let namespace = cx.collection()?;
    let mut scale = 1;
    for element in cx.arguments() {
        match element.key() {
            "scale" => scale = positive_scale(NAME, &element)?,
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    out.append("ns", namespace.as_str());
    match cx.server.db.catalog().collection(&namespace) {
        Some(collection) => stats::append_storage_stats(&cx.server.db, collection, scale, out),
        None => {
            stats::append_no_storage_stats(scale, out);
            Ok(())
        }
    }
}

/// `scale`, at least 1.
pub fn positive_scale(
    command: &str,
    element: &sheaf_bson::RawElement<'_>,
) -> Result<i64, Error> {
    match fields::integer(command, element)? {
        scale if scale >= 1 => Ok(scale),
        scale => Err(Error::new(
            sheaf_bson::ErrorCode(51024),
            format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"),
        )),
    }
}
