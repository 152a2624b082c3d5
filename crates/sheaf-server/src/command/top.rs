//! `top`: how often and for how long each collection and view was used since the server loaded or
//! created it.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs the command. Each collection owns its counters, so their number is bounded by that of the
/// collections, and a drop removes them.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let catalog = cx.server.db.catalog();
    out.begin_document("totals");
    out.append("note", "all times in microseconds");
    for collection in catalog.collections() {
        out.begin_document(collection.ns().as_str());
        collection.usage().append_top(out);
        out.end();
    }
    for view in catalog.views() {
        out.begin_document(view.ns().as_str());
        view.usage().append_top(out);
        out.end();
    }
    out.end();
    Ok(())
}
