//! `connPoolStats`: outgoing connections to other servers, of which there are none.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    for count in [
        "numClientConnections",
        "numAScopedConnections",
        "totalInUse",
        "totalAvailable",
        "totalLeased",
        "totalCreated",
        "totalRefreshing",
        "totalRefreshed",
    ] {
        out.append(count, 0);
    }
    for empty in ["pools", "hosts", "replicaSets"] {
        out.begin_document(empty);
        out.end();
    }
    Ok(())
}
