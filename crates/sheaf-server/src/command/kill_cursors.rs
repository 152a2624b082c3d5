//! `killCursors`: closes cursors by id.

use sheaf_bson::{ArrayBuilder, DocBuilder, Error, RawValue};

use super::context::CommandContext;
use super::fields;
use crate::command_facts::{Action, On};

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "killCursors";
    // A collectionless cursor is named as in its reply, for example `$cmd.aggregate`.
    let collectionless =
        matches!(cx.first()?.value(), RawValue::String(name) if name.starts_with("$cmd."));
    if !collectionless {
        cx.collection()?;
    }
    let named = On::Collection(cx.db, cx.first()?.value().as_str().unwrap_or_default());
    let mut ids = None;
    for element in cx.arguments() {
        match element.key() {
            "cursors" => ids = Some((fields::array(NAME, &element)?, element)),
            _ => cx.unknown_field(&element)?,
        }
    }
    let (ids, element) = fields::required(NAME, "cursors", ids)?;
    // A wrong id fails the command before any cursor is closed.
    let ids = ids
        .iter()
        .map(|id| match id {
            RawValue::Int64(id) => Ok(id),
            _ => Err(fields::wrong_type(NAME, &element, "array of long")),
        })
        .collect::<Result<Vec<i64>, Error>>()?;
    let user = cx.connection.authentication.user.as_ref();
    let is_other = |id: &i64| {
        let owner = cx.server.cursors.owner(*id);
        owner.is_some_and(|owner| owner.as_ref() != user.map(|user| &user.name))
    };
    if !cx.may(Action::KillAnyCursor, On::Cluster)
        && !cx.may(Action::KillAnyCursor, named)
        && ids.iter().any(is_other)
    {
        return Err(cx.unauthorized());
    }
    let (mut killed, mut not_found) = (ArrayBuilder::new(), ArrayBuilder::new());
    for id in ids {
        match cx.server.cursors.kill_and_take(id) {
            Some(closed) => {
                cx.connection.deferred_drops.keep_cursor(closed);
                killed.push(id);
            }
            None => {
                not_found.push(id);
            }
        }
    }
    out.append_bson("cursorsKilled", &killed.finish());
    out.append_bson("cursorsNotFound", &not_found.finish());
    out.append_bson("cursorsAlive", &ArrayBuilder::new().finish());
    out.append_bson("cursorsUnknown", &ArrayBuilder::new().finish());
    Ok(())
}
