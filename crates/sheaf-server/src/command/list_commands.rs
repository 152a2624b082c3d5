//! `listCommands`: the command table.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::{describe, rows};

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let mut commands: Vec<_> = rows().map(|row| &row.command).collect();
    commands.sort_by_key(|command| command.name);
    out.begin_document("commands");
    for command in commands {
        out.append_bson(command.name, &describe(command));
    }
    out.end();
    Ok(())
}
