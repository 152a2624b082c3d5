//! The authentication of one connection.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use sheaf_auth::restriction::{self, Ends};
use sheaf_auth::scram::server::Conversation;
use sheaf_auth::{Mechanism, Privilege, PrivilegeSet, RoleName, UserName};
use sheaf_bson::{ArrayBuf, ArrayBuilder, DocBuf, DocBuilder, Value};

use super::Resolved;
use crate::command_facts::Caller;

/// The user of a connection.
#[derive(Debug)]
pub struct LoggedIn {
    /// Name and database.
    pub name: UserName,
    /// SHA-256 of `user@db`: `uid` of the user's sessions.
    pub digest: [u8; 32],
    /// The user's roles, with those that they inherit from.
    pub roles: Vec<RoleName>,
    /// What they grant, for replies.
    pub privileges: Vec<Privilege>,
    /// What they grant, for checks.
    pub allowed: PrivilegeSet,
    /// `$$USER_ROLES`.
    pub roles_value: Arc<Value>,
    /// `userId`: another user of the same name has another one.
    pub user_id: Option<Value>,
    /// Each must be satisfied.
    restrictions: Vec<ArrayBuf>,
    /// [`Users::generation`](super::Users::generation) when all this was read.
    pub generation: u64,
}

impl LoggedIn {
    pub(super) fn new(
        name: UserName,
        document: &DocBuf,
        resolved: Resolved,
        generation: u64,
    ) -> LoggedIn {
        let mut restrictions = resolved.restrictions;
        let own = document.get("authenticationRestrictions");
        restrictions.extend(own.and_then(|list| Some(list.as_array()?.to_buf())));
        LoggedIn {
            digest: digest(&name),
            user_id: document.get("userId").map(|id| id.to_value()),
            name,
            roles_value: Arc::new(roles_value(&resolved.roles)),
            roles: resolved.roles,
            allowed: PrivilegeSet::new(&resolved.privileges),
            privileges: resolved.privileges,
            restrictions,
            generation,
        }
    }

    /// Whether the user may log in on a connection between these addresses.
    pub fn may_connect(&self, ends: Option<Ends>) -> bool {
        (self.restrictions.iter()).all(|list| restriction::allows(list.as_raw(), ends))
    }
}

/// The user as the command table sees it.
pub fn caller(user: &LoggedIn) -> Caller<'_> {
    Caller {
        name: &user.name,
        roles: &user.roles,
        allowed: &user.allowed,
    }
}

/// `[{_id: "db.role", role, db}]`.
fn roles_value(roles: &[RoleName]) -> Value {
    let mut list = ArrayBuilder::new();
    for role in roles {
        let mut out = DocBuilder::new();
        out.append("_id", role.id().as_str());
        out.append("role", role.role.as_str());
        out.append("db", role.db.as_str());
        list.push_document_bytes(out.finish().as_bytes());
    }
    Value::Array(list.finish())
}

/// SHA-256 of `user@db`.
pub fn digest(name: &UserName) -> [u8; 32] {
    Sha256::digest(name.to_string()).into()
}

/// The authentication of one connection: its user, and a login in progress.
#[derive(Debug, Default)]
pub struct Authentication {
    /// The user, once a login has succeeded.
    pub user: Option<Arc<LoggedIn>>,
    /// A login that waits for the client's next message.
    pub login: Option<Login>,
}

/// A login in progress.
#[derive(Debug)]
pub struct Login {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The user that the client claims to be.
    pub name: UserName,
    /// `options.skipEmptyExchange`: the reply to the proof ends the login.
    pub skips_empty_exchange: bool,
    /// What comes next.
    pub step: Step,
}

/// What a login waits for.
#[derive(Debug)]
pub enum Step {
    /// The client's proof.
    Proof(Box<Conversation>),
    /// An empty message, which acknowledges the server's signature.
    Acknowledgement,
}
