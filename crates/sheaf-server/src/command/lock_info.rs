//! `lockInfo`: locks of the whole server that are held or awaited.
//!
//! Writers of documents and changes of collections exclude each other collection by collection,
//! without a lock manager that could be listed; the lock of `fsync` is shown.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    out.begin_array("lockInfo");
    if cx.server.write_gate.is_locked() {
        out.push_begin_document();
        out.append("resourceId", "{Global, 1}");
        out.begin_array("granted");
        out.push_begin_document();
        out.append("mode", "S");
        out.append("desc", "fsyncLockWorker");
        out.end();
        out.end();
        out.begin_array("pending");
        out.end();
        out.end();
    }
    out.end();
    Ok(())
}
