//! `fsync` and `fsyncUnlock`: make every acknowledged write durable, and keep new ones out while
//! the files are copied.

use std::time::Duration;

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};

use super::context::CommandContext;
use super::fields;

/// How long the lock waits for writes in progress, unless the command says otherwise.
const WAIT_DEFAULT_MS: i32 = 90_000;

/// Runs `fsync`.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "fsync";
    let (mut lock, mut wait_ms) = (false, WAIT_DEFAULT_MS);
    for element in cx.arguments() {
        match element.key() {
            "lock" => lock = fields::boolean(NAME, &element)?,
            "fsyncLockAcquisitionTimeoutMillis" => match element.value() {
                RawValue::Int32(given) => wait_ms = given,
                _ => return Err(fields::wrong_type(NAME, &element, "int")),
            },
            "forBackup" => drop(fields::boolean(NAME, &element)?),
            // Accepted and without effect: the flush always waits.
            "async" => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    if !lock {
        cx.server.db.sync()?;
        out.append("numFiles", 1);
        return Ok(());
    }
    let limit = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
    let server = cx.server;
    let held = server
        .write_gate
        .lock(&cx.op, limit, || server.operations.nobody_writes())?;
    if let Err(error) = server.db.sync() {
        server.write_gate.unlock();
        return Err(error);
    }
    out.append(
        "info",
        "now locked against writes, use db.fsyncUnlock() to unlock",
    );
    out.append("lockCount", held as i64);
    out.append("seeAlso", "http://dochub.mongodb.org/core/fsynccommand");
    Ok(())
}

/// Runs `fsyncUnlock`.
pub fn unlock(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    match cx.server.write_gate.unlock() {
        Some(remaining) => {
            out.append("info", "fsyncUnlock completed");
            out.append("lockCount", remaining as i64);
            Ok(())
        }
        None => Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "fsyncUnlock called when not locked",
        )),
    }
}
