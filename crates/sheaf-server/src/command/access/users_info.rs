//! `usersInfo`: users, as their commands show them.

use sheaf_auth::UserName;
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_query::matcher;

use crate::access::{Resolved, USERS_NAMESPACE, append_roles, credentials_of, roles_of};
use crate::command::context::CommandContext;
use crate::command::fields;

const NAME: &str = "usersInfo";

/// Which users are asked for.
pub enum Wanted {
    /// Those of a database, or all.
    Within(Option<String>),
    /// These.
    Named(Vec<UserName>),
}

/// Parses the first field.
/// Errors: `BadValue`.
pub fn wanted(value: RawValue<'_>, db: &str) -> Result<Wanted, Error> {
    if let RawValue::Document(doc) = value
        && let Some(all) = doc.get("forAllDBs")
    {
        return match (all.as_bool(), doc.iter().count()) {
            (Some(true), 1) => Ok(Wanted::Within(None)),
            _ => Err(wrong()),
        };
    }
    match value {
        RawValue::Array(list) => {
            let names = list.iter().map(|user| name(user, db));
            Ok(Wanted::Named(names.collect::<Result<_, _>>()?))
        }
        RawValue::String(_) | RawValue::Document(_) => Ok(Wanted::Named(vec![name(value, db)?])),
        value if value.is_number() => Ok(Wanted::Within(Some(db.to_owned()))),
        _ => Err(wrong()),
    }
}

fn wrong() -> Error {
    Error::bad_value(
        "usersInfo must be 1, a user's name, {user: <name>, db: <db>}, a list of these, or \
         {forAllDBs: true}",
    )
}

fn name(value: RawValue<'_>, db: &str) -> Result<UserName, Error> {
    let doc = match value {
        RawValue::String(user) => return Ok(UserName::new(user, db)),
        RawValue::Document(doc) => doc,
        _ => return Err(wrong()),
    };
    let (mut user, mut db) = (None, None);
    for element in doc.iter() {
        match (element.key(), element.value()) {
            ("user", RawValue::String(name)) => user = Some(name),
            ("db", RawValue::String(name)) => db = Some(name),
            _ => return Err(wrong()),
        }
    }
    match (user, db) {
        (Some(user), Some(db)) => Ok(UserName::new(user, db)),
        _ => Err(wrong()),
    }
}

/// What is shown of a user.
struct Shown {
    credentials: bool,
    custom_data: bool,
    privileges: bool,
    restrictions: bool,
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut filter = RawDoc::EMPTY;
    let mut shown = Shown {
        credentials: false,
        custom_data: true,
        privileges: false,
        restrictions: false,
    };
    for element in cx.arguments() {
        match element.key() {
            "showCredentials" => shown.credentials = fields::strict_boolean(NAME, &element)?,
            "showCustomData" => shown.custom_data = fields::strict_boolean(NAME, &element)?,
            "showPrivileges" => shown.privileges = fields::strict_boolean(NAME, &element)?,
            "showAuthenticationRestrictions" => {
                shown.restrictions = fields::strict_boolean(NAME, &element)?;
            }
            "filter" => filter = fields::document(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let users = &cx.server.users;
    let stored = match wanted(cx.first()?.value(), cx.db)? {
        Wanted::Within(_) if shown.privileges || shown.restrictions => {
            return Err(Error::new(
                ErrorCode::ILLEGAL_OPERATION,
                "Privilege or restriction details require exact-match usersInfo queries",
            ));
        }
        Wanted::Within(db) => {
            let mut filter = DocBuilder::new();
            if let Some(db) = &db {
                filter.append("db", db.as_str());
            }
            users.list(USERS_NAMESPACE, filter.finish().as_raw())?
        }
        Wanted::Named(names) => {
            let mut stored = Vec::new();
            for name in names {
                stored.extend(users.document(&name)?);
            }
            stored
        }
    };
    let filter = matcher::parse(filter, &matcher::ParseContext::default())?;
    out.begin_array("users");
    for user in &stored {
        let document = describe(cx, user, &shown)?;
        if filter.matches(document.as_raw())? {
            out.push_document_bytes(document.as_bytes());
        }
    }
    out.end();
    Ok(())
}

fn describe(cx: &CommandContext<'_>, user: &DocBuf, shown: &Shown) -> Result<DocBuf, Error> {
    let mut out = DocBuilder::new();
    for element in user.iter() {
        let is_shown = match element.key() {
            "_id" | "userId" | "user" | "db" => true,
            "credentials" => shown.credentials,
            "customData" => shown.custom_data,
            _ => false,
        };
        if is_shown {
            out.append_raw_element(element);
        }
    }
    let roles = roles_of(user.as_raw());
    append_roles("roles", &roles, &mut out);
    out.begin_array("mechanisms");
    for element in credentials_of(user.as_raw())
        .unwrap_or(RawDoc::EMPTY)
        .iter()
    {
        out.push(element.key());
    }
    out.end();
    let own = user.get("authenticationRestrictions");
    let own = own.and_then(|list| Some(list.as_array()?.to_buf()));
    if shown.restrictions {
        let none = ArrayBuf::new();
        out.append_bson("authenticationRestrictions", own.as_ref().unwrap_or(&none));
    }
    if shown.privileges || shown.restrictions {
        let mut resolved = cx.server.users.resolve(&roles)?;
        append_inherited(&resolved, &mut out);
        resolved.restrictions.extend(own);
        append_restrictions(&resolved, &mut out);
    }
    Ok(out.finish())
}

/// Appends `inheritedRoles` and `inheritedPrivileges`.
pub fn append_inherited(resolved: &Resolved, out: &mut DocBuilder) {
    append_roles("inheritedRoles", &resolved.roles, out);
    append_privileges("inheritedPrivileges", &resolved.privileges, out);
}

/// Appends a list of privileges.
pub fn append_privileges(key: &str, privileges: &[sheaf_auth::Privilege], out: &mut DocBuilder) {
    out.begin_array(key);
    for privilege in privileges {
        privilege.push(out);
    }
    out.end();
}

/// Appends `inheritedAuthenticationRestrictions`.
pub fn append_restrictions(resolved: &Resolved, out: &mut DocBuilder) {
    out.begin_array("inheritedAuthenticationRestrictions");
    for list in &resolved.restrictions {
        out.push_bson(list);
    }
    out.end();
}
