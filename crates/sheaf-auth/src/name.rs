//! Names of users and roles: each belongs to the database that it was created in.

use std::fmt;

use sheaf_bson::{DocBuilder, Error, RawValue};

/// Name and database of a user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserName {
    /// `user`.
    pub user: String,
    /// `db`.
    pub db: String,
}

impl UserName {
    /// The user of this name in this database.
    pub fn new(user: impl Into<String>, db: impl Into<String>) -> UserName {
        UserName {
            user: user.into(),
            db: db.into(),
        }
    }

    /// The `_id` of the user's document: `db.user`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.user)
    }
}

/// As messages show it: `user@db`.
impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.db)
    }
}

/// Name and database of a role.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleName {
    /// `role`.
    pub role: String,
    /// `db`.
    pub db: String,
}

impl RoleName {
    /// The role of this name in this database.
    pub fn new(role: impl Into<String>, db: impl Into<String>) -> RoleName {
        RoleName {
            role: role.into(),
            db: db.into(),
        }
    }

    /// The `_id` of the role's document: `db.role`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }

    /// Reads `{role, db}`, or a name in `default_db`.
    /// Errors: `BadValue`, for a field that occurs twice too.
    pub fn parse(value: RawValue<'_>, default_db: Option<&str>) -> Result<RoleName, Error> {
        let wrong = || Error::bad_value("a role must be a name or {role: <string>, db: <string>}");
        let doc = match (value, default_db) {
            (RawValue::String(role), Some(db)) if !role.is_empty() => {
                return Ok(RoleName::new(role, db));
            }
            (RawValue::Document(doc), _) => doc,
            _ => return Err(wrong()),
        };
        let (mut role, mut db) = (None, None);
        for element in doc.iter() {
            match (element.key(), element.value()) {
                ("role", RawValue::String(name)) if !name.is_empty() && role.is_none() => {
                    role = Some(name);
                }
                ("db", RawValue::String(name)) if !name.is_empty() && db.is_none() => {
                    db = Some(name);
                }
                _ => return Err(wrong()),
            }
        }
        match (role, db) {
            (Some(role), Some(db)) => Ok(RoleName::new(role, db)),
            _ => Err(wrong()),
        }
    }

    /// Pushes `{role, db}`.
    pub fn push(&self, out: &mut DocBuilder) {
        out.push_begin_document();
        out.append("role", self.role.as_str())
            .append("db", self.db.as_str());
        out.end();
    }
}

/// As messages show it: `role@db`.
impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.db)
    }
}
