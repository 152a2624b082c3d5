//! What one connection keeps between its commands.

use std::sync::Arc;

use crate::client::Client;
use crate::server::Server;
use crate::session::leftovers::Leftovers;
use crate::session::logical::LogicalSession;
use crate::session::operations::OperationSlot;

/// What one connection keeps between its commands.
pub struct ConnectionState {
    /// Who the client is, and whether it is still there.
    pub client: Arc<dyn Client>,
    /// The session used last.
    pub session: Option<Arc<LogicalSession>>,
    /// Shows what this connection is doing.
    pub operations: Arc<OperationSlot>,
    /// What the client said of itself in its first hello.
    pub client_metadata: Option<sheaf_bson::DocBuf>,
    /// The command under way has a session, or a cluster time: its reply tells the times.
    pub has_session: bool,
    /// Set by a command whose reply is to be followed by another without a request.
    pub exhaust: bool,
    /// The reply under way follows another of the same stream.
    pub follows: bool,
    /// What is freed when the reply has been sent.
    pub leftovers: Leftovers,
}

impl ConnectionState {
    /// The state of a new connection of this client.
    pub fn new(server: &Server, client: &Arc<dyn Client>) -> ConnectionState {
        ConnectionState {
            client: client.clone(),
            session: None,
            operations: server.operations.connect(client),
            client_metadata: None,
            has_session: false,
            exhaust: false,
            follows: false,
            leftovers: Leftovers::default(),
        }
    }
}
