//! `fsync`: makes every acknowledged write durable before it returns.

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            "lock" => {
                if fields::boolean("fsync", &element)? {
                    return Err(Error::new(
                        ErrorCode::NOT_IMPLEMENTED,
                        "fsync.lock is not supported",
                    ));
                }
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    cx.server.db.sync()?;
    out.append("numFiles", 1);
    Ok(())
}
