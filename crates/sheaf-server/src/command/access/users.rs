//! `createUser`, `updateUser`, `dropUser`, `dropAllUsersFromDatabase`, `grantRolesToUser`,
//! `revokeRolesFromUser`.

use sheaf_auth::scram::Credentials;
use sheaf_auth::{Mechanism, RoleName, UserName, random};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Error, ErrorCode, RawDoc};
use sheaf_db::Uuid;

use super::arguments;
use super::sasl::iterations;
use crate::access::{USERS_NAMESPACE, append_roles, credentials_of, roles_of};
use crate::command::context::CommandContext;
use crate::command::fields;

/// The database of users whose passwords are elsewhere.
const EXTERNAL: &str = "$external";

/// The arguments of `createUser` and `updateUser`.
#[derive(Default)]
struct Arguments<'a> {
    password: Option<&'a str>,
    custom_data: Option<RawDoc<'a>>,
    roles: Option<Vec<RoleName>>,
    restrictions: Option<Option<ArrayBuf>>,
    mechanisms: Option<Vec<Mechanism>>,
    /// `digestPassword: false`.
    is_digest: bool,
}

impl<'a> Arguments<'a> {
    fn parse(cx: &CommandContext<'a>) -> Result<Arguments<'a>, Error> {
        let mut arguments = Arguments::default();
        let name = cx.name();
        for element in cx.arguments() {
            match element.key() {
                "pwd" => arguments.password = Some(fields::string(name, &element)?),
                "customData" => arguments.custom_data = Some(fields::document(name, &element)?),
                "roles" => arguments.roles = Some(arguments::roles(cx, &element)?),
                "authenticationRestrictions" => {
                    arguments.restrictions = Some(arguments::restrictions(cx, &element)?);
                }
                "mechanisms" => {
                    let mut list = Vec::new();
                    for mechanism in fields::array(name, &element)?.iter() {
                        list.push(mechanism_named(mechanism.as_str().unwrap_or_default())?);
                    }
                    if list.is_empty() {
                        return Err(Error::bad_value("mechanisms field must not be empty"));
                    }
                    arguments.mechanisms = Some(list);
                }
                "digestPassword" => {
                    arguments.is_digest = !fields::strict_boolean(name, &element)?;
                }
                _ => cx.unknown_field(&element)?,
            }
        }
        if arguments.password.is_some_and(str::is_empty) {
            return Err(Error::bad_value("Password cannot be empty"));
        }
        Ok(arguments)
    }

    /// Appends `credentials` of the password.
    /// Errors: `BadValue`.
    fn append_credentials(
        &self,
        cx: &CommandContext<'_>,
        user: &str,
        password: &str,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let enabled = super::sasl::enabled(cx);
        let mechanisms = match &self.mechanisms {
            Some(mechanisms) => mechanisms.clone(),
            None => enabled.iter().collect(),
        };
        if let Some(disabled) = mechanisms.iter().find(|one| !enabled.contains(**one)) {
            return Err(Error::bad_value(format!(
                "{} not supported, since authenticationMechanisms leaves it out",
                disabled.name()
            )));
        }
        out.begin_document("credentials");
        for mechanism in mechanisms {
            let count = cx.server.parameters.int(iterations(mechanism));
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let keys = match (self.is_digest, mechanism) {
                (true, Mechanism::ScramSha256) => {
                    return Err(Error::bad_value(
                        "Use of SCRAM-SHA-256 requires undigested passwords",
                    ));
                }
                (true, Mechanism::ScramSha1) => Credentials::of_digest(password, count)?,
                (false, _) => Credentials::of_password(mechanism, user, password, count)?,
            };
            keys.append(mechanism, out);
        }
        out.end();
        Ok(())
    }
}

fn mechanism_named(name: &str) -> Result<Mechanism, Error> {
    Mechanism::named(name).map_err(|e| Error::bad_value(e.message().to_owned()))
}

fn not_found(name: &UserName) -> Error {
    Error::new(
        ErrorCode::USER_NOT_FOUND,
        format!("User \"{name}\" not found"),
    )
}

/// The user in the command's first field.
fn user_name(cx: &CommandContext<'_>) -> Result<UserName, Error> {
    Ok(UserName::new(arguments::name(cx)?, cx.db))
}

/// Runs `createUser`.
pub fn create(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let name = user_name(cx)?;
    let arguments = Arguments::parse(cx)?;
    let roles = fields::required(cx.name(), "roles", arguments.roles.clone())?;
    if cx.db == "local" {
        return Err(Error::bad_value(
            "Cannot create users in the local database",
        ));
    }
    let mut out = DocBuilder::new();
    out.append("_id", name.id().as_str());
    out.append("userId", Uuid::from_random(random::bytes()?).as_raw());
    out.append("user", name.user.as_str());
    out.append("db", name.db.as_str());
    match (arguments.password, cx.db == EXTERNAL) {
        (Some(_), true) => {
            return Err(Error::bad_value(
                "Cannot set the password for users defined on the '$external' database",
            ));
        }
        (None, true) => {
            out.begin_document("credentials").append("external", true);
            out.end();
        }
        (None, false) => {
            return Err(Error::bad_value(
                "Must provide a 'pwd' field for all user documents, except those with \
                 '$external' as the user's source db",
            ));
        }
        (Some(password), false) => {
            arguments.append_credentials(cx, &name.user, password, &mut out)?;
        }
    }
    if let Some(custom_data) = arguments.custom_data {
        out.append("customData", custom_data);
    }
    append_roles("roles", &roles, &mut out);
    if let Some(Some(restrictions)) = &arguments.restrictions {
        out.append_bson("authenticationRestrictions", restrictions);
    }
    let users = &cx.server.users;
    let _changing = users.begin_change();
    arguments::check_roles(users, &roles)?;
    if users.document(&name)?.is_some() {
        return Err(Error::new(
            ErrorCode(51003),
            format!("User \"{name}\" already exists"),
        ));
    }
    users.store(&cx.op, USERS_NAMESPACE, &out.finish())
}

/// Runs `updateUser`.
pub fn update(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let name = user_name(cx)?;
    let arguments = Arguments::parse(cx)?;
    let changes = arguments.password.is_some()
        || arguments.custom_data.is_some()
        || arguments.roles.is_some()
        || arguments.restrictions.is_some()
        || arguments.mechanisms.is_some();
    if !changes {
        return Err(Error::bad_value(
            "Must specify at least one field to update in updateUser",
        ));
    }
    if arguments.password.is_some() && cx.db == EXTERNAL {
        return Err(Error::bad_value(
            "Cannot set the password for users defined on the '$external' database",
        ));
    }
    let users = &cx.server.users;
    let _changing = users.begin_change();
    arguments::check_roles(users, arguments.roles.as_deref().unwrap_or_default())?;
    let stored = users.document(&name)?.ok_or_else(|| not_found(&name))?;
    let mut change = DocBuilder::new();
    match (arguments.password, &arguments.mechanisms) {
        (Some(password), _) => {
            arguments.append_credentials(cx, &name.user, password, &mut change)?;
        }
        (None, Some(kept)) => append_kept(stored.as_raw(), kept, &mut change)?,
        (None, None) => {}
    }
    if let Some(custom_data) = arguments.custom_data {
        change.append("customData", custom_data);
    }
    if let Some(roles) = &arguments.roles {
        append_roles("roles", roles, &mut change);
    }
    if let Some(Some(restrictions)) = &arguments.restrictions {
        change.append_bson("authenticationRestrictions", restrictions);
    }
    let dropped = match arguments.restrictions {
        Some(None) => "authenticationRestrictions",
        _ => "",
    };
    let changed = changed(stored.as_raw(), change.finish().as_raw(), dropped);
    users.store(&cx.op, USERS_NAMESPACE, &changed)
}

/// Appends the stored keys of these mechanisms.
/// Errors: `BadValue` for a mechanism without stored keys.
fn append_kept(stored: RawDoc<'_>, kept: &[Mechanism], out: &mut DocBuilder) -> Result<(), Error> {
    let stored = credentials_of(stored).unwrap_or(RawDoc::EMPTY);
    out.begin_document("credentials");
    for mechanism in kept {
        match stored.get_element(mechanism.name()) {
            Some(keys) => out.append_raw_element(keys),
            None => {
                return Err(Error::bad_value(
                    "mechanisms field must be a subset of previously set mechanisms",
                ));
            }
        };
    }
    out.end();
    Ok(())
}

/// A document with the fields of `change` in place of its own, and without the field `dropped`.
fn changed(document: RawDoc<'_>, change: RawDoc<'_>, dropped: &str) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in document.iter().filter(|element| element.key() != dropped) {
        out.append_raw_element(change.get_element(element.key()).unwrap_or(element));
    }
    for element in change.iter() {
        if document.get(element.key()).is_none() {
            out.append_raw_element(element);
        }
    }
    out.finish()
}

