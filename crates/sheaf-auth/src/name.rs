//! Names of users: a user belongs to the database that it was created in.

use std::fmt;

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
