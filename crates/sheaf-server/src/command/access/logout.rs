//! `logout`: ends the connection's authentication against a database.

use sheaf_bson::{DocBuilder, Error};

use crate::command::context::CommandContext;

/// Runs it. As in MongoDB a user of another database stays logged in.
pub fn run(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let authentication = &mut cx.connection.authentication;
    authentication.login = None;
    if let Some(user) = &authentication.user
        && user.name.db == cx.db
    {
        authentication.user = None;
        cx.connection.operations.set_user(None);
    }
    Ok(())
}
