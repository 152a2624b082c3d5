//! Names of databases and collections, and which of them may be created.
//!
//! ```text
//!   shop.orders.2024        database "shop", collection "orders.2024"
//!   └db┘ └─collection─┘     split at the first dot
//! ```
//!
//! Invariant: a [`Namespace`] has a well-formed database and collection name. Whether a client may
//! create it is a separate check ([`Namespace::check_creatable`]): system collections are readable
//! under names that clients cannot create.

use std::fmt;
use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode, Result};

use crate::system_names::{
    BUCKETS_PREFIX, OPLOG_NAMESPACE, PROFILE, SESSIONS_NAMESPACE, SYSTEM_PREFIX,
    TRANSACTIONS_NAMESPACE, VIEWS,
};

/// Database names must be shorter than this many bytes.
pub const DATABASE_NAME_BYTES_LIMIT: usize = 64;
/// Maximum length of a namespace (database, dot, collection), in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 255;

/// System collections that clients may create.
const CREATABLE_SYSTEM_COLLECTIONS: &[&str] = &[PROFILE, VIEWS, "system.js", "system.users"];

/// Further system collections that a database of the server may have, as in MongoDB.
const CREATABLE_IN: &[(&str, &[&str])] = &[
    (
        "admin",
        &[
            "system.backup_users",
            "system.new_users",
            "system.roles",
            "system.version",
        ],
    ),
    ("config", &["system.indexBuilds"]),
    ("local", &["system.healthlog", "system.replset"]),
];

/// The full name of a collection. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    full: Arc<str>,
    db_len: usize,
}

impl Namespace {
    /// Joins a database and a collection name.
    /// Errors: `InvalidNamespace`.
    pub fn new(db: &str, collection: &str) -> Result<Namespace> {
        check_database_name(db)?;
        check_collection_name(db, collection)?;
        Ok(Namespace {
            full: joined(db, collection),
            db_len: db.len(),
        })
    }

    /// Splits `db.collection` at the first dot.
    /// Errors: `InvalidNamespace`, including for a name without a dot.
    pub fn parse(full: &str) -> Result<Namespace> {
        match full.split_once('.') {
            Some((db, collection)) => Namespace::new(db, collection),
            None => Err(invalid(format!("Invalid namespace specified '{full}'"))),
        }
    }

    /// `db.collection`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// The database.
    pub fn db(&self) -> &str {
        &self.full[..self.db_len]
    }

    /// The collection, without the database.
    pub fn collection(&self) -> &str {
        &self.full[self.db_len + 1..]
    }

    /// Whether this is the oplog, which only the server writes.
    pub fn is_oplog(&self) -> bool {
        self.as_str() == OPLOG_NAMESPACE
    }

    /// Whether changes to the collection are logged to the oplog. The server's local collections
    /// are not.
    pub fn is_replicated(&self) -> bool {
        let own = [TRANSACTIONS_NAMESPACE, SESSIONS_NAMESPACE];
        self.db() != "local" && self.collection() != PROFILE && !own.contains(&self.as_str())
    }

    /// Whether this is a system collection (`system.*`).
    pub fn is_system(&self) -> bool {
        self.collection().starts_with(SYSTEM_PREFIX)
    }

    /// Whether this names the collection that the profiler writes.
    pub fn is_profile(&self) -> bool {
        self.collection() == PROFILE
    }

    /// Whether this names the collection of a database's views.
    pub fn is_views(&self) -> bool {
        self.collection() == VIEWS
    }

    /// Whether this names the bucket collection of a time-series collection.
    pub fn is_buckets(&self) -> bool {
        self.collection().starts_with(BUCKETS_PREFIX)
    }

    /// The bucket collection of the time-series collection with this name.
    /// Errors: `InvalidNamespace`.
    pub fn buckets(&self) -> Result<Namespace> {
        Namespace::new(self.db(), &format!("{BUCKETS_PREFIX}{}", self.collection()))
    }

    /// Errors: `InvalidNamespace` for a name that is too long for a new collection.
    pub(crate) fn check_length(&self) -> Result<()> {
        if self.full.len() <= NAMESPACE_BYTES_MAX {
            return Ok(());
        }
        Err(invalid(format!(
            "Fully qualified namespace is too long. Namespace: {} Max: {NAMESPACE_BYTES_MAX}",
            self.full
        )))
    }

