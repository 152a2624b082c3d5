//! `create`: makes a collection.

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::CollectionOptions;

use super::context::CommandContext;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    let mut options = DocBuilder::new();
    for element in cx.arguments() {
        options.append_raw_element(element);
    }
    let options = CollectionOptions::parse(options.finish().as_raw())?;
    cx.server
        .db
        .create_collection(&cx.op, &namespace, options)
        .map(drop)
}
