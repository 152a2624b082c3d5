//! `createBackup`: a copy of everything in a folder of its own, which a server can be started on.
//!
//! The copy is of one moment: every transaction is in it whole or not at all. Reads and writes go on meanwhile. MongoDB
//! has no such command; the name and `backupDir` are those of Percona Server for MongoDB.

use std::path::Path;

use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;

const NAME: &str = "createBackup";

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut folder = None;
    for element in cx.arguments() {
        match element.key() {
            "backupDir" => folder = Some(Path::new(fields::string(NAME, &element)?)),
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    let folder = folder.ok_or_else(|| fields::missing(NAME, "backupDir"))?;
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
        // Why it was asked to end says more than that it has.
        op.check_interrupt_now()?;
    }
    out.append("bytes", made? as i64);
    Ok(())
}
