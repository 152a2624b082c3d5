//! The seam between the network and the commands.

use std::sync::Arc;

use sheaf_wire::{Message, ReplyWriter};

use super::Link;

/// What answers requests: made once, asked by every connection.
pub trait Service: Send + Sync {
    /// A handler for a new connection. Called on the connection's own thread,
    /// where the handler stays until it is dropped.
    ///
    /// The link tells who the client is and whether it is still there.
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler>;

    /// The server is about to stop: operations under way should end soon with
    /// `InterruptedAtShutdown`. Called once, from the thread that stops it;
    /// replies still reach their clients.
    fn interrupt(&self) {}

    /// No connection is left: the data comes to rest. Called once, last. Answers whether all of it did.
    fn close(&self) -> bool {
        true
    }
}

/// The state of one connection. Dropped when the connection is gone, however
/// it ended: that is the moment to kill what only its client was waiting for.
pub trait ConnectionHandler {
    /// Answers one request.
    ///
    /// The reply has been begun; the handler writes its body (or an error).
    /// Where the client wants no reply ([`Message::more_to_come`]) the handler
    /// need not write one, and what it writes is not sent.
    ///
    /// A panic becomes an `InternalError` for this client and ends its connection.
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next;

    /// Produces the next reply of an exhaust stream that `handle` or this
    /// function began with [`Next::Exhaust`] for the same request. May take
    /// its time (awaiting data, or a topology change) as long as it watches
    /// the link.
    ///
    /// Only handlers that return `Exhaust` need it: without it the stream ends
    /// with the error that no reply was written.
    fn exhaust(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        let _ = (request, reply);
        Next::Reply
    }

    /// The reply is on its way to the client: what the command needs no more can be freed at leisure. Not called
    /// when the connection ends instead.
    fn replied(&mut self) {}

    /// The client has not sent anything for a while: memory kept for its next
    /// request can be given back.
    fn idle(&mut self) {}
}

/// What becomes of the reply, and of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send it and read the next request.
    Reply,
    /// Send nothing and read the next request.
    NoReply,
    /// Send it, marked `moreToCome`, and ask [`ConnectionHandler::exhaust`]
    /// for the next one. Only where [`Message::exhaust_allowed`]; otherwise it
    /// is a plain reply.
    Exhaust,
    /// Send it and close the connection. With nothing written, just close.
    Close,
}
