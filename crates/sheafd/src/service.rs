//! The commands as the network calls them: [`Service`] over a [`Server`].

use std::sync::Arc;

use sheaf_server::client::Client;
use sheaf_server::command::{self, cluster_time};
use sheaf_server::server::{ConnectionState, Server};
use sheaf_wire::{Message, ReplyWriter, command_error};

use crate::net::{ConnectionHandler, Link, Next, Service};

/// Answers requests with a server's commands.
pub struct CommandService(pub Arc<Server>);

struct Handler {
    server: Arc<Server>,
    state: ConnectionState,
}

impl Service for CommandService {
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler> {
        let client: Arc<dyn Client> = link.clone();
        Box::new(Handler {
            state: ConnectionState::new(&self.0, &client),
            server: self.0.clone(),
        })
    }

    fn interrupt(&self) {
        self.0.interrupt();
    }

    fn close(&self) -> bool {
        self.0.close()
    }
}

impl ConnectionHandler for Handler {
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        self.state.exhaust = false;
        self.state.has_session = false;
        let mut body = reply.take_body();
        let server = &self.server;
        let done = command::dispatch(server, &mut self.state, request, &mut body);
        // To clients with sessions, and of a server that has an oplog to all.
        let timed = self.state.has_session || server.db.oplog().is_on();
        match done {
            Ok(()) => {
                if timed {
                    cluster_time::append_times(server, &mut body);
                }
                reply.put_body(body);
            }
            Err(error) => {
                drop(body);
                reply.write(|body| {
                    command_error::append(&error, body);
                    if timed {
                        cluster_time::append_times(server, body);
                    }
                });
                return Next::Reply;
            }
        }
        if self.state.exhaust {
            Next::Exhaust
        } else {
            Next::Reply
        }
    }

    fn replied(&mut self) {
        self.state.leftovers.free();
    }

    /// The next reply of a stream is what the same request is answered now.
    fn exhaust(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        self.state.follows = true;
        let next = self.handle(request, reply);
        self.state.follows = false;
        next
    }
}
