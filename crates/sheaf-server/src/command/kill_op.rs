//! `killOp`: asks one operation to stop.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;
use crate::command_facts::{Action, On};

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
        let all = cx.may(Action::KillOp, On::Cluster);
        let user = cx.connection.operations.user();
        let owner = cx.server.operations.owner(opid);
        // What does not exist and what belongs to others look alike.
        match all || owner.is_some_and(|owner| owner == user) {
            true => drop(cx.server.operations.kill(opid)),
            false => return Err(cx.unauthorized()),
        }
    }
    out.append("info", "attempting to kill op");
    Ok(())
}
