//! Arguments that the commands on users and roles share.

use sheaf_auth::privilege::merge;
use sheaf_auth::{Privilege, RoleName, restriction};
use sheaf_bson::{ArrayBuf, ArrayBuilder, Error, ErrorCode, RawElement, RawValue};

use crate::access::Users;
use crate::command::context::CommandContext;
use crate::command::fields;

/// The name in the first field.
/// Errors: `TypeMismatch`; `BadValue` for an empty one.
pub fn name<'a>(cx: &CommandContext<'a>) -> Result<&'a str, Error> {
    let name = fields::string(cx.name(), &cx.first()?)?;
    match name.is_empty() || name.contains('\0') {
        true => Err(Error::bad_value(format!(
            "'{}' requires a name that is not empty and has no null character",
            cx.name()
        ))),
        false => Ok(name),
    }
}

/// A list of roles: names in the command's database, or `{role, db}`.
/// Errors: `TypeMismatch`, `BadValue`.
pub fn roles(cx: &CommandContext<'_>, element: &RawElement<'_>) -> Result<Vec<RoleName>, Error> {
    let mut roles = Vec::new();
    for value in fields::array(cx.name(), element)?.iter() {
        let role = RoleName::parse(value, Some(cx.db))?;
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    Ok(roles)
}

/// Checks that roles exist.
/// Errors: `RoleNotFound`.
pub fn check_roles(users: &Users, roles: &[RoleName]) -> Result<(), Error> {
    for role in roles {
        if users.role(role)?.is_none() {
            return Err(role_not_found(role));
        }
    }
    Ok(())
}

/// The error for a role that does not exist.
pub fn role_not_found(role: &RoleName) -> Error {
    Error::new(
        ErrorCode::ROLE_NOT_FOUND,
        format!("Could not find role: {role}"),
    )
}

/// A list of privileges, each resource once.
/// Errors: `TypeMismatch`, `BadValue`.
pub fn privileges(
    cx: &CommandContext<'_>,
    element: &RawElement<'_>,
) -> Result<Vec<Privilege>, Error> {
    let mut privileges = Vec::new();
    for value in fields::array(cx.name(), element)?.iter() {
        let RawValue::Document(privilege) = value else {
            return Err(fields::wrong_type(cx.name(), element, "array of objects"));
        };
        merge(&mut privileges, Privilege::parse(privilege)?);
    }
    Ok(privileges)
}

/// `authenticationRestrictions`; an empty list is none.
/// Errors: `TypeMismatch`, `BadValue`.
pub fn restrictions(
    cx: &CommandContext<'_>,
    element: &RawElement<'_>,
) -> Result<Option<ArrayBuf>, Error> {
    let checked = restriction::parse(fields::array(cx.name(), element)?)?;
    if checked.is_empty() {
        return Ok(None);
    }
    let mut list = ArrayBuilder::new();
    for document in checked {
        list.push_document_bytes(document.as_bytes());
    }
    Ok(Some(list.finish()))
}

/// The error for an empty list where one is needed.
pub fn needs(cx: &CommandContext<'_>, list: &str) -> Error {
    Error::bad_value(format!(
        "{} command requires a non-empty \"{list}\" array",
        cx.name()
    ))
}
