//! The server: what all connections share, and what one connection keeps.

use std::sync::Arc;
use std::time::Instant;

use sheaf_db::Db;
use sheaf_db::find::QueryOptions;
use sheaf_wire::{Message, ReplyWriter};

use crate::command;
use crate::log::Log;
use crate::net::{ConnectionHandler, Link, Next, Service};
use crate::observe::{Metrics, Profiler};
use crate::parameters::Parameters;
use crate::session::cursors::CursorTable;
use crate::session::operations::{OperationSlot, OperationTable};

/// What all connections share.
pub struct Server {
    /// The database.
    pub db: Arc<Db>,
    /// Where lines go.
    pub log: Arc<Log>,
    /// Open cursors.
    pub cursors: CursorTable,
    /// Operations in progress.
    pub operations: OperationTable,
    /// What setParameter sets.
    pub parameters: Parameters,
    /// What serverStatus shows.
    pub metrics: Metrics,
    /// Profiling levels and system.profile.
    pub profiler: Profiler,
    /// When the process began serving.
    pub started: Instant,
}

/// What one connection keeps between its commands.
pub struct ConnectionState {
    /// Who the client is, and whether it is still there.
    pub link: Arc<Link>,
    /// Shows what this connection is doing.
    pub operations: Arc<OperationSlot>,
    /// What the client said of itself in its first hello.
    pub client_metadata: Option<sheaf_bson::DocBuf>,
}

impl Server {
    /// How queries run, by the server's parameters and the command's wish.
    pub fn query_options(&self, allow_disk_use: Option<bool>) -> QueryOptions {
        self.parameters.query_options(&self.db, allow_disk_use)
    }
}

/// The seam to the network.
pub struct CommandService(pub Arc<Server>);

struct Handler {
    server: Arc<Server>,
    state: ConnectionState,
}

impl Service for CommandService {
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler> {
        let server = self.0.clone();
        let operations = server
            .operations
            .connect(link.id(), link.peer().to_string());
        Box::new(Handler {
            server,
            state: ConnectionState {
                link: link.clone(),
                operations,
                client_metadata: None,
            },
        })
    }

    fn interrupt(&self) {
        self.0
            .operations
            .kill_all(sheaf_bson::ErrorCode::INTERRUPTED_AT_SHUTDOWN);
    }
}

impl ConnectionHandler for Handler {
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        let mut body = reply.take_body();
        match command::dispatch(&self.server, &mut self.state, request, &mut body) {
            Ok(()) => reply.put_body(body),
            Err(error) => {
                drop(body);
                reply.error(&error);
            }
        }
        if request.more_to_come() {
            return Next::NoReply;
        }
        Next::Reply
    }
}
