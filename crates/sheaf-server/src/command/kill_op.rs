//! `killOp`: asks one operation to stop.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;

/// Runs the command. As in MongoDB it also succeeds if there is no such operation.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut opid = None;
    for element in cx.arguments_as_sent() {
        match element.key() {
            "op" => opid = Some(fields::integer("killOp", &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let opid = opid.ok_or_else(|| fields::missing("killOp", "op"))?;
    if let Ok(opid) = i32::try_from(opid) {
        cx.server.operations.kill(opid);
    }
    out.append("info", "attempting to kill op");
    Ok(())
}
