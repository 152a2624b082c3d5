//! The commands as the network calls them: [`Service`] over a [`Server`].

use std::sync::Arc;

use sheaf_server::client_session::{Answered, Session};
use sheaf_server::command::Request;
use sheaf_server::log::{Component, events};
use sheaf_server::server::Server;
use sheaf_wire::{Message, ReplyWriter};

use crate::net::{ConnectionHandler, Link, Next, Service};

/// Answers requests with a server's commands.
pub struct CommandService(pub Arc<Server>);

struct Handler(Session);

impl Service for CommandService {
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler> {
        warn_of_expiry(&self.0, link);
        Box::new(Handler(Session::of(&self.0, link.clone())))
    }

    fn interrupt(&self) {
        self.0.interrupt();
    }

    fn close(&self) -> bool {
        self.0.close()
    }
}

/// Logs a warning if the client's certificate expires soon.
fn warn_of_expiry(server: &Server, link: &Link) {
    let Some(client) = link.certificate() else {
        return;
    };
    if sheaf_server::jobs::expires_soon(server, client.expires) {
        server.log.warning(
            Component::Network,
            events::CLIENT_CERTIFICATE_EXPIRES,
            "The client's certificate expires soon",
            |attr| {
                attr.append("remote", link.peer().to_string().as_str());
                attr.append("connectionId", link.id() as i64);
                attr.append("subject", client.subject.as_str());
                attr.append("expires", client.expires);
            },
        );
    }
}

impl ConnectionHandler for Handler {
    fn is_compressible(&self, command: &str) -> bool {
        sheaf_server::command::is_compressible(command)
    }

    fn is_trusted(&self) -> bool {
        self.0.is_trusted()
    }

    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        let (body, next) = self
            .0
            .answer(&Request::of_message(request), || reply.take_body());
        if next == Answered::Drop {
            return Next::Close;
        }
        reply.put_body(body);
        follow(next)
    }

    fn replied(&mut self) {
        self.0.replied();
    }

    fn exhaust(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        let (body, next) = self
            .0
            .answer_next(&Request::of_message(request), || reply.take_body());
        if next == Answered::Drop {
            return Next::Close;
        }
        reply.put_body(body);
        follow(next)
    }
}

fn follow(answered: Answered) -> Next {
    match answered {
        Answered::Reply => Next::Reply,
        Answered::Exhaust => Next::Exhaust,
        Answered::Close | Answered::Drop => Next::Close,
    }
}
