//! `convertToCapped`: converts a collection to a capped one, keeping its newest documents.

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::catalog::options::Capped;

use super::context::CommandContext;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "convertToCapped";
    let namespace = cx.collection()?;
    let mut limit = None;
    for element in cx.arguments() {
        match element.key() {
            "size" => limit = Some(Capped::parse_size(NAME, element.value())?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let limit = limit.ok_or_else(Capped::missing_size)?;
    let db = cx.server.db.clone();
    db.convert_to_capped(&cx.op, &namespace, limit)?;
    let why = format!("collection converted to capped: {}", namespace.as_str());
    cx.server.cursors.kill_plans(&why, |ns| *ns == namespace);
    Ok(())
}
