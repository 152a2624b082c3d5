//! `compact`: releases free space of the data file to the file system.
//!
//! All collections are in one file, so the free space of all of them is released, whichever is
//! named. Reads and writes continue concurrently.

use sheaf_bson::{DocBuilder, Error, ErrorCode};
use sheaf_db::storage_error::client_error;
use sheaf_storage::StorageError;

use super::context::CommandContext;
use super::fields;

/// Default of `freeSpaceTargetMB`: with less free space (in MB) the command does nothing.
const TARGET_MB: u64 = 20;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "compact";
    let namespace = cx.collection()?;
    let (mut dry_run, mut force, mut target_mb) = (false, false, TARGET_MB);
    for element in cx.arguments() {
        match element.key() {
            "dryRun" => dry_run = fields::boolean(NAME, &element)?,
            "force" => force = fields::boolean(NAME, &element)?,
            "freeSpaceTargetMB" => {
                target_mb = fields::non_negative(NAME, &element)?;
                if target_mb == 0 {
                    return Err(Error::bad_value(
                        "BSON field 'compact.freeSpaceTargetMB' value must be >= 1, actual value '0'",
                    ));
                }
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let server = cx.server;
    if server.db.catalog().collection(&namespace).is_none() {
        return Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("collection {namespace} does not exist"),
        ));
    }
    if server.repl.is_some() && !force && !dry_run {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "compact slows down other operations, and this server is the primary of its replica \
             set; set force: true to run it here",
        ));
    }
    let engine = server.db.engine();
    let free = engine.stats().file_free_bytes.unwrap_or(0);
    if dry_run {
        out.append("estimatedBytesFreed", free as i64);
        return Ok(());
    }
    let freed = match free >= target_mb << 20 {
        true => engine.compact().map_err(|error| match error {
            StorageError::Unsupported { what } => Error::new(
                ErrorCode::COMMAND_NOT_SUPPORTED,
                format!("not supported: {what}"),
            ),
            error => client_error(error),
        })?,
        false => 0,
    };
    out.append("bytesFreed", freed as i64);
    Ok(())
}
