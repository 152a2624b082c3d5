//! `startSession`, `refreshSessions`, `endSessions`, `killSessions`, `killAllSessions`,
//! `killAllSessionsByPattern`: logical sessions. A session owns its cursors and its transaction.

use std::sync::Arc;

use sheaf_auth::UserName;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::Uuid;

use super::context::CommandContext;
use super::fields;
use crate::access::{LoggedIn, digest};
use crate::command_facts::{Action, On};
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

/// Runs `killAllSessions`: kills all sessions, or those of the named users.
pub fn kill_all(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    let users = fields::array(cx.name(), &first)?;
    let mut digests = Vec::new();
    for user in users.iter() {
        match user {
            RawValue::Document(user) => {
                digests.push(Some(digest(&user_name(user)?)));
            }
            user if fields::is_absent(user) => {}
            _ => return Err(fields::wrong_type(cx.name(), &first, "object")),
        }
    }
    kill_where(cx, |id| digests.is_empty() || digests.contains(&id.uid));
    Ok(())
}

/// Reads `{user, db}`, both names.
/// Errors: `TypeMismatch`, 40414 for a missing one, 40415 for another field.
fn user_name(user: RawDoc<'_>) -> Result<UserName, Error> {
    const WITHIN: &str = "KillAllSessionsUser";
    let (mut name, mut db) = (None, None);
    for element in fields::given(user) {
        match element.key() {
            "user" => name = Some(fields::string(WITHIN, &element)?),
            "db" => db = Some(fields::string(WITHIN, &element)?),
            other => return Err(fields::unknown_field(WITHIN, other)),
        }
    }
    let name = fields::required(WITHIN, "user", name)?;
    Ok(UserName::new(name, fields::required(WITHIN, "db", db)?))
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

/// The session of a user with this id: `lsid` with the user's `uid`.
/// Errors: `Unauthorized` for the `uid` of another user.
pub fn owned(lsid: RawDoc<'_>, user: &LoggedIn) -> Result<DocBuf, Error> {
    let uid = RawValue::Binary {
        subtype: 0,
        bytes: &user.digest,
    };
    match lsid.get("uid") {
        Some(given) if given == uid => Ok(lsid.to_buf()),
        Some(_) => Err(Error::new(
            ErrorCode::UNAUTHORIZED,
            "the session belongs to another user: send lsid without uid",
        )),
        None => {
            let mut out = DocBuilder::from_doc(lsid);
            out.append("uid", uid);
            Ok(out.finish())
        }
    }
}

fn ids(cx: &CommandContext<'_>, name: &str) -> Result<Vec<DocBuf>, Error> {
    cx.no_arguments()?;
    let first = cx.first()?;
    let list = fields::array(name, &first)?;
    let ends_any = name == "killSessions" && cx.may(Action::KillAnySession, On::Cluster);
    list.iter()
        .map(|value| match value {
            RawValue::Document(lsid) => {
                let lsid = checked(lsid)?;
                match &cx.connection.authentication.user {
                    Some(_) if ends_any && lsid.get("uid").is_some() => Ok(lsid),
                    Some(user) => owned(lsid.as_raw(), user),
                    None => Ok(lsid),
                }
            }
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
