//! The stored users: `admin.system.users`, in MongoDB's document shape.

use std::sync::Arc;

use sheaf_auth::scram::Credentials;
use sheaf_auth::{Mechanism, UserName, random};
use sheaf_bson::{DocBuf, DocBuilder, Error, RawDoc};
use sheaf_db::{Db, Namespace, OpContext, QueryOptions, StatementContext};
use sheaf_query::canonical::FindSpec;

/// Where users are stored.
pub const USERS_NAMESPACE: &str = "admin.system.users";

/// The users of a server.
pub struct Users {
    db: Arc<Db>,
    /// Part of the salts of users that do not exist.
    secret: [u8; 32],
}

impl Users {
    /// The users of this database.
    /// Errors: the system has no randomness.
    pub fn open(db: &Arc<Db>) -> Result<Users, Error> {
        Ok(Users {
            db: db.clone(),
            secret: random::bytes()?,
        })
    }

    /// The document of a user.
    /// Errors: those of a read.
    pub fn document(&self, name: &UserName) -> Result<Option<DocBuf>, Error> {
        let mut filter = DocBuilder::new();
        filter.append("_id", name.id().as_str());
        let filter = filter.finish();
        let spec = FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        };
        let op = StatementContext::from(OpContext::new());
        let namespace = Namespace::parse(USERS_NAMESPACE)?;
        let mut found = (self.db).find(&op, &namespace, spec, &QueryOptions::default())?;
        Ok(found.next(op.op())?.map(|doc| doc.as_raw().to_buf()))
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
