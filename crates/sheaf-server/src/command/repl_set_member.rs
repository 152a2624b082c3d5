//! Commands of members of a replica set that a set of one member answers as its primary:
//!
//! ```text
//!   replSetStepDown                              no other member can take over
//!   replSetFreeze, -Maintenance, -SyncFrom       for secondaries: refused by a primary
//!   replSetAbortPrimaryCatchUp                   no catch-up is in progress
//!   replSetResizeOplog, appendOplogNote          the oplog
//! ```

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawElement};

use super::context::CommandContext;
use super::fields;
use super::repl_set::set;
use super::write_reply::append_write_concern;
use crate::repl::not_initialized;

/// The smallest oplog, in megabytes.
const OPLOG_MEGABYTES_MIN: f64 = 990.0;
/// The largest oplog, in megabytes: 1 PB.
const OPLOG_MEGABYTES_MAX: f64 = 1024.0 * 1024.0 * 1024.0;

/// Errors: the server is not a member of an initiated set.
fn check_member(cx: &CommandContext<'_>) -> Result<(), Error> {
    set(cx)?.config().map(drop).ok_or_else(not_initialized)
}

/// The error of a command that only secondaries run.
fn not_secondary(message: &str) -> Error {
    Error::new(ErrorCode::NOT_SECONDARY, message)
}

/// Runs `replSetStepDown`.
pub fn step_down(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "replSetStepDown";
    check_member(cx)?;
    let (mut force, mut catch_up) = (false, None);
    for element in cx.arguments() {
        match element.key() {
            "force" => force = fields::boolean(NAME, &element)?,
            "secondaryCatchUpPeriodSecs" => catch_up = Some(seconds(&element)),
            _ => cx.unknown_field(&element)?,
        }
    }
    let period = match seconds(&cx.first()?) {
        0 => 60,
        period => period,
    };
    let catch_up = catch_up.unwrap_or(if force { 0 } else { 10 });
    let refuse = |message: &str| Err(Error::bad_value(message));
    if period < 0 {
        return refuse("stepdown period must be a positive integer");
    }
    if catch_up < 0 {
        return refuse("secondaryCatchUpPeriodSecs period must be a positive or absent");
    }
    if period < catch_up {
        return refuse("stepdown period must be longer than secondaryCatchUpPeriodSecs");
    }
    if force {
        return Err(Error::new(
            ErrorCode::NOT_IMPLEMENTED,
            "'force' of replSetStepDown is not supported: the set has one member, which no other \
             can replace as the primary",
        ));
    }
    Err(Error::new(
        ErrorCode::EXCEEDED_TIME_LIMIT,
        "No electable secondaries caught up: the set has one member, which stays the primary",
    ))
}

/// A number of seconds; any other type is 0.
fn seconds(element: &RawElement<'_>) -> i64 {
    element.value().as_i64_saturating().unwrap_or(0)
}

/// Runs `replSetFreeze`.
pub fn freeze(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    check_member(cx)?;
    cx.no_arguments()?;
    Err(not_secondary(
        "cannot freeze node when primary or running for election. state: Primary",
    ))
}

/// Runs `replSetMaintenance`.
pub fn maintenance(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    check_member(cx)?;
    cx.no_arguments()?;
    Err(not_secondary("primaries can't modify maintenance mode"))
}

/// Runs `replSetSyncFrom`.
pub fn sync_from(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    check_member(cx)?;
    cx.no_arguments()?;
    fields::string("replSetSyncFrom", &cx.first()?)?;
    Err(not_secondary("primaries don't sync"))
}

/// Runs `replSetAbortPrimaryCatchUp`.
pub fn abort_catch_up(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    check_member(cx)?;
    cx.no_arguments()?;
    Err(Error::new(
        ErrorCode::ILLEGAL_OPERATION,
        "the primary is not catching up",
    ))
}

/// Runs `replSetResizeOplog`.
pub fn resize_oplog(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "replSetResizeOplog";
    check_member(cx)?;
    let (mut size, mut retention) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "size" => size = Some(megabytes(NAME, &element)?),
            "minRetentionHours" => retention = Some(number(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    if retention.is_some_and(|hours| hours < 0.0) {
        return Err(Error::bad_value("'minRetentionHours' must be at least 0"));
    }
    if size.is_none() && retention.is_none() {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "replSetResizeOplog needs 'size' or 'minRetentionHours'",
        ));
    }
    match size {
        Some(bytes) => cx.server.db.resize_oplog(&cx.op, bytes),
        None => Ok(()),
    }
}

/// A number of megabytes within the limits of an oplog, in bytes.
fn megabytes(command: &str, element: &RawElement<'_>) -> Result<u64, Error> {
    let megabytes = number(command, element)?;
    if !(OPLOG_MEGABYTES_MIN..=OPLOG_MEGABYTES_MAX).contains(&megabytes) {
        return Err(Error::bad_value(format!(
            "BSON field 'size' value must be >= {OPLOG_MEGABYTES_MIN} and <= \
             {OPLOG_MEGABYTES_MAX} megabytes, actual value '{megabytes}'"
        )));
    }
    Ok((megabytes * f64::from(1 << 20)) as u64)
}

fn number(command: &str, element: &RawElement<'_>) -> Result<f64, Error> {
    let value = element.value();
    match value.as_f64() {
        Some(number) if value.is_number() => Ok(number),
        _ => Err(fields::wrong_type(command, element, "double")),
    }
}

/// Runs `appendOplogNote`.
pub fn append_note(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "appendOplogNote";
    check_member(cx)?;
    let (mut data, mut not_after): (Option<RawDoc<'_>>, _) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "data" => data = Some(fields::document(NAME, &element)?),
            "maxClusterTime" => match element.value() {
                sheaf_bson::RawValue::Timestamp(time) => not_after = Some(time),
                _ => return Err(fields::wrong_type(NAME, &element, "timestamp")),
            },
            _ => cx.unknown_field(&element)?,
        }
    }
    let data = data.ok_or_else(|| {
        Error::new(
            ErrorCode::NO_SUCH_KEY,
            "appendOplogNote needs the document 'data', which the entry holds",
        )
    })?;
    let db = &cx.server.db;
    if not_after.is_some_and(|limit| db.oplog().visible() > limit) {
        return Err(Error::new(
            ErrorCode::STALE_CLUSTER_TIME,
            "Requested maxClusterTime is less than the last op time of the oplog; leave it out",
        ));
    }
    db.append_note(data)?;
    append_write_concern(cx, out);
    Ok(())
}
