//! The interface between the network and the commands.

use std::sync::Arc;

use sheaf_wire::{Message, ReplyWriter};

use super::Link;

/// Answers requests. One instance serves all connections.
pub trait Service: Send + Sync {
    /// Creates the handler of a new connection. Called on the connection's
    /// thread, which keeps the handler until it is dropped.
    ///
    /// `link` identifies the client and reports whether it is still connected.
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler>;

    /// Called once when the server is about to stop: operations in progress
    /// should end soon with `InterruptedAtShutdown`. Replies still reach their
    /// clients.
    fn interrupt(&self) {}

    /// Called once, after the last connection has closed: flushes and closes the data.
    /// Returns false if a flush failed.
    fn close(&self) -> bool {
        true
    }
}

/// The state of one connection. Dropped when the connection ends, for any reason; dropping it kills
/// the operations that only its client waited for.
pub trait ConnectionHandler {
    /// Whether the reply to this command may be compressed, where its request was.
    fn is_compressible(&self, command: &str) -> bool {
        let _ = command;
        true
    }

    /// Whether the client may send large messages and take its time: it has logged in, or need not.
    fn is_trusted(&self) -> bool {
        true
    }

    /// Answers one request.
    ///
    /// The reply has been started; the handler writes its body or an error. If
    /// the client wants no reply ([`Message::more_to_come`]) the handler need
    /// not write one, and a written one is not sent.
    ///
    /// A panic becomes an `InternalError` for this client and ends its connection.
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next;

    /// Produces the next reply of an exhaust stream, after `handle` or this
    /// function returned [`Next::Exhaust`] for the same request. May block (for
    /// data, or a topology change) as long as it watches the link.
    ///
    /// Required only for handlers that return `Exhaust`. The default ends the
    /// stream with the error that no reply was written.
    fn exhaust(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        let _ = (request, reply);
        Next::Reply
    }

    /// Called after the reply was sent: memory of the command can be freed without delaying it.
    /// Not called if the connection ends instead.
    fn replied(&mut self) {}

    /// Called when the client has been silent for a while: memory kept for its
    /// next request can be released.
    fn idle(&mut self) {}
}

/// What the connection does with the reply, and next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send it and read the next request.
    Reply,
    /// Send nothing and read the next request.
    NoReply,
    /// Send it, marked `moreToCome`, and call [`ConnectionHandler::exhaust`]
    /// for the next one. A plain reply unless [`Message::exhaust_allowed`].
    Exhaust,
    /// Send it and close the connection. If nothing was written, only close.
    Close,
}
