//! `listCommands`: the command table.

use sheaf_bson::{DocBuf, DocBuilder, Error};

use super::context::CommandContext;
use super::rows;
use crate::command_facts::{ApiV1, Command, Database, Kind};

/// Runs the command.
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

/// The entry of one command in the reply.
fn describe(command: &Command) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("help", command.help);
    out.append("requiresAuth", false);
    out.append("secondaryOk", command.kind != Kind::Write);
    out.append("adminOnly", command.database == Database::Admin);
    out.begin_array("apiVersions");
    if command.api_v1 != ApiV1::Outside {
        out.push("1");
    }
    out.end();
    out.append(
        "deprecatedApiVersions",
        sheaf_bson::ArrayBuf::new().as_raw(),
    );
    out.finish()
}
