//! Runs one client's commands in order: a connection without its socket.
//!
//! ```text
//!   Session::run     a command document in, a reply document out     programs in this process
//!   Session::answer  a request in, a reply built in place out        the network
//! ```
//!
//! Logical sessions, cursors and transactions work as over a connection. An error becomes the
//! reply that a client would receive.
//!
//! Invariant: a panic in a command does not pass through this module. It fails its command with
//! `InternalError`, and the state that it may have left inconsistent is dropped.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc};
use sheaf_wire::command_error;

use crate::client::{Client, InProcessClient};
use crate::command::{self, Request, cluster_time};
use crate::connection::ConnectionState;
use crate::guard::caught;
use crate::log::{Component, Log, events};
use crate::server::Server;

/// What follows a reply on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The next request.
    Reply,
    /// A further reply to the same request, by [`Session::answer_next`].
    Exhaust,
    /// Nothing: the connection must be closed, since its command failed on a broken invariant.
    Close,
    /// Nothing, not even the reply: the connection must be closed.
    Drop,
}

/// The commands of one client.
pub struct Session {
    server: Arc<Server>,
    client: Arc<dyn Client>,
    state: ConnectionState,
}

impl Session {
    /// A session of the program that holds the server.
    pub fn new(server: &Arc<Server>) -> Session {
        Session::of(server, Arc::new(InProcessClient::new()))
    }

    /// A session of this client.
    pub fn of(server: &Arc<Server>, client: Arc<dyn Client>) -> Session {
        Session {
            state: ConnectionState::new(server, &client),
            server: server.clone(),
            client,
        }
    }

    /// Runs a command against `db` and returns its reply, `ok: 0` with code and message if it
    /// failed. A `$db` in the document is ignored.
    pub fn run(&mut self, db: &str, command: RawDoc<'_>) -> DocBuf {
        let request = Request::in_process(db, command);
        let (reply, _) = self.answer(&request, DocBuilder::new);
        self.replied();
        reply.finish()
    }

    /// Whether the client has logged in, or need not.
    pub fn is_trusted(&self) -> bool {
        !self.server.settings.authorization || self.state.authentication.user.is_some()
    }

    /// Answers a request. `begin` creates the builder of the reply's body; it is called again when
    /// an error discards what was built.
    pub fn answer(
        &mut self,
        request: &Request<'_>,
        mut begin: impl FnMut() -> DocBuilder,
    ) -> (DocBuilder, Answered) {
        self.state.exhaust = false;
        self.state.has_session = false;
        let done = caught(|| {
            let mut body = begin();
            command::dispatch(&self.server, &mut self.state, request, &mut body).map(|()| body)
        });
        if self.state.drops {
            self.state.drops = false;
            return (begin(), Answered::Drop);
        }
        match done {
            Ok(Ok(mut body)) => {
                self.append_times(&mut body);
                let next = match self.state.exhaust {
                    true => Answered::Exhaust,
                    false => Answered::Reply,
                };
                (body, next)
            }
            Ok(Err(error)) => (self.failed(&error, begin()), Answered::Reply),
            Err(panic) => {
                log_panic(&self.server.log, &panic, request.name);
                let error = Error::new(
                    ErrorCode::INTERNAL_ERROR,
                    format!("internal error: {panic}"),
                );
                let body = self.failed(&error, begin());
                self.state = ConnectionState::new(&self.server, &self.client);
                (body, Answered::Close)
            }
        }
    }

    /// The next reply of a stream that [`Answered::Exhaust`] began: answers the same request
    /// again.
    pub fn answer_next(
        &mut self,
        request: &Request<'_>,
        begin: impl FnMut() -> DocBuilder,
    ) -> (DocBuilder, Answered) {
        self.state.follows = true;
        let answer = self.answer(request, begin);
        self.state.follows = false;
        answer
    }

    /// Frees what the command no longer needs. Called when its reply has been sent, so that the
    /// client does not wait for it.
    pub fn replied(&mut self) {
        self.state.deferred_drops.free();
    }

    fn failed(&self, error: &Error, mut body: DocBuilder) -> DocBuilder {
        command_error::append(error, &mut body);
        self.append_times(&mut body);
        body
    }

    /// Appends the cluster times, for clients with sessions and, on a server with an oplog, for all
    /// clients.
    fn append_times(&self, body: &mut DocBuilder) {
        if self.state.has_session || self.server.db.oplog().is_on() {
            cluster_time::append_times(&self.server, body);
        }
    }
}

fn log_panic(log: &Log, panic: &str, command: &str) {
    log.error(
        Component::Command,
        events::COMMAND_PANICKED,
        "A command failed on a broken invariant; its connection is closed",
        |attr| {
            attr.append("command", command);
            attr.append("error", log.client_text(panic));
        },
    );
}
