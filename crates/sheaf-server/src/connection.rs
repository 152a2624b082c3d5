//! State that a connection keeps between its commands.

use std::sync::Arc;

use crate::access::Authentication;
use crate::client::Client;
use crate::server::Server;
use crate::session::deferred_drops::DeferredDrops;
use crate::session::logical::LogicalSession;
use crate::session::operations::OperationSlot;

/// State that a connection keeps between its commands.
pub struct ConnectionState {
    /// The client's identity, and whether it is still connected.
    pub client: Arc<dyn Client>,
    /// The client's user, and a login in progress.
    pub authentication: Authentication,
    /// The most recently used session.
    pub session: Option<Arc<LogicalSession>>,
    /// Shows what this connection is doing.
    pub operations: Arc<OperationSlot>,
    /// `client` of the first hello.
    pub client_metadata: Option<sheaf_bson::DocBuf>,
    /// The current command has a session or a cluster time: its reply contains the times.
    pub has_session: bool,
    /// Set by a command whose reply another reply follows without a request.
    pub exhaust: bool,
    /// The current reply follows another of the same stream.
    pub follows: bool,
    /// Set by a fail point: the connection is closed without a reply.
    pub drops: bool,
    /// Freed when the reply has been sent.
    pub deferred_drops: DeferredDrops,
}

impl ConnectionState {
    /// The state of a new connection of this client.
    pub fn new(server: &Server, client: &Arc<dyn Client>) -> ConnectionState {
        ConnectionState {
            client: client.clone(),
            authentication: Authentication::default(),
            session: None,
            operations: server.operations.connect(client),
            client_metadata: None,
            has_session: false,
            exhaust: false,
            follows: false,
            drops: false,
            deferred_drops: DeferredDrops::default(),
        }
    }
}
