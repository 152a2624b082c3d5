//! The authentication of one connection.

use std::sync::Arc;

use sheaf_auth::scram::server::Conversation;
use sheaf_auth::{Mechanism, UserName};

/// The user of a connection.
#[derive(Debug)]
pub struct LoggedIn {
    /// Name and database.
    pub name: UserName,
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
