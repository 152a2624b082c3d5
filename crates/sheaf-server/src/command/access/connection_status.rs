//! `connectionStatus`: the user of the connection.

use sheaf_bson::{DocBuilder, Error};

use super::users_info::append_privileges;
use crate::access::append_roles;
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
    let roles = user.as_ref().map_or(&[][..], |user| &user.roles);
    append_roles("authenticatedUserRoles", roles, out);
    if privileges {
        let privileges = user.as_ref().map_or(&[][..], |user| &user.privileges);
        append_privileges("authenticatedUserPrivileges", privileges, out);
    }
    out.end();
    Ok(())
}
