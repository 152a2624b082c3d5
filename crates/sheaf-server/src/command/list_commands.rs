//! `listCommands`: the command table.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::{COMMANDS, describe};

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let mut rows: Vec<_> = COMMANDS.iter().collect();
    rows.sort_by_key(|command| command.name);
    out.begin_document("commands");
    for command in rows {
        out.append_bson(command.name, &describe(command));
    }
    out.end();
    Ok(())
}
