//! `connectionStatus`: the authenticated users of the connection. There are no users yet.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut privileges = false;
    for element in cx.arguments() {
        match element.key() {
            "showPrivileges" => privileges = fields::boolean("connectionStatus", &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    out.begin_document("authInfo");
    let mut lists = vec!["authenticatedUsers", "authenticatedUserRoles"];
    if privileges {
        lists.push("authenticatedUserPrivileges");
    }
    for list in lists {
        out.begin_array(list);
        out.end();
    }
    out.end();
    Ok(())
}
