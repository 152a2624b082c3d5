//! `getCmdLineOpts`: the options with which the server was started.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let settings = &cx.server.settings;
    out.begin_array("argv");
    for argument in &settings.arguments {
        out.push(argument.as_str());
    }
    out.end();
    out.append_bson("parsed", &settings.parsed);
    Ok(())
}
