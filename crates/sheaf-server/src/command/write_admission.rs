//! Whether a command may write now: the lock of `fsync`, and the block of user writes.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawValue};

use super::context::CommandContext;
use super::fields;
use crate::command_facts::{CountsAs, ExplainedAs, InTransaction, Names, Waits};
use crate::server::Server;
use crate::session::operations::OperationSlot;
use crate::write_gate::Writing;

/// Databases that hold the server's own data.
const OWN_DATABASES: [&str; 3] = ["admin", "config", "local"];

/// Whether the command writes data: it takes a write concern, and if it is a pipeline, its last
/// stage is one that writes.
pub fn writes(cx: &CommandContext<'_>) -> bool {
    match cx.command.write_concern {
        Waits::Not => false,
        _ if cx.command.explained == Some(ExplainedAs::Pipeline) => is_sink(cx.body),
        _ => true,
    }
}

/// Whether the last stage of the command's pipeline writes its input somewhere.
fn is_sink(body: RawDoc<'_>) -> bool {
    let Some(RawValue::Array(stages)) = body.get("pipeline") else {
        return false;
    };
    match stages.iter().last() {
        Some(RawValue::Document(stage)) => stage
            .first()
            .is_some_and(|first| matches!(first.key(), "$out" | "$merge")),
        _ => false,
    }
}

/// Waits until the command may write, and marks its connection as writing.
/// Errors: `Interrupted`, `MaxTimeMSExpired`.
pub fn enter<'s>(
    server: &'s Server,
    slot: &'s OperationSlot,
    cx: &CommandContext<'_>,
) -> Result<Writing<'s>, Error> {
    let ends = cx.command.transaction == InTransaction::End;
    server.write_gate.enter(slot.writing(), &cx.op, ends)
}

/// Refuses a write to a user's database while such writes are blocked. Statements are refused in
/// the reply, as any write error; other commands fail. Returns whether the reply is complete.
///
/// Errors: `UserWritesBlocked`.
pub fn refuse_user_write(cx: &CommandContext<'_>, out: &mut DocBuilder) -> Result<bool, Error> {
    if !cx.server.write_gate.blocks_users() || !is_of_user(cx) {
        return Ok(false);
    }
    let reason = cx.server.write_gate.user_block();
    let error = Error::new(
        ErrorCode::USER_WRITES_BLOCKED,
        format!(
            "User writes blocked, reason: {}",
            reason.map_or("Unspecified", |reason| reason.name())
        ),
    );
    let statements = match cx.command.counts_as {
        CountsAs::Insert => "documents",
        CountsAs::Update => "updates",
        CountsAs::Delete => "deletes",
        _ => return Err(error),
    };
    if cx.transaction.is_some() {
        return Err(error);
    }
    append_refused(cx, statements, &error, out)?;
    Ok(true)
}

/// Appends the reply of a batch of which every statement is refused: the first of an ordered
/// batch, all of an unordered one.
fn append_refused(
    cx: &CommandContext<'_>,
    statements: &str,
    error: &Error,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let given = super::write_reply::statements(cx, statements)?.len();
    let ordered = match cx.body.iter().find(|element| element.key() == "ordered") {
        Some(element) => fields::boolean(cx.command.name, &element)?,
        None => true,
    };
    out.append("n", 0);
    if cx.command.counts_as == CountsAs::Update {
        out.append("nModified", 0);
    }
    let mut errors = super::write_reply::WriteErrors::default();
    for index in 0..if ordered { given.min(1) } else { given } {
        errors.push(index, error.clone());
    }
    errors.append(cx, out);
    Ok(())
}

/// Whether the command writes to a database of users. Commands that name a namespace in full are
/// run on `admin` and mean another.
fn is_of_user(cx: &CommandContext<'_>) -> bool {
    let is_user = |db: &str| !OWN_DATABASES.contains(&db);
    let database_of = |value: Option<RawValue<'_>>| match value {
        Some(RawValue::String(name)) => is_user(name.split('.').next().unwrap_or(name)),
        _ => false,
    };
    match cx.command.collection {
        Names::FullName => {
            database_of(cx.body.first().map(|first| first.value()))
                || database_of(cx.body.get("to"))
        }
        Names::NsInfo => match cx.body.get("nsInfo") {
            Some(RawValue::Array(infos)) => infos.iter().any(|info| match info {
                RawValue::Document(info) => database_of(info.get("ns")),
                _ => false,
            }),
            _ => true,
        },
        _ => is_user(cx.db),
    }
}
