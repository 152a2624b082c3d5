//! `getLog`: the newest lines of the log.

use sheaf_bson::{DocBuilder, Error, RawValue};

use super::context::CommandContext;
use super::fields;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    let RawValue::String(which) = first.value() else {
        return Err(fields::wrong_type("getLog", &first, "string"));
    };
    let (total, lines) = match which {
        "*" => {
            out.begin_array("names");
            out.push("global");
            out.push("startupWarnings");
            out.end();
            return Ok(());
        }
        "global" => cx.server.log.recent(),
        "startupWarnings" => cx.server.log.startup_warnings(),
        other => {
            return Err(Error::new(
                sheaf_bson::ErrorCode::OPERATION_FAILED,
                format!("No log named '{other}'; the names are global and startupWarnings"),
            ));
        }
    };
    out.append("totalLinesWritten", total as i64);
    out.begin_array("log");
    for line in &lines {
        out.push(&**line);
    }
    out.end();
    Ok(())
}
