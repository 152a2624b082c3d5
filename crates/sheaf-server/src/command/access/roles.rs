//! `createRole`, `updateRole`, `dropRole`, `dropAllRolesFromDatabase`, `grantPrivilegesToRole`,
//! `revokePrivilegesFromRole`, `grantRolesToRole`, `revokeRolesFromRole`.
//!
//! Invariant: inheritance has no circle, and a role of a database other than admin grants nothing
//! beyond that database.

use sheaf_auth::privilege::merge;
use sheaf_auth::{Privilege, RoleName, builtin};
use sheaf_bson::{ArrayBuf, DocBuilder, Error, ErrorCode};

use super::{arguments, users};
use crate::access::{ROLES_NAMESPACE, StoredRole};
use crate::command::context::CommandContext;
use crate::command::fields;

/// The arguments of these commands.
#[derive(Default)]
struct Arguments {
    privileges: Option<Vec<Privilege>>,
    roles: Option<Vec<RoleName>>,
    restrictions: Option<Option<ArrayBuf>>,
}

impl Arguments {
    /// Parses the arguments among `known`.
    fn parse(cx: &CommandContext<'_>, known: &[&str]) -> Result<Arguments, Error> {
        let mut arguments = Arguments::default();
        for element in cx.arguments() {
            match element.key() {
                key if !known.contains(&key) => cx.unknown_field(&element)?,
                "privileges" => arguments.privileges = Some(arguments::privileges(cx, &element)?),
                "roles" => arguments.roles = Some(arguments::roles(cx, &element)?),
                _ => arguments.restrictions = Some(arguments::restrictions(cx, &element)?),
            }
        }
        Ok(arguments)
    }
}

const WHOLE: &[&str] = &["privileges", "roles", "authenticationRestrictions"];

fn role_name(cx: &CommandContext<'_>) -> Result<RoleName, Error> {
    Ok(RoleName::new(arguments::name(cx)?, cx.db))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::INVALID_ROLE_MODIFICATION, message)
}

/// The stored role of the command's first field.
/// Errors: `RoleNotFound`; `InvalidRoleModification` for a role that is built in.
fn stored(cx: &CommandContext<'_>, name: &RoleName) -> Result<StoredRole, Error> {
    if builtin::is_builtin(name) {
        return Err(invalid(format!(
            "{name} is a built-in role and cannot be modified"
        )));
    }
    let role = cx.server.users.role(name)?;
    role.ok_or_else(|| arguments::role_not_found(name))
}

/// Checks what a role is to inherit: the roles exist, are of its database unless it is admin's, and
/// do not inherit from the role.
fn check_roles(cx: &CommandContext<'_>, name: &RoleName, roles: &[RoleName]) -> Result<(), Error> {
    for role in roles {
        if name.db != "admin" && role.db != name.db {
            return Err(invalid(format!(
                "Roles on the '{}' database cannot be granted roles from other databases",
                name.db
            )));
        }
        arguments::check_roles(&cx.server.users, std::slice::from_ref(role))?;
        let inherited = cx.server.users.resolve(std::slice::from_ref(role))?;
        if inherited.roles.contains(name) {
            return Err(invalid(format!(
                "Granting {role} to {name} would introduce a cycle in the role graph."
            )));
        }
    }
    Ok(())
}

/// Checks that privileges are about the role's database, unless it is admin's.
fn check_privileges(name: &RoleName, privileges: &[Privilege]) -> Result<(), Error> {
    let beyond = |privilege: &Privilege| !privilege.resource.is_within(&name.db);
    match name.db != "admin" && privileges.iter().any(beyond) {
        true => Err(invalid(format!(
            "Roles on the '{}' database cannot be granted privileges that target other databases \
             or the cluster",
            name.db
        ))),
        false => Ok(()),
    }
}

fn store(cx: &CommandContext<'_>, role: &StoredRole) -> Result<(), Error> {
    let users = &cx.server.users;
    users.store(&cx.op, ROLES_NAMESPACE, &role.to_doc())
}

/// Runs `createRole`.
pub fn create(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let name = role_name(cx)?;
    let arguments = Arguments::parse(cx, WHOLE)?;
    let privileges = fields::required(cx.name(), "privileges", arguments.privileges)?;
    let roles = fields::required(cx.name(), "roles", arguments.roles)?;
    if cx.db == "local" {
        return Err(Error::bad_value(
            "Cannot create roles in the local database",
        ));
    }
    if cx.db == "$external" {
        return Err(Error::bad_value(
            "Cannot create roles in the $external database",
        ));
    }
    if builtin::is_builtin(&name) {
        return Err(Error::bad_value(
            "Cannot create roles with the same name as a built-in role",
        ));
    }
    let _changing = cx.server.users.begin_change();
    check_roles(cx, &name, &roles)?;
    check_privileges(&name, &privileges)?;
    if cx.server.users.role(&name)?.is_some() {
        return Err(Error::new(
            ErrorCode(51002),
            format!("Role \"{name}\" already exists"),
        ));
    }
    let role = StoredRole {
        name,
        roles,
        privileges,
        restrictions: arguments.restrictions.flatten(),
        is_builtin: false,
    };
    store(cx, &role)
}