/// Runs `dropUser`.
pub fn drop_one(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let name = user_name(cx)?;
    cx.no_arguments()?;
    let users = &cx.server.users;
    let _changing = users.begin_change();
    let mut filter = DocBuilder::new();
    filter.append("_id", name.id().as_str());
    match users.delete(&cx.op, USERS_NAMESPACE, filter.finish().as_raw())? {
        0 => Err(not_found(&name)),
        _ => Ok(()),
    }
}

/// Runs `dropAllUsersFromDatabase`.
pub fn drop_all(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let users = &cx.server.users;
    let _changing = users.begin_change();
    let mut filter = DocBuilder::new();
    filter.append("db", cx.db);
    let count = users.delete(&cx.op, USERS_NAMESPACE, filter.finish().as_raw())?;
    out.append("n", count as i32);
    Ok(())
}

/// Runs `grantRolesToUser`.
pub fn grant(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    change_roles(cx, |roles, granted| {
        for role in granted {
            if !roles.contains(role) {
                roles.push(role.clone());
            }
        }
    })
}

/// Runs `revokeRolesFromUser`.
pub fn revoke(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    change_roles(cx, |roles, revoked| {
        roles.retain(|role| !revoked.contains(role));
    })
}

fn change_roles(
    cx: &CommandContext<'_>,
    change: impl Fn(&mut Vec<RoleName>, &[RoleName]),
) -> Result<(), Error> {
    let name = user_name(cx)?;
    let mut given = None;
    for element in cx.arguments() {
        match element.key() {
            "roles" => given = Some(arguments::roles(cx, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let given = fields::required(cx.name(), "roles", given)?;
    if given.is_empty() {
        return Err(arguments::needs(cx, "roles"));
    }
    let users = &cx.server.users;
    let _changing = users.begin_change();
    let stored = users.document(&name)?.ok_or_else(|| not_found(&name))?;
    arguments::check_roles(users, &given)?;
    let mut roles = roles_of(stored.as_raw());
    change(&mut roles, &given);
    let mut change = DocBuilder::new();
    append_roles("roles", &roles, &mut change);
    let changed = changed(stored.as_raw(), change.finish().as_raw(), "");
    users.store(&cx.op, USERS_NAMESPACE, &changed)
}

/// Runs `invalidateUserCache`.
pub fn invalidate(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    cx.server.users.invalidate();
    Ok(())
}

/// Removes roles from every user that has them.
pub fn remove_roles(cx: &CommandContext<'_>, gone: &[RoleName]) -> Result<(), Error> {
    let users = &cx.server.users;
    for stored in users.list(USERS_NAMESPACE, RawDoc::EMPTY)? {
        let mut roles = roles_of(stored.as_raw());
        let before = roles.len();
        roles.retain(|role| !gone.contains(role));
        if roles.len() < before {
            let mut change = DocBuilder::new();
            append_roles("roles", &roles, &mut change);
            let changed = changed(stored.as_raw(), change.finish().as_raw(), "");
            users.store(&cx.op, USERS_NAMESPACE, &changed)?;
        }
    }
    Ok(())
}
