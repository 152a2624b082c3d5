//! `getDiagnosticData`: one sample of what monitoring collects.

use sheaf_bson::{DateTime, DocBuilder, Error};

use super::context::CommandContext;
use super::{repl_set, server_status};

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    out.begin_document("data");
    out.append("start", DateTime::now());
    sample("serverStatus", out, |out| {
        server_status::append_default(cx, out);
        Ok(())
    })?;
    if cx
        .server
        .repl
        .as_ref()
        .is_some_and(|set| set.config().is_some())
    {
        sample("replSetGetStatus", out, |out| {
            repl_set::append_status(cx, out)
        })?;
    }
    out.append("end", DateTime::now());
    out.end();
    Ok(())
}

/// Appends a part with the times at which it began and ended.
fn sample(
    name: &str,
    out: &mut DocBuilder,
    append: impl FnOnce(&mut DocBuilder) -> Result<(), Error>,
) -> Result<(), Error> {
    out.begin_document(name);
    out.append("start", DateTime::now());
    append(out)?;
    out.append("end", DateTime::now());
    out.end();
    Ok(())
}
