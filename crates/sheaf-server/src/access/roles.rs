//! The stored roles, `admin.system.roles`, and what roles together grant.

use std::collections::HashSet;

use sheaf_auth::privilege::merge;
use sheaf_auth::{Privilege, RoleName, builtin};
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Error, RawDoc, RawValue};

use super::{ROLES_NAMESPACE, Users};

/// A role, built in or stored.
#[derive(Debug, Clone)]
pub struct StoredRole {
    /// Its name.
    pub name: RoleName,
    /// The roles that it inherits from directly.
    pub roles: Vec<RoleName>,
    /// Its own privileges.
    pub privileges: Vec<Privilege>,
    /// Its own `authenticationRestrictions`.
    pub restrictions: Option<ArrayBuf>,
    /// It is built in.
    pub is_builtin: bool,
}

/// What a list of roles grants.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The roles and those that they inherit from, each once.
    pub roles: Vec<RoleName>,
    /// Their privileges, each resource once.
    pub privileges: Vec<Privilege>,
    /// Their restrictions; a connection must satisfy each list.
    pub restrictions: Vec<ArrayBuf>,
}

/// The names in `roles` of a stored user or role. A name that cannot be read grants nothing.
pub fn roles_of(document: RawDoc<'_>) -> Vec<RoleName> {
    let Some(RawValue::Array(list)) = document.get("roles") else {
        return Vec::new();
    };
    list.iter()
        .filter_map(|role| RoleName::parse(role, None).ok())
        .collect()
}

impl StoredRole {
    fn builtin(name: &RoleName) -> Option<StoredRole> {
        Some(StoredRole {
            name: name.clone(),
            roles: Vec::new(),
            privileges: builtin::privileges(name)?,
            restrictions: None,
            is_builtin: true,
        })
    }

    /// Reads a stored role. Privileges that cannot be read are skipped.
    pub fn from_doc(document: RawDoc<'_>) -> Option<StoredRole> {
        let text = |name| document.get(name)?.as_str();
        let mut privileges = Vec::new();
        if let Some(RawValue::Array(list)) = document.get("privileges") {
            for privilege in list.iter().filter_map(|value| value.as_document()) {
                if let Ok(privilege) = Privilege::stored(privilege) {
                    merge(&mut privileges, privilege);
                }
            }
        }
        let restrictions = document.get("authenticationRestrictions");
        Some(StoredRole {
            name: RoleName::new(text("role")?, text("db")?),
            roles: roles_of(document),
            privileges,
            restrictions: restrictions.and_then(|list| Some(list.as_array()?.to_buf())),
            is_builtin: false,
        })
    }

    /// The document that is stored.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("_id", self.name.id().as_str());
        out.append("role", self.name.role.as_str());
        out.append("db", self.name.db.as_str());
        out.begin_array("privileges");
        for privilege in &self.privileges {
            privilege.push(&mut out);
        }
        out.end();
        append_roles("roles", &self.roles, &mut out);
        if let Some(restrictions) = &self.restrictions {
            out.append_bson("authenticationRestrictions", restrictions);
        }
        out.finish()
    }
}

/// Appends a list of `{role, db}`.
pub fn append_roles(key: &str, roles: &[RoleName], out: &mut DocBuilder) {
    out.begin_array(key);
    for role in roles {
        role.push(out);
    }
    out.end();
}

impl Users {
    /// A role, built in or stored.
    /// Errors: those of a read.
    pub fn role(&self, name: &RoleName) -> Result<Option<StoredRole>, Error> {
        if let Some(role) = StoredRole::builtin(name) {
            return Ok(Some(role));
        }
        let mut filter = DocBuilder::new();
        filter.append("_id", name.id().as_str());
        let document = self.first(ROLES_NAMESPACE, filter.finish().as_raw())?;
        Ok(document.and_then(|document| StoredRole::from_doc(document.as_raw())))
    }

    /// What these roles grant, with what they inherit. Roles that do not exist grant nothing.
    /// Errors: those of a read.
    pub fn resolve(&self, roles: &[RoleName]) -> Result<Resolved, Error> {
        let mut resolved = Resolved::default();
        let mut seen: HashSet<RoleName> = roles.iter().cloned().collect();
        let mut queue = roles.to_vec();
        let mut next = 0;
        while let Some(name) = queue.get(next).cloned() {
            next += 1;
            let Some(role) = self.role(&name)? else {
                resolved.roles.push(name);
                continue;
            };
            resolved.roles.push(name);
            for privilege in role.privileges {
                merge(&mut resolved.privileges, privilege);
            }
            resolved.restrictions.extend(role.restrictions);
            let inherited = role.roles.into_iter();
            queue.extend(inherited.filter(|role| seen.insert(role.clone())));
        }
        Ok(resolved)
    }
}
