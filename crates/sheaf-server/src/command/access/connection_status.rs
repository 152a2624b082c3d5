//! `connectionStatus`: the user of the connection.

use sheaf_bson::{DocBuilder, Error};

use crate::command::context::CommandContext;
use crate::command::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut privileges = false;
    for element in cx.arguments() {
        match element.key() {
            "showPrivileges" => privileges = fields::boolean("connectionStatus", &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let user = cx.connection.authentication.user.clone();
    out.begin_document("authInfo");
    out.begin_array("authenticatedUsers");
    if let Some(user) = &user {
        out.push_begin_document();
        out.append("user", user.name.user.as_str());
        out.append("db", user.name.db.as_str());
        out.end();
    }
    out.end();
    out.begin_array("authenticatedUserRoles").end();
    if privileges {
        out.begin_array("authenticatedUserPrivileges").end();
    }
    out.end();
    Ok(())
}
