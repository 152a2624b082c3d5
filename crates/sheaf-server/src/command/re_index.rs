//! `reIndex`: builds all indexes of a collection again.

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;

/// Runs the command.
/// Errors: `IllegalOperation` on a member of a replica set, `NamespaceNotFound`, those of builds.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    cx.no_arguments()?;
    if cx.server.repl.is_some() {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "reIndex is only allowed on a standalone mongod instance.",
        ));
    }
    let rebuilt = cx.server.db.rebuild_indexes_of(&cx.op, &namespace, false)?;
    let count = rebuilt.indexes.len() as i32;
    out.append("nIndexesWas", count);
    out.append("nIndexes", count);
    out.begin_array("indexes");
    if let Some(collection) = cx.server.db.catalog().collection(&namespace) {
        for index in collection.list_index_docs() {
            out.push_bson(&index);
        }
    }
    out.end();
    Ok(())
}
