//! `startSession`, `refreshSessions`, `endSessions`, `killSessions`: logical
//! sessions. A session's only belongings so far are its cursors.

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::Uuid;

use super::context::CommandContext;
use super::fields;
use super::hello::SESSION_TIMEOUT_MINUTES;

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

/// Runs `refreshSessions`: they do not time out, so there is nothing to do but to check the ids.
pub fn refresh(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    ids(cx, "refreshSessions").map(drop)
}

/// Runs `endSessions` and `killSessions`: closes the sessions' cursors.
pub fn end(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let ended = ids(cx, cx.name())?;
    cx.server.cursors.kill_where(|_, lsid| {
        lsid.is_some_and(|lsid| {
            let id = lsid.get("id");
            ended.iter().any(|other| other.get("id") == id)
        })
    });
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
