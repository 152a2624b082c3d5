//! `startSession`, `refreshSessions`, `endSessions`, `killSessions`: logical
//! sessions. A session's belongings are its cursors and its transaction.

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::Uuid;

use super::context::CommandContext;
use super::fields;
use super::hello::SESSION_TIMEOUT_MINUTES;
use crate::session::logical::session_id;

/// Runs `startSession`: a new session id.
pub fn start(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    out.begin_document("id");
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(
            ErrorCode::INTERNAL_ERROR,
            format!("the system gave no random bytes: {e}"),
        )
    })?;
    let uuid = Uuid::from_random(bytes);
    out.append("id", uuid.as_raw());
    out.end();
    out.append("timeoutMinutes", SESSION_TIMEOUT_MINUTES);
    Ok(())
}

/// Runs `refreshSessions`: they live on for another timeout.
pub fn refresh(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    for lsid in ids(cx, "refreshSessions")? {
        cx.server.sessions.get(lsid.as_raw(), None);
    }
    Ok(())
}

/// Runs `endSessions` and `killSessions`: closes the sessions' cursors and
/// aborts their transactions.
pub fn end(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let ended = ids(cx, cx.name())?;
    let ended: Vec<_> = ended
        .iter()
        .filter_map(|lsid| session_id(lsid.as_raw()))
        .collect();
    cx.server
        .sessions
        .end(|session| ended.contains(session.id()));
    cx.server.close_cursors_of(&ended);
    Ok(())
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
