//! `createBackup`: copies all data to a separate folder, on which a server can be started.
//!
//! The copy is a consistent snapshot: it contains each transaction entirely or not at all. Reads
//! and writes continue concurrently. MongoDB has no such command; the name and `backupDir` are
//! those of Percona Server for MongoDB.

use std::path::Path;

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;

const NAME: &str = "createBackup";

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut folder = None;
    for element in cx.arguments() {
        match element.key() {
            "backupDir" => folder = Some(Path::new(fields::string(NAME, &element)?)),
            _ => cx.unknown_field(&element)?,
        }
    }
    let folder = fields::required(NAME, "backupDir", folder)?;
    if !folder.is_absolute() {
        return Err(Error::new(
            ErrorCode::INVALID_PATH,
            format!(
                "backupDir must be the absolute path of a folder on the server's machine, not '{}'",
                folder.display()
            ),
        ));
    }
    let op = &cx.op;
    let engine = cx.server.db.engine();
    let made = crate::engine::backup(&**engine, folder, &mut || op.check_interrupt_now().is_ok());
    if made.is_err() {
        // If the command was interrupted, return the reason instead of the failure of the copy.
        op.check_interrupt_now()?;
    }
    out.append("bytes", made? as i64);
    Ok(())
}