/// Runs `updateRole`.
pub fn update(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let name = role_name(cx)?;
    let arguments = Arguments::parse(cx, WHOLE)?;
    let nothing = arguments.privileges.is_none()
        && arguments.roles.is_none()
        && arguments.restrictions.is_none();
    if nothing {
        return Err(Error::bad_value(
            "Must specify at least one field to update in updateRole",
        ));
    }
    let _changing = cx.server.users.begin_change();
    let mut role = stored(cx, &name)?;
    if let Some(roles) = arguments.roles {
        check_roles(cx, &name, &roles)?;
        role.roles = roles;
    }
    if let Some(privileges) = arguments.privileges {
        check_privileges(&name, &privileges)?;
        role.privileges = privileges;
    }
    if let Some(restrictions) = arguments.restrictions {
        role.restrictions = restrictions;
    }
    store(cx, &role)
}

/// Runs `dropRole`. The role is taken from users and roles that have it.
pub fn drop_one(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let name = role_name(cx)?;
    cx.no_arguments()?;
    let _changing = cx.server.users.begin_change();
    stored(cx, &name)?;
    drop_roles(cx, &[name]).map(drop)
}

/// Runs `dropAllRolesFromDatabase`.
pub fn drop_all(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let _changing = cx.server.users.begin_change();
    let gone: Vec<RoleName> = stored_roles(cx, Some(cx.db))?
        .into_iter()
        .map(|role| role.name)
        .collect();
    out.append("n", drop_roles(cx, &gone)? as i32);
    Ok(())
}

fn drop_roles(cx: &CommandContext<'_>, gone: &[RoleName]) -> Result<usize, Error> {
    if gone.is_empty() {
        return Ok(0);
    }
    users::remove_roles(cx, gone)?;
    for mut role in stored_roles(cx, None)? {
        let before = role.roles.len();
        role.roles.retain(|role| !gone.contains(role));
        if role.roles.len() < before {
            store(cx, &role)?;
        }
    }
    for name in gone {
        let mut filter = DocBuilder::new();
        filter.append("_id", name.id().as_str());
        let users = &cx.server.users;
        users.delete(&cx.op, ROLES_NAMESPACE, filter.finish().as_raw())?;
    }
    Ok(gone.len())
}

/// The stored roles of a database, or all.
pub fn stored_roles(cx: &CommandContext<'_>, db: Option<&str>) -> Result<Vec<StoredRole>, Error> {
    let mut filter = DocBuilder::new();
    if let Some(db) = db {
        filter.append("db", db);
    }
    let filter = filter.finish();
    let documents = cx.server.users.list(ROLES_NAMESPACE, filter.as_raw())?;
    let roles = documents.iter().map(|role| role.as_raw());
    Ok(roles.filter_map(StoredRole::from_doc).collect())
}

/// Runs `grantPrivilegesToRole`.
pub fn grant_privileges(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    change_privileges(cx, |role, privileges| {
        for privilege in privileges {
            merge(&mut role.privileges, privilege);
        }
    })
}

/// Runs `revokePrivilegesFromRole`: of the privilege on exactly the same resource.
pub fn revoke_privileges(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    change_privileges(cx, |role, privileges| {
        for revoked in privileges {
            for known in &mut role.privileges {
                if known.resource == revoked.resource {
                    known.actions = known.actions.without(revoked.actions);
                }
            }
        }
        role.privileges.retain(|known| !known.actions.is_empty());
    })
}

fn change_privileges(
    cx: &CommandContext<'_>,
    change: impl Fn(&mut StoredRole, Vec<Privilege>),
) -> Result<(), Error> {
    let name = role_name(cx)?;
    let arguments = Arguments::parse(cx, &["privileges"])?;
    let privileges = fields::required(cx.name(), "privileges", arguments.privileges)?;
    if privileges.is_empty() {
        return Err(arguments::needs(cx, "privileges"));
    }
    let _changing = cx.server.users.begin_change();
    let mut role = stored(cx, &name)?;
    check_privileges(&name, &privileges)?;
    change(&mut role, privileges);
    store(cx, &role)
}

/// Runs `grantRolesToRole`.
pub fn grant_roles(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let (name, roles) = name_and_roles(cx)?;
    let _changing = cx.server.users.begin_change();
    let mut role = stored(cx, &name)?;
    check_roles(cx, &name, &roles)?;
    for granted in roles {
        if !role.roles.contains(&granted) {
            role.roles.push(granted);
        }
    }
    store(cx, &role)
}

/// Runs `revokeRolesFromRole`.
pub fn revoke_roles(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let (name, roles) = name_and_roles(cx)?;
    let _changing = cx.server.users.begin_change();
    let mut role = stored(cx, &name)?;
    arguments::check_roles(&cx.server.users, &roles)?;
    role.roles.retain(|known| !roles.contains(known));
    store(cx, &role)
}

fn name_and_roles(cx: &CommandContext<'_>) -> Result<(RoleName, Vec<RoleName>), Error> {
    let name = role_name(cx)?;
    let arguments = Arguments::parse(cx, &["roles"])?;
    let roles = fields::required(cx.name(), "roles", arguments.roles)?;
    match roles.is_empty() {
        true => Err(arguments::needs(cx, "roles")),
        false => Ok((name, roles)),
    }
}