    /// Checks that a client may create the collection, by any command.
    /// Errors: `InvalidNamespace`.
    pub fn check_creatable(&self) -> Result<()> {
        self.check_length()?;
        let name = self.collection();
        let in_database = CREATABLE_IN.iter().find(|(db, _)| *db == self.db());
        let is_known = CREATABLE_SYSTEM_COLLECTIONS.contains(&name)
            || in_database.is_some_and(|(_, names)| names.contains(&name));
        if self.is_system() && !is_known {
            return Err(invalid(format!(
                "Invalid system namespace: {}; choose a name that does not start with 'system.'",
                self.full
            )));
        }
        Ok(())
    }
}

/// `db.collection`. A name of ordinary length is joined without a second allocation: every command
/// does this.
fn joined(db: &str, collection: &str) -> Arc<str> {
    let len = db.len() + 1 + collection.len();
    let mut buffer = [0; NAMESPACE_BYTES_MAX];
    let Some(bytes) = buffer.get_mut(..len) else {
        return [db, ".", collection].concat().into();
    };
    bytes[..db.len()].copy_from_slice(db.as_bytes());
    bytes[db.len()] = b'.';
    bytes[db.len() + 1..].copy_from_slice(collection.as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => [db, ".", collection].concat().into(),
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// Checks that `db` is a valid database name.
/// Errors: `InvalidNamespace`.
pub fn check_database_name(db: &str) -> Result<()> {
    let fits = !db.is_empty()
        && db.len() < DATABASE_NAME_BYTES_LIMIT
        && !db.contains(['/', '\\', '.', ' ', '"', '$', '\0']);
    if fits {
        Ok(())
    } else {
        Err(invalid(format!("Invalid database name: '{db}'")))
    }
}

fn check_collection_name(db: &str, collection: &str) -> Result<()> {
    let fits =
        !collection.is_empty() && !collection.starts_with('.') && !collection.contains(['$', '\0']);
    if fits {
        Ok(())
    } else {
        Err(invalid(format!(
            "Invalid namespace specified '{db}.{collection}'"
        )))
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::INVALID_NAMESPACE, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long_db = "d".repeat(63);
        for (db, collection) in [
            ("a", "b"),
            ("shop", "orders.2024"),
            ("x-y_z", "system.profile"),
            ("ü", "größe"),
            ("a", "b."),
            (&long_db, "c"),
        ] {
            let ns = Namespace::new(db, collection).unwrap();
            assert_eq!((ns.db(), ns.collection()), (db, collection));
            assert_eq!(Namespace::parse(ns.as_str()).unwrap(), ns);
            assert!(ns.check_creatable().is_ok(), "{ns}");
        }
        for (db, collection) in [
            ("", "c"),
            ("a.b", "c"),
            ("a b", "c"),
            ("a$", "c"),
            ("a/b", "c"),
            ("a\\b", "c"),
            ("a\"b", "c"),
            ("a\0b", "c"),
            (&"d".repeat(64), "c"),
            ("d", ""),
            ("d", ".c"),
            ("d", "a$b"),
            ("d", "a\0b"),
        ] {
            let error = match Namespace::new(db, collection) {
                Err(error) => error,
                Ok(ns) => panic!("{ns}"),
            };
            assert_eq!(error.code(), ErrorCode::INVALID_NAMESPACE);
        }
        assert!(Namespace::parse("nodot").is_err());
    }

    #[test]
    fn not_for_users() {
        for name in ["system.indexes", "system.view", "system."] {
            let ns = Namespace::new("d", name).unwrap();
            assert_eq!(
                ns.check_creatable().unwrap_err().code(),
                ErrorCode::INVALID_NAMESPACE
            );
        }
        let at_limit = Namespace::new("d", &"c".repeat(253)).unwrap();
        assert!(at_limit.check_creatable().is_ok());
        let beyond = Namespace::new("d", &"c".repeat(254)).unwrap();
        assert!(beyond.check_creatable().is_err());
    }
}
