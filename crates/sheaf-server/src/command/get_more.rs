//! `getMore`: the next batch of a cursor.

use std::time::{Duration, Instant};

use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::OpContext;

use super::batch::{self, Batch};
use super::context::CommandContext;
use super::{failing, fields};
use crate::session::cursors::ClientCursor;
use crate::session::logical::session_id;

const NAME: &str = "getMore";

/// How long a getMore on an `awaitData` cursor waits if the client gives no `maxTimeMS`.
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// Codes after which a driver may resume a change stream, by the specification of change streams.
const RESUMABLE_CODES: [i32; 17] = [
    6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436,
];

/// Checks that the cursor is read in the session that opened it, or in none if none did.
fn check_session(cx: &CommandContext<'_>, cursor: &ClientCursor) -> Result<(), Error> {
    let id = |lsid: RawDoc<'_>| session_id(lsid);
    let opened = cursor.lsid.as_ref().and_then(|lsid| id(lsid.as_raw()));
    let asking = cx.generic.lsid.and_then(id);
    match (opened, asking) {
        (None, Some(_)) => Err(Error::new(
            ErrorCode(50736),
            "Cannot run getMore on a cursor which was not created in a session, in a session",
        )),
        (Some(_), None) => Err(Error::new(
            ErrorCode(50737),
            "Cannot run getMore on a cursor which was created in a session, without an lsid",
        )),
        (Some(opened), Some(asking)) if opened != asking => Err(Error::new(
            ErrorCode(50738),
            "Cannot run getMore on a cursor which was created in another session",
        )),
        _ => Ok(()),
    }
}

/// Checks that the cursor is read in the transaction that opened it, or in none if none did.
fn check_transaction(cx: &CommandContext<'_>, cursor: &ClientCursor) -> Result<(), Error> {
    let asking = cx.transaction.map(|transaction| transaction.number);
    match (cursor.txn_number, asking) {
        (None, None) => Ok(()),
        (Some(opened), Some(asking)) if opened == asking => Ok(()),
        (None, Some(_)) => Err(Error::new(
            ErrorCode(50739),
            "Cannot run getMore on a cursor which was not created in a transaction, in a transaction",
        )),
        (Some(_), None) => Err(Error::new(
            ErrorCode(50740),
            "Cannot run getMore on a cursor which was created in a transaction, without a txnNumber",
        )),
        (Some(opened), Some(asking)) => Err(Error::new(
            ErrorCode(50741),
            format!(
                "Cannot run getMore on a cursor which was created in transaction {opened}, in transaction {asking}"
            ),
        )),
    }
}

/// The arguments of a getMore.
struct GetMore<'a> {
    id: i64,
    collection: &'a str,
    /// `None` is the default.
    batch_size: Option<u64>,
}

/// Parses the arguments.
/// Errors: wrong types, unknown fields, an empty collection name.
fn parse<'a>(cx: &CommandContext<'a>) -> Result<GetMore<'a>, Error> {
    let first = cx.first()?;
    let RawValue::Int64(id) = first.value() else {
        return Err(fields::wrong_type(NAME, &first, "long"));
    };
    let (mut collection, mut batch_size) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "collection" => collection = Some(fields::string(NAME, &element)?),
            "batchSize" => {
                // 0 means the default here, as in MongoDB.
                batch_size = Some(fields::non_negative(NAME, &element)?).filter(|n| *n > 0);
            }
            "term" => {
                let RawValue::Int64(_) = element.value() else {
                    return Err(fields::wrong_type(NAME, &element, "long"));
                };
            }
            "lastKnownCommittedOpTime" => {}
            _ => cx.unknown_field(&element)?,
        }
    }
    let collection = fields::required(NAME, "collection", collection)?;
    if collection.is_empty() {
        return Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("Invalid namespace specified '{}.'", cx.db),
        ));
    }
    Ok(GetMore {
        id,
        collection,
        batch_size,
    })
}

/// Checks that the cursor belongs to the user, who still may run the command that opened it.
fn check_owner(cx: &CommandContext<'_>, id: i64, cursor: &ClientCursor) -> Result<(), Error> {
    if !cx.server.settings.authorization {
        return Ok(());
    }
    let user = cx.connection.authentication.user.as_ref();
    if cursor.owner.as_ref() != user.map(|user| &user.name) {
        return Err(Error::new(
            ErrorCode::UNAUTHORIZED,
            format!("cursor id {id} was not created by the authenticated user"),
        ));
    }
    let mut requires = cursor.requires.iter();
    match requires.all(|(action, pattern)| cx.may(*action, pattern.on())) {
        true => Ok(()),
        false => Err(cx.unauthorized()),
    }
}

/// Checks that this client may read the cursor as requested, before anything is read.
fn admit(cx: &mut CommandContext<'_>, id: i64, cursor: &ClientCursor) -> Result<(), Error> {
    check_owner(cx, id, cursor)?;
    check_session(cx, cursor)?;
    check_transaction(cx, cursor)?;
    cx.generic.api.check_cursor(cursor.api)?;
    show(cx, id, cursor);
    if cx.generic.max_time.is_some() && cursor.source.is_tailable() && !cursor.source.awaits_data()
    {
        return Err(Error::bad_value(
            "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
        ));
    }
    Ok(())
}

