//! `setUserWriteBlockMode`: blocks or unblocks user writes on all user databases.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;
use crate::user_write_block;
use crate::write_gate::BlockReason;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "setUserWriteBlockMode";
    let (mut block, mut reason) = (None, BlockReason::Unspecified);
    for element in cx.arguments() {
        match element.key() {
            "global" => block = Some(fields::strict_boolean(NAME, &element)?),
            "reason" => {
                reason = named(fields::string(NAME, &element)?)?;
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let block = fields::required(NAME, "global", block)?;
    let server = cx.server;
    server.write_gate.set_user_block(block, reason)?;
    user_write_block::store(&server.db, &cx.op, server.write_gate.user_block())
}

fn named(name: &str) -> Result<BlockReason, Error> {
    let mut all = BlockReason::ALL.into_iter();
    all.find(|reason| reason.name() == name).ok_or_else(|| {
        Error::bad_value(format!(
            "Enumeration value '{name}' for field 'setUserWriteBlockMode.reason' is not a valid \
             value."
        ))
    })
}
