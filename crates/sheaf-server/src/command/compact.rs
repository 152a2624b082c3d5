//! `compact`: releases free space of the data file to the file system.
//!
//! All collections are in one file, so the free space of all of them is released, whichever is
//! named. Reads and writes continue concurrently.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};
use sheaf_db::Namespace;
use sheaf_db::storage_error::client_error;
use sheaf_storage::StorageError;

use super::context::CommandContext;
use super::fields;

/// Default of `freeSpaceTargetMB`: with less free space (in MB) the command does nothing.
const TARGET_MB: u64 = 20;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "compact";
    let namespace = namespace(cx)?;
    let (mut dry_run, mut force, mut target_mb) = (false, false, TARGET_MB);
    for element in cx.arguments() {
        match element.key() {
            "dryRun" => dry_run = fields::strict_boolean(NAME, &element)?,
            "force" => force = fields::strict_boolean(NAME, &element)?,
            "freeSpaceTargetMB" => {
                let given = fields::integer(NAME, &element)?;
                let given = u64::try_from(given).ok().filter(|mb| *mb >= 1);
                target_mb = given.ok_or_else(|| {
                    Error::bad_value("BSON field 'compact.freeSpaceTargetMB' value must be >= 1")
                })?;
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let server = cx.server;
    let catalog = server.db.catalog();
    if catalog.collection(&namespace).is_none() && catalog.timeseries(&namespace).is_none() {
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
    let is_worth_it = free >= target_mb.saturating_mul(1 << 20);
    if dry_run {
        let estimate = if is_worth_it { free as i64 } else { 0 };
        out.append("estimatedBytesFreed", RawValue::int_or_long(estimate));
        return Ok(());
    }
    let freed = match is_worth_it {
        true => engine.compact().map_err(|error| match error {
            StorageError::Unsupported { what } => Error::new(
                ErrorCode::COMMAND_NOT_SUPPORTED,
                format!("not supported: {what}"),
            ),
            error => client_error(error),
        })?,
        false => 0,
    };
    out.append("bytesFreed", RawValue::int_or_long(freed as i64));
    Ok(())
}

/// The collection. Time-series collections are stored in the same file as all others.
/// Errors: those of names; `NamespaceNotFound` for a name with a dollar sign, which none has.
fn namespace(cx: &mut CommandContext<'_>) -> Result<Namespace, Error> {
    match cx.first()?.value() {
        RawValue::String(name) if name.contains('$') && !name.contains('\0') => Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("collection {}.{name} does not exist", cx.db),
        )),
        _ => cx.collection(),
    }
}
