//! Privileges of the commands on users and roles.
//!
//! Source: the manual's page of each command, "Required Access". What cannot be parsed requires
//! nothing more: the command fails.

use sheaf_auth::{Pattern, Privilege, RoleName};
use sheaf_bson::{RawDoc, RawValue};

use super::{roles_info, users_info};
use crate::command_facts::{Action, Asked, On, Required};

/// All databases.
const EVERYWHERE: On<'static> = On::Database("");

fn list<'a>(body: RawDoc<'a>, field: &str) -> Vec<RawValue<'a>> {
    match body.get(field) {
        Some(RawValue::Array(list)) => list.iter().collect(),
        _ => Vec::new(),
    }
}

fn is_given(asked: &Asked<'_>, field: &str) -> bool {
    (asked.body.get(field)).is_some_and(|value| !matches!(value, RawValue::Null))
}

/// `action` on the database of each role in `roles`.
fn on_roles<'a>(asked: &Asked<'a>, action: Action, out: &mut Vec<Required<'a>>) {
    for role in list(asked.body, "roles") {
        let db = match role {
            RawValue::Document(role) => role.get("db").and_then(|db| db.as_str()),
            _ => Some(asked.db),
        };
        out.extend(db.map(|db| (action, On::Database(db))));
    }
}

/// `action` on the database of each privilege in `privileges`; on admin for a privilege beyond one
/// database.
fn on_privileges<'a>(asked: &Asked<'a>, action: Action, out: &mut Vec<Required<'a>>) {
    for privilege in list(asked.body, "privileges") {
        let RawValue::Document(privilege) = privilege else {
            continue;
        };
        let resource = privilege.get("resource").and_then(|doc| doc.as_document());
        let db = resource.and_then(|doc| doc.get("db")?.as_str());
        let parsed = Privilege::parse(privilege).map(|privilege| privilege.resource);
        let db = match (db, parsed) {
            (Some(db), Ok(Pattern::Collection(..) | Pattern::Buckets(..))) if !db.is_empty() => db,
            _ => "admin",
        };
        out.push((action, On::Database(db)));
    }
}

fn on_restrictions<'a>(asked: &Asked<'a>, out: &mut Vec<Required<'a>>) {
    if is_given(asked, "authenticationRestrictions") {
        out.push((Action::SetAuthenticationRestriction, On::Database(asked.db)));
    }
}

/// `createUser`.
pub fn create_user<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let mut out = vec![(Action::CreateUser, On::Database(asked.db))];
    on_roles(asked, Action::GrantRole, &mut out);
    on_restrictions(asked, &mut out);
    out
}

/// `updateUser`: users may be allowed to change their own password and custom data.
pub fn update_user<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let on = On::Database(asked.db);
    let name = asked.body.first().and_then(|first| first.value().as_str());
    let own = |action: Action| {
        asked.caller.is_some_and(|caller| {
            caller.name.db == asked.db
                && Some(caller.name.user.as_str()) == name
                && caller.allowed.allows(action, on)
        })
    };
    let mut out = Vec::new();
    let password = is_given(asked, "pwd") || is_given(asked, "mechanisms");
    if password && !own(Action::ChangeOwnPassword) {
        out.push((Action::ChangePassword, on));
    }
    if is_given(asked, "customData") && !own(Action::ChangeOwnCustomData) {
        out.push((Action::ChangeCustomData, on));
    }
    if is_given(asked, "roles") {
        out.push((Action::RevokeRole, EVERYWHERE));
        on_roles(asked, Action::GrantRole, &mut out);
    }
    on_restrictions(asked, &mut out);
    if out.is_empty() && !password && !is_given(asked, "customData") {
        out.push((Action::ChangePassword, on));
    }
    out
}

/// `grantRolesToUser`, `grantRolesToRole`.
pub fn grant_roles<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    or_own_database(asked, Action::GrantRole, on_roles)
}

/// `revokeRolesFromUser`, `revokeRolesFromRole`.
pub fn revoke_roles<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    or_own_database(asked, Action::RevokeRole, on_roles)
}

/// `grantPrivilegesToRole`.
pub fn grant_privileges<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    or_own_database(asked, Action::GrantRole, on_privileges)
}

/// `revokePrivilegesFromRole`.
pub fn revoke_privileges<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    or_own_database(asked, Action::RevokeRole, on_privileges)
}

/// The action on the databases of a list, or, if it is empty, on the command's.
fn or_own_database<'a>(
    asked: &Asked<'a>,
    action: Action,
    of_list: fn(&Asked<'a>, Action, &mut Vec<Required<'a>>),
) -> Vec<Required<'a>> {
    let mut out = Vec::new();
    of_list(asked, action, &mut out);
    if out.is_empty() {
        out.push((action, On::Database(asked.db)));
    }
    out
}

/// `usersInfo`: users may see themselves.
pub fn users_info<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let Some(first) = asked.body.first() else {
        return Vec::new();
    };
    let own = Action::ViewUser;
    let here = vec![(own, On::Database(asked.db))];
    match users_info::wanted(first.value(), asked.db) {
        Ok(users_info::Wanted::Within(None)) => vec![(own, EVERYWHERE)],
        Ok(users_info::Wanted::Within(Some(_))) => here,
        Ok(users_info::Wanted::Named(names)) => {
            let mut out = Vec::new();
            for name in names {
                if asked.caller.is_some_and(|caller| *caller.name == name) {
                    continue;
                }
                out.push((own, named(asked, &name.db)));
            }
            out
        }
        Err(_) => here,
    }
}

/// `rolesInfo`: users may see the roles that they have.
pub fn roles_info<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let here = vec![(Action::ViewRole, On::Database(asked.db))];
    let Some(first) = asked.body.first() else {
        return Vec::new();
    };
    let Ok(Some(names)) = roles_info::wanted(first.value(), asked.db) else {
        return here;
    };
    let has = |role: &RoleName| {
        asked
            .caller
            .is_some_and(|caller| caller.roles.contains(role))
    };
    let mut out = Vec::new();
    for name in names.iter().filter(|name| !has(name)) {
        out.push((Action::ViewRole, named(asked, &name.db)));
    }
    out
}

/// The database of this name, as the command's first field spells it.
fn named<'a>(asked: &Asked<'a>, db: &str) -> On<'a> {
    if db == asked.db {
        return On::Database(asked.db);
    }
    let first = asked.body.first().map(|first| first.value());
    let of = |value: RawValue<'a>| {
        let found = value.as_document()?.get("db")?.as_str()?;
        (found == db).then_some(found)
    };
    let found = match first {
        Some(RawValue::Array(list)) => list.iter().find_map(of),
        Some(value) => of(value),
        None => None,
    };
    found.map_or(EVERYWHERE, On::Database)
}

/// `createRole`.
pub fn create_role<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let mut out = vec![(Action::CreateRole, On::Database(asked.db))];
    on_roles(asked, Action::GrantRole, &mut out);
    on_privileges(asked, Action::GrantRole, &mut out);
    on_restrictions(asked, &mut out);
    out
}

/// `updateRole`.
pub fn update_role<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let mut out = vec![(Action::RevokeRole, EVERYWHERE)];
    on_roles(asked, Action::GrantRole, &mut out);
    on_privileges(asked, Action::GrantRole, &mut out);
    on_restrictions(asked, &mut out);
    out
}
