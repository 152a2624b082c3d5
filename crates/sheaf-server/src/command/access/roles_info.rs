//! `rolesInfo`: roles, stored and built in, with what they inherit.

use sheaf_auth::{RoleName, builtin};
use sheaf_bson::{ArrayBuf, DocBuilder, Error, ErrorCode, RawElement, RawValue};

use super::roles::stored_roles;
use super::users_info::{append_inherited, append_privileges, append_restrictions};
use crate::access::{StoredRole, append_roles};
use crate::command::context::CommandContext;
use crate::command::fields;

const NAME: &str = "rolesInfo";

/// `showPrivileges`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Privileges {
    Hidden,
    Shown,
    /// Of all roles together, as a user that has them would show them.
    AsUserFragment,
}

/// The roles of the first field; `None` for all of the database.
/// Errors: `BadValue`.
pub fn wanted(value: RawValue<'_>, db: &str) -> Result<Option<Vec<RoleName>>, Error> {
    match value {
        RawValue::Array(list) => {
            let names = list.iter().map(|role| RoleName::parse(role, Some(db)));
            names.collect::<Result<_, _>>().map(Some)
        }
        value if value.is_number() => Ok(None),
        value => Ok(Some(vec![RoleName::parse(value, Some(db))?])),
    }
}

fn privileges(element: &RawElement<'_>) -> Result<Privileges, Error> {
    match element.value() {
        RawValue::String("asUserFragment") => Ok(Privileges::AsUserFragment),
        RawValue::String(other) => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("showPrivileges must be a boolean or 'asUserFragment', not '{other}'"),
        )),
        _ => Ok(match fields::strict_boolean(NAME, element)? {
            true => Privileges::Shown,
            false => Privileges::Hidden,
        }),
    }
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let (mut shown, mut restrictions, mut with_builtin) = (Privileges::Hidden, false, false);
    for element in cx.arguments() {
        match element.key() {
            "showPrivileges" => shown = privileges(&element)?,
            "showAuthenticationRestrictions" => {
                restrictions = fields::strict_boolean(NAME, &element)?;
            }
            "showBuiltinRoles" => with_builtin = fields::strict_boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let wanted = wanted(cx.first()?.value(), cx.db)?;
    let users = &cx.server.users;
    if shown == Privileges::AsUserFragment {
        let Some(names) = wanted else {
            return Err(Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                "Cannot get user fragment for all roles in a database",
            ));
        };
        let resolved = users.resolve(&names)?;
        out.begin_document("userFragment");
        append_roles("roles", &names, out);
        append_inherited(&resolved, out);
        append_restrictions(&resolved, out);
        out.end();
        return Ok(());
    }
    let mut found = Vec::new();
    match wanted {
        Some(names) => {
            for name in names {
                found.extend(users.role(&name)?);
            }
        }
        None => {
            found = stored_roles(cx, Some(cx.db))?;
            if with_builtin {
                for name in builtin::names(cx.db) {
                    found.extend(users.role(&RoleName::new(name, cx.db))?);
                }
            }
        }
    }
    out.begin_array("roles");
    for role in &found {
        out.push_begin_document();
        append(cx, role, shown == Privileges::Shown, restrictions, out)?;
        out.end();
    }
    out.end();
    Ok(())
}

fn append(
    cx: &CommandContext<'_>,
    role: &StoredRole,
    with_privileges: bool,
    with_restrictions: bool,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    if !role.is_builtin {
        out.append("_id", role.name.id().as_str());
    }
    out.append("role", role.name.role.as_str());
    out.append("db", role.name.db.as_str());
    if with_privileges {
        append_privileges("privileges", &role.privileges, out);
    }
    append_roles("roles", &role.roles, out);
    if with_restrictions {
        out.begin_array("authenticationRestrictions");
        if let Some(list) = &role.restrictions {
            out.push_bson(list);
        }
        out.end();
    }
    out.append("isBuiltin", role.is_builtin);
    let inherited = cx.server.users.resolve(&role.roles)?;
    append_roles("inheritedRoles", &inherited.roles, out);
    let mut all = cx.server.users.resolve(std::slice::from_ref(&role.name))?;
    if with_privileges {
        append_privileges("inheritedPrivileges", &all.privileges, out);
    }
    if with_restrictions {
        all.restrictions.retain(|list| *list != ArrayBuf::new());
        append_restrictions(&all, out);
    }
    Ok(())
}
