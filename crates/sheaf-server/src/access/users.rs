//! The stored users: `admin.system.users`, in MongoDB's document shape.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sheaf_auth::scram::Credentials;
use sheaf_auth::{Mechanism, UserName, random};
use sheaf_bson::{DocBuf, DocBuilder, Error, RawDoc};
use sheaf_db::modify::{self, DeleteReport, DeleteStatement};
use sheaf_db::{Db, Namespace, OpContext, QueryOptions, StatementContext};
use sheaf_query::canonical::FindSpec;

use super::{AUTH_SCHEMA_VERSION, LoggedIn, USERS_NAMESPACE};
use crate::repl::store_document;

/// The users and roles of a server.
pub struct Users {
    pub(super) db: Arc<Db>,
    /// Part of the salts of users that do not exist.
    secret: [u8; 32],
    /// Held by a command that changes users or roles.
    changing: Mutex<()>,
}

impl Users {
    /// The users of this database.
    /// Errors: the system has no randomness.
    pub fn open(db: &Arc<Db>) -> Result<Users, Error> {
        Ok(Users {
            db: db.clone(),
            secret: random::bytes()?,
            changing: Mutex::default(),
        })
    }

    /// Number of changes so far: what is known of a user at another number may be out of date.
    pub fn generation(&self) -> u64 {
        self.db.access_changes()
    }

    /// Makes connections read their users again.
    pub fn invalidate(&self) {
        self.db.access_changed();
    }

    /// Keeps other commands from changing users and roles.
    pub fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Stores a user or role in the place of the one with its `_id`, durably.
    /// Errors: those of a write.
    pub fn store(
        &self,
        op: &StatementContext,
        namespace: &str,
        document: &DocBuf,
    ) -> Result<(), Error> {
        let schema = Namespace::parse("admin.system.version")?;
        if self.first(schema.as_str(), RawDoc::EMPTY)?.is_none() {
            let mut version = DocBuilder::new();
            version.append("_id", "authSchema");
            version.append("currentVersion", AUTH_SCHEMA_VERSION);
            store_document(&self.db, op, &schema, &version.finish())?;
        }
        store_document(&self.db, op, &Namespace::parse(namespace)?, document)?;
        self.db.sync()
    }

    /// Deletes users or roles that match, durably. Returns how many.
    /// Errors: those of a write.
    pub fn delete(
        &self,
        op: &StatementContext,
        namespace: &str,
        filter: RawDoc<'_>,
    ) -> Result<u64, Error> {
        let statement = DeleteStatement {
            spec: FindSpec {
                filter: Some(filter),
                ..FindSpec::default()
            },
            multi: true,
            return_document: Default::default(),
            projection: None,
        };
        let mut report = DeleteReport::default();
        let namespace = Namespace::parse(namespace)?;
        let options = QueryOptions::default();
        modify::delete(&self.db, op, &namespace, &statement, &options, &mut report)?;
        self.db.sync()?;
        Ok(report.result.deleted)
    }

    /// The documents that match.
    /// Errors: those of a read.
    pub fn list(&self, namespace: &str, filter: RawDoc<'_>) -> Result<Vec<DocBuf>, Error> {
        let spec = FindSpec {
            filter: Some(filter),
            ..FindSpec::default()
        };
        let op = StatementContext::from(OpContext::new());
        let namespace = Namespace::parse(namespace)?;
        let mut found = (self.db).find(&op, &namespace, spec, &QueryOptions::default())?;
        let mut documents = Vec::new();
        while let Some(document) = found.next(op.op())? {
            documents.push(document.as_raw().to_buf());
        }
        Ok(documents)
    }

    pub(super) fn first(
        &self,
        namespace: &str,
        filter: RawDoc<'_>,
    ) -> Result<Option<DocBuf>, Error> {
        let spec = FindSpec {
            filter: Some(filter),
            ..FindSpec::default()
        };
        let op = StatementContext::from(OpContext::new());
        let namespace = Namespace::parse(namespace)?;
        let mut found = (self.db).find(&op, &namespace, spec, &QueryOptions::default())?;
        Ok(found.next(op.op())?.map(|doc| doc.as_raw().to_buf()))
    }

    /// The document of a user.
    /// Errors: those of a read.
    pub fn document(&self, name: &UserName) -> Result<Option<DocBuf>, Error> {
        let mut filter = DocBuilder::new();
        filter.append("_id", name.id().as_str());
        self.first(USERS_NAMESPACE, filter.finish().as_raw())
    }

    /// The user with its roles and privileges; `None` if it does not exist.
    /// Errors: those of a read.
    pub fn log_in(&self, name: &UserName) -> Result<Option<LoggedIn>, Error> {
        // Read first: a change in between is noticed at the next command.
        let generation = self.generation();
        let Some(document) = self.document(name)? else {
            return Ok(None);
        };
        let resolved = self.resolve(&super::roles::roles_of(document.as_raw()))?;
        Ok(Some(LoggedIn::new(
            name.clone(),
            &document,
            resolved,
            generation,
        )))
    }

    /// The keys that a login of this user is checked with. For a user that does not exist, or has
    /// no keys of the mechanism, returns keys that match no password. Errors: those of a read.
    pub fn credentials(
        &self,
        mechanism: Mechanism,
        name: &UserName,
        iterations: u32,
    ) -> Result<Credentials, Error> {
        let stored = self.document(name)?;
        let keys = stored.and_then(|user| {
            let keys = credentials_of(user.as_raw())?.get(mechanism.name())?;
            Credentials::from_doc(mechanism, keys.as_document()?)
        });
        // Computed for every user: the time must not depend on whether the user exists.
        let nobody = Credentials::of_nobody(mechanism, &name.id(), &self.secret()?, iterations);
        Ok(keys.unwrap_or(nobody))
    }

    /// The mechanisms for which a user has keys; all mechanisms for a user that does not exist or
    /// has no credentials. Errors: those of a read.
    pub fn mechanisms(&self, name: &UserName) -> Result<Vec<Mechanism>, Error> {
        let stored = self.document(name)?;
        let Some(credentials) = stored
            .as_ref()
            .and_then(|user| credentials_of(user.as_raw()))
        else {
            return Ok(Mechanism::ALL.to_vec());
        };
        let has = |mechanism: &Mechanism| credentials.get(mechanism.name()).is_some();
        Ok(Mechanism::ALL.into_iter().filter(has).collect())
    }

    /// Whether there is a user or a role: then the localhost exception has ended.
    /// Errors: those of a read.
    pub fn exist(&self) -> Result<bool, Error> {
        let none = RawDoc::EMPTY;
        Ok(self.first(USERS_NAMESPACE, none)?.is_some()
            || self.first(super::ROLES_NAMESPACE, none)?.is_some())
    }

    /// The secret of the salts. It outlives a restart once users are stored, as their salts do: the
    /// collection's UUID, which only administrators can read, is part of it.
    fn secret(&self) -> Result<Vec<u8>, Error> {
        let catalog = self.db.catalog();
        let users = catalog.collection(&Namespace::parse(USERS_NAMESPACE)?);
        Ok(match users {
            Some(users) => users.uuid().as_bytes().to_vec(),
            None => self.secret.to_vec(),
        })
    }
}

/// `credentials` of a user's document.
pub fn credentials_of(user: RawDoc<'_>) -> Option<RawDoc<'_>> {
    user.get("credentials")?.as_document()
}
