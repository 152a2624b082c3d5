//! `drop`: removes a collection and its indexes.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs the command. It succeeds if the collection does not exist.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    cx.no_arguments()?;
    if namespace.collection() == "system.profile" {
        cx.server.profiler.check_droppable(cx.db)?;
    }
    let Some(dropped) = cx.server.db.drop_collection(&cx.op, &namespace)? else {
        return Ok(());
    };
    let why = format!("collection dropped: {}", namespace.as_str());
    cx.server.cursors.kill_plans(&why, |ns| *ns == namespace);
    if let Some(indexes_was) = dropped.indexes_was {
        out.append("nIndexesWas", indexes_was as i32);
    }
    out.append("ns", namespace.as_str());
    Ok(())
}
