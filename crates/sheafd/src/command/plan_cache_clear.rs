//! `planCacheClear`: forgets the cached plans of a collection.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs it. Clearing one query's plans clears them all: they are found again soon.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    for element in cx.arguments() {
        if !matches!(element.key(), "query" | "sort" | "projection" | "collation") {
            return Err(cx.unknown_field(&element));
        }
    }
    if let Some(collection) = cx.server.db.catalog().collection(&namespace) {
        collection.plan_cache().clear();
    }
    Ok(())
}
