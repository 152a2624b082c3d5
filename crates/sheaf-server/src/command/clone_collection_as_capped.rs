//! `cloneCollectionAsCapped`: copies the newest documents of a collection to a new capped one.

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::Namespace;
use sheaf_db::catalog::options::Capped;

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "cloneCollectionAsCapped";
    let from = cx.collection()?;
    let (mut to, mut limit) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "toCollection" => {
                to = Some(Namespace::new(cx.db, fields::string(NAME, &element)?)?);
            }
            "size" => limit = Some(Capped::parse_size(NAME, element.value())?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let to = fields::required(NAME, "toCollection", to)?;
    let limit = limit.ok_or_else(Capped::missing_size)?;
    let db = cx.server.db.clone();
    db.clone_as_capped(&cx.op, &from, &to, limit)
}
