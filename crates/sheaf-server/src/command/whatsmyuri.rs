//! `whatsmyuri`: the client's address as the server sees it.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    out.append("you", cx.connection.operations.client());
    Ok(())
}