/// Records the cursor for the log, the profiler and `currentOp`.
fn show(cx: &mut CommandContext<'_>, id: i64, cursor: &ClientCursor) {
    cx.report.namespace = Some(cursor.namespace.clone());
    cx.report.cursor_id = Some(id);
    cx.report.query_stats = cursor.query_stats.clone();
    cx.report.originating_command = Some(cursor.originating_command.clone());
    // The comment of the command that opened the cursor applies to all of its batches.
    if let Some(comment) = cursor.originating_command.get("comment") {
        cx.op.inherit_comment(comment.to_value());
    }
    let description = cursor.describe(id, Duration::ZERO);
    cx.connection.operations.set_cursor(description);
}

/// Limits the command's time. Returns how long it waits for more documents, which is the meaning
/// of `maxTimeMS` on a tailable cursor.
fn limit_time(cx: &mut CommandContext<'_>, cursor: &ClientCursor) -> Duration {
    if cursor.source.is_tailable() {
        return cx.generic.max_time.unwrap_or(AWAIT_DEFAULT);
    }
    // The time limit of the command that opened the cursor covers its getMores.
    let left = cursor.max_time_left;
    let inherited = left.map(|left| left.max(Duration::from_nanos(1)));
    if let Some(limit) = cx.generic.max_time.or(inherited) {
        cx.op.limit_time(limit);
    }
    AWAIT_DEFAULT
}

/// Appends the next batch. An `awaitData` cursor without documents waits for some, at most for
/// `await_time`.
fn fill(
    cursor: &mut ClientCursor,
    op: &OpContext,
    batch_size: Option<u64>,
    await_time: Duration,
    out: &mut DocBuilder,
) -> Result<Batch, Error> {
    let source = &mut *cursor.source;
    let mut filled = batch::fill(source, &mut cursor.pending, op, batch_size, out)?;
    let until = Instant::now() + await_time;
    while filled.count == 0 && !filled.exhausted && source.awaits_data() {
        let left = until.saturating_duration_since(Instant::now());
        if !source.await_more(op, left)? {
            break;
        }
        filled = batch::fill(source, &mut cursor.pending, op, batch_size, out)?;
    }
    Ok(filled)
}

/// Marks the error of a change stream that another cursor can resume.
fn labelled(error: Error, cursor: &ClientCursor) -> Error {
    let is_change_stream = cursor.source.post_batch_resume_token().is_some();
    match is_change_stream && RESUMABLE_CODES.contains(&error.code().0) {
        true => error.with_label(label::RESUMABLE_CHANGE_STREAM),
        false => error,
    }
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let request = parse(cx)?;
    let reply_namespace = format!("{}.{}", cx.db, request.collection);
    let server = cx.server.clone();
    let mut checked_out = server
        .cursors
        .check_out(request.id, &reply_namespace, cx.op.op())?;
    let cursor = checked_out.cursor()?;
    if let Err(error) = admit(cx, request.id, cursor) {
        checked_out.check_in();
        return Err(error);
    }
    let await_time = limit_time(cx, cursor);
    let op = cx.op.clone();
    let before = cursor.source.counts();
    out.begin_document("cursor");
    out.begin_array("nextBatch");
    let is_limited = cx.generic.max_time.or(cursor.max_time_left).is_some();
    let filled = match failing::get_more(cx, is_limited) {
        Ok(()) => fill(cursor, &op, request.batch_size, await_time, out),
        Err(error) => Err(error),
    };
    cursor.source.batch_ended();
    batch::account(cx, &*cursor.source, before);
    // An error closes the cursor: its plan cannot continue.
    let filled = match filled {
        Ok(filled) => filled,
        Err(error) => {
            let error = labelled(error, cursor);
            cx.connection
                .deferred_drops
                .keep_cursor(checked_out.close());
            return Err(error);
        }
    };
    out.end();
    batch::append_resume_token(cursor.source.post_batch_resume_token().as_ref(), out);
    cursor.batches += 1;
    cursor.n_returned += filled.count;
    if cursor.max_time_left.is_some() {
        cursor.max_time_left = op.remaining();
    }
    cx.report.n_returned = Some(filled.count);
    cx.report.cursor_exhausted = filled.exhausted;
    if filled.exhausted {
        cx.connection
            .deferred_drops
            .keep_cursor(checked_out.close());
    } else {
        cx.connection
            .deferred_drops
            .keep_cursor(checked_out.check_in());
        // An exhaust cursor: the same getMore is executed repeatedly until the cursor is exhausted.
        cx.connection.exhaust = cx.exhaust_allowed;
    }
    out.append("id", if filled.exhausted { 0 } else { request.id });
    out.append("ns", reply_namespace.as_str());
    out.end();
    Ok(())
}
