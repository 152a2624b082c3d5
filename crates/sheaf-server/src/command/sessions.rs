//! `startSession`, `refreshSessions`, `endSessions`, `killSessions`, `killAllSessions`,
//! `killAllSessionsByPattern`: logical sessions. A session owns its cursors and its transaction.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::Uuid;

use super::context::CommandContext;
use super::fields;
use crate::session::SESSION_TIMEOUT_MINUTES;
use crate::session::logical::{SessionId, session_id};

/// Runs `startSession`: returns a new session id.
pub fn start(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    out.begin_document("id");
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(
            ErrorCode::INTERNAL_ERROR,
            format!("the operating system provides no random bytes: {e}"),
        )
    })?;
    let uuid = Uuid::from_random(bytes);
    out.append("id", uuid.as_raw());
    out.end();
    out.append("timeoutMinutes", SESSION_TIMEOUT_MINUTES);
    Ok(())
}

/// Runs `refreshSessions`: restarts the timeout of the sessions.
pub fn refresh(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    for lsid in ids(cx, "refreshSessions")? {
        cx.server.sessions.get(lsid.as_raw(), None);
    }
    Ok(())
}

/// Runs `endSessions`: closes the sessions' cursors and aborts their transactions.
pub fn end(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    end_named(cx).map(drop)
}

/// Runs `killSessions`: as `endSessions`, and interrupts the operations of the sessions.
pub fn kill(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let ended = end_named(cx)?;
    kill_operations(cx, |id| ended.contains(id));
    Ok(())
}

fn end_named(cx: &CommandContext<'_>) -> Result<Vec<SessionId>, Error> {
    let ended = ids(cx, cx.name())?;
    let ended: Vec<_> = ended
        .iter()
        .filter_map(|lsid| session_id(lsid.as_raw()))
        .collect();
    cx.server
        .sessions
        .end(|session| ended.contains(session.id()));
    cx.server.close_cursors_of(&ended);
    Ok(ended)
}

/// Runs `killAllSessions`: kills all sessions. If users are named it kills none, because no session
/// belongs to a user yet.
pub fn kill_all(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    let users = fields::array(cx.name(), &first)?;
    let mut names_users = false;
    for user in users.iter() {
        match user {
            RawValue::Document(user) => {
                check_user(user)?;
                names_users = true;
            }
            user if fields::is_absent(user) => {}
            _ => return Err(fields::wrong_type(cx.name(), &first, "object")),
        }
    }
    if !names_users {
        kill_where(cx, |_| true);
    }
    Ok(())
}

/// Checks `{user, db}`, both names.
/// Errors: `TypeMismatch`, 40414 for a missing one, 40415 for another field.
fn check_user(user: RawDoc<'_>) -> Result<(), Error> {
    const WITHIN: &str = "KillAllSessionsUser";
    let (mut name, mut db) = (None, None);
    for element in fields::given(user) {
        match element.key() {
            "user" => name = Some(fields::string(WITHIN, &element)?),
            "db" => db = Some(fields::string(WITHIN, &element)?),
            other => return Err(fields::unknown_field(WITHIN, other)),
        }
    }
    fields::required(WITHIN, "user", name)?;
    fields::required(WITHIN, "db", db).map(drop)
}

/// Runs `killAllSessionsByPattern`: kills the named sessions, or all for an empty pattern or no
/// pattern.
pub fn kill_by_pattern(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    let patterns = fields::array(cx.name(), &first)?;
    let (mut named, mut all, mut given) = (Vec::new(), false, false);
    for pattern in patterns.iter() {
        given = true;
        let RawValue::Document(pattern) = pattern else {
            return Err(fields::wrong_type(cx.name(), &first, "array of objects"));
        };
        match pattern.get("lsid") {
            Some(RawValue::Document(lsid)) => named.extend(session_id(lsid)),
            Some(_) => return Err(fields::wrong_type(cx.name(), &first, "array of {lsid}")),
            None => all |= pattern.is_empty(),
        }
    }
    let all = all || !given;
    kill_where(cx, |id| all || named.contains(id));
    Ok(())
}

fn kill_where(cx: &CommandContext<'_>, which: impl Fn(&SessionId) -> bool) {
    let ended = cx.server.sessions.end(|session| which(session.id()));
    cx.server.close_cursors_of(&ended);
    kill_operations(cx, which);
}

/// Interrupts the operations of the selected sessions, except this command.
fn kill_operations(cx: &CommandContext<'_>, which: impl Fn(&SessionId) -> bool) {
    for slot in cx.server.operations.slots() {
        let Some(operation) = slot.current() else {
            continue;
        };
        let lsid = (operation.lsid.as_ref()).and_then(|lsid| session_id(lsid.as_raw()));
        if lsid.is_some_and(|id| which(&id)) && !Arc::ptr_eq(&operation.op, cx.op.op()) {
            operation.op.kill(ErrorCode::INTERRUPTED);
        }
    }
}

fn ids(cx: &CommandContext<'_>, name: &str) -> Result<Vec<DocBuf>, Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    let list = fields::array(name, &first)?;
    list.iter()
        .map(|value| match value {
            RawValue::Document(lsid) => checked(lsid),
            _ => Err(fields::wrong_type(name, &first, "array of objects")),
        })
        .collect()
}

fn checked(lsid: RawDoc<'_>) -> Result<DocBuf, Error> {
    match lsid.get("id") {
        Some(RawValue::Binary { subtype: 4, bytes }) if bytes.len() == 16 => Ok(lsid.to_buf()),
        _ => Err(fields::missing("lsid", "id")),
    }
}
